"""Words switched by a dictionary, and how text of each script is split into words."""

from __future__ import annotations

from collections import Counter

import pytest
from datasets import Dataset
from support.tiny import make_tokenizer

from hf_xalign.data.dictionary import load_dictionary
from hf_xalign.data.word_switch import WordSwitcher, switch_words
from hf_xalign.data.words import batch_words, describe_splitting, split_batch, split_words, splitter_version

ENTRIES = [("dog", "hund"), ("dog", "köter"), ("dog", "hund"), ("cat", "katze"), ("house", "haus")]
ENTRIES += [("Paris", "Lutetia"), ("ice", "gefrorenes wasser")]


def always(**options):
    return WordSwitcher(ENTRIES, share=1.0, **options)


def test_every_word_with_a_translation_is_replaced_at_a_share_of_one():
    assert always().words(["the", "cat", "!", "house"], 0) == ["the", "katze", "!", "haus"]
    assert WordSwitcher(ENTRIES, share=0.0).words(["cat", "house"], 0) == ["cat", "house"]
    assert always(to_pivot=True).words(["der", "köter", "katze"], 0) == ["der", "dog", "cat"]
    assert always().words([], 0) == []


def test_shares_of_words_and_of_their_translations():
    switcher = WordSwitcher(ENTRIES, share=0.3, seed=4)
    rows = [switcher.words(["dog", "the", "dog"], 0, row) for row in range(3000)]
    found = Counter(word for row in rows for word in row)
    # 6000 draws: 0.3 +- 3 standard errors; equal entries count once, so both translations are equally likely.
    assert found["the"] == 3000
    assert abs((found["hund"] + found["köter"]) / 6000 - 0.3) < 0.018
    assert abs(found["hund"] / (found["hund"] + found["köter"]) - 0.5) < 0.036
    assert abs(sum("dog" not in row for row in rows) / 3000 - 0.09) < 0.016  # words are drawn apart


def test_case():
    """A word is looked up as it stands or in lower case, and its translation takes its capitals."""
    expected = {"cat": "katze", "Cat": "Katze", "CAT": "KATZE", "Paris": "Lutetia", "paris": "paris", "cAt": "katze"}
    expected["Ice"] = "Gefrorenes wasser"
    assert {word: always().words([word], 0)[0] for word in expected} == expected


def test_text_between_the_words_stays_and_joined_letters_get_a_blank():
    text = "  The cat's  cat,\tCat-house\n(dog.)  "
    found = WordSwitcher([*ENTRIES[3:], ("dog", "hund")], share=1.0).text(text, "en", 0)
    assert found == "  The cat's  katze,\tKatze-haus\n(hund.)  "
    switcher = WordSwitcher([("love", "爱"), ("cat", "猫"), ("you", "你")], to_pivot=True, share=1.0)
    expected = {"我爱猫。": "我 love cat。", "我们猫你们": "我们 cat you 们", "我们 猫": "我们 cat"}
    assert {text: switcher.text(text, "zh", 0) for text in expected} == expected


def test_rows_follow_from_their_number():
    rows = [["the", "dog", "Cat", "ice", "house"][k % 3 :] * (1 + k % 2) for k in range(40)]
    tags = [[len(word) for word in row] for row in rows]
    data = Dataset.from_dict({"tokens": rows, "tags": tags, "text": [" ".join(row) + "." for row in rows]})
    options = {"share": 0.5, "seed": 3}
    one = switch_words(data, ENTRIES, ["tokens", "text"], **options)
    switcher = WordSwitcher(ENTRIES, **options)
    for number, (old, new) in enumerate(zip(data, one, strict=True)):
        words, text = switcher.words(old["tokens"], 0, number, 0), switcher.text(old["text"], "en", 0, number, 1)
        assert new == {"tokens": words, "text": text, "tags": old["tags"]}
    assert one["tokens"][:] != [text.strip(".").split() for text in one["text"]]
    for other in ({"epoch": 1}, {"seed": 4}):
        assert switch_words(data, ENTRIES, "tokens", **{**options, **other})["tokens"][:] != one["tokens"][:]


