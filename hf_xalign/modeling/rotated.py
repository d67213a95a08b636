"""An encoder whose chosen layers come out mapped, a map for each language: e -> W e + b (METHODS section 3).

This is how ROTATE uses its maps: a tagger trains on English text that comes out in the other language's space, and is
used on text of that language, which comes out as it is. The maps act on what comes out of a layer; the layers above
are fed what they were always fed, for the maps were learnt on the vectors of the encoder without them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.configuration_utils import SubConfigSpec
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import without_pooler
from hf_xalign.modeling.language_embeddings import refuse_language_embeddings
from hf_xalign.modeling.languages import Language, LanguageAware, language_number, number_languages, row_numbers
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.wrapped_config import WrappedConfig
from hf_xalign.modeling.xalign.tuner import backbone_of

_OWNER = "this encoder"


class RotatedConfig(WrappedConfig, PreTrainedConfig):
    """Config of [`RotatedModel`].

    Args:
        encoder_config: the encoder's own config.
        layers: the layers that come out mapped, as positions in `hidden_states` (0 = embeddings).
        languages: the languages that have maps.
        pivot: a language beside them that comes out as it is and that their maps lead to, or None.
    """

    model_type = "xalign-mapped"
    sub_configs_defaults = {"encoder_config": SubConfigSpec(AutoConfig, model_type="bert")}  # noqa: RUF012

    encoder_config: PreTrainedConfig | dict | None = None
    layers: Sequence[int] = ()
    languages: Sequence[str] = ()
    pivot: str | None = None

    @property
    def language_numbers(self) -> dict[str, int]:
        """The number of each language for `language=`: its maps' place from 1 on, 0 for the pivot that has none."""
        return number_languages(self.languages, self.pivot)


class _Maps(nn.Module):
    """W float (languages, layers, d, d) and b (languages, layers, d): buffers, since nothing is to train them."""

    weight: Tensor
    offset: Tensor

    def __init__(self, languages: int, layers: int, size: int):
        super().__init__()
        self.register_buffer("weight", torch.eye(size).repeat(languages, layers, 1, 1))
        self.register_buffer("offset", torch.zeros(languages, layers, size))

    def forward(self, states: Tensor, layer: int, parts: Sequence[tuple[int, slice | Tensor]]) -> Tensor:
        """Map float (rows, width, d), the rows of each part by its language's map of the `layer`-th layer."""
        if not parts:
            return states
        precision = torch.promote_types(states.dtype, self.weight.dtype)
        mapped = states.clone()
        # In the maps' own precision, also under autocast: a rotation that is rounded to bfloat16 is none.
        with torch.autocast(states.device.type, enabled=False):
            for language, rows in parts:
                weight, offset = (part[language, layer].to(precision) for part in (self.weight, self.offset))
                mapped[rows] = nn.functional.linear(states[rows].to(precision), weight, offset).to(states.dtype)
        return mapped


