"""Word links in Pharaoh format: one line a sentence pair, `i-j` tokens, word indices from 0, source first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import regex

from hf_xalign.errors import InputError

_TOKEN = regex.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def read_pharaoh(path: str | Path) -> Iterator[list[tuple[int, int]]]:
    """Read the links of a file, line by line; an empty line is a pair without links.

    Raises:
        InputError: the file cannot be read or is not UTF-8, or a line holds something else than `i-j` tokens.
    """
    row = 0
    try:
        with open(path, encoding="utf-8") as lines:
            for row, line in enumerate(lines, start=1):
                yield [_parse(token, path, row) for token in line.split()]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 after row {row} ({error.reason}); a Pharaoh file holds only digits, '-' and blanks"
        ) from error


def _parse(token: str, path: str | Path, row: int) -> tuple[int, int]:
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise InputError(f"{path}, row {row}: {token!r} is no link; write i-j, source word first, counted from 0")
    return int(match[1]), int(match[2])


class PharaohReader:
    """Gives the links of consecutive sentence pairs, checking each line against its words.

    Args:
        path: the Pharaoh file.
        pairs: sentence pairs that the file must have a line for.

    Raises:
        InputError: the file has another number of lines, or a line is malformed (checked here, for the whole file).
    """

    def __init__(self, path: str | Path, pairs: int):
        self.path = path
        lines = sum(1 for _ in read_pharaoh(path))
        if lines != pairs:
            raise InputError(
                f"{path} has {lines} lines for {pairs} sentence pairs: it must have one line a pair, in the same "
                "order, an empty one where there is no link"
            )
        self._links = enumerate(read_pharaoh(path), start=1)

    def __call__(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
    ) -> list[list[tuple[int, int]]]:
        """The links of the next `len(sources)` pairs.

        Raises:
            InputError: a link points behind the last word of a sentence.
        """
        batch = []
        # zip asks the file last, so it is not read beyond this batch.
        for source, target, (row, links) in zip(sources, targets, self._links):
            for i, j in links:
                if i >= len(source) or j >= len(target):
                    raise InputError(
                        f"{self.path}, row {row}: link {i}-{j} is out of range, the source has {len(source)} words "
                        f"and the target {len(target)} (were they other words, or links from target to source?)"
                    )
            batch.append(links)
        return batch