def test_labels_stay_right_where_a_translation_has_several_words():
    row = {"tokens": ["the", "ice", "house"], "tags": [0, 1, 2]}
    found = switch_words(Dataset.from_list([row]), ENTRIES, "tokens", share=1.0)[0]
    assert found == {"tokens": ["the", "gefrorenes wasser", "haus"], "tags": [0, 1, 2]}
    encoding = make_tokenizer()(found["tokens"], is_split_into_words=True)
    parts: dict[int, str] = {}
    for token, word in zip(encoding.tokens()[1:-1], encoding.word_ids()[1:-1], strict=True):
        parts[found["tags"][word]] = parts.get(found["tags"][word], "") + token.removeprefix("##")
    assert parts == {0: "the", 1: "gefroreneswasser", 2: "haus"}


def test_dictionary_files_and_questions(tmp_path):
    (tmp_path / "en-de.txt").write_text("cat katze\nhouse\tdas haus\n", encoding="utf-8")
    data = Dataset.from_dict({"text": ["the cat is in the house"]})
    found = switch_words(data, load_dictionary(tmp_path / "en-de.txt"), "text", share=1.0)
    assert found["text"][:] == ["the katze is in the das haus"]
    row = {"question": "where is the cat?", "context": "a cat", "answers": {"text": ["cat"], "answer_start": [2]}}
    found = switch_words(Dataset.from_list([row]), ENTRIES, "question", share=1.0)
    assert found[0] == {**row, "question": "where is the katze?"}


# ---- Words ----


def test_words_of_each_script():
    for lang, text, expected in (
        ("de", "Öffne die Datei, bitte!", ["Öffne", "die", "Datei", ",", "bitte", "!"]),
        ("en", "don't open l’eau 'now'", ["don't", "open", "l’eau", "'", "now", "'"]),
        ("de", "E-Mail -- und...", ["E", "-", "Mail", "--", "und", "..."]),
        ("en", "1,000.5GB, 3.5. v2", ["1,000.5GB", ",", "3.5", ".", "v2"]),
        ("bn", "বাংলাদেশের মানুষ।", ["বাংলাদেশের", "মানুষ", "।"]),
        ("hi", "यह हिन्दी है", ["यह", "हिन्दी", "है"]),
        ("fa", "می\u200cخواهم", ["می\u200cخواهم"]),  # zero-width non-joiner inside a word
        ("bn", "ক্\u200dষ", ["ক্\u200dষ"]),  # zero-width joiner
        ("de", "Da\u00adtei", ["Da\u00adtei"]),
        ("zh", "我喜欢iPhone 15。2023年", ["我", "喜", "欢", "iPhone", "15", "。", "2023", "年"]),
        ("ja", "コンピュータを使って", ["コンピュータ", "を", "使", "って"]),
        ("ko", "한국어 단어", ["한국어", "단어"]),
        ("en", "a\u200bb \u200e\u00a0c\n", ["a", "b", "c"]),  # invisible characters part words and are none
        ("en", "❤️👨‍👩‍👧 ok", ["❤️", "👨‍👩‍👧", "ok"]),
        ("xx", "", []),
        ("xx", " \u00a0\t", []),
    ):
        assert split_words(text, lang) == expected, text
    text = "Ünï: «100 %» {name}_x <b>C++</b> ক্ষ 漢字かな — ok…"
    assert "".join(split_words(text, "de")) == "".join(text.split())


def test_thai_is_segmented_and_other_scripts_in_it_are_left():
    pytest.importorskip("pythainlp")
    assert split_words("ฉันรักแมว Chrome 2.0", "tha_Thai") == ["ฉัน", "รัก", "แมว", "Chrome", "2.0"]
    assert "pythainlp" in describe_splitting("th")
    assert "pythainlp" in splitter_version(["de", "th"])
    assert "pythainlp" not in splitter_version(["de", "en"])


def test_batch_uses_each_rows_language_and_given_words():
    batch = {"source": ["我 喜", "a-b"], "target": ["I like", "it's"]}
    batch |= {"source_lang": ["zh", "de"], "target_lang": ["en"] * 2}
    target = [["I", "like"], ["it's"]]
    assert split_batch(batch) == {"source_words": [["我", "喜"], ["a", "-", "b"]], "target_words": target}
    assert batch_words(batch, blanks=True) == ([["我", "喜"], ["a-b"]], target)
    given = {**batch, "source_words": [["x"], ["y"]], "target_words": [["z"], []]}
    assert batch_words(given, blanks=True) == ([["x"], ["y"]], [["z"], []])
