"""Derived languages: words, their order and script, and the datasets made with them."""

from __future__ import annotations

import random
import unicodedata

from datasets import ClassLabel, Dataset, Features, List, Value
from datasets.fingerprint import Hasher

from hf_xalign.data.derived import DerivedLanguage
from hf_xalign.data.derived_rows import derive, derive_pairs, move_spans
from hf_xalign.data.transliteration import LETTERS, Alphabet, is_shared
from hf_xalign.data.treebank import Tree
from hf_xalign.data.word_order import HEAD, WordOrder

TEXT = ["The cat sees the dog . It runs !", "no mark here", "", "Stop .", "a \" quoted ' word , and Ünïcode ½ ?"]
TEXT = [*TEXT, "the very same words come once more in a longer row of words ."] * 3
WORDS = [text.split() for text in TEXT]
ALPHABET = Alphabet.of(TEXT)
RELATIONS = ["det", "amod", "nsubj", "root", "punct"]
TREE = Tree(["the", "big", "house", "burns", "."], ["DET", "ADJ", "NOUN", "VERB", "PUNCT"], [3, 3, 4, 0, 4], RELATIONS)
ALWAYS_AFTER = WordOrder({"NOUN": {HEAD: {"amod": 10**9}}, "VERB": {"punct": {HEAD: 10**9, "nsubj": 10**9}}})


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
    assert one.order(long) == one.order(long) != other.order(long)
    assert one.words(long)[-1] == "." and one.words(long) != long
    # A sentence of a row is permuted as it is alone, within its bounds.
    both = [*WORDS[0], *long]
    assert one.words(both)[-len(long) :] == one.words(long)
    assert one.words(both)[: len(WORDS[0])] == one.words(WORDS[0])
    # Each order about as often as any other.
    orders = [tuple(language("permutation", seed=seed).order(["a", "b", "c"])) for seed in range(1200)]
    assert all(abs(orders.count(order) / 1200 - 1 / 6) < 0.044 for order in set(orders)) and len(set(orders)) == 6


def test_letters_are_a_bijection_and_plain_text():
    assert len(ALPHABET) == len({c for text in TEXT for c in text} - {" "})
    for words in WORDS:
        letters = language("transliteration").words(words)
        assert [ALPHABET.restore(word) for word in letters] == words
        assert all(ord(c) in LETTERS for word in letters for c in word)
        assert [len(word) for word in letters] == [len(word) for word in words]
    assert len({ALPHABET.translate(c) for c in ALPHABET.characters}) == len(ALPHABET)
    everything = "".join(map(chr, LETTERS))
    assert {unicodedata.category(c) for c in everything} == {"Lo"}
    assert all(unicodedata.normalize(form, everything) == everything for form in ("NFC", "NFKC", "NFD", "NFKD"))
    assert Alphabet.of(["b▁a b"]).characters == "ab"
    kept = language("transliteration", on_unknown="keep").spell("zoo")
    assert kept[0] == "z" and ALPHABET.restore(kept) == "zoo"
    assert everything.lower() == everything and len(everything.split()) == 1


def test_the_shared_part_is_a_share_of_the_types_drawn_by_seed_and_word():
    types = [f"word{i}" for i in range(4000)]
    small, large = ({w for w in types if is_shared(w, 3, share)} for share in (0.25, 0.5))
    assert abs(len(small) / 4000 - 0.25) < 0.021 and abs(len(large) / 4000 - 0.5) < 0.024
    assert small < large
    assert {w for w in types if is_shared(w, 4, 0.25)} != small
    alphabet = Alphabet.of(types)
    shared = DerivedLanguage("en", ("transliteration",), seed=3, shared=0.25, alphabet=alphabet)
    spelled = {word: shared.spell(word) for word in types}
    assert all(spelled[word] == (word if word in small else alphabet.translate(word)) for word in types)
    assert len(set(spelled.values())) == len(types)


def test_compositions_apply_the_first_operation_first():
    both = language("inversion", "transliteration")
    assert both.code == "en-x-inv-trans"
    plain = language("inversion").words(WORDS[0])
    assert both.words(WORDS[0]) == [ALPHABET.translate(word) for word in plain]
    last = language("inversion", "permutation", seed=7)
    assert last.words(WORDS[5]) == language("permutation", seed=7).words(plain_inverse := [*WORDS[5][-2::-1], "."])
    assert last.words(WORDS[5]) != language("permutation", seed=7).words(WORDS[5])
    assert plain_inverse == language("inversion").words(WORDS[5])


def test_syntax_moves_phrases_and_leaves_the_final_mark():
    found = DerivedLanguage("en", ("syntax", "inversion"), word_order=ALWAYS_AFTER)
    assert found.words(TREE.words, TREE) == ["burns", "big", "house", "the", "."]
    assert found.code == "en-x-syntax-inv"


def test_saved_and_loaded_with_the_same_fingerprint(tmp_path):
    operations = ("syntax", "permutation", "transliteration")
    options = {"seed": 5, "shared": 0.3, "alphabet": ALPHABET, "word_order": ALWAYS_AFTER, "on_unknown": "keep"}
    found = DerivedLanguage("en", operations, **options)
    before = Hasher.hash(found)
    found.words(TREE.words, TREE)
    found.save(tmp_path / "language.json")
    loaded = DerivedLanguage.load(tmp_path / "language.json")
    assert loaded == found
    assert Hasher.hash(found) == Hasher.hash(loaded) == before
    assert Hasher.hash(language("inversion", seed=1)) != Hasher.hash(language("inversion", seed=2))


