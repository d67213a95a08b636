"""Bilingual dictionaries in MUSE's format, and the word links that they give."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_xalign.errors import InputError


def load_dictionary(path: str | Path) -> list[tuple[str, str]]:
    """Read (target word, source word) entries: one a line, English (the pivot) first, as MUSE's `en-xx` files have it.

    The two fields are parted by a tab, and may then hold blanks themselves (Vietnamese), or else by one blank. Several
    translations are several lines. Text is NFC-normalised; empty lines are left out.

    Raises:
        InputError: the file cannot be read, is not UTF-8 or has no entry, or a line has not two fields.
    """
    entries = []
    row = 0
    try:
        with open(path, encoding="utf-8-sig") as lines:  # editors on Windows put a byte order mark first
            for row, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                text = unicodedata.normalize("NFC", line).strip("\r\n")
                fields = [field.strip() for field in (text.split("\t") if "\t" in text else text.split())]
                if len(fields) != 2 or not all(fields):
                    raise InputError(
                        f"{path}, row {row}: {text!r} has not two fields; write the pivot's word (English), a tab, "
                        "the other word"
                    )
                entries.append((fields[0], fields[1]))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 after row {row} ({error.reason}); save it as UTF-8") from error
    if not entries:
        raise InputError(f"{path}: no entries; one a line: the English word, a tab, the other word")
    return entries


class DictionaryLinker:
    """Links the word pairs of a dictionary that leave no doubt (Gaschi et al. 2023).

    A source and a target word are linked when each is the only dictionary partner of the other in the sentence pair,
    and each occurs once in its sentence. Entries of several words (with blanks) never match.

    Args:
        entries: (target word, source word), see [`load_dictionary`].
    """

    def __init__(self, entries: Sequence[tuple[str, str]]):
        to_target: dict[str, set[str]] = defaultdict(set)
        to_source: dict[str, set[str]] = defaultdict(set)
        for target, source in entries:
            to_target[source].add(target)
            to_source[target].add(source)
        self._to_target = dict(to_target)
        self._to_source = dict(to_source)

    def __call__(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
    ) -> list[list[tuple[int, int]]]:
        """The links (i, j) of each sentence pair, given as words."""
        return [self._link(source, target) for source, target in zip(sources, targets, strict=True)]

    def _link(self, source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int]]:
        source_counts, target_counts = Counter(source), Counter(target)
        place = {word: j for j, word in enumerate(target)}
        links = []
        for i, word in enumerate(source):
            partner = _only(word, self._to_target, source_counts, target_counts)
            if partner is not None and _only(partner, self._to_source, target_counts, source_counts) == word:
                links.append((i, place[partner]))
        return links


def _only(word: str, translations: Mapping[str, set[str]], own: Counter[str], other: Counter[str]) -> str | None:
    """The one translation of `word` that stands in the other sentence, if there is just one and `word` is single."""
    if own[word] != 1 or word not in translations:
        return None
    found = [translation for translation in translations[word] if translation in other]
    return found[0] if len(found) == 1 else None
