"""Answers out of logits, against a loop over every span of every window; their scores, against cases by hand."""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np
import pytest
import torch
from support.numeric import assert_rounding

from hf_xalign import metrics
from hf_xalign.tasks.qa.answers import best_spans, window_spans
from hf_xalign.tasks.qa.normalization import answer_tokens
from hf_xalign.tasks.qa.scores import by_language, score_answers

pytestmark = pytest.mark.numeric
QUESTIONS = np.array([0, 0, 0, 1, 3, 3, 4])  # question 2 has no window
TOKENS = 12


def make_logits(seed, ties=False):
    """Logits and character offsets of overlapping windows: each begins 5 tokens after the one before it."""
    logits = torch.randn(2, len(QUESTIONS), TOKENS, generator=torch.Generator().manual_seed(seed))
    opens = torch.full((len(QUESTIONS), TOKENS), -1)
    closes = opens.clone()
    for w, question in enumerate(QUESTIONS):
        shift = 5 * int((QUESTIONS[:w] == question).sum())
        for token in range(3, TOKENS - 1):
            # Every fourth token of a context is the second one of a character.
            n = token - 3 + shift
            if n % 4 != 3:
                opens[w, token] = 10 * n
            if n % 4 != 2:
                closes[w, token] = 10 * n + 7
    opens[6], closes[6] = -1, -1  # a window without text
    return *(logits.round() if ties else logits), opens, closes


def loop(start, end, opens, closes, longest):
    """The best span of each question by looking at all of them."""
    found = []
    for question in range(5):
        spans = {}
        for w in np.flatnonzero(question == QUESTIONS):
            for i, j in itertools.product(range(TOKENS), repeat=2):
                if i <= j < i + longest and opens[w, i] >= 0 and closes[w, j] >= 0:
                    span = int(opens[w, i]), int(closes[w, j])
                    spans[span] = max(float(start[w, i] + end[w, j]), spans.get(span, -np.inf))
        found.append(min(spans, key=lambda span: (-spans[span], *span), default=(-1, -1)))
    return found


def test_spans_are_those_of_a_loop():
    for seed, ties, longest in itertools.product(range(4), [False, True], [1, 4, 99]):
        given = make_logits(seed, ties)
        spans = window_spans(*given, max_answer_tokens=longest).numpy()
        expected = loop(*given, longest)
        assert expected[2] == expected[4] == (-1, -1) and spans[6, 2] == -np.inf
        order = np.array([4, 0, 6, 2, 5, 1, 3])
        for rows in (slice(None), order):  # the order of the windows does not matter
            found = best_spans(QUESTIONS[rows], spans[rows], 5)
            assert [*map(tuple, found.tolist())] == expected, f"{seed=}, {ties=}, {longest=}"


# ---- Scores ----

RULES = [
    # Articles go as words, not as parts of words; hyphens leave no blank, articles do.
    ("en", "The  well-known Theatre of a 'Man'", "wellknown theatre of man"),
    ("en", "U.S. $5 (~€4)", "us 5 €4"),
    ("de", "Die Straße in den Süden, eines Tages", "straße in süden tages"),
    ("de-CH", "Das «Haus»", "haus"),
    ("es", "La ciudad de los Ángeles, ¿un año?", "ciudad de ángeles año"),
    ("vi", "Những người của Hà Nội", "người hà nội"),
    # The danda and the Devanagari abbreviation sign are punctuation; vowel signs and viramas stay.
    ("hi", "नई दिल्ली। (भारत)", "नई दिल्ली भारत"),
    ("ar", "الكتاب الجديد، ٢٠١٠؟", "كتاب جديد ٢٠١٠"),
    ("zh-Hant", "《紅樓夢》的 iPhone手機", "紅 樓 夢 的 iphone 手 機"),
    ("ja", "東京タワー", "東 京 タ ワ ー"),
    ("th", "ที่นี่ 5 กม.", "ที่ นี่ 5 ก ม"),
    ("ru", "«Война и мир»", "война и мир"),
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
        assert " ".join(answer_tokens(answer, language)) == expected, (language, answer)
    assert answer_tokens(unicodedata.normalize("NFD", "của Hà Nội"), "vi") == ["hà", "nội"]  # a decomposed article
    # SQuAD's rules are English everywhere.
    assert answer_tokens("Die «Straße», the A-Z", "de", "squad") == ["die", "«straße»", "az"]
    assert answer_tokens("北京，市", "zh", "squad") == ["北京，市"]


def test_scores_of_every_answer():
    found = score_answers(PREDICTIONS, REFERENCES, LANGUAGES)
    assert_rounding(found.f1, F1, OPERATIONS)
    np.testing.assert_array_equal(found.exact_match, EXACT)
    # By English rules the German article stays: "die donau" and "donau" share 1 of 3.
    assert_rounding(score_answers(PREDICTIONS, REFERENCES, LANGUAGES, rules="squad").f1[3], 2 / 3, OPERATIONS)


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
