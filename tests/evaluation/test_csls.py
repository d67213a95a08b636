from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.evaluation import csls
from hf_xalign.evaluation.csls import nearest_neighbours


def unit(vector):
    norm = float(np.sqrt((vector * vector).sum()))
    return vector / norm if norm > 0 else vector


def loop_mean_of_nearest(x, others, k):
    """r(x): mean of the k largest cosines, one dot product at a time."""
    return float(np.mean(sorted((float(np.dot(unit(x), unit(y))) for y in others), reverse=True)[:k]))


def loop_nearest(source, target, k=10, use_csls=True):
    """CSLS by its formula in float64, all loops; the first of equal scores wins."""
    source, target = source.double().numpy(), target.double().numpy()
    r_source = [loop_mean_of_nearest(x, target, k) if use_csls else 0.0 for x in source]
    r_target = [loop_mean_of_nearest(y, source, k) if use_csls else 0.0 for y in target]
    scores = np.empty((len(source), len(target)))
    for i, x in enumerate(source):
        for j, y in enumerate(target):
            scores[i, j] = 2 * float(np.dot(unit(x), unit(y))) - r_source[i] - r_target[j]
    return np.argmax(scores, axis=1).tolist(), np.argmax(scores, axis=0).tolist()


def loop_legacy(source, target, k=10):
    """PEERS 2.3: queries by their norm, candidates and hubness by the Frobenius norm of the whole matrix."""
    source, target = source.double().numpy(), target.double().numpy()
    whole_source = source / np.sqrt((source**2).sum())
    whole_target = target / np.sqrt((target**2).sum())
    similarity = whole_source @ whole_target.T
    hub_source = np.sort(similarity, axis=1)[:, -k:].mean(axis=1)
    hub_target = np.sort(similarity, axis=0)[-k:].mean(axis=0)
    forward = [int(np.argmax(2 * whole_target @ unit(x) - hub_target)) for x in source]
    backward = [int(np.argmax(2 * whole_source @ unit(y) - hub_source)) for y in target]
    return forward, backward


def as_lists(found):
    return found.source_to_target.tolist(), found.target_to_source.tolist()


def vectors(seed, rows, dim=12, hubs=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, dim, generator=generator)
    if hubs:
        spread = torch.linspace(1.0, 0.05, dim)
        x = x * spread + 0.5 + torch.randn(rows, 1, generator=generator).square() * 0.5
    return x * torch.exp(torch.randn(rows, 1, generator=generator))


@pytest.fixture(params=[4096, 32])
def tile(request, monkeypatch):
    """Once in a single tile, once in many (with ragged ones at the edges)."""
    monkeypatch.setattr(csls, "_TILE", request.param)


@pytest.mark.usefixtures("tile")
class TestAgainstLoops:
    @pytest.mark.parametrize("hubs", [False, True])
    @pytest.mark.parametrize("shape", [(70, 70), (33, 97), (90, 5), (1, 40), (1, 1)])
    def test_csls(self, shape, hubs):
        source, target = vectors(1, shape[0], hubs=hubs), vectors(2, shape[1], hubs=hubs)
        assert as_lists(nearest_neighbours(source, target)) == loop_nearest(source, target)

    @pytest.mark.parametrize("k", [1, 3, 40, 1000])
    def test_neighbourhood_sizes_up_to_more_than_the_pool(self, k):
        source, target = vectors(3, 61, hubs=True), vectors(4, 45, hubs=True)
        assert as_lists(nearest_neighbours(source, target, k=k)) == loop_nearest(source, target, k=k)

    def test_cosine(self):
        source, target = vectors(5, 50, hubs=True), vectors(6, 67, hubs=True)
        found = as_lists(nearest_neighbours(source, target, similarity="cosine"))
        assert found == loop_nearest(source, target, use_csls=False)
        assert found != loop_nearest(source, target), "the case must tell cosine from CSLS"

    def test_the_lowest_of_equal_vectors_wins(self):
        source, target = vectors(7, 40), vectors(8, 50)
        target[49] = target[48] = target[37] = target[2] = source[11]
        source[39] = source[20] = source[11]
        source[5] = target[44] = 4 * target[10]  # a power of two: equal after normalisation, to the bit
        found = nearest_neighbours(source, target)
        assert found.source_to_target[[11, 20, 39]].tolist() == [2, 2, 2]
        assert found.target_to_source[[2, 37, 48, 49]].tolist() == [11, 11, 11, 11]
        assert found.source_to_target[5] == 10
        assert as_lists(found) == loop_nearest(source, target)

    def test_equal_scores_of_different_vectors_give_the_lowest_index(self):
        # One axis each: all cosines are exactly 0 or 1, so every query ties over many candidates.
        source, target = torch.eye(80)[:60].clone(), torch.eye(80)[50:80].flip(0).clone()
        found = as_lists(nearest_neighbours(source, target, k=1))
        assert found == loop_nearest(source, target, k=1)
        assert found[0][0] == 0, "a query without a partner ties over all candidates without one"

    def test_all_vectors_equal(self):
        found = as_lists(nearest_neighbours(torch.ones(50, 3), torch.ones(70, 3)))
        assert found == ([0] * 50, [0] * 70)

    def test_zero_vectors_have_cosine_zero_and_no_nan(self):
        source, target = vectors(9, 40), vectors(10, 50)
        source[3] = source[17] = target[21] = 0.0
        assert as_lists(nearest_neighbours(source, target)) == loop_nearest(source, target)
        assert as_lists(nearest_neighbours(torch.zeros(20, 4), torch.zeros(9, 4))) == ([0] * 20, [0] * 9)

    def test_legacy(self):
        source, target = vectors(11, 60), vectors(12, 75)
        found = as_lists(nearest_neighbours(source, target, legacy=True))
        assert found == loop_legacy(source, target)
        assert found != loop_nearest(source, target), "the case must tell the published variant from CSLS"

    def test_ascending_similarity(self):
        # Every later tile is nearer than all before it: the running k best are replaced over and over.
        angle = torch.linspace(1.5, 0.0, 150)
        source = torch.stack([angle.cos(), angle.sin(), torch.zeros(150)], 1)
        target = vectors(13, 140, dim=3, hubs=True)
        assert as_lists(nearest_neighbours(source, target)) == loop_nearest(source, target)


