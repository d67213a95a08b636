"""Ranked lists against brute force, and every step of them on values worked out by hand."""

import runpy
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.nearest import is_exact, means, points, rounding, scores, vectors
from support.numeric import assert_rounding

from hf_xalign.search import csls, ranking
from hf_xalign.search.ranking import nearest

pytestmark = pytest.mark.numeric
NONE = csls.NO_KEY


def check(found, table, n, bound=0.0):
    """The lists hold the n best scores of a float64 table in order; with a bound of 0 equal ones by their index."""
    n = min(n, table.shape[1])
    assert found.indices.dtype == torch.int64 and found.scores.dtype == torch.float32
    assert found.indices.shape == found.scores.shape == (len(table), n)
    order = np.argsort(-table, 1, kind="stable")[:, :n]
    best = np.take_along_axis(table, order, 1)
    if not bound:
        assert found.indices.tolist() == order.tolist() and found.scores.tolist() == best.tolist()
        return
    assert all(len(set(row)) == n for row in found.indices.tolist())
    for of in (found.scores.double().numpy(), np.take_along_axis(table, found.indices.numpy(), 1)):
        np.testing.assert_allclose(of, best, rtol=0, atol=bound)


@given(
    sides=st.tuples(points(30), points(50)),
    others=st.none() | points(40),
    n=st.sampled_from((1, 3, 20, 60)),
    k=st.sampled_from((1, 2, 3, 8, 100)),
    similarity=st.sampled_from(("csls", "cosine")),
    limits=st.sampled_from(((16, 3, 7), (32, 2**18, 2**21), (4096, 5, 2**21))),
)
def test_vectors_that_tie_against_brute_force(sides, others, n, k, similarity, limits):
    queries, candidates = sides
    with (
        patch.object(csls, "_TILE", limits[0]),
        patch.object(csls, "_MOST_BLOCKS", limits[1]),
        patch.object(ranking, "_MOST_COPIES", limits[2]),
    ):
        found = nearest(queries, candidates, n, similarity=similarity, k=k, neighbourhood=others)
    exact = similarity == "cosine" or is_exact(k, len(candidates), len(queries if others is None else others))
    check(found, scores(queries, candidates, similarity, k, others), n, 0.0 if exact else rounding(4, k))


