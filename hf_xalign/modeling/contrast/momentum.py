"""The momentum encoder of MoCo (He et al. 2020) and PPA, its queue of keys, and the file that both are kept in."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import PreTrainedModel

from hf_xalign.cache import replacing
from hf_xalign.distributed import full_tensor, local_shard, shard_like
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.contrast.heads import SentencePooling, pool_sentences

QueueStart = Literal["empty", "random"]

# In `pairs`: a slot without a key, and one whose key was drawn at random and is of no pair.
EMPTY, RANDOM = -1, -2

_FORMAT = "hf_xalign momentum 1"


class KeyQueue(nn.Module):
    """A ring of the last `size` keys; all of its state is in `state_dict()` and comes back bit for bit.

    Buffers: `keys` float32 (size, dim); `pairs` int64 (size,), the pair of the corpus that each key is of, [`EMPTY`]
    or [`RANDOM`]; `pointer` int64 (), the slot that is written next; `filled` int64 (), the slots that hold the key of
    a pair.

    Every process has its own, the same as all enqueue the same keys ([`~hf_xalign.distributed.gather_rows`]). The
    losses of a step refer to `keys`, so the step's backward passes come before its `enqueue`.

    The start is `empty`: a slot is a negative once it holds a key, so the loss rises from 0 while the queue fills. Or
    it is `random`, as MoCo and PPA: Gaussian vectors of length 1 until real keys replace them, equal on all processes.
    """

    keys: torch.Tensor
    pairs: torch.Tensor
    pointer: torch.Tensor
    filled: torch.Tensor

    def __init__(self, size: int, dim: int, *, start: QueueStart = "empty", seed: int = 0):
        super().__init__()
        keys = torch.zeros(size, dim)
        if start == "random":
            generator = torch.Generator().manual_seed(seed)
            keys = nn.functional.normalize(torch.randn(size, dim, generator=generator), dim=-1)
        self.register_buffer("keys", keys)
        self.register_buffer("pairs", torch.full((size,), EMPTY if start == "empty" else RANDOM))
        self.register_buffer("pointer", torch.tensor(0))
        self.register_buffer("filled", torch.tensor(0))

    def __len__(self) -> int:
        """Slots, whether they hold a key or not."""
        return len(self.keys)

    @torch.no_grad()
    def enqueue(self, keys: torch.Tensor, pairs: torch.Tensor) -> None:
        """Write keys over the oldest ones: all keys of an optimizer step, in the same order on every process."""
        count, size = len(keys), len(self)
        if count > size:
            raise InputError(
                f"queue_size={size}: an optimizer step has {count} keys (pairs of a batch x accumulation steps x "
                f"processes), more than the queue holds; give a queue_size of at least {count}, or a smaller batch"
            )
        slots = (self.pointer + torch.arange(count, device=self.keys.device)) % size
        self.keys.index_copy_(0, slots, keys.to(self.keys.dtype))
        self.pairs.index_copy_(0, slots, pairs)
        # In place, and without asking the device for a number.
        self.pointer.add_(count).remainder_(size)
        self.filled.add_(count).clamp_(max=size)


class MomentumEncoder(nn.Module):
    """f_k: a copy of the query encoder and its head that follows them as an exponential moving average.

    It belongs outside the optimizer, DDP and the exported weights. Every process has the same one without any message
    between them. What is frozen in the query encoder is shared and must stay frozen. Half-precision weights are copied
    in float32, because (1 - m) of a step is lost in the rounding of 8 or 11 bits.

    The query encoder is given before accelerate wraps it: a wrapped `forward` would be copied as it is, and go on
    calling the query encoder. A head in it ([`~hf_xalign.modeling.checkpoint.HEAD_NAME`]) is left out; its projection
    is `head`, `(rows, hidden_size) -> (rows, size)`. With `dropout` keys are computed with the encoder's dropout, as
    in MoCo's code. The papers do not say.
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
        """theta_k = m theta_k + (1 - m) theta_q (PPA eq. 1) for every parameter once; buffers become the query's."""
        keys: list[torch.Tensor] = []
        queries: list[torch.Tensor] = []
        for name, key, query in self._with_queries(encoder, head):
            if name not in self.shared:
                keys.append(local_shard(key))
                queries.append(local_shard(query).to(key.dtype))
        for own, other in ((self.encoder, encoder), (self.head, head)):
            buffers = dict(other.named_buffers())
            for name, buffer in own.named_buffers():
                buffer.copy_(buffers[name])
        # torch's public way to `_foreach_lerp_`: on a GPU a few kernels for all parameters, not two for each.
        get_ema_multi_avg_fn(momentum)(keys, queries, None)

    @torch.no_grad()
    def copy_shared(self, encoder: nn.Module, head: nn.Module) -> None:
        """Copy what is frozen from the query encoder; for sharded encoders, whose tensors are no longer the same."""
        for name, key, query in self._with_queries(encoder, head):
            if name in self.shared and key is not query:
                local_shard(key).copy_(local_shard(query))

    def _with_queries(self, encoder: nn.Module, head: nn.Module) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Yield the name of every parameter, its tensor here, and that of the query encoder."""
        for part, own, other in (("encoder", self.encoder, encoder), ("head", self.head, head)):
            queries = dict(other.named_parameters())
            # Named parameters name a tied one once: averaging it twice would be an average of another m.
            for name, key in own.named_parameters():
                yield f"{part}.{name}", key, queries[name]

    @torch.no_grad()
    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The keys of sentences, (rows, width) token ids -> (rows, size), without a graph."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return self.head(pool_sentences(hidden, attention_mask, self.pooling))


def save_momentum(path: str | os.PathLike, momentum: MomentumEncoder, queue: KeyQueue, *, write: bool = True) -> None:
    """Write the momentum encoder, its head and the queue to one safetensors file, whole or not at all.

    What is shared with the query encoder is not in the file: it comes back with the query encoder. All processes must
    call this if the encoder is sharded, and one of them with `write`.
    """
    tensors = {name: full_tensor(tensor).contiguous() for name, tensor in _kept(momentum, queue).items()}
    if write:
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
                tensor.copy_(shard_like(file.get_tensor(name), tensor))
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
