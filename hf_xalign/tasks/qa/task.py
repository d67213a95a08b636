"""Extractive question answering as a task: the answer is a span of the context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor

from hf_xalign.checks import check_range
from hf_xalign.data.batches.token_index import pad_rows
from hf_xalign.errors import InputError
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.qa.features import NOWHERE, encode_questions
from hf_xalign.tasks.qa.normalization import Rules
from hf_xalign.tasks.qa.scores import score_answers
from hf_xalign.tasks.task import Batch, Task, TaskScores

NO_SPAN = -1


@dataclass(frozen=True)
class QuestionTask(Task):
    """Extractive question answering: predict the first and last token of the answer (Devlin et al. 2019, 4.2).

    The loss of a window is the mean of two cross entropies over its tokens without padding, so it does not depend on
    other windows of the batch. The loss of a step is the mean over windows.

    Attributes:
        metric: headline score.
        overlap: number of context tokens that two windows share.
        max_question_tokens: maximum number of question tokens; longer questions are truncated.
        max_answer_tokens: maximum number of answer tokens.
        rules: rules for comparing answers, see [`~hf_xalign.tasks.qa.normalization.answer_tokens`].

    Example:
        >>> task = QuestionTask(metric="exact_match", max_answer_tokens=10)
        >>> task.head, task.config()
        ('ForQuestionAnswering', {})
    """

    kind: ClassVar[str] = "questions"
    head: ClassVar[str] = "ForQuestionAnswering"
    metric: Literal["qa_f1", "exact_match"] = "qa_f1"
    overlap: int = 128
    max_question_tokens: int = 64
    max_answer_tokens: int = 30
    rules: Rules = "mlqa"

    def encode(self, examples: Examples, *inputs: Any, **options: Any) -> Dataset:
        """Encode questions as windows, see [`encode_questions`]."""
        return encode_questions(
            examples, *inputs, overlap=self.overlap, max_question_tokens=self.max_question_tokens, **options
        )

    def collate(self, rows: Sequence[Mapping[str, Any]], pad_token_id: int) -> Batch:
        """Collate windows, padded at the end to the longest of them.

        The batch (B windows, width T) holds `input_ids`, `attention_mask` int64 (B, T); `token_type_ids` and
        `language` (map ids) int64 (B, T), if the model reads them; for training `start_positions`, `end_positions`
        int64 (B,), for prediction `opens`, `closes` int64 (B, T).
        """
        batch = super().collate(rows, pad_token_id)
        at = torch.tensor([row["context_at"] for row in rows])[:, None]
        in_question = torch.arange(batch["input_ids"].shape[1]) < at
        for column, name in (("token_types", "token_type_ids"), ("language_numbers", "language")):
            if column in rows[0]:
                question, context = torch.tensor([list(row[column]) for row in rows]).T
                batch[name] = torch.where(in_question, question[:, None], context[:, None])
        for name in {"opens", "closes"} & rows[0].keys():
            batch[name] = torch.from_numpy(pad_rows([row[name] for row in rows], NOWHERE)[0])
        for name in {"start_position", "end_position"} & rows[0].keys():
            batch[f"{name}s"] = torch.tensor([row[name] for row in rows])
        return batch

    def count_items(self, batch: Batch) -> int:
        """Count the windows."""
        return len(batch["input_ids"])

    def loss(self, output: Any, batch: Batch) -> Tensor:
        """Return the sum over windows of the mean of both cross entropies."""
        padding = batch["attention_mask"] == 0
        losses = [
            F.cross_entropy(logits.float().masked_fill(padding, -torch.inf), batch[labels], reduction="sum")
            for logits, labels in ((output.start_logits, "start_positions"), (output.end_logits, "end_positions"))
        ]
        return (losses[0] + losses[1]) / 2

    def predictions(self, output: Any, batch: Batch) -> list[np.ndarray]:
        """Return the best span of each window, float64 (3,): first character, end, score."""
        ends = output.start_logits, output.end_logits, batch["opens"], batch["closes"]
        return list(window_spans(*ends, max_answer_tokens=self.max_answer_tokens).cpu().numpy())

    def answers(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> list[str]:
        """Return the text of the answer to each question, "" if there is none; arguments are those of `score`."""
        spans = best_spans(np.asarray(encoded["question"][:]), np.stack(predictions), len(examples))
        return [
            context[start:end] if start >= 0 else ""
            for context, (start, end) in zip(examples.rows["context"], spans.tolist(), strict=True)
        ]

    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Return the F1 and exact match of each question."""
        answers = self.answers(examples, encoded, predictions)
        references = [row["text"] for row in examples.rows["answers"]]
        found = score_answers(answers, references, examples.rows["context_lang"][:], rules=self.rules)
        f1, exact_match = map(ExampleScores.from_values, found)
        return TaskScores({"qa_f1": f1, "exact_match": exact_match}, {"windows": len(encoded)})


def window_spans(
    start_logits: Tensor, end_logits: Tensor, opens: Tensor, closes: Tensor, *, max_answer_tokens: int = 30
) -> Tensor:
    """Find the span s..e with the highest start_logits[s] + end_logits[e] in each window.

    The search over all spans of at most `max_answer_tokens` is exact. Among equal scores, it prefers the span that
    begins first, then the shorter one. All arguments are (windows, T).

    Returns float64 (windows, 3): characters `[start, end)` of the context and the score, or -1, -1 and -inf if the
    window has no span.
    """
    check_range(least=1, max_answer_tokens=max_answer_tokens)
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
    """Choose the best span over all windows of each of `count` questions; ties as in [`window_spans`].

    `questions` (windows,) is the row of each window's question, and `spans` come from [`window_spans`]. Returns the
    characters `[start, end)`, int64 (count, 2); -1 if no window of the question has a span.
    """
    starts, ends, scores = spans.T
    if np.isnan(scores).any():
        window = int(np.flatnonzero(np.isnan(scores))[0])
        raise InputError(
            f"the scores of window {window} are NaN: the model diverged, or overflows in half precision. Lower the "
            "learning rate, or evaluate in float32."
        )
    order = np.lexsort((ends, starts, -scores, questions))
    rows, at = np.unique(questions[order], return_index=True)
    found = np.full((count, 2), NO_SPAN)
    found[rows] = spans[order[at], :2]
    return found
