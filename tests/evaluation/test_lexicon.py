from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.evaluation import csls
from hf_xalign.evaluation.bootstrap import interval
from hf_xalign.evaluation.lexicon import lexicon_induction


def on_circle(*degrees):
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angle.cos(), angle.sin()], 1)


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


def by_hand(entries=tuple(ENTRIES), **options):
    return lexicon_induction(
        on_circle(*SOURCE.values()), on_circle(*TARGET.values()), list(SOURCE), list(TARGET), entries, **options
    )


def test_both_policies_and_coverage_by_hand():
    scores = by_hand(ks=(1, 2, 3), similarity="cosine", bootstrap=0)
    # Queries: Hund (right from 2 on), Katze (1), Uhr (1). Test words: these, Regen, Schnee, Eule.
    assert scores == {
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


def test_every_gold_counts_for_itself():
    def only(gold):
        scores = by_hand([("Hund", gold)], ks=(1, 2, 3, 100), similarity="cosine", bootstrap=0)
        return [scores[f"p@{k}"] for k in (1, 2, 3, 100)]

    assert only("house") == [1, 1, 1, 1]
    assert only("dog") == [0, 1, 1, 1]
    assert only("hound") == [0, 0, 1, 1]
    assert only("clock") == [0, 0, 0, 1], "more than the vocabulary is the vocabulary"


def test_the_other_direction_is_the_entries_turned_round():
    turned = [(other, one) for one, other in ENTRIES]
    scores = lexicon_induction(
        on_circle(*TARGET.values()),
        on_circle(*SOURCE.values()),
        list(TARGET),
        list(SOURCE),
        turned,
        ks=(1,),
        similarity="cosine",
        bootstrap=0,
    )
    # hound, dog, cat, clock and watch have a gold, and each lies next to it; house is in no entry.
    assert (scores["p@1"], scores["queries"], scores["test_words"]) == (1.0, 5, 8)
    assert scores["p@1_oov_wrong"] == 5 / 8


def unit(vector):
    return vector / np.sqrt((vector * vector).sum())


def loop_precision(source, target, source_words, target_words, entries, depth, similarity, k):
    """MUSE's and fastText's precision, one word at a time, float64."""
    source, target = ([unit(x) for x in side.double().numpy()] for side in (source, target))
    r_target = [np.mean(sorted((np.dot(y, x) for x in source), reverse=True)[:k]) for y in target]
    right = total = 0
    words = sorted({one for one, _ in entries})
    for word in words:
        golds = {other for one, other in entries if one == word and other in target_words}
        if word not in source_words or not golds:
            continue
        total += 1
        scores = [float(np.dot(source[source_words.index(word)], y)) for y in target]
        if similarity == "csls":
            scores = [2 * score - r for score, r in zip(scores, r_target)]
        order = sorted(range(len(target)), key=lambda j: -scores[j])[:depth]
        right += any(target_words[j] in golds for j in order)
    return right / total, right / len(words)


@pytest.fixture(scope="module")
def vocabulary():
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(90, 8, generator=generator) + 0.7
    target = torch.cat(
        [source[:70] + 0.9 * torch.randn(70, 8, generator=generator), torch.randn(40, 8, generator=generator) + 0.7]
    )
    source_words, target_words = [f"s{n}" for n in range(90)], [f"t{n}" for n in range(110)]
    entries = [(f"s{n}", f"t{m}") for n in range(0, 130, 2) for m in (n, n + 3, n + 60)]
    return source, target, source_words, target_words, entries


@pytest.mark.parametrize("tile", [4096, 32])
@pytest.mark.parametrize("similarity", ["cosine", "csls"])
def test_against_a_loop(vocabulary, similarity, tile, monkeypatch):
    monkeypatch.setattr(csls, "_TILE", tile)
    scores = lexicon_induction(*vocabulary, similarity=similarity, k=6)
    for depth in (1, 5, 10):
        wanted = loop_precision(*vocabulary, depth, similarity, 6)
        assert (scores[f"p@{depth}"], scores[f"p@{depth}_oov_wrong"]) == pytest.approx(wanted, abs=1e-12)
    assert 0.1 < scores["p@1"] < scores["p@5"] < scores["p@10"] < 1


def test_csls_looks_at_the_whole_source_vocabulary():
    # "b" is nearest to "x" by cosine. The source word that nothing asks about crowds x.
    source, target = on_circle(0, 40, 22), on_circle(20, 60)
    words, others = ["a", "b", "crowd"], ["x", "y"]
    entries = [("b", "y")]
    found = lexicon_induction(source, target, words, others, entries, ks=(1,), k=1, bootstrap=0)
    alone = lexicon_induction(source[:2], target, words[:2], others, entries, ks=(1,), k=1, bootstrap=0)
    assert (found["p@1"], alone["p@1"]) == (1.0, 0.0)


def test_equal_vectors_are_ranked_in_the_order_of_the_vocabulary():
    target = on_circle(3, 3, 3, 90)
    words = ["first", "second", "third", "far"]
    for n, word in enumerate(words[:3]):
        scores = lexicon_induction(
            on_circle(0, 90), target, ["a", "b"], words, [("a", word)], ks=(1, 2, 3), bootstrap=0
        )
        assert [scores[f"p@{k}"] for k in (1, 2, 3)] == [float(n < k) for k in (1, 2, 3)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_and_arrays(vocabulary, dtype):
    source, target, *rest = vocabulary
    source, target = source.to(torch.bfloat16), target.to(torch.bfloat16)
    wanted = lexicon_induction(source.float(), target.float(), *rest, bootstrap=0)
    assert lexicon_induction(source.to(dtype), target.to(dtype), *rest, bootstrap=0) == wanted
    assert lexicon_induction(source.double().numpy(), target.tolist(), *rest, bootstrap=0) == wanted


def test_intervals(vocabulary):
    scores = lexicon_induction(*vocabulary)
    assert scores == lexicon_induction(*vocabulary)
    other = lexicon_induction(*vocabulary, seed=1)
    for name in ("p@1", "p@5", "p@10", "p@1_oov_wrong"):
        low, high = scores[f"{name}_low"], scores[f"{name}_high"]
        assert low < scores[name] < high
        assert scores[name] == other[name]
        deviation = np.sqrt(scores[name] * (1 - scores[name]) / scores["test_words"])
        assert 2 * deviation < high - low < 7 * deviation
    assert any(scores[name] != other[name] for name in scores), "the seed is used"
    assert not any(name.endswith(("_low", "_high")) for name in lexicon_induction(*vocabulary, bootstrap=0))


class TestInterval:
    def test_covers_the_mean_of_a_known_distribution(self):
        values = np.random.default_rng(0).normal(3.0, 2.0, 400)
        low, high = interval(values)
        half = 1.96 * values.std() / 20
        assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)

    def test_narrower_with_less_confidence_and_same_with_same_seed(self):
        values = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0] * 9
        low, high = interval(values, confidence=0.5)
        wide = interval(values, confidence=0.95)
        assert wide[0] < low < np.mean(values) < high < wide[1]
        assert interval(values, seed=5) == interval(values, seed=5) != interval(values, seed=6)

    @pytest.mark.parametrize("values", [[0.25], [1.0] * 30])
    def test_no_width_where_nothing_varies(self, values, recwarn):
        assert interval(values) == (values[0], values[0])
        assert not recwarn

    @pytest.mark.parametrize(
        ("values", "options", "message"),
        [
            ([], {}, r"got shape \(0,\)"),
            ([[1.0, 2.0]], {}, r"got shape \(1, 2\)"),
            ([1.0, 2.0], {"confidence": 95}, "confidence=95"),
            ([1.0, 2.0], {"resamples": 0}, "resamples=0"),
        ],
    )
    def test_bad_input(self, values, options, message):
        with pytest.raises(InputError, match=message):
            interval(values, **options)


