"""Windows of questions and contexts: contents, answers' labels, padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.labelled import CONTEXT, asked
from support.tiny import make_tokenizer
from tokenizers import normalizers, processors

from hf_xalign.tasks.languages import LanguageInputs
from hf_xalign.tasks.qa.features import NO_ANSWER, NOWHERE, TokenText, encode_questions
from hf_xalign.tasks.qa.task import QuestionTask

TASK = QuestionTask()
ANSWERS = ["cat", "the dog .", "a  small   house", "27 ! the", "katze", "."]
ROWS = [("where is the cat ?", CONTEXT, answer) for answer in ANSWERS] + [("who ?", "the cat .", "cat")]


def encode(rows, training=True, tokenizer=None, languages=None, codes=(), **options):
    options = {"max_length": 24, "overlap": 6, "max_question_tokens": 8, **options}
    tokenizer, languages = tokenizer or make_tokenizer(), languages or LanguageInputs()
    return encode_questions(asked(rows, *codes), tokenizer, languages, training=training, **options)


def without_blank_character():
    """A tokenizer that makes nothing of a zero-width space."""
    tokenizer = make_tokenizer()
    rules = [normalizers.Lowercase(), normalizers.Replace("\u200b", "")]
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(rules)
    return tokenizer


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False).input_ids


def test_windows_cover_the_context_and_overlap(tokenizer):
    windows = encode([("who ?", *ROWS[0][1:])])
    parts = [row["input_ids"][row["context_at"] : -1] for row in windows]
    heads = {tuple(row["input_ids"][: row["context_at"]]) for row in windows}
    assert heads == {(2, *ids_of(tokenizer, "who ?"), 3)} and all(row["input_ids"][-1] == 3 for row in windows)
    assert len(parts) > 3
    assert all(len(ids) == 24 for ids in windows["input_ids"][:-1]) and len(windows[-1]["input_ids"]) <= 24
    joined = parts[0]
    for part in parts[1:]:
        assert joined[-6:] == part[:6] and len(part) > 6
        joined = joined + part[6:]
    assert joined == ids_of(tokenizer, CONTEXT)
    assert windows["length"][:] == [len(ids) for ids in windows["input_ids"]] and set(windows["source_lang"]) == {"en"}
    # With room for one new token a window.
    question = len(ids_of(tokenizer, ROWS[0][0]))
    windows = encode(ROWS[:1], max_length=3 + question + 7, max_question_tokens=question)
    assert len(windows) == len(joined) - 6


def test_labels_mark_the_answer_where_it_is_whole():
    trained, scored = encode(ROWS), encode(ROWS, False)
    assert trained["input_ids"][:] == scored["input_ids"][:]
    found, cut = set(), 0
    for label, window in zip(trained, scored, strict=True):
        _, context, answer = ROWS[label["question"]]
        start, opens, closes = context.index(answer), window["opens"], window["closes"]
        # By the characters of every token, kept apart from the labels.
        inside = [n for n in range(len(opens)) if opens[n] >= start and 0 < closes[n] <= start + len(answer)]
        text = "".join("".join(context[opens[n] : closes[n]].split()) for n in inside)
        if text == "".join(answer.split()):
            found.add(label["question"])
            assert [label["start_position"], label["end_position"]] == [inside[0], inside[-1]]
            assert context[opens[inside[0]] : closes[inside[-1]]] == answer
        else:
            cut += bool(inside)
            assert label["start_position"] == label["end_position"] == NO_ANSWER
        at = window["context_at"]
        # Only tokens of the context can answer.
        assert set(opens[:at]) == set(closes[:at]) == {NOWHERE} == {opens[-1], closes[-1]}
        assert min(opens[at:-1]) >= 0 and min(closes[at:-1]) > 0
    assert found == set(range(len(ROWS)))
    assert cut, "no answer was cut by a window: the test looks at nothing"


def test_long_questions_are_cut_and_counted(tokenizer, caplog):
    long = ("the cat and the dog and the house ?", CONTEXT, "cat")
    found = encode([long, ROWS[0]], max_question_tokens=5)
    assert "qa.json: 2 questions are cut off" in caplog.text
    assert found[0]["input_ids"][:7] == [2, *ids_of(tokenizer, long[0])[:5], 3]


def test_texts_without_tokens(caplog):
    """An answer without tokens is left out in training alone; a context without tokens has one window."""
    tokenizer = without_blank_character()
    rows = [("who ?", "the cat \u200b sees", answer) for answer in ("\u200b", "sees")]
    found = encode(rows, True, tokenizer)
    assert "1 questions are left out: no answer token" in caplog.text and set(found["question"]) == {1}
    assert set(encode(rows, False, tokenizer)["question"]) == {0, 1}
    windows = encode([("who ?", "\u200b", "\u200b"), ("who ?", "the cat", "cat")], False, tokenizer)
    assert windows["question"][:] == [0, 1] and set(windows[0]["opens"]) == {NOWHERE}


def test_characters_of_tokens():
    # As XLM-R's tokenizer has them: a mark alone lies on the first character, `ﷺ` becomes several tokens.
    offsets = np.array([(0, 1), (0, 2), (2, 4), (5, 6), (5, 8), (8, 10), (9, 10), (9, 11)])
    text = TokenText.of("你好世界 在北京 ﷺ ", offsets, np.array([1, 0, 0, 1, 0, 0, 0, 0], dtype=bool))
    assert text.opens.tolist() == [-1, 0, 2, -1, 5, 9, -1, -1]
    assert text.closes.tolist() == [-1, 2, 4, -1, 8, -1, -1, 10]
    assert [text.tokens_of(*span) for span in ((0, 2), (3, 6), (9, 10), (4, 5))] == [(1, 1), (2, 4), (5, 7), None]


def test_language_rows_of_both_parts():
    languages = LanguageInputs(embeddings={"en": 4, "de": 7}, maps={"en": 0, "de": 2})
    windows = encode(ROWS, languages=languages, codes=("en", "de"))
    batch = TASK.collate(list(windows), 9)
    for n, row in enumerate(windows):
        head, length = row["context_at"], row["length"]
        assert batch["token_type_ids"][n, :length].tolist() == [4] * head + [7] * (length - head)
        assert batch["language"][n, :length].tolist() == [0] * head + [2] * (length - head)
    # Padding has a number that there is, where 0 may be none.
    assert set(batch["language"].unique().tolist()) == {0, 2}


def test_segments_are_the_tokenizers():
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    windows = encode(ROWS[-1:], True, tokenizer, LanguageInputs(segments=True))
    batch = TASK.collate([windows[0]], 0)
    assert batch["token_type_ids"][0].tolist() == tokenizer(*ROWS[-1][:2]).token_type_ids
    assert set(batch["token_type_ids"][0].tolist()) == {0, 1}
    assert "token_types" not in encode(ROWS, True, tokenizer).column_names


@pytest.mark.parametrize("training", [True, False])
def test_batches_are_padded_at_the_end(training):
    windows = encode(ROWS, training)
    some = [windows[n] for n in (0, len(windows) - 1)]
    long, short = (row["length"] for row in some)
    batch = TASK.collate(some, 5)
    assert short < long == batch["input_ids"].shape[1]
    assert batch["input_ids"][1].tolist() == some[1]["input_ids"] + [5] * (long - short)
    assert batch["attention_mask"].sum(1).tolist() == [long, short]
    assert all(values.dtype == torch.int64 for values in batch.values())
    if training:
        assert batch["end_positions"].tolist() == [row["end_position"] for row in some]
        assert set(batch) == {"input_ids", "attention_mask", "start_positions", "end_positions"}
    else:
        assert set(batch["closes"][1, short:].tolist()) == set(batch["opens"][1, short:].tolist()) == {NOWHERE}
        assert batch["opens"][1, :short].tolist() == some[1]["opens"]