def test_mean_of_nearest_is_the_loops_value():
    source, target = vectors(14, 45, hubs=True), vectors(15, 37, hubs=True)
    units = [csls.unit_rows(side, "side") for side in (source, target)]
    r_source, r_target = csls._mean_of_nearest(csls._extend(units[0], 0), csls._extend(units[1], 1), 45, 37, 10)
    wanted = [loop_mean_of_nearest(x, target.double().numpy(), 10) for x in source.double().numpy()]
    assert np.allclose(r_source.numpy(), wanted, atol=1e-6)
    wanted = [loop_mean_of_nearest(y, source.double().numpy(), 10) for y in target.double().numpy()]
    assert np.allclose(r_target.numpy(), wanted, atol=1e-6)


def test_equal_rows_are_found_whatever_the_sign_of_zero():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -0.0], [0.0, 1.0], [0.5, 0.5]])
    assert csls.first_equal(x).tolist() == [0, 1, 0, 1, 4]


def test_ties_between_equal_vectors_are_not_left_to_rounding(monkeypatch):
    source, target = vectors(26, 6), vectors(27, 5)
    source[4] = source[1]
    target[3] = target[0]
    # As if rounding had favoured the later copy, and had answered equal queries (sources 1 and 4) unequally.
    rounded = csls.Neighbours(torch.tensor([3, 3, 2, 1, 2, 4]), torch.tensor([4, 4, 2, 1, 0]))
    monkeypatch.setattr(csls, "_best", lambda *_: rounded)
    assert as_lists(nearest_neighbours(source, target)) == ([0, 0, 2, 1, 0, 4], [1, 1, 2, 1, 0])


def test_large_and_tiny_values_keep_their_direction():
    source, target = vectors(16, 30), vectors(17, 30)
    wanted = as_lists(nearest_neighbours(source, target))
    scale = torch.logspace(-25, 25, 30)[:, None]
    assert as_lists(nearest_neighbours(source * scale, target * scale.flip(0))) == wanted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types_are_scored_in_float32(dtype):
    source, target = vectors(18, 60).to(dtype), vectors(19, 60).to(dtype)
    wanted = loop_nearest(source.float(), target.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert as_lists(nearest_neighbours(source, target)) == wanted


def test_reduced_precision_is_suspended_and_put_back():
    seen = []
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with csls.plain_float32(torch.device("cpu")):
            seen = [backend.fp32_precision for backend in backends]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == ["ieee", "ieee"]


def test_vectors_that_require_grad_are_left_alone():
    source = vectors(20, 20).requires_grad_()
    kept = source.detach().clone()
    found = nearest_neighbours(source, vectors(21, 20))
    assert not found.source_to_target.requires_grad
    assert torch.equal(source, kept) and source.grad is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_bad_row_is_named(value, legacy):
    target = vectors(22, 20)
    target[13, 4] = value
    with pytest.raises(InputError, match=r"target vectors: row 13 \(of 20\)"):
        nearest_neighbours(vectors(23, 10), target, legacy=legacy)


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (torch.ones(3, 4), torch.ones(3, 5), {}, "4 dimensions and target vectors 5"),
        (torch.ones(0, 4), torch.ones(3, 4), {}, "source vectors: no rows"),
        (torch.ones(3), torch.ones(3, 4), {}, "source vectors: expected a floating-point matrix"),
        (torch.ones(3, 4), torch.ones(3, 4).long(), {}, "target vectors: expected a floating-point matrix"),
        (torch.ones(3, 4), torch.ones(3, 4), {"k": 0}, "k=0"),
        (torch.ones(3, 4), torch.ones(3, 4), {"similarity": "dot"}, "'dot' is not known"),
        (torch.ones(3, 4), torch.ones(3, 4), {"similarity": "cosine", "legacy": True}, "variant of CSLS"),
    ],
)
def test_bad_input(source, target, options, message):
    with pytest.raises(InputError, match=message):
        nearest_neighbours(source, target, **options)


@pytest.mark.gpu
def test_gpu_equals_cpu():
    source, target = vectors(24, 3000, dim=64, hubs=True), vectors(25, 5000, dim=64, hubs=True)
    found = nearest_neighbours(source, target, device="cuda")
    wanted = nearest_neighbours(source, target)
    agree = [(a.cpu() == b).double().mean().item() for a, b in zip(found, wanted)]
    assert min(agree) > 0.999, "only near-ties may differ"
