from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.evaluation.csls import nearest_neighbours
from hf_xalign.evaluation.retrieval import flatten_rows, word_retrieval

# Directions in the plane by angle, so that who is nearest to whom can be seen: degrees.
SOURCE_ANGLES = [0, 40, 90, 91, 180]
TARGET_ANGLES = [92, 5, 2, 38, 179, 300]
LINKS = [[0, 1], [1, 3], [2, 0], [4, 4]]
SOURCE_WORDS = ["der", "Hund", "die", "Katze", "der"]
TARGET_WORDS = ["the", "the", "a", "dog", "the", "cat"]


def on_circle(degrees):
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angle.cos(), angle.sin()], 1)


def score(**options):
    return word_retrieval(on_circle(SOURCE_ANGLES), on_circle(TARGET_ANGLES), LINKS, **options)


def test_linked_pool_by_hand():
    scores = score(similarity="cosine", source_words=SOURCE_WORDS, target_words=TARGET_WORDS)
    # Linked sources at 0, 40, 90, 180 and targets at 5, 38, 92, 179: every word finds its partner.
    assert scores == {
        "source_to_target": 1.0,
        "target_to_source": 1.0,
        "mean": 1.0,
        "type_source_to_target": 1.0,
        "type_target_to_source": 1.0,
        "type_mean": 1.0,
        "source_pool": 4,
        "target_pool": 4,
        "queries": 4,
    }


def test_all_pool_by_hand():
    scores = score(similarity="cosine", pool="all", source_words=SOURCE_WORDS, target_words=TARGET_WORDS)
    # Source 0 meets the unlinked target at 2 degrees ("a", not "the"); target 92 meets the unlinked source at 91
    # ("Katze").
    assert scores == {
        "source_to_target": 0.75,
        "target_to_source": 0.75,
        "mean": 0.75,
        "type_source_to_target": 0.75,
        "type_target_to_source": 0.75,
        "type_mean": 0.75,
        "source_pool": 5,
        "target_pool": 6,
        "queries": 4,
    }


def test_type_level_counts_another_occurrence_of_the_same_word():
    words = [*TARGET_WORDS]
    words[2] = "the"
    scores = score(similarity="cosine", pool="all", source_words=SOURCE_WORDS, target_words=words)
    assert (scores["source_to_target"], scores["type_source_to_target"]) == (0.75, 1.0)


def test_directions_and_links_in_any_order():
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randn(80, 8, generator=generator), torch.randn(90, 8, generator=generator)
    links = torch.stack(
        [torch.randperm(80, generator=generator)[:50], torch.randperm(90, generator=generator)[:50]], 1
    )
    target[links[:, 1]] = source[links[:, 0]] + 0.8 * torch.randn(50, 8, generator=generator)
    for pool in ("linked", "all"):
        scores = word_retrieval(source, target, links, pool=pool)
        a, b = (source, target) if pool == "all" else (source[links[:, 0]], target[links[:, 1]])
        found = nearest_neighbours(a, b)
        forward = backward = 0
        for n, (i, j) in enumerate(links.tolist()):
            i, j = (i, j) if pool == "all" else (n, n)
            forward += int(found.source_to_target[i]) == j
            backward += int(found.target_to_source[j]) == i
        assert (scores["source_to_target"], scores["target_to_source"]) == (forward / 50, backward / 50)
        assert scores["source_to_target"] != scores["target_to_source"], "the case must tell the directions apart"
        assert scores["mean"] == pytest.approx((forward + backward) / 100)


