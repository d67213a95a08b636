"""MAO's "align-matrix": a map as a frozen linear layer between an encoder and a task's head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from peft import PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.rotated import check_bare, common_pivot, place
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.top import LinearTop
from hf_xalign.modeling.xalign.tuner import find_top


def map_adapter(
    encoder: PreTrainedModel, maps: LanguageMap | Mapping[str, LanguageMap], *, pivot: str | None = None
) -> PeftModel:
    """Put maps of the last layer on top of an encoder, as the linear module that MAO trains (its XNLI experiments).

    What comes of it is an adapter as any of MAO's: [`hf_xalign.modeling.with_alignment`] puts it between the encoder
    and the head of a task model, [`hf_xalign.modeling.merge`] folds it into the head, [`hf_xalign.load`] loads its
    folder. It is frozen.

    Args:
        encoder: a bare encoder; it gets the module, in place.
        maps: for each language its map, and text of the pivot stays as it is; or one map, that all text goes through.
            Of maps of several layers the last layer's is taken.
        pivot: the language without a map; default the one that the maps say they lead to, if they do.

    Raises:
        InputError: a map of another size or language, without the last layer, or that is not affine; or the encoder is
            not a bare encoder.
    """
    check_bare(encoder)
    languages = None
    if isinstance(maps, LanguageMap):
        if pivot is not None:
            raise InputError(f"pivot={pivot} goes with a map for each language; one map alone is for all text")
        pairs = [_last(maps, encoder, "maps")]
    else:
        pivot, languages = common_pivot(maps, pivot), list(maps)
        pairs = [_last(one, encoder, f"maps[{language!r}]") for language, one in maps.items()]
    config = XAlignConfig(
        top="linear",
        linear_bias=any(bool(offset.any()) for _, offset in pairs),
        languages=languages,
        pivot=pivot,
        inference_mode=True,
    )
    model = get_peft_model(encoder, config)
    top = find_top(model)
    assert top is not None
    module = top.xalign_top[model.active_adapter]
    assert isinstance(module, LinearTop)
    with torch.no_grad():
        for name, (weight, offset) in zip(module.names, pairs, strict=True):
            linear = cast(nn.Linear, module.get_submodule(name))
            linear.weight.copy_(weight)
            if linear.bias is not None:
                linear.bias.copy_(offset)
    return model


def _last(one: LanguageMap, encoder: PreTrainedModel, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    placed = place(one, encoder, name)
    if placed.layers[-1] != encoder.config.num_hidden_layers:
        raise InputError(f"{name} is of layers {list(one.layers)}: the one that a head reads is the last, layer -1")
    return placed.weight[-1], placed.offset[-1]
