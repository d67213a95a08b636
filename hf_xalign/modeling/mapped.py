"""Encoder with one affine map e -> W e + b per language and mapped layer, as ROTATE uses maps.

ROTATE trains a tagger on English text that is mapped into another language's space, and applies it to unmapped text of
that language. A map changes only the returned states of its layer. The layers above read unmapped states, because the
maps were learnt on the vectors of the encoder without maps.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from peft import PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from hf_xalign.errors import InputError, explained
from hf_xalign.modeling.checkpoint import WrappedConfig, check_bare, drop_pooler, new_encoder
from hf_xalign.modeling.languages import (
    Language,
    LanguageAware,
    language_number,
    number_languages,
    refuse_language_embeddings,
    row_numbers,
)
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.tuner import find_top

_OWNER = "this encoder"


class MappedEncoderConfig(WrappedConfig, PreTrainedConfig):
    """Config of [`MappedEncoder`].

    `layers` are the positions of the mapped layers in `hidden_states` (0 = embeddings). `pivot` is the maps' target
    language, whose text is not mapped, or None.
    """

    model_type = "xalign-mapped"

    encoder_config: PreTrainedConfig | dict | None = None
    layers: Sequence[int] = ()
    languages: Sequence[str] = ()
    pivot: str | None = None

    @property
    def language_numbers(self) -> dict[str, int]:
        """Id of each language for `language=`: 1, 2, ... for languages with maps, 0 for the pivot."""
        return number_languages(self.languages, self.pivot)


class _Maps(nn.Module):
    """W float (languages, layers, d, d) and b (languages, layers, d), in buffers because they are not trained."""

    weight: Tensor
    offset: Tensor

    def __init__(self, languages: int, layers: int, size: int):
        super().__init__()
        self.register_buffer("weight", torch.eye(size).repeat(languages, layers, 1, 1))
        self.register_buffer("offset", torch.zeros(languages, layers, size))

    def forward(self, states: Tensor, layer: int, rows_by_map: Sequence[tuple[int, slice | Tensor]]) -> Tensor:
        """Map float (rows, width, d); each part is a language with its rows, `layer` the index of the mapped layer."""
        if not rows_by_map:
            return states
        precision = torch.promote_types(states.dtype, self.weight.dtype)
        mapped = states.clone()
        # In the maps' precision, because a rotation that is rounded to bfloat16 is not a rotation.
        with torch.autocast(states.device.type, enabled=False):
            for language, rows in rows_by_map:
                weight, offset = (parameter[language, layer].to(precision) for parameter in (self.weight, self.offset))
                mapped[rows] = nn.functional.linear(states[rows].to(precision), weight, offset).to(states.dtype)
        return mapped


class MappedEncoder(PreTrainedModel, LanguageAware):
    """Encoder with mapped layers.

    `last_hidden_state` and `hidden_states` hold mapped states for the mapped layers, and the encoder's states for the
    others. `language=` or [`hf_xalign.modeling.set_language`] selects the map. Save, push and load it like any model;
    before `AutoModel.from_pretrained`, `import hf_xalign.modeling.mapped`. [`hf_xalign.load`] needs no import.
    """

    config_class = MappedEncoderConfig
    config: MappedEncoderConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    # The encoder itself decides which of these it supports.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _keep_in_fp32_modules_strict = {"maps"}  # noqa: RUF012 (the base class's own type)

    def __init__(self, config: MappedEncoderConfig, encoder: PreTrainedModel | None = None):
        """Build a model with identity maps on `encoder`, by default a new one with random weights."""
        super().__init__(config)
        # Not called `encoder`, because MAO's modules are put on a stack of that name and would come before the maps.
        self.unmapped: PreTrainedModel = new_encoder(config) if encoder is None else encoder
        self.maps = _Maps(len(config.languages), len(config.layers), config.hidden_size)
        self.post_init()

    @classmethod
    def from_maps(
        cls, encoder: PreTrainedModel, maps: Mapping[str, LanguageMap], *, pivot: str | None = None
    ) -> MappedEncoder:
        """Build the model from an encoder and maps.

        Args:
            encoder: encoder without adapters or head; its pooler, which would read unmapped vectors, is removed.
            maps: map of each language, all for the same layers, which become the mapped layers.
            pivot: language that is not mapped; by default the maps' target language.

        Raises:
            InputError: a map has another size or language, an unknown layer, or is not affine; maps differ in layers
                or target language; or the encoder has adapters or a head.
        """
        check_unmapped(encoder)
        pivot = common_pivot(maps, pivot)
        placed = [place(language_map, encoder, f"maps[{language!r}]") for language, language_map in maps.items()]
        [layers, *others] = {tuple(map_layers): None for map_layers, _, _ in placed}
        if others:
            raise InputError(
                f"maps of layers {list(layers)} and of layers {list(others[0])}: every language needs the same "
                "layers. Select them with LanguageMap.of."
            )
        drop_pooler(encoder)
        # A copy, because the nested config is given the outer config's attention implementation.
        inner = copy.deepcopy(encoder.config)
        config = MappedEncoderConfig(encoder_config=inner, layers=list(layers), languages=list(maps), pivot=pivot)
        model = cls(config, encoder)
        precision = torch.promote_types(encoder.dtype, torch.float32)
        model.maps.weight = torch.stack([weight.to(encoder.device, precision) for _, weight, _ in placed])
        model.maps.offset = torch.stack([offset.to(encoder.device, precision) for _, _, offset in placed])
        return model.train(encoder.training)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        language: Language | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Run the encoder and map the chosen layers.

        Args:
            input_ids: int64 (rows, width), or None with `inputs_embeds`.
            attention_mask: (rows, width).
            language: one code for all rows, one per row, or int64 ids (rows,) of `config.language_numbers`; by default
                the language of [`hf_xalign.modeling.set_language`].
            kwargs: arguments of the encoder, such as `output_hidden_states`.

        Raises:
            InputError: no language is given, or it has no map.
        """
        batch = kwargs.get("inputs_embeds") if input_ids is None else input_ids
        rows_by_map = self._rows_by_map(language, 0 if batch is None else len(batch))
        for option in ("output_hidden_states", "output_attentions"):
            if getattr(self.config, option):
                kwargs.setdefault(option, True)
        wanted_layers = kwargs.get("output_hidden_states")
        if isinstance(wanted_layers, list):  # transformers before 5.23 counts the layers of a list differently
            kwargs["output_hidden_states"] = True
        output = self.unmapped(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        last_state, states = output.last_hidden_state, list(output.get("hidden_states") or ())
        for k, layer in enumerate(self.config.layers):
            if layer == self.config.num_hidden_layers:
                last_state = self.maps(last_state, k, rows_by_map)
            elif states:
                states[layer] = self.maps(states[layer], k, rows_by_map)
        if states:
            states[-1] = last_state
        if isinstance(wanted_layers, list):
            states = [state if k in wanted_layers else None for k, state in enumerate(states)]
        return BaseModelOutput(last_state, tuple(states) or None, output.get("attentions"))

    @property
    def language_maps(self) -> list[dict[str, int]]:
        """Ids of the languages of the maps."""
        return [self.config.language_numbers]

    def get_input_embeddings(self) -> nn.Module:
        """Return the encoder's input embeddings."""
        return self.unmapped.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the encoder's input embeddings."""
        self.unmapped.set_input_embeddings(value)

    def _rows_by_map(self, language: Language | None, rows: int) -> list[tuple[int, slice | Tensor]]:
        """Return the indices of the maps to use, each with its rows."""
        language, ids = self._language if language is None else language, self.config.language_numbers
        if isinstance(language, str):
            number = language_number(language, ids, _OWNER)
            return [(number - 1, slice(None))] if number else []
        row_ids = row_numbers(language, ids, (rows,), _OWNER)
        maps = range(len(self.config.languages))
        rows_by_map = ((k, (row_ids == k + 1).nonzero()[:, 0].to(self.device)) for k in maps)
        return [(k, map_rows) for k, map_rows in rows_by_map if len(map_rows)]

    @torch.no_grad()  # called only for the maps; the encoder initializes itself
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, _Maps):
            init.copy_(module.weight, torch.eye(module.weight.shape[-1]).expand_as(module.weight))
            init.zeros_(module.offset)


