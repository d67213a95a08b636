"""Word links from files: Pharaoh's format, the formats in which gold links are published, and dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import regex

from hf_xalign.data.parallel import ENOUGH, FROM_ONE
from hf_xalign.data.readers.files import read_lines
from hf_xalign.errors import InputError

Link = tuple[int, int]

# Links of Pharaoh's format are sure (`3-4`). Gold links may say so (TALP's `3s4`), or are possible (`3p4`, `3?4`).
_TOKEN = regex.compile(r"([0-9]{1,9})([-sSpP?])([0-9]{1,9})")
# A line of the NAACL 2003 shared task: sentence, source and target position, sure or possible, confidence.
_NAACL = regex.compile(r"\s*([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})(?:\s+([SPsp?]))?(?:\s+[0-9.]+)?\s*")
_SENTENCE = regex.compile(r"\s*</?s\b[^>]*>\s*")  # a line around the links of a sentence
# Links of equal words at different places by which the direction of a file is told.
_TURNED = 10
_OTHER_WORDS = "Check that the text was split into the same words, and that the links are from source to target."


def read_pharaoh(path: str | Path) -> Iterator[list[Link]]:
    """Yield the links of each line, which may be empty; fast_align writes text before them and scores after them."""
    for row, line in read_lines(path):
        yield [(i, j) for _, _, i, j in _line_links(path, [(row, _links_of(line))], "-")]


def _links_of(line: str) -> str:
    fields = line.split("|||")
    return fields[2 if len(fields) > 2 else 0]


class PharaohReader:
    """Linker that reads the links of consecutive sentence pairs, and checks each line against the words."""

    def __init__(self, path: str | Path, pairs: int):
        self.path = path
        lines = [min(map(min, links), default=-1) for links in read_pharaoh(path)]
        lowest = [number for number in lines if number >= 0]
        if len(lines) != pairs:
            raise InputError(
                f"{path} has {len(lines)} lines for {pairs} sentence pairs. Write one line for each pair, in the same "
                "order, and an empty line for a pair without links."
            )
        self._from_one = min(lowest, default=0) > 0
        if self._from_one and len(lowest) >= ENOUGH:
            raise InputError(f"{path} {FROM_ONE}")
        self._links = enumerate(read_pharaoh(path), start=1)
        self._equal = self._equal_turned = 0  # links between equal words, as the file has them and the other way round

    def __call__(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[list[Link]]:
        """Return the links of the next `len(sources)` pairs."""
        batch = []
        # `zip` reads its last argument last, so no line is lost at the end of a batch.
        for source, target, (row, links) in zip(sources, targets, self._links):
            for i, j in links:
                if i >= len(source) or j >= len(target):
                    remedy = f"The file {FROM_ONE}" if self._from_one else _OTHER_WORDS
                    raise InputError(
                        f"{self.path}, row {row}: link {i}-{j} is out of range: the source has {len(source)} words "
                        f"and the target {len(target)}. {remedy}"
                    )
                if i != j:
                    self._equal += source[i] == target[j]
                    self._equal_turned += j < len(source) and i < len(target) and source[j] == target[i]
            batch.append(links)
        if self._equal_turned >= _TURNED and self._equal_turned > 4 * self._equal:
            found = f"{self._equal} links join equal words, such as numbers, and {self._equal_turned} would if"
            raise InputError(f"{self.path}: {found} they were turned. Write the source's word first, as in 3-4.")
        return batch


class GoldLinks(NamedTuple):
    """Sure and possible links [i, j] of the annotated pairs, `rows`, from word 0; the file counts from `base`."""

    sure: list[list[Link]]
    possible: list[list[Link]]
    base: int
    rows: list[int]


def read_gold(path: str | Path, words: Sequence[tuple[int, int]]) -> GoldLinks:
    """Read the gold links of the first sentence pairs, given by the numbers of words of both sides.

    Reads one line of links for each pair (Pharaoh, TALP, `14p19`), or one line for each link (NAACL, `1 14 19 P`). A
    file counts from 0 if it has a word 0, else from 1; NAACL counts from 1, and its word 0 is the empty word.

    Raises:
        InputError: a line is not of these forms, there are more lines than pairs, a link is out of range, or there is
            no sure link.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "gold.wa"
        >>> _ = path.write_text("1 1 1 S\\n1 2 3 P\\n")
        >>> read_gold(path, [(2, 3)])
        GoldLinks(sure=[[(0, 0)]], possible=[[(1, 2)]], base=1, rows=[0])
    """
    lines = [_links_of(line) for _, line in read_lines(path) if not _SENTENCE.fullmatch(line)]
    is_naacl = _NAACL.fullmatch(next(filter(str.strip, lines), "")) is not None
    links = list(_naacl_links(path, lines) if is_naacl else _line_links(path, enumerate(lines, 1), "-sSpP?"))
    base = 1 if is_naacl or all(i and j for _, _, i, j in links) else 0
    numbers = sorted({row for row, *_ in links}) if is_naacl else range(1, len(lines) + 1)
    places = {row: place for place, row in enumerate(numbers)}
    if (last := max(places, default=0)) > len(words):
        raise InputError(f"{path} has links of sentence pair {last}, and the text has {len(words)} pairs.")
    gold = GoldLinks([[] for _ in places], [[] for _ in places], base, [row - 1 for row in places])
    for row, mark, i, j in links:
        if i - base >= words[row - 1][0] or j - base >= words[row - 1][1]:
            raise InputError(
                f"{path}, sentence pair {row}: link {i}-{j} is out of range: the sides have {words[row - 1][0]} and "
                f"{words[row - 1][1]} words, counted from {base}. Check that the gold has these words, source first."
            )
        side = gold.possible if mark in "pP?" else gold.sure
        side[places[row]].append((i - base, j - base))
    if not any(gold.sure):
        raise InputError(f"{path} has no sure link, without which there is no recall. Check the file's marks.")
    return gold


def _naacl_links(path: str | Path, lines: Sequence[str]) -> Iterator[tuple[int, str, int, int]]:
    """Yield sentence number, mark, source and target position of each line."""
    for row, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _NAACL.fullmatch(line)
        if match is None or int(match[1]) == 0 or match[2] == match[3] == "0":
            raise InputError(f"{path}, row {row}: {line!r:.60} is not a link. Write 1 14 19 S, counting from 1.")
        # Position 0 is the empty word, but two of them are those of a file that counts from 0.
        if int(match[2]) and int(match[3]):
            yield int(match[1]), match[4] or "S", int(match[2]), int(match[3])


def _line_links(path: str | Path, lines: Iterable[tuple[int, str]], marks: str) -> Iterator[tuple[int, str, int, int]]:
    """Yield row, mark, source and target word of each link, which may have these marks."""
    for row, line in lines:
        for token in line.split():
            match = _TOKEN.fullmatch(token)
            if match is None or match[2] not in marks:
                raise InputError(
                    f"{path}, row {row}: {token!r} is not a link. Write 3-4 (3p4 in gold), source first, without "
                    "scores; symal of Moses makes such lines of GIZA++'s A3 files."
                )
            yield row, match[2], int(match[1]), int(match[3])


class DictionaryLinker:
    """Link the words of a sentence pair by a dictionary, where they are unambiguous (Gaschi et al. 2023).

    Two words are linked if each is the only translation of the other in the sentence pair, and occurs once in its
    sentence. `entries` are those of [`~hf_xalign.data.readers.dictionaries.load_dictionary`]; one with blanks never
    matches.
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
            # A soft hyphen shows where a word may be cut, and no dictionary has it.
            source = [word.replace("\u00ad", "") for word in source]
            target = [word.replace("\u00ad", "") for word in target]
            source_words, target_words = set(source), set(target)
            pair_links = []
            for i, word in enumerate(source):
                partners = self._to_target.get(word, set()) & target_words
                if len(partners) == 1:
                    [partner] = partners
                    once = source.count(word) == 1 == target.count(partner)
                    if once and self._to_source[partner] & source_words == {word}:
                        pair_links.append((i, target.index(partner)))
            links.append(pair_links)
        return links