def loop_spans(labels):
    """`{(word indices): type}` of the spans of BIO labels, an I after nothing of its type being a B."""
    spans, open_span = [], None
    for i, label in enumerate(labels):
        if label == "O":
            open_span = None
        elif label[0] == "B" or open_span is None or open_span[1] != label[2:]:
            open_span = ([i], label[2:])
            spans.append(open_span)
        else:
            open_span[0].append(i)
    return {tuple(words): kind for words, kind in spans}


def test_spans_stay_spans_when_reversed():
    labels = ["B-PER", "I-PER", "B-PER", "O", "I-LOC", "I-LOC", "I-PER", "O", "B-LOC"]
    reverse = list(range(len(labels)))[::-1]
    moved = move_spans(labels, reverse)
    assert moved == ["B-LOC", "O", "B-PER", "B-LOC", "I-LOC", "O", "B-PER", "B-PER", "I-PER"]
    torn = move_spans(["B-X", "I-X", "I-X", "O", "B-X"], [2, 0, 3, 1, 4])
    assert torn == ["B-X", "I-X", "O", "B-X", "B-X"]
    draw = random.Random(1)
    for _ in range(200):
        labels = [draw.choice(["O", "B-X", "I-X", "B-Y", "I-Y"]) for _ in range(draw.randrange(12))]
        reverse = list(range(len(labels)))[::-1]
        expected = {tuple(sorted(reverse.index(i) for i in span)): kind for span, kind in loop_spans(labels).items()}
        found = move_spans(labels, reverse)
        assert loop_spans(found) == expected
        assert all(
            label == "O" or label[0] == "B" or (i and found[i - 1][2:] == label[2:]) for i, label in enumerate(found)
        )


def test_labels_move_with_their_words():
    tags = [[f"{word}-tag" for word in words] for words in WORDS]
    rows = Dataset.from_dict({"tokens": WORDS, "tags": tags, "other": tags, "number": list(range(len(WORDS)))})
    found = derive(rows, language("inversion", "transliteration"), "tokens", labels="tags")
    assert found.column_names == ["tokens", "tags", "number"]
    for row, words in zip(found, WORDS):
        assert [ALPHABET.restore(word) + "-tag" for word in row["tokens"]] == row["tags"]
        assert [ALPHABET.restore(word) for word in row["tokens"]] == language("inversion").words(words)


def test_class_labels_keep_their_numbers():
    names = ["O", "B-PER", "I-PER", "I-LOC"]
    features = Features({"tokens": List(Value("string")), "ner": List(ClassLabel(names=names))})
    rows = Dataset.from_dict({"tokens": [["a", "b", "c", "."]], "ner": [[1, 2, 0, 0]]}, features=features)
    found = derive(rows, language("inversion"), "tokens", spans="ner")
    assert found.features == features
    assert found[0] == {"tokens": ["c", "b", "a", "."], "ner": [0, 1, 2, 0]}


def test_text_and_pairs():
    found = language("permutation", "transliteration", seed=3, shared=0.3)
    rows = Dataset.from_dict({"a": TEXT, "b": TEXT[::-1], "label": list(range(len(TEXT)))})
    one = derive(rows, found, ["a", "b"])
    assert one["a"] == [" ".join(found.words(words)) for words in WORDS] == one["b"][::-1]
    assert one["label"] == rows["label"]
    # A shuffled corpus has the same sentences.
    assert sorted(derive(rows.shuffle(seed=1), found, "a")["a"]) == sorted(one["a"])

    pairs = derive_pairs(rows, found, "a")
    assert pairs["source"] == [text for text in one["a"] if text]
    assert pairs["target"] == [text for text in TEXT if text]
    for row in pairs:
        assert (row["source_lang"], row["target_lang"]) == ("en-x-perm-trans", "en")
        assert row["source"].split() == row["source_words"] and row["target"].split() == row["target_words"]
        assert len(row["links"]) == len(row["target_words"])
        for i, j in row["links"]:
            assert row["source_words"][i] == found.spell(row["target_words"][j])
        assert sorted(j for _, j in row["links"]) == list(range(len(row["target_words"])))


def test_trees_come_with_the_rows():
    rows = Dataset.from_dict({"tokens": [TREE.words], **{k: [v] for k, v in TREE._asdict().items() if k != "words"}})
    found = DerivedLanguage("en", ("syntax",), word_order=ALWAYS_AFTER)
    moved = derive(rows, found, "tokens", labels="upos")
    assert moved.column_names == ["tokens", "upos"]
    upos = ["DET", "NOUN", "ADJ", "VERB", "PUNCT"]
    assert moved[0] == {"tokens": ["the", "house", "big", "burns", "."], "upos": upos}
    assert derive_pairs(rows, found, "tokens")[0]["links"] == [[0, 0], [1, 2], [2, 1], [3, 3], [4, 4]]