def test_no_usable_entry_says_what_is_there():
    with pytest.raises(InputError) as error:
        by_hand([("hund", "dog"), ("katze", "cat"), ("Regen", "Rain"), ("uhr", "clock"), ("uhu", "owl")])
    message = str(error.value)
    assert "none of 5 entries" in message
    assert "1 of 5 source words have a vector (not 'hund', 'katze', 'uhr')" in message
    assert "3 of 5 target words have a vector (not 'Rain', 'owl')" in message
    assert "more text" in message and "lower-case" in message and "right way round" in message
    with pytest.raises(InputError, match="no entries"):
        by_hand([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_words": ["a"]}, "1 source words for 2 source vectors"),
        ({"target_words": ["x", "y", "x"]}, "target words: 'x' stands in row 0 and row 2"),
        ({"target_vectors": torch.tensor([[1.0, 0.0], [0.0, torch.nan], [1.0, 1.0]])}, r"target vectors: row 1 \('y'"),
        ({"source_vectors": torch.ones(2, 5)}, "5 dimensions and target vectors 2"),
        ({"source_vectors": [[1.0, 2.0], [1.0]]}, "source vectors: every row needs the same number"),
        ({"source_vectors": torch.ones(2, 2).long()}, "floating-point"),
        ({"entries": [("a", "x"), ("a", "x", "y")]}, r"entry 1: \('a', 'x', 'y'\) is not a pair"),
        ({"entries": ["ax"]}, "entry 0: 'ax' is not a pair"),
        ({"ks": (1, 0)}, r"ks=\(1, 0\)"),
        ({"ks": ()}, r"ks=\(\)"),
        ({"bootstrap": -1}, "bootstrap=-1"),
        ({"similarity": "dot"}, "'dot' is not known"),
    ],
)
def test_bad_input(change, message):
    given = {
        "source_vectors": on_circle(0, 50),
        "target_vectors": on_circle(0, 50, 90),
        "source_words": ["a", "b"],
        "target_words": ["x", "y", "z"],
        "entries": [("a", "x")],
    }
    with pytest.raises(InputError, match=message):
        lexicon_induction(**given | change)
