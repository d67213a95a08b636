"""Retrieval of linked words and of sentences, and alignment error, by hand and against brute force."""

import numpy as np
import pytest
import torch
from support.nearest import on_circle, scores, vectors
from support.numeric import assert_rounding

from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.sentence_scores import sentence_retrieval
from hf_xalign.search import csls

pytestmark = pytest.mark.numeric

# Directions in the plane, so that who is nearest to whom can be seen.
SOURCE, TARGET = on_circle(0, 40, 90, 91, 180), on_circle(92, 5, 2, 38, 179, 300)
LINKS = [[0, 1], [1, 3], [2, 0], [4, 4]]
SOURCE_WORDS = ["der", "Hund", "die", "Katze", "der"]
TARGET_WORDS = ["the", "the", "a", "dog", "the", "cat"]


def test_pools_and_types_by_hand():
    def score(pool, target_words=TARGET_WORDS):
        words = {"source_words": SOURCE_WORDS, "target_words": target_words}
        return word_retrieval(SOURCE, TARGET, LINKS, similarity="cosine", pool=pool, **words)

    names = ["source_to_target", "target_to_source", "mean"]
    names += [f"type_{name}" for name in names]
    # Linked sources at 0, 40, 90, 180 and targets at 5, 38, 92, 179: every word finds its partner.
    assert score("linked") == {**dict.fromkeys(names, 1.0), "source_pool": 4, "target_pool": 4, "queries": 4}
    # Source 0 meets the unlinked target at 2 degrees ("a", not "the"); target 92 meets the unlinked source at 91
    # ("Katze").
    assert score("all") == {**dict.fromkeys(names, 0.75), "source_pool": 5, "target_pool": 6, "queries": 4}
    other = score("all", ["the", "the", "the", "dog", "the", "cat"])
    assert (other["source_to_target"], other["type_source_to_target"]) == (0.75, 1.0), "another occurrence of a word"


def test_directions_and_links_in_any_order():
    generator = torch.Generator().manual_seed(0)
    source, target = vectors(0, 80, dim=8), vectors(1, 90, dim=8)
    links = torch.stack([torch.randperm(n, generator=generator)[:50] for n in (80, 90)], 1)
    target[links[:, 1]] = source[links[:, 0]] + 0.8 * target[links[:, 1]]
    for pool, similarity, k in (("linked", "csls", 10), ("all", "csls", 10), ("all", "csls", 1), ("all", "cosine", 1)):
        found = word_retrieval(source, target, links, pool=pool, similarity=similarity, k=k)
        legacy = word_retrieval(source.numpy(), target.numpy(), links.numpy(), pool=pool, legacy=True, k=k)
        assert legacy["mean"] != found["mean"]
        pairs = links.tolist() if pool == "all" else [[n, n] for n in range(50)]
        sides = (source, target) if pool == "all" else (source[links[:, 0]], target[links[:, 1]])
        table = scores(*sides, similarity, k)
        forward = sum(table[i].argmax() == j for i, j in pairs) / 50
        backward = sum(table[:, j].argmax() == i for i, j in pairs) / 50
        assert (found["source_to_target"], found["target_to_source"]) == (forward, backward) and forward != backward
        assert_rounding(found["mean"], (forward + backward) / 2, operations=2)


def test_alignment_error_by_hand():
    names, zero, sure = ("precision", "recall", "alignment_error_rate", "f1"), [[0, 0]], [[0, 0], [1, 1]]
    mixed = [[*zero, [1, 2], [2, 1]], [[0, 1]]], [sure, sure], [[[1, 2], [3, 3]], [[0, 1]]]
    for arguments, wanted in [
        # A = 4; in S: 0-0 of the first pair; in P: that one, 1-2 and the second pair's 0-1; S = 4.
        (mixed, (3 / 4, 1 / 4, 1 - (1 + 3) / (4 + 4), 2 * (3 / 4) * (1 / 4) / (3 / 4 + 1 / 4))),
        # Without possible links F1 is 1 - AER; with them, sure ones are possible and possible ones earn no recall.
        (([[*sure, [2, 0]]], [[*sure, [2, 2], [3, 3]]]), (2 / 3, 1 / 2, 3 / 7, 4 / 7)),
        (([sure], [zero], [[[1, 1]]]), (1, 1, 0, 1)),
        (([[[5, 5]]], [zero], [[[5, 5]]]), (1, 0, 0.5, 0)),
        # Nothing; another pair's link, twice; repeats count once.
        (([[], []], [sure, [[0, 1]]]), (0, 0, 1, 0)),
        (([zero * 2, []], [[], zero]), (0, 0, 1, 0)),
        (([zero * 2], [zero]), (1, 1, 0, 1)),
    ]:
        found = alignment_error_rate(*arguments)
        assert tuple(found) == names
        assert_rounding([*found.values()], wanted, operations=8)


def sentences(seed, rows=60, dim=10):
    source = vectors(seed, rows, dim, hubs=True)
    return source, source + 0.5 * vectors(seed + 50, rows, dim)


def test_sentences_against_brute_force(monkeypatch):
    source, target = sentences(1)
    for tile in (4096, 32):
        monkeypatch.setattr(csls, "_TILE", tile)
        for similarity, k in (("cosine", 1), ("csls", 10), ("margin", 4), ("margin", 1)):
            table = scores(source, target, similarity, k)
            right = [np.mean(nearest == np.arange(60)) for nearest in (table.argmax(1), table.argmax(0))]
            found = sentence_retrieval(source, target, similarity=similarity, k=k)
            assert list(found) == ["source_to_target", "target_to_source", "mean", "queries"]
            assert_rounding([*found.values()], [*right, sum(right) / 2, 60], operations=2)
            assert 0.1 < right[0] < 0.95 and right[0] != right[1]


def test_the_measures_differ_and_have_their_papers_k():
    source, target = sentences(2, rows=300)
    found = {name: sentence_retrieval(source, target, similarity=name) for name in ("cosine", "csls", "margin")}
    assert len({each["mean"] for each in found.values()}) == 3
    assert found["csls"] == sentence_retrieval(source, target, similarity="csls", k=10)
    assert found["margin"] == sentence_retrieval(source, target, similarity="margin", k=4)
    # Row 5 is all of 0.2. The query of row 4 finds its copy in row 1, whichever measure.
    target = torch.eye(6)[:, :5] + 0.2
    target[4] = target[1]
    for similarity in found:
        only = sentence_retrieval(target.clone(), target, similarity=similarity, k=2)
        assert only["source_to_target"] == only["target_to_source"] == 5 / 6, "only the first of equal sentences"
