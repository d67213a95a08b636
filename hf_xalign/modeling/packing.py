"""Encode a padded batch without computing its padding.

The real tokens of all sentences pass embeddings, projections and feed-forward layers as one row. Inside attention
alone, they are laid out in padded form.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling

from hf_xalign.data.encoding import first_position
from hf_xalign.modeling.features import FrozenStates
from hf_xalign.modeling.freezing import replaced_forwards, started_after
from hf_xalign.modeling.word_vectors import select_layers
from hf_xalign.modeling.xalign.config import base_of, modules_of
from hf_xalign.modeling.xalign.top import TopLayer
from hf_xalign.modeling.xalign.tuner import backbone_of

# Families whose packed states are tested to equal their padded states. MPNet, DeBERTa and T5 never call a registered
# attention function; they stay padded.
PACKED = {"albert", "bert", "camembert", "distilbert", "electra", "eurobert", "gte", "jina_embeddings_v3"}
PACKED |= {"modernbert", "roberta", "xlm-roberta"}
# Not a name with "sdpa" or "flash" in it, which transformers would give a mask of its own.
PACKED_ATTENTION = "xalign_packed"


class Layout(NamedTuple):
    """Places of real tokens in a padded batch.

    `places` int64 (tokens,) are positions in the flattened batch, `inside` bool (rows, width) is False at padding.
    """

    places: Tensor
    inside: Tensor

    @classmethod
    def of(cls, inside: Tensor) -> Layout:
        """Return the layout of a mask, bool (rows, width)."""
        return cls(inside.flatten().nonzero()[:, 0], inside)

    def pad(self, states: Tensor) -> Tensor:
        """Lay out float (tokens, ...) as (rows, width, ...), with zeros at padding."""
        padded = states.new_zeros(self.inside.numel(), *states.shape[1:])
        # Not by `index_copy`, which would keep the states for the backward pass.
        padded[self.places] = states
        return padded.unflatten(0, self.inside.shape)


def _packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: Layout | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within each sentence; query, key and value are float (1, heads, tokens, dim), in one row."""
    attend = partial(sdpa_attention_forward, module, dropout=dropout, scaling=scaling, is_causal=False)
    # See prepare_cpu.
    if query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        query, key, value = query.float(), key.float(), value.float()
    with torch.autocast("cpu", enabled=False):
        # A padded batch comes here too, where the config keeps the name.
        if packed is None:
            return attend(query, key, value, attention_mask, **kwargs)
        query, key, value = (packed.pad(states[0].transpose(0, 1)).transpose(1, 2) for states in (query, key, value))
        mask = packed.inside[:, None, None, :]
        if sliding_window is not None:
            position = torch.arange(packed.inside.shape[1], device=query.device)
            distance = (position[:, None] - position).abs()
            # A token of padding sees itself, because the gradient of a softmax over nothing is NaN.
            mask = mask & (distance < sliding_window) | (distance == 0)
        attended, _ = attend(query, key, value, mask)
    return attended.flatten(0, 1).index_select(0, packed.places).unsqueeze(0), None


AttentionInterface.register(PACKED_ATTENTION, _packed_attention)
AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)


def can_pack(model: nn.Module) -> bool:
    """Return whether a model's packed states equal its padded ones: a tested family without MAO's module on top."""
    encoder = base_of(model)
    if not isinstance(encoder, PreTrainedModel) or encoder.config.model_type not in PACKED:
        return False
    # Another attention was chosen by the user, and stays.
    if encoder.config._attn_implementation not in ("sdpa", PACKED_ATTENTION):
        return False
    # MAO's module reads padded batches, and virtual tokens of prompt tuning are not in the batch.
    prompts = any(config.is_prompt_learning for config in getattr(model, "peft_config", {}).values())
    return not prompts and not modules_of(model, TopLayer)


def prepare_cpu(model: PreTrainedModel) -> None:
    """Prepare a model and this process for training in bfloat16 on a CPU."""
    # torch's fused attention takes three to seven times as long for a backward pass as in float32, in which this
    # module's is computed (benchmarks/cpu_arithmetic.py).
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(PACKED_ATTENTION if can_pack(model) else "eager")
    # Two caches keep up to 1,024 compiled products, of 0.5 MB each, of batches with other numbers of tokens
    # (findings/torch-onednn-shapes.sh). A step computes about 25.
    for cache in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(cache, "64")


