"""Language codes of every standard, their scripts, and names of languages."""

import pytest

from hf_xalign.language_codes import canonical_language, check_language, find_language, likely_language


@pytest.mark.parametrize(
    ("code", "shortest"),
    [
        ("hin", "hi"), ("hin_Deva", "hi"), ("hi-Latn", "hi-Latn"), ("hi_IN", "hi"), ("cmn_Hans", "zh"),
        ("zh-TW", "zh-Hant"), ("pes_Arab", "fa"), ("uzn_Cyrl", "uz-Cyrl"), ("sh", "sr-Latn"), ("pt-BR", "pt"),
        ("pt-PT", "pt-PT"), ("kor_Hang", "ko"), ("zho_Hani", "zh"), ("ur_Aran", "ur"), ("nob_Latn", "no"),
        ("nn-NO", "nn"), ("qqq", "qqq"),
    ],
)  # fmt: skip
def test_codes_of_one_language_have_one_shortest_form(code, shortest):
    assert canonical_language(code) == shortest
    assert canonical_language(canonical_language(code)) == shortest


@pytest.mark.parametrize(
    ("code", "one"),
    [
        ("iw", "he"), ("heb_Hebr", "he"), ("deu", "de"), ("de-1996", "de-1996"), ("en-x-inv-de", "en-x-inv-de"),
        ("eng-x-inv", "en-x-inv"), ("frr", "frr"), ("zh-TW", "zh-Hant"),
    ],
)  # fmt: skip
def test_a_language_has_one_code(code, one):
    assert check_language(code, "here") == one


@pytest.mark.parametrize(
    ("code", "script"),
    [("kk", "Cyrl"), ("kk-Latn", "Latn"), ("ks", "Arab"), ("az-IR", "Arab"), ("ace_Arab", "Arab"), ("qqq", None)],
)
def test_the_script_comes_from_the_code_or_is_the_likely_one(code, script):
    assert likely_language(code).script == script


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Swahili", "sw"), ("BANGLA", "bn"), ("bengali", "bn"), (" tur ", "tur"), ("EN-us", "EN-us"),
        ("de-1996-x", None), ("tgt_lang", None), ("sat_Olck", "sat_Olck"),
        ("anchor", None), ("Open file", None), ("", None), ("Slovene", "sl"), ("Kiswahili", "sw"), ("Bokmål", "no"),
        ("JP", "ja"), ("cz", "cs"), ("CHT", "zh-Hant"), ("正體中文", "zh-Hant"), ("kr", "kr"),
    ],
)  # fmt: skip
def test_names_and_codes_are_found_in_any_case(text, code):
    assert find_language(text) == code
