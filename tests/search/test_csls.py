"""The exact search against brute force, and every step of it on values worked out by hand."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.nearest import assert_nearest, is_exact, means, points, rounding, scores, units, vectors

from hf_xalign.errors import InputError
from hf_xalign.search import csls
from hf_xalign.search.csls import nearest_neighbours

pytestmark = pytest.mark.numeric


@given(
    source=points(40),
    target=points(40),
    k=st.sampled_from((1, 2, 3, 8, 100)),
    similarity=st.sampled_from(("csls", "cosine", "margin")),
    tile=st.sampled_from((16, 32, 4096)),
)
def test_vectors_that_tie_against_brute_force(source, target, k, similarity, tile):
    exact = similarity == "cosine" or is_exact(k, len(source), len(target))
    if similarity == "margin":
        source, target = source.abs(), target.abs()
        lowest = means(source, target, k).min() + means(target, source, k).min()
        if lowest <= 0:
            with pytest.raises(InputError, match="a ratio to zero or less"):
                nearest_neighbours(source, target, k=k, similarity=similarity)
            return
    with patch.object(csls, "_TILE", tile):
        found = nearest_neighbours(source, target, k=k, similarity=similarity)
    table = scores(source, target, similarity, k)
    bound = 0.0 if exact else rounding(4, k, scale=4 if similarity == "csls" else 2 * (1 + table.max()) / lowest)
    assert_nearest(found.source_to_target, table, bound)
    assert_nearest(found.target_to_source, table.T, bound)
    assert found.source_to_target.dtype == found.target_to_source.dtype == torch.int64


def check(source, target, found, similarity="csls", k=10):
    table = scores(source, target, similarity, k)
    bound = rounding(source.shape[1], k, scale=8.0 if similarity == "margin" else 4.0)
    assert_nearest(found.source_to_target, table, bound)
    assert_nearest(found.target_to_source, table.T, bound)


@pytest.mark.parametrize("tile", [4096, 32])
def test_vectors_of_many_directions_against_brute_force(tile, monkeypatch):
    monkeypatch.setattr(csls, "_TILE", tile)
    for rows, others, k in ((70, 70, 10), (33, 97, 1), (90, 5, 3), (1, 40, 10), (1, 1, 10), (61, 45, 40)):
        for hubs in (False, True):
            source, target = vectors(1, rows, hubs=hubs), vectors(2, others, hubs=hubs)
            check(source, target, nearest_neighbours(source, target, k=k), k=k)
            for similarity in ("cosine", "margin") if hubs else ("cosine",):
                found = nearest_neighbours(source, target, k=k, similarity=similarity)
                check(source, target, found, similarity, k)
    # Every later tile is nearer than all before it: the running k best are replaced over and over.
    angle = torch.linspace(1.5, 0.0, 150)
    source = torch.stack([angle.cos(), angle.sin(), torch.zeros(150)], 1)
    target = vectors(13, 140, dim=3, hubs=True)
    check(source, target, nearest_neighbours(source, target))


def legacy_scores(source, target, k):
    """The published scripts' scores: of every source to all targets, of every target to all sources."""
    whole = [side.double().numpy() / np.sqrt(side.double().square().sum().item()) for side in (source, target)]
    near = whole[0] @ whole[1].T
    r_source, r_target = (np.sort(table, 1)[:, -k:].mean(1) for table in (near, near.T))
    return 2 * units(source) @ whole[1].T - r_target, 2 * units(target) @ whole[0].T - r_source


@pytest.mark.parametrize("tile", [4096, 32])
def test_legacy_is_the_published_variant(tile, monkeypatch):
    monkeypatch.setattr(csls, "_TILE", tile)
    for scale, rows, k in ((1.0, 60, 10), (1e25, 40, 1), (1e-25, 21, 3), (1.0, 5, 100), (1.0, 3, 1), (1.0, 2, 1)):
        source, target = vectors(rows, rows, dim=6) * scale, vectors(9, 75, dim=6) * scale
        # Near to their whole matrix's norm, so that r is as large as the products.
        source[0] *= 10
        target[::5] = target[0] + 0.01 * target[::5]
        found = nearest_neighbours(source, target, k=k, legacy=True)
        forward, backward = legacy_scores(source, target, k)
        assert_nearest(found.source_to_target, forward, rounding(6, k, scale=0.5))
        assert_nearest(found.target_to_source, backward, rounding(6, k, scale=0.5))
    assert [side.tolist() for side in nearest_neighbours(torch.zeros(3, 2), torch.zeros(2, 2), legacy=True)] == [
        [0, 0, 0],
        [0, 0],
    ]


