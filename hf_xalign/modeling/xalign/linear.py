"""Put learnt maps of an encoder's layers on the encoder, as a frozen adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from peft import PeftModel, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from hf_xalign.errors import InputError, explained
from hf_xalign.modeling.checkpoint import check_bare
from hf_xalign.modeling.languages import refuse_language_embeddings
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.top import LinearTop
from hf_xalign.modeling.xalign.tuner import find_top


def map_adapter(encoder: PreTrainedModel, maps: LanguageMap | Mapping[str, LanguageMap]) -> PeftModel:
    """Put maps on top of an encoder, as a frozen adapter like MAO's linear module.

    The adapter maps the hidden states of the maps' layers. The layers above a mapped one read unmapped states, because
    the maps were learnt on the vectors of the encoder without maps.

    [`hf_xalign.modeling.with_alignment`] puts the adapter between the encoder and the head of a task model,
    [`hf_xalign.modeling.merge`] merges a map of the last layer into the head, and [`hf_xalign.load`] loads its folder.

    Args:
        encoder: encoder without adapters or head; changed in place.
        maps: map of each language, all of the same layers, or one map for all text. The target language of the maps
            of several languages is not mapped.

    Raises:
        InputError: a map is of another language, or is not affine; maps differ in layers or target language; or
            the encoder has adapters or a head.
    """
    check_bare(encoder, "a map")
    refuse_language_embeddings(encoder, "a map")
    pivot = languages = None
    if isinstance(maps, LanguageMap):
        placed = [_place(maps, encoder, "maps")]
    else:
        pivot, languages = _common_pivot(maps), list(maps)
        placed = [_place(language_map, encoder, f"maps[{language!r}]") for language, language_map in maps.items()]
    layers = placed[0][0]
    for other, _, _ in placed:
        if other != layers:
            raise InputError(
                f"maps of layers {layers} and of layers {other}: every language needs the same layers. Select them "
                "with LanguageMap.of."
            )
    config = XAlignConfig(
        top="linear",
        layers=layers,
        linear_bias=any(bool(offset.any()) for _, _, offset in placed),
        languages=languages,
        pivot=pivot,
        inference_mode=True,
    )
    model = get_peft_model(encoder, config)
    top = find_top(model)
    assert top is not None
    module = cast(LinearTop, top.xalign_top[str(model.active_adapter)])
    with torch.no_grad():
        for name, (_, weight, offset) in zip(module.names, placed, strict=True):
            for k, layer in enumerate(layers):
                linear = cast(torch.nn.Linear, module.map_of(name, layer))
                linear.weight.copy_(weight[k])
                if linear.bias is not None:
                    linear.bias.copy_(offset[k])
    return model


def _place(language_map: LanguageMap, encoder: PreTrainedModel, name: str) -> tuple[list[int], Tensor, Tensor]:
    """Return a map's layers, ascending and counted from the end, with its W (layers, d, d) and b (layers, d)."""
    depth = encoder.config.num_hidden_layers
    with explained(name):
        index = layer_index(language_map.layers, depth)
        weight, offset = language_map.affine()
    rows = sorted(range(len(index)), key=index.__getitem__)
    return [index[row] - depth - 1 for row in rows], weight[rows], offset[rows]


def _common_pivot(maps: Mapping[str, LanguageMap]) -> str | None:
    """Return the maps' target language, which is not mapped."""
    for language, language_map in maps.items():
        source = language_map.source_lang
        if source not in (None, language):
            raise InputError(
                f"maps[{language!r}] maps {source} to {language_map.target_lang}. Pass it as the map of {source}."
            )
    targets = sorted(filter(None, {language_map.target_lang for language_map in maps.values()}))
    if len(targets) > 1:
        raise InputError(f"the maps have different target languages: {' and '.join(targets)}. Learn them to one.")
    return targets[0] if targets else None
