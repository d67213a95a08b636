"""A small run of MAO, its settings, and what is looked at afterwards."""

import torch

from hf_xalign.trainers import MAOConfig, MAOTrainer
from support.launch import SMALL as QUIET
from support.tiny import make_encoder, make_links, make_tokenizer

SMALL = {"num_heads": 2, "feedforward_size": 24, "reduction_factor": 4}
IDS = torch.tensor([[2, 8, 59, 55, 3]])

KINDS = {
    "linear": {"objective": "infonce"},
    "maps": {"per_language": "all"},
    "others": {"per_language": "others"},
    "transformer": {"preset": "transformer"},
    "no context": {"preset": "transformer", "context": False, "feature_cache": False},
    "adapter": {"preset": "adapter", "objective": "infonce"},
    "pfeiffer linear": {"adapters": "pfeiffer"},
    "houlsby": {"adapters": "houlsby", "top": "none"},
    "lora": {"peft_type": "lora", "peft_options": {"r": 2}, "regularizer_weight": 1.0},
    "ia3": {"peft_type": "ia3", "regularizer_weight": 1.0, "objective": "infonce"},
}
SAVED = {
    "linear": {},
    "maps": {"per_language": "others"},
    "transformer": {"preset": "transformer", "init": "random"},
    "adapter": {"preset": "adapter", "init": "random"},
    "lora": KINDS["lora"],
}


def config(folder, **settings):
    defaults = {
        **QUIET,
        "learning_rate": 1e-2,
        "batch_of": "pairs",
        "regularized_words": "all",
        "objective": "l2",
        "regularizer_weight": 0.0,
        "temperature": 0.1,
    }
    return MAOConfig(output_dir=str(folder), **{**defaults, **SMALL, **settings})


def make(folder, model=None, pairs=24, callbacks=None, data=None, **settings):
    return MAOTrainer(
        make_encoder() if model is None else model,
        config(folder, **settings),
        train_dataset=make_links(pairs) if data is None else data,
        eval_dataset=make_links(8),
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def trainable(model):
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def states(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS).last_hidden_state
