"""Procrustes, least squares, and VecMap by the papers' steps: what they recover, also from less than full rank."""

import numpy as np
import pytest
import torch
from scipy.linalg import lstsq, orthogonal_procrustes
from support.maps import conditioned, normal
from support.numeric import assert_rounding

from hf_xalign.errors import InputError
from hf_xalign.mapping.procrustes import least_squares, procrustes
from hf_xalign.mapping.vecmap import DEFAULT_STEPS, vecmap

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


def out_of_layer_norm(sides, bias=0.0):
    """The vectors after a layer norm, and a basis of the hyperplane that they lie in."""
    size = sides[0].shape[-1]
    gain = torch.linspace(0.5, 2, size)
    with torch.no_grad():
        shift = bias * torch.linspace(-0.5, 0.5, size)
        exact = [torch.nn.functional.layer_norm(x, (size,), gain.to(x), shift.to(x)) for x in sides]
    return exact, torch.linalg.svd(1 / gain.double()[:, None]).U[:, 1:]


@pytest.mark.parametrize("centre", [False, True])
def test_least_squares_of_vectors_out_of_a_layer_norm(centre):
    """They lie in a hyperplane: a map of what rounding leaves across it would be huge, and follow noise."""
    (exact,), inside = out_of_layer_norm([normal(400, 12, seed=1).float()], 2.0 * centre)  # else no plane through 0
    for dtype in (torch.float32, torch.float64):
        source = exact.to(dtype)
        target = (source.double() @ normal(12, 12, seed=2) + normal(400, 12, seed=3)).to(dtype)
        found = least_squares(source[:300], target[:300], centre=centre)
        # The same in the eleven coordinates of the hyperplane.
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
    """The AAAI 2018 steps S1 to S4 on normalised rows, one matrix after another: X W_x and Z W_z."""
    white_x, white_z = power(gram(x), -0.5), power(gram(z), -0.5)
    u, s, vh = np.linalg.svd((x @ white_x).T @ (z @ white_z), full_matrices=False)
    mapped_x, mapped_z = x @ white_x @ u, z @ white_z @ vh.T
    mapped_x, mapped_z = mapped_x * s**0.5, mapped_z * s**0.5
    return mapped_x @ u.T @ np.linalg.inv(white_x) @ u, mapped_z @ vh @ np.linalg.inv(white_z) @ vh.T


def normalized(source, target):
    return loop_normalize(source, source, DEFAULT_STEPS), loop_normalize(target, target, DEFAULT_STEPS)


def test_without_whitening_it_is_procrustes_on_normalised_vectors():
    source, target = related(30, 6)
    found = vecmap(source, target, whiten=False)
    x, z = (torch.from_numpy(side) for side in normalized(source, target))
    cross = torch.linalg.cond(z.T @ x)
    close(found.source.weight, procrustes(x, z).source.weight, cross)
    close(found.project(target, "target"), z)
    close(found.apply(source), found.project(source))


@pytest.mark.parametrize("whiten", [True, False])
def test_every_step_is_the_papers_with_the_means_of_vocabularies(whiten):
    all_source, all_target = related(100, 6)
    source, target = all_source[:40], all_target[:40]
    found = vecmap(source, target, whiten=whiten, source_candidates=all_source, target_candidates=all_target)
    x, z = loop_normalize(source, all_source, DEFAULT_STEPS), loop_normalize(target, all_target, DEFAULT_STEPS)
    for side, vecs, wanted in ((found.source, source, x), (found.target, target, z)):
        close(side.normalize(vecs.unsqueeze(1))[:, 0], wanted)
    if whiten:
        # A singular vector's sign is free, so both sides are compared where signs cancel.
        ours = torch.cat([found.project(source), found.project(target, "target")])
        theirs = np.concatenate(transcription(x, z))
        close(ours @ ours.T, theirs @ theirs.T, condition(x, z))
    own = vecmap(source, target, whiten=whiten)
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
        magnified = condition(*normalized(*(side.double() for side in inside)))
        assert magnified < 200
        close(ours, theirs, magnified, operations=8 + 2 * 8, dtype=torch.float32)
        assert found.apply(source).isfinite().all()
