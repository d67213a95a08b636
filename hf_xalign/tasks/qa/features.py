"""Encode questions and contexts as windows of token ids for an extractive reader.

    [CLS] question [SEP] context, tokens a to b [SEP]

A long context gives several overlapping windows, so that an answer that one window cuts is whole in the next.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.data.sentence_pairs import sentence_frame
from hf_xalign.errors import InputError
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.languages import LanguageInputs

logger = logging.getLogger(__name__)

NO_ANSWER = 0  # label of a window without the answer: the first token, [CLS]
NOWHERE = -1  # value of a token at which no answer can begin or end
_LABELS = ("start_position", "end_position")
# Columns for one language, and for the two languages of question and context.
_PARTS = {"language_row": "token_types", "language_number": "language_numbers"}
_CHECKED_ROWS, _CHECKED_CHARACTERS = 200, 500  # sample of the contexts that is checked against the vocabulary
_BOUNDARY = "▁"  # the word-boundary mark, which XLM-R puts before some words as a separate token


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
) -> Dataset:
    """Encode questions with their contexts, in several windows if the context is long.

    Consecutive windows overlap by `overlap` context tokens. The defaults are BERT's for SQuAD (BERT's stride of 128 is
    the distance of two windows; transformers' `stride` is their overlap, as here).

    Returns:
        Rows of `input_ids`; `length`; `source_lang`, the set's language; `question`, the row in `examples`;
        `context_at`, the number of tokens before the context; `token_types` and `language_numbers` of question and
        context, if the model reads them. For training, also `start_position` and `end_position`, the first and last
        token of the first answer, or `NO_ANSWER` if the window does not hold all of it. For prediction, `opens` and
        `closes`: for each token the character where an answer may begin or end, or `NOWHERE`.
    """
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, so it has no character offsets. Use the fast "
            "tokenizer of the same model: AutoTokenizer.from_pretrained(...) loads it from tokenizer.json."
        )
    frame = sentence_frame(tokenizer)
    limit = min(max_length, tokenizer.model_max_length)
    if overlap < 0 or max_question_tokens < 1 or limit - frame.pair_specials - max_question_tokens <= overlap:
        raise InputError(
            f"windows of {limit} tokens (max_length={max_length}, the tokenizer's model_max_length "
            f"{tokenizer.model_max_length}) with max_question_tokens={max_question_tokens}, overlap={overlap} and "
            f"{frame.pair_specials} special tokens cannot advance in the context. Raise max_length, or lower the "
            "other two."
        )
    for name in ("question", "context"):
        some = examples.rows.select(range(0, len(examples), -(-len(examples) // _CHECKED_ROWS)))
        texts = [text[:_CHECKED_CHARACTERS] for text in some[name]]
        check_vocabulary(tokenizer, texts, examples.rows[0][f"{name}_lang"], f"{examples.name}, {name}")
    mark = tokenizer.convert_tokens_to_ids(_BOUNDARY)
    segments: dict[str, list[int]] = {}
    if languages.segments and "token_type_ids" in tokenizer.model_input_names:
        types = tokenizer("a", "a", return_token_type_ids=True).token_type_ids
        segments["token_types"] = [types[0], types[-1]]

    def parts(question_lang: str, context_lang: str) -> dict[str, list[int]]:
        question, context = languages.columns(question_lang), languages.columns(context_lang)
        return segments | {_PARTS[name]: [question[name], context[name]] for name in question}

    number, numbers = Value("int32"), List(Value("int32"))
    first = examples.rows[0]
    columns: dict[str, Any] = dict.fromkeys(parts(first["question_lang"], first["context_lang"]), numbers)
    columns |= {"input_ids": numbers, "length": number, "source_lang": Value("string")}
    columns |= {"question": Value("int64"), "context_at": number}
    columns |= dict.fromkeys(_LABELS, number) if training else {"opens": numbers, "closes": numbers}
    cut = lost = 0

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        nonlocal cut, lost
        options = {"add_special_tokens": False, "verbose": False}
        questions = tokenizer(batch["question"], **options).input_ids
        contexts = tokenizer(batch["context"], return_offsets_mapping=True, **options)
        found: dict[str, list] = {name: [] for name in columns}
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
            cut += len(questions[k]) > max_question_tokens
            head = [*frame.before, *questions[k][:max_question_tokens], *frame.between]
            room = limit - len(head) - len(frame.after)
            common = {
                "source_lang": examples.language,
                "question": row,
                "context_at": len(head),
                **parts(batch["question_lang"][k], batch["context_lang"][k]),
            }
            # At least one window, and no window without new tokens.
            for start in range(0, max(len(ids) - overlap, 1), room - overlap):
                here = slice(start, start + room)
                window: dict[str, Any] = {**common, "input_ids": [*head, *ids[here].tolist(), *frame.after]}
                window["length"] = len(window["input_ids"])
                if answer is not None:
                    whole = start <= answer[0] and answer[1] < start + room
                    for name, token in zip(_LABELS, answer, strict=True):
                        window[name] = len(head) + token - start if whole else NO_ANSWER
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
        features=Features(columns),
        load_from_cache_file=False,  # the function also counts
        desc="Encoding questions",
    )
    if not len(windows):
        raise InputError(f"{examples.name}: the tokenizer drops every answer. Take another encoder.")
    for count, what in ((cut, "truncated"), (lost, "left out, because the tokenizer drops their answer")):
        if count:
            logger.warning("%s: %d questions are %s", examples.name, count, what)
    return windows
