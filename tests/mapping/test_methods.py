"""The methods that learn maps: closed forms, VecMap and RCSLS."""

import logging
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.linalg import lstsq, orthogonal_procrustes
from support.maps import conditioned, normal
from support.numeric import assert_rounding, tolerance

from hf_xalign.mapping.procrustes import least_squares, procrustes
from hf_xalign.mapping.rcsls import _loss_and_gradient, rcsls
from hf_xalign.mapping.vecmap import DEFAULT_STEPS, NORMALIZATIONS, vecmap
from hf_xalign.modeling.maps import unit
from hf_xalign.search.neighborhoods import Neighbourhoods

# Matrices have at most COUNT rows and SIZE columns. A product takes 2 COUNT operations on its longest path; a
# decomposition by reflections is backward stable with a small multiple of COUNT + SIZE^2.
COUNT, SIZE = 60, 12
OPERATIONS = 4 * (COUNT + SIZE**2)


def pairs(count=60, size=6, out=6, layers=2):
    """Noisy partners, so that no map takes one to the other exactly, away from the origin."""
    source = 4 * conditioned(layers, count, size, seed=1).transpose(0, 1) + 0.5
    target = torch.einsum("nli,oi->nlo", source, conditioned(out, size, seed=2)) + normal(count, layers, out, seed=3)
    return source, target - 1


def related(count, size):
    return [side[:, 0] for side in pairs(count, size, size, layers=1)]


def close(one, other, condition=1.0, **about):
    other = torch.as_tensor(other)
    scale = max(1.0, other.abs().max().item()) * float(condition)
    assert_rounding(one, other, **{"operations": OPERATIONS, "scale": scale, **about})


def of_cross(x, z):
    """The condition number of the rotation nearest to Z^T X."""
    values = torch.linalg.svdvals(z.T @ x)
    return values[0] / values[-1]


def of_regression(x, z):
    """The condition number of least squares: kappa + kappa^2 for the part of z that no map explains."""
    kappa = torch.linalg.cond(x)
    return (kappa + kappa**2) * z.norm() / torch.linalg.svdvals(x)[-1]


def test_is_the_nearest_rotation():
    """The nearest rotation has the largest gain, the inner product of Z and X W^T; so has a rectangle of rotations."""
    for size, out, center in ((6, 6, True), (6, 4, False), (4, 6, False)):
        source, target = pairs(size=size, out=out)
        one = procrustes(source, target, center=center, layers=(-2, -1))
        for layer in range(2):
            x, z, weight = source[:, layer], target[:, layer], one.source.weight[layer]
            if center:
                close(one.source.means[0][layer], x.mean(0))
                close(one.source.offset[layer], z.mean(0))
                x, z = x - x.mean(0), z - z.mean(0)
            small = weight @ weight.T if out < size else weight.T @ weight
            close(small, torch.eye(min(size, out), dtype=torch.float64))
            others = [conditioned(out, size, seed=seed, condition=1) for seed in range(100)]
            if size == out:
                expected = torch.from_numpy(orthogonal_procrustes(x.numpy(), z.numpy())[0])
                close(weight.T, expected, of_cross(x, z))
                skew = [normal(6, 6, seed=seed) for seed in range(50)]
                others += [torch.linalg.matrix_exp(1e-3 * (each - each.T)) @ weight for each in skew]
            best = (x @ weight.T * z).sum()
            assert all((x @ other.T * z).sum() < best for other in others)


@pytest.mark.parametrize("solve", [procrustes, least_squares])
@pytest.mark.parametrize("center", [False, True])
def test_solved_in_float64(solve, center):
    source, target = (side.float() for side in pairs(layers=1))
    narrow, wide = solve(source, target, center=center), solve(source.double(), target.double(), center=center)
    assert narrow.source.weight.dtype is torch.float32 and wide.source.weight.dtype is torch.float64
    assert torch.equal(narrow.source.weight, wide.source.weight.float())
    if center:
        assert torch.equal(narrow.source.means[0], wide.source.means[0].float())
        assert torch.equal(narrow.source.offset, wide.source.offset.float())


