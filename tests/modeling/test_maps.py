"""The map object: what it does to vectors, as one affine map, and on disk."""

import pytest
import torch
from support.maps import conditioned, normal
from support.numeric import assert_rounding

from hf_xalign.errors import InputError
from hf_xalign.modeling.maps import LanguageMap, SideMap

STEPS = [(), ("center",), ("unit",), ("unit", "center"), ("center", "unit"), ("unit", "center", "unit")]
# One side on at most 6 dimensions: three steps (a length takes 2 x 6 operations, its division 2), a product and an
# offset.
LONGEST = 3 * (2 * 6 + 2) + 2 * 6 + 1
# Vectors and means are at most 5 long, matrices stretch twofold at most, and a step that takes a mean off leaves a
# third of the length at least.
SCALE = 5 * 2 * 3


def side(steps=(), offset=True, layers=2, out=4, size=4, seed=0):
    return SideMap(
        conditioned(layers, out, size, seed=seed),
        normal(layers, out, seed=seed + 1) if offset else None,
        steps,
        tuple(normal(layers, size, seed=seed + 2 + k) for k in range(steps.count("center"))),
    )


def one_by_one(part, vectors):
    found = torch.zeros(len(vectors), *part.weight.shape[:2], dtype=vectors.dtype)
    for n in range(len(vectors)):
        for layer in range(vectors.shape[1]):
            x, means = vectors[n, layer].clone(), list(part.means)
            for step in part.steps:
                if step == "center":
                    x = x - means.pop(0)[layer]
                elif x.norm() > 0:
                    x = x / x.norm()
            for row in range(part.weight.shape[1]):
                found[n, layer, row] = sum(part.weight[layer, row, k] * x[k] for k in range(len(x)))
            if part.offset is not None:
                found[n, layer] += part.offset[layer]
    return found


def close(one, other, sides=1, **about):
    """`sides`: how many sides the vectors have passed."""
    assert_rounding(one, other, **{"operations": sides * LONGEST, "scale": SCALE, **about})


@pytest.mark.parametrize("steps", STEPS, ids=" ".join)
def test_project(steps):
    vectors, target = normal(5, 2, 4, seed=9), normal(5, 2, 6, seed=8)
    vectors[1, 0] = 0
    for offset in (True, False):
        part = side(steps, offset, out=3)
        one = LanguageMap(part, layers=(0, 3))
        close(one.project(vectors), one_by_one(part, vectors))
        other = LanguageMap(part, side(("center",), out=3, size=6, seed=20), layers=(0, 3))
        close(other.project(vectors), one.project(vectors))
        close(other.project(target, "target"), one_by_one(other.target, target))
        # A target without a map of its own is compared as it is.
        assert torch.equal(one.project(normal(5, 2, 3), "target"), normal(5, 2, 3))


def test_autocast_rounds_nothing():
    part = side(("center",))
    part = SideMap(part.weight.float(), None, part.steps, tuple(mean.float() for mean in part.means))
    one, vectors = LanguageMap(part, layers=(0, 1)), normal(5, 2, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = one.project(vectors)
    assert found.dtype is torch.float32 and torch.equal(found, one.project(vectors))


def test_affine():
    vectors = normal(5, 2, 4, seed=9)
    for steps in ((), ("center",)):
        one = LanguageMap(side(steps), layers=(0, 1))
        weight, offset = one.affine()
        close(torch.einsum("loi,nli->nlo", weight, vectors) + offset, one.project(vectors), sides=2)
    with pytest.raises(InputError, match="changes both languages"):
        LanguageMap(side(), side(), layers=(0, 1)).affine()


def test_affine_keeps_float32_accurate():
    # W m_s and m_t are long and near each other: in float32 their difference would be rounding alone.
    weight = conditioned(1, 4, 4, condition=1).float()
    mean = (normal(1, 4, seed=1) * 1e4).float()
    offset = (weight.double() @ mean.double().unsqueeze(-1)).squeeze(-1).float()
    found = LanguageMap(SideMap(weight, offset, ("center",), (mean,))).affine()[1]
    wanted = offset.double() - (weight.double() @ mean.double().unsqueeze(-1)).squeeze(-1)
    assert_rounding(found, wanted, operations=1)


def maps():
    mean = normal(2, 4, seed=5)
    shared = SideMap(normal(2, 4, 4), None, ("center", "unit", "center"), (mean, mean))
    return {
        "narrow": LanguageMap(SideMap(normal(1, 3, 4, dtype=torch.bfloat16)), layers=(7,), source_lang="bn"),
        "full": LanguageMap(
            side(("unit", "center", "unit"), size=6),
            side(("center",), seed=7),
            "vecmap(whiten=True) «é»",
            (-2, -1),
            "de",
            "en",
        ),
        "one tensor twice": LanguageMap(shared, shared, layers=(0, 1)),
        "a view": LanguageMap(SideMap(normal(4, 4, 2).permute(2, 0, 1)), layers=(0, 1)),
    }


def parts(part):
    return [] if part is None else [part.weight, *([] if part.offset is None else [part.offset]), *part.means]


def test_files_are_bitwise(tmp_path):
    for k, (name, one) in enumerate(maps().items()):
        path = tmp_path / str(k) / "map.safetensors"
        one.save(path)
        assert list(path.parent.iterdir()) == [path]
        two = LanguageMap.load(str(path))
        for field in ("method", "layers", "source_lang", "target_lang"):
            assert getattr(two, field) == getattr(one, field), (name, field)
        assert (two.target is None) == (one.target is None), name
        assert two.source.steps == one.source.steps and (one.target is None or two.target.steps == one.target.steps)
        for old, new in ((one.source, two.source), (one.target, two.target)):
            for before, after in zip(parts(old), parts(new), strict=True):
                assert before.dtype == after.dtype and torch.equal(before, after), name
