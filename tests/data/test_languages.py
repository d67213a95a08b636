"""Derived languages: words, their order and script, their datasets and vocabularies."""

import itertools
import math
import random
import unicodedata
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset
from datasets.fingerprint import Hasher
from support.labelled import slow_spans
from support.launch import slow
from support.text import CONLLU
from support.tiny import make_encoder, train_unigram
from tokenizers import AddedToken, normalizers
from transformers import AutoTokenizer, BertTokenizer

from hf_xalign.data.builtin import build_charsmap
from hf_xalign.data.derived.language import (
    LETTERS,
    Alphabet,
    DerivedLanguage,
    SharedPieces,
    derive,
    derive_pairs,
    move_spans,
    sentences,
)
from hf_xalign.data.derived.word_order import HEAD, Tree, WordOrder, load_treebank, read_trees
from hf_xalign.data.load import load_parallel
from hf_xalign.data.pretraining.vocabulary import cut_tokenizer, extend_tokenizer, train_tokenizer

TEXT = ["The cat sees the dog . It runs !", "no mark here", "", "Stop .", "a \" quoted ' word , and Ünïcode ½ ?"]
TEXT = [*TEXT, "the very same words come once more in a longer row of words ."] * 3
WORDS = [text.split() for text in TEXT]
ALPHABET = Alphabet.of(TEXT)


def tree(text):
    words, upos, heads, relations = zip(*(item.split("/") for item in text.split()), strict=True)
    return Tree(list(words), list(upos), list(map(int, heads)), list(relations))


TREE = tree("the/DET/3/det big/ADJ/3/amod house/NOUN/4/nsubj burns/VERB/0/root ./PUNCT/4/punct")
ALWAYS_AFTER = WordOrder({"NOUN": {HEAD: {"amod": 10**9}}, "VERB": {"punct": {HEAD: 10**9, "nsubj": 10**9}}})


def restore(text):
    return text.translate(str.maketrans(ALPHABET.translate(ALPHABET.characters), ALPHABET.characters))


def language(*operations, **options):
    alphabet = ALPHABET if "transliteration" in operations else None
    return DerivedLanguage("en", operations, alphabet=alphabet, **options)


def test_inversion_leaves_the_marks_and_is_its_own_inverse():
    inverted = language("inversion")
    assert " ".join(inverted.words(WORDS[0])) == "dog the sees cat The . runs It !"
    assert inverted.words(WORDS[1]) == ["here", "mark", "no"]
    for words in WORDS:
        assert inverted.words(inverted.words(words)) == words


def test_permutation_depends_on_the_seed_and_the_sentence_alone():
    one, other = language("permutation", seed=1), language("permutation", seed=2)
    long = WORDS[5]
    assert sorted(one.order(long)) == list(range(len(long)))
    assert one.order(long) != other.order(long)
    assert one.words(long)[-1] == "." and one.words(long) != long
    # A sentence of a row is permuted as it is alone, within its bounds.
    assert one.words([*WORDS[0], *long]) == one.words(WORDS[0]) + one.words(long)


def test_letters_are_a_bijection_and_plain_text():
    for words in WORDS:
        letters = language("transliteration").words(words)
        assert [restore(word) for word in letters] == words
        assert all(ord(c) in LETTERS for word in letters for c in word)
    everything = "".join(map(chr, LETTERS))
    assert {unicodedata.category(c) for c in everything} == {"Lo"}
    assert all(unicodedata.normalize(form, everything) == everything for form in ("NFC", "NFKC", "NFD", "NFKD"))
    assert Alphabet.of(["b▁a b"]).characters == "ab"
    kept = language("transliteration").spell("zoo")
    assert kept[0] == "z" and restore(kept) == "zoo"
    assert everything.lower() == everything and len(everything.split()) == 1


def test_the_alphabet_is_of_the_most_frequent_characters():
    characters = [chr(0x4E00 + k) for k in range(6200)]
    alphabet = Alphabet.of(["".join(characters), "".join(characters[64:])])
    assert len(alphabet) == len(LETTERS) == 6136 and alphabet.characters == "".join(characters[64:])
    assert alphabet.unknown("".join(characters)) == characters[:64]
    lower = BertTokenizer({"[UNK]": 0, "[MASK]": 1})
    assert Alphabet.of(["".join(characters[:6135]) * 2, "Ä"], lower).characters == "".join(characters[:6135])


def test_compositions_apply_the_first_operation_first():
    both = language("inversion", "transliteration")
    assert both.code == "en-x-inv-trans"
    plain = language("inversion").words(WORDS[0])
    assert both.words(WORDS[0]) == [ALPHABET.translate(word) for word in plain]
    found = DerivedLanguage("en", ("syntax", "inversion"), word_order=ALWAYS_AFTER)
    assert found.words(TREE.words, TREE) == ["burns", "big", "house", "the", "."]
    assert found.code == "en-x-syntax-inv"


