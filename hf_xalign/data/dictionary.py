"""Bilingual dictionaries in MUSE's format, and word links from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_xalign.data.readers import clean_text, read_lines
from hf_xalign.errors import InputError


def load_dictionary(path: str | Path) -> list[tuple[str, str]]:
    """Read (target word, source word) entries in MUSE's format: one on each line, English (the pivot) first.

    A tab or a blank separates the two words; words may contain blanks (Vietnamese) if a tab separates them. Several
    translations of a word are several lines. Text is NFC-normalised; empty lines are skipped. A line without two words
    raises an InputError.
    """
    entries = []
    for row, line in read_lines(path):
        if not line.strip():
            continue
        text = clean_text(line)
        fields = [field.strip() for field in (text.split("\t") if "\t" in text else text.split())]
        if len(fields) != 2 or not all(fields):
            raise InputError(
                f"{path}, row {row}: {text!r} does not have two fields. Write the pivot's word (English), a tab and "
                "the other word."
            )
        entries.append((fields[0], fields[1]))
    if not entries:
        raise InputError(f"{path}: no entries. Write one on each line: the English word, a tab and the other word.")
    return entries


class DictionaryLinker:
    """Link the words of a sentence pair by a dictionary, where they are unambiguous (Gaschi et al. 2023).

    Two words are linked if each is the only translation of the other in the sentence pair, and occurs once in its
    sentence. `entries` are those of [`load_dictionary`]; an entry with blanks never matches.
    """

    def __init__(self, entries: Sequence[tuple[str, str]]):
        to_target: dict[str, set[str]] = defaultdict(set)
        to_source: dict[str, set[str]] = defaultdict(set)
        for target, source in entries:
            to_target[source].add(target)
            to_source[target].add(source)
        self._to_target, self._to_source = to_target, to_source

    def __call__(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
    ) -> list[list[tuple[int, int]]]:
        """Return the links (i, j) of each sentence pair, given as words."""
        links = []
        for source, target in zip(sources, targets, strict=True):
            counts, others = Counter(source), Counter(target)
            found = []
            for i, word in enumerate(source):
                partner = _only(word, self._to_target, counts, others)
                if partner is not None and _only(partner, self._to_source, others, counts) == word:
                    found.append((i, target.index(partner)))
            links.append(found)
        return links


def _only(word: str, translations: Mapping[str, set[str]], own: Counter[str], other: Counter[str]) -> str | None:
    """Return the only translation of `word` in the other sentence; None if it is ambiguous or `word` is repeated."""
    if own[word] != 1 or word not in translations:
        return None
    found = [translation for translation in translations[word] if translation in other]
    return found[0] if len(found) == 1 else None
