"""Contrasts of sentences and cosines of entries against their formulas, and what every objective owes at its limits.

The tests of trainers compare the losses and gradients of words, of queues and of entries with loops.
"""

import math
from functools import partial

import pytest
import torch
from support.numeric import assert_rounding
from torch.autograd import gradcheck

from hf_xalign.objectives.lexicon import entry_cosine
from hf_xalign.objectives.momentum import moco_infonce
from hf_xalign.objectives.sentences import sentence_infonce
from hf_xalign.objectives.words import word_distance, word_infonce

DIM, T = 6, 0.07
FLOAT64 = torch.float64
EPS = torch.finfo(FLOAT64).eps
# A vector's norm or a product of two: DIM products and sums each; a contrast adds the exponentials of its candidates.
OPERATIONS = 4 * DIM + 20


def vectors(*shape, seed=0, dtype=FLOAT64):
    return torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(seed), dtype=FLOAT64).to(dtype)


def dot(a, b):
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a)) / math.sqrt(dot(b, b))


def against(positive, negatives):
    return -math.log(math.exp(positive) / (math.exp(positive) + sum(math.exp(other) for other in negatives)))


# ---- Distances ----


def test_the_plain_distance_is_nothing_up_to_64_roundings_of_the_vector():
    """The bound itself is nothing yet, more is what it is; a layer beside it, of longer vectors, does not matter."""
    other = torch.zeros(4, 2, DIM, dtype=FLOAT64)
    other[:, 0, 0] = torch.tensor([1, 1, 4, 4])
    other[:, 1, 0] = 1000
    moved = other.clone()
    # In roundings 64, sqrt(52^2 + 39^2) = 65, and four times as many.
    moved[:, 0, :2] += EPS * torch.tensor([[64, 0], [52, 39], [256, 0], [208, 156]])
    moved.requires_grad_()
    found = word_distance(moved, other, norm="l2")
    found.sum().backward()
    assert found.tolist() == [0, 65 * EPS, 0, 260 * EPS]
    assert_rounding(moved.grad[:, 0, :2], [[0.0, 0.0], [0.8, 0.6]] * 2, OPERATIONS)
    assert moved.grad[:, 0, 2:].abs().max() == moved.grad[:, 1].abs().max() == 0
    single = other.float().requires_grad_()
    word_distance(single, single.detach() * (1 + 1e-6), norm="l2").sum().backward()
    assert single.grad.abs().max() == 0
    at_zero = torch.zeros(2, 1, DIM, requires_grad=True)
    word_distance(at_zero, torch.zeros(2, 1, DIM), norm="l2").sum().backward()
    assert at_zero.grad.abs().max() == 0


# ---- Words ----


def test_a_pair_alone_has_nothing_to_be_told_from():
    source, target = vectors(3).requires_grad_(), vectors(3, seed=1).requires_grad_()
    loss = word_infonce(source, target, temperature=0.1, groups=torch.tensor([5, 5, 5]))
    loss.sum().backward()
    assert loss.tolist() == [0.0] * 6
    assert source.grad.abs().max() == target.grad.abs().max() == 0


# ---- Sentences ----

PAIRS = torch.tensor([3, 8, 5, 8])
# Of -1 alone there is no key.
QUEUE_PAIRS = torch.tensor([8, -1, 2, 3, 3, -2, 0, -1, 1])


def test_without_a_negative_there_is_no_loss_and_no_gradient():
    queries, keys = vectors(2).requires_grad_(), vectors(2, seed=1)
    emptied = moco_infonce(queries, keys, vectors(5), temperature=T, queue_pairs=torch.full((5,), -1))
    empty = moco_infonce(queries, keys, vectors(0), temperature=T, queue_pairs=PAIRS[:0])
    alone = sentence_infonce(queries[:1], keys[:1], temperature=T)
    (emptied.sum() + empty.sum() + alone.sum()).backward()
    assert emptied.tolist() == empty.tolist() == alone.tolist() == [0.0, 0.0]
    assert queries.grad.abs().max() == 0
    assert moco_infonce(queries[:0], keys[:0], vectors(4), temperature=T, queue_pairs=PAIRS).shape == (0,)
    assert sentence_infonce(queries[:0], keys[:0], temperature=T).shape == (0,)


@pytest.mark.parametrize("pairs", [None, PAIRS], ids=["published", "own pair"])
def test_sentences_are_contrasted_within_the_batch_in_both_directions(pairs):
    source, target = vectors(4) / 3, vectors(4, seed=1) / 3
    expected = []
    for x, y in ((source, target), (target, source)):
        for i in range(4):
            others = [j for j in range(4) if j != i and (pairs is None or {i, j} != {1, 3})]
            expected.append(against(dot(x[i], y[i]) / T, [dot(x[i], y[j]) / T for j in others]))
    scale = (source @ target.T).abs().max().item() / T
    assert_rounding(sentence_infonce(source, target, temperature=T, pairs=pairs), expected, OPERATIONS, scale)
    single = sentence_infonce(source.float(), target.float(), temperature=T, pairs=pairs)
    assert_rounding(single, expected, OPERATIONS, scale, torch.float32)
    sides = source.requires_grad_(), target.requires_grad_()
    assert gradcheck(lambda x, y: sentence_infonce(x, y, temperature=0.5, pairs=pairs), sides)


def test_sentences_are_contrasted_in_float32_under_autocast_and_of_half_precision():
    single = vectors(4, dtype=torch.float32), vectors(4, seed=1, dtype=torch.float32), vectors(9, dtype=torch.float32)
    for loss, given in ((partial(moco_infonce, queue_pairs=QUEUE_PAIRS), single), (sentence_infonce, single[:2])):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = loss(*given, temperature=T)
        assert torch.equal(cast, loss(*given, temperature=T))
        rounded = loss(*(tensor.bfloat16() for tensor in given), temperature=T)
        assert rounded.dtype == torch.float32
        assert torch.equal(rounded, loss(*(tensor.bfloat16().float() for tensor in given), temperature=T))


# ---- Dictionary entries ----

# Token 3 is in several entries, and on either side; tokens 6 and 9 in none.
ENTRIES = torch.tensor([[3, 7], [0, 3], [5, 2], [3, 8], [1, 4]])


def entry_loop(embeddings, entries):
    return -sum(cosine(*embeddings[entry]) for entry in entries) / len(ENTRIES)


def test_entries_equal_the_loop_in_every_precision():
    expected = entry_loop(vectors(10), ENTRIES)
    assert_rounding(entry_cosine(vectors(10), ENTRIES), expected, OPERATIONS, scale=1)
    single = entry_cosine(vectors(10, dtype=torch.float32), ENTRIES)
    assert single.dtype == torch.float32 and single.shape == ()
    assert_rounding(single, expected, OPERATIONS, scale=1)
    half = vectors(10, dtype=torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = entry_cosine(half, ENTRIES)
    loss.backward()
    assert loss.dtype == torch.float32 and half.grad.is_sparse and half.grad.dtype == torch.bfloat16
    assert_rounding(loss, entry_loop(half.detach().double(), ENTRIES), OPERATIONS, scale=1)


def test_a_row_of_zeros_has_no_direction():
    embeddings = vectors(10)
    embeddings[7] = 0
    embeddings.requires_grad_()
    loss = entry_cosine(embeddings, ENTRIES)
    loss.backward()
    assert_rounding(loss, entry_loop(embeddings.detach(), ENTRIES[1:]), OPERATIONS, scale=1)
    gradient = embeddings.grad.to_dense()
    assert gradient.isfinite().all() and (gradient[7] == 0).all()
