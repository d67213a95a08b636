from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.evaluation import csls
from hf_xalign.evaluation.csls import nearest_neighbours
from hf_xalign.evaluation.sentences import sentence_retrieval


def sentences(seed, rows=60, dim=10, noise=0.7):
    generator = torch.Generator().manual_seed(seed)
    common = 0.6 * torch.randn(dim, generator=generator)
    source = torch.randn(rows, dim, generator=generator) * torch.linspace(1.5, 0.3, dim) + common
    target = source + noise * torch.randn(rows, dim, generator=generator)
    return source, target * torch.exp(torch.randn(rows, 1, generator=generator))


def unit(vector):
    return vector / np.sqrt((vector * vector).sum())


def loop_nearest(source, target, similarity, k):
    """By the formulas in float64, one pair at a time."""
    source, target = ([unit(x) for x in side.double().numpy()] for side in (source, target))
    scores = np.array([[float(np.dot(x, y)) for y in target] for x in source])
    r_source = [np.mean(sorted(row, reverse=True)[:k]) for row in scores]
    r_target = [np.mean(sorted(column, reverse=True)[:k]) for column in scores.T]
    for i in range(len(source)):
        for j in range(len(target)):
            if similarity == "csls":
                scores[i, j] = 2 * scores[i, j] - r_source[i] - r_target[j]
            if similarity == "margin":
                # Artetxe and Schwenk: each neighbour adds cos / 2k.
                scores[i, j] /= r_source[i] / 2 + r_target[j] / 2
    return scores.argmax(1).tolist(), scores.argmax(0).tolist()


@pytest.mark.parametrize("tile", [4096, 32])
@pytest.mark.parametrize(("similarity", "k"), [("cosine", 1), ("csls", 10), ("margin", 4), ("margin", 1)])
def test_against_a_loop(similarity, k, tile, monkeypatch):
    monkeypatch.setattr(csls, "_TILE", tile)
    source, target = sentences(0)
    forward, backward = loop_nearest(source, target, similarity, k)
    scores = sentence_retrieval(source, target, similarity=similarity, k=k)
    right = [np.mean([n == m for n, m in enumerate(found)]) for found in (forward, backward)]
    assert scores == pytest.approx(
        {"source_to_target": right[0], "target_to_source": right[1], "mean": sum(right) / 2, "queries": 60}
    )
    assert 0.1 < right[0] < 0.95 and right[0] != right[1]
    found = nearest_neighbours(source, target, similarity=similarity, k=k)
    assert (found.source_to_target.tolist(), found.target_to_source.tolist()) == (forward, backward)


@pytest.mark.parametrize("tile", [4096, 32])
def test_margin_of_sides_of_other_sizes(tile, monkeypatch):
    monkeypatch.setattr(csls, "_TILE", tile)
    source, target = sentences(1, rows=90)
    for a, b in ((source, target[:37]), (source[:5], target), (source[:1], target[:1])):
        found = nearest_neighbours(a, b, similarity="margin", k=4)
        assert (found.source_to_target.tolist(), found.target_to_source.tolist()) == loop_nearest(a, b, "margin", 4)


def test_the_measures_differ_and_have_their_papers_k():
    source, target = sentences(2, rows=300)
    found = {name: sentence_retrieval(source, target, similarity=name) for name in ("cosine", "csls", "margin")}
    assert len({scores["mean"] for scores in found.values()}) == 3
    assert found["csls"] == sentence_retrieval(source, target, similarity="csls", k=10)
    assert found["margin"] == sentence_retrieval(source, target, similarity="margin", k=4)
    assert found["margin"] != sentence_retrieval(source, target, similarity="margin", k=10)


@pytest.mark.parametrize("similarity", ["cosine", "csls", "margin"])
def test_only_the_first_of_equal_sentences_is_found(similarity):
    target = torch.eye(6)[:, :5] + 0.2
    target[4] = target[1]
    # Row 5 is all of 0.2. The query of row 4 finds its copy in row 1, whichever measure.
    scores = sentence_retrieval(target.clone(), target, similarity=similarity, k=2)
    assert scores["source_to_target"] == scores["target_to_source"] == pytest.approx(5 / 6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("similarity", ["cosine", "csls", "margin"])
def test_other_types_and_arrays(similarity, dtype):
    source, target = (side.bfloat16() for side in sentences(3))
    wanted = sentence_retrieval(source.float(), target.float(), similarity=similarity)
    assert sentence_retrieval(source.to(dtype), target.to(dtype), similarity=similarity) == wanted
    assert sentence_retrieval(source.double().numpy(), target.tolist(), similarity=similarity) == wanted


def test_more_than_a_tile():
    source, target = sentences(4, rows=5000, dim=16, noise=0.3)
    unit_source, unit_target = (side.double() / side.double().norm(dim=1, keepdim=True) for side in (source, target))
    scores = unit_source @ unit_target.T
    scores = scores / (scores.topk(4).values.mean(1, keepdim=True) + scores.topk(4, dim=0).values.mean(0))
    gold = torch.arange(5000)
    found = sentence_retrieval(source, target, similarity="margin")
    assert found["source_to_target"] == pytest.approx((scores.argmax(1) == gold).double().mean().item(), abs=5e-4)
    assert found["target_to_source"] == pytest.approx((scores.argmax(0) == gold).double().mean().item(), abs=5e-4)


def test_a_margin_without_a_positive_mean_is_refused():
    source, target = sentences(5)
    source[3] = target[8] = 0.0
    with pytest.raises(InputError, match=r"margin: source row 3 and target row 8 have a mean cosine of 0 to their 4"):
        sentence_retrieval(source, target, similarity="margin")
    assert sentence_retrieval(source, target, similarity="csls")["queries"] == 60


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (torch.ones(3, 4), torch.ones(2, 4), {}, "3 source and 2 target sentences"),
        (torch.ones(3, 4), torch.ones(3, 5), {}, "4 dimensions and target vectors 5"),
        (torch.ones(0, 4), torch.ones(0, 4), {}, "no rows"),
        (torch.ones(3, 4), torch.full((3, 4), torch.inf), {}, "target vectors: row 0"),
        (torch.ones(3, 4), torch.ones(3, 4), {"similarity": "dot"}, "'dot' is not known"),
        (torch.ones(3, 4), torch.ones(3, 4), {"similarity": "margin", "k": 0}, "k=0"),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0]], {}, "source vectors: every row needs the same number"),
    ],
)
def test_bad_input(source, target, options, message):
    with pytest.raises(InputError, match=message):
        sentence_retrieval(source, target, **options)
