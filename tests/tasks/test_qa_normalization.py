"""Normalised answers and their scores against cases worked out by hand."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from support.numeric import assert_rounding

from hf_xalign import metrics
from hf_xalign.evaluation.examples import ExampleScores
from hf_xalign.tasks.qa_normalization import answer_tokens, normalize_answer
from hf_xalign.tasks.qa_scores import by_language, score_answers

RULES = [
    # Articles go as words, not as parts of words; hyphens leave no blank, articles do.
    ("en", "The  well-known Theatre of a 'Man'", "wellknown theatre of man"),
    ("en", "U.S. $5 (~€4)", "us 5 €4"),
    ("en", "der Rhein – “an”", "der rhein"),
    ("de", "Die Straße in den Süden, eines Tages", "straße in süden tages"),
    ("de", "The Kinks", "the kinks"),
    ("de-CH", "Das «Haus»", "haus"),
    ("es", "La ciudad de los Ángeles, ¿un año?", "ciudad de ángeles año"),
    ("es", "él y el", "él y"),
    ("vi", "Những người của Hà Nội", "người hà nội"),
    # The danda and the Devanagari abbreviation sign are punctuation; vowel signs and viramas stay.
    ("hi", "नई दिल्ली। (भारत)", "नई दिल्ली भारत"),
    ("hi", "डॉ॰ राम", "डॉ राम"),
    ("ar", "الكتاب الجديد، ٢٠١٠؟", "كتاب جديد ٢٠١٠"),
    ("ar", "والكتاب", "و كتاب"),
    ("zh", "北京，2008年 Olympic Games", "北 京 2008 年 olympic games"),
    ("zh-Hant", "《紅樓夢》的 iPhone手機", "紅 樓 夢 的 iphone 手 機"),
    ("ja", "東京タワー", "東 京 タ ワ ー"),
    ("th", "ที่นี่ 5 กม.", "ที่ นี่ 5 ก ม"),
    ("ru", "«Война и мир»", "война и мир"),
    ("fr", "la Seine", "la seine"),
]
PREDICTIONS = ["the Rhine", "Rhine and Main rivers", "", "die Donau", "北京大学", "a", "x x y"]
REFERENCES = [["Rhine!"], ["the Main", "Main river Rhine"], ["Elbe"], ["Donau"], ["北京"], ["A"], ["x y y"]]
LANGUAGES = ["en", "en", "en", "de", "zh", "en", "de"]
# Row 1: of "rhine and main rivers" (4) and "main" (1) 2 * 1 / 5; and "main river rhine" (3) 2 * 2 / 7.
F1 = [1, 4 / 7, 0, 1, 2 * 2 / 6, 1, 2 * 2 / 6]
EXACT = [1, 0, 0, 1, 0, 1, 0]
# Five operations for an answer's F1, then the mean over at most 7 answers and that over 3 languages.
OPERATIONS = 5 + 7 + 3


def test_rules_of_each_language():
    for language, answer, expected in RULES:
        assert normalize_answer(answer, language) == expected, (language, answer)
    assert answer_tokens(unicodedata.normalize("NFD", "của Hà Nội"), "vi") == ["hà", "nội"]  # a decomposed article
    # SQuAD's rules are English everywhere.
    assert normalize_answer("Die «Straße», the A-Z", "de", "squad") == "die «straße» az"
    assert normalize_answer("北京，市", "zh", "squad") == "北京，市"


@pytest.mark.numeric
def test_scores_of_every_answer():
    found = score_answers(PREDICTIONS, REFERENCES, LANGUAGES)
    assert_rounding(found.f1, F1, OPERATIONS)
    np.testing.assert_array_equal(found.exact_match, EXACT)
    assert_rounding(ExampleScores.from_values(found.f1).score(), np.mean(F1), OPERATIONS)
    # By English rules the German article stays: "die donau" and "donau" share 1 of 3.
    assert_rounding(score_answers(PREDICTIONS, REFERENCES, LANGUAGES, rules="squad").f1[3], 2 / 3, OPERATIONS)
    np.testing.assert_array_equal(score_answers(PREDICTIONS[3:4], REFERENCES[3:4], "de").f1, [1])


@pytest.mark.numeric
def test_scores_by_language_and_of_the_metric():
    found = by_language(score_answers(PREDICTIONS, REFERENCES, LANGUAGES), LANGUAGES)
    own = {"de": (1 + 2 / 3) / 2, "en": (1 + 4 / 7 + 0 + 1) / 4, "zh": 2 / 3}
    assert list(found["languages"]) == list(own)
    assert_rounding([part["f1"] for part in found["languages"].values()], list(own.values()), OPERATIONS)
    assert_rounding(found["f1"], np.mean(list(own.values())), OPERATIONS)
    assert_rounding(found["exact_match"], (1 / 2 + 1 / 2 + 0) / 3, OPERATIONS)
    assert [found["questions"], *(part["questions"] for part in found["languages"].values())] == [7, 2, 4, 1]
    module = metrics.load("qa_f1")
    for rules in ("mlqa", "squad"):
        scored = by_language(score_answers(PREDICTIONS, REFERENCES, LANGUAGES, rules=rules), LANGUAGES)
        given = {"predictions": PREDICTIONS, "references": REFERENCES, "languages": LANGUAGES, "rules": rules}
        assert module.compute(**given) == scored, rules
