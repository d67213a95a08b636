"""The map object: what it does to vectors, back again, as one affine map, on disk; and what it refuses."""

from __future__ import annotations

import errno
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from hf_xalign.errors import InputError
from hf_xalign.mapping.checks import check_vectors, matched
from hf_xalign.mapping.maps import LanguageMap, SideMap, unit

STEPS = [(), ("centre",), ("unit",), ("unit", "centre"), ("centre", "unit"), ("unit", "centre", "unit")]
every_steps = pytest.mark.parametrize("steps", STEPS, ids=" ".join)


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def side(steps=(), offset=True, layers=2, out=4, size=4, seed=0):
    return SideMap(
        random(layers, out, size, seed=seed),
        random(layers, out, seed=seed + 1) if offset else None,
        steps,
        tuple(random(layers, size, seed=seed + 2 + k) for k in range(steps.count("centre"))),
    )


def one_by_one(part, vectors, upto=None):
    """What a side does, number by number."""
    found = torch.zeros(len(vectors), *part.weight.shape[:2], dtype=vectors.dtype)
    for n in range(len(vectors)):
        for layer in range(vectors.shape[1]):
            x, means = vectors[n, layer].clone(), list(part.means)
            for step in part.steps:
                if step == "centre":
                    x = x - means.pop(0)[layer]
                elif x.norm() > 0:
                    x = x / x.norm()
            if upto == "steps":
                found[n, layer] = x
                continue
            for row in range(part.weight.shape[1]):
                found[n, layer, row] = sum(part.weight[layer, row, k] * x[k] for k in range(len(x)))
            if part.offset is not None:
                found[n, layer] += part.offset[layer]
    return found


def close(one, other, tolerance=1e-12):
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@every_steps
@pytest.mark.parametrize("offset", [True, False])
def test_project(steps, offset):
    vectors = random(5, 2, 4, seed=9)
    vectors[1, 0] = 0
    part = side(steps, offset, out=3)
    one = LanguageMap(part, layers=(0, 3))
    close(one.project(vectors), one_by_one(part, vectors))
    close(one.apply(vectors), one_by_one(part, vectors))
    close(part.normalize(vectors), one_by_one(replace(part, weight=random(2, 4, 4), offset=None), vectors, "steps"))
    other = LanguageMap(part, side(("centre",), out=3, size=6, seed=20), layers=(0, 3))
    close(other.project(vectors), one.project(vectors))
    target = random(5, 2, 6, seed=8)
    close(other.project(target, "target"), one_by_one(other.target, target))
    # A target without a map of its own is compared as it is.
    assert torch.equal(one.project(random(5, 2, 3), "target"), random(5, 2, 3))