@pytest.mark.parametrize("limits", [(4096, 2**18, 2**21), (32, 2**18, 2**21), (32, 3, 7)])
def test_vectors_of_many_directions_against_brute_force(limits, monkeypatch):
    for module, name, limit in zip(
        (csls, csls, ranking), ("_TILE", "_MOST_BLOCKS", "_MOST_COPIES"), limits, strict=True
    ):
        monkeypatch.setattr(module, name, limit)
    for q, c, n, k in ((33, 97, 10, 10), (70, 40, 3, 1), (5, 60, 60, 4), (40, 7, 50, 1000), (1, 90, 1, 10)):
        queries, candidates, others = vectors(1, q, hubs=True), vectors(2, c, hubs=True), vectors(3, 75, hubs=True)
        candidates[c // 2] = candidates[c // 3]
        for given_ in ({}, {"similarity": "cosine"}, {"neighbourhood": others}):
            table = scores(queries, candidates, given_.get("similarity", "csls"), k, given_.get("neighbourhood"))
            check(nearest(queries, candidates, n, k=k, **given_), table, n, rounding(12, k))
    # Every later tile is nearer than all before it: the lists are replaced over and over.
    angle = torch.linspace(1.5, 0.0, 150)
    candidates = torch.stack([angle.cos(), angle.sin(), torch.zeros(150)], 1)
    queries = vectors(13, 40, dim=3, hubs=True)
    check(nearest(queries, candidates, 8), scores(queries, candidates), 8, rounding(3))


def test_equal_candidates_come_in_their_order_and_equal_queries_get_equal_lists():
    queries, candidates = vectors(5, 21), vectors(6, 90)
    candidates[[89, 60, 40, 12, 3]] = candidates[3].clone()
    candidates[[70, 71]] = queries[2] * torch.tensor([[2.0], [0.5]])  # powers of two: equal to the bit when unit
    queries[20] = queries[0]
    for similarity in ("csls", "cosine"):
        found = nearest(queries, candidates, 90, similarity=similarity, k=4)
        assert found.indices[2, :2].tolist() == [70, 71]
        assert torch.equal(found.indices[0], found.indices[20]) and torch.equal(found.scores[0], found.scores[20])
        for row, score in zip(found.indices.tolist(), found.scores.tolist(), strict=True):
            at = [row.index(copy) for copy in (3, 12, 40, 60, 89)]
            assert at == list(range(at[0], at[0] + 5)) and len({score[n] for n in at}) == 1


def test_a_tile_and_more_of_many_copies():
    queries, candidates = vectors(22, 100, dim=16, hubs=True), vectors(23, 4700, dim=16, hubs=True)
    candidates[2500:4500] = candidates[:2000]
    others = torch.cat([queries, vectors(24, 4200, dim=16, hubs=True)])
    table = scores(queries, candidates, others=others)
    check(nearest(queries, candidates, 20, neighbourhood=others), table, 20, rounding(16))


def test_options_that_are_left_out():
    queries, candidates = vectors(7, 40, hubs=True), vectors(8, 50, hubs=True)
    found = nearest(queries, candidates)
    assert found.indices.shape == (40, 10)
    check(found, scores(queries, candidates, "csls", 10), 10, rounding(12))
    for k in (9, 11):
        assert (nearest(queries, candidates, k=k).scores - found.scores).abs().max() > 10 * rounding(12)
    same = nearest(queries, candidates, 10, similarity="csls", k=10, neighbourhood=None, device="cpu")
    assert torch.equal(same.indices, found.indices) and torch.equal(same.scores, found.scores)
    odd = torch.ones(2, 3)  # cosine does not look at a neighbourhood
    assert nearest(queries, candidates, 1, similarity="cosine", neighbourhood=odd).indices.shape == (40, 1)


def test_all_vectors_go_to_the_device(monkeypatch):
    seen = []
    monkeypatch.setattr(ranking, "plain_float32", lambda device: seen.append(device) or nullcontext())
    monkeypatch.setattr(ranking, "unit_rows", lambda side, name: seen.append((name, side.device, side.dtype)) or side)
    monkeypatch.setattr(ranking, "_distinct", lambda side: 1 / 0)
    for given_, wanted in (("meta", "meta"), (None, "cpu")):
        seen.clear()
        with pytest.raises(ZeroDivisionError):
            x = torch.ones(1, 2)
            nearest(x.double(), x, neighbourhood=x.half(), device=given_)
        device = torch.device(wanted)
        assert seen == [device, *((name, device, torch.float32) for name in ("query", "candidate", "neighbourhood"))]


def test_other_types_are_scored_in_float32():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        queries, candidates = vectors(18, 30).to(dtype).requires_grad_(), vectors(19, 60).to(dtype)
        kept = queries.detach().clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = nearest(queries, candidates)
        check(found, scores(kept, candidates), 10, rounding(12))
        assert not found.scores.requires_grad and torch.equal(queries, kept)


def test_progress_names_the_passes(monkeypatch):
    seen = []
    monkeypatch.setattr(csls, "tqdm", lambda what, desc, **options: seen.append(desc) or what)
    for similarity in ("csls", "cosine"):
        nearest(torch.ones(1, 2), torch.ones(1, 2), similarity=similarity)
    assert seen == ["CSLS: neighbourhoods", "ranking", "ranking"]


def test_keys_have_the_order_of_scores_then_of_indices():
    values = torch.tensor([-torch.inf, -2.0, -1e-30, -0.0, 0.0, 1e-30, 0.5, 2.0, 2.0])
    indices = torch.tensor([5, 2**32 - 1, 7, 0, 1, 0, 3, 9, 8])
    keys = csls.keys_of(values, indices)
    assert (keys > NONE).all() and keys.argsort().tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8]
    assert torch.equal(csls.key_indices(keys), indices) and torch.equal(csls.key_scores(keys), values)
    assert csls.key_scores(torch.tensor([NONE])).item() == -torch.inf
    none = csls.no_keys(values, 9, 3)
    assert none.shape == (9, 3) and none.dtype == torch.int64 and (none == -(2**63)).all()


def test_distinct_rows():
    x = torch.tensor([[2.0], [1.0], [2.0], [3.0], [1.0]])
    rows, place = ranking._distinct(x)
    assert rows.tolist() == [[2], [1], [3]] and place.tolist() == [0, 1, 0, 2, 1] and place.dtype == torch.int64
    rows, place = ranking._distinct(x[:2])
    assert rows.tolist() == [[2], [1]] and place.tolist() == [0, 1]


def test_means_of_nearest_count_every_copy(monkeypatch):
    monkeypatch.setattr(csls, "_TILE", 16)
    x, others = vectors(9, 20), vectors(10, 50)
    others[30:40] = others[0]
    for k in (1, 10, 60):
        found = ranking._mean_of_nearest(csls.unit_rows(x, "x"), csls.unit_rows(others, "others"), k)
        assert_rounding(found, means(x, others, k), 2 * 12 + k + 8, scale=1)


