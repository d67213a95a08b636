"""The cosine over dictionary entries against a loop, and where its gradient goes."""

from __future__ import annotations

import math

import pytest
import torch

from hf_xalign.losses import entry_cosine

# Token 3 is in several entries, and on either side.
ENTRIES = torch.tensor([[3, 7], [0, 3], [5, 2], [3, 8], [1, 4]])


def table(rows=10, dim=6):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def loop(embeddings, entries):
    total = 0.0
    for first, second in entries.tolist():
        a, b = embeddings[first].tolist(), embeddings[second].tolist()
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        total += dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))
    return -total / len(entries)


def test_equals_the_loop():
    assert entry_cosine(table(), ENTRIES).item() == pytest.approx(loop(table(), ENTRIES), abs=1e-14)
    single = entry_cosine(table().float(), ENTRIES)
    assert single.dtype == torch.float32 and single.shape == ()
    assert single.item() == pytest.approx(loop(table(), ENTRIES), abs=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradient_is_that_of_autograd_and_of_finite_differences(sparse):
    embeddings = table().requires_grad_()
    (2.5 * entry_cosine(embeddings, ENTRIES, sparse=sparse)).backward()
    assert embeddings.grad.is_sparse == sparse
    found = embeddings.grad.to_dense()
    other = table().requires_grad_()
    a, b = other[ENTRIES[:, 0]], other[ENTRIES[:, 1]]
    (-2.5 * torch.nn.functional.cosine_similarity(a, b).mean()).backward()
    torch.testing.assert_close(found, other.grad, rtol=1e-10, atol=1e-12)
    assert (found[[6, 9]] == 0).all() and (found[[0, 1, 2, 3, 4, 5, 7, 8]].abs().sum(1) > 0).all()
    if not sparse:
        assert torch.autograd.gradcheck(lambda e: entry_cosine(e, ENTRIES), (table().requires_grad_(),))


def test_a_sparse_gradient_adds_into_the_dense_one_of_other_uses():
    grads = []
    for sparse in (False, True):
        embeddings = table().requires_grad_()
        (embeddings.square().sum() + entry_cosine(embeddings, ENTRIES, sparse=sparse)).backward()
        grads.append(embeddings.grad)
    assert not grads[1].is_sparse
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-12, atol=1e-14)


def test_descent_turns_the_entries_to_each_other_and_leaves_lengths():
    embeddings = table().requires_grad_()
    entries = torch.tensor([[0, 1], [2, 3]])
    lengths = embeddings.detach().norm(dim=1)
    optimizer = torch.optim.SGD([embeddings], lr=0.1)
    for _ in range(500):
        optimizer.zero_grad()
        loss = entry_cosine(embeddings, entries)
        loss.backward()
        optimizer.step()
    assert loss.item() < -0.999
    # The gradient is at a right angle to the vector, so only the step's own length is added.
    torch.testing.assert_close(embeddings.detach().norm(dim=1), lengths, rtol=0.1, atol=0)


def test_a_row_of_zeros_has_no_direction():
    embeddings = table()
    embeddings[7] = 0
    embeddings.requires_grad_()
    loss = entry_cosine(embeddings, ENTRIES)
    loss.backward()
    others = ENTRIES[1:]
    assert loss.item() == pytest.approx(loop(embeddings.detach(), others) * 4 / 5, abs=1e-14)
    assert embeddings.grad.isfinite().all() and (embeddings.grad[7] == 0).all()


def test_half_precision_and_autocast_compute_in_float32():
    half = table().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = entry_cosine(half, ENTRIES)
    loss.backward()
    assert loss.dtype == torch.float32 and half.grad.dtype == torch.bfloat16
    assert loss.item() == pytest.approx(loop(half.detach().double(), ENTRIES), abs=1e-6)
