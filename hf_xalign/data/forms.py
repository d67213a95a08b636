"""Forms in which parallel text is published: one row of `FORMS` for each, and marks of an empty side.

A new corpus is a new row. Its columns are named by what they hold: `source` and `target`, or `first` and `second`
where the order follows the languages. `source_lang` and `target_lang` hold codes. Kinds of `_HOLDS` tell forms apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from hf_xalign.language_codes import find_language, parse_language, same_language


class Form(NamedTuple):
    """Columns of a file without a header.

    Attributes:
        name: name of the corpus or tool.
        columns: what each column holds, from left to right.
        order: how `first` and `second` follow from the languages.
        documented: where the form is documented.
    """

    name: str
    columns: tuple[str, ...]
    order: Literal["", "english_first", "alphabetical"]
    documented: str


FORMS = (
    Form(
        "Tatoeba Challenge",
        ("source_lang", "target_lang", "source", "target"),
        "",
        "https://github.com/Helsinki-NLP/Tatoeba-Challenge",
    ),
    Form("Tatoeba sentence pairs", ("number", "source", "number", "target"), "", "https://tatoeba.org/en/downloads"),
    Form(
        "WikiMatrix",
        ("number", "first", "second"),
        "alphabetical",
        "https://github.com/facebookresearch/LASER/tree/main/tasks/WikiMatrix",
    ),
    Form("hunalign", ("source", "target", "number"), "", "https://github.com/danielvarga/hunalign"),
    Form("Anki", ("first", "second", "attribution"), "english_first", "https://www.manythings.org/anki/"),
    Form("ParaCrawl", ("url", "url", "first", "second"), "english_first", "https://github.com/bitextor/bitextor"),
    Form(
        "ParaCrawl with a score",
        ("url", "url", "first", "second", "number"),
        "english_first",
        "https://github.com/bitextor/bitextor",
    ),
    Form(
        "CCAligned", ("domain", "url", "first", "url", "second"), "english_first", "https://www.statmt.org/cc-aligned/"
    ),
)
# What a cell of a kind looks like.
_HOLDS = {
    "number": re.compile(r"-?\d+([.,]\d+)?([eE]-?\d+)?"),
    "url": re.compile(r"https?://\S+"),
    "domain": re.compile(r"[\w.-]+\.[a-z]{2,}"),
    "attribution": re.compile(r"CC[- ]BY.*"),
}
# Marks of an empty side: NeuLab's TED talks, verses of eBible that the verse before covers.
COVERED = "<range>"
EMPTY = frozenset({"__NULL__", COVERED})
# Lines of IWSLT's training files that hold no sentence.
TALK = re.compile(r"<(url|talkid|keywords|speaker|reviewer|translator)\b[^>]*>.*")
# Columns of a row's own languages, in the spellings of WMT, TICO-19, Tatoeba MT and SMOL.
LANGUAGES = {
    "source_lang": ("source_lang", "src_lang", "sourceLang", "sourcelang", "source_language", "sl"),
    "target_lang": ("target_lang", "tgt_lang", "trg_lang", "targetLang", "targetlang", "target_language", "tl"),
}
DIRECTION = "lp"  # `en-de_DE` in WMT24++
# Formats of translators, and the program of the Translate Toolkit that converts them.
CONVERTERS = {".po": "po2tmx", ".pot": "po2tmx", ".xlf": "xliff2po", ".xliff": "xliff2po", ".ts": "ts2po"}


def find_form(cells: Sequence[str], source_lang: str | None, target_lang: str) -> tuple[str, list[str]] | None:
    """Return the name of the form of a row, and the names of its columns; None if no form fits.

    Example:
        >>> find_form(["1.05", "Hund", "dog"], "de", "en")
        ('WikiMatrix', ['1', 'source', 'target'])
    """
    for form in FORMS:
        if len(form.columns) == len(cells) and all(map(_holds, cells, form.columns)):
            sides = ("source", "target")
            if form.order == "english_first" and not same_language("en", source_lang or "und"):
                sides = ("target", "source")
            elif form.order == "alphabetical":
                if source_lang is None:
                    continue
                codes = (parse_language(source_lang).language, parse_language(target_lang).language)
                sides = sides if codes == tuple(sorted(codes)) else sides[::-1]
            named = {"first": sides[0], "second": sides[1]}
            # A kind may occur twice, so such columns are named by their numbers.
            names = [str(n) if kind in _HOLDS else named.get(kind, kind) for n, kind in enumerate(form.columns, 1)]
            return form.name, names
    return None


def _holds(cell: str, kind: str) -> bool:
    if kind in _HOLDS:
        return bool(_HOLDS[kind].fullmatch(cell.strip()))
    if kind.endswith("_lang"):
        return find_language(cell) is not None and len(cell) < 12
    return not _HOLDS["number"].fullmatch(cell.strip())
