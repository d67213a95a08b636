"""Word order learned from trees and drawn for others, and the trees themselves."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from hf_xalign.data.treebank import Tree, load_treebank, read_trees
from hf_xalign.data.word_order import HEAD, WordOrder
from hf_xalign.errors import InputError


def tree(text):
    """Of `word/UPOS/head/relation` items."""
    rows = [item.split("/") for item in text.split()]
    return Tree([r[0] for r in rows], [r[1] for r in rows], [int(r[2]) for r in rows], [r[3] for r in rows])


FRENCH = [
    tree("la/DET/2/det maison/NOUN/4/nsubj blanche/ADJ/2/amod brille/VERB/0/root"),
    tree("il/PRON/2/nsubj voit/VERB/0/root un/DET/4/det chat/NOUN/2/obj noir/ADJ/4/amod"),
    tree("la/DET/2/det robe/NOUN/3/nsubj plaît/VERB/0/root"),
    tree("un/DET/3/det petit/ADJ/3/amod chien/NOUN/4/nsubj:pass dort/VERB/0/root"),
]
ENGLISH = tree(
    "the/DET/4/det big/ADJ/4/amod very_old/ADJ/4/amod house/NOUN/5/nsubj burns/VERB/0/root today/ADV/5/advmod"
)


def test_adjectives_follow_their_nouns_as_often_as_in_the_language_learned_from():
    found = WordOrder.learn(FRENCH)
    assert found.counts["NOUN"][HEAD] == {"amod": 2}
    assert found.counts["NOUN"]["amod"] == {HEAD: 1}
    assert found.counts["NOUN"]["det"] == {HEAD: 4, "amod": 3}
    assert found.counts["VERB"] == {HEAD: {"obj": 1}, "nsubj": {HEAD: 3}, "nsubj/PRON": {HEAD: 1, "obj": 1}}
    assert found.probability("NOUN", "amod", HEAD, natural=True) == 2 / 4
    assert found.probability("NOUN", HEAD, "amod", natural=False) == 2 / 4
    assert found.probability("VERB", HEAD, "advmod", natural=True) == 1.0  # French has none: as it stands
    assert found.probability("NOUN", "amod", "amod", natural=False) == 0.0

    orders = Counter(tuple(found.order(ENGLISH, random.Random(seed).random)) for seed in range(400))
    assert all(sorted(order) == list(range(6)) for order in orders)
    after = sum(times for order, times in orders.items() if order.index(2) > order.index(3))
    assert 100 < after < 300  # of 400; before, 0
    assert all(order[-2:] == (4, 5) and order.index(1) < order.index(2) for order in orders)


def loop_distribution(found, category, labels):
    weights = {}
    for order in itertools.permutations(range(len(labels))):
        product = 1.0
        for i, first in enumerate(order):
            for second in order[i + 1 :]:
                product *= found.probability(category, labels[first], labels[second], natural=first < second)
        weights[order] = product
    return {order: weight / sum(weights.values()) for order, weight in weights.items()}


def test_orders_are_drawn_by_the_product_over_pairs():
    # Preferences that go round in a circle, so the first place must be drawn with an eye on what is left.
    counts = {
        "det": {HEAD: 9, "amod": 2},
        HEAD: {"amod": 20, "nmod": 1, "det": 3},
        "amod": {"det": 7, "nmod": 2, HEAD: 2},
        "nmod": {"det": 3, HEAD: 4, "amod": 1},
    }
    found = WordOrder({"NOUN": counts, "VERB": {}})
    given = tree("a/DET/3/det b/ADJ/3/amod c/NOUN/0/root d/NOUN/3/nmod")
    expected = loop_distribution(found, "NOUN", ["det", "amod", HEAD, "nmod"])
    assert sum(p > 0 for p in expected.values()) > 10
    draw = random.Random(5).random
    times = 6000
    drawn = Counter(tuple(found.order(given, draw)) for _ in range(times))
    for order, p in expected.items():
        assert abs(drawn[order] / times - p) <= 4 * (p * (1 - p) / times) ** 0.5 + 1e-12, order


def test_long_phrases_and_other_heads():
    found = WordOrder.learn(FRENCH)
    many = tree(" ".join(f"w{i}/ADJ/13/r{i % 9}" for i in range(12)) + " v/VERB/0/root n/NOUN/13/nsubj x/DET/14/det")
    order = found.order(many, random.Random(0).random)
    assert sorted(order) == list(range(15))
    assert order.index(13) < order.index(12)  # nsubj before the verb, in French always and so nearly always here
    adjective = tree("so/ADV/2/nsubj happy/ADJ/0/root he/PRON/2/nsubj")
    assert found.order(adjective, random.Random(0).random) == [0, 1, 2]


def test_crossing_phrases_keep_every_word_once():
    crossing = tree("a/NOUN/3/nsubj b/DET/4/det c/VERB/0/root d/NOUN/1/nmod e/ADJ/2/amod")
    found = WordOrder.learn(FRENCH)
    orders = {tuple(found.order(crossing, random.Random(seed).random)) for seed in range(20)}
    assert all(sorted(order) == list(range(5)) for order in orders)
    assert all({order.index(1), order.index(4)} in ({0, 1}, {1, 2}, {2, 3}, {3, 4}) for order in orders)


def test_learned_and_loaded(tmp_path):
    found = WordOrder.learn(FRENCH)
    found.save(tmp_path / "french.json")
    assert WordOrder.load(tmp_path / "french.json") == found
    (tmp_path / "other.json").write_text('{"format": "else"}')
    with pytest.raises(InputError, match=r"other\.json: not a word order"):
        WordOrder.load(tmp_path / "other.json")
    with pytest.raises(InputError, match="cannot be read"):
        WordOrder.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="no noun or verb"):
        WordOrder.learn([tree("oh/INTJ/0/root")])


CONLLU = """# sent_id = 1
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_
2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_
3\tpain\tpain\tNOUN\t_\t_\t0\troot\t_\t_
3.1\tvu\tvoir\tVERB\t_\t_\t_\t_\t_\t_

