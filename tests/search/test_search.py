"""The exact searches against brute force, and every step of them on values worked out by hand."""

from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.nearest import assert_nearest, is_exact, means, points, rounding, scores, units, vectors

from hf_xalign.errors import InputError
from hf_xalign.modeling.maps import unit
from hf_xalign.search import csls, ranking
from hf_xalign.search.csls import nearest_neighbours
from hf_xalign.search.ranking import nearest

SIMILARITIES = ("csls", "cosine")
NEIGHBOURS = st.sampled_from((1, 2, 3, 8, 100))
# Of a band's values and a block's values.
LIMITS = ((csls, "_BAND"), (csls, "_BLOCK"))


def check(source, target, found, similarity="csls", k=10, bound=None):
    """Both sides' nearest have the best scores; with a bound of 0 they are the first that have them."""
    table = scores(source, target, similarity, k)
    if bound is None:
        bound = rounding(source.shape[1], k, scale=8.0 if similarity == "margin" else 4.0)
    assert_nearest(found.source_to_target, table, bound)
    assert_nearest(found.target_to_source, table.T, bound)
    assert found.source_to_target.dtype == found.target_to_source.dtype == torch.int64


def check_lists(found, table, n, bound=0.0):
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


def rising():
    """Vectors of which every later one is nearer to the others: the best so far are replaced in each band."""
    angle = torch.linspace(1.5, 0.0, 150)
    return torch.stack([angle.cos(), angle.sin(), torch.zeros(150)], 1)


# ---- Against brute force ----


@given(
    source=points(40),
    target=points(40),
    k=NEIGHBOURS,
    similarity=st.sampled_from((*SIMILARITIES, "margin")),
    band=st.sampled_from((1, 100, 2**26)),
    kept=st.sampled_from((0, 10**9)),
)
def test_nearest_of_vectors_that_tie(source, target, k, similarity, band, kept):
    scale = 4
    if similarity == "margin":
        source, target = source.abs(), target.abs()
        lowest = means(source, target, k).min() + means(target, source, k).min()
        if lowest <= 0:
            with pytest.raises(InputError, match="cannot divide by zero or less"):
                nearest_neighbours(source, target, k=k, similarity=similarity)
            return
        scale = 2 * (1 + scores(source, target, similarity, k).max()) / lowest
    with patch.object(csls, "_BAND", band), patch.object(csls, "_KEPT", kept):
        found = nearest_neighbours(source, target, k=k, similarity=similarity)
    exact = similarity == "cosine" or is_exact(k, len(source), len(target))
    check(source, target, found, similarity, k, 0.0 if exact else rounding(4, k, scale=scale))


@pytest.mark.parametrize(("band", "block", "kept"), [(2**26, 16, 0), (1000, 2, 0), (1000, 3, 10**9)])
def test_nearest_of_vectors_of_many_directions(band, block, kept, monkeypatch):
    monkeypatch.setattr(csls, "_BAND", band)
    monkeypatch.setattr(csls, "_BLOCK", block)
    monkeypatch.setattr(csls, "_KEPT", kept)
    for rows, others, k in ((70, 70, 10), (33, 97, 1), (90, 5, 3), (1, 40, 10), (1, 1, 10), (61, 45, 40)):
        for hubs in (False, True):
            source, target = vectors(1, rows, hubs=hubs), vectors(2, others, hubs=hubs)
            for similarity in (*SIMILARITIES, "margin") if hubs else SIMILARITIES:
                found = nearest_neighbours(source, target, k=k, similarity=similarity)
                check(source, target, found, similarity, k)
    source, target = rising(), vectors(13, 140, dim=3, hubs=True)
    check(source, target, nearest_neighbours(source, target))


def legacy_scores(source, target, k):
    """The published scripts' scores: of every source to all targets, of every target to all sources."""
    whole = [side.double().numpy() / np.sqrt(side.double().square().sum().item()) for side in (source, target)]
    near = whole[0] @ whole[1].T
    r_source, r_target = (np.sort(table, 1)[:, -k:].mean(1) for table in (near, near.T))
    return 2 * units(source) @ whole[1].T - r_target, 2 * units(target) @ whole[0].T - r_source


@pytest.mark.parametrize("band", [2**26, 500])
def test_legacy_is_the_published_variant(band, monkeypatch):
    monkeypatch.setattr(csls, "_BAND", band)
    for scale, rows, k in ((1.0, 60, 10), (1e25, 40, 1), (1e-25, 21, 3), (1.0, 5, 100), (1.0, 3, 1), (1.0, 2, 1)):
        source, target = vectors(rows, rows, dim=6) * scale, vectors(9, 75, dim=6) * scale
        # Near to their whole matrix's norm, so that r is as large as the products.
        source[0] *= 10
        target[::5] = target[0] + 0.01 * target[::5]
        found = nearest_neighbours(source, target, k=k, legacy=True)
        for side, table in zip(found, legacy_scores(source, target, k), strict=True):
            assert_nearest(side, table, rounding(6, k, scale=0.5))
    zeros = nearest_neighbours(torch.zeros(3, 2), torch.zeros(2, 2), legacy=True)
    assert [side.tolist() for side in zeros] == [[0, 0, 0], [0, 0]]