def test_least_squares():
    for size, out in ((6, 6), (6, 4)):
        source, target = pairs(size=size, out=out)
        plain = least_squares(source, target, layers=(0, 1))
        centered = least_squares(source, target, center=True, layers=(0, 1))
        for layer in range(2):
            x, z = source[:, layer], target[:, layer]
            close(plain.source.weight[layer], torch.from_numpy(lstsq(x, z)[0].T.copy()), of_regression(x, z))
            # Centered, it is the regression with a constant term.
            with_one = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
            solved = torch.from_numpy(np.linalg.lstsq(with_one.numpy(), z.numpy(), rcond=None)[0])
            weight, offset = centered.affine()
            close(weight[layer], solved[:-1].T, of_regression(with_one, z))
            close(offset[layer], solved[-1], of_regression(with_one, z))


def out_of_layer_norm(sides, bias=0.0):
    """The vectors after a layer norm, and a basis of the hyperplane that they lie in."""
    size = sides[0].shape[-1]
    gain = torch.linspace(0.5, 2, size)
    with torch.no_grad():
        shift = bias * torch.linspace(-0.5, 0.5, size)
        exact = [torch.nn.functional.layer_norm(x, (size,), gain.to(x), shift.to(x)) for x in sides]
    return exact, torch.linalg.svd(1 / gain.double()[:, None]).U[:, 1:]


@pytest.mark.parametrize("center", [False, True])
def test_least_squares_of_vectors_out_of_a_layer_norm(center):
    """They lie in a hyperplane: a map of what rounding leaves across it would be huge, and follow noise."""
    (exact,), inside = out_of_layer_norm([normal(400, 12, seed=1).float()], 2.0 * center)  # else no plane through 0
    for dtype in (torch.float32, torch.float64):
        source = exact.to(dtype)
        target = (source.double() @ normal(12, 12, seed=2) + normal(400, 12, seed=3)).to(dtype)
        found = least_squares(source[:300], target[:300], center=center)
        # The same in the eleven coordinates of the hyperplane.
        x, z = source[:300].double() @ inside, target[:300].double()
        wanted = least_squares(x, z, center=center)
        weight, unseen = found.source.weight[0], source[300:]
        # A layer norm on 12 numbers in float32, the mean and the variance among its operations, moves X by that much
        # relative to its own size; W follows by the condition number of X.
        about = {"operations": 3 * 12, "dtype": torch.float32}
        condition = torch.linalg.cond(x - x.mean(0) if center else x)
        close(weight, wanted.source.weight[0] @ inside.T, condition, **about)
        close(found.project(unseen), wanted.project(unseen.double() @ inside), condition, **about)


def condition(x, z):
    """How much whitening by X^T X, whose condition is the square of that of X, and a polar factor magnify rounding."""
    x, z = torch.as_tensor(x), torch.as_tensor(z)
    correlations = torch.linalg.svdvals(torch.linalg.qr(x).Q.T @ torch.linalg.qr(z).Q)
    return torch.linalg.cond(x) ** 2 + torch.linalg.cond(z) ** 2 + 1 / correlations[-1]


def loop_normalize(words, others, steps):
    """Each step word by word; `others` are the words whose mean is taken off, and go through the same steps."""
    words, others = [list(map(float, w)) for w in words], [list(map(float, w)) for w in others]
    for step in steps:
        if step == "unit":
            words, others = ([[v / sum(u * u for u in w) ** 0.5 for v in w] for w in side] for side in (words, others))
        else:
            mean = [sum(column) / len(others) for column in zip(*others)]
            words, others = ([[v - m for v, m in zip(w, mean)] for w in side] for side in (words, others))
    return np.array(words)


def gram(x):
    return sum(np.outer(row, row) for row in x)


