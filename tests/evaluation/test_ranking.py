from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.evaluation import csls, ranking
from hf_xalign.evaluation.csls import nearest_neighbours
from hf_xalign.evaluation.ranking import nearest


def unit(vector):
    length = float(np.sqrt((vector * vector).sum()))
    return vector / length if length > 0 else vector


def loop_ranking(queries, candidates, n, similarity="csls", k=10, neighbourhood=None):
    """By the formula in float64, one pair at a time; of equal scores (to 12 digits) the first candidate first."""
    others = queries if neighbourhood is None else neighbourhood
    queries, candidates, others = ([unit(x) for x in side.double().numpy()] for side in (queries, candidates, others))
    r_candidate = [np.mean(sorted((float(np.dot(y, z)) for z in others), reverse=True)[:k]) for y in candidates]
    rows, scores = [], []
    for x in queries:
        near = [float(np.dot(x, y)) for y in candidates]
        if similarity == "csls":
            r_query = np.mean(sorted(near, reverse=True)[:k])
            near = [2 * near[j] - r_query - r_candidate[j] for j in range(len(near))]
        order = sorted(range(len(near)), key=lambda j: (-round(near[j], 12), j))[:n]
        rows.append(order)
        scores.append([near[j] for j in order])
    return rows, np.array(scores)


def check(found, wanted):
    assert found.indices.tolist() == wanted[0]
    assert np.allclose(found.scores.numpy(), wanted[1], atol=2e-6)
    assert found.indices.dtype == torch.int64 and found.scores.dtype == torch.float32


def vectors(seed, rows, dim=12, hubs=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, dim, generator=generator)
    if hubs:
        spread = torch.linspace(1.0, 0.05, dim)
        x = x * spread + 0.5 + torch.randn(rows, 1, generator=generator).square() * 0.5
    return x * torch.exp(torch.randn(rows, 1, generator=generator))


@pytest.fixture(params=["one tile", "many tiles", "many tiles, few blocks at once"])
def chunks(request, monkeypatch):
    if request.param != "one tile":
        monkeypatch.setattr(csls, "_TILE", 32)
    if request.param.endswith("once"):
        monkeypatch.setattr(ranking, "_MOST_BLOCKS", 3)
        monkeypatch.setattr(ranking, "_MOST_COPIES", 7)


@pytest.mark.usefixtures("chunks")
class TestAgainstLoops:
    @pytest.mark.parametrize("similarity", ["csls", "cosine"])
    @pytest.mark.parametrize("shape", [(33, 97, 10), (70, 40, 3), (5, 60, 60), (40, 7, 50), (1, 90, 1), (1, 1, 1)])
    def test_lists_and_scores(self, shape, similarity):
        q, c, n = shape
        queries, candidates = vectors(1, q, hubs=True), vectors(2, c, hubs=True)
        found = nearest(queries, candidates, n, similarity=similarity)
        assert found.indices.shape == (q, min(n, c))
        check(found, loop_ranking(queries, candidates, n, similarity))

    @pytest.mark.parametrize("k", [1, 4, 1000])
    def test_neighbourhood_of_more_than_the_queries(self, k):
        everything, candidates = vectors(3, 75, hubs=True), vectors(4, 50, hubs=True)
        queries = everything[10:30]
        found = nearest(queries, candidates, 5, k=k, neighbourhood=everything)
        check(found, loop_ranking(queries, candidates, 5, k=k, neighbourhood=everything))
        own = loop_ranking(queries, candidates, 5, k=k)
        assert found.indices.tolist() != own[0], "the case must tell whose neighbourhood it is"

    @pytest.mark.parametrize("similarity", ["csls", "cosine"])
    def test_equal_candidates_come_in_their_order_and_count_in_the_means(self, similarity):
        queries, candidates = vectors(5, 21), vectors(6, 90)
        candidates[[89, 60, 40, 12, 3]] = candidates[3].clone()
        candidates[[70, 71]] = queries[2] * torch.tensor([[2.0], [0.5]])  # powers of two: equal to the bit when unit
        queries[20] = queries[0]
        found = nearest(queries, candidates, 12, similarity=similarity, k=4)
        wanted = loop_ranking(queries, candidates, 12, similarity, k=4)
        check(found, wanted)
        assert found.indices[2, :2].tolist() == [70, 71]
        assert torch.equal(found.indices[0], found.indices[20]) and torch.equal(found.scores[0], found.scores[20])
        again = nearest(queries, candidates, 90, similarity=similarity, k=4)
        check(again, loop_ranking(queries, candidates, 90, similarity, k=4))
        rows = again.indices.tolist()
        for row in rows:
            at = row.index(3)
            assert row[at : at + 5] == [3, 12, 40, 60, 89]

    def test_equal_scores_of_different_vectors_give_the_lowest_index_first(self):
        # One axis each: all cosines are exactly 0 or 1, so every query ties over nearly all candidates.
        queries, candidates = torch.eye(80)[:60].clone(), torch.eye(80)[40:].flip(0).clone()
        found = nearest(queries, candidates, 15, similarity="cosine")
        check(found, loop_ranking(queries, candidates, 15, "cosine"))
        assert found.indices[0].tolist() == list(range(15))
        assert found.indices[50].tolist() == [29, *range(14)]
        check(nearest(queries, candidates, 15, k=1), loop_ranking(queries, candidates, 15, k=1))

    def test_zero_and_all_equal_vectors(self):
        queries, candidates = vectors(9, 20), vectors(10, 50)
        queries[3] = queries[7] = candidates[21] = candidates[30] = 0.0
        for similarity in ("cosine", "csls"):
            check(
                nearest(queries, candidates, similarity=similarity), loop_ranking(queries, candidates, 10, similarity)
            )
        found = nearest(torch.ones(3, 4), torch.ones(70, 4), 40)
        assert found.indices.tolist() == [list(range(40))] * 3
        assert found.scores.abs().max() < 1e-6

    def test_ascending_similarity(self):
        # Every later tile is nearer than all before it: the lists are replaced over and over.
        angle = torch.linspace(1.5, 0.0, 150)
        candidates = torch.stack([angle.cos(), angle.sin(), torch.zeros(150)], 1)
        queries = vectors(13, 40, dim=3, hubs=True)
        check(nearest(queries, candidates, 8), loop_ranking(queries, candidates, 8))