# sent_id = 2
1\tOui\toui\tINTJ\t_\t_\t0\troot\t_\t_"""


def test_conllu(tmp_path):
    path = tmp_path / "fr.conllu"
    path.write_bytes(CONLLU.replace("\n", "\r\n").encode())
    assert list(read_trees(path)) == [
        (["de", "le", "pain"], ["ADP", "DET", "NOUN"], [3, 3, 0], ["case", "det", "root"]),
        (["Oui"], ["INTJ"], [0], ["root"]),
    ]
    rows = load_treebank([path, path])
    assert rows.column_names == ["tokens", "upos", "heads", "deprels"]
    assert len(rows) == 4
    assert rows[2]["heads"] == [3, 3, 0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\troot\t_\t_\n3.1", "\troot\t_\n3.1", "line 5: 9 tab-separated fields"),
        ("\t_\t3\tcase", "\t_\t9\tcase", "line 3: word 1 has the head 9, in a sentence of 3"),
        ("\t_\t3\tcase", "\t_\t_\tcase", "line 3: word 1 has the head '_'"),
        ("\t_\t0\troot\t_\t_\n3", "\t_\t1\troot\t_\t_\n3", "line 3: the heads of word 1 lead back"),
        ("2\tle", "4\tle", "line 3: the words of the sentence are not numbered"),
        ("\n\n", "\n", "line 3: the words of the sentence are not numbered"),
    ],
)
def test_damaged_conllu(tmp_path, old, new, message):
    path = tmp_path / "fr.conllu"
    assert old in CONLLU
    path.write_text(CONLLU.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        list(read_trees(path))


def test_no_trees(tmp_path):
    (tmp_path / "empty.conllu").write_text("# nothing\n")
    with pytest.raises(InputError, match="no sentences"):
        load_treebank(tmp_path / "empty.conllu")
    with pytest.raises(InputError, match="cannot be read"):
        load_treebank(tmp_path / "none.conllu")
    (tmp_path / "latin.conllu").write_bytes("é".encode("latin1"))
    with pytest.raises(InputError, match="not UTF-8"):
        load_treebank(tmp_path / "latin.conllu")
    with pytest.raises(InputError, match="2 words, but 1 upos"):
        Tree(["a", "b"], ["NOUN"], [0, 1], ["root", "x"]).check()