def power(matrix, exponent):
    """A symmetric matrix to a power, by its eigenvalues."""
    values, basis = np.linalg.eigh(matrix)
    return sum(value**exponent * np.outer(v, v) for value, v in zip(values, basis.T))


def transcription(x, z):
    """The AAAI 2018 steps S1 to S4 on normalized rows, one matrix after another: X W_x and Z W_z."""
    white_x, white_z = power(gram(x), -0.5), power(gram(z), -0.5)
    u, s, vh = np.linalg.svd((x @ white_x).T @ (z @ white_z), full_matrices=False)
    mapped_x, mapped_z = x @ white_x @ u, z @ white_z @ vh.T
    mapped_x, mapped_z = mapped_x * s**0.5, mapped_z * s**0.5
    return mapped_x @ u.T @ np.linalg.inv(white_x) @ u, mapped_z @ vh @ np.linalg.inv(white_z) @ vh.T


@pytest.mark.parametrize(("whiten", "name"), [(True, "unit_center_unit"), *((False, name) for name in NORMALIZATIONS)])
def test_every_step_is_the_papers_with_the_means_of_vocabularies(whiten, name):
    all_source, all_target = related(100, 6)
    source, target = all_source[:40], all_target[:40]
    steps = NORMALIZATIONS[name]
    options = {"whiten": whiten, "steps": steps}
    found = vecmap(source, target, **options, source_candidates=all_source, target_candidates=all_target)
    x, z = loop_normalize(source, all_source, steps), loop_normalize(target, all_target, steps)
    for side, vecs, wanted in ((found.source, source, x), (found.target, target, z)):
        close(side.normalize(vecs.unsqueeze(1))[:, 0], wanted)
    if whiten:
        # A singular vector's sign is free, so both sides are compared where signs cancel.
        ours = torch.cat([found.project(source), found.project(target, "target")])
        theirs = np.concatenate(transcription(x, z))
        close(ours @ ours.T, theirs @ theirs.T, condition(x, z))
    else:
        x, z = torch.from_numpy(x), torch.from_numpy(z)
        close(found.source.weight, procrustes(x, z).source.weight, of_cross(x, z))
        close(found.project(target, "target"), z)
    own = vecmap(source, target, **options)
    assert (found.source.means[0] - own.source.means[0]).abs().max() > 1e-3


def test_layer_norm_takes_a_dimension(caplog):
    """Vectors out of a layer norm lie in a hyperplane: they map as their seven coordinates in it do."""
    exact, basis = out_of_layer_norm(related(80, 8))
    for dtype in (torch.float32, torch.float64):
        source, target = (side.to(dtype) for side in exact)
        caplog.clear()
        with caplog.at_level("INFO"):
            found = vecmap(source, target)
        assert "the source vectors span 7 of 8 dimensions" in caplog.text
        inside = [side @ basis.to(dtype) for side in (source, target)]
        wanted = vecmap(*inside)
        ours = found.project(source) @ found.project(target, "target").T
        theirs = wanted.project(inside[0]) @ wanted.project(inside[1], "target").T
        # Directions of noise weigh up to 8 float32 eps as much as the others, whatever the type of the vectors is.
        magnified = condition(*(loop_normalize(side.double(), side.double(), DEFAULT_STEPS) for side in inside))
        assert magnified < 200
        close(ours, theirs, magnified, operations=8 + 2 * 8, dtype=torch.float32)
        assert ours.isfinite().all()


# ---- RCSLS and its neighbourhoods ----


def translations(count, dim=8, out=None, *, noise=0.3, mean=1.0, decay=0.0, dtype=torch.float64, seed=0):
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


