"""The momentum encoder and its queue."""

import pytest
import torch
from safetensors.torch import load_file
from support.numeric import assert_rounding
from support.tiny import make_encoder
from torch import nn

from hf_xalign.modeling.contrast import KeyQueue, MomentumEncoder, SentenceHead, save_momentum
from hf_xalign.modeling.pooling import SENTENCE_POOLINGS, pool_sentences

SIZE = 6


def make_query(normalize="before", seed=0, **options):
    encoder = make_encoder(seed, **options)
    return encoder, SentenceHead(16, SIZE, normalize=normalize)


def sentences(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 160, (rows, 9), generator=generator)
    mask = (torch.arange(9) < torch.randint(3, 10, (rows, 1), generator=generator)).long()
    return ids * mask, mask


def move(*modules, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad):
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


@pytest.mark.parametrize("pooling", SENTENCE_POOLINGS)
def test_sentence_vectors_against_a_loop_with_padding_on_either_side(pooling, float64):
    hidden, lengths = torch.randn(3, 5, 4), [5, 2, 1]
    for side in ("right", "left") if pooling != "cls" else ("right",):
        rows = [range(n) if side == "right" else range(5 - n, 5) for n in lengths]
        mask = torch.tensor([[int(k in row) for k in range(5)] for row in rows])
        parts = [states[list(row)] for states, row in zip(hidden, rows, strict=True)]
        wanted = torch.stack([{"cls": part[0], "last": part[-1], "mean": part.mean(0)}[pooling] for part in parts])
        assert_rounding(pool_sentences(hidden, mask, pooling), wanted, operations=6)


def test_averages_are_of_every_parameter_once_and_buffers_follow(float64, tmp_path):
    encoder, head = make_query()
    encoder.decoder = nn.Linear(16, 160)
    encoder.decoder.weight = encoder.embeddings.word_embeddings.weight
    encoder.register_buffer("steps", torch.tensor(0))
    momentum = MomentumEncoder(encoder, head)
    before = [p.clone() for p in momentum.parameters()]
    move(encoder, head)
    encoder.steps += 7
    momentum.update(encoder, head, 0.999)
    queries = [*encoder.parameters(), *head.parameters()]
    for own, old, query in zip(momentum.parameters(), before, queries, strict=True):
        assert_rounding(own, 0.999 * old + (1 - 0.999) * query, operations=4)
        assert not torch.equal(own, old)
    assert momentum.encoder.steps == 7 and momentum.encoder.steps is not encoder.steps
    assert momentum.encoder.decoder.weight is momentum.encoder.embeddings.word_embeddings.weight
    save_momentum(tmp_path / "momentum.safetensors", momentum, KeyQueue(4, SIZE))
    assert "encoder.decoder.weight" not in load_file(tmp_path / "momentum.safetensors")


def test_half_precision_weights_have_averages_in_float32():
    encoder, head = make_query()
    encoder.to(torch.bfloat16).embeddings.requires_grad_(False)
    momentum = MomentumEncoder(encoder, head)
    assert {p.dtype for p in momentum.parameters()} == {torch.float32} and not momentum.shared
    weight, query = (e.encoder.layer[0].output.dense.weight for e in (momentum.encoder, encoder))
    assert query.dtype == torch.bfloat16 and encoder.embeddings.word_embeddings.weight.dtype == torch.bfloat16
    before = weight.clone()
    move(encoder)
    for _ in range(3):
        momentum.update(encoder, head, 0.999)
    expected = query.double() + 0.999**3 * (before.double() - query.double())
    assert_rounding(weight, expected, operations=3 * 4)
    assert torch.isfinite(momentum.encode(*sentences(2, 0))).all()


def test_it_is_a_frozen_copy_without_the_objectives_head():
    encoder, head = make_query()
    encoder.alignment_head = nn.ModuleDict({"sentence": head, "other": nn.Linear(16, 160)})
    momentum = MomentumEncoder(encoder, head)
    assert not any(p.requires_grad for p in momentum.parameters()) and head.out.weight.requires_grad
    own, query = (dict(model.named_parameters()) for model in (momentum.encoder, encoder))
    assert set(query) - set(own) == {name for name in query if name.startswith("alignment_head")}
