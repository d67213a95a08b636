"""Two batches in one forward."""

import torch
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
