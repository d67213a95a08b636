"""Contrast with a queue of keys from a momentum encoder (PPA)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import nn

from hf_xalign.checks import setting
from hf_xalign.objectives.sentences import at_least_float32
from hf_xalign.objectives.term import Read, Term, Vectors


def moco_infonce(
    queries: torch.Tensor,
    keys: torch.Tensor,
    queue_keys: torch.Tensor,
    *,
    queue_pairs: torch.Tensor,
    temperature: float,
    pairs: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute InfoNCE of queries against their keys and a queue of earlier keys (MoCo, He et al. 2020; PPA eq. 3).

    The loss of query i is -log exp(q_i . k_i / T) / (exp(q_i . k_i / T) + sum over the queue of exp(q_i . k / T)).
    Vectors are not normalized here.

    Args:
        queries: float (n, dim).
        keys: float (n, dim), the key of each query, without gradient.
        queue_keys: float (K, dim), the queue before this step's keys enter it.
        queue_pairs: int64 (K,), the pair of each key in the queue; -1 is an empty slot, which is never a negative.
        temperature: T.
        pairs: int64 (n,), the pair of each query. Keys of the same pair in the queue, from an earlier epoch, are then
            not negatives. By default they are, as published.

    Returns:
        float (n,), at least float32, also under autocast; 0 for a query without negatives.

    Example:
        >>> queries, queue = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        >>> moco_infonce(queries, queries, queue, queue_pairs=torch.tensor([7]), temperature=1.0)  # log((e + 1) / e)
        tensor([0.3133])
    """
    with torch.autocast(queries.device.type, enabled=False):
        queries, keys, queue_keys = at_least_float32(queries, keys, queue_keys)
        queries = queries / temperature
        left_out = (queue_pairs == -1).unsqueeze(0)
        if pairs is not None:
            left_out = left_out | (pairs.unsqueeze(1) == queue_pairs)
        negatives = (queries @ queue_keys.T).masked_fill(left_out, float("-inf"))
        logits = torch.cat([(queries * keys).sum(-1, keepdim=True), negatives], dim=1)
        return nn.functional.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.int64), reduction="none")


@dataclass(kw_only=True)
class MomentumContrast(Term):
    """Contrast of each sentence with its translation's key and a queue of keys, see [`moco_infonce`] (PPA eq. 3).

    Args: (see [`Term`] for the others)
        temperature: T.
        same_pair_negatives: use earlier keys of the same pair as negatives, as published.

    Inputs: `vectors.queries` and `vectors.keys` (B, size), `vectors.queue`, `batch["pairs"]` int64 (B,).

    Example:
        >>> from hf_xalign.modeling.contrast import KeyQueue
        >>> queue = KeyQueue(1, 2, start="empty")
        >>> queue.enqueue(torch.tensor([[0.0, 1.0]]), torch.tensor([7]))
        >>> queries, batch = torch.tensor([[1.0, 0.0]]), {"pairs": torch.tensor([3])}
        >>> MomentumContrast(temperature=1.0)(Vectors(batch, queries=queries, keys=queries, queue=queue))
        tensor(0.3133)
    """

    temperature: float = setting(0.05, above=0)
    same_pair_negatives: bool = False

    name: ClassVar[str] = "contrast"
    reads: ClassVar[tuple[Read, ...]] = ("keys",)

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of pairs of a batch."""
        return len(batch["pairs"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum over the pairs."""
        queue = vectors.queue
        pairs = None if self.same_pair_negatives else vectors.batch["pairs"]
        infonce = partial(moco_infonce, queue_pairs=queue.pairs, temperature=self.temperature, pairs=pairs)
        return infonce(vectors.queries, vectors.keys, queue.keys).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        positive, negative = (f"exp(q.{key} / {self.temperature:g})" for key in ("k", "k'"))
        return f"mean over pairs of -log {positive} / ({positive} + sum over the queue's keys k' of {negative})"