def check_unmapped(encoder: PreTrainedModel) -> None:
    """Raise an InputError unless a model is an encoder that can take maps."""
    check_bare(encoder, "a map")
    if isinstance(encoder, MappedEncoder):
        raise InputError("this encoder has maps already. Pass model.unmapped.")
    refuse_language_embeddings(encoder, "a mapped encoder")


def place(language_map: LanguageMap, encoder: PreTrainedModel, name: str) -> tuple[list[int], Tensor, Tensor]:
    """Return a map's layers as ascending positions in `hidden_states`, its W (layers, d, d) and b (layers, d)."""
    size = encoder.config.hidden_size
    shape = language_map.source.weight.shape
    sizes = (shape[2], shape[1] if language_map.target is None else language_map.target.weight.shape[2])
    if sizes != (size, size):
        raise InputError(
            f"{name} maps {sizes[0]} dimensions to {sizes[1]}, but {type(encoder).__name__} has {size}. Learn the map "
            "on vectors of this encoder."
        )
    with explained(name):
        index = layer_index(language_map.layers, encoder.config.num_hidden_layers)
        weight, offset = language_map.affine()
    rows = sorted(range(len(index)), key=index.__getitem__)
    return [index[row] for row in rows], weight[rows], offset[rows]


def common_pivot(maps: Mapping[str, LanguageMap], pivot: str | None) -> str | None:
    """Return the maps' target language, which is not mapped: `pivot`, by default the maps' `target_lang`."""
    if not maps:
        raise InputError("no maps are given. Pass one for each language.")
    for language, language_map in maps.items():
        source = language_map.source_lang
        if source not in (None, language):
            raise InputError(
                f"maps[{language!r}] maps {source} to {language_map.target_lang}. Pass it as the map of {source}, or "
                "use its inverse()."
            )
    targets = sorted(filter(None, {*(language_map.target_lang for language_map in maps.values()), pivot}))
    if len(targets) > 1:
        raise InputError(f"the maps have different target languages: {' and '.join(targets)}. Learn them to one.")
    pivot = targets[0] if targets else None
    if pivot in maps:
        raise InputError(f"pivot={pivot} is not mapped. Remove maps[{pivot!r}].")
    return pivot