def test_options_that_are_left_out():
    source, target = vectors(5, 300, hubs=True), vectors(6, 300, hubs=True)
    given = nearest_neighbours(source, target)
    for options in ({"k": 10, "similarity": "csls", "legacy": False, "device": None}, {"device": "cpu"}):
        assert all(map(torch.equal, nearest_neighbours(source, target, **options), given)), options
    for options in ({"k": 9}, {"k": 11}, {"similarity": "cosine"}, {"similarity": "margin"}, {"legacy": True}):
        assert not all(map(torch.equal, nearest_neighbours(source, target, **options), given)), options


def test_both_sides_go_to_the_device(monkeypatch):
    seen = []
    monkeypatch.setattr(csls, "_legacy", lambda *given: seen.append(given))
    source, target = torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 3, dtype=torch.bfloat16)
    with patch.object(csls, "plain_float32") as precision:
        for device in ("meta", None):
            nearest_neighbours(source, target, k=4, legacy=True, device=device)
    assert [[(side.device.type, side.dtype, len(side)) for side in given[:2]] for given in seen] == [
        [(device, torch.float32, 2), (device, torch.float32, 3)] for device in ("meta", "cpu")
    ]
    assert [given[2] for given in seen] == [4, 4]
    assert [call.args[0].type for call in precision.call_args_list] == ["meta", "cpu"]


def test_other_types_are_scored_in_float32():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        source, target = vectors(18, 60).to(dtype).requires_grad_(), vectors(19, 60).to(dtype)
        kept = source.detach().clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = nearest_neighbours(source, target)
        check(kept.float(), target.float(), found)
        assert torch.equal(source, kept) and source.grad is None and not found.source_to_target.requires_grad


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


def test_given_vectors_become_tensors():
    tensor, array = torch.ones(2, 3, dtype=torch.float16), np.ones((2, 3))
    assert csls.as_tensor(tensor, "x") is tensor
    assert csls.as_tensor(array, "x").dtype == torch.float64
    found = csls.as_tensor([[1, 2.5], (3, 4)], "x")
    assert found.dtype == torch.float32 and found.tolist() == [[1, 2.5], [3, 4]]


def test_unit_rows_are_float32_of_sums_in_float64():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-3e30, 4e30], [3e-30, -4e-30]]).repeat(100, 1)
    unit = torch.tensor([[0.6, 0.8], [0.0, 0.0], [-0.6, 0.8], [0.6, -0.8]]).repeat(100, 1)
    torch.testing.assert_close(csls.unit_rows(x, "x"), unit, rtol=3 * torch.finfo(torch.float32).eps, atol=0)


def test_extended_rows_multiply_to_the_scores():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    left, right = csls._extend(x, 0), csls._extend(x, 1)
    assert left[:2].tolist() == [[1, 2, 1, 0], [3, 4, 1, 0]] and left[2:].tolist() == [[0, 0, 0, -8]] * 14
    assert right[:2].tolist() == [[1, 2, 0, 1], [3, 4, 0, 1]] and right[2:].tolist() == [[0, 0, -8, 0]] * 14
    assert [len(csls._extend(torch.ones(rows, 2), 0)) for rows in (1, 15, 16, 17, 32, 33)] == [16, 16, 16, 32, 32, 48]


@pytest.fixture
def progress(monkeypatch):
    """What tqdm was called with."""
    calls = []
    monkeypatch.setattr(csls, "tqdm", lambda what, **options: calls.append((len(what), options)) or what)
    return calls


def test_tiles_cover_the_product_in_one_buffer(monkeypatch, progress):
    monkeypatch.setattr(csls, "_TILE", 32)
    left, right = torch.arange(80.0).view(40, 2), torch.arange(140.0).view(70, 2)
    product, corners, places = torch.full((40, 70), torch.nan), [], set()
    for rows, columns, tile in csls.tiles(left, right, "name"):
        product[rows, columns] = tile
        corners.append((rows, columns))
        places.add((tile.data_ptr(), tile.untyped_storage().nbytes()))
    wanted = [(slice(i, i + 32), slice(j, j + 32)) for i in (0, 32) for j in (0, 32, 64)]
    assert corners == wanted and torch.equal(product, left @ right.T)
    assert len(places) == 1 and places.pop()[1] == 4 * 32 * 32
    [(_, _, tile)] = csls.tiles(left[:3], right[:5], "name")
    assert tile.untyped_storage().nbytes() == 4 * 3 * 5
    assert [count for count, _ in progress] == [6, 1]


