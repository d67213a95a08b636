from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.mapping.maps import LanguageMap, unit
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.vecmap import DEFAULT_STEPS, _whitening, vecmap


def vectors(seed, *shape, dtype=torch.float64):
    """Correlated dimensions of unequal size around a mean that is not 0."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(shape[-1], shape[-1], generator=generator, dtype=dtype)
    return torch.randn(*shape, generator=generator, dtype=dtype) @ mix + torch.randn(shape[-1], generator=generator)


def related(seed, pairs, size, noise=0.3):
    """Matched float64 (pairs, size) of two languages that share most of what they say."""
    source = vectors(seed, pairs, size)
    generator = torch.Generator().manual_seed(seed + 100)
    target = source @ torch.randn(size, size, generator=generator, dtype=torch.float64) + noise * vectors(
        seed + 1, pairs, size
    )
    return source, target


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
    total = np.zeros((x.shape[1], x.shape[1]))
    for row in x:
        for i in range(len(row)):
            for j in range(len(row)):
                total[i, j] += row[i] * row[j]
    return total


def power(matrix, exponent):
    """A symmetric matrix to a power, by its eigenvalues."""
    values, basis = np.linalg.eigh(matrix)
    return sum(value**exponent * np.outer(v, v) for value, v in zip(values, basis.T))


def transcription(x, z, p, dewhiten):
    """The AAAI 2018 steps S1 to S4 on normalised rows, one matrix after another: X W_x and Z W_z."""
    white_x, white_z = power(gram(x), -0.5), power(gram(z), -0.5)
    u, s, vh = np.linalg.svd((x @ white_x).T @ (z @ white_z), full_matrices=False)
    mapped_x, mapped_z = x @ white_x @ u, z @ white_z @ vh.T
    mapped_x, mapped_z = mapped_x * s**p, mapped_z * s**p
    if dewhiten:
        mapped_x = mapped_x @ u.T @ np.linalg.inv(white_x) @ u
        mapped_z = mapped_z @ vh @ np.linalg.inv(white_z) @ vh.T
    return mapped_x, mapped_z


def agree(found: LanguageMap, source, target, wanted_x, wanted_z):
    """Both sides are as wanted. A singular vector's sign is free, so they are compared where both signs cancel."""
    x, z = found.project(source).double().numpy(), found.project(target, "target").double().numpy()
    for ours, theirs in ((x @ z.T, wanted_x @ wanted_z.T), (x @ x.T, wanted_x @ wanted_x.T)):
        np.testing.assert_allclose(ours, theirs, atol=1e-8 * np.abs(theirs).max())
    np.testing.assert_allclose(z @ z.T, wanted_z @ wanted_z.T, atol=1e-8 * np.abs(wanted_z @ wanted_z.T).max())


