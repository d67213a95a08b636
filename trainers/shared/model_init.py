"""`model_init`: a function in the place of a model, which makes a new one for each trial of a search."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel, TrainingArguments, set_seed

from hf_xalign.errors import InputError

ModelInit = Callable[..., PreTrainedModel]


def first_model(
    model: PreTrainedModel | None, args: TrainingArguments, model_init: ModelInit | None
) -> PreTrainedModel:
    """What a trainer begins with: `model`, or where that is None what `model_init` makes.

    Raises:
        InputError: neither is given.
    """
    if model is not None:
        return model
    if model_init is None:
        raise InputError("model is None: give one, or model_init, a function that makes one")
    return make_model(model_init, args)


def make_model(model_init: ModelInit, args: TrainingArguments, trial: Any = None) -> PreTrainedModel:
    """What `model_init` makes by the seed of `args`; it is given the trial where it wants an argument."""
    set_seed(args.seed)
    wanted = inspect.signature(model_init).parameters
    takes_trial = "trial" in wanted or any(one.default is inspect.Parameter.empty for one in wanted.values())
    return model_init(trial) if takes_trial else model_init()