def test_progress_is_shown_by_one_process(monkeypatch, progress):
    for rank in (None, "0", "1", "2"):
        monkeypatch.delenv("RANK", raising=False)
        if rank is not None:
            monkeypatch.setenv("RANK", rank)
        list(csls.tiles(torch.ones(1, 1), torch.ones(1, 1), "name"))
    kept = {"desc": "name", "unit": "tile", "leave": False, "delay": 5}
    assert progress == [(1, {**kept, "disable": quiet}) for quiet in (False, False, True, True)]


def test_progress_names_the_passes(progress):
    x = torch.ones(1, 2)
    for options, names in {
        (): ["CSLS: neighbourhoods", "nearest neighbours"],
        (("similarity", "margin"),): ["CSLS: neighbourhoods", "nearest neighbours"],
        (("similarity", "cosine"),): ["nearest neighbours"],
        (("legacy", True),): ["CSLS: neighbourhoods", "nearest neighbours", "nearest neighbours"],
    }.items():
        progress.clear()
        nearest_neighbours(x, x, **dict(options))
        assert [given["desc"] for _, given in progress] == names, options


def test_blocks_interleave():
    tile = torch.arange(32.0 * 48).view(32, 48).remainder(101)
    for (values, maxima), lines in zip(csls._blocks(tile), (tile, tile.T), strict=True):
        blocks = lines.shape[1] // 16
        assert values.shape == (len(lines), 16, blocks)
        for block in range(blocks):
            assert torch.equal(values[:, :, block], lines[:, block::blocks])
            assert torch.equal(maxima[:, block], lines[:, block::blocks].amax(1))


def test_means_of_nearest_and_of_margins_are_the_formulas(monkeypatch):
    monkeypatch.setattr(csls, "_TILE", 16)
    source, target = vectors(14, 45, hubs=True), vectors(15, 37, hubs=True)
    sides = [csls._extend(csls.unit_rows(side, "side"), n) for n, side in enumerate((source, target))]
    for k in (1, 10, 41):
        wanted = means(source, target, k), means(target, source, k)
        for found, half in ((csls._mean_of_nearest, 1), (csls._margin_means, 2)):
            for one, other in zip(found(*sides, 45, 37, k), wanted, strict=True):
                assert one.dtype == torch.float32
                np.testing.assert_allclose(one.numpy(), other / half, rtol=0, atol=rounding(12, k, scale=1))


def test_equal_rows_are_found(monkeypatch):
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -0.0], [0.0, 1.0], [0.5, 0.5]])
    assert csls.first_equal(x).tolist() == [0, 1, 0, 1, 4]
    many = torch.arange(700.0).remainder(300)[:, None].repeat(1, 3)
    assert csls.first_equal(many).tolist() == [n % 300 for n in range(700)]
    assert csls.first_equal(torch.ones(4500, 1)).tolist() == [0] * 4500, "compared in more than one part"
    # As if different rows shared a hash: only rows that equal the first one of it are merged.
    monkeypatch.setattr(torch, "randint", lambda *given, **options: torch.zeros(2, dtype=torch.int64))
    assert csls.first_equal(torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])).tolist() == [0, 1, 0, 3]


def test_ties_between_equal_vectors_are_not_left_to_rounding(monkeypatch):
    source, target = vectors(26, 6), vectors(27, 5)
    source[4] = source[1]
    target[3] = target[0]
    # As if rounding had favoured the later copy, and had answered equal queries (sources 1 and 4) unequally.
    rounded = csls.Neighbours(torch.tensor([3, 3, 2, 1, 2, 4]), torch.tensor([4, 4, 2, 1, 0]))
    monkeypatch.setattr(csls, "_best", lambda *_: rounded)
    for options in ({}, {"legacy": True}):
        found = nearest_neighbours(source, target, **options)
        assert [side.tolist() for side in found] == [[0, 0, 2, 1, 0, 4], [1, 1, 2, 1, 0]], options


@pytest.mark.gpu
def test_gpu_equals_cpu():
    source, target = vectors(24, 3000, dim=64, hubs=True), vectors(25, 5000, dim=64, hubs=True)
    found = nearest_neighbours(source, target, device="cuda")
    wanted = nearest_neighbours(source, target)
    agree = [(a.cpu() == b).double().mean().item() for a, b in zip(found, wanted)]
    assert min(agree) > 0.999, "only near-ties may differ"