def test_saved_and_loaded_with_the_same_fingerprint(tmp_path):
    operations = ("syntax", "inversion", "transliteration")
    options = {"seed": 5, "alphabet": ALPHABET, "word_order": ALWAYS_AFTER}
    options["shared"] = SharedPieces.draw(train_tokenizer(TEXT, 60), np.arange(5, 60), 0.3)
    found = DerivedLanguage("en", operations, **options)
    found.save(tmp_path / "language.json")
    loaded = DerivedLanguage.load(tmp_path / "language.json")
    assert loaded == found and Hasher.hash(loaded) == Hasher.hash(found)
    assert Hasher.hash(language("inversion", seed=1)) != Hasher.hash(language("inversion", seed=2))


def test_spans_stay_spans_when_reversed():
    torn = move_spans(["B-X", "I-X", "I-X", "O", "B-X"], [2, 0, 3, 1, 4])
    assert torn == ["B-X", "I-X", "O", "B-X", "B-X"]
    draw = random.Random(1)
    for _ in range(200):
        labels = [draw.choice(["O", "B-X", "I-X", "B-Y", "I-Y"]) for _ in range(draw.randrange(12))]
        reverse = list(range(len(labels)))[::-1]
        found = move_spans(labels, reverse)
        last = len(labels)
        assert slow_spans(found) == [(last - end, last - start, kind) for start, end, kind in slow_spans(labels)[::-1]]
        assert all(b[0] != "I" or a[2:] == b[2:] for a, b in itertools.pairwise(["O", *found]))


def test_labels_move_with_their_words():
    tags = [[f"{word}-tag" for word in words] for words in WORDS]
    rows = Dataset.from_dict({"tokens": WORDS, "tags": tags, "number": list(range(len(WORDS)))})
    found = derive(rows, language("inversion", "transliteration"), ["tokens"], labels="tags")
    assert found.column_names == ["tokens", "tags", "number"]
    for row, words in zip(found, WORDS):
        assert [restore(word) for word in row["tokens"]] == language("inversion").words(words)
        assert [restore(word) + "-tag" for word in row["tokens"]] == row["tags"]

    # A list of other values, which would stay in the old order, is left out.
    rows = {"tokens": [["a", "b", "c", "."]], "ner": [["B-PER", "I-PER", "O", "O"]], "pos": [["N", "V", "D", "."]]}
    found = derive(Dataset.from_dict(rows), language("inversion"), ["tokens"], labels="ner")
    assert found[0] == {"tokens": ["c", "b", "a", "."], "ner": ["O", "B-PER", "I-PER", "O"]}


def test_text_and_pairs():
    shared = SharedPieces.draw(train_tokenizer(TEXT, 60), np.arange(5, 60), 0.3)
    found = language("inversion", "transliteration", shared=shared)
    rows = Dataset.from_dict({"a": TEXT, "b": TEXT[::-1], "label": list(range(len(TEXT)))})
    one = derive(rows, found, ["a", "b"])
    assert one["a"] == [" ".join(found.words(words)) for words in WORDS] == one["b"][::-1]
    assert one["label"] == rows["label"]
    # A shuffled corpus has the same sentences.
    assert sorted(derive(rows.shuffle(seed=1), found, ["a"])["a"]) == sorted(one["a"])

    pairs = derive_pairs(rows, found, "a")
    # Each sentence is a pair: a paragraph would be too long for half a row.
    apart = [words[start:stop] for words in WORDS for start, _, stop in sentences(words)]
    assert pairs["target"] == [" ".join(words) for words in apart] and len(pairs) > sum(map(bool, TEXT))
    assert " ".join(pairs["source"]) == " ".join(filter(None, one["a"]))
    for row in pairs:
        assert (row["source_lang"], row["target_lang"]) == ("en-x-inv-trans", "en")
        assert sorted(row["source"].split()) == sorted(map(found.spell, row["target"].split()))


