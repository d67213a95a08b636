"""The encoder as it was: the frozen copy and the fingerprint."""

from __future__ import annotations

import torch
from support.tiny import make_encoder

from hf_xalign.modeling.freezing import frozen_copy, model_fingerprint


def test_frozen_copy_shares_what_is_frozen_and_nothing_else():
    model = make_encoder()
    model.embeddings.requires_grad_(False)
    copy = frozen_copy(model.train())
    assert not copy.training and model.training
    for (name, own), other in zip(model.named_parameters(), copy.parameters(), strict=True):
        assert (own is other) == name.startswith("embeddings")
        assert not other.requires_grad
    assert any(p.requires_grad for p in model.parameters())


def test_the_fingerprint_is_of_the_weights_alone():
    model = make_encoder()
    known = model_fingerprint(model)
    assert model_fingerprint(frozen_copy(model)) == known == model_fingerprint(make_encoder(dropout=0.5))
    assert model_fingerprint(make_encoder(seed=1)) != known
    with torch.no_grad():
        next(model.parameters()).view(-1)[-1] += 1e-6
    assert model_fingerprint(model) != known
