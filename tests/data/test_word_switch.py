"""Words switched by a dictionary: how many, which, how written, and that nothing else moves."""

from __future__ import annotations

from collections import Counter

import pytest
from datasets import Dataset
from support.tiny import make_tokenizer

from hf_xalign.data.dictionary import load_dictionary
from hf_xalign.data.word_switch import WordSwitcher, switch_words
from hf_xalign.errors import InputError

ENTRIES = [
    ("dog", "hund"),
    ("dog", "köter"),
    ("dog", "hund"),
    ("cat", "katze"),
    ("house", "haus"),
    ("Paris", "Lutetia"),
    ("ice", "gefrorenes wasser"),
]


def always(**options):
    return WordSwitcher(ENTRIES, share=1.0, **options)


def test_every_word_with_a_translation_is_replaced_at_a_share_of_one():
    assert always().words(["the", "cat", "!", "house"], 0) == ["the", "katze", "!", "haus"]
    assert WordSwitcher(ENTRIES, share=0.0).words(["cat", "house"], 0) == ["cat", "house"]
    assert always(to_pivot=True).words(["der", "köter", "katze"], 0) == ["der", "dog", "cat"]
    assert always().words([], 0) == []


def test_shares_of_words_and_of_their_translations():
    switcher = WordSwitcher(ENTRIES, share=0.3, seed=4)
    found = Counter(word for row in range(3000) for word in switcher.words(["dog", "the", "dog"], 0, row))
    # 6000 draws: 0.3 +- 3 standard errors; equal entries count once, so both translations are equally likely.
    assert found["the"] == 3000
    assert abs((found["hund"] + found["köter"]) / 6000 - 0.3) < 0.018
    assert abs(found["hund"] / (found["hund"] + found["köter"]) - 0.5) < 0.036
    pairs = Counter(tuple(word != "dog" for word in switcher.words(["dog", "dog"], 0, row)) for row in range(3000))
    assert abs(pairs[(True, True)] / 3000 - 0.09) < 0.016  # words are drawn apart


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("cat", "katze"),
        ("Cat", "Katze"),
        ("CAT", "KATZE"),
        ("Paris", "Lutetia"),
        ("paris", "paris"),  # only the entry's own spelling, or a lower-case entry
        ("cAt", "katze"),
        ("Ice", "Gefrorenes wasser"),
    ],
)
def test_case(word, written):
    assert always().words([word], 0) == [written]


def test_what_is_between_the_words_stays():
    text = "  The cat's  cat,\tCat-house\n(dog.)  "
    found = WordSwitcher([*ENTRIES[3:], ("dog", "hund")], share=1.0).text(text, "en", 0)
    assert found == "  The cat's  katze,\tKatze-haus\n(hund.)  "


def test_a_blank_between_letters_that_had_none():
    switcher = WordSwitcher([("love", "爱"), ("cat", "猫"), ("you", "你")], to_pivot=True, share=1.0)
    assert switcher.text("我爱猫。", "zh", 0) == "我 love cat。"
    assert switcher.text("我们猫你们", "zh", 0) == "我们 cat you 们"
    assert switcher.text("我们 猫", "zh", 0) == "我们 cat"


def words(n=40):
    rows = [["the", "dog", "Cat", "ice", "house"][k % 3 :] * (1 + k % 2) for k in range(n)]
    labels = [[len(word) for word in row] for row in rows]
    return Dataset.from_dict({"tokens": rows, "tags": labels, "text": [" ".join(row) + "." for row in rows]})


def test_rows_do_not_depend_on_their_processes_and_batches():
    data = words()
    options = {"share": 0.5, "seed": 3}
    one = switch_words(data, ENTRIES, ["tokens", "text"], **options).to_list()
    assert switch_words(data, ENTRIES, ["tokens", "text"], num_proc=2, **options).to_list() == one
    switcher = WordSwitcher(ENTRIES, share=0.5, seed=3)
    for number, row in enumerate(data):
        assert one[number]["tokens"] == switcher.words(row["tokens"], 0, number, 0)
        assert one[number]["text"] == switcher.text(row["text"], "en", 0, number, 1)
        assert one[number]["tags"] == row["tags"] and len(row["tags"]) == len(one[number]["tokens"])
    columns = [row["tokens"] for row in one], [row["text"].strip(".").split() for row in one]
    assert columns[0] != columns[1]
    for other in ({"epoch": 1}, {"seed": 4}):
        assert switch_words(data, ENTRIES, "tokens", **{**options, **other})["tokens"][:] != columns[0]


def test_labels_stay_right_where_a_translation_has_several_words():
    row = {"tokens": ["the", "ice", "house"], "tags": [0, 1, 2]}
    found = switch_words(Dataset.from_list([row]), ENTRIES, "tokens", share=1.0)[0]
    assert found == {"tokens": ["the", "gefrorenes wasser", "haus"], "tags": [0, 1, 2]}
    encoding = make_tokenizer()(found["tokens"], is_split_into_words=True)
    parts: dict[int, str] = {}
    for token, word in zip(encoding.tokens()[1:-1], encoding.word_ids()[1:-1], strict=True):
        parts[found["tags"][word]] = parts.get(found["tags"][word], "") + token.removeprefix("##")
    assert parts == {0: "the", 1: "gefroreneswasser", 2: "haus"}


def test_a_dictionary_file(tmp_path):
    (tmp_path / "en-de.txt").write_text("cat katze\nhouse\tdas haus\n", encoding="utf-8")
    entries = load_dictionary(tmp_path / "en-de.txt")
    data = Dataset.from_dict({"text": ["the cat is in the house"]})
    assert switch_words(data, entries, "text", share=1.0)["text"][:] == ["the katze is in the das haus"]


def test_questions_can_be_switched_and_contexts_cannot():
    row = {"question": "where is the cat?", "context": "a cat", "answers": {"text": ["cat"], "answer_start": [2]}}
    data = Dataset.from_list([row])
    assert switch_words(data, ENTRIES, "question", share=1.0)[0] == {**row, "question": "where is the katze?"}
    with pytest.raises(InputError, match="row 0: answers has offsets into context"):
        switch_words(data, ENTRIES, ["question", "context"], share=1.0)


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ("words", {}, "no column words"),
        ("tags", {}, "tags is neither text nor"),
        ("tokens", {"share": 1.5}, "share=1.5"),
        ("tokens", {"dictionary": []}, "no entries"),
    ],
)
def test_bad_input(column, options, message):
    with pytest.raises(InputError, match=message):
        switch_words(words(), **{"dictionary": ENTRIES, "columns": column, **options})


def test_a_missing_text_is_named():
    data = Dataset.from_dict({"text": ["the cat", None]})
    with pytest.raises(InputError, match="row 1: text is none"):
        switch_words(data, ENTRIES, "text")
