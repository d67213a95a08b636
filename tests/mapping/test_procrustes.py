"""Maps with a closed form: what they recover, and that nothing is nearer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import lstsq, orthogonal_procrustes

from hf_xalign.errors import InputError
from hf_xalign.mapping.procrustes import least_squares, procrustes

solvers = pytest.mark.parametrize("solve", [procrustes, least_squares])


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(size, seed=0):
    return torch.linalg.qr(random(size, size, seed=seed)).Q


def pairs(count=60, size=6, out=6, layers=2):
    """Noisy partners, so that no map takes one to the other exactly, away from the origin."""
    source = random(count, layers, size, seed=1) + 2
    target = torch.einsum("nli,oi->nlo", source, random(out, size, seed=2)) + random(count, layers, out, seed=3) - 1
    return source, target


def error(weight, source, target):
    return (source @ weight.T - target).square().sum()


def close(one, other, tolerance=1e-10):
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("count", [40, 8, 5])
def test_recovers_a_rotation(count):
    planted, source = rotation(8), random(count, 8, seed=1)
    one = procrustes(source, source @ planted.T)
    close(one.apply(source), source @ planted.T)
    weight = one.source.weight[0]
    close(weight @ weight.T, torch.eye(8, dtype=torch.float64))
    if count >= 8:  # fewer pairs than dimensions leave the rest of the rotation open
        close(weight, planted)
    assert one.target is None and one.source.offset is None and one.layers == (-1,)


@solvers
def test_centred_recovers_an_offset_too(solve):
    planted, source, offset = rotation(8), random(40, 8, seed=1) + 3, random(8, seed=2)
    target = source @ planted.T + offset
    one = solve(source, target, centre=True)
    close(one.source.weight[0], planted)
    # In one affine map the offset is back: W (e - m_s) + m_t = W e + offset.
    close(one.affine()[1][0], offset)
    unseen = random(10, 8, seed=4)
    close(one.apply(unseen), unseen @ planted.T + offset)
    close(one.inverse().apply(target), source)
    assert error(solve(source, target).source.weight[0], source, target) > 1


@pytest.mark.parametrize("centre", [False, True])
def test_is_the_nearest_rotation(centre):
    source, target = pairs()
    one = procrustes(source, target, centre=centre, layers=(-2, -1))
    for layer in range(2):
        x, z = source[:, layer], target[:, layer]
        if centre:
            x, z = x - x.mean(0), z - z.mean(0)
            close(one.source.means[0][layer], source[:, layer].mean(0))
            close(one.source.offset[layer], target[:, layer].mean(0))
        weight = one.source.weight[layer]
        close(weight.T, torch.from_numpy(orthogonal_procrustes(x.numpy(), z.numpy())[0]))
        best = error(weight, x, z)
        assert all(error(rotation(6, seed), x, z) > best for seed in range(200))
        # and near it
        for seed in range(50):
            skew = random(6, 6, seed=seed)
            near = torch.linalg.matrix_exp(1e-3 * (skew - skew.T)) @ weight
            assert error(near, x, z) > best


@pytest.mark.parametrize("size, out", [(6, 4), (4, 6)])
def test_another_number_of_dimensions(size, out):
    source, target = pairs(size=size, out=out)
    weight = procrustes(source, target, layers=(0, 1)).source.weight[0]
    assert weight.shape == (out, size)
    small = weight @ weight.T if out < size else weight.T @ weight
    close(small, torch.eye(4, dtype=torch.float64))
    gain = (source[:, 0] @ weight.T * target[:, 0]).sum()
    for seed in range(200):
        other = torch.linalg.qr(random(max(size, out), 4, seed=seed)).Q
        other = other.T if out < size else other
        assert (source[:, 0] @ other.T * target[:, 0]).sum() < gain


@solvers
@pytest.mark.parametrize("centre", [False, True])
def test_each_layer_is_solved_alone(solve, centre):
    source, target = pairs(layers=3)
    together = solve(source, target, centre=centre, layers=(-3, -2, -1))
    for k, layer in enumerate((-3, -2, -1)):
        alone = solve(source[:, k], target[:, k], centre=centre, layers=(layer,))
        close(together.of([layer]).apply(source[:, k]), alone.apply(source[:, k]), 1e-12)
    with pytest.raises(InputError, match=r"layers=\(-1,\): the vectors are of 3 layers"):
        solve(source, target)


@solvers
@pytest.mark.parametrize("centre", [False, True])
def test_float32_is_solved_in_float64(solve, centre):
    source, target = pairs(layers=1)
    one = solve(source.float(), target.float(), centre=centre)
    wide = solve(source.float().double(), target.float().double(), centre=centre)
    assert one.source.weight.dtype is torch.float32 and wide.source.weight.dtype is torch.float64
    assert torch.equal(one.source.weight, wide.source.weight.float())
    if centre:
        assert torch.equal(one.source.means[0], wide.source.means[0].float())
        assert torch.equal(one.source.offset, wide.source.offset.float())


@solvers
def test_the_order_of_pairs_and_repeated_runs_change_nothing(solve):
    source, target = pairs()
    one, *again = (solve(source, target, layers=(0, 1)).source.weight for _ in range(20))
    assert all(torch.equal(one, other) for other in again)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    close(solve(source[order], target[order], layers=(0, 1)).source.weight, one)


@pytest.mark.parametrize("size, out", [(6, 6), (6, 4)])
def test_least_squares(size, out):
    source, target = pairs(size=size, out=out)
    plain = least_squares(source, target, layers=(0, 1))
    centred = least_squares(source, target, centre=True, layers=(0, 1))
    for layer in range(2):
        x, z = source[:, layer].numpy(), target[:, layer].numpy()
        close(plain.source.weight[layer], torch.from_numpy(lstsq(x, z)[0].T.copy()))
        # Centred, it is the regression with a constant term.
        solved = np.linalg.lstsq(np.c_[x, np.ones(len(x))], z, rcond=None)[0]
        weight, offset = centred.affine()
        close(weight[layer], torch.from_numpy(solved[:-1].T.copy()))
        close(offset[layer], torch.from_numpy(solved[-1]))


def test_least_squares_needs_pairs():
    for count, centre in ((5, False), (6, True)):
        source, target = pairs(count)
        with pytest.raises(InputError, match=f"{count} pairs .* of 6 dimensions; give {count + 1} or more"):
            least_squares(source, target, centre=centre, layers=(0, 1))
        source, target = pairs(count + 1, layers=1)
        exact = least_squares(source, target, centre=centre)
        close(exact.apply(source), target, 1e-8)


def test_least_squares_of_repeated_pairs_is_the_smallest():
    source, target = pairs(4, layers=1)
    source, target = source.repeat(5, 1, 1), target.repeat(5, 1, 1) + random(20, 1, 6, seed=4)
    expected = lstsq(source[:, 0].numpy(), target[:, 0].numpy())[0]
    close(least_squares(source, target).source.weight[0], torch.from_numpy(expected.T.copy()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centre", [False, True])
def test_least_squares_of_vectors_out_of_a_layer_norm(centre, dtype):
    """They lie in a hyperplane: a map of what rounding leaves across it would be huge, and follow noise."""
    norm = torch.nn.LayerNorm(12)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 12))
        norm.bias.copy_(torch.linspace(-1, 1, 12) if centre else torch.zeros(12))  # else no plane through 0
        source = norm(random(400, 12, seed=1).float()).to(dtype)
    target = (source.double() @ random(12, 12, seed=2) + random(400, 12, seed=3)).to(dtype)
    found = least_squares(source[:300], target[:300], centre=centre)
    # The same in the eleven coordinates of the hyperplane.
    inside = torch.linalg.svd(1 / norm.weight.detach().double()[:, None]).U[:, 1:]
    wanted = least_squares(source[:300].double() @ inside, target[:300].double(), centre=centre)
    weight = found.source.weight[0]
    with pytest.raises(InputError, match="singular to the precision"):
        found.inverse()
    close(weight.double(), wanted.source.weight[0] @ inside.T, 1e-4)
    close(found.apply(source[300:]).double(), wanted.apply(source[300:].double() @ inside), 1e-4)


@solvers
def test_refused(solve):
    source, target = pairs(layers=1)
    source[3, 0, 2] = float("nan")
    with pytest.raises(InputError, match="source vectors: row 3"):
        solve(source, target)
    with pytest.raises(InputError, match="matched one by one"):
        solve(target[1:], target)