def test_tiles_are_padded_by_what_enters_no_list(monkeypatch):
    monkeypatch.setattr(csls, "_TILE", 16)
    left, right = torch.arange(6.0).view(3, 2), torch.arange(50.0).view(25, 2)
    found = [(rows, columns, tile.clone()) for rows, columns, tile in ranking._padded_tiles(left, right, "name")]
    assert [(rows.start, columns.start, columns.stop) for rows, columns, _ in found] == [(0, 0, 16), (0, 16, 32)]
    product = torch.cat([tile for *_, tile in found], 1)
    assert torch.equal(product[:, :25], left @ right.T) and (product[:, 25:] == -torch.inf).all()
    [(*_, whole)] = ranking._padded_tiles(left, right[:16], "name")
    assert torch.equal(whole, left @ right[:16].T)


@pytest.mark.parametrize("most", [1, 2**18])
def test_tiles_enter_the_lists(most, monkeypatch):
    monkeypatch.setattr(csls, "_MOST_BLOCKS", most)
    for n in (1, 3, 5, 9):
        generator = torch.Generator().manual_seed(n)
        tiles = torch.randint(0, 100, (4, 5, 96), generator=generator).float()  # 100 values: many are equal
        tiles[1:3] -= 200
        tiles[2, 3, 50] = 150.0  # a single value of a tile enters
        keys = csls.no_keys(tiles, 5, n)
        for number, tile in enumerate(tiles):
            ranking._enter(keys, tile, 96 * number)
            seen = torch.cat(list(tiles[: number + 1]), 1)
            wanted = seen.sort(dim=1, descending=True, stable=True)
            assert torch.equal(csls.key_indices(keys), wanted.indices[:, :n])
            assert torch.equal(csls.key_scores(keys), wanted.values[:, :n])
    keys = csls.no_keys(tiles, 5, 2)
    ranking._enter(keys, torch.full((5, 16), -torch.inf), 0)
    assert (keys == NONE).all()


def test_copies_come_in_where_their_row_is(monkeypatch):
    # Row 0 stands at 1, 4 and 5; row 1 at 0; row 2 at 2 and 3.
    copy_of = torch.tensor([1, 0, 2, 2, 0, 0])
    indices, values = torch.tensor([[0, 2, 1], [2, 1, 0]]), torch.tensor([[3.0, 2.0, 1.0], [0.5, 0.5, -1.0]])
    for most in (1, 9, 2**21):
        monkeypatch.setattr(ranking, "_MOST_COPIES", most)
        for n in (1, 2, 4, 6):
            found = ranking._with_copies(indices, values, copy_of, n)
            wanted = [[1, 4, 5, 2, 3, 0], [0, 2, 3, 1, 4, 5]], [[3, 3, 3, 2, 2, 1], [0.5, 0.5, 0.5, -1, -1, -1]]
            assert [one.tolist() for one in found] == [[row[:n] for row in rows] for rows in wanted], (most, n)


def test_copies_are_expanded_by_as_many_queries_as_fit(monkeypatch):
    sizes = []
    keys = ranking.keys_of
    monkeypatch.setattr(ranking, "keys_of", lambda score, wide: sizes.append(len(score)) or keys(score, wide))
    for most, wanted in ((5, [1] * 5), (12, [2, 2, 1]), (30, [5])):
        sizes.clear()
        monkeypatch.setattr(ranking, "_MOST_COPIES", most)
        ranking._with_copies(torch.tensor([[0, 1]] * 5), torch.ones(5, 2), torch.tensor([0, 1, 0, 0]), 4)
        assert sizes == wanted, most


@pytest.mark.gpu
def test_gpu_equals_cpu():
    queries, candidates = vectors(24, 3000, dim=64, hubs=True), vectors(25, 9000, dim=64, hubs=True)
    candidates[5000:] = candidates[:4000]
    found, wanted = nearest(queries, candidates, device="cuda"), nearest(queries, candidates)
    assert (found.indices.cpu() == wanted.indices).double().mean() > 0.999, "only near-ties may differ"
    assert torch.allclose(found.scores.cpu(), wanted.scores, rtol=0, atol=rounding(64))


@pytest.mark.slow
def test_benchmark_compares_equal_lists():
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "mapping_bli.py"
    found = runpy.run_path(str(script))["measure"](targets=400, queries=60, dim=16, repeats=1)
    assert {"cosine", "csls", "NumPy, CSLS"} <= set(found)
    for row in found.values():
        assert row["same"] == 1.0 and row["wall_ratio"] > 0 and row["cpu_ratio"] > 0
        assert row["right"] == found[row["against"]]["right"] > 0.1
