"""Prediction of masked tokens (MLM, TLM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from hf_xalign.objectives.term import Read, Term, Vectors


@dataclass(kw_only=True)
class MaskedTokens(Term):
    """Cross entropy of masked tokens, of a sentence (MLM, Devlin et al. 2019) or of a pair (TLM, PPA section 2.2).

    The head is [`~hf_xalign.modeling.mlm_head.MaskedLMHead`], which shares the input embeddings.

    Args: (see [`Term`] for the others)
        seen: text that a masked token is predicted from, its `sentence` or both sentences of its `pair`.

    Inputs: `vectors.states` (rows, width, dim), `vectors.embeddings` (V, dim), `batch["mlm_positions"]` and
    `batch["mlm_labels"]` int64 (M,).

    Example:
        >>> batch = {"mlm_positions": torch.tensor([1]), "mlm_labels": torch.tensor([0])}
        >>> head = lambda states, positions, labels, embeddings: torch.nn.functional.cross_entropy(
        ...     states.flatten(0, 1)[positions] @ embeddings.T, labels)
        >>> vectors = Vectors(batch, heads={"words": head}.get, states=torch.eye(2)[None], embeddings=torch.eye(2))
        >>> MaskedTokens()(vectors)  # log(1 + e)
        tensor(1.3133)
    """

    seen: Literal["sentence", "pair"] = "sentence"

    reads: ClassVar[tuple[Read, ...]] = ("masked",)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name in logs."""
        return "tlm" if self.seen == "pair" else "mlm"

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of masked tokens of a batch."""
        return len(batch["mlm_labels"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum over the masked tokens."""
        batch = vectors.batch
        head = vectors.heads("words")
        return head(vectors.states, batch["mlm_positions"], batch["mlm_labels"], vectors.embeddings)

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        return f"mean over masked tokens of -log p(token | {self.seen})"
