"""Question answering as a task: windows, labels, batches, loss and scores of a tiny reader, from a file to F1."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.labelled import CONTEXT, ENCODER, asked, blind, check, segmented
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_tokenizer
from transformers import BertForQuestionAnswering

from hf_xalign.tasks import LanguageInputs, QuestionTask
from hf_xalign.tasks.questions import NO_ANSWER, NOWHERE, TokenText, best_spans
from hf_xalign.tasks.scoring import score_answers

TASK = QuestionTask(overlap=6, max_question_tokens=8, max_answer_tokens=8)
LENGTH = 24
ANSWERS = ["cat", "the dog .", "a  small   house", "27 ! the", "katze", "."]
ROWS = [("where is the cat ?", CONTEXT, answer) for answer in ANSWERS] + [("who ?", "the cat .", "cat")]
# The logits of a window, then the logarithm of a sum over its tokens for each end of the answer: in float32.
LOSS = ENCODER + 16 + 2 * (LENGTH + 2)


def encode(rows, training=True, tokenizer=None, languages=None, codes=(), **options):
    options = {"max_length": LENGTH, "overlap": 6, "max_question_tokens": 8, **options}
    rows = asked(rows, *codes) if isinstance(rows, list) else rows
    given = tokenizer or make_tokenizer(), languages or LanguageInputs()
    task = QuestionTask(**{name: options.pop(name) for name in ("overlap", "max_question_tokens") if name in options})
    return task.encode(rows, *given, training=training, **options)


def ids_of(text):
    return make_tokenizer()(text, add_special_tokens=False).input_ids


def test_windows_cover_the_context_and_overlap(caplog):
    windows = encode([("who ?", *ROWS[0][1:])])
    parts = [row["input_ids"][row["context_at"] : -1] for row in windows]
    heads = {tuple(row["input_ids"][: row["context_at"]]) for row in windows}
    assert heads == {(2, *ids_of("who ?"), 3)} and all(row["input_ids"][-1] == 3 for row in windows)
    assert len(parts) > 3
    assert all(len(ids) == 24 for ids in windows["input_ids"][:-1]) and len(windows[-1]["input_ids"]) <= 24
    joined = parts[0]
    for part in parts[1:]:
        assert joined[-6:] == part[:6] and len(part) > 6
        joined = joined + part[6:]
    assert joined == ids_of(CONTEXT)
    assert windows["length"][:] == [len(ids) for ids in windows["input_ids"]] and set(windows["source_lang"]) == {"en"}
    # With room for one new token a window.
    question = len(ids_of(ROWS[0][0]))
    windows = encode(ROWS[:1], max_length=3 + question + 7, max_question_tokens=question)
    assert len(windows) == len(joined) - 6 and not caplog.text
    long = ("the cat and the dog and the house ?", CONTEXT, "cat")
    found = encode([long, ROWS[0]], max_question_tokens=5)
    assert found[0]["input_ids"][:7] == [2, *ids_of(long[0])[:5], 3]
    assert "qa.json: 2 questions are truncated" in caplog.text


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


def test_texts_without_tokens(caplog):
    """An answer without tokens is left out in training alone; a context without tokens has one window."""
    rows = [("who ?", "the cat \u200b sees", answer) for answer in ("\u200b", "sees")]
    assert set(encode(rows, True, blind())["question"]) == {1}
    assert "1 questions are left out, because the tokenizer drops their answer" in caplog.text
    assert set(encode(rows, False, blind())["question"]) == {0, 1}
    windows = encode([("who ?", "\u200b", "\u200b"), ("who ?", "the cat", "cat")], False, blind())
    assert windows["question"][:] == [0, 1] and set(windows[0]["opens"]) == {NOWHERE}


def test_characters_of_tokens():
    # As XLM-R's tokenizer has them: a mark alone lies on the first character, `ﷺ` becomes several tokens.
    offsets = np.array([(0, 1), (0, 2), (2, 4), (5, 6), (5, 8), (8, 10), (9, 10), (9, 11)])
    text = TokenText.of("你好世界 在北京 ﷺ ", offsets, np.array([1, 0, 0, 1, 0, 0, 0, 0], dtype=bool))
    assert text.opens.tolist() == [-1, 0, 2, -1, 5, 9, -1, -1]
    assert text.closes.tolist() == [-1, 2, 4, -1, 8, -1, -1, 10]
    assert [text.tokens_of(*span) for span in ((0, 2), (3, 6), (9, 10), (4, 5))] == [(1, 1), (2, 4), (5, 7), None]


def test_language_rows_and_segments_of_both_parts():
    languages = LanguageInputs(embeddings={"en": 4, "de": 7}, maps={"en": 0, "de": 2})
    windows = encode(ROWS, languages=languages, codes=("en", "de"))
    batch = TASK.collate(list(windows), 9)
    for n, row in enumerate(windows):
        head, length = row["context_at"], row["length"]
        assert batch["token_type_ids"][n, :length].tolist() == [4] * head + [7] * (length - head)
        assert batch["language"][n, :length].tolist() == [0] * head + [2] * (length - head)
    # Padding has a number that there is, where 0 may be none.
    assert set(batch["language"].unique().tolist()) == {0, 2}
    windows = encode(ROWS[-1:], True, segmented(), LanguageInputs(segments=True))
    types = TASK.collate(list(windows), 0)["token_type_ids"][0].tolist()
    assert types == segmented()(*ROWS[-1][:2]).token_type_ids and set(types) == {0, 1}
    assert "token_types" not in encode(ROWS, True, segmented()).column_names


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


def test_loss_is_the_sum_of_each_windows_own():
    torch.manual_seed(0)
    model, encoded = BertForQuestionAnswering(make_encoder().config), list(encode(ROWS))
    together = TASK.collate(encoded, 0)
    assert (together["attention_mask"] == 0).any()
    assert TASK.count_items(together) == len(encoded)
    alone = []
    for row in encoded:
        batch = TASK.collate([row], 0)
        output = model(**TASK.inputs(batch))
        own = TASK.loss(output, batch)
        ends = (output.start_logits, "start_positions"), (output.end_logits, "end_positions")
        expected = sum(F.cross_entropy(logits, batch[name]) for logits, name in ends) / 2
        assert_rounding(own, expected, LOSS)
        assert_rounding(own, model(**batch).loss, LOSS)
        alone.append(own.item())
    assert_rounding(TASK.loss(model(**TASK.inputs(together)), together), sum(alone), LOSS + len(alone))


ONE = [("who ?", CONTEXT, "cat")]


def test_bad_windows_and_answers():
    unseen, empty = [("who ?", "ჩემი სახლი", "სახლი")], [("who ?", "the cat \u200b sees", "\u200b")]
    crowded = "windows of 17 tokens .* overlap=6 and 3 special tokens cannot advance"
    diverged = np.zeros((7, 3))
    diverged[2, 2] = np.nan
    check(
        [
            (crowded, partial(encode, ONE, max_length=17)),
            (r"qa\.json, context: 100% of the words in en", encode, unseen),
            (r"qa\.json: the tokenizer drops every answer", partial(encode, empty, tokenizer=blind())),
            ("scores of window 2 are NaN", best_spans, np.zeros(7, dtype=int), diverged, 5),
            (r"question 1: the references \[\] are not a list", score_answers, ["a", "b"], [["a"], []], "en"),
        ]
    )
