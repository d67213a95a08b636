"""The gradient in chunks is the gradient of one batch."""

from __future__ import annotations

import contextlib

import pytest
import torch
from support.tiny import make_encoder

from hf_xalign.losses import sentence_infonce
from hf_xalign.modeling.cached_gradient import cached_backward
from hf_xalign.modeling.sentence_head import SentenceHead, pool_sentences

SIZES = [3, 2, 4]


def setup(dropout):
    encoder = make_encoder(dropout=dropout).train()
    head = SentenceHead(16, 6, normalize="after")
    generator = torch.Generator().manual_seed(0)
    chunks = [torch.randint(5, 160, (2, size, 7), generator=generator) for size in SIZES]

    def encode(ids):
        flat = ids.flatten(0, 1)
        mask = torch.ones_like(flat)
        hidden = encoder(input_ids=flat, attention_mask=mask).last_hidden_state
        return head(pool_sentences(hidden, mask, "mean")).view(*ids.shape[:2], -1)

    return encode, chunks, [*encoder.parameters(), *head.parameters()]


def contrast(vectors):
    source, target = torch.cat(vectors, dim=1)
    return sentence_infonce(source, target, temperature=0.05).mean()


def plain(encode, chunks, parameters, context):
    with context:
        loss = contrast([encode(chunk) for chunk in chunks])
    loss.backward()
    return loss.detach(), [p.grad for p in parameters]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_gradients_and_random_numbers_are_those_of_the_plain_backward(dropout, autocast):
    results, states = [], []
    for cached in (False, True):
        encode, chunks, parameters = setup(dropout)
        context = torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext()
        torch.manual_seed(5)
        if cached:
            with context:
                loss = cached_backward(encode, chunks, contrast)
            assert not loss.requires_grad
            results.append((loss, [p.grad for p in parameters]))
        else:
            results.append(plain(encode, chunks, parameters, context))
        states.append(torch.get_rng_state())
    (loss, gradients), (cached_loss, cached_gradients) = results
    assert torch.equal(loss, cached_loss)
    assert torch.equal(*states)
    for one, other in zip(gradients, cached_gradients, strict=True):
        # In bfloat16 the chunks' gradients of a weight are rounded before they are added, in either order.
        close = {"rtol": 0.05, "atol": 0.02} if autocast else {"rtol": 1e-6, "atol": 1e-6}
        torch.testing.assert_close(other, one, **close)
    assert max(float(g.abs().max()) for g in gradients) > 0.1


def test_one_chunk_has_a_graph_at_a_time_and_the_last_alone_is_synchronised():
    encode, chunks, _ = setup(0.0)
    log, alive = [], []

    def watched(chunk):
        vectors = encode(chunk)
        log.append(("encode", chunk.shape[1], vectors.requires_grad, len(alive)))
        return vectors

    @contextlib.contextmanager
    def no_sync():
        alive.append(1)
        yield
        alive.pop()

    def backward(scalar):
        log.append(("backward", len(alive)))
        scalar.backward()

    cached_backward(watched, chunks, contrast, backward=backward, no_sync=no_sync)
    first = [("encode", size, False, 1) for size in SIZES]
    second = [
        entry
        for size, quiet in zip(SIZES, (1, 1, 0), strict=True)
        for entry in (("encode", size, True, quiet), ("backward", quiet))
    ]
    assert log == first + second


def test_a_scaled_backward_scales_every_gradient():
    scaled = []
    for factor in (1.0, 64.0):
        encode, chunks, parameters = setup(0.0)
        cached_backward(encode, chunks, contrast, backward=lambda value, factor=factor: (factor * value).backward())
        scaled.append([p.grad for p in parameters])
    for one, other in zip(*scaled, strict=True):
        torch.testing.assert_close(other, 64 * one, rtol=1e-6, atol=1e-6)