def test_trees_come_with_the_rows():
    rows = Dataset.from_dict({"tokens": [TREE.words], **{k: [v] for k, v in TREE._asdict().items() if k != "words"}})
    found = DerivedLanguage("en", ("syntax",), word_order=ALWAYS_AFTER)
    moved = derive(rows, found, ["tokens"], labels="upos")
    assert moved.column_names == ["tokens", "upos"]
    upos = ["DET", "NOUN", "ADJ", "VERB", "PUNCT"]
    assert moved[0] == {"tokens": ["the", "house", "big", "burns", "."], "upos": upos}
    assert derive_pairs(rows, found, "tokens")[0]["source"] == "the house big burns ."
    # Two texts have a tree each.
    both = {name: [" ".join(TREE.words)] for name in "ab"}
    both |= {f"{name}_{k}": rows[k][:] for name in "ab" for k in ("upos", "heads", "deprels")}
    assert derive(Dataset.from_dict(both), found, ["a", "b"])[0] == dict.fromkeys("ab", "the house big burns .")


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
    assert found.probability("VERB", HEAD, "advmod", natural=True) == 1.0  # French has none: as it stands
    assert found.probability("NOUN", "amod", "amod", natural=False) == 0.0

    orders = {tuple(found.order(ENGLISH, random.Random(seed).random)) for seed in range(40)}
    assert all(order[-2:] == (4, 5) and order.index(1) < order.index(2) for order in orders)


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
    labels, weights = ["det", "amod", HEAD, "nmod"], {}
    for order in itertools.permutations(range(4)):
        couples = itertools.combinations(order, 2)
        weights[order] = math.prod(found.probability("NOUN", labels[a], labels[b], natural=a < b) for a, b in couples)
    expected = {order: weight / sum(weights.values()) for order, weight in weights.items()}
    assert sum(p > 0 for p in expected.values()) > 10
    draw = random.Random(5).random
    times = 6000
    drawn = Counter(tuple(found.order(given, draw)) for _ in range(times))
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
    crossing = tree("a/NOUN/3/nsubj b/DET/4/det c/VERB/0/root d/NOUN/1/nmod e/ADJ/2/amod")
    orders = {tuple(found.order(crossing, random.Random(seed).random)) for seed in range(20)}
    assert all(sorted(order) == list(range(5)) for order in orders)
    assert all({order.index(1), order.index(4)} in ({0, 1}, {1, 2}, {2, 3}, {3, 4}) for order in orders)


def test_files(tmp_path):
    path = tmp_path / "fr.conllu"
    path.write_bytes(CONLLU.replace("\n", "\r\n").encode())
    assert list(read_trees(path)) == [
        (["de", "le", "pain"], ["ADP", "DET", "NOUN"], [3, 3, 0], ["case", "det", "root"]),
        (["Oui"], ["INTJ"], [0], ["root"]),
    ]
    loaded = load_treebank(path)
    assert loaded.column_names == ["tokens", "upos", "heads", "deprels"]
    assert len(loaded) == 2 and loaded[0]["heads"] == [3, 3, 0]
    path.write_text(CONLLU.replace("\tOui\t", "\t_\t"))
    assert len(load_treebank(path)) == 1


# ---- Vocabularies, trained, cut, and copied into another script ----


ODD = ["The FILE: “don't” open (½ of it) ... №5 — 3.14%", "ﬁle naïve Ünïcode İx e-mail@x.org #hash ##s </w> 中文"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_XALIGN_CACHE", str(tmp_path_factory.mktemp("cache")))
        return [*load_parallel("builtin:de", split="test")["target"], *ODD]


def normalizing(tokenizer):
    """A tokenizer that maps characters as XLM-R's does: ligatures, fractions, quotes dropped."""
    mapped = normalizers.Precompiled(build_charsmap({"ﬁ": "fi", "½": "1/2", "“": "", "№": "No"}))
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), mapped])
    return tokenizer


