"""The contrasts of sentences against sums written term by term, in float64."""

from __future__ import annotations

import math

import pytest
import torch

from hf_xalign.losses import moco_infonce, sentence_infonce

T = 0.07
PAIRS = torch.tensor([3, 8, 5, 8])
QUEUE_PAIRS = torch.tensor([8, -1, 2, 3, 3, -2, 0, -1, 8])


def vectors(rows, seed, dim=6, **options):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), **{"dtype": torch.float64, **options})


def dot(a, b):
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True)) / T


def one_against(positive, negatives):
    return -math.log(math.exp(positive) / (math.exp(positive) + sum(math.exp(other) for other in negatives)))


def mocos(queries, keys, queue, left_out):
    return [
        one_against(dot(q, k), [dot(q, queue[j]) for j in range(len(queue)) if not left_out(i, j)])
        for i, (q, k) in enumerate(zip(queries, keys, strict=True))
    ]


MASKS = {
    "published": ({}, lambda i, j: False),
    "empty slots": ({"queue_pairs": QUEUE_PAIRS}, lambda i, j: j in (1, 7)),
    "own pair": (
        {"queue_pairs": QUEUE_PAIRS, "pairs": PAIRS},
        lambda i, j: j in (1, 7) or j in {0: (3, 4), 1: (0, 8), 2: (), 3: (0, 8)}[i],
    ),
}


@pytest.mark.parametrize("form", MASKS)
def test_moco_is_the_sum_written_out(form):
    given, left_out = MASKS[form]
    queries, keys, queue = vectors(4, 0) / 3, vectors(4, 1) / 3, vectors(9, 2) / 3
    found = moco_infonce(queries, keys, queue, temperature=T, **given)
    expected = torch.tensor(mocos(queries, keys, queue, left_out), dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_moco_gradients_are_those_of_finite_differences():
    given, _ = MASKS["own pair"]
    queries = vectors(4, 0).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda q: moco_infonce(q, vectors(4, 1), vectors(9, 2), temperature=1.0, **given), (queries,)
    )


def test_without_a_negative_there_is_no_loss_and_no_gradient():
    queries = vectors(2, 0).requires_grad_()
    empty = torch.full((5,), -1)
    loss = moco_infonce(queries, vectors(2, 1), vectors(5, 2), temperature=T, queue_pairs=empty)
    loss.sum().backward()
    assert torch.equal(loss, torch.zeros(2, dtype=torch.float64)) and torch.equal(queries.grad, torch.zeros(2, 6))


def test_pairs_need_the_pairs_of_the_queue():
    with pytest.raises(ValueError, match="queue_pairs"):
        moco_infonce(vectors(4, 0), vectors(4, 1), vectors(9, 2), temperature=T, pairs=PAIRS)


@pytest.mark.parametrize("pairs", [None, PAIRS])
def test_in_batch_contrast_is_the_sum_written_out_in_both_directions(pairs):
    source, target = vectors(4, 0) / 3, vectors(4, 1) / 3
    expected = []
    for x, y in ((source, target), (target, source)):
        for i in range(4):
            others = [j for j in range(4) if j != i and (pairs is None or (i, j) not in ((1, 3), (3, 1)))]
            expected.append(one_against(dot(x[i], y[i]), [dot(x[i], y[j]) for j in others]))
    found = sentence_infonce(source, target, temperature=T, pairs=pairs)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_in_batch_gradients_are_those_of_finite_differences():
    sides = vectors(4, 0).requires_grad_(), vectors(4, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: sentence_infonce(x, y, temperature=1.0, pairs=PAIRS), sides)


def test_autocast_leaves_the_logits_in_float32():
    queries, keys, queue = (vectors(rows, seed, dtype=torch.float32) for rows, seed in ((4, 0), (4, 1), (9, 2)))
    plain = moco_infonce(queries, keys, queue, temperature=T), sentence_infonce(queries, keys, temperature=T)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = moco_infonce(queries, keys, queue, temperature=T), sentence_infonce(queries, keys, temperature=T)
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))
    half = [tensor.bfloat16() for tensor in (queries, keys, queue)]
    rounded = moco_infonce(*half, temperature=T)
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, moco_infonce(*(tensor.float() for tensor in half), temperature=T))
