"""How text of each script is split into words."""

from __future__ import annotations

import pytest

from hf_xalign.data.words import split_words, splitter_version


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
    assert "pythainlp" in splitter_version(["de", "th"])
    assert "pythainlp" not in splitter_version(["de", "en"])
