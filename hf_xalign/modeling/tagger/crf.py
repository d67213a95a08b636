"""Linear-chain CRF: log-likelihood of a tag sequence, and the best sequence (Lafferty et al. 2001).

The available packages (pytorch-crf, torch-struct) are unmaintained and have no forbidden or word-dependent
transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hf_xalign.errors import InputError

NO_TAG = -100  # tag of padding, as in labels


class Constraint(NamedTuple):
    """Forbidden first tags, bool (tags,), and forbidden transitions from tag i to tag j, bool (tags, tags)."""

    start: Tensor
    transitions: Tensor


def bio_constraint(names: Sequence[str]) -> Constraint:
    """Build the constraint that `I-X` follows only `B-X` or `I-X`; all other tags are outside."""
    strange = [name for name in names if name.startswith("I-") and f"B-{name[2:]}" not in names]
    if strange:
        raise InputError(
            f"there is a tag {strange[0]} but no B-{strange[0][2:]}. Add it to the tags, or set bio=False"
        )
    inside = [name.startswith("I-") for name in names]
    follows = [[name[2:] == before[2:] and before[:2] in ("B-", "I-") for name in names] for before in names]
    start = torch.tensor(inside)
    return Constraint(start, start & ~torch.tensor(follows))


class LinearChainCRF(nn.Module):
    """Probability p(y | x) = exp(s(x, y)) / sum over y' of exp(s(x, y')) of a sentence's tags y.

    For n words, y' runs over the allowed sequences of n tags, and

    s(x, y) = start[y_1] + end[y_n] + sum_t emissions[t, y_t]
              + sum_{t > 1} transitions[y_{t-1}, y_t] + pairwise[t - 1, y_{t-1}, y_t].

    Computation is in log space and at least float32, also under autocast. The only loop is over words. A mask is True
    up to a sentence's length; everything after it is ignored. A sentence without words has probability 1.

    `constraint` forbids tag sequences in training and decoding; every tag must remain reachable.
    """

    forbidden_start: Tensor | None
    forbidden: Tensor | None

    def __init__(self, num_tags: int, constraint: Constraint | None = None):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(num_tags))
        self.end = nn.Parameter(torch.zeros(num_tags))
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))
        # Added to the scores: -inf if forbidden, else 0. Saved with the weights, because `from_pretrained` would leave
        # other buffers uninitialised; not bool, because a `dtype` argument may convert it.
        for name, bad in zip(("forbidden_start", "forbidden"), constraint or (None, None), strict=True):
            self.register_buffer(name, None if bad is None else torch.zeros(bad.shape).masked_fill(bad, -torch.inf))

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor, pairwise: Tensor | None = None) -> Tensor:
        """Return log p(y | x) of each sentence, float (B,).

        Args:
            emissions: float (B, W, K).
            tags: int64 (B, W), allowed sequences (see [`check_tags`]); any value at padding.
            mask: bool (B, W).
            pairwise: float (B, W - 1, K, K), added to the transitions from word t to word t + 1, or None.
        """
        with torch.autocast(emissions.device.type, enabled=False):
            emissions, pairwise = self._prepare(emissions, mask, pairwise)
            score = self._score(emissions, tags.masked_fill(~mask, 0), mask, pairwise)
            return torch.where(mask[:, 0], score - self._log_partition(emissions, mask, pairwise), 0.0)

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor, pairwise: Tensor | None = None) -> Tensor:
        """Return the most probable tags of each sentence (Viterbi), int64 (B, W); -100 at padding."""
        with torch.autocast(emissions.device.type, enabled=False):
            emissions, pairwise = self._prepare(emissions, mask, pairwise)
            best = self._allowed_start() + emissions[:, 0]
            itself = torch.arange(best.shape[1], device=best.device).expand_as(best)
            before = []
            for t in range(1, emissions.shape[1]):
                found, previous = (best.unsqueeze(2) + self._step(pairwise, t)).max(1)
                goes_on = mask[:, t, None]
                best = torch.where(goes_on, found + emissions[:, t], best)
                before.append(torch.where(goes_on, previous, itself))
            path = [(best + self.end).argmax(1)]
            for previous in reversed(before):
                path.append(previous.gather(1, path[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(path[::-1], dim=1).masked_fill(~mask, NO_TAG)

    def check_tags(self, tags: Tensor, mask: Tensor) -> None:
        """Raise an InputError unless `tags` int64 (B, W) are known and allowed."""
        size = len(self.start)
        if tags.shape != mask.shape:
            raise InputError(f"labels have shape {tuple(tags.shape)}, but words {tuple(mask.shape)}. Make them equal.")
        unknown = mask & ((tags < 0) | (tags >= size))
        if unknown.any():
            row, word = unknown.nonzero()[0].tolist()
            raise InputError(
                f"labels[{row}, {word}] = {int(tags[row, word])}: every word needs one of the tags 0 to {size - 1}; "
                "-100 is for padding only"
            )
        if self.forbidden is None or self.forbidden_start is None:
            return
        known = tags.masked_fill(~mask, 0)
        wrong = mask.clone()
        wrong[:, 0] &= self.forbidden_start[known[:, 0]] < 0
        wrong[:, 1:] &= self.forbidden[known[:, :-1], known[:, 1:]] < 0
        if wrong.any():
            row, word = wrong.nonzero()[0].tolist()
            place = f"after tag {int(tags[row, word - 1])}" if word else "at the start of a sentence"
            raise InputError(
                f"labels[{row}, {word}] = {int(tags[row, word])} {place} is forbidden. Correct the labels (I-X must "
                "follow B-X or I-X), or set bio=False"
            )

    def _prepare(self, emissions: Tensor, mask: Tensor, pairwise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        precision = torch.promote_types(torch.promote_types(emissions.dtype, self.start.dtype), torch.float32)
        # Mask padding instead of multiplying it by 0, because it may be NaN.
        emissions = emissions.to(precision).masked_fill(~mask.unsqueeze(-1), 0.0)
        if pairwise is not None:
            pairwise = pairwise.to(precision).masked_fill(~mask[:, 1:, None, None], 0.0)
        return emissions, pairwise

    def _allowed_start(self) -> Tensor:
        return self.start if self.forbidden_start is None else self.start + self.forbidden_start

    def _step(self, pairwise: Tensor | None, t: int) -> Tensor:
        """Return the scores of all pairs of tags at words t - 1 and t: (K, K), or (B, K, K)."""
        pairs = self.transitions if pairwise is None else self.transitions + pairwise[:, t - 1]
        return pairs if self.forbidden is None else pairs + self.forbidden

    def _score(self, emissions: Tensor, tags: Tensor, mask: Tensor, pairwise: Tensor | None) -> Tensor:
        """Return s(x, y), (B,), for allowed tags that are 0 at padding."""
        last = tags.gather(1, mask.sum(1, keepdim=True).clamp(min=1) - 1).squeeze(1)
        emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1)
        moves = self.transitions[tags[:, :-1], tags[:, 1:]]
        if pairwise is not None:
            pair = tags[:, :-1] * len(self.start) + tags[:, 1:]
            moves = moves + pairwise.flatten(2).gather(2, pair.unsqueeze(2)).squeeze(2)
        moves = moves.masked_fill(~mask[:, 1:], 0.0).sum(1)
        return self.start[tags[:, 0]] + emitted + moves + self.end[last]

    def _log_partition(self, emissions: Tensor, mask: Tensor, pairwise: Tensor | None) -> Tensor:
        """Return the log of the sum over all allowed y' of exp(s(x, y')), (B,), by the forward algorithm."""
        alpha = self._allowed_start() + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            following = torch.logsumexp(alpha.unsqueeze(2) + self._step(pairwise, t), dim=1) + emissions[:, t]
            alpha = torch.where(mask[:, t, None], following, alpha)
        return torch.logsumexp(alpha + self.end, dim=1)
