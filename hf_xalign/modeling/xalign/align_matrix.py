"""A map as a frozen linear layer between an encoder and a task head (MAO's "align-matrix")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from peft import PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.rotated import check_unmapped, common_pivot, place
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.top import LinearTop, TopLayer
from hf_xalign.modeling.xalign.tuner import find_top


def map_adapter(
    encoder: PreTrainedModel, maps: LanguageMap | Mapping[str, LanguageMap], *, pivot: str | None = None
) -> PeftModel:
    """Put maps of the last layer on top of an encoder, as a frozen adapter like MAO's linear module.

    [`hf_xalign.modeling.with_alignment`] puts the adapter between the encoder and the head of a task model,
    [`hf_xalign.modeling.merge`] folds it into the head, and [`hf_xalign.load`] loads its folder.

    Args:
        encoder: encoder without adapters or head; changed in place.
        maps: map of each language, while text of the pivot stays unmapped; or one map for all text. Of several
            layers, the last one is used.
        pivot: language without a map; by default the target language of the maps.

    Raises:
        InputError: a map has another size or language, lacks the last layer, or is not affine; or the encoder has
            adapters or a head.
    """
    check_unmapped(encoder)
    languages = None
    if isinstance(maps, LanguageMap):
        if pivot is not None:
            raise InputError(f"pivot={pivot} needs a map for each language. One map alone is for all text.")
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
    module = cast(LinearTop, cast(TopLayer, find_top(model)).xalign_top[model.active_adapter])
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
        raise InputError(f"{name} has layers {list(one.layers)}, but a head reads the last layer, -1.")
    return placed.weight[-1], placed.offset[-1]
