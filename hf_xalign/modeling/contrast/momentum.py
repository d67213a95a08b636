"""The momentum encoder of MoCo (He et al. 2020) and PPA, and the file that it and its queue are kept in."""

from __future__ import annotations

import copy
import os

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import PreTrainedModel

from hf_xalign.cache import replacing
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.contrast.heads import SentencePooling, pool_sentences
from hf_xalign.modeling.contrast.key_queue import KeyQueue

_FORMAT = "hf_xalign momentum 1"


class MomentumEncoder(nn.Module):
    """f_k: a copy of the query encoder and its head that follows them as an exponential moving average.

    It belongs beside the trained model, not in it: outside the optimizer, DDP and the exported weights. Every process
    has the same one without any message between them, as its updates are of weights that DDP keeps the same.

    What is frozen in the query encoder is shared and not copied: it must stay frozen. Half-precision weights are
    copied in float32, because (1 - m) of a step is lost in the rounding of 8 or 11 bits.

    Args:
        encoder: the query encoder, before accelerate wraps it: a wrapped `forward` would be copied as it is, and go on
            calling the query encoder. A head in it ([`~hf_xalign.modeling.checkpoint.HEAD_NAME`]) is left out.
        head: the query encoder's projection, `(rows, hidden_size) -> (rows, size)`.
        pooling: how sentences are pooled.
        dropout: whether keys are computed with the encoder's dropout, as in MoCo's code, where the key encoder is in
            training mode. The papers do not say.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> encoder = BertModel(BertConfig(vocab_size=20, **tiny), add_pooling_layer=False)
        >>> head = nn.Linear(8, 4)
        >>> momentum = MomentumEncoder(encoder, head)
        >>> momentum.encode(torch.tensor([[2, 5, 3]]), torch.ones(1, 3)).shape
        torch.Size([1, 4])
        >>> momentum.update(encoder, head, momentum=0.999)  # after each optimizer step
    """

    def __init__(
        self, encoder: PreTrainedModel, head: nn.Module, *, pooling: SentencePooling = "cls", dropout: bool = False
    ):
        super().__init__()
        shared = {
            id(p): p
            for p in (*encoder.parameters(), *head.parameters())
            if not p.requires_grad and p.dtype.itemsize >= 4
        }
        left_out = {id(getattr(encoder, HEAD_NAME)): None} if hasattr(encoder, HEAD_NAME) else {}
        self.encoder = copy.deepcopy(encoder, memo={**shared, **left_out})
        self.head = copy.deepcopy(head, memo=dict(shared))
        self.pooling = pooling
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point() and tensor.dtype.itemsize < 4:
                tensor.data = tensor.data.float()
        self.shared = frozenset(name for name, p in self.named_parameters() if id(p) in shared)
        self.requires_grad_(False).train(dropout)

    @torch.no_grad()
    def update(self, encoder: nn.Module, head: nn.Module, momentum: float) -> None:
        """theta_k = m theta_k + (1 - m) theta_q (PPA eq. 1) for every parameter once; buffers become the query's.

        To be called once an optimizer step, after it.
        """
        keys: list[torch.Tensor] = []
        queries: list[torch.Tensor] = []
        for own, other in ((self.encoder, encoder), (self.head, head)):
            parameters, buffers = dict(other.named_parameters()), dict(other.named_buffers())
            # Named parameters name a tied one once: averaging it twice would be an average of another m.
            for name, key in own.named_parameters():
                if key is not parameters[name]:
                    keys.append(key)
                    queries.append(parameters[name].to(key.dtype))
            for name, buffer in own.named_buffers():
                buffer.copy_(buffers[name])
        # torch's public way to `_foreach_lerp_`: on a GPU a few kernels for all parameters, not two for each.
        get_ema_multi_avg_fn(momentum)(keys, queries, None)

    @torch.no_grad()
    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The keys of sentences, (rows, width) token ids -> (rows, size), without a graph."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return self.head(pool_sentences(hidden, attention_mask, self.pooling))


def save_momentum(path: str | os.PathLike, momentum: MomentumEncoder, queue: KeyQueue) -> None:
    """Write the momentum encoder, its head and the queue to one safetensors file, whole or not at all.

    What is shared with the query encoder (frozen word embeddings, the greater part of a multilingual encoder, or
    layers) is not in the file: it comes back with the query encoder.
    """
    tensors = {name: tensor.contiguous() for name, tensor in _kept(momentum, queue).items()}
    with replacing(path) as partial:
        save_file(tensors, partial, {"format": _FORMAT})  # one key: several come in an order that changes


def load_momentum(path: str | os.PathLike, momentum: MomentumEncoder, queue: KeyQueue) -> None:
    """Read a file of [`save_momentum`] back into both, in place, every number the same bits."""
    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("format") != _FORMAT:
                raise InputError(f"{path}: not a momentum encoder that this version of hf_xalign wrote")
            there = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)
            tensors = _kept(momentum, queue)
            _check_same(path, there, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
            for name, tensor in tensors.items():
                tensor.copy_(file.get_tensor(name))
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path}: the momentum encoder and its queue cannot be read ({error}); resume from another checkpoint"
        ) from error


def _kept(momentum: MomentumEncoder, queue: KeyQueue) -> dict[str, torch.Tensor]:
    """The tensors of the file, themselves: tied ones once, which safetensors asks for, and shared ones not at all."""
    once = {name for name, _ in (*momentum.named_parameters(), *momentum.named_buffers())} - momentum.shared
    tensors = {name: tensor for name, tensor in momentum.state_dict().items() if name in once}
    return tensors | {f"queue.{name}": tensor for name, tensor in queue.state_dict().items()}


def _check_same(path: str | os.PathLike, there: dict[str, tuple], here: dict[str, tuple]) -> None:
    way_out = "resume with the settings of the first run, or start in another output_dir"
    if "queue.keys" in there and there["queue.keys"] != here["queue.keys"]:
        (size, dim), (own_size, own_dim) = there["queue.keys"], here["queue.keys"]
        raise InputError(f"{path}: a queue of {size} keys of {dim} numbers, here {own_size} of {own_dim}: {way_out}")
    for name in sorted({*there, *here}):
        if there.get(name) != here.get(name):
            shapes = [f"of shape {found[name]}" if name in found else "missing" for found in (there, here)]
            raise InputError(
                f"{path}: the momentum encoder of another model, or of one frozen in other parts: {name} is "
                f"{shapes[0]} there and {shapes[1]} here; {way_out}"
            )