class RotatedModel(PreTrainedModel, LanguageAware):
    """An encoder whose chosen layers come out mapped.

    `last_hidden_state` and `hidden_states` hold the mapped states, and those of every other layer as the encoder gives
    them. Which map a text goes through is said by `language=` or by [`hf_xalign.modeling.set_language`]. It is saved,
    pushed and loaded as any model; `AutoModel.from_pretrained` knows the kind after `import
    hf_xalign.modeling.rotated`, [`hf_xalign.load`] without it.
    """

    config_class = RotatedConfig
    config: RotatedConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    # Whether it really does is the encoder's to say, which is asked next.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _keep_in_fp32_modules_strict = {"maps"}  # noqa: RUF012 (the base class's own type)

    def __init__(self, config: RotatedConfig, encoder: PreTrainedModel | None = None):
        """Build it with identity maps.

        Args:
            config: what it is made of.
            encoder: the encoder, where there is one already; else one of random weights.
        """
        super().__init__(config)
        # Not called `encoder`: what tops the stack of layers of that name (MAO's modules) would go below the maps.
        self.unmapped: PreTrainedModel = (
            AutoModel.from_config(config.encoder, **without_pooler(config.encoder, config.encoder.model_type))
            if encoder is None
            else encoder
        )
        self.maps = _Maps(len(config.languages), len(config.layers), config.hidden_size)
        self.post_init()

    @classmethod
    def from_maps(
        cls, encoder: PreTrainedModel, maps: Mapping[str, LanguageMap], *, pivot: str | None = None
    ) -> RotatedModel:
        """Put maps into an encoder.

        Args:
            encoder: taken over as it is, except that a pooler, which reads vectors that are not mapped, is taken off.
            maps: for each language its map, all of the same layers, which are those that come out mapped
                (`LanguageMap.of` chooses some).
            pivot: the language that comes out as it is; default the one that the maps say they lead to, if they do.

        Raises:
            InputError: a map of another size, of a layer that the encoder has not, of another language, or that is not
                affine; maps of different layers, or to different languages; or the encoder is not a bare encoder.
        """
        check_bare(encoder)
        pivot = common_pivot(maps, pivot)
        placed = {language: place(one, encoder, f"maps[{language!r}]") for language, one in maps.items()}
        [layers, *others] = {tuple(one.layers): None for one in placed.values()}
        if others:
            raise InputError(
                f"maps of layers {list(layers)} and of layers {list(others[0])}: every language needs maps of the "
                "same layers; LanguageMap.of chooses some"
            )
        if getattr(encoder, "pooler", None) is not None:
            encoder.register_module("pooler", None)
        config = RotatedConfig(
            # A copy: a config that becomes part of another is given the other's choice of attention.
            encoder_config=copy.deepcopy(encoder.config),
            layers=list(layers),
            languages=list(maps),
            pivot=pivot,
        )
        model = cls(config, encoder)
        precision = torch.promote_types(encoder.dtype, torch.float32)
        for name in ("weight", "offset"):
            values = [getattr(one, name).to(encoder.device, precision) for one in placed.values()]
            setattr(model.maps, name, torch.stack(values))
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
        """The encoder's forward, with its chosen layers mapped.

        Args:
            input_ids: int64 (rows, width), or None with `inputs_embeds`.
            attention_mask: (rows, width).
            language: of all rows, of each, or their numbers int64 (rows,) (`config.language_numbers`); default the one
                of [`hf_xalign.modeling.set_language`].
            kwargs: of the encoder, such as `output_hidden_states`.

        Raises:
            InputError: no language, or one that has no map.
        """
        given = kwargs.get("inputs_embeds") if input_ids is None else input_ids
        parts = self._parts(language, 0 if given is None else len(given))
        for option in ("output_hidden_states", "output_attentions"):
            if getattr(self.config, option):
                kwargs.setdefault(option, True)
        output = self.unmapped(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        last, states = output.last_hidden_state, output.get("hidden_states")
        states = None if states is None else list(states)
        for k, layer in enumerate(self.config.layers):
            if layer == self.config.num_hidden_layers:
                last = self.maps(last, k, parts)
            elif states is not None and states[layer] is not None:  # None: `output_hidden_states` asks for others
                states[layer] = self.maps(states[layer], k, parts)
        if states is not None and states[-1] is not None:
            states[-1] = last
        return BaseModelOutput(
            last_hidden_state=last,
            hidden_states=None if states is None else tuple(states),
            attentions=output.get("attentions"),
        )

    @property
    def language_maps(self) -> list[dict[str, int]]:
        """Numbers of the languages of the maps."""
        return [self.config.language_numbers]

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's."""
        return self.unmapped.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the encoder's."""
        self.unmapped.set_input_embeddings(value)

    def _parts(self, language: Language | None, rows: int) -> list[tuple[int, slice | Tensor]]:
        """The rows that each map is for."""
        given, known = self._language if language is None else language, self.config.language_numbers
        if isinstance(given, str):
            number = language_number(given, known, _OWNER)
            return [(number - 1, slice(None))] if number else []
        numbers = row_numbers(given, known, (rows,), _OWNER)
        parts = ((k, (numbers == k + 1).nonzero()[:, 0].to(self.device)) for k in range(len(self.config.languages)))
        return [(k, own) for k, own in parts if len(own)]

    # Called for the maps alone; the encoder has its own.
    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, _Maps):
            init.copy_(module.weight, torch.eye(module.weight.shape[-1]).expand_as(module.weight))
            init.zeros_(module.offset)


