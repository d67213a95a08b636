"""Answers reduced to what counts when they are compared: MLQA's rules for each language, or SQuAD's for all.

MLQA (Lewis et al. 2020) takes SQuAD's normalisation and adapts it to a language: its articles go, all
of Unicode's punctuation goes, and Chinese is compared character by character where blanks do not end words.
"""

from __future__ import annotations

import string
import unicodedata
from functools import cache
from typing import Literal

import regex

from hf_xalign.errors import InputError

Rules = Literal["mlqa", "squad"]
RULES = ("mlqa", "squad")

_ASCII_MARKS = regex.compile(f"[{regex.escape(string.punctuation)}]")
# Unicode counts $ + < = > ^ ` | ~ as symbols; SQuAD drops them, so MLQA does.
_MARKS = regex.compile(r"[\p{P}$+<=>^`|~]")

_ARTICLES = {
    "en": r"\b(?:a|an|the)\b",
    "de": r"\b(?:der|die|das|den|dem|des|ein|eine|einen|einem|einer|eines)\b",
    "es": r"\b(?:el|la|los|las|un|una|unos|unas)\b",
    "vi": r"\b(?:của|là|cái|chiếc|những)\b",
    # A prefix, and often the second one: MLQA takes the two letters out wherever they stand.
    "ar": "ال",
}
# Other codes of languages that have rules here.
_TWO_LETTERS = {
    "eng": "en",
    "deu": "de",
    "spa": "es",
    "vie": "vi",
    "ara": "ar",
    "arb": "ar",
    "zho": "zh",
    "cmn": "zh",
    "yue": "zh",
    "jpn": "ja",
    "tha": "th",
    "lao": "lo",
    "khm": "km",
    "mya": "my",
}
# Scripts that have no blanks between words; a letter with its marks is a token.
_LETTERS = {
    "zh": r"\p{Han}",
    "ja": r"[\p{Han}\p{Hiragana}\p{Katakana}ー]",
    "th": r"\p{Thai}",
    "lo": r"\p{Lao}",
    "km": r"\p{Khmer}",
    "my": r"\p{Myanmar}",
}


def normalize_answer(text: str, language: str, rules: Rules = "mlqa") -> str:
    """An answer as it is compared: the tokens of [`answer_tokens`] with a blank between two.

    Raises:
        InputError: no such rules.
    """
    return " ".join(answer_tokens(text, language, rules))


def answer_tokens(text: str, language: str, rules: Rules = "mlqa") -> list[str]:
    """The tokens that F1 counts: lower case, without punctuation, then without articles.

    - `mlqa`: punctuation is Unicode's; articles are those of English, German, Spanish, Vietnamese and Arabic (Hindi
      and Chinese have none, and of other languages none go). Blanks separate tokens, and in Chinese every Han
      character is one too; so is, beyond MLQA, every letter of Japanese, Thai, Lao, Khmer and Burmese. Text is put in
      NFC first, so that a decomposed Vietnamese article is found.
    - `squad`: SQuAD 1.1's, made for English, whatever the language: ASCII punctuation, English articles, blanks.
      XTREME scores XQuAD and TyDi so, which a comparison with its figures needs.

    Punctuation leaves no blank (`well-known` is one token); an article does.

    Args:
        text: an answer.
        language: code of the answer's language (`de`, `zh-Hant`).
        rules: which of the two.

    Raises:
        InputError: no such rules.
    """
    if rules not in RULES:
        raise InputError(f"rules={rules!r}: answers are compared by the rules of {' or '.join(RULES)}")
    if rules == "squad":
        articles, letters = _expressions("en")
        marks = _ASCII_MARKS
    else:
        articles, letters = _expressions(language.replace("_", "-").split("-")[0].lower())
        marks = _MARKS
        text = unicodedata.normalize("NFC", text)
    text = marks.sub("", text.lower())
    if articles is not None:
        text = articles.sub(" ", text)
    return text.split() if letters is None else letters.sub(r" \g<0> ", text).split()


@cache
def _expressions(base: str) -> tuple[regex.Pattern[str] | None, regex.Pattern[str] | None]:
    """Of a language's articles, and of letters that are tokens by themselves; None where it has no such."""
    base = _TWO_LETTERS.get(base, base)
    articles, letter = _ARTICLES.get(base), _LETTERS.get(base)
    return (
        regex.compile(articles) if articles else None,
        # \X goes on to the end of the letter's cluster: vowel signs, tone marks, variation selectors.
        regex.compile(rf"(?={letter})\X") if letter else None,
    )
