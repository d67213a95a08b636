"""Word order learned from trees and drawn for others, and the trees themselves."""

from __future__ import annotations

import itertools
import random
from collections import Counter

from hf_xalign.data.derived.treebank import Tree, load_treebank, read_trees
from hf_xalign.data.derived.word_order import HEAD, WordOrder


def tree(text):
    """Return the tree of `word/UPOS/head/relation` items."""
    words, upos, heads, relations = zip(*(item.split("/") for item in text.split()), strict=True)
    return Tree(list(words), list(upos), list(map(int, heads)), list(relations))


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
        for first, second in itertools.combinations(order, 2):
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
    assert drawn.keys() <= {order for order, p in expected.items() if p > 0}
    for order, p in expected.items():
        assert abs(drawn[order] / times - p) <= 4 * (p * (1 - p) / times) ** 0.5, order


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


def test_files(tmp_path):
    path = tmp_path / "fr.conllu"
    word, blank = "{}\t{}\t_\t{}\t_\t_\t{}\t{}\t_\t_", ("_",) * 3
    rows = ["# sent_id = 1", word.format("1-2", "du", *blank), word.format(1, "de", "ADP", 3, "case")]
    rows += [word.format(2, "le", "DET", 3, "det"), word.format(3, "pain", "NOUN", 0, "root")]
    rows += [word.format("3.1", "vu", "VERB", "_", "_"), "", "# sent_id = 2", word.format(1, "Oui", "INTJ", 0, "root")]
    path.write_bytes("\r\n".join(rows).encode())
    assert list(read_trees(path)) == [
        (["de", "le", "pain"], ["ADP", "DET", "NOUN"], [3, 3, 0], ["case", "det", "root"]),
        (["Oui"], ["INTJ"], [0], ["root"]),
    ]
    loaded = load_treebank([path, path])
    assert loaded.column_names == ["tokens", "upos", "heads", "deprels"]
    assert len(loaded) == 4 and loaded[2]["heads"] == [3, 3, 0]
