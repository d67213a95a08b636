"""Tiny task models, and MAO's modules that go between their encoder and head."""

import torch
from peft import get_peft_model
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_xalign.modeling import XAlignConfig, with_alignment
from support.families import CONFIGS

HEADS = {
    "sequence": AutoModelForSequenceClassification,
    "token": AutoModelForTokenClassification,
    "question": AutoModelForQuestionAnswering,
}
FULL = {"adapters": "pfeiffer", "top": "transformer", "num_heads": 4, "feedforward_size": 32, "reduction_factor": 4}
# BERT with every head, and families that are built in other ways.
PAIRS = [*(("bert", head) for head in HEADS), *((family, "sequence") for family in ("albert", "modernbert"))]
OTHERS = [(family, head) for family in CONFIGS for head in HEADS if (family, head) not in PAIRS]


def batch():
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0
    generator = torch.Generator().manual_seed(3)
    return {"input_ids": torch.randint(5, 150, (3, 9), generator=generator), "attention_mask": mask}


@torch.no_grad()
def outputs(model, given=None, **settings):
    found = model(**(given or batch()), **settings)
    return torch.stack([found.start_logits, found.end_logits]) if "start_logits" in found else found.logits


def make_task(family="bert", head="sequence", **changes):
    torch.manual_seed(2)
    config = CONFIGS[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    return (HEADS[head] if isinstance(head, str) else head).from_config(config).eval()


def make_module(family="bert", config=None, **settings):
    """A PEFT model of a new encoder with random modules, no bias of which is zero."""
    torch.manual_seed(1)
    plain = settings.get("top", "linear") == "linear"
    settings = {"init": "random", "linear_bias": plain, **settings}
    model = get_peft_model(AutoModel.from_config(config or CONFIGS[family]()), XAlignConfig(**settings))
    for name, parameter in model.named_parameters():
        if "xalign_top" in name and name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return model


def save_module(folder, family="bert", config=None, **settings):
    make_module(family, config, **settings).save_pretrained(folder)
    return str(folder)


def make_aligned(family="bert", head="sequence", **settings):
    return with_alignment(make_task(family, head), make_module(family, **settings))


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same_state(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
