"""The gradient in chunks is the gradient of one batch."""

from __future__ import annotations

import contextlib

import pytest
import torch
from support.families import BACKWARD
from support.numeric import assert_rounding
from support.tiny import make_encoder

from hf_xalign.losses import sentence_infonce
from hf_xalign.modeling.contrast.cached_gradient import cached_backward
from hf_xalign.modeling.contrast.heads import SentenceHead, pool_sentences

SIZES = [3, 2, 4]
TEMPERATURE = 0.05


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
    return sentence_infonce(source, target, temperature=TEMPERATURE).mean()


@pytest.mark.numeric
@pytest.mark.parametrize(("dropout", "autocast"), [(0.0, False), (0.2, False), (0.2, True)])
def test_gradients_and_random_numbers_are_those_of_the_plain_backward(dropout, autocast, float64):
    results = []
    for cached in (False, True):
        encode, chunks, parameters = setup(dropout)
        torch.manual_seed(5)
        with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext():
            if cached:
                loss = cached_backward(encode, chunks, contrast)
                assert not loss.requires_grad
            else:
                loss = contrast([encode(chunk) for chunk in chunks])
        if not cached:
            loss.backward()
        results.append((loss, [p.grad for p in parameters], torch.get_rng_state()))
    (loss, gradients, state), (cached_loss, cached_gradients, cached_state) = results
    # Both run the same kernels on the same chunks.
    assert torch.equal(loss, cached_loss) and torch.equal(state, cached_state)
    scale = max(float(g.abs().max()) for g in gradients)
    assert scale > 0.1
    # In bfloat16 the chunks' gradients of a weight are rounded before they are added, in either order.
    rounding = (2 * len(SIZES), scale, torch.bfloat16) if autocast else (BACKWARD, scale / TEMPERATURE)
    for one, other in zip(gradients, cached_gradients, strict=True):
        assert_rounding(other, one, *rounding)


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