def test_loss_is_the_formula_and_the_gradient_its_slope():
    for out in (6, 8, 11):
        x_pool, y_pool = translations(30, 8, out)
        weight, given = normal(out, 8, seed=1), (x_pool[:12], y_pool[:12], x_pool, y_pool, 4)
        same_loss(value(weight, *given), loop_loss(weight, *given), weight, 12, 4)
    x_pool, y_pool = translations(25, 5)
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
    assert_rounding(found, scores.topk(min(k, len(candidates))).values, 32 + 4 * queries.shape[1], size, queries.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbourhoods_are_exact(dtype, monkeypatch):
    for count in (1, 3, 5, 16, 79, 1003):  # of fewer candidates than neighbours, all are the neighbours
        candidates, queries = translations(count, 24, noise=0.5, dtype=dtype)
        assert_nearest(search(candidates, 5, 7000), queries, candidates)
    candidates, first = translations(2000, 24, noise=0.5, dtype=dtype)
    # How far queries move, and how many of 5 x 60 are searched for again.
    for move, (least, most) in {0.0: (0, 0), 0.015: (1, 150), 0.03: (151, 299), 1.0: (300, 300)}.items():
        queries, near, searched = first[:60], search(candidates, 5), []
        near(queries)

        def count(part, buffer, coarse, whole=near._search, searched=searched):
            searched.append(len(part) * (coarse or dtype == torch.float64))
            return whole(part, buffer, coarse)

        monkeypatch.setattr(near, "_search", count)
        for turn in range(5):
            size = queries.norm(dim=1, keepdim=True)
            queries = 2 * (queries + move * size * normal(60, 24, seed=10 + turn, dtype=dtype))
            assert_nearest(near, queries, candidates)
        assert least <= sum(searched) <= most, move


def test_scores_closer_than_a_coarse_product_tells_apart():
    candidates, queries = translations(2000, 24, noise=0.5, dtype=torch.float32)
    close = unit(candidates[:1] + 1e-3 * candidates)
    near = search(close, 5)
    for turn in range(3):
        assert_nearest(near, queries[:60] + 0.01 * turn * queries[60:120], close)


def test_neighbourhoods_of_turned_repeated_and_scaled_queries():
    candidates, queries = translations(30)
    near = search(candidates)
    near(queries)
    for turned in (queries, -queries, queries.flip(1)):
        expected = (turned @ candidates.T).topk(3).indices.sort(1).values
        assert torch.equal(near(turned).sort(1).values, expected)
    queries, candidates = translations(40, 8, dtype=torch.float32)
    for factor in (0.0, 1e-30, 1e30):
        found = search(candidates)(queries * factor)
        assert all(len(set(row)) == 3 for row in found.tolist())
        if factor:
            assert torch.equal(found.sort(1).values, search(candidates)(queries).sort(1).values)
    equal = translations(1)[0].expand(20, 8).contiguous()
    assert all(len(set(row)) == 3 for row in search(equal)(equal[:2]).tolist())


def test_a_candidate_that_was_on_no_list_is_found():
    """The neighbours of (1, 0), all but one, fall behind vectors that were far off when the query turns up."""
    rows = [[1.0, 1.0], *[[1.0, -1.0]] * 4, *[[0.2, 0.0]] * 59, *[[0.19, 1.0]] * 10]
    candidates = torch.tensor([*rows, *([-a, -b] for a, b in rows)], dtype=torch.float64)
    near = search(candidates, 5)
    assert sorted(near(torch.tensor([[1.0, 0.0]], dtype=torch.float64))[0].tolist()) == [0, 1, 2, 3, 4]
    found = near(torch.tensor([[1.0, 0.45]], dtype=torch.float64))[0]
    assert found.min() == 0 and (found >= 64).sum() == 4 and found.max() < 74


def test_steps_go_down_the_gradient_and_a_rise_is_taken_back(caplog):
    x, y = translations(40, noise=1.0)
    given, options, taken_back = (x, y, x, y, 3), {"k": 3, "learning_rate": 50.0}, []
    weights = [rcsls(x, y, epochs=epoch, **options).source.weight[0] for epoch in range(5)]
    history = recorded(caplog, x, y, epochs=4, **options)
    for (before, after), ((loss, rate), (later, next_rate)) in zip(pairwise(weights), pairwise(history), strict=True):
        same_loss(loss, loop_loss(before, *given), before, 40, 3)
        moved = before - rate * _loss_and_gradient(before, x, y, search(x), search(y))[1]
        kept = loop_loss(moved, *given) <= loss
        taken_back.append(not kept)
        # A step is a sum of n rows and of k neighbours, times the rate.
        assert_rounding(after, moved if kept else before, operations=2 * (40 + 3), scale=8 * rate)
        assert next_rate == (rate if kept else rate / 2) and (later < loss) == kept
    assert any(taken_back) and not all(taken_back)
    # It ends when the rate is low.
    history = recorded(caplog, x, y, k=3, epochs=1000, learning_rate=1e3, spectral=True)
    assert history[-1][1] < 1e-4 <= history[-2][1] and len(history) < 1000


def test_what_is_learnt():
    x, y = translations(60, noise=0.8)
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


def test_lengths_and_steps_change_nothing():
    x, y = translations(60)
    assert max(torch.linalg.cond(y[:n].T @ x[:n]) for n in (30, 60)) < CONDITION
    wanted = rcsls(x, y, k=3, epochs=4).source.weight
    lengths = torch.linspace(0.5, 3, 60).double()[:, None]
    scaled = rcsls(lengths * x, y / lengths, k=3, epochs=4)
    assert scaled.source.steps == () and scaled.target is None
    assert torch.equal(scaled.affine()[0], scaled.source.weight)
    assert_rounding(scaled.source.weight, wanted, **LEARNT)

    # `center` takes off the means of the candidates.
    options = {"k": 3, "epochs": 4, "steps": ("unit", "center", "unit")}
    found = rcsls(x[:30], 2 * y[:30], source_candidates=x, target_candidates=y, **options)
    assert_rounding(found.source.means[0][0], x.mean(0), operations=2 * 60)
    assert_rounding(found.target.means[0][0], y.mean(0), operations=2 * 60)
    one, other = unit(x - x.mean(0)), unit(y - y.mean(0))
    plain = rcsls(one[:30], other[:30], source_candidates=one, target_candidates=other, k=3, epochs=4)
    assert_rounding(found.project(x), plain.project(one), **LEARNT)
    assert_rounding(found.project(y, "target"), other, operations=2 * 60 + 4 * 8, scale=4)


def test_same_bits_twice_and_under_autocast_in_the_type_given():
    x, y = (side.requires_grad_() for side in translations(200, 40, decay=1.0, dtype=torch.float32))
    first, second = (rcsls(x[:80], y[:80], source_candidates=x, target_candidates=y) for _ in range(2))
    assert torch.equal(first.source.weight, second.source.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = rcsls(x[:80], y[:80], source_candidates=x, target_candidates=y).source.weight
    assert torch.equal(found, first.source.weight) and not found.requires_grad
    for dtype in (torch.bfloat16, torch.float64):
        x, y = translations(30, dtype=dtype)
        found = rcsls(x, y, k=3, epochs=2, steps=("unit", "center", "unit")).source
        assert {found.weight.dtype, *(mean.dtype for mean in found.means)} == {dtype}


@pytest.mark.gpu
def test_gpu_equals_cpu():
    x, y = translations(600, 40, noise=0.6, dtype=torch.float32)
    options = {"steps": ("unit", "center", "unit"), "epochs": 4}
    wanted = rcsls(x[:200], y[:200], source_candidates=x, target_candidates=y, **options)
    found = rcsls(x[:200].cuda(), y[:200], source_candidates=x, target_candidates=y.cuda(), **options)
    assert found.source.weight.is_cuda
    # The start is solved in float64 on both; four gradients of 2 (n + k) + dim operations follow in float32.
    bound = 4 * (2 * (200 + 10) + 40)
    assert_rounding(found.source.weight.cpu(), wanted.source.weight, operations=bound, scale=2.0)
