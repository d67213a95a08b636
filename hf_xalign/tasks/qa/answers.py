"""From scores of first and last tokens to answers: the best spans of every window, then of every question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_xalign.errors import InputError

NO_SPAN = -1


class WindowSpans(NamedTuple):
    """The best spans of each window, the best first; (windows, n).

    Attributes:
        starts, ends: int64, characters `[start, end)` of the context; -1 where there are fewer than n.
        scores: float32, score of the first token plus that of the last; -inf where there are fewer.
    """

    starts: Tensor
    ends: Tensor
    scores: Tensor


class AnswerSpans(NamedTuple):
    """The best distinct spans of each question, the best first; (questions, n).

    Attributes:
        starts, ends: int64, characters `[start, end)` of the context; -1 where there are fewer than n.
        scores: float64, score of the first token plus that of the last; -inf where there are fewer.
    """

    starts: np.ndarray
    ends: np.ndarray
    scores: np.ndarray

    def texts(self, contexts: Sequence[str]) -> list[str]:
        """The best answer of each question, as it stands in its context; empty where there is none."""
        spans = zip(contexts, self.starts[:, 0].tolist(), self.ends[:, 0].tolist(), strict=True)
        return [context[start:end] if start >= 0 else "" for context, start, end in spans]


def window_spans(
    start_logits: Tensor,
    end_logits: Tensor,
    opens: Tensor,
    closes: Tensor,
    *,
    n_best: int = 1,
    max_answer_tokens: int = 30,
) -> WindowSpans:
    """Spans s..e of highest start_logits[s] + end_logits[e], over all that an answer can be.

    The search is exact: all spans are looked at, not those between the best starts and the best ends alone. Of equal
    scores the span that begins first is taken, then the shorter.

    Args:
        start_logits: float (windows, T), scores of first tokens.
        end_logits: float (windows, T), scores of last tokens.
        opens: int64 (windows, T), see [`~hf_xalign.tasks.qa.features.QuestionCollator`].
        closes: likewise.
        n_best: spans wanted of each window.
        max_answer_tokens: an answer has this many at most.

    Raises:
        InputError: none is wanted.
    """
    if n_best < 1 or max_answer_tokens < 1:
        raise InputError(f"n_best={n_best}, max_answer_tokens={max_answer_tokens}: at least 1 each")
    width = min(max_answer_tokens, start_logits.shape[1])
    first = start_logits.float().masked_fill(opens < 0, -torch.inf)
    last = end_logits.float().masked_fill(closes < 0, -torch.inf)
    following = torch.nn.functional.pad(last, (0, width - 1), value=-torch.inf).unfold(1, width, 1)
    # (windows, T, width): from each token the spans of 1, 2, ... tokens.
    scores = (first[:, :, None] + following).flatten(1)
    found = []
    for _ in range(min(n_best, scores.shape[1])):
        # Not topk, which may take any of equal scores; argmax takes the first.
        best = scores.argmax(1, keepdim=True)
        value = scores.gather(1, best)
        start = torch.div(best, width, rounding_mode="floor")
        end = (start + best % width).clamp(max=closes.shape[1] - 1)
        none = value == -torch.inf
        found.append(
            (
                opens.gather(1, start).masked_fill(none, NO_SPAN),
                closes.gather(1, end).masked_fill(none, NO_SPAN),
                value,
            )
        )
        scores = scores.scatter(1, best, -torch.inf)
    return WindowSpans(*(torch.cat(column, dim=1) for column in zip(*found, strict=True)))


def best_answers(
    questions: np.ndarray, starts: np.ndarray, ends: np.ndarray, scores: np.ndarray, *, count: int, n_best: int = 1
) -> AnswerSpans:
    """The best spans over all windows of each question; a span that several windows have counts once, at its best.

    Of equal scores the span that begins first is taken, then the shorter.

    Args:
        questions: int (windows,), the question of each window.
        starts: int (windows, n), of [`window_spans`] with an `n_best` that is not below the one here.
        ends: likewise.
        scores: float (windows, n), likewise.
        count: questions.
        n_best: spans wanted of each question.

    Raises:
        InputError: the arrays do not fit each other, or a score is NaN.
    """
    questions = np.asarray(questions)
    if starts.shape != ends.shape or starts.shape != scores.shape or starts.shape[:1] != questions.shape:
        raise InputError(
            f"spans of shapes {starts.shape}, {ends.shape}, {scores.shape} for {len(questions)} windows; one row of "
            "each is needed for every window, in their order"
        )
    if np.isnan(scores).any():
        window = int(np.flatnonzero(np.isnan(scores).any(axis=1))[0])
        raise InputError(f"the scores of window {window} are NaN: the model diverged, or overflows in half precision")
    owner = np.repeat(questions, starts.shape[1])
    columns = [owner, *(column.reshape(-1) for column in (starts, ends, scores))]
    owner, start, end, score = (column[columns[3] > -np.inf] for column in columns)
    order = np.lexsort((end, start, -score, owner))
    owner, start, end, score = (column[order] for column in (owner, start, end, score))
    # The first of equal spans, which is the best one since they are in order of score.
    _, kept = np.unique(np.stack([owner, start, end]), axis=1, return_index=True)
    kept.sort()
    owner, start, end, score = (column[kept] for column in (owner, start, end, score))
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    chosen = rank < n_best
    spans = AnswerSpans(
        np.full((count, n_best), NO_SPAN), np.full((count, n_best), NO_SPAN), np.full((count, n_best), -np.inf)
    )
    for array, column in zip(spans, (start, end, score), strict=True):
        array[owner[chosen], rank[chosen]] = column[chosen]
    return spans
