"""Extractive question answering: find the answers to questions, spans of their passages."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset, Features, List, Value
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from hf_xalign.checks import check, setting
from hf_xalign.data.batches.pairs import pad_rows
from hf_xalign.data.encoding import check_fast, check_vocabulary, sentence_frame
from hf_xalign.data.readers.files import Record
from hf_xalign.errors import InputError
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.scoring import score_answers
from hf_xalign.tasks.squad import NOWHERE, read_questions
from hf_xalign.tasks.task import Batch, LanguageInputs, Task, TaskScores

logger = logging.getLogger(__name__)

NO_ANSWER = 0  # label of a window without the answer: the first token, [CLS]
_LABELS = ("start_position", "end_position")  # numbers of tokens
Span = tuple[int, int]  # first and last token


class TokenText(NamedTuple):
    """Character positions of each token of a context, int32 (tokens,).

    `starts` and `ends` are the characters `[start, end)` without surrounding blanks; empty for a token without visible
    characters. `opens` equals `starts` if an answer may begin at the token, `closes` equals `ends` if one may end
    there; else they are -1. If several tokens share a character (the bytes of a rare one), an answer may begin at the
    first and end at the last of them.
    """

    starts: np.ndarray
    ends: np.ndarray
    opens: np.ndarray
    closes: np.ndarray

    @classmethod
    def of(cls, context: str, offsets: np.ndarray, marks: np.ndarray) -> TokenText:
        """Make them from the tokenizer's offsets int (tokens, 2); `marks` bool (tokens,) are lone boundary marks."""
        visible = np.flatnonzero(~np.fromiter(map(str.isspace, context), dtype=bool, count=len(context)))
        first_visible = np.searchsorted(visible, offsets[:, 0])
        last_visible = np.searchsorted(visible, offsets[:, 1]) - 1
        with_text = np.flatnonzero((first_visible <= last_visible) & ~marks)
        starts, ends = np.zeros((2, len(offsets)), dtype=np.int32)
        starts[with_text], ends[with_text] = visible[first_visible[with_text]], visible[last_visible[with_text]] + 1
        opens, closes = np.full((2, len(offsets)), NOWHERE, dtype=np.int32)
        opening = with_text[np.diff(starts[with_text], prepend=-1) != 0]
        closing = with_text[np.diff(ends[with_text], append=-1) != 0]
        opens[opening], closes[closing] = starts[opening], ends[closing]
        return cls(starts, ends, opens, closes)

    def tokens_of(self, start: int, end: int) -> Span | None:
        """Return the first and last token that cover any of the characters `[start, end)`, or None."""
        touched = np.flatnonzero((self.ends > start) & (self.starts < end))
        if not len(touched):
            return None
        opening, closing = np.flatnonzero(self.opens >= 0), np.flatnonzero(self.closes >= 0)
        first = opening[np.searchsorted(opening, touched[0], side="right") - 1]
        last = closing[np.searchsorted(closing, touched[-1])]
        return int(first), int(last)


