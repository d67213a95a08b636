"""The map object: what it does to vectors, back again, as one affine map, and on disk."""

import pytest
import torch
from support.maps import conditioned, normal
from support.numeric import assert_rounding

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
    """`sides`: how many sides the vectors have passed, there or back."""
    assert_rounding(one, other, **{"operations": sides * LONGEST, "scale": SCALE, **about})


@pytest.mark.parametrize("steps", STEPS, ids=" ".join)
def test_project(steps):
    vectors, target = normal(5, 2, 4, seed=9), normal(5, 2, 6, seed=8)
    vectors[1, 0] = 0
    for offset in (True, False):
        part = side(steps, offset, out=3)
        one = LanguageMap(part, layers=(0, 3))
        for found in (one.project(vectors), one.apply(vectors)):
            close(found, one_by_one(part, vectors))
        other = LanguageMap(part, side(("center",), out=3, size=6, seed=20), layers=(0, 3))
        close(other.project(vectors), one.project(vectors))
        close(other.project(target, "target"), one_by_one(other.target, target))
        # A target without a map of its own is compared as it is.
        assert torch.equal(one.project(normal(5, 2, 3), "target"), normal(5, 2, 3))


def test_autocast_rounds_nothing():
    part = side(("center",))
    part = SideMap(part.weight.float(), None, part.steps, tuple(mean.float() for mean in part.means))
    one, vectors = LanguageMap(part, part, layers=(0, 1)), normal(5, 2, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = one.project(vectors), one.apply(vectors)
    assert found[1].dtype is torch.float32
    assert torch.equal(found[0], one.project(vectors)) and torch.equal(found[1], one.apply(vectors))


def test_apply_leads_to_the_targets_own_space():
    vectors, own = normal(5, 2, 4, seed=9), normal(5, 2, 4, seed=10)
    for source, steps in (((), ("center",)), (("unit", "center"), ("center", "center")), (("center",), ())):
        one = LanguageMap(side(source), side(steps, seed=7), layers=(0, 1))
        # Where the target is taken to from there is where the source was taken to.
        close(one.project(one.apply(vectors), "target"), one.project(vectors), sides=3)
    # Of a target that is normalized, the result is the normalized vector.
    target = side(("unit", "center", "unit"), seed=7)
    close(LanguageMap(target, target, layers=(0, 1)).apply(own), target.normalize(own), sides=2)


def test_inverse_and_affine():
    about = {"layers": (0, 1), "source_lang": "de", "target_lang": "en", "method": "some"}
    vectors = normal(5, 2, 4, seed=9)
    for source in ((), ("center",)):
        for target in (None, side(("center",), seed=7)):
            one = LanguageMap(side(source), target, **about)
            back = one.inverse()
            assert (back.source_lang, back.target_lang, back.method, back.layers) == ("en", "de", "some", (0, 1))
            close(back.apply(one.apply(vectors)), vectors, sides=4)
            close(back.project(vectors), one.project(vectors, "target"))
            close(back.project(vectors, "target"), one.project(vectors))
            close(back.inverse().apply(vectors), one.apply(vectors), sides=2)
            for two in (one, back):
                weight, offset = two.affine()
                close(torch.einsum("loi,nli->nlo", weight, vectors) + offset, two.apply(vectors), sides=2)


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


@pytest.mark.parametrize("steps", STEPS, ids=" ".join)
def test_linear(steps):
    vectors = {"source": normal(7, 2, 4, seed=9), "target": 3 * normal(6, 2, 4, seed=8)}
    one = LanguageMap(side(steps), side(steps, False, seed=5), "m", (0, 3))
    found, expected = one.linear(**vectors), {}
    for name, given in vectors.items():
        expected[name], part = torch.zeros_like(given), getattr(one, name)
        for layer in range(2):
            rows, means = list(given[:, layer]), list(part.means)
            for step in part.steps:
                mean = means.pop(0)[layer] if step == "center" else sum(row.norm() for row in rows) / len(rows)
                rows = [row - mean if step == "center" else row / mean for row in rows]
            offset = 0 if part.offset is None else part.offset[layer]
            expected[name][:, layer] = torch.stack([part.weight[layer] @ row + offset for row in rows])
    lengths = {name: rows.norm(dim=-1).mean(0).unsqueeze(-1) for name, rows in expected.items()}
    close(found.project(vectors["source"]), lengths["target"] / lengths["source"] * expected["source"], sides=4)
    close(found.project(vectors["target"], "target"), expected["target"], sides=4)
    weight, offset = found.affine()
    by_matrix = torch.stack([vectors["source"][:, k] @ weight[k].T + offset[k] for k in range(2)], 1)
    close(by_matrix, found.apply(vectors["source"]), sides=8)