def encode_batch(
    model: nn.Module,
    encoder: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    layers: Sequence[int],
    *,
    packed: bool = True,
    reruns: bool = False,
    frozen: FrozenStates | None = None,
) -> BaseModelOutput:
    """Run a model over a padded batch; where [`can_pack`] is true, over its real tokens in one row.

    `model` is the encoder as it is called in training, which may be wrapped for several processes, and `encoder` the
    encoder itself. `layers` are positions in `hidden_states` of the states that are needed; the others may be None.
    `packed=False` computes padding too. `reruns` says that layers run again in the backward pass, as in gradient
    checkpointing. With `frozen`, frozen layers are not computed for a batch whose sentences are all in it.

    Returns the encoder's output, with states float (rows, width, d). Those of packed padding are zero.
    """
    base = base_of(encoder)
    depth = base.config.num_hidden_layers
    below = list(layers) != [depth]
    inside = attention_mask.bool()
    layout = Layout.of(inside)
    packed = packed and can_pack(encoder) and not bool(inside.all())
    known = frozen.find(input_ids, inside) if frozen else None
    with contextlib.ExitStack() as stack:
        if frozen is not None and known is not None:
            states = known.unsqueeze(0) if packed else layout.pad(known)
            stack.enter_context(started_after(base, frozen.layer, states, frozen.outputs))
        if not packed:
            return model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=below)
        return _run_packed(model, base, input_ids, layout, layers, reruns)


@contextlib.contextmanager
def packed_forward(model: PreTrainedModel, *, reruns: bool = False) -> Iterator[None]:
    """Let a task model's encoder skip padding inside a `with` block, where [`can_pack`] is true.

    The head gets states in padded form, zero at padding, so it must not read those. Calls with other inputs than token
    ids and their mask are padded. `reruns`: see [`encode_batch`].
    """
    encoder = cast(PreTrainedModel, backbone_of(model))
    forward, names = encoder.forward, [*inspect.signature(encoder.forward).parameters]
    pooler = getattr(encoder, "pooler", None)

    def run(*args: Any, **kwargs: Any) -> object:
        given = {name: value for name, value in {**dict(zip(names, args)), **kwargs}.items() if value is not None}
        inside = given["attention_mask"].bool() if "attention_mask" in given else None
        if inside is None or bool(inside.all()) or given.keys() - {"return_dict"} != {"input_ids", "attention_mask"}:
            return forward(*args, **kwargs)
        layout, last = Layout.of(inside), [encoder.config.num_hidden_layers]
        output = _run_packed(forward, encoder, given["input_ids"], layout, last, reruns)
        states = output.last_hidden_state
        return BaseModelOutputWithPooling(states, pooler_output=None if pooler is None else pooler(states))

    # A pooler of another form, as ALBERT's, reads one token outside its module.
    packs = can_pack(encoder) and (pooler is None or type(pooler).__name__.endswith("Pooler"))
    with replaced_forwards([encoder], [run]) if packs else contextlib.nullcontext():
        yield


def _run_packed(
    model: Callable[..., BaseModelOutput],
    base: PreTrainedModel,
    input_ids: Tensor,
    layout: Layout,
    layers: Sequence[int],
    reruns: bool,
) -> BaseModelOutput:
    config, inside, depth = base.config, layout.inside, base.config.num_hidden_layers
    # The positions of a padded batch, because a row would count on from sentence to sentence.
    positions = inside.cumsum(1) - 1 + first_position(config)
    attention = config._attn_implementation
    config._attn_implementation_internal = PACKED_ATTENTION
    try:
        output = model(
            input_ids=input_ids[inside].unsqueeze(0),
            # A 4-D mask reaches the attention function unchanged, which does not read it: `packed` has the padding.
            attention_mask=inside.new_ones(1, 1, 1, 1),
            position_ids=positions[inside].unsqueeze(0),
            output_hidden_states=list(layers) != [depth],
            packed=layout,
        )
    finally:
        # Other models may share the config. A layer that runs again in the backward pass still needs it.
        if not reruns:
            config._attn_implementation_internal = attention
    states: list[Tensor | None] = [None] * (depth + 1)
    for layer, state in zip(layers, select_layers(output, layers, depth), strict=True):
        states[layer] = layout.pad(state[0])
    return BaseModelOutput(states[depth], cast(Any, tuple(states)))