def map_adapter(
    encoder: PreTrainedModel, maps: LanguageMap | Mapping[str, LanguageMap], *, pivot: str | None = None
) -> PeftModel:
    """Put maps of the last layer on top of an encoder, as a frozen adapter like MAO's linear module.

    [`hf_xalign.modeling.with_alignment`] puts the adapter between the encoder and the head of a task model,
    [`hf_xalign.modeling.merge`] merges it into the head, and [`hf_xalign.load`] loads its folder.

    Args:
        encoder: encoder without adapters or head; changed in place.
        maps: map of each language, or one map for all text. Only the last layer of a map is used.
        pivot: with maps of several languages, the language that is not mapped; by default the maps' target language.

    Raises:
        InputError: a map has another size or language, lacks the last layer, or is not affine; or the encoder has
            adapters or a head.
    """
    check_unmapped(encoder)
    languages = None
    if isinstance(maps, LanguageMap):
        if pivot is not None:
            raise InputError(f"pivot={pivot} needs a map for each language, because a single map is for all text.")
        pairs = [_last(maps, encoder, "maps")]
    else:
        pivot, languages = common_pivot(maps, pivot), list(maps)
        pairs = [_last(language_map, encoder, f"maps[{language!r}]") for language, language_map in maps.items()]
    config = XAlignConfig(
        top="linear",
        linear_bias=any(bool(offset.any()) for _, offset in pairs),
        languages=languages,
        pivot=pivot,
        inference_mode=True,
    )
    model = get_peft_model(encoder, config)
    module: Any = cast(Any, find_top(model)).xalign_top[model.active_adapter]
    with torch.no_grad():
        for name, (weight, offset) in zip(module.names, pairs, strict=True):
            linear = module.get_submodule(name)
            linear.weight.copy_(weight)
            if linear.bias is not None:
                linear.bias.copy_(offset)
    return model


def _last(language_map: LanguageMap, encoder: PreTrainedModel, name: str) -> tuple[Tensor, Tensor]:
    layers, weight, offset = place(language_map, encoder, name)
    if layers[-1] != encoder.config.num_hidden_layers:
        raise InputError(
            f"{name} has layers {list(language_map.layers)}, but the adapter maps the last layer, -1. Learn that."
        )
    return weight[-1], offset[-1]


AutoConfig.register(MappedEncoderConfig.model_type, MappedEncoderConfig)
AutoModel.register(MappedEncoderConfig, MappedEncoder)