def test_first_of_the_list_is_the_nearest_neighbour():
    source, target = vectors(20, 5000, dim=24, hubs=True), vectors(21, 4500, dim=24, hubs=True)
    for similarity in ("csls", "cosine"):
        found = nearest(source, target, 3, similarity=similarity).indices[:, 0]
        wanted = nearest_neighbours(source, target, similarity=similarity).source_to_target
        assert (found == wanted).double().mean() > 0.999, "only near-ties may differ"


def test_larger_than_a_tile_equals_a_dense_float64_ranking():
    queries, candidates = vectors(22, 300, dim=24, hubs=True).double(), vectors(23, 9000, dim=24, hubs=True).double()
    everything = torch.cat([queries, vectors(24, 4200, dim=24, hubs=True).double()])
    unit = [side / side.norm(dim=1, keepdim=True) for side in (queries, candidates, everything)]
    score = 2 * unit[0] @ unit[1].T
    score -= (score / 2).topk(10).values.mean(1, keepdim=True) + (unit[1] @ unit[2].T).topk(10).values.mean(1)
    found = nearest(queries, candidates, 20, neighbourhood=everything)
    assert torch.allclose(found.scores.double(), score.topk(20).values, atol=2e-6)
    assert torch.allclose(score.gather(1, found.indices), score.topk(20).values, atol=2e-6)
    assert (found.indices == score.topk(20).indices).double().mean() > 0.99, "only near-ties may differ"


def test_keys_have_the_order_of_scores_then_of_indices():
    scores = torch.tensor([-torch.inf, -2.0, -1e-30, -0.0, 0.0, 1e-30, 0.5, 2.0, 2.0])
    indices = torch.tensor([5, 2**32 - 1, 7, 0, 1, 0, 3, 9, 8])
    keys = ranking._keys(scores, indices)
    assert (keys > ranking._NO_KEY).all() and keys.argsort().tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8]
    assert torch.equal(ranking._indices(keys), indices) and torch.equal(ranking._scores(keys), scores)
    assert ranking._scores(torch.tensor([ranking._NO_KEY])).item() == -torch.inf


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types_are_scored_in_float32(dtype):
    queries, candidates = vectors(18, 30).to(dtype), vectors(19, 60).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(nearest(queries, candidates), loop_ranking(queries.float(), candidates.float(), 10))


def test_vectors_that_require_grad_are_left_alone():
    queries = vectors(20, 20).requires_grad_()
    kept = queries.detach().clone()
    found = nearest(queries, vectors(21, 20))
    assert not found.scores.requires_grad and torch.equal(queries, kept)


@pytest.mark.parametrize(
    ("queries", "candidates", "options", "message"),
    [
        (torch.ones(3, 4), torch.ones(3, 5), {}, "query vectors have 4 dimensions and candidate vectors 5"),
        (
            torch.ones(3, 4),
            torch.ones(3, 4),
            {"neighbourhood": torch.ones(3, 2)},
            "4 dimensions and neighbourhood vectors 2",
        ),
        (torch.ones(0, 4), torch.ones(3, 4), {}, "query vectors: no rows"),
        (torch.ones(3, 4), torch.ones(3), {}, "candidate vectors: expected a floating-point matrix"),
        (torch.ones(3, 4), torch.full((3, 4), torch.nan), {}, r"candidate vectors: row 0 \(of 3\) holds NaN"),
        (torch.ones(3, 4), torch.ones(3, 4), {"n": 0}, "n=0"),
        (torch.ones(3, 4), torch.ones(3, 4), {"k": 0}, "k=0"),
        (torch.ones(3, 4), torch.ones(3, 4), {"similarity": "margin"}, "'margin' is not known"),
    ],
)
def test_bad_input(queries, candidates, options, message):
    with pytest.raises(InputError, match=message):
        nearest(queries, candidates, **options)


@pytest.mark.gpu
def test_gpu_equals_cpu():
    queries, candidates = vectors(24, 3000, dim=64, hubs=True), vectors(25, 9000, dim=64, hubs=True)
    candidates[5000:] = candidates[:4000]
    found, wanted = nearest(queries, candidates, device="cuda"), nearest(queries, candidates)
    assert (found.indices.cpu() == wanted.indices).double().mean() > 0.999, "only near-ties may differ"
    assert torch.allclose(found.scores.cpu(), wanted.scores, atol=2e-6)


def test_benchmark_compares_equal_lists():
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "mapping_bli.py"
    found = runpy.run_path(str(script))["measure"](targets=400, queries=60, dim=16, repeats=1)
    assert {"cosine", "csls", "NumPy, CSLS"} <= set(found)
    for row in found.values():
        assert row["same"] == 1.0 and row["wall_ratio"] > 0 and row["cpu_ratio"] > 0
        assert row["right"] == found[row["against"]]["right"] > 0.1
