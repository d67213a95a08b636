"""RCSLS: loss and gradient against loops, a true rollback, the spectral ball, exact neighbourhoods in any chunk."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.mapping.maps import LanguageMap, unit
from hf_xalign.mapping.neighbourhoods import Neighbourhoods
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.rcsls import _loss_and_gradient, rcsls


def languages(count, dim=8, out=None, *, noise=0.3, mean=1.0, decay=0.0, seed=0, dtype=torch.float64):
    """Unit vectors of `count` words and of their translations: a rotation, noise, a shared mean, main directions."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    out = out or dim
    words = normal(count, dim) * torch.arange(1, dim + 1).double() ** -decay + mean * normal(dim)
    rotation = torch.linalg.qr(normal(max(dim, out), max(dim, out)))[0][:out, :dim]
    target = words @ rotation.T + noise * words.std() * normal(count, out)
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


@pytest.mark.parametrize("out", [6, 8, 11])
def test_loss_is_the_formula(out):
    x_pool, y_pool = languages(30, 8, out)
    x, y = x_pool[:12], y_pool[:12]
    weight = torch.randn(out, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = value(weight, x, y, x_pool, y_pool, 4)
    assert found == pytest.approx(loop_loss(weight, x, y, x_pool, y_pool, 4), abs=1e-12)


def test_gradient_is_that_of_finite_differences():
    x_pool, y_pool = languages(25, 5)
    x, y = x_pool[:9], y_pool[:9]
    weight = procrustes(x, y).source.weight[0]
    _, gradient = _loss_and_gradient(weight, x, y, search(x_pool), search(y_pool))
    step = 1e-6
    for i in range(5):
        for j in range(5):
            delta = torch.zeros_like(weight)
            delta[i, j] = step
            high, low = (value(weight + sign * delta, x, y, x_pool, y_pool, 3) for sign in (1, -1))
            assert (high - low) / (2 * step) == pytest.approx(float(gradient[i, j]), abs=1e-7)


@pytest.mark.parametrize("count", [5, 16, 79, 1003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbourhoods_are_exact(count, dtype):
    candidates, queries = languages(count, 24, noise=0.5, dtype=dtype)
    scores = queries.double() @ candidates.double().T
    found = scores.gather(1, search(candidates, 5, 7000)(queries)).sort(1, descending=True).values
    torch.testing.assert_close(found, scores.topk(5).values, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-13)


@pytest.mark.parametrize(("move", "again"), [(0.0, (0, 0)), (0.015, (1, 150)), (0.03, (151, 299)), (1.0, (300, 300))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbourhoods_of_moved_queries_are_exact(monkeypatch, move, again, dtype):
    candidates, queries = languages(2000, 24, noise=0.5, dtype=dtype)
    queries = queries[:60]
    near = search(candidates, 5)
    near(queries)
    searched = []
    whole = near._search
    monkeypatch.setattr(near, "_search", lambda part, buffer: searched.append(len(part)) or whole(part, buffer))
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        size = queries.norm(dim=1, keepdim=True)
        queries = 2 * (queries + move * size * torch.randn(queries.shape, generator=generator).to(dtype))
        scores = queries.double() @ candidates.double().T
        found = scores.gather(1, near(queries)).sort(1, descending=True).values
        rounding = float(size.max()) * (5e-6 if dtype == torch.float32 else 1e-13)
        torch.testing.assert_close(found, scores.topk(5).values, rtol=0, atol=rounding)
    assert again[0] <= sum(searched) <= again[1]


def test_neighbourhoods_of_turned_queries_are_exact():
    candidates, queries = languages(30, dtype=torch.float64)
    near = search(candidates)
    near(queries)
    for turned in (queries, -queries, queries.flip(1)):
        expected = (turned @ candidates.T).topk(3).indices.sort(1).values
        assert torch.equal(near(turned).sort(1).values, expected)


def test_a_candidate_that_was_on_no_list_is_found():
    """The neighbours of (1, 0), all but one, fall behind vectors that were far off when the query turns up."""
    rows = [[1.0, 1.0], *[[1.0, -1.0]] * 4, *[[0.2, 0.0]] * 59, *[[0.19, 1.0]] * 10]
    candidates = torch.tensor([*rows, *([-a, -b] for a, b in rows)], dtype=torch.float64)
    near = search(candidates, 5)
    assert sorted(near(torch.tensor([[1.0, 0.0]], dtype=torch.float64))[0].tolist()) == [0, 1, 2, 3, 4]
    found = near(torch.tensor([[1.0, 0.45]], dtype=torch.float64))[0]
    assert found.min() == 0 and (found >= 64).sum() == 4 and found.max() < 74


@pytest.mark.parametrize("factor", [0.0, 1e-30, 1e30])
def test_lengths_of_queries_do_not_matter(factor):
    queries, candidates = languages(40, 8, dtype=torch.float32)
    found = search(candidates)(queries * factor)
    assert all(len(set(row)) == 3 for row in found.tolist())
    if factor:
        assert torch.equal(found.sort(1).values, search(candidates)(queries).sort(1).values)


def test_equal_candidates_are_all_found():
    candidates = languages(1)[0].expand(20, 8).contiguous()
    assert all(len(set(row)) == 3 for row in search(candidates)(candidates[:2]).tolist())


@pytest.mark.parametrize("learning_rate", [1.0, 50.0, 1e6, 1e30])
@pytest.mark.parametrize("spectral", [False, True])
def test_a_rise_is_taken_back(learning_rate, spectral):
    x, y = languages(40, noise=1.0)
    history = []
    found = rcsls(
        x,
        y,
        k=3,
        epochs=8,
        learning_rate=learning_rate,
        spectral=spectral,
        callback=lambda *event: history.append(event),
    )
    losses, rates = zip(*(event[2:] for event in history))
    assert [event[:2] for event in history] == [(-1, epoch) for epoch in range(9)]
    start = procrustes(x, y).source.weight[0]
    assert losses[0] == pytest.approx(loop_loss(start, x, y, x, y, 3), abs=1e-12)
    assert all(after <= before for before, after in pairwise(losses))
    # The rate is halved exactly where the loss stays.
    for epoch in range(1, 9):
        assert rates[epoch] == rates[epoch - 1] / (2 if losses[epoch] == losses[epoch - 1] else 1)
    weight = found.source.weight[0]
    assert losses[-1] == pytest.approx(loop_loss(weight, x, y, x, y, 3), rel=1e-10)
    if learning_rate == 1e6 and spectral:
        assert rates[-1] < learning_rate  # this case does take something back


def test_it_ends_when_the_rate_is_low():
    x, y = languages(40, noise=1.0)
    rates = []
    rcsls(x, y, k=3, epochs=1000, learning_rate=1e3, spectral=True, callback=lambda *event: rates.append(event[3]))
    assert rates[-1] < 1e-4 <= rates[-2] and len(rates) < 1000


def test_no_epochs_is_procrustes():
    x, y = languages(20)
    found = rcsls(x, y, epochs=0).source.weight
    torch.testing.assert_close(found, procrustes(x, y).source.weight, rtol=0, atol=1e-12)


def test_spectral_stays_in_the_ball():
    x, y = languages(60, noise=0.8)
    free, clipped = (
        torch.linalg.svdvals(rcsls(x, y, k=3, learning_rate=5, spectral=spectral).source.weight)
        for spectral in (False, True)
    )
    assert clipped.max() <= 1 + 1e-6 < free.max()


def test_beats_procrustes_on_its_measure():
    x, y = languages(400, 16, noise=0.6, mean=1.5)
    scores = {}
    for name, found in (
        ("procrustes", procrustes(x[:200], y[:200])),
        (
            "rcsls",
            rcsls(
                x[:200],
                y[:200],
                source_candidates=x,
                target_candidates=y,
                k=5,
                learning_rate=5,
            ),
        ),
    ):
        mapped, rest = unit(found.project(x)), found.project(y, "target")
        cosine = mapped @ rest.T
        csls = 2 * cosine - cosine.topk(5).values.mean(1)[:, None] - cosine.topk(5, 0).values.mean(0)
        scores[name] = float((csls[:200].argmax(1) == torch.arange(200)).double().mean())
    assert scores["rcsls"] > scores["procrustes"]


@pytest.mark.parametrize("chunk", [1, 500, 4001])
def test_chunks_change_nothing(chunk):
    x, y = languages(300, 40, decay=1.0)
    options = {"source_candidates": x, "target_candidates": y, "epochs": 4}
    whole = rcsls(x[:50], y[:50], **options).source.weight
    parts = rcsls(x[:50], y[:50], **options, chunk=chunk).source.weight
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-10)


def test_more_candidates_change_the_map():
    x, y = languages(60)
    alone = rcsls(x[:20], y[:20], k=3).source.weight
    for name, pool in (("source_candidates", x), ("target_candidates", y)):
        assert not torch.allclose(rcsls(x[:20], y[:20], k=3, **{name: pool}).source.weight, alone, atol=1e-4)


def test_same_bits_twice():
    x, y = languages(200, 40, decay=1.0, dtype=torch.float32)
    first, second = (rcsls(x[:80], y[:80], source_candidates=x, target_candidates=y) for _ in range(2))
    assert torch.equal(first.source.weight, second.source.weight)


def test_any_layout():
    x, y = languages(60)
    found = rcsls(x.T.contiguous().T, y.repeat(1, 2)[:, :8], k=3).source.weight
    torch.testing.assert_close(found, rcsls(x, y, k=3).source.weight, rtol=0, atol=1e-12)


def test_reduced_precision_around_it_changes_nothing():
    x, y = (side.requires_grad_() for side in languages(60, dtype=torch.float32))
    wanted = rcsls(x, y, k=3).source.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = rcsls(x, y, k=3).source.weight
    assert torch.equal(found, wanted) and not found.requires_grad


@pytest.mark.gpu
@pytest.mark.parametrize("steps", [("unit",), ("unit", "centre", "unit")])
def test_gpu_equals_cpu(steps):
    x, y = languages(600, 40, noise=0.6, dtype=torch.float32)
    options = {"steps": steps, "epochs": 4}
    wanted = rcsls(x[:200], y[:200], source_candidates=x, target_candidates=y, **options)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        found = rcsls(x[:200].cuda(), y[:200], source_candidates=x, target_candidates=y.cuda(), **options)
    finally:
        torch.set_float32_matmul_precision(before)
    assert found.source.weight.is_cuda
    torch.testing.assert_close(found.source.weight.cpu(), wanted.source.weight, atol=1e-4, rtol=1e-4)


def test_each_layer_by_itself():
    sides = [torch.stack(pair, 1) for pair in zip(languages(60, 8, 10), languages(60, 8, 10, seed=5))]
    both = rcsls(*(side[:30] for side in sides), source_candidates=sides[0], k=3, layers=(7, 12))
    assert both.layers == (7, 12) and both.source.weight.shape == (2, 10, 8)
    for n in range(2):
        one = rcsls(*(side[:30, n] for side in sides), source_candidates=sides[0][:, n], k=3)
        torch.testing.assert_close(one.source.weight[0], both.source.weight[n], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [("unit",), ("unit", "centre", "unit")])
def test_dtype_is_kept(dtype, steps):
    x, y = languages(30, dtype=dtype)
    found = rcsls(x, y, k=3, steps=steps)
    assert {found.source.weight.dtype, *(mean.dtype for mean in found.source.means)} == {dtype}


def test_unit_steps_leave_a_linear_map():
    x, y = languages(30)
    lengths = torch.linspace(0.5, 3, 30).double()[:, None]
    found = rcsls(lengths * x, y / lengths, k=3)
    assert found.source.steps == () and found.target is None
    torch.testing.assert_close(found.source.weight, rcsls(x, y, k=3).source.weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.affine()[0], found.source.weight)


def test_centre_takes_off_the_means_of_the_candidates():
    x_pool, y_pool = languages(60)
    found = rcsls(
        x_pool[:30],
        2 * y_pool[:30],
        source_candidates=x_pool,
        target_candidates=y_pool,
        k=3,
        steps=("unit", "centre", "unit"),
    )
    torch.testing.assert_close(found.source.means[0][0], x_pool.mean(0))
    torch.testing.assert_close(found.target.means[0][0], y_pool.mean(0))
    x, y = unit(x_pool - x_pool.mean(0)), unit(y_pool - y_pool.mean(0))
    plain = rcsls(x[:30], y[:30], source_candidates=x, target_candidates=y, k=3)
    torch.testing.assert_close(found.project(x_pool), plain.project(x))
    torch.testing.assert_close(found.project(y_pool, "target"), y)


def test_saved_and_loaded(tmp_path):
    x, y = languages(30, dtype=torch.float32)
    found = rcsls(x, y, k=3, steps=("unit", "centre", "unit"), spectral=True)
    found.save(tmp_path / "map.safetensors")
    again = LanguageMap.load(tmp_path / "map.safetensors")
    assert again.method == found.method and "spectral" in found.method
    for side in ("source", "target"):
        assert torch.equal(again.project(x, side), found.project(x, side))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"k": 13}, "only 12 source candidates; use a smaller k"),
        ({"epochs": -1}, "epochs=-1"),
        ({"learning_rate": 0.0}, "learning_rate=0.0: give at least 0.0001"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"chunk": 0}, "chunk=0"),
        ({"steps": ("unit", "centre")}, "end in 'unit'"),
        ({"steps": ()}, "end in 'unit'"),
        ({"steps": ("whiten", "unit")}, "whiten"),
        ({"source_candidates": torch.zeros(0, 8)}, r"source candidates: shape \(0, 8\) is empty"),
        ({"target_candidates": torch.ones(20, 9)}, r"target candidates: .*\(20, 9\).* 8 dimensions"),
        ({"target_candidates": torch.ones(20, 8).long()}, "target candidates: expected floats .* got torch.int64"),
        ({"source_candidates": torch.ones(20, 2, 8)}, "1 layers"),
        ({"layers": (1, 2)}, r"layers=\(1, 2\): the vectors are of 1 layers"),
    ],
)
def test_bad_options(options, message):
    x, y = languages(12)
    steps = []
    with pytest.raises(InputError, match=message):
        rcsls(x, y, **{"k": 3, "callback": lambda *event: steps.append(event), **options})
    assert not steps, "refused before anything is computed"


@pytest.mark.parametrize("name", ["source", "target", "source_candidates", "target_candidates"])
def test_nan_is_named(name):
    x, y = languages(12)
    given = {"source": x, "target": y, "source_candidates": x.clone(), "target_candidates": y.clone()}
    given[name] = given[name].clone()
    given[name][7, 2] = torch.nan
    with pytest.raises(InputError, match=f"{name.replace('_', ' ')}.* row 7 .of 12. holds NaN"):
        rcsls(**given, k=3)
