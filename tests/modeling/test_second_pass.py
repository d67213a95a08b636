"""Two batches in one forward."""

import torch
from support.continual import make_model
from support.families import CONFIGS, PASS
from support.numeric import assert_rounding
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification

from hf_xalign.trainers.continual import second_pass


def inputs(rows, width, seed=0):
    ids = torch.randint(5, 20, (rows, width), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_both_are_as_they_would_be_alone(subtests, float64):
    for family in CONFIGS:
        with subtests.test(family):
            for head in (AutoModelForTokenClassification, AutoModelForQuestionAnswering):
                torch.manual_seed(0)
                model = head.from_config(CONFIGS[family]()).eval()
                task, pairs = inputs(3, 4), inputs(2, 9, seed=1)
                pairs["attention_mask"][1, 6:] = 0
                pairs["input_ids"][1, 6:] = 0
                real = pairs["attention_mask"].bool()
                layers = range(model.config.num_hidden_layers + 1)
                with second_pass(model, pairs, seed=0, dropout=True, layers=layers) as states:
                    output = model(**task)
                alone = model.base_model(**pairs, output_hidden_states=True).hidden_states
                for key, value in model(**task).items():
                    assert_rounding(output[key], value, PASS)
                assert len(states) == 1 and len(states[0]) == len(alone)
                for one, other in zip(states[0], alone, strict=True):
                    assert_rounding(one[real], other[real], PASS)


def test_dropout_of_the_pairs_is_of_their_seed_or_off():
    """Not that of the task's next batch, which begins at the random state where this one ended."""
    model = make_model(dropout=0.3).train()
    pairs = inputs(2, 9)

    def alone():
        return model.base_model(**pairs, output_hidden_states=True).hidden_states[-1]

    passed, logits = [], []
    for seed, dropout in ((5, True), (6, True), (5, False)):
        torch.manual_seed(0)
        with second_pass(model, pairs, seed=seed, dropout=dropout, layers=[-1]) as states:
            logits.append(model(**inputs(3, 4)).logits)
        passed.append(states[0][-1])
    following = alone()  # the random state is where the pass began
    torch.manual_seed(5)
    assert torch.equal(passed[0], alone())
    assert not any(torch.allclose(passed[0], other, atol=0.1) for other in (following, *passed[1:]))
    with second_pass(model, {}, seed=5, dropout=True, layers=[-1]) as states:  # no pairs, no pass
        model(**inputs(3, 4))
    assert states == []
    assert torch.equal(passed[2], model.eval().base_model(**pairs).last_hidden_state)
    # The task's batch keeps its dropout.
    assert all(torch.equal(one, logits[0]) for one in logits)