@given(
    sides=st.tuples(points(30), points(50)),
    others=st.none() | points(40),
    n=st.sampled_from((1, 3, 20, 60)),
    k=NEIGHBOURS,
    similarity=st.sampled_from(SIMILARITIES),
    limits=st.sampled_from(((1, 2), (100, 16), (2**26, 3))),
)
def test_lists_of_vectors_that_tie(sides, others, n, k, similarity, limits):
    queries, candidates = sides
    with pytest.MonkeyPatch.context() as patched:
        for (module, name), limit in zip(LIMITS, limits, strict=True):
            patched.setattr(module, name, limit)
        patched.setattr(ranking, "_MANY", few := 0 if limits[0] == 1 else 2**28)
        patched.setattr(ranking, "_FEW", few)
        found = nearest(queries, candidates, n, similarity=similarity, k=k, neighbourhood=others)
    exact = similarity == "cosine" or is_exact(k, len(candidates), len(queries if others is None else others))
    table = scores(queries, candidates, similarity, k, others)
    check_lists(found, table, n, 0.0 if exact else rounding(4, k))


@pytest.mark.parametrize("look", [1, 8])
@pytest.mark.parametrize("n", [1, 5])
def test_few_queries_compare_few_candidates_with_all_others(n, look, monkeypatch):
    topics = vectors(31, 40, dim=16)
    y, others = (topics[torch.arange(1200) % 40] + 0.5 * vectors(seed, 1200, dim=16) for seed in (32, 33))
    y[700] = y[3]
    expected = nearest(others[:20], y, n, neighbourhood=others)
    monkeypatch.setattr(ranking, "_MANY", 0)
    monkeypatch.setattr(ranking, "_LOOK", look)
    compared, whole = [], ranking._mean_of_nearest
    monkeypatch.setattr(ranking, "_mean_of_nearest", lambda x, *rest: compared.append(len(x)) or whole(x, *rest))
    found = nearest(others[:20], y, n, neighbourhood=others)
    assert torch.equal(found.indices, expected.indices) and (found.scores - expected.scores).abs().max() < rounding(16)
    assert n * 2 < sum(compared) < 500
    bounds, exact = (crowding(unit(y), unit(others), 10) for crowding in (ranking._least_crowding, whole))
    assert (bounds <= exact).all() and (exact - bounds).mean() < 0.2


def test_equal_candidates_come_in_their_order_and_equal_queries_get_equal_lists():
    queries, candidates = vectors(5, 21), vectors(6, 90)
    candidates[[89, 60, 40, 12, 3]] = candidates[3].clone()
    candidates[[70, 71]] = queries[2] * torch.tensor([[2.0], [0.5]])  # powers of two: equal to the bit when unit
    queries[20] = queries[0]
    for similarity in SIMILARITIES:
        found = nearest(queries, candidates, 90, similarity=similarity, k=4)
        assert found.indices[2, :2].tolist() == [70, 71]
        assert torch.equal(found.indices[0], found.indices[20]) and torch.equal(found.scores[0], found.scores[20])
        for row, score in zip(found.indices.tolist(), found.scores.tolist(), strict=True):
            at = [row.index(copy) for copy in (3, 12, 40, 60, 89)]
            assert at == list(range(at[0], at[0] + 5)) and len({score[n] for n in at}) == 1


# ---- Options, devices, types and progress ----


def test_other_types_are_scored_in_float32():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        one, two = vectors(18, 60).to(dtype).requires_grad_(), vectors(19, 60).to(dtype)
        kept = one.detach().clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, lists = nearest_neighbours(one, two), nearest(one, two)
        check(kept.float(), two.float(), found)
        check_lists(lists, scores(kept, two), 10, rounding(12))
        assert torch.equal(one, kept) and one.grad is None
        assert not found.source_to_target.requires_grad and not lists.scores.requires_grad


def test_reduced_precision_is_suspended_and_put_back():
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        given = [backend.fp32_precision for backend in backends]
        with pytest.raises(KeyError), torch.autocast("cpu"), csls.plain_float32(torch.device("cpu")):
            seen = [backend.fp32_precision for backend in backends]
            assert not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
            raise KeyError
        assert [backend.fp32_precision for backend in backends] == given
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == ["ieee", "ieee"]


@pytest.mark.parametrize("search", [nearest_neighbours, partial(nearest_neighbours, legacy=True), nearest])
def test_rows_without_numbers_are_refused(search):
    bad, ones = torch.ones(20, 4), torch.ones(3, 4)
    bad[13:, 2] = torch.nan
    for given_ in ((bad, ones), (ones, bad)):
        with pytest.raises(InputError, match=r"vectors: row 13 \(of 20\) has NaN or infinity"):
            search(*given_)


def test_ties_between_equal_vectors_are_not_left_to_rounding(monkeypatch):
    source, target = vectors(26, 6), vectors(27, 5)
    source[4] = source[1]
    target[3] = target[0]
    # As if rounding had favoured the later copy, and had answered equal queries (sources 1 and 4) unequally.
    rounded = csls.Neighbours(torch.tensor([3, 3, 2, 1, 2, 4]), torch.tensor([4, 4, 2, 1, 0]))
    monkeypatch.setattr(csls, "_best", lambda *_, **__: rounded)
    for options in ({}, {"legacy": True}):
        found = nearest_neighbours(source, target, **options)
        assert [side.tolist() for side in found] == [[0, 0, 2, 1, 0, 4], [1, 1, 2, 1, 0]], options


@pytest.mark.gpu
def test_gpu_equals_cpu():
    one, two = vectors(24, 3000, dim=64, hubs=True), vectors(25, 9000, dim=64, hubs=True)
    two[5000:] = two[:4000]
    for call in (nearest_neighbours, nearest):
        (found, values), (wanted, other) = call(one, two, device="cuda"), call(one, two)
        assert (found.cpu() == wanted).double().mean() > 0.999, "only near-ties may differ"
        if call is nearest:
            assert torch.allclose(values.cpu(), other, rtol=0, atol=rounding(64))
        else:
            assert (values.cpu() == other).double().mean() > 0.999