@pytest.mark.parametrize("dewhiten", [True, False])
@pytest.mark.parametrize("reweight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("steps", [DEFAULT_STEPS, ("centre",), ()])
def test_every_step_is_the_papers(steps, reweight, dewhiten):
    source, target = related(1, 40, 7)
    found = vecmap(source, target, steps=steps, reweight=reweight, dewhiten=dewhiten)
    x, z = loop_normalize(source, source, steps), loop_normalize(target, target, steps)
    np.testing.assert_allclose(found.source.normalize(source.unsqueeze(1))[:, 0], x, atol=1e-12)
    agree(found, source, target, *transcription(x, z, reweight, dewhiten))


def test_the_steps_tell_the_variants_apart():
    source, target = related(1, 40, 7)
    seen = [
        vecmap(source, target, reweight=p, dewhiten=back).project(source).norm().item()
        for p in (0.0, 0.5, 1.0)
        for back in (True, False)
    ]
    assert len({round(value, 6) for value in seen}) == len(seen)


def test_the_composed_matrix():
    source, target = related(2, 50, 6)
    found = vecmap(source, target)
    x, z = loop_normalize(source, source, DEFAULT_STEPS), loop_normalize(target, target, DEFAULT_STEPS)
    white = power(gram(x), -0.5)
    u, s, _ = np.linalg.svd(white @ x.T @ z @ power(gram(z), -0.5))
    composed = white @ u @ np.diag(s**0.5) @ u.T @ np.linalg.inv(white) @ u
    weight = found.source.weight[0].numpy().T
    np.testing.assert_allclose(weight * np.sign((weight * composed).sum(0)), composed, atol=1e-9)


def test_whitening_makes_the_covariance_the_identity():
    x = vectors(3, 60, 8)
    white, colour = _whitening(x, "source")
    np.testing.assert_allclose(gram((x @ white).numpy()), np.eye(8), atol=1e-10)
    np.testing.assert_allclose((white @ colour).numpy(), np.eye(8), atol=1e-10)
    np.testing.assert_allclose(white.numpy(), power(gram(x.numpy()), -0.5), atol=1e-10)


def test_without_whitening_it_is_procrustes_on_normalised_vectors():
    source, target = related(4, 30, 6)
    found = vecmap(source, target, whiten=False, reweight=0.9, dewhiten=False)
    x, z = (torch.from_numpy(loop_normalize(side, side, DEFAULT_STEPS)) for side in (source, target))
    torch.testing.assert_close(found.source.weight, procrustes(x, z).source.weight)
    torch.testing.assert_close(found.project(target, "target"), z)
    torch.testing.assert_close(found.apply(source), found.project(source))
    plain = vecmap(source, target, whiten=False, steps=())
    assert plain.target is None
    assert torch.equal(plain.source.weight, procrustes(source, target).source.weight)


@pytest.mark.parametrize("whiten", [True, False])
def test_a_planted_rotation_is_recovered(whiten):
    source = vectors(5, 80, 9)
    rotation = torch.linalg.qr(torch.randn(9, 9, dtype=torch.float64)).Q
    target = source @ rotation.T
    found = vecmap(source, target, whiten=whiten)
    torch.testing.assert_close(found.project(source), found.project(target, "target"))
    unseen = vectors(6, 20, 9)
    torch.testing.assert_close(found.project(unseen), found.project(unseen @ rotation.T, "target"))
    centred = vecmap(source, target, whiten=whiten, steps=("centre",))
    torch.testing.assert_close(centred.apply(unseen), unseen @ rotation.T)
    weight, offset = centred.affine()
    torch.testing.assert_close(weight[0], rotation)
    torch.testing.assert_close(offset, torch.zeros_like(offset), atol=1e-9, rtol=0)


@pytest.mark.parametrize("whiten", [True, False])
def test_means_come_from_the_vocabularies_where_given(whiten):
    source, target = related(7, 40, 6)
    all_source, all_target = torch.cat([source, vectors(8, 50, 6)]), torch.cat([target, vectors(9, 70, 6)])
    found = vecmap(source, target, whiten=whiten, source_candidates=all_source, target_candidates=all_target)
    x, z = loop_normalize(source, all_source, DEFAULT_STEPS), loop_normalize(target, all_target, DEFAULT_STEPS)
    for side, vecs, wanted in ((found.source, source, x), (found.target, target, z)):
        np.testing.assert_allclose(side.normalize(vecs.unsqueeze(1))[:, 0], wanted, atol=1e-12)
    if whiten:
        agree(found, source, target, *transcription(x, z, 0.5, True))
    assert not torch.allclose(found.source.means[0], vecmap(source, target, whiten=whiten).source.means[0])


@pytest.mark.parametrize("whiten", [True, False])
def test_several_layers_are_each_alone(whiten):
    source, target = vectors(10, 40, 3, 6), vectors(11, 40, 3, 6)
    words = vectors(12, 55, 3, 6)
    layers = (-3, -2, -1)
    found = vecmap(source, target, whiten=whiten, source_candidates=words, layers=layers)
    for k, layer in enumerate(layers):
        alone = vecmap(
            source[:, k], target[:, k], whiten=whiten, source_candidates=words[:, k].clone(), layers=(layer,)
        )
        part = found.of([layer])
        for one, other in ((part.source, alone.source), (part.target, alone.target)):
            torch.testing.assert_close(one.weight, other.weight)
            assert torch.equal(one.means[0], other.means[0])


@pytest.mark.parametrize("sizes", [(5, 8), (8, 5)])
def test_another_number_of_dimensions(sizes):
    source, target = vectors(13, 60, sizes[0]), vectors(14, 60, sizes[1])
    found = vecmap(source, target)
    assert found.project(source).shape == found.project(target, "target").shape == (60, 5)
    x, z = loop_normalize(source, source, DEFAULT_STEPS), loop_normalize(target, target, DEFAULT_STEPS)
    agree(found, source, target, *transcription(x, z, 0.5, True))
    rotated = vecmap(source, target, whiten=False)
    assert rotated.project(source).shape == (60, sizes[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_are_of_the_inputs_type(dtype):
    source, target = related(14, 40, 6)
    found = vecmap(source.to(dtype), target.to(dtype))
    for side in (found.source, found.target):
        assert side.weight.dtype == dtype and {mean.dtype for mean in side.means} == {dtype}
    wanted = vecmap(source.to(dtype).double(), target.to(dtype).double())
    assert torch.equal(found.source.weight, wanted.source.weight.to(dtype)), "solved in float64"


@pytest.mark.parametrize("whiten", [True, False])
def test_saved_and_loaded_bitwise(tmp_path, whiten):
    source, target = (side.float() for side in related(15, 40, 6))
    found = vecmap(source, target, whiten=whiten)
    found.save(tmp_path / "map.safetensors")
    loaded = LanguageMap.load(tmp_path / "map.safetensors")
    assert torch.equal(loaded.project(source), found.project(source))
    assert torch.equal(loaded.project(target, "target"), found.project(target, "target"))
    assert (loaded.method, loaded.source.steps, loaded.target.steps) == (found.method, DEFAULT_STEPS, DEFAULT_STEPS)


def test_as_many_pairs_as_dimensions_are_enough():
    source, target = vectors(16, 7, 7), vectors(17, 7, 7)
    for steps in (("unit",), DEFAULT_STEPS):
        assert vecmap(source, target, steps=steps).source.weight.isfinite().all()


def test_fewer_pairs_than_dimensions():
    source, target = vectors(18, 6, 7), vectors(19, 6, 7)
    with pytest.raises(InputError, match=r"6 pairs are fewer than the 7 dimensions.*whiten=False, the orthogonal"):
        vecmap(source, target)
    assert vecmap(source, target, whiten=False).source.weight.isfinite().all()


def test_fewer_different_vectors_than_dimensions():
    source, target = vectors(20, 60, 8), vectors(21, 60, 8)[torch.arange(60) % 5]
    with pytest.raises(
        InputError, match=r"only 5 of the 60 target vectors are different.* 8 dimensions.*whiten=False"
    ):
        vecmap(source, target)
    assert vecmap(source, target, whiten=False).source.weight.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dewhiten", [True, False])
def test_layer_norm_takes_a_dimension(dtype, dewhiten, caplog):
    """Vectors out of a layer norm lie in a hyperplane: they map as their seven coordinates in it do."""
    norm = torch.nn.LayerNorm(8).double()
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 8))
        norm.bias.copy_(torch.linspace(-1, 1, 8))
        source, target = (norm(side).to(dtype) for side in related(26, 80, 8, noise=0.1))
    options = {"steps": ("centre",), "dewhiten": dewhiten}
    with caplog.at_level("INFO"):
        found = vecmap(source, target, **options)
    assert "the source vectors span 7 of 8 dimensions" in caplog.text
    inside = torch.linalg.svd(1 / norm.weight.detach()[:, None]).U[:, 1:].to(dtype)
    wanted = vecmap(source @ inside, target @ inside, **options)
    ours = found.project(source) @ found.project(target, "target").T
    theirs = wanted.project(source @ inside) @ wanted.project(target @ inside, "target").T
    torch.testing.assert_close(ours, theirs, atol=1e-4 * theirs.abs().max().item(), rtol=0)
    assert found.apply(source).isfinite().all()


def test_a_badly_scaled_but_full_space_is_whitened():
    source, target = related(22, 60, 8)
    scale = torch.logspace(0, -3, 8, dtype=torch.float64)
    found = vecmap(source * scale, target, steps=(), dewhiten=False)
    wanted = vecmap(source, target, steps=(), dewhiten=False)
    # Whitening takes any such scale away again.
    torch.testing.assert_close(
        found.project(source * scale) @ found.project(target, "target").T,
        wanted.project(source) @ wanted.project(target, "target").T,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": ("unit", "scale")}, "'scale' is not known"),
        ({"reweight": -0.5}, "reweight=-0.5"),
        ({"reweight": float("nan")}, "reweight=nan"),
        ({"layers": (1, 2)}, r"layers=\(1, 2\): the vectors are of 1 layers"),
        (
            {"source_candidates": torch.ones(9, 5)},
            r"source candidates: shape \(9, 5\) for matched vectors of 1 layers and 6",
        ),
        (
            {"target_candidates": torch.ones(9, 2, 6)},
            r"target candidates: shape \(9, 2, 6\) for matched vectors of 1 layers",
        ),
        ({"target_candidates": torch.ones(0, 6)}, r"target candidates: shape \(0, 6\) is empty"),
        ({"source_candidates": torch.ones(9, 6).long()}, "source candidates: expected floats"),
        ({"source_candidates": torch.full((9, 6), torch.nan)}, r"source candidates: row 0 \(of 9\)"),
    ],
)
def test_bad_options(change, message):
    with pytest.raises(InputError, match=message):
        vecmap(*related(23, 40, 6), **change)


def test_nan_is_named():
    source, target = related(24, 40, 6)
    target[17, 2] = torch.nan
    with pytest.raises(InputError, match=r"target vectors: row 17 \(of 40\)"):
        vecmap(source, target)


@pytest.mark.gpu
def test_gpu_equals_cpu():
    source, target = (side.float() for side in related(25, 900, 300))
    found, wanted = vecmap(source.cuda(), target.cuda()), vecmap(source, target)
    assert found.source.weight.is_cuda
    ours = unit(found.project(source.cuda())) @ unit(found.project(target.cuda(), "target")).T
    theirs = unit(wanted.project(source)) @ unit(wanted.project(target, "target")).T
    torch.testing.assert_close(ours.cpu(), theirs, atol=1e-4, rtol=0)