def check_bare(encoder: PreTrainedModel) -> None:
    """Refuse what maps cannot be put on.

    Raises:
        InputError: it has adapters, maps, a task head or language embeddings, or is no encoder.
    """
    if not isinstance(encoder, PreTrainedModel) or any(
        isinstance(module, BaseTunerLayer) for module in encoder.modules()
    ):
        raise InputError(
            f"{type(encoder).__name__}: maps go on an encoder without adapters; fold LoRA's in by "
            "hf_xalign.modeling.merge"
        )
    if isinstance(encoder, RotatedModel):
        raise InputError("this encoder has maps already: give the one inside, model.unmapped")
    if backbone_of(encoder) is not encoder:
        raise InputError(
            f"{type(encoder).__name__} has a task head: maps go on the encoder alone, as AutoModel or "
            "hf_xalign.load gives it"
        )
    refuse_language_embeddings(encoder, "a mapped encoder")


class Placed(NamedTuple):
    """A map as an encoder can have it.

    Attributes:
        layers: ascending positions in the encoder's `hidden_states`.
        weight: W, float (layers, d, d).
        offset: b, float (layers, d).
    """

    layers: list[int]
    weight: Tensor
    offset: Tensor


def place(one: LanguageMap, encoder: PreTrainedModel, name: str) -> Placed:
    """Find the layers of an encoder that a map is of.

    Args:
        one: the map.
        encoder: the encoder.
        name: what the map is called in messages.

    Raises:
        InputError: it is not affine, of another size, or of a layer that the encoder has not.
    """
    size = encoder.config.hidden_size
    shape = one.source.weight.shape
    found = (shape[2], shape[1] if one.target is None else one.target.weight.shape[2])
    if found != (size, size):
        raise InputError(
            f"{name} maps {found[0]} dimensions to {found[1]}, and {type(encoder).__name__} has {size}: learn it on "
            "vectors of this encoder, on both sides"
        )
    try:
        index = layer_index(one.layers, encoder.config.num_hidden_layers)
        weight, offset = one.affine()
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    rows = sorted(range(len(index)), key=index.__getitem__)
    return Placed([index[row] for row in rows], weight[rows], offset[rows])


def common_pivot(maps: Mapping[str, LanguageMap], pivot: str | None) -> str | None:
    """The language without a map that the maps lead to: `pivot`, else what they say themselves.

    Raises:
        InputError: there is no map, the pivot has one too, or a map says that it is from or to another language.
    """
    if not maps:
        raise InputError("no maps: give one for each language that is to be mapped")
    for language, one in maps.items():
        if one.source_lang not in (None, language):
            raise InputError(
                f"maps[{language!r}] takes {one.source_lang} to {one.target_lang}: give it as the map of "
                f"{one.source_lang}, or turn it round by inverse()"
            )
    targets = sorted({one.target_lang for one in maps.values() if one.target_lang} | ({pivot} if pivot else set()))
    if len(targets) > 1:
        raise InputError(f"the maps lead to {' and '.join(targets)}: they need to lead to the space of one language")
    pivot = targets[0] if targets else None
    if pivot in maps:
        raise InputError(f"pivot={pivot} comes out as it is, so it has no map; leave maps[{pivot!r}] out")
    return pivot


AutoConfig.register(RotatedConfig.model_type, RotatedConfig)
AutoModel.register(RotatedConfig, RotatedModel)