def test_one_layer_takes_two_dimensions():
    one = LanguageMap(side(("centre",), layers=1), side(layers=1, seed=7))
    vectors = random(5, 4)
    for call in (one.project, one.apply, lambda v: one.project(v, "target")):
        assert call(vectors).shape == (5, 4)
        assert torch.equal(call(vectors), call(vectors.unsqueeze(1))[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_the_vectors(dtype):
    one = LanguageMap(side(("unit", "centre")), side(seed=7), layers=(0, 1))
    found = one.apply(random(5, 2, 4, dtype=dtype))
    assert found.dtype is dtype
    close(found.double(), one.apply(random(5, 2, 4)), 1e-4 if dtype is torch.float32 else 1e-12)


def test_autocast_rounds_nothing():
    part = side(("centre",))
    part = SideMap(part.weight.float(), None, part.steps, tuple(mean.float() for mean in part.means))
    one, vectors = LanguageMap(part, part, layers=(0, 1)), random(5, 2, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = one.project(vectors), one.apply(vectors)
    assert torch.equal(found[0], one.project(vectors)) and torch.equal(found[1], one.apply(vectors))


@pytest.mark.parametrize("source", [(), ("centre",), ("unit", "centre")], ids=" ".join)
@pytest.mark.parametrize("target", [(), ("centre",), ("centre", "centre")], ids=" ".join)
def test_apply_leads_to_the_targets_own_space(source, target):
    one = LanguageMap(side(source), side(target, seed=7), layers=(0, 1))
    vectors = random(5, 2, 4, seed=9)
    # Where the target is taken to from there is where the source was taken to.
    close(one.project(one.apply(vectors), "target"), one.project(vectors), 1e-10)
    assert (one.apply(vectors) - one.project(vectors)).abs().max() > 0.1


def test_apply_where_the_target_is_normalised():
    target = side(("unit", "centre", "unit"), seed=7)
    one = LanguageMap(side(("unit",)), target, layers=(0, 1))
    vectors = random(5, 2, 4, seed=9)
    shifted = one.project(vectors) - target.offset
    expected = torch.stack([shifted[:, k] @ torch.linalg.inv(target.weight[k]).T for k in range(2)], dim=1)
    close(one.apply(vectors), expected, 1e-10)
    # A target vector that is compared equal has this as its normalised self.
    own = random(5, 2, 4, seed=10)
    same = LanguageMap(target, target, layers=(0, 1))
    close(same.apply(own), target.normalize(own), 1e-10)


@pytest.mark.parametrize("source", [(), ("centre",)], ids=" ".join)
@pytest.mark.parametrize("target", [None, (), ("centre",)], ids=str)
def test_inverse_and_affine(source, target):
    one = LanguageMap(
        side(source),
        None if target is None else side(target, seed=7),
        layers=(0, 1),
        source_lang="de",
        target_lang="en",
        method="some",
    )
    vectors = random(5, 2, 4, seed=9)
    back = one.inverse()
    assert (back.source_lang, back.target_lang, back.method, back.layers) == ("en", "de", "some", (0, 1))
    close(back.apply(one.apply(vectors)), vectors, 1e-10)
    close(one.apply(back.apply(vectors)), vectors, 1e-10)
    close(back.project(vectors), one.project(vectors, "target"))
    close(back.project(vectors, "target"), one.project(vectors))
    close(back.inverse().apply(vectors), one.apply(vectors), 1e-10)
    for two in (one, back):
        weight, offset = two.affine()
        close(torch.einsum("loi,nli->nlo", weight, vectors) + offset, two.apply(vectors), 1e-10)
    assert one.affine()[0].dtype is torch.float64


def test_affine_keeps_float32_accurate():
    one = LanguageMap(side(("centre",)), side(("centre",), seed=7), layers=(0, 1))
    narrow = LanguageMap(
        *(SideMap(s.weight.float(), s.offset.float(), s.steps, tuple(m.float() for m in s.means))
          for s in (one.source, one.target)),
        layers=(0, 1),
    )  # fmt: skip
    for found, expected in zip(narrow.affine(), one.affine(), strict=True):
        assert found.dtype is torch.float32
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-4)


def test_affine_of_long_means():
    """W m_s and m_t are long and near each other: in float32 their difference would be rounding alone."""
    weight = torch.linalg.qr(random(1, 4, 4)).Q.float()
    mean = (random(1, 4, seed=1) * 1e4).float()
    offset = (weight.double() @ mean.double().unsqueeze(-1)).squeeze(-1).float()
    found = LanguageMap(SideMap(weight, offset, ("centre",), (mean,))).affine()[1]
    wanted = offset.double() - (weight.double() @ mean.double().unsqueeze(-1)).squeeze(-1)
    close(found.double(), wanted, 1e-9)


def test_of_some_layers():
    one = LanguageMap(
        side(("centre", "unit", "centre"), layers=3), side(("centre",), layers=3, seed=7), layers=(-3, -2, -1)
    )
    some = one.of([-1, -3])
    assert some.layers == (-1, -3) and some.source.steps == one.source.steps
    vectors = random(5, 3, 4, seed=9)
    for which in ("source", "target"):
        assert torch.equal(some.project(vectors[:, [2, 0]], which), one.project(vectors, which)[:, [2, 0]])
    close(some.apply(vectors[:, [2, 0]]), one.apply(vectors)[:, [2, 0]])
    plain = LanguageMap(side(offset=False, layers=2), layers=(4, 5)).of((5,))
    assert plain.target is None and plain.source.offset is None
    with pytest.raises(InputError, match=r"layers \(-3, -2, -1\) has none for layer 0"):
        one.of([0])


# --- files -----------------------------------------------------------------------------------------------------------


def maps():
    mean = random(2, 4, seed=5)
    shared = SideMap(random(2, 4, 4), None, ("centre", "unit", "centre"), (mean, mean))
    return {
        "plain": LanguageMap(SideMap(random(1, 4, 4, dtype=torch.float32))),
        "narrow": LanguageMap(SideMap(random(1, 3, 4, dtype=torch.bfloat16)), layers=(7,), source_lang="bn"),
        "full": LanguageMap(
            side(("unit", "centre", "unit"), size=6),
            side(("centre",), seed=7),
            "vecmap(whiten=True) «é»",
            (-2, -1),
            "de",
            "en",
        ),
        "one tensor twice": LanguageMap(shared, shared, layers=(0, 1)),
        "a view": LanguageMap(SideMap(random(4, 4, 2).permute(2, 0, 1)), layers=(0, 1)),
    }


def parts(one):
    return {
        name: [part.weight, *([] if part.offset is None else [part.offset]), *part.means]
        for name, part in (("source", one.source), ("target", one.target))
        if part is not None
    }


@pytest.mark.parametrize("name", maps())
def test_files_are_bitwise(name, tmp_path):
    one = maps()[name]
    one.save(tmp_path / "deep" / "map.safetensors")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["map.safetensors"]
    two = LanguageMap.load(str(tmp_path / "deep" / "map.safetensors"))
    assert (two.method, two.layers, two.source_lang, two.target_lang) == (
        one.method,
        one.layers,
        one.source_lang,
        one.target_lang,
    )
    assert (two.target is None) == (one.target is None)
    assert two.source.steps == one.source.steps and (one.target is None or two.target.steps == one.target.steps)
    assert parts(two).keys() == parts(one).keys()
    for key, tensors in parts(one).items():
        for old, new in zip(tensors, parts(two)[key], strict=True):
            assert old.dtype == new.dtype and torch.equal(old, new)


@pytest.mark.slow
def test_a_fresh_process_maps_bitwise_alike(tmp_path):
    vectors, expected = random(5, 2, 4, seed=9), {}
    for k, (name, one) in enumerate(maps().items()):
        one.save(tmp_path / f"{k}.map")
        given = random(5, *one.source.weight.shape[::2], seed=9).to(one.source.weight.dtype)
        expected[f"{k}.map"] = (given, one.apply(given))
        assert name != "full" or one.apply(given).shape == vectors.shape
    torch.save(expected, tmp_path / "expected.pt")
    script = (
        "import sys, pathlib, torch\n"
        "from hf_xalign.mapping.maps import LanguageMap\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "for name, (given, found) in torch.load(folder / 'expected.pt').items():\n"
        "    assert torch.equal(LanguageMap.load(folder / name).apply(given), found), name\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_saving_again_replaces_whole(tmp_path, monkeypatch):
    path = tmp_path / "map"
    maps()["full"].save(path)
    maps()["plain"].save(path)
    before = path.read_bytes()
    assert LanguageMap.load(path).target is None

    def fail(number):
        def fsync(descriptor):
            raise OSError(number, "some reason")

        return fsync

    for number, error in ((errno.ENOSPC, InputError), (errno.EIO, OSError)):
        monkeypatch.setattr("hf_xalign.cache.os.fsync", fail(number))
        with pytest.raises(error, match="some reason"):
            maps()["full"].save(path)
        assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_files_that_are_no_maps(tmp_path):
    path = tmp_path / "map"
    with pytest.raises(InputError, match="no maps that could be read"):
        LanguageMap.load(path)
    with pytest.raises(InputError, match="no maps that could be read"):
        LanguageMap.load(tmp_path)
    path.write_text("de 0.1 0.2")
    with pytest.raises(InputError, match=f"{path}: no maps that could be read"):
        LanguageMap.load(path)
    maps()["full"].save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="no maps that could be read"):
        LanguageMap.load(path)
    save_file({"source.weight": random(1, 4, 4)}, path, {"format": "pt"})
    with pytest.raises(InputError, match=r"no maps of this library; they are written by LanguageMap\.save"):
        LanguageMap.load(path)
    save_file({"source.weight": random(1, 4, 4)}, path, {"format": "hf_xalign.map", "version": "2"})
    with pytest.raises(InputError, match="maps in version 2 of this library's format"):
        LanguageMap.load(path)


# --- refusals --------------------------------------------------------------------------------------------------------


def test_vectors_that_do_not_fit():
    one = LanguageMap(side(out=3), side(out=3, size=5, seed=7), layers=(-2, -1))
    for vectors in (random(5, 2, 3), random(5, 3, 4), random(5, 4), random(4), torch.ones(5, 2, 4, dtype=torch.long)):
        with pytest.raises(InputError, match=r"source vectors .* for floats of shape \(n, 2, 4\), layers \(-2, -1\)"):
            one.project(vectors)
    with pytest.raises(InputError, match=r"target vectors .* \(n, 2, 5\)"):
        one.project(random(5, 2, 4), "target")
    with pytest.raises(InputError, match=r"target vectors .* \(n, 2, 3\)"):
        replace(one, target=None).project(random(5, 2, 4), "target")


def test_sides_that_do_not_fit():
    with pytest.raises(InputError, match="2 matrices need as many layers"):
        LanguageMap(side())
    for other in (side(layers=1, seed=7), side(out=3, seed=7)):
        with pytest.raises(InputError, match="both sides need as many layers"):
            LanguageMap(side(), other, layers=(0, 1))


def test_what_has_no_inverse():
    with pytest.raises(InputError, match="from 4 to 3 dimensions has no inverse"):
        LanguageMap(side(out=3), layers=(0, 1)).inverse()
    flat = side(seed=7)
    flat.weight[1, 2] = 2 * flat.weight[1, 1]
    with pytest.raises(InputError, match="singular"):
        LanguageMap(flat, layers=(0, 1)).inverse()
    assert side().inverted.dtype is torch.float64
    onto_flat = LanguageMap(side(), flat, layers=(0, 1))
    onto_flat.inverse()  # back through the source's side, which has one
    for call in (lambda: onto_flat.apply(random(5, 2, 4)), onto_flat.affine):
        with pytest.raises(InputError, match="singular"):
            call()


@pytest.mark.parametrize("which", ["source", "target"])
def test_lengths_are_no_affine_map(which):
    sides = {"source": side(), "target": side(seed=7), which: side(("unit",))}
    with pytest.raises(InputError, match="divides vectors by their length"):
        LanguageMap(**sides, layers=(0, 1)).affine()


def test_matched():
    one, other = matched(random(5, 4), random(5, 6), (-1,))
    assert one.shape == (5, 1, 4) and other.shape == (5, 1, 6)
    assert matched(random(5, 2, 4), random(5, 2, 4), (0, 1))[0].shape == (5, 2, 4)
    for source, target, layers, message in [
        (random(5, 4), random(4, 4), (0,), "5 source vectors of 1 layers for 4 target vectors"),
        (random(5, 2, 4), random(5, 4), (0, 1), "2 layers for 5 target vectors of 1"),
        (random(5, 2, 4), random(5, 2, 4), (7,), r"layers=\(7,\): the vectors are of 2 layers"),
        (random(5, 4), random(0, 4), (0,), r"target vectors: shape \(0, 4\) is empty"),
        (random(4), random(4), (0,), "source vectors: expected floats of shape"),
    ]:
        with pytest.raises(InputError, match=message):
            matched(source, target, layers)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_languages_vectors(dtype):
    vectors = random(5, 4, dtype=dtype)
    assert torch.equal(check_vectors(vectors, "some"), vectors.unsqueeze(1))
    assert torch.equal(check_vectors(vectors, "some", random(9, 1, 4)), vectors.unsqueeze(1))
    largest = torch.full((2, 3, 4), torch.finfo(dtype).max, dtype=dtype)
    assert check_vectors(largest, "some") is largest
    for value in (float("nan"), float("inf"), float("-inf")):
        bad = random(5, 2, 4, dtype=dtype)
        bad[3, 1, 2] = bad[4, 0, 0] = value
        with pytest.raises(InputError, match=r"some words: row 3 \(of 5\) holds NaN or infinity: check the model"):
            check_vectors(bad, "some words")
    for given, message in [
        (random(4), "expected floats"),
        (random(1, 1, 1, 4), "expected floats"),
        (torch.ones(5, 4, dtype=torch.long), "got torch.int64"),
        (random(0, 4), "is empty"),
        (random(5, 0), "is empty"),
        (random(5, 3), r"shape \(5, 3\) for matched vectors of 1 layers and 4 dimensions"),
        (random(5, 2, 4), "for matched vectors of 1 layers"),
    ]:
        with pytest.raises(InputError, match=f"some: .*{message}"):
            check_vectors(given, "some", random(9, 1, 4))


def test_unit():
    vectors = random(3, 2, 4)
    vectors[1, 1] = 0
    found = unit(vectors.requires_grad_())
    found.sum().backward()
    assert vectors.grad.isfinite().all()
    vectors, found = vectors.detach(), found.detach()
    assert torch.equal(found[1, 1], torch.zeros(4, dtype=torch.float64))
    lengths = found.norm(dim=-1)
    lengths[1, 1] = 1
    close(lengths, torch.ones(3, 2, dtype=torch.float64))
    close(found * vectors.norm(dim=-1, keepdim=True), vectors)
    close(unit(vectors * 1e-20), found)
    assert unit(vectors.bfloat16()).dtype is torch.bfloat16
