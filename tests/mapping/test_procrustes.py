"""Maps with a closed form: what they recover, and that nothing is nearer."""

import numpy as np
import pytest
import torch
from scipy.linalg import lstsq, orthogonal_procrustes
from support.maps import conditioned, normal
from support.numeric import assert_rounding

from hf_xalign.errors import InputError
from hf_xalign.mapping.procrustes import least_squares, procrustes

pytestmark = pytest.mark.numeric

# Matrices have at most COUNT rows and SIZE columns. A product takes 2 COUNT operations on its longest path; a
# decomposition by reflections is backward stable with a small multiple of COUNT + SIZE^2.
COUNT, SIZE = 60, 12
OPERATIONS = 4 * (COUNT + SIZE**2)


def pairs(count=60, size=6, out=6, layers=2):
    """Noisy partners, so that no map takes one to the other exactly, away from the origin."""
    source = 4 * conditioned(layers, count, size, seed=1).transpose(0, 1) + 0.5
    target = torch.einsum("nli,oi->nlo", source, conditioned(out, size, seed=2)) + normal(count, layers, out, seed=3)
    return source, target - 1


def close(one, other, condition=1.0, **about):
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
    for size, out, centre in ((6, 6, True), (6, 4, False), (4, 6, False)):
        source, target = pairs(size=size, out=out)
        one = procrustes(source, target, centre=centre, layers=(-2, -1))
        for layer in range(2):
            x, z, weight = source[:, layer], target[:, layer], one.source.weight[layer]
            if centre:
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
@pytest.mark.parametrize("centre", [False, True])
def test_solved_in_float64(solve, centre):
    source, target = (side.float() for side in pairs(layers=1))
    narrow, wide = solve(source, target, centre=centre), solve(source.double(), target.double(), centre=centre)
    assert narrow.source.weight.dtype is torch.float32 and wide.source.weight.dtype is torch.float64
    assert torch.equal(narrow.source.weight, wide.source.weight.float())
    if centre:
        assert torch.equal(narrow.source.means[0], wide.source.means[0].float())
        assert torch.equal(narrow.source.offset, wide.source.offset.float())


def test_least_squares():
    for size, out in ((6, 6), (6, 4)):
        source, target = pairs(size=size, out=out)
        plain = least_squares(source, target, layers=(0, 1))
        centred = least_squares(source, target, centre=True, layers=(0, 1))
        for layer in range(2):
            x, z = source[:, layer], target[:, layer]
            close(plain.source.weight[layer], torch.from_numpy(lstsq(x, z)[0].T.copy()), of_regression(x, z))
            # Centred, it is the regression with a constant term.
            with_one = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
            solved = torch.from_numpy(np.linalg.lstsq(with_one.numpy(), z.numpy(), rcond=None)[0])
            weight, offset = centred.affine()
            close(weight[layer], solved[:-1].T, of_regression(with_one, z))
            close(offset[layer], solved[-1], of_regression(with_one, z))


@pytest.mark.parametrize("centre", [False, True])
def test_least_squares_of_vectors_out_of_a_layer_norm(centre):
    """They lie in a hyperplane: a map of what rounding leaves across it would be huge, and follow noise."""
    norm = torch.nn.LayerNorm(12)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 12))
        norm.bias.copy_(torch.linspace(-1, 1, 12) if centre else torch.zeros(12))  # else no plane through 0
        exact = norm(normal(400, 12, seed=1).float())
    for dtype in (torch.float32, torch.float64):
        source = exact.to(dtype)
        target = (source.double() @ normal(12, 12, seed=2) + normal(400, 12, seed=3)).to(dtype)
        found = least_squares(source[:300], target[:300], centre=centre)
        # The same in the eleven coordinates of the hyperplane.
        inside = torch.linalg.svd(1 / norm.weight.detach().double()[:, None]).U[:, 1:]
        x, z = source[:300].double() @ inside, target[:300].double()
        wanted = least_squares(x, z, centre=centre)
        weight, unseen = found.source.weight[0], source[300:]
        with pytest.raises(InputError, match="singular to the precision"):
            found.inverse()
        # A layer norm on 12 numbers in float32, the mean and the variance among its operations, moves X by that much
        # relative to its own size; W follows by the condition number of X.
        about = {"operations": 3 * 12, "dtype": torch.float32}
        condition = torch.linalg.cond(x - x.mean(0) if centre else x)
        close(weight, wanted.source.weight[0] @ inside.T, condition, **about)
        close(found.apply(unseen), wanted.apply(unseen.double() @ inside), condition, **about)
