"""Encode questions and contexts as windows of token ids for an extractive reader.

    [CLS] question [SEP] context, tokens a to b [SEP]

A long context gives several overlapping windows, so that an answer cut by one window is whole in the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.batches.token_index import pad_rows
from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.data.sentence_pairs import SentenceFrame, sentence_frame
from hf_xalign.errors import InputError
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.languages import LanguageInputs

NO_ANSWER = 0  # label of a window without the answer: the first token, [CLS]
NOWHERE = -1  # character of a token at which no answer begins or ends

_CHECKED_ROWS, _CHECKED_CHARACTERS = 200, 500  # of the contexts, checked against the vocabulary
_BOUNDARY = "▁"  # the word-boundary mark, which XLM-R puts before some words as a separate token


class EncodedQuestions(NamedTuple):
    """Encoded windows and the number of questions cut off or skipped.

    Attributes:
        windows: rows of [`encode_questions`].
        cut_questions: number of questions that were cut off.
        lost_answers: number of training questions skipped because no token covers their answer.
    """

    windows: Dataset
    cut_questions: int
    lost_answers: int


class TokenText(NamedTuple):
    """Characters of each token of a context.

    Attributes:
        starts, ends: int32 (tokens,), `[start, end)` in the context without surrounding blanks; empty for a token
            without visible characters.
        opens: int32 (tokens,), `starts` if an answer may begin at the token, else -1. If several tokens share a
            character (the bytes of a rare one), the first of them opens.
        closes: int32 (tokens,), `ends` if an answer may end at the token, else -1. If several tokens share a
            character, the last of them closes.
    """

    starts: np.ndarray
    ends: np.ndarray
    opens: np.ndarray
    closes: np.ndarray

    @classmethod
    def of(cls, context: str, offsets: np.ndarray, marks: np.ndarray) -> TokenText:
        """Build from the tokenizer's offsets, int (tokens, 2), and a mask of lone boundary marks, bool (tokens,)."""
        visible = np.flatnonzero(~np.fromiter(map(str.isspace, context), dtype=bool, count=len(context)))
        first = np.searchsorted(visible, offsets[:, 0])
        last = np.searchsorted(visible, offsets[:, 1]) - 1
        there = np.flatnonzero((first <= last) & ~marks)
        starts, ends = np.zeros((2, len(offsets)), dtype=np.int32)
        starts[there], ends[there] = visible[first[there]], visible[last[there]] + 1
        opens, closes = np.full((2, len(offsets)), NOWHERE, dtype=np.int32)
        opening = there[np.diff(starts[there], prepend=-1) != 0]
        closing = there[np.diff(ends[there], append=-1) != 0]
        opens[opening], closes[closing] = starts[opening], ends[closing]
        return cls(starts, ends, opens, closes)

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and last token that cover any of the characters `[start, end)`, or None."""
        touched = np.flatnonzero((self.ends > start) & (self.starts < end))
        if not len(touched):
            return None
        opening, closing = np.flatnonzero(self.opens >= 0), np.flatnonzero(self.closes >= 0)
        first = opening[np.searchsorted(opening, touched[0], side="right") - 1]
        last = closing[np.searchsorted(closing, touched[-1])]
        return int(first), int(last)


def encode_questions(
    examples: Examples,
    tokenizer: PreTrainedTokenizerBase,
    languages: LanguageInputs,
    *,
    max_length: int = 384,
    overlap: int = 128,
    max_question_tokens: int = 64,
    training: bool,
) -> EncodedQuestions:
    """Encode questions with their contexts, in several windows if the context is long.

    Windows have the maximum size and begin `size - overlap` context tokens apart. The defaults are BERT's for SQuAD
    (BERT's stride of 128 is the distance of two windows; transformers' `stride` is their overlap, as here).

    Args:
        examples: rows of [`~hf_xalign.tasks.qa.reading.read_questions`].
        tokenizer: fast tokenizer.
        languages: language inputs of the model; question and context may differ in language.
        max_length: maximum number of tokens of a window, with question and special tokens.
        overlap: number of context tokens that two windows share.
        max_question_tokens: maximum number of question tokens; the rest is cut off.
        training: add labels, from each question's first answer; else the characters of answers.

    Returns:
        Rows of `input_ids`; `length`; `source_lang`, the set's; `question`, the row in `examples`; `context_at`, the
        number of tokens before the context; `token_types` and `language_numbers` of question and context, if the model
        reads them. In training `start_position` and `end_position`, the first and last token of the answer, both
        `NO_ANSWER` if the window does not hold all of it. Else `opens` and `closes`: for each token the character
        where an answer begins or ends, or `NOWHERE`.

    Raises:
        InputError: the tokenizer has no offsets or does not know the text, there is no room for the context, the model
            does not know a language, or no answer is left to train on.
    """
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} has no character offsets. Use the fast tokenizer of the same model "
            "(AutoTokenizer.from_pretrained loads it if the checkpoint has tokenizer.json)."
        )
    frame = sentence_frame(tokenizer)
    limit = min(max_length, tokenizer.model_max_length)
    if overlap < 0 or max_question_tokens < 1 or limit - frame.pair_specials - max_question_tokens <= overlap:
        raise InputError(
            f"windows of {limit} tokens (max_length={max_length}, the tokenizer's model_max_length "
            f"{tokenizer.model_max_length}) with max_question_tokens={max_question_tokens}, overlap={overlap} and "
            f"{frame.pair_specials} special tokens leave no room for more of the context. Raise max_length, or lower "
            "the others."
        )
    some = [context[:_CHECKED_CHARACTERS] for context in examples.rows["context"][:_CHECKED_ROWS]]
    check_vocabulary(tokenizer, some, f"{examples.name}, context")
    parts = _Parts.of(tokenizer, frame, languages)
    columns = _features(parts, training)
    tally = {"cut": 0, "lost": 0}

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        options = {"add_special_tokens": False, "verbose": False}
        questions = tokenizer(batch["question"], **options).input_ids
        contexts = tokenizer(batch["context"], return_offsets_mapping=True, **options)
        found: dict[str, list] = {name: [] for name in columns}
        for k, row in enumerate(rows):
            ids = np.asarray(contexts["input_ids"][k], dtype=np.int64)
            offsets = np.asarray(contexts["offset_mapping"][k], dtype=np.int64).reshape(-1, 2)
            text = TokenText.of(batch["context"][k], offsets, ids == parts.mark)
            answer = _answer_tokens(text, batch["answers"][k]) if training else None
            if training and answer is None:
                tally["lost"] += 1
                continue
            tally["cut"] += len(questions[k]) > max_question_tokens
            head = [*frame.before, *questions[k][:max_question_tokens], *frame.between]
            room = limit - len(head) - len(frame.after)
            common: dict[str, Any] = {
                "source_lang": examples.language,
                "question": row,
                "context_at": len(head),
                **parts.columns(batch["question_lang"][k], batch["context_lang"][k]),
            }
            for here in _spans(len(ids), room, overlap):
                window = {**common, "input_ids": [*head, *ids[here].tolist(), *frame.after]}
                window["length"] = len(window["input_ids"])
                if answer is not None:
                    whole = here.start <= answer[0] and answer[1] < here.stop
                    for name, token in zip(("start_position", "end_position"), answer, strict=True):
                        window[name] = len(head) + token - here.start if whole else NO_ANSWER
                else:
                    for name, values in (("opens", text.opens), ("closes", text.closes)):
                        window[name] = np.pad(values[here], (len(head), len(frame.after)), constant_values=NOWHERE)
                for name, column in found.items():
                    column.append(window[name])
        return found

    windows = examples.rows.map(
        encode,
        batched=True,
        with_indices=True,
        remove_columns=examples.rows.column_names,
        features=columns,
        load_from_cache_file=False,  # the tally counts this pass
        desc="Encoding questions",
    )
    if not len(windows):
        raise InputError(f"{examples.name}: the tokenizer drops every answer")
    return EncodedQuestions(windows, tally["cut"], tally["lost"])


@dataclass(frozen=True)
class QuestionCollator:
    """Collate windows of [`encode_questions`], padded at the end to the longest of them.

    The batch (B windows, width T) holds `input_ids`, `attention_mask` int64 (B, T); `token_type_ids` and `language`
    (map numbers) int64 (B, T) if the model reads them; in training `start_positions`, `end_positions` int64 (B,), else
    `opens`, `closes` int64 (B, T).

    Args:
        pad_token_id: id of the padding token.
    """

    pad_token_id: int

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        ids, inside = pad_rows([row["input_ids"] for row in rows], self.pad_token_id)
        batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(inside).long()}
        in_question = torch.arange(ids.shape[1]) < torch.tensor([row["context_at"] for row in rows])[:, None]
        for column, name in (("token_types", "token_type_ids"), ("language_numbers", "language")):
            if column in rows[0]:
                question, context = torch.tensor([list(row[column]) for row in rows]).T
                batch[name] = torch.where(in_question, question[:, None], context[:, None])
        if "opens" in rows[0]:
            for name in ("opens", "closes"):
                batch[name] = torch.from_numpy(pad_rows([row[name] for row in rows], NOWHERE)[0])
            return batch
        labels = {f"{name}s": torch.tensor([row[name] for row in rows]) for name in ("start_position", "end_position")}
        return {**batch, **labels}


@dataclass(frozen=True)
class _Parts:
    """Token types and language inputs of the two parts of a window; `mark` is the lone boundary mark, or -1."""

    languages: LanguageInputs
    segments: tuple[int, int] | None
    mark: int

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, frame: SentenceFrame, languages: LanguageInputs) -> _Parts:
        segments = None
        if languages.segments and "token_type_ids" in tokenizer.model_input_names:
            types = tokenizer("a", "a", return_token_type_ids=True).token_type_ids
            segments = (types[0], types[-1])
        mark = cast(int, tokenizer.convert_tokens_to_ids(_BOUNDARY))
        return cls(languages, segments, mark if mark != tokenizer.unk_token_id else -1)

    @property
    def names(self) -> list[str]:
        typed = self.segments is not None or self.languages.embeddings is not None
        return ["token_types"] * typed + ["language_numbers"] * (self.languages.maps is not None)

    def columns(self, question_lang: str, context_lang: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {} if self.segments is None else {"token_types": list(self.segments)}
        own = [self.languages.columns(code) for code in (question_lang, context_lang)]
        for name, column in (("language_row", "token_types"), ("language_number", "language_numbers")):
            if name in own[0]:
                found[column] = [part[name] for part in own]
        return found


def _features(parts: _Parts, training: bool) -> Features:
    number, numbers = Value("int32"), List(Value("int32"))
    labels = {"start_position": number, "end_position": number}
    found = {"input_ids": numbers, "length": number, "source_lang": Value("string"), "question": Value("int64")}
    found |= {"context_at": number} | dict.fromkeys(parts.names, numbers)
    return Features(found | (labels if training else {"opens": numbers, "closes": numbers}))


def _spans(tokens: int, room: int, overlap: int) -> list[slice]:
    """Return the tokens of each window: at least one window, and none without new tokens."""
    return [slice(start, start + room) for start in range(0, max(tokens - overlap, 1), room - overlap)]


def _answer_tokens(text: TokenText, answers: Mapping[str, list]) -> tuple[int, int] | None:
    """Return the first and last token of the first answer."""
    answer, start = answers["text"][0], answers["answer_start"][0]
    lead = len(answer) - len(answer.lstrip())
    return text.tokens_of(start + lead, start + len(answer.rstrip()))
