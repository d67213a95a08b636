"""Lexicon induction by hand, and against MUSE's and fastText's precision, one word at a time."""

import numpy as np
import pytest
import torch
from support.nearest import on_circle, scores, vectors
from support.numeric import assert_rounding

from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.search import csls

pytestmark = pytest.mark.numeric

# Cosine ranks: Hund -> house, dog, hound; Katze -> cat, hound; Uhr -> watch, clock.
SOURCE = {"Hund": 10, "Katze": 50, "Uhr": 120, "Regen": 200}
TARGET = {"house": 12, "dog": 15, "hound": 29, "cat": 48, "watch": 119, "clock": 123}
ENTRIES = [
    ("Hund", "hound"),
    ("Hund", "dog"),
    ("Katze", "cat"),
    ("Katze", "kitty"),  # a gold that has no vector
    ("Uhr", "clock"),
    ("Uhr", "watch"),
    ("Regen", "rain"),  # no gold with a vector
    ("Schnee", "snow"),  # neither
    ("Eule", "watch"),  # no query with a vector
    ("Hund", "dog"),  # twice
]


def by_hand(source, target, entries, ks):
    sides = on_circle(*source.values()), on_circle(*target.values()), list(source), list(target)
    return lexicon_induction(*sides, entries, ks=ks, similarity="cosine", bootstrap=0)


def test_both_policies_and_coverage_by_hand():
    # Queries: Hund (right from 2 on), Katze (1), Uhr (1). Test words: these, Regen, Schnee, Eule.
    assert by_hand(SOURCE, TARGET, ENTRIES, (1, 2, 3)) == {
        "p@1": 2 / 3,
        "p@1_oov_wrong": 2 / 6,
        "p@2": 1.0,
        "p@2_oov_wrong": 3 / 6,
        "p@3": 1.0,
        "p@3_oov_wrong": 3 / 6,
        "coverage": 5 / 9,
        "coverage_words": 3 / 6,
        "entries": 9,
        "entries_covered": 5,
        "test_words": 6,
        "queries": 3,
        "source_vocabulary": 4,
        "target_vocabulary": 6,
    }
    depths = (1, 2, 3, 100)  # more than the vocabulary is the vocabulary
    for gold, place in (("house", 1), ("dog", 2), ("hound", 3), ("clock", 100)):
        found = by_hand(SOURCE, TARGET, [("Hund", gold)], depths)
        assert [found[f"p@{k}"] for k in depths] == [k >= place for k in depths], gold


@pytest.fixture(scope="module")
def vocabulary():
    source = vectors(0, 90, dim=8, hubs=True)
    target = torch.cat([source[:70] + 0.4 * vectors(1, 70, dim=8), vectors(2, 40, dim=8, hubs=True)])
    words = [f"s{n}" for n in range(90)], [f"t{n}" for n in range(110)]
    return source, target, *words, [(f"s{n}", f"t{m}") for n in range(0, 130, 2) for m in (n, n + 3, n + 60)]


def loop_precision(source, target, source_words, target_words, entries, depth, similarity, k):
    order = (-scores(source, target, similarity, k)).argsort(1)[:, :depth]
    right = total = 0
    words = {one for one, _ in entries}
    for word in words:
        golds = {other for one, other in entries if one == word and other in target_words}
        if word in source_words and golds:
            total += 1
            right += any(target_words[j] in golds for j in order[source_words.index(word)])
    return right / total, right / len(words)


def test_against_a_loop(vocabulary, monkeypatch):
    for tile, similarity in ((4096, "csls"), (32, "csls"), (32, "cosine")):
        monkeypatch.setattr(csls, "_TILE", tile)
        found = lexicon_induction(*vocabulary, similarity=similarity, k=6)
        for depth in (1, 5, 10):
            wanted = loop_precision(*vocabulary, depth, similarity, 6)
            assert_rounding((found[f"p@{depth}"], found[f"p@{depth}_oov_wrong"]), wanted, operations=90)
        assert 0.1 < found["p@1"] < found["p@5"] < found["p@10"] < 1


def test_csls_looks_at_the_whole_source_vocabulary():
    # "b" is nearest to "x" by cosine. The source word that nothing asks about crowds x.
    source, target = on_circle(0, 40, 22), on_circle(20, 60)
    for words, right in ((["a", "b", "crowd"], 1.0), (["a", "b"], 0.0)):
        given = source[: len(words)], target, words, ["x", "y"], [("b", "y")]
        assert lexicon_induction(*given, ks=(1,), k=1, bootstrap=0)["p@1"] == right


def test_intervals(vocabulary):
    found, other = lexicon_induction(*vocabulary), lexicon_induction(*vocabulary, seed=1)
    assert found == lexicon_induction(*vocabulary)
    for name in ("p@1", "p@5", "p@10", "p@1_oov_wrong"):
        width = found[f"{name}_high"] - found[f"{name}_low"]
        assert found[f"{name}_low"] < found[name] == other[name] < found[f"{name}_high"]
        deviation = np.sqrt(found[name] * (1 - found[name]) / found["test_words"])
        assert 2 * deviation < width < 7 * deviation
    assert any(found[name] != other[name] for name in found), "the seed is used"