MAKERS = {
    "bpe": lambda texts: train_tokenizer(texts, 500),
    "unigram": lambda texts: train_unigram(texts, 700),
    "unigram with a character map": lambda texts: normalizing(train_unigram(texts, 700)),
    "bpe with a character map": lambda texts: normalizing(train_tokenizer(texts, 700)),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_derived_text_is_cut_into_the_counterparts(kind, texts, tmp_path):
    natural = MAKERS[kind](texts)
    natural.add_tokens([AddedToken("<new>", special=True)])
    words = [text.split() for text in texts]
    alphabet = Alphabet.of((word for row in words for word in row), natural)
    both, counterparts = extend_tokenizer(natural, alphabet)
    assert counterparts.dtype == np.int64 and counterparts.shape == (len(both) - len(natural), 2)
    assert counterparts[:, 1].tolist() == list(range(len(natural), len(both)))
    added = set(natural.added_tokens_decoder) | {natural.unk_token_id}
    pieces = natural.convert_ids_to_tokens(range(len(natural)))
    copied = [i for i, piece in enumerate(pieces) if set(piece) & set(alphabet.characters) and i not in added]
    assert counterparts[:, 0].tolist() == copied
    assert len(copied) > 0.95 * len(natural) - len(added)

    twin = dict(counterparts.tolist())
    language = DerivedLanguage("en", ("inversion", "transliteration"), alphabet=alphabet)
    for row in words:
        assert both(row, is_split_into_words=True) == natural(row, is_split_into_words=True)
        reordered = natural([row[i] for i in language.order(row)], is_split_into_words=True)
        derived = both(language.words(row), is_split_into_words=True)
        assert derived["input_ids"] == [twin.get(i, i) for i in reordered["input_ids"]]
        assert derived.word_ids() == reordered.word_ids()

    both.save_pretrained(tmp_path)
    make_encoder().config.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == both.get_vocab()
    assert loaded.special_tokens_map == natural.special_tokens_map
    assert loaded.all_special_ids == natural.all_special_ids
    for row in [*words[:20], *words[-2:]]:
        given = [*row, *language.words(row)]
        assert loaded(given, is_split_into_words=True) == both(given, is_split_into_words=True)
    assert loaded("file", "open") == natural("file", "open")


@pytest.mark.parametrize("kind", ["bpe", *slow(["unigram with a character map"])])
def test_a_share_of_the_pieces_in_use_is_common(kind, texts):
    natural = MAKERS[kind](texts)
    words = sorted({word for text in texts[:-2] for word in text.split()})
    alphabet = Alphabet.of(words, natural)
    both, counterparts = extend_tokenizer(natural, alphabet)
    twin = dict(counterparts.tolist())
    pieces = natural(words, add_special_tokens=False).input_ids
    used = {i for ids in pieces for i in ids} & twin.keys()
    drawn = {}
    for share, seed in ((0.25, 0), (0.5, 0), (0.25, 1), (0.0, 0), (1.0, 0)):
        shared = SharedPieces.draw(natural, np.array(sorted(used)), share, seed=seed)
        drawn[share, seed] = own = set(shared.pieces)
        assert len(own) == round(share * len(used))
        language = DerivedLanguage("en", ("transliteration",), alphabet=alphabet, shared=shared)
        found = both([language.spell(word) for word in words], add_special_tokens=False).input_ids
        assert found == [[i if i in own else twin.get(i, i) for i in ids] for ids in pieces]
        assert {i for ids in found for i in ids} & used == own
    assert drawn[0.25, 0] < drawn[0.5, 0] and drawn[0.25, 0] != drawn[0.25, 1]


def test_trained(texts, tmp_path):
    tokenizer = train_tokenizer(texts, 600, max_length=50)
    assert 300 < len(tokenizer) <= 600
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert tokenizer.decode(tokenizer("open", "open").input_ids).split() == ["<s>", "open</s></s>", "open</s>"]
    assert tokenizer.model_max_length == 50
    assert not any(3 in tokenizer(text).input_ids for text in texts)  # every character has a piece
    assert tokenizer("a <mask> b").input_ids.count(4) == 1
    assert tokenizer.decode(tokenizer(texts[0]).input_ids, skip_special_tokens=True) == texts[0]
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(texts).input_ids == tokenizer(texts).input_ids and loaded.mask_token_id == 4
    assert train_tokenizer(texts, 600).get_vocab() == tokenizer.get_vocab()


def test_cut(texts, tmp_path):
    large = normalizing(train_unigram(texts, 700))
    large.add_tokens([AddedToken("<mask2>", special=True)])
    sample = texts[:60]
    small, old_ids = cut_tokenizer(large, sample, 230)
    assert len(small) == len(old_ids) == 230
    assert large.convert_ids_to_tokens(old_ids.tolist()) == small.convert_ids_to_tokens(range(230))
    assert (np.diff(old_ids) > 0).all()
    assert old_ids[small.all_special_ids].tolist() == large.all_special_ids
    assert small.special_tokens_map == large.special_tokens_map and "<mask2>" in small.get_vocab()

    pieces = large.convert_ids_to_tokens(range(len(large)))
    kept = set(old_ids.tolist())
    counts = np.bincount(np.concatenate(large(sample, add_special_tokens=False).input_ids), minlength=len(large))
    single = {c for text in sample for c in large.backend_tokenizer.normalizer.normalize_str(text) if c != " "}
    must = {i for i, piece in enumerate(pieces) if len(piece.lstrip("▁")) <= 1 and set(piece) <= single | {"▁"}}
    must |= {large.convert_tokens_to_ids(token) for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<mask2>")}
    assert must <= kept
    chosen = kept - must
    assert min(counts[i] for i in chosen) >= max(counts[i] for i in set(range(len(large))) - kept) > 0
    # What stays whole has the ids that it had, by the map; what does not is cut further, and never unknown.
    for text in sample:
        before, after = large(text, text).input_ids, small(text, text).input_ids
        assert set(before) - kept or old_ids[after].tolist() == before
        assert small.unk_token_id not in after
    small.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)(sample).input_ids == small(sample).input_ids
    everything, old_ids = cut_tokenizer(large, texts, 10_000)
    assert len(everything) <= len(large) and everything(texts[0]).input_ids[0] == 0
