"""Normalise answers before they are compared, by MLQA's rules for each language or SQuAD's English rules.

MLQA (Lewis et al. 2020) removes each language's articles and all Unicode punctuation, and compares Chinese by
characters.
"""

from __future__ import annotations

import string
import unicodedata
from functools import cache
from typing import Literal, get_args

import regex

from hf_xalign.checks import check_choice
from hf_xalign.data.words import lower_word

Rules = Literal["mlqa", "squad"]
RULES = get_args(Rules)

_ASCII_MARKS = regex.compile(f"[{regex.escape(string.punctuation)}]")
# Unicode counts $ + < = > ^ ` | ~ as symbols; SQuAD drops them, and so does MLQA.
_MARKS = regex.compile(r"[\p{P}$+<=>^`|~]")

_ARTICLES = {
    "en": r"\b(?:a|an|the)\b",
    "de": r"\b(?:der|die|das|den|dem|des|ein|eine|einen|einem|einer|eines)\b",
    "es": r"\b(?:el|la|los|las|un|una|unos|unas)\b",
    "vi": r"\b(?:của|là|cái|chiếc|những)\b",
    # The article is a prefix, often after another one, so MLQA removes the two letters everywhere.
    "ar": "ال",
}
# Other codes of the languages with rules.
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
# Letters of scripts without blanks between words; each letter with its combining marks is a token.
_LETTERS = {
    "zh": r"\p{Han}",
    "ja": r"[\p{Han}\p{Hiragana}\p{Katakana}ー]",
    "th": r"\p{Thai}",
    "lo": r"\p{Lao}",
    "km": r"\p{Khmer}",
    "my": r"\p{Myanmar}",
}


def answer_tokens(text: str, language: str, rules: Rules = "mlqa") -> list[str]:
    """Return the tokens of an answer that F1 counts: in lower case, without punctuation and articles.

    - `mlqa` removes Unicode punctuation, and the articles of English, German, Spanish, Vietnamese and Arabic. Blanks
      separate tokens. In Chinese, every Han character is a token, and (beyond MLQA) every letter in Japanese, Thai,
      Lao, Khmer and Burmese. Text is NFC-normalised first, so that a decomposed Vietnamese article is found.
    - `squad` applies SQuAD 1.1's rules for English to any language: it removes ASCII punctuation and English articles,
      and splits at blanks. XTREME scores XQuAD and TyDi this way.

    Removed punctuation leaves no blank (`well-known` is one token); a removed article does.
    """
    check_choice(RULES, rules=rules)
    if rules == "squad":
        articles, letters = _expressions("en")
        marks = _ASCII_MARKS
    else:
        articles, letters = _expressions(language.replace("_", "-").split("-")[0].lower())
        marks = _MARKS
        text = unicodedata.normalize("NFC", text)
    text = marks.sub("", text.lower() if rules == "squad" else lower_word(text, language))
    if articles is not None:
        text = articles.sub(" ", text)
    return text.split() if letters is None else letters.sub(r" \g<0> ", text).split()


@cache
def _expressions(base: str) -> tuple[regex.Pattern[str] | None, regex.Pattern[str] | None]:
    """Return the expressions for a language's articles and one-letter tokens, or None."""
    base = _TWO_LETTERS.get(base, base)
    articles, letter = _ARTICLES.get(base), _LETTERS.get(base)
    return (
        regex.compile(articles) if articles else None,
        # \X also matches the rest of the letter's cluster: vowel signs, tone marks, variation selectors.
        regex.compile(rf"(?={letter})\X") if letter else None,
    )
