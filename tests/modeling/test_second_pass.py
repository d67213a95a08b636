"""Two batches in one forward."""

from __future__ import annotations

import torch
from tiny_continual import make_model

from hf_xalign.modeling.second_pass import second_pass


def inputs(rows, width, seed=0):
    ids = torch.randint(5, 20, (rows, width), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_both_are_as_they_would_be_alone():
    model = make_model().eval()
    task, pairs = inputs(3, 4), inputs(2, 9, seed=1)
    with second_pass(model, pairs) as states:
        output = model(**task)
    alone = model.base_model(**pairs, output_hidden_states=True).hidden_states
    torch.testing.assert_close(output.logits, model(**task).logits)
    assert len(states) == 1 and len(states[0]) == len(alone)
    for one, other in zip(states[0], alone, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_of_what_follows_does_not_move():
    model = make_model(dropout=0.3).train()
    seen = []
    for pairs in (inputs(2, 9), {}):
        torch.manual_seed(0)
        with second_pass(model, pairs) as states:
            seen.append([model(**inputs(3, 4)).logits, model(**inputs(3, 4)).logits])
        assert len(states) == (2 if pairs else 0)
    for one, other in zip(*seen, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_model_is_left_as_it_was():
    model = make_model()
    with second_pass(model, inputs(2, 3)) as states:
        model(**inputs(2, 3))
    model(**inputs(2, 3))
    assert len(states) == 1 and not model._forward_hooks
