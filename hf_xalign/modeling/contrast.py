"""Contrasts of sentences: projection heads, cached gradients, and MoCo's momentum encoder and queue."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Literal

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import PreTrainedModel

from hf_xalign.distributed import full_tensor, local_shard, shard_like
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.packing import encode_batch
from hf_xalign.modeling.pooling import SentencePooling, pool_sentences
from hf_xalign.modeling.tensors import read_tensors, write_tensors

Normalize = Literal["before", "after"]


class ProjectionHead(nn.Module):
    """Projection head of word-level InfoNCE: W2 ReLU(W1 x), d -> d -> `size`, no biases (Wu and Dredze 2020)."""

    def __init__(self, hidden_size: int, size: int):
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.out = nn.Linear(hidden_size, size, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project float (..., hidden_size) to (..., size)."""
        return self.out(torch.relu(self.hidden(vectors)))


class SentenceHead(ProjectionHead):
    """Projection head of sentences: z = W2 ReLU(W1 h), d -> d -> `size`, no biases (PPA eq. 2).

    With `normalize="before"`, as published, h has length 1; with `"after"`, as in MoCo and SimCLR, z has. The head
    computes in the precision of its weights, without autocast.
    """

    def __init__(self, hidden_size: int, size: int = 300, *, normalize: Normalize = "before"):
        super().__init__(hidden_size, size)
        self.normalize = normalize

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project float (..., hidden_size) to (..., size)."""
        with torch.autocast(vectors.device.type, enabled=False):
            vectors = vectors.to(self.hidden.weight.dtype)
            # Then z has any length, so the logits z_q . z_k / T are not cosines: with new weights they differ by a
            # fraction of 1, and training W has to spread them.
            if self.normalize == "before":
                return super().forward(nn.functional.normalize(vectors, dim=-1))
            return nn.functional.normalize(super().forward(vectors), dim=-1)


QueueStart = Literal["empty", "random"]

# Values of `pairs` for a slot without a key, and for a slot with a random key.
EMPTY, RANDOM = -1, -2

# A new number refuses checkpoints with other tensors.
_FORMAT = "hf_xalign momentum 2"


class KeyQueue(nn.Module):
    """Ring buffer of the last `size` keys, whose whole state is in `state_dict()`.

    Buffers: `keys` float32 (size, dim); `pairs` int64 (size,), the index in the corpus of the pair of each key,
    [`EMPTY`] or [`RANDOM`]; `pointer` int64 (), the next slot to write.
    """

    keys: torch.Tensor
    pairs: torch.Tensor
    pointer: torch.Tensor

    def __init__(self, size: int, dim: int, *, start: QueueStart = "empty", seed: int = 0):
        super().__init__()
        # From an empty start, a slot becomes a negative when it gets a key, so the loss rises from 0 while the queue
        # fills. Else, as in MoCo and PPA, slots hold Gaussian vectors of length 1, equal on all processes, until keys
        # replace them.
        keys = torch.zeros(size, dim)
        if start == "random":
            generator = torch.Generator().manual_seed(seed)
            keys = nn.functional.normalize(torch.randn(size, dim, generator=generator), dim=-1)
        self.register_buffer("keys", keys)
        self.register_buffer("pairs", torch.full((size,), EMPTY if start == "empty" else RANDOM))
        self.register_buffer("pointer", torch.tensor(0))

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self.keys)

    @torch.no_grad()
    def enqueue(self, keys: torch.Tensor, pairs: torch.Tensor) -> None:
        """Replace the oldest keys by all keys of a step, at most `size`, in the same order on every process."""
        # Every process has an equal copy, because all enqueue the same keys. The losses of a step refer to `keys`, so
        # all backward passes of the step must have come before.
        count, size = len(keys), len(self)
        slots = (self.pointer + torch.arange(count, device=self.keys.device)) % size
        self.keys.index_copy_(0, slots, keys.to(self.keys.dtype))
        self.pairs.index_copy_(0, slots, pairs)
        # In place, and without synchronizing the device.
        self.pointer.add_(count).remainder_(size)


class MomentumEncoder(nn.Module):
    """The key encoder f_k: an exponential moving average of the query encoder and its head.

    Keep it outside the optimizer, DDP and the exported weights. All processes compute equal copies, without
    communication. Frozen parameters are shared with the query encoder and must stay frozen. Pass the query encoder
    before accelerate wraps it: a copy of a wrapped `forward` would still call the query encoder. The projection is
    `head`, `(rows, hidden_size) -> (rows, size)`. Keys have no dropout.
    """

    def __init__(self, encoder: PreTrainedModel, head: nn.Module, *, pooling: SentencePooling = "cls"):
        super().__init__()
        parameters = (*encoder.parameters(), *head.parameters())
        shared = {id(p): p for p in parameters if not p.requires_grad and p.dtype.itemsize >= 4}
        # The heads of the loss lie inside the encoder. The one that is needed is copied by itself below.
        left_out = {id(getattr(encoder, HEAD_NAME)): None} if hasattr(encoder, HEAD_NAME) else {}
        self.encoder = copy.deepcopy(encoder, memo={**shared, **left_out})
        self.head = copy.deepcopy(head, memo=dict(shared))
        self.pooling = pooling
        # In float32, because the rounding of 8 or 11 bits would lose (1 - m) of a step.
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point() and tensor.dtype.itemsize < 4:
                tensor.data = tensor.data.float()
        self.shared = frozenset(name for name, p in self.named_parameters() if id(p) in shared)
        self.requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, encoder: nn.Module, head: nn.Module, momentum: float) -> None:
        """Set theta_k = m theta_k + (1 - m) theta_q (PPA eq. 1) for every parameter, and copy the buffers."""
        keys: list[torch.Tensor] = []
        queries: list[torch.Tensor] = []
        for name, key, query in self._with_queries(encoder, head):
            if name not in self.shared:
                keys.append(local_shard(key))
                queries.append(local_shard(query).to(key.dtype))
        for key_module, query_module in ((self.encoder, encoder), (self.head, head)):
            buffers = dict(query_module.named_buffers())
            for name, buffer in key_module.named_buffers():
                buffer.copy_(buffers[name])
        # Calls `_foreach_lerp_`: a few GPU kernels for all parameters, instead of two for each.
        get_ema_multi_avg_fn(momentum)(keys, queries, None)

    @torch.no_grad()
    def copy_shared(self, encoder: nn.Module, head: nn.Module) -> None:
        """Copy the frozen parameters of the query encoder, which sharding has separated from the shared ones."""
        for name, key, query in self._with_queries(encoder, head):
            if name in self.shared and key is not query:
                local_shard(key).copy_(local_shard(query))

    def _with_queries(self, encoder: nn.Module, head: nn.Module) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Yield the name of every parameter, its tensor, and that of the query encoder."""
        for prefix, key_module, query_module in (("encoder", self.encoder, encoder), ("head", self.head, head)):
            queries = dict(query_module.named_parameters())
            # `named_parameters` yields a tied parameter once; averaging it twice would square the momentum.
            for name, key in key_module.named_parameters():
                yield f"{prefix}.{name}", key, queries[name]

    @torch.no_grad()
    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the keys of sentences, float (rows, size), for token ids (rows, width), without a graph."""
        last = [self.encoder.config.num_hidden_layers]
        hidden = encode_batch(self.encoder, self.encoder, input_ids, attention_mask, last)["last_hidden_state"]
        return self.head(pool_sentences(hidden, attention_mask, self.pooling))


def save_momentum(path: str | os.PathLike, momentum: MomentumEncoder, queue: KeyQueue, *, write: bool = True) -> None:
    """Write the momentum encoder, its head and the queue to one safetensors file, atomically.

    Parameters that are shared with the query encoder are not written. If the encoder is sharded, all processes must
    call this, and one of them with `write`.
    """
    tensors = {name: full_tensor(tensor) for name, tensor in _kept(momentum, queue).items()}
    if write:
        # One key of metadata, because the order of several is random, and equal runs give equal files.
        write_tensors(path, tensors, {"format": _FORMAT})


@torch.no_grad()
def load_momentum(path: str | os.PathLike, momentum: MomentumEncoder, queue: KeyQueue) -> None:
    """Restore both in place from a file of [`save_momentum`]; a damaged file raises an InputError."""
    saved, _ = read_tensors(path, "the momentum encoder and its queue", "a run of this version", _FORMAT)
    for name, tensor in _kept(momentum, queue).items():
        tensor.copy_(shard_like(saved[name], tensor))


def _kept(momentum: MomentumEncoder, queue: KeyQueue) -> dict[str, torch.Tensor]:
    """Return the tensors of the file: tied ones once, as safetensors requires, and without shared ones."""
    once = {name for name, _ in (*momentum.named_parameters(), *momentum.named_buffers())} - momentum.shared
    tensors = {name: tensor for name, tensor in momentum.state_dict().items() if name in once}
    return tensors | {f"queue.{name}": tensor for name, tensor in queue.state_dict().items()}
