"""Find the best answer span of each window, then of each question."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hf_xalign.errors import InputError

NO_SPAN = -1


def window_spans(
    start_logits: Tensor, end_logits: Tensor, opens: Tensor, closes: Tensor, *, max_answer_tokens: int = 30
) -> Tensor:
    """Find the span s..e with the highest start_logits[s] + end_logits[e] in each window.

    The search over all spans of at most `max_answer_tokens` is exact. Of equal scores, the span that begins first
    wins, then the shorter one. All arguments are (windows, T).

    Returns float64 (windows, 3): characters `[start, end)` of the context, -1 if the window has no span; and the score
    of the first token plus that of the last, -inf if the window has no span.
    """
    if max_answer_tokens < 1:
        raise InputError(f"max_answer_tokens={max_answer_tokens} must be at least 1")
    width = min(max_answer_tokens, start_logits.shape[1])
    first = start_logits.float().masked_fill(opens < 0, -torch.inf)
    last = end_logits.float().masked_fill(closes < 0, -torch.inf)
    following = torch.nn.functional.pad(last, (0, width - 1), value=-torch.inf).unfold(1, width, 1)
    # (windows, T * width): from each token the spans of 1, 2, ... tokens.
    scores = (first[:, :, None] + following).flatten(1)
    best = scores.argmax(1, keepdim=True)  # the first of equal scores
    value = scores.gather(1, best)
    none = value == -torch.inf
    start = torch.div(best, width, rounding_mode="floor")
    end = (start + best % width).clamp(max=closes.shape[1] - 1)
    starts = opens.gather(1, start).masked_fill(none, NO_SPAN)
    ends = closes.gather(1, end).masked_fill(none, NO_SPAN)
    return torch.cat([starts.double(), ends.double(), value.double()], dim=1)


def best_spans(questions: np.ndarray, spans: np.ndarray, count: int) -> np.ndarray:
    """Choose the best span over all windows of each of `count` questions, of equal ones as [`window_spans`] does.

    `questions` (windows,) is the row of each window's question, and `spans` come from [`window_spans`].

    Returns int64 (count, 2) characters `[start, end)`; -1 if no window of the question has a span.
    """
    starts, ends, scores = spans.T
    if np.isnan(scores).any():
        window = int(np.flatnonzero(np.isnan(scores))[0])
        raise InputError(f"the scores of window {window} are NaN: the model diverged, or overflows in half precision")
    order = np.lexsort((ends, starts, -scores, questions))
    rows, at = np.unique(questions[order], return_index=True)
    found = np.full((count, 2), NO_SPAN)
    found[rows] = spans[order[at], :2]
    return found
