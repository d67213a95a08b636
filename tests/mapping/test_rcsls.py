"""RCSLS: loss and gradient against loops, a true rollback, the spectral ball, exact neighbourhoods in any chunk."""

import logging
from itertools import pairwise

import pytest
import torch
from support.maps import conditioned, normal
from support.numeric import assert_rounding, tolerance

from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.rcsls import _loss_and_gradient, rcsls
from hf_xalign.modeling.maps import unit
from hf_xalign.search.neighbourhoods import Neighbourhoods


def languages(count, dim=8, out=None, *, noise=0.3, mean=1.0, decay=0.0, dtype=torch.float64, seed=0):
    """Unit vectors of `count` words and of their translations: a rotation, noise, a shared mean, main directions."""
    out = out or dim
    words = normal(count, dim, seed=seed) * torch.arange(1, dim + 1).double() ** -decay + mean * normal(dim, seed=1)
    target = words @ conditioned(out, dim, seed=2, condition=1).T + noise * words.std() * normal(count, out, seed=3)
    return unit(words).to(dtype), unit(target).to(dtype)


def search(candidates, k=3, chunk=2**20):
    return Neighbourhoods(candidates, k, chunk)


def value(weight, x, y, x_pool, y_pool, k):
    """The loss at one W, with neighbourhoods of its own."""
    return _loss_and_gradient(weight, x, y, search(x_pool, k), search(y_pool, k))[0]


def loop_loss(weight, x, y, x_pool, y_pool, k):
    total = 0.0
    for i in range(len(x)):
        mapped = weight @ x[i]
        total -= 2 * float(mapped @ y[i])
        total += sum(sorted((float(mapped @ other) for other in y_pool), reverse=True)[:k]) / k
        total += sum(sorted((float((weight @ other) @ y[i]) for other in x_pool), reverse=True)[:k]) / k
    return total / len(x)