@dataclass(frozen=True)
class QuestionTask(Task):
    """Extractive question answering: predict the first and last token of the answer (Devlin et al. 2019, 4.2).

    The loss of a window is the mean of two cross entropies over its tokens without padding, so it does not depend on
    other windows of the batch. The loss of a step is the mean over windows.

    Attributes:
        metric: headline score.
        overlap: number of context tokens that two windows share, as transformers' `stride`. The default is BERT's for
            SQuAD (BERT's stride of 128 is the distance of two windows).
        max_question_tokens: maximum number of question tokens; longer questions are truncated.
        max_answer_tokens: maximum number of answer tokens.

    Example:
        >>> task = QuestionTask(metric="exact_match", max_answer_tokens=10)
        >>> task.head, task.config()
        ('ForQuestionAnswering', {})
    """

    kind: ClassVar[str] = "questions"
    head: ClassVar[str] = "ForQuestionAnswering"
    columns: ClassVar[tuple[str, ...]] = ("question", "context")
    pipeline: ClassVar[str] = "question-answering"
    title: ClassVar[str] = "answering questions from a text"
    metrics: ClassVar[Mapping[str, str]] = {
        "qa_f1": "the mean over questions of the F1 of an answer's words, by MLQA's rules for each language",
        "exact_match": "the share of answers that are right to the letter, by the same rules",
    }
    example_inputs: ClassVar[str] = 'tokens = tokenizer("what is short?", "a short sentence", return_tensors="pt")'
    example_result: ClassVar[str] = """\
output = model(**tokens)
start, end = output.start_logits.argmax().item(), output.end_logits.argmax().item()
answer = tokenizer.decode(tokens["input_ids"][0, start : end + 1])"""
    # As in the scripts for SQuAD: most paragraphs are one window.
    max_length: ClassVar[int] = 384
    metric: Literal["qa_f1", "exact_match"] = "qa_f1"
    overlap: int = setting(128, least=0)
    max_question_tokens: int = setting(64, least=1)
    max_answer_tokens: int = setting(30, least=1)

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def read(cls, item: str, options: Any, **source: Any) -> Examples:
        """Read questions as [`read_questions`] does."""
        return read_questions(item, **source)

    @classmethod
    def make(cls, options: Any, train: Sequence[Examples], scored: Sequence[Examples]) -> Self:
        """Make the task with the command line's lengths."""
        return cls(overlap=options.overlap, max_question_tokens=options.max_question_tokens)

    def encode(
        self,
        examples: Examples,
        tokenizer: PreTrainedTokenizerBase,
        languages: LanguageInputs,
        *,
        max_length: int,
        training: bool,
    ) -> Dataset:
        """Encode questions with their contexts, in several windows if the context is long.

        Returns:
            Rows of `input_ids`; `length`; `source_lang`, the set's language; `question`, the row in `examples`;
            `context_at`, the number of tokens before the context; `token_types` and `language_numbers` of question and
            context, if the model reads them. For training, also `start_position` and `end_position`, the first and
            last token of the first answer, or `NO_ANSWER` if the window does not hold all of it. For prediction,
            `opens` and `closes`: for each token the character where an answer may begin or end, or `NOWHERE`.
        """
        check_fast(tokenizer, "tell which characters a token has")
        frame = sentence_frame(tokenizer)
        limit, most = min(max_length, tokenizer.model_max_length), self.max_question_tokens
        if limit - sum(map(len, frame)) - most <= self.overlap:
            sizes = f"max_question_tokens={most}, overlap={self.overlap} and {sum(map(len, frame))} special tokens"
            limits = f"max_length={max_length}, the tokenizer's model_max_length {tokenizer.model_max_length}"
            fault = f"windows of {limit} tokens ({limits}) with {sizes} cannot advance in the context"
            raise InputError(f"{fault}. Raise max_length, or lower the other two.")
        sample = examples.rows.select(range(0, len(examples), -(-len(examples) // 200)))  # at most 200 rows
        for name in ("question", "context"):
            # A book says no more than its first page.
            texts = [text[:500] for text in sample[name]]
            check_vocabulary(tokenizer, texts, sample[0][f"{name}_lang"], f"{examples.name}, {name}")
        # XLM-R puts it before some words as a separate token.
        mark = tokenizer.convert_tokens_to_ids("▁")
        segments: dict[str, list[int]] = {}
        if languages.segments and "token_type_ids" in tokenizer.model_input_names:
            types = tokenizer("a", "a", return_token_type_ids=True).token_type_ids
            segments["token_types"] = [types[0], types[-1]]

        def pair_inputs(question_lang: str, context_lang: str) -> dict[str, list[int]]:
            question, context = languages.columns(question_lang), languages.columns(context_lang)
            # The columns of one language become those of the two languages of question and context.
            names = {"language_row": "token_types", "language_number": "language_numbers"}
            return segments | {names[name]: [question[name], context[name]] for name in question}

        integer, integers = Value("int32"), List(Value("int32"))
        first_row = examples.rows[0]
        pair_columns = pair_inputs(first_row["question_lang"], first_row["context_lang"])
        columns: dict[str, object] = dict.fromkeys(pair_columns, integers)
        columns |= {"input_ids": integers, "length": integer, "source_lang": Value("string")}
        columns |= {"question": Value("int64"), "context_at": integer}
        columns |= dict.fromkeys(_LABELS, integer) if training else {"opens": integers, "closes": integers}
        cut = lost = 0

        def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
            nonlocal cut, lost
            options = {"add_special_tokens": False, "verbose": False}
            questions = tokenizer(batch["question"], **options).input_ids
            contexts = tokenizer(batch["context"], return_offsets_mapping=True, **options)
            encoded: dict[str, list] = {name: [] for name in columns}
            for k, row in enumerate(rows):
                ids = np.asarray(contexts["input_ids"][k], dtype=np.int64)
                offsets = np.asarray(contexts["offset_mapping"][k], dtype=np.int64).reshape(-1, 2)
                text = TokenText.of(batch["context"][k], offsets, (ids == mark) & (mark != tokenizer.unk_token_id))
                answer = None
                if training:
                    first_answer, start = batch["answers"][k]["text"][0], batch["answers"][k]["answer_start"][0]
                    blanks = len(first_answer) - len(first_answer.lstrip())
                    answer = text.tokens_of(start + blanks, start + len(first_answer.rstrip()))
                    if answer is None:
                        lost += 1
                        continue
                cut += len(questions[k]) > most
                head = [*frame.before, *questions[k][:most], *frame.between]
                common = {
                    "source_lang": examples.language,
                    "question": row,
                    "context_at": len(head),
                    **pair_inputs(batch["question_lang"][k], batch["context_lang"][k]),
                }
                for window in self._windows(head, ids, frame.after, limit, text, answer):
                    window |= common
                    for name, column in encoded.items():
                        column.append(window[name])
            return encoded

        windows = examples.rows.map(
            encode,
            batched=True,
            with_indices=True,
            remove_columns=examples.rows.column_names,
            features=Features(columns),
            # The function also counts, which a cached result would skip.
            load_from_cache_file=False,
            desc="Encoding questions",
        )
        if not len(windows):
            raise InputError(f"{examples.name}: the tokenizer drops every answer. Take another encoder.")
        for count, outcome in ((cut, "truncated"), (lost, "left out, because the tokenizer drops their answer")):
            if count:
                logger.warning("%s: %d questions are %s", examples.name, count, outcome)
        return windows

    def _windows(
        self, head: list[int], ids: np.ndarray, end: list[int], limit: int, text: TokenText, answer: Span | None
    ) -> Iterator[dict[str, Any]]:
        """Yield the windows of a context between `head` and `end`, with labels if its answer is given."""
        room = limit - len(head) - len(end)
        # At least one window, and no window without new tokens.
        for start in range(0, max(len(ids) - self.overlap, 1), room - self.overlap):
            tokens_here = slice(start, start + room)
            tokens = [*head, *ids[tokens_here].tolist(), *end]
            window: dict[str, Any] = {"input_ids": tokens, "length": len(tokens)}
            if answer is not None:
                complete = start <= answer[0] and answer[1] < start + room
                for name, token in zip(_LABELS, answer, strict=True):
                    window[name] = len(head) + token - start if complete else NO_ANSWER
            else:
                for name, values in (("opens", text.opens), ("closes", text.closes)):
                    window[name] = np.pad(values[tokens_here], (len(head), len(end)), constant_values=NOWHERE)
            yield window

    def collate(self, rows: Sequence[Record], pad_token_id: int) -> Batch:
        """Collate windows, padded at the end to the longest of them.

        The batch (B windows, width T) holds `input_ids`, `attention_mask` int64 (B, T); `token_type_ids` and
        `language` (map ids) int64 (B, T), if the model reads them; for training `start_positions`, `end_positions`
        int64 (B,), for prediction `opens`, `closes` int64 (B, T).
        """
        batch = super().collate(rows, pad_token_id)
        context_at = torch.tensor([row["context_at"] for row in rows])[:, None]
        in_question = torch.arange(batch["input_ids"].shape[1]) < context_at
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

    def loss(self, output: ModelOutput, batch: Batch) -> Tensor:
        """Return the sum over windows of the mean of both cross entropies."""
        padding = batch["attention_mask"] == 0
        losses = []
        for end in ("start", "end"):
            logits = output[f"{end}_logits"].float().masked_fill(padding, -torch.inf)
            losses.append(F.cross_entropy(logits, batch[f"{end}_positions"], reduction="sum"))
        return (losses[0] + losses[1]) / 2

    def predictions(self, output: ModelOutput, batch: Batch) -> list[np.ndarray]:
        """Return the best span of each window, float64 (3,): first character, end, score."""
        ends = output["start_logits"], output["end_logits"], batch["opens"], batch["closes"]
        return list(window_spans(*ends, max_answer_tokens=self.max_answer_tokens).cpu().numpy())

    def answers(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> list[str]:
        """Return the text of the answer to each question, "" if there is none; arguments are those of `score`."""
        spans = best_spans(np.asarray(encoded["question"][:]), np.stack(predictions), len(examples))
        answers = []
        for context, (start, end) in zip(examples.rows["context"], spans.tolist(), strict=True):
            answers.append(context[start:end] if start >= 0 else "")
        return answers

    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Return the F1 and exact match of each question."""
        answers = self.answers(examples, encoded, predictions)
        references = [row["text"] for row in examples.rows["answers"]]
        scores = score_answers(answers, references, examples.rows["context_lang"][:])
        f1, exact_match = map(ExampleScores.from_values, scores)
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
    width = min(max_answer_tokens, start_logits.shape[1])
    start_scores = start_logits.float().masked_fill(opens < 0, -torch.inf)
    end_scores = end_logits.float().masked_fill(closes < 0, -torch.inf)
    following = torch.nn.functional.pad(end_scores, (0, width - 1), value=-torch.inf).unfold(1, width, 1)
    # (windows, T * width): from each token the spans of 1, 2, ... tokens.
    scores = (start_scores[:, :, None] + following).flatten(1)
    best = scores.argmax(1, keepdim=True)  # the first of equal scores
    value = scores.gather(1, best)
    none = value == -torch.inf
    start = torch.div(best, width, rounding_mode="floor")
    end = (start + best % width).clamp(max=closes.shape[1] - 1)
    starts = opens.gather(1, start).masked_fill(none, NOWHERE)
    ends = closes.gather(1, end).masked_fill(none, NOWHERE)
    return torch.cat([starts.double(), ends.double(), value.double()], dim=1)


def best_spans(questions: np.ndarray, spans: np.ndarray, count: int) -> np.ndarray:
    """Choose the best span over all windows of each of `count` questions; ties as in [`window_spans`].

    `questions` (windows,) is the row of each window's question, and `spans` come from [`window_spans`]. Returns the
    characters `[start, end)`, int64 (count, 2); -1 if no window of the question has a span.
    """
    starts, ends, scores = spans.T
    if np.isnan(scores).any():
        window = int(np.flatnonzero(np.isnan(scores))[0])
        fault = f"the scores of window {window} are NaN: the model diverged, or overflows in half precision"
        raise InputError(f"{fault}. Lower the learning rate, or evaluate in float32.")
    order = np.lexsort((ends, starts, -scores, questions))
    rows, best_windows = np.unique(questions[order], return_index=True)
    best = np.full((count, 2), NOWHERE)
    best[rows] = spans[order[best_windows], :2]
    return best
