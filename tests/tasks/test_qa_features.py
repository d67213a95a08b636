"""Windows of questions and contexts: what they hold, where the answer is, and what is padded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.tiny import make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.languages import LanguageInputs
from hf_xalign.tasks.qa_features import NO_ANSWER, NOWHERE, QuestionCollator, TokenText, encode_questions
from hf_xalign.tasks.qa_reading import COLUMNS

CONTEXT = "the cat sees the dog . a  small   house is open, and nobody opens file 27 ! the dog's name is katze ."
ANSWERS = ["cat", "the dog .", "a  small   house", "27 ! the", "katze", "."]
PLAIN = LanguageInputs()


def examples(rows, question_lang="en", context_lang="en"):
    """From (question, context, answer)."""
    columns = {name: [] for name in COLUMNS}
    for number, (question, context, answer) in enumerate(rows):
        answers = {"text": [answer, "cat"], "answer_start": [context.index(answer), 4]}
        own = (str(number), question, context, answers, question_lang, context_lang, number + 1)
        for name, value in zip(COLUMNS, own, strict=True):
            columns[name].append(value)
    return Examples("qa.json", context_lang, Dataset.from_dict(columns, features=COLUMNS), "question")


@pytest.fixture
def rows():
    return [("where is the cat ?", CONTEXT, answer) for answer in ANSWERS] + [("who ?", "the cat .", "cat")]


def encode(data, training, tokenizer=None, languages=PLAIN, **options):
    options = {"max_length": 24, "overlap": 6, "max_question_tokens": 8, **options}
    return encode_questions(data, tokenizer or make_tokenizer(), languages, training=training, **options)


def visible(text):
    return "".join(text.split())


def test_windows_are_what_the_tokenizer_makes_of_a_pair(rows, tokenizer):
    windows = encode(examples(rows), True, max_length=64).windows
    for row, (question, context, _) in zip(windows.filter(lambda row: row["question"] == 6), rows[6:], strict=True):
        assert row["input_ids"] == tokenizer(question, context).input_ids
    assert set(windows["source_lang"]) == {"en"}
    assert [len(ids) for ids in windows["input_ids"]] == windows["length"][:]


def test_windows_cover_the_context_and_overlap(rows, tokenizer):
    rows = [("who ?", *rows[0][1:])]
    windows = encode(examples(rows), True).windows
    whole = tokenizer(CONTEXT, add_special_tokens=False).input_ids
    parts = [row["input_ids"][row["context_at"] : -1] for row in windows]
    heads = {tuple(row["input_ids"][: row["context_at"]]) for row in windows}
    question = tokenizer(rows[0][0], add_special_tokens=False).input_ids
    assert heads == {(2, *question, 3)} and all(row["input_ids"][-1] == 3 for row in windows)
    assert len(parts) > 3
    assert all(len(ids) == 24 for ids in windows["input_ids"][:-1]) and len(windows[-1]["input_ids"]) <= 24
    joined = parts[0]
    for part in parts[1:]:
        assert joined[-6:] == part[:6] and len(part) > 6
        joined = joined + part[6:]
    assert joined == whole


def test_labels_mark_the_answer_where_it_is_whole(rows, tokenizer):
    data = examples(rows)
    trained, asked = encode(data, True).windows, encode(data, False).windows
    assert trained["input_ids"][:] == asked["input_ids"][:]
    found, cut = set(), 0
    for label, window in zip(trained, asked, strict=True):
        row = data.rows[label["question"]]
        start, answer = row["answers"]["answer_start"][0], row["answers"]["text"][0]
        opens, closes = window["opens"], window["closes"]
        # By the characters of every token, kept apart from the labels.
        inside = [n for n in range(len(opens)) if opens[n] >= start and 0 < closes[n] <= start + len(answer)]
        text = "".join(visible(row["context"][opens[n] : closes[n]]) for n in inside)
        if text == visible(answer):
            found.add(label["question"])
            assert [label["start_position"], label["end_position"]] == [inside[0], inside[-1]]
            assert row["context"][opens[inside[0]] : closes[inside[-1]]] == answer
        else:
            cut += bool(inside)
            assert label["start_position"] == label["end_position"] == NO_ANSWER
    assert found == set(range(len(rows)))
    assert cut, "no answer was cut by a window: the test looks at nothing"


def test_only_tokens_of_the_context_can_answer(rows):
    for row in encode(examples(rows), False).windows:
        assert set(row["opens"][: row["context_at"]]) == set(row["closes"][: row["context_at"]]) == {NOWHERE}
        assert row["opens"][-1] == row["closes"][-1] == NOWHERE
        assert min(row["opens"][row["context_at"] : -1]) >= 0 and min(row["closes"][row["context_at"] : -1]) > 0


def test_long_questions_are_cut_and_counted(rows, tokenizer):
    data = examples([("the cat and the dog and the house ?", CONTEXT, "cat"), *rows[:1]])
    found = encode(data, True, max_question_tokens=5)
    assert found.cut_questions == 2
    ids = tokenizer(data.rows[0]["question"], add_special_tokens=False).input_ids
    assert found.windows[0]["input_ids"][:7] == [2, *ids[:5], 3]
    assert encode(examples(rows[-1:]), True).cut_questions == 0


def test_an_answer_without_tokens_is_left_out_in_training_alone(rows):
    context = "the cat \u200b sees"
    tokenizer = make_tokenizer()
    from tokenizers import normalizers

    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace("\u200b", "")]
    )
    data = examples([("who ?", context, "\u200b"), ("who ?", context, "sees")])
    found = encode(data, True, tokenizer)
    assert found.lost_answers == 1 and set(found.windows["question"]) == {1}
    assert set(encode(data, False, tokenizer).windows["question"]) == {0, 1}
    with pytest.raises(InputError, match=r"qa\.json: the tokenizer makes nothing of any answer"):
        encode(examples([("who ?", context, "\u200b")]), True, tokenizer)


def test_a_context_without_tokens_has_one_window():
    from tokenizers import normalizers

    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\u200b", "")
    data = examples([("who ?", "\u200b", "\u200b"), ("who ?", "the cat", "cat")])
    windows = encode(data, False, tokenizer).windows
    assert windows["question"][:] == [0, 1] and set(windows[0]["opens"]) == {NOWHERE}


def test_characters_of_tokens():
    # As XLM-R's tokenizer has them: a mark alone lies on the first character, `ﷺ` becomes several tokens.
    context = "你好世界 在北京 ﷺ "
    offsets = np.array([(0, 1), (0, 2), (2, 4), (5, 6), (5, 8), (8, 10), (9, 10), (9, 11)])
    text = TokenText.of(context, offsets, np.array([1, 0, 0, 1, 0, 0, 0, 0], dtype=bool))
    assert text.opens.tolist() == [-1, 0, 2, -1, 5, 9, -1, -1]
    assert text.closes.tolist() == [-1, 2, 4, -1, 8, -1, -1, 10]
    assert text.tokens_of(0, 2) == (1, 1)
    assert text.tokens_of(3, 6) == (2, 4)
    assert text.tokens_of(9, 10) == (5, 7)
    assert text.tokens_of(4, 5) is None


def test_language_rows_of_both_parts(rows):
    languages = LanguageInputs(embeddings={"en": 4, "de": 7}, maps={"en": 0, "de": 2})
    data = examples(rows, "en", "de")
    windows = encode(data, True, languages=languages).windows
    batch = QuestionCollator(9)([windows[n] for n in range(len(windows))])
    for n, row in enumerate(windows):
        head, length = row["context_at"], row["length"]
        assert batch["token_type_ids"][n, :length].tolist() == [4] * head + [7] * (length - head)
        assert batch["language"][n, :length].tolist() == [0] * head + [2] * (length - head)
    # Padding has a number that there is, where 0 may be none.
    assert set(batch["language"].unique().tolist()) == {0, 2}
    with pytest.raises(InputError, match="language 'fr'"):
        encode(examples(rows, "fr", "de"), True, languages=languages)


def test_segments_are_the_tokenizers(rows):
    from tokenizers import processors

    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    windows = encode(examples(rows[-1:]), True, tokenizer, LanguageInputs(segments=True)).windows
    batch = QuestionCollator(0)([windows[0]])
    assert batch["token_type_ids"][0].tolist() == tokenizer(*rows[-1][:2]).token_type_ids
    assert set(batch["token_type_ids"][0].tolist()) == {0, 1}
    assert "token_types" not in encode(examples(rows), True, tokenizer).windows.column_names


@pytest.mark.parametrize("training", [True, False])
def test_batches_are_padded_at_the_end(rows, training):
    windows = encode(examples(rows), training).windows
    some = [windows[n] for n in (0, len(windows) - 1)]
    batch = QuestionCollator(pad_token_id=5)(some)
    short = some[1]["length"]
    assert short < some[0]["length"] == batch["input_ids"].shape[1]
    assert batch["input_ids"][1].tolist() == some[1]["input_ids"] + [5] * (some[0]["length"] - short)
    assert batch["attention_mask"].sum(1).tolist() == [some[0]["length"], short]
    assert all(values.dtype == torch.int64 for values in batch.values())
    if training:
        assert batch["end_positions"].tolist() == [row["end_position"] for row in some]
        assert set(batch) == {"input_ids", "attention_mask", "start_positions", "end_positions"}
    else:
        assert set(batch["closes"][1, short:].tolist()) == set(batch["opens"][1, short:].tolist()) == {NOWHERE}
        assert batch["opens"][1, :short].tolist() == some[1]["opens"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 17}, r"windows of 17 tokens .* overlap=6 and 3 special tokens leave no room"),
        ({"max_length": 999, "overlap": 60}, "windows of 64 tokens"),
        ({"max_question_tokens": 0}, "max_question_tokens=0"),
        ({"overlap": -1}, "overlap=-1"),
    ],
)
def test_no_room(rows, options, message):
    with pytest.raises(InputError, match=message):
        encode(examples(rows), True, **options)


def test_windows_with_one_new_token_each(rows, tokenizer):
    ids = tokenizer(CONTEXT, add_special_tokens=False).input_ids
    question = tokenizer(rows[0][0], add_special_tokens=False).input_ids
    room = 3 + len(question) + 7
    windows = encode(examples(rows[:1]), True, max_length=room, max_question_tokens=len(question)).windows
    assert len(windows) == len(ids) - 6


def test_text_unknown_to_the_tokenizer(tokenizer):
    with pytest.raises(InputError, match=r"qa\.json, context: the tokenizer"):
        encode(examples([("who ?", "ჩემი სახლი", "სახლი")]), True)