def recorded(caplog, x, y, **options):
    """The (loss, rate) of the start and of each epoch."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "hf_xalign.mapping.rcsls"):
        rcsls(x, y, **options)
    return [record.args[2:] for record in caplog.records]


def same_loss(found, expected, weight, n, k):
    """A loss is four inner products u.W v of unit vectors; its longest path means k neighbours and n pairs."""
    size = float(torch.linalg.matrix_norm(weight.double()))
    assert_rounding(found, expected, operations=2 * (n + k + weight.numel()), scale=4 * size)


@pytest.mark.numeric
def test_loss_is_the_formula_and_the_gradient_its_slope():
    for out in (6, 8, 11):
        x_pool, y_pool = languages(30, 8, out)
        weight, given = normal(out, 8, seed=1), (x_pool[:12], y_pool[:12], x_pool, y_pool, 4)
        same_loss(value(weight, *given), loop_loss(weight, *given), weight, 12, 4)
    x_pool, y_pool = languages(25, 5)
    given = x_pool[:9], y_pool[:9], x_pool, y_pool, 3
    weight = procrustes(*given[:2]).source.weight[0]
    _, gradient = _loss_and_gradient(weight, *given[:2], search(x_pool), search(y_pool))
    # The loss is linear while the neighbourhoods stay: differences of 2^-10 leave rounding alone.
    step, numbers = 2.0**-10, torch.zeros_like(weight)
    for k in range(weight.numel()):
        delta = torch.zeros_like(weight)
        delta.view(-1)[k] = step
        high, low = (value(weight + sign * delta, *given) for sign in (1, -1))
        numbers.view(-1)[k] = (high - low) / (2 * step)
    assert_rounding(numbers, gradient, operations=2 * (9 + 3 + 25), scale=4 * 5**0.5 / step)


def assert_nearest(near, queries, candidates, k=5):
    """The scores of the neighbours found are the k largest; the search allows 32 eps, each product 2 dim."""
    scores = queries.double() @ candidates.double().T
    found = scores.gather(1, near(queries)).sort(1, descending=True).values
    size = float(queries.norm(dim=1).max())
    assert_rounding(found, scores.topk(k).values, 32 + 4 * queries.shape[1], size, queries.dtype)


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbourhoods_are_exact(dtype, monkeypatch):
    for count in (5, 16, 79, 1003):
        candidates, queries = languages(count, 24, noise=0.5, dtype=dtype)
        assert_nearest(search(candidates, 5, 7000), queries, candidates)
    candidates, first = languages(2000, 24, noise=0.5, dtype=dtype)
    # How far queries move, and how many of 5 x 60 are searched for again.
    for move, (least, most) in {0.0: (0, 0), 0.015: (1, 150), 0.03: (151, 299), 1.0: (300, 300)}.items():
        queries, near, searched = first[:60], search(candidates, 5), []
        near(queries)

        def count(part, buffer, whole=near._search, searched=searched):
            searched.append(len(part))
            return whole(part, buffer)

        monkeypatch.setattr(near, "_search", count)
        for turn in range(5):
            size = queries.norm(dim=1, keepdim=True)
            queries = 2 * (queries + move * size * normal(60, 24, seed=10 + turn, dtype=dtype))
            assert_nearest(near, queries, candidates)
        assert least <= sum(searched) <= most, move


def test_neighbourhoods_of_turned_repeated_and_scaled_queries():
    candidates, queries = languages(30)
    near = search(candidates)
    near(queries)
    for turned in (queries, -queries, queries.flip(1)):
        expected = (turned @ candidates.T).topk(3).indices.sort(1).values
        assert torch.equal(near(turned).sort(1).values, expected)
    queries, candidates = languages(40, 8, dtype=torch.float32)
    for factor in (0.0, 1e-30, 1e30):
        found = search(candidates)(queries * factor)
        assert all(len(set(row)) == 3 for row in found.tolist())
        if factor:
            assert torch.equal(found.sort(1).values, search(candidates)(queries).sort(1).values)
    equal = languages(1)[0].expand(20, 8).contiguous()
    assert all(len(set(row)) == 3 for row in search(equal)(equal[:2]).tolist())


def test_a_candidate_that_was_on_no_list_is_found():
    """The neighbours of (1, 0), all but one, fall behind vectors that were far off when the query turns up."""
    rows = [[1.0, 1.0], *[[1.0, -1.0]] * 4, *[[0.2, 0.0]] * 59, *[[0.19, 1.0]] * 10]
    candidates = torch.tensor([*rows, *([-a, -b] for a, b in rows)], dtype=torch.float64)
    near = search(candidates, 5)
    assert sorted(near(torch.tensor([[1.0, 0.0]], dtype=torch.float64))[0].tolist()) == [0, 1, 2, 3, 4]
    found = near(torch.tensor([[1.0, 0.45]], dtype=torch.float64))[0]
    assert found.min() == 0 and (found >= 64).sum() == 4 and found.max() < 74


@pytest.mark.numeric
def test_steps_go_down_the_gradient_and_a_rise_is_taken_back(caplog):
    x, y = languages(40, noise=1.0)
    given, options, taken_back = (x, y, x, y, 3), {"k": 3, "learning_rate": 50.0}, []
    weights = [rcsls(x, y, epochs=epoch, **options).source.weight[0] for epoch in range(5)]
    history = recorded(caplog, x, y, epochs=4, **options)
    for (before, after), ((loss, rate), (following, next_rate)) in zip(
        pairwise(weights), pairwise(history), strict=True
    ):
        same_loss(loss, loop_loss(before, *given), before, 40, 3)
        moved = before - rate * _loss_and_gradient(before, x, y, search(x), search(y))[1]
        kept = loop_loss(moved, *given) <= loss
        taken_back.append(not kept)
        # A step is a sum of n rows and of k neighbours, times the rate.
        assert_rounding(after, moved if kept else before, operations=2 * (40 + 3), scale=8 * rate)
        assert next_rate == (rate if kept else rate / 2) and (following < loss) == kept
    assert any(taken_back) and not all(taken_back)
    # It ends when the rate is low.
    history = recorded(caplog, x, y, k=3, epochs=1000, learning_rate=1e3, spectral=True)
    assert history[-1][1] < 1e-4 <= history[-2][1] and len(history) < 1000


@pytest.mark.numeric
def test_what_is_learnt():
    x, y = languages(60, noise=0.8)
    start = rcsls(x, y, epochs=0).source.weight
    condition = torch.linalg.cond(y.T @ x).item()
    # The vectors are divided by lengths that are 1 up to rounding.
    assert_rounding(start, procrustes(x, y).source.weight, operations=60 + 8**2, scale=condition)
    clipped = torch.linalg.svdvals(rcsls(x, y, k=3, learning_rate=5, spectral=True).source.weight)
    assert clipped.max() <= 1 + tolerance(4 * 8**2)
    # More candidates change the map.
    alone = rcsls(x[:20], y[:20], k=3).source.weight
    for name, pool in (("source_candidates", x), ("target_candidates", y)):
        assert (rcsls(x[:20], y[:20], k=3, **{name: pool}).source.weight - alone).abs().max() > 1e-3


# Maps learnt in two ways: each of four epochs is a gradient of 2 (n + k) + dim operations at a rate of 1. The start is
# a decomposition of an 8 x 8 product of 60 pairs with this condition number at most.
CONDITION = 100
LEARNT = {"operations": 4 * (2 * (60 + 10) + 40) + CONDITION * (60 + 8**2), "scale": 2.0}


@pytest.mark.numeric
def test_lengths_and_steps_change_nothing():
    x, y = languages(60)
    assert max(torch.linalg.cond(y[:n].T @ x[:n]) for n in (30, 60)) < CONDITION
    wanted = rcsls(x, y, k=3, epochs=4).source.weight
    lengths = torch.linspace(0.5, 3, 60).double()[:, None]
    scaled = rcsls(lengths * x, y / lengths, k=3, epochs=4)
    assert scaled.source.steps == () and scaled.target is None
    assert torch.equal(scaled.affine()[0], scaled.source.weight)
    assert_rounding(scaled.source.weight, wanted, **LEARNT)

    # `centre` takes off the means of the candidates.
    options = {"k": 3, "epochs": 4, "steps": ("unit", "centre", "unit")}
    found = rcsls(x[:30], 2 * y[:30], source_candidates=x, target_candidates=y, **options)
    assert_rounding(found.source.means[0][0], x.mean(0), operations=2 * 60)
    assert_rounding(found.target.means[0][0], y.mean(0), operations=2 * 60)
    centred_x, centred_y = unit(x - x.mean(0)), unit(y - y.mean(0))
    plain = rcsls(
        centred_x[:30], centred_y[:30], source_candidates=centred_x, target_candidates=centred_y, k=3, epochs=4
    )
    assert_rounding(found.project(x), plain.project(centred_x), **LEARNT)
    assert_rounding(found.project(y, "target"), centred_y, operations=2 * 60 + 4 * 8, scale=4)


def test_same_bits_twice_and_under_autocast_in_the_type_given():
    x, y = (side.requires_grad_() for side in languages(200, 40, decay=1.0, dtype=torch.float32))
    first, second = (rcsls(x[:80], y[:80], source_candidates=x, target_candidates=y) for _ in range(2))
    assert torch.equal(first.source.weight, second.source.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = rcsls(x[:80], y[:80], source_candidates=x, target_candidates=y).source.weight
    assert torch.equal(found, first.source.weight) and not found.requires_grad
    for dtype in (torch.bfloat16, torch.float64):
        x, y = languages(30, dtype=dtype)
        found = rcsls(x, y, k=3, epochs=2, steps=("unit", "centre", "unit")).source
        assert {found.weight.dtype, *(mean.dtype for mean in found.means)} == {dtype}


@pytest.mark.gpu
def test_gpu_equals_cpu():
    x, y = languages(600, 40, noise=0.6, dtype=torch.float32)
    options = {"steps": ("unit", "centre", "unit"), "epochs": 4}
    wanted = rcsls(x[:200], y[:200], source_candidates=x, target_candidates=y, **options)
    found = rcsls(x[:200].cuda(), y[:200], source_candidates=x, target_candidates=y.cuda(), **options)
    assert found.source.weight.is_cuda
    # The start is solved in float64 on both; four gradients of 2 (n + k) + dim operations follow in float32.
    bound = 4 * (2 * (200 + 10) + 40)
    assert_rounding(found.source.weight.cpu(), wanted.source.weight, operations=bound, scale=2.0)
