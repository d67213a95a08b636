"""VecMap with a dictionary: the papers' steps by slow loops, and what it does with vectors of less than full rank."""

import numpy as np
import pytest
import torch
from support.maps import conditioned, normal
from support.numeric import assert_rounding

from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.vecmap import DEFAULT_STEPS, vecmap
from hf_xalign.modeling.maps import LanguageMap, unit

pytestmark = pytest.mark.numeric

# At most 100 pairs of at most 9 dimensions: three steps, a product over the pairs, and backward stable decompositions
# (a small multiple of rows + columns^2) of both languages and of their cross-covariance.
OPERATIONS = 3 * 20 + 2 * 100 + 3 * 4 * (100 + 9**2)


def vectors(seed, *shape):
    """Correlated dimensions of unequal size, a factor of three, around a mean that is not 0."""
    return normal(*shape, seed=seed) @ conditioned(shape[-1], shape[-1], seed=seed, condition=3) + 0.5


def related(seed, pairs, size, noise=0.3):
    """Matched vectors (pairs, size) of two languages that share most of what they say."""
    source = vectors(seed, pairs, size)
    return source, source @ conditioned(size, size, seed=seed + 100) + noise * vectors(seed + 1, pairs, size)


def close(found, expected, condition=1.0, **about):
    expected = torch.as_tensor(expected)
    scale = max(1.0, expected.abs().max().item()) * float(condition)
    assert_rounding(found, expected, **{"operations": OPERATIONS, "scale": scale, **about})


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
    """X^T X by its definition."""
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


def agree(found: LanguageMap, source, target, x, z):
    """Both sides are as transcribed. A singular vector's sign is free, so they are compared where signs cancel."""
    wanted_x, wanted_z = transcription(x, z)
    ours_x, ours_z = found.project(source), found.project(target, "target")
    for ours, theirs in (
        (ours_x @ ours_z.T, wanted_x @ wanted_z.T),
        (ours_x @ ours_x.T, wanted_x @ wanted_x.T),
        (ours_z @ ours_z.T, wanted_z @ wanted_z.T),
    ):
        close(ours, theirs, condition(x, z))


def normalized(source, target):
    return loop_normalize(source, source, DEFAULT_STEPS), loop_normalize(target, target, DEFAULT_STEPS)


def test_without_whitening_it_is_procrustes_on_normalised_vectors():
    source, target = related(4, 30, 6)
    found = vecmap(source, target, whiten=False)
    x, z = (torch.from_numpy(side) for side in normalized(source, target))
    cross = torch.linalg.cond(z.T @ x)
    close(found.source.weight, procrustes(x, z).source.weight, cross)
    close(found.project(target, "target"), z)
    close(found.apply(source), found.project(source))


@pytest.mark.parametrize("whiten", [True, False])
def test_every_step_is_the_papers_with_the_means_of_vocabularies(whiten):
    source, target = related(7, 40, 6)
    all_source, all_target = torch.cat([source, vectors(8, 50, 6)]), torch.cat([target, vectors(9, 60, 6)])
    found = vecmap(source, target, whiten=whiten, source_candidates=all_source, target_candidates=all_target)
    x, z = loop_normalize(source, all_source, DEFAULT_STEPS), loop_normalize(target, all_target, DEFAULT_STEPS)
    for side, vecs, wanted in ((found.source, source, x), (found.target, target, z)):
        close(side.normalize(vecs.unsqueeze(1))[:, 0], wanted)
    if whiten:
        agree(found, source, target, x, z)
    own = vecmap(source, target, whiten=whiten)
    assert (found.source.means[0] - own.source.means[0]).abs().max() > 1e-3


def test_layer_norm_takes_a_dimension(caplog):
    """Vectors out of a layer norm lie in a hyperplane: they map as their seven coordinates in it do."""
    norm = torch.nn.LayerNorm(8).double()
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 8))
        exact = [norm(side) for side in related(26, 80, 8, noise=0.1)]
    basis = torch.linalg.svd(1 / norm.weight.detach()[:, None]).U[:, 1:]
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


@pytest.mark.gpu
def test_gpu_equals_cpu():
    source, target = (side.float() for side in related(25, 900, 300))
    found, wanted = vecmap(source.cuda(), target.cuda()), vecmap(source, target)
    assert found.source.weight.is_cuda
    ours = unit(found.project(source.cuda())) @ unit(found.project(target.cuda(), "target")).T
    theirs = unit(wanted.project(source)) @ unit(wanted.project(target, "target")).T
    # Both are solved in float64 and used in float32: two products over 300 dimensions, and one of their lengths.
    assert_rounding(ours.cpu(), theirs, operations=3 * 2 * 300, scale=1.0)
