"""Word links in Pharaoh format: one line for each sentence pair, tokens `i-j`, word indices from 0, source first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import regex

from hf_xalign.data.readers import read_lines
from hf_xalign.errors import InputError

_TOKEN = regex.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def read_pharaoh(path: str | Path) -> Iterator[list[tuple[int, int]]]:
    """Yield the links of each line, which may be empty."""
    for row, line in read_lines(path):
        links = []
        for token in line.split():
            match = _TOKEN.fullmatch(token)
            if match is None:
                raise InputError(
                    f"{path}, row {row}: {token!r} is not a link. Write i-j, source word first, counting from 0."
                )
            links.append((int(match[1]), int(match[2])))
        yield links


class PharaohReader:
    """Linker that reads the links of consecutive sentence pairs, and checks each line against the words."""

    def __init__(self, path: str | Path, pairs: int):
        self.path = path
        lines = sum(1 for _ in read_pharaoh(path))
        if lines != pairs:
            raise InputError(
                f"{path} has {lines} lines for {pairs} sentence pairs. Write one line for each pair, in the same "
                "order, and an empty line for a pair without links."
            )
        self._links = enumerate(read_pharaoh(path), start=1)

    def __call__(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
    ) -> list[list[tuple[int, int]]]:
        """Return the links of the next `len(sources)` pairs."""
        batch = []
        # `zip` reads its last argument last, so no line is lost at the end of a batch.
        for source, target, (row, links) in zip(sources, targets, self._links):
            for i, j in links:
                if i >= len(source) or j >= len(target):
                    raise InputError(
                        f"{self.path}, row {row}: link {i}-{j} is out of range: the source has {len(source)} words "
                        f"and the target {len(target)}. Check that the text was split into the same words, and that "
                        "the links are from source to target."
                    )
            batch.append(links)
        return batch