def test_options_reach_the_search():
    generator = torch.Generator().manual_seed(1)
    source = torch.randn(60, 6, generator=generator) * torch.exp(torch.randn(60, 1, generator=generator))
    target = source + 0.7 * torch.randn(60, 6, generator=generator)
    links = np.stack([np.arange(60)] * 2, axis=1)
    runs = [{}, {"k": 1}, {"similarity": "cosine"}, {"legacy": True}]
    scores = [word_retrieval(source.numpy(), target.numpy(), links, **options) for options in runs]
    assert len({(s["source_to_target"], s["target_to_source"]) for s in scores}) == 4
    for options, got in zip(runs, scores):
        found = nearest_neighbours(source, target, **options)
        assert got["source_to_target"] == (found.source_to_target == torch.arange(60)).double().mean().item()


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([[0, 1], [1, 6]], r"link 1 \(1-6\): there are 6 target words"),
        ([[5, 1]], r"link 0 \(5-1\): there are 5 source words"),
        ([[-1, 1]], r"link 0 \(-1-1\).*out of range"),
        ([[0, 1], [2, 3], [0, 2]], r"link 0 \(0-1\): the source word has 2 links"),
        ([[0, 1], [2, 3], [1, 3]], r"link 1 \(2-3\): the target word has 2 links"),
        ([], "no links"),
        ([[0.0, 1.0]], "expected integers"),
        ([0, 1], "shape"),
    ],
)
def test_bad_links(links, message):
    with pytest.raises(InputError, match=message):
        word_retrieval(on_circle(SOURCE_ANGLES), on_circle(TARGET_ANGLES), links)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "some"}, "'some' is not known"),
        ({"source_words": SOURCE_WORDS}, "both source_words and target_words"),
        ({"source_words": SOURCE_WORDS[:3], "target_words": TARGET_WORDS}, "3 source_words for 5 source_vectors"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        score(**options)


def test_flatten_rows():
    flat = flatten_rows(
        [[[1.0, 2.0], [3.0, 4.0]], [], [[5.0, 6.0]]],
        [[[0.0, 1.0]], [[2.0, 3.0]], torch.tensor([[4.0, 5.0], [6.0, 7.0]], dtype=torch.bfloat16)],
        [[[1, 0]], [], np.array([[0, 1]])],
        [["a", "b"], [], ["c"]],
        [["x"], ["y"], ["z", "w"]],
    )
    assert flat["source_vectors"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert flat["target_vectors"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert flat["source_vectors"].dtype == flat["target_vectors"].dtype == torch.float32
    assert flat["links"].tolist() == [[1, 0], [2, 3]]
    assert (flat["source_words"], flat["target_words"]) == (["a", "b", "c"], ["x", "y", "z", "w"])
    assert word_retrieval(**flat)["queries"] == 2


ROW = [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([ROW, ROW], [ROW, ROW], [[[0, 0]], [[0, 2]]]), r"row 1: link 0-2 is out of range \(2 source, 2 target"),
        (([ROW], [ROW], [[[-1, 0]]]), "row 0: link -1-0"),
        (([ROW], [ROW], [[[0, 1, 1]]]), "row 0: links have shape"),
        (([ROW], [ROW, ROW], [[[0, 0]]]), "1 source_vectors, 2 target_vectors, 1 links"),
        (([ROW], [ROW], [[[0, 0]]], [["a"]], [["b", "c"]]), "row 0: 1 source_words for 2 source_vectors"),
        (([ROW, [[1.0]]], [ROW, ROW], [[], []]), r"row 1: source_vectors has shape \(1, 1\)"),
        (([[], []], [ROW, ROW], [[], []]), "source_vectors: no row has any word"),
    ],
)
def test_flatten_rows_names_the_bad_row(arguments, message):
    with pytest.raises(InputError, match=message):
        flatten_rows(*arguments)


class TestAlignmentErrorRate:
    def test_sure_against_possible_by_hand(self):
        predictions = [[[0, 0], [1, 2], [2, 1]], [[0, 1]]]
        sure = [[[0, 0], [1, 1]], [[0, 0], [1, 1]]]
        possible = [[[1, 2], [3, 3]], [[0, 1]]]
        # A = 4; in S: 0-0 of the first pair; in P: that one, 1-2 and the second pair's 0-1; S = 4.
        assert alignment_error_rate(predictions, sure, possible) == {
            "precision": 3 / 4,
            "recall": 1 / 4,
            "alignment_error_rate": 1 - (1 + 3) / (4 + 4),
            "f1": 2 * (3 / 4) * (1 / 4) / (3 / 4 + 1 / 4),
        }

    def test_without_possible_f1_is_one_minus_aer(self):
        scores = alignment_error_rate([[[0, 0], [1, 1], [2, 0]]], [[[0, 0], [1, 1], [2, 2], [3, 3]]])
        assert (scores["precision"], scores["recall"]) == (2 / 3, 1 / 2)
        assert scores["f1"] == pytest.approx(1 - scores["alignment_error_rate"], abs=1e-12)

    def test_sure_links_are_possible_whether_listed_or_not(self):
        arguments = [[[0, 0], [1, 1]]], [[[0, 0]]]
        assert alignment_error_rate(*arguments, [[[1, 1]]]) == alignment_error_rate(*arguments, [[[0, 0], [1, 1]]])

    def test_possible_links_cost_nothing_and_earn_no_recall(self):
        sure, possible = [[[0, 0]]], [[[5, 5]]]
        assert alignment_error_rate([[[0, 0], [5, 5]]], sure, possible)["alignment_error_rate"] == 0.0
        assert alignment_error_rate([[[5, 5]]], sure, possible)["recall"] == 0.0

    def test_perfect_empty_and_wrong(self):
        sure = [[[0, 0], [1, 1]], [[0, 1]]]
        assert alignment_error_rate(sure, sure)["alignment_error_rate"] == 0.0
        nothing = {"precision": 0.0, "recall": 0.0, "alignment_error_rate": 1.0, "f1": 0.0}
        assert alignment_error_rate([[], []], sure) == nothing
        assert alignment_error_rate([[[5, 5]], []], sure) == nothing

    def test_the_same_link_in_another_pair_does_not_count_and_repeats_count_once(self):
        assert alignment_error_rate([[[0, 0], [0, 0]], []], [[], [[0, 0]]])["precision"] == 0.0
        assert alignment_error_rate([[[0, 0], [0, 0]]], [[[0, 0]]])["precision"] == 1.0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([[]], [[], []]), "1 predictions but 2 rows of sure links"),
            (([[]], [[]], []), "1 predictions but 0 rows of possible links"),
            (([[[0, 0]]], [[]]), "no sure links"),
            (([[[0, 0]], [[1]]], [[[0, 0]], []]), r"predictions, row 1: link \[1\]"),
        ],
    )
    def test_bad_input(self, arguments, message):
        with pytest.raises(InputError, match=message):
            alignment_error_rate(*arguments)
