"""Read and write word vectors in the formats of word2vec, fastText, MUSE and VecMap.

Text files have a first line `N D`, then lines of a word and D numbers. Binary files have the same first line, then for
each word its UTF-8 bytes, a blank and D little-endian float32.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import re
from collections.abc import Iterator
from itertools import chain, compress, islice
from pathlib import Path
from typing import IO, NamedTuple, TextIO, cast

import numpy as np
import pyarrow
import pyarrow.compute
import torch

from hf_xalign.cache import replacing
from hf_xalign.data.readers.files import open_bytes, read_lines
from hf_xalign.data.words import clean_text
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors import Anchors

logger = logging.getLogger(__name__)

_ROWS = 2_000  # rows of text in memory at a time
_LONGEST_WORD = 10_000  # a file with a longer one is of another kind
# No published vector is longer. A value beyond it is read from the wrong bytes.
_LARGEST = 1e10
_BLANK = (
    "In this format a word ends at its first blank, so a word with a blank in it spoils all after it. Join such words "
    "by _ in gensim, or copy the file again."
)
_FASTTEXT_MODEL = (793712314).to_bytes(4, "little")  # first bytes of a fastText model
_NO_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f]")


class _Block(NamedTuple):
    """Rows of a file: words, vectors float32 (words, dim), and the faults of bad rows, which are left out."""

    words: list[str]
    vectors: np.ndarray
    faults: list[str]


def write_word2vec(anchors: Anchors, path: str | os.PathLike, layer: int = -1) -> None:
    """Write the vectors of one layer as text, atomically, with enough digits to restore the same float32.

    A path that ends in `.gz` is compressed.

    Raises:
        InputError: a word is empty or has white space, or the disk is full.

    Example:
        >>> import tempfile, torch
        >>> anchors = Anchors(["Haus", "Hund"], torch.tensor([[[1.0, 0.5]], [[0.0, 2.0]]]), torch.tensor([3, 2]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_word2vec(anchors, f"{folder}/de.vec")
        ...     print(Path(folder, "de.vec").read_text())
        2 2
        Haus 1 0.5
        Hund 0 2
    """
    path = Path(path)
    if broken := [word for word in anchors.words if len(word.split()) != 1]:
        raise InputError(f"{path}: the word {broken[0]!r} is empty or has white space. Remove it.")
    vectors = anchors.vectors[:, anchors.layers.index(layer)]
    row = "%s" + " %.9g" * vectors.shape[1] + "\n"
    # Only "\n" ends a row, because words may contain other characters that Python treats as line breaks.
    opener = gzip.open if path.suffix == ".gz" else open
    with replacing(path) as partial, cast(TextIO, opener(partial, "wt", encoding="utf-8", newline="\n")) as file:
        file.write(f"{len(anchors)} {vectors.shape[1]}\n")
        for start in range(0, len(anchors), _ROWS):
            block = zip(anchors.words[start : start + _ROWS], vectors[start : start + _ROWS].tolist())
            file.writelines(row % (word, *values) for word, values in block)


def read_word2vec(path: str | os.PathLike, lang: str | None = None, *, limit: int | None = None) -> Anchors:
    """Read word vectors from text, with or without (GloVe) a first line `N D`, or from word2vec's binary file.

    Words are NFC-normalized. Of a repeated word, the first row is used. A row with a wrong number of fields, a field
    that is not a finite number, or bytes that are not UTF-8 is left out. The log says how many rows of both kinds
    there are, and names the first bad one. The anchors have one layer, -1, and counts of 0.

    Args:
        path: file with a space or tab between fields, or a binary file; both may be compressed (gzip, bzip2, xz).
        lang: language code of the words.
        limit: number of words to read, from the first row on; by default all.

    Raises:
        InputError: the file cannot be read, has no good row, or ends before the number of rows in its first line.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "de.vec").write_text("2 2\\nHaus 1 0.5\\nHund 0 2\\n")
        ...     anchors = read_word2vec(f"{folder}/de.vec", lang="de")
        >>> anchors.words, anchors.vectors[1, 0].tolist()
        (['Haus', 'Hund'], [0.0, 2.0])
    """
    path = Path(path)
    words: dict[str, int] = {}
    good_rows: list[np.ndarray] = []
    good = 0
    faults: list[str] = []
    header = _binary_header(path)
    for block in _read_binary(path, *header) if header else _read_text(path):
        new = [words.setdefault(word, good + k) == good + k for k, word in enumerate(block.words)]
        good_rows.append(block.vectors[new])
        good += len(block.words)
        faults += block.faults
        if limit is not None and len(words) >= limit:
            break
    if not words:
        raise InputError(f"{path}: there are no words{f'; {faults[0]}' if faults else ''}. Check the file's format.")
    if faults:
        rows = good + len(faults)
        logger.warning("%s: %d of %d rows are bad and left out; the first is %s", path, len(faults), rows, faults[0])
    if len(words) < good:
        logger.warning("%s: %d rows of repeated words are ignored", path, good - len(words))
    names = list(words)[:limit]
    vectors = torch.from_numpy(np.concatenate(good_rows))[: len(names)].unsqueeze(1)
    return Anchors(names, vectors, torch.zeros(len(names), dtype=torch.int64), lang=lang)


def _first_line(text: str) -> tuple[int, int] | None:
    fields = text.split()
    if len(fields) == 2 and all(field.isascii() and field.isdigit() and len(field) < 10 for field in fields):
        return int(fields[0]), int(fields[1])
    return None


def _read_text(path: Path) -> Iterator[_Block]:
    lines: Iterator[str] = (line for _, line in read_lines(path, undecodable="replace"))
    first, row = next(lines, ""), 2
    promised, size = _first_line(first) or (None, len(first.split()) - 1)
    if promised is None:
        lines, row = chain([first], lines), 1
    size = max(1, size)
    while block := list(islice(lines, _ROWS)):
        yield _parse(block, size, row)
        row += len(block)
    if promised is not None and row - 2 < promised:
        raise InputError(f"{path}: row 1 says {promised} words, but {row - 2} rows follow. Copy the file again.")


def _parse(lines: list[str], size: int, start: int) -> _Block:
    """Parse rows of `size` numbers; `start` is the number of the first row."""
    words, texts, rows, faults = [], [], [], []
    for row, line in enumerate(lines, start=start):
        name, _, fields = line.replace("\t", " ").rstrip(" ").partition(" ")
        word = clean_text(name)
        if "\ufffd" in word:
            faults.append(f"row {row}: {line[:40]!r} ... is not UTF-8")
        elif not word or not fields or fields.count(" ") != size - 1:
            faults.append(
                f"row {row}: {len(line.split())} fields, {line!r:.40}..., not a word and {size} numbers, singly spaced"
            )
        else:
            words.append(word)
            texts.append(fields)
            rows.append(row)
    try:
        vectors = _parse_floats(texts).reshape(-1, size)
    except pyarrow.ArrowInvalid:
        vectors = np.full((len(texts), size), np.nan, np.float32)
        for k, text in enumerate(texts):
            with contextlib.suppress(pyarrow.ArrowInvalid):
                vectors[k] = _parse_floats([text])
    return _finite(words, vectors, rows, faults)


def _finite(words: list[str], vectors: np.ndarray, rows: list[int], faults: list[str]) -> _Block:
    good = np.isfinite(vectors).all(axis=1)
    if good.all():
        return _Block(words, vectors, faults)
    for k in np.flatnonzero(~good).tolist():
        faults.append(f"row {rows[k]}: not all fields of {words[k]!r} are finite numbers")
    return _Block(list(compress(words, good.tolist())), vectors[good], faults)


def _binary_header(path: Path) -> tuple[int, int] | None:
    """Return N and D of a binary file, and None of text; gensim writes both under any name."""
    with open_bytes(path) as stream:
        first, following = stream.readline(100), stream.read(1000)
    if first.startswith(_FASTTEXT_MODEL):
        raise InputError(f"{path} is a fastText model, not word vectors. Use the .vec file of the same download.")
    return _first_line(first.decode("ascii", "replace")) if _NO_TEXT.search(following) else None


def _read_binary(path: Path, promised: int, size: int) -> Iterator[_Block]:
    with open_bytes(path) as stream:
        stream.readline()
        for start in range(0, promised, _ROWS):
            words, data, rows, faults = [], [], [], []
            for row in range(start + 1, min(start + _ROWS, promised) + 1):
                name = _word(stream, path, row)
                values = stream.read(4 * size)
                if len(values) < 4 * size:
                    raise InputError(
                        f"{path}: row 1 says {promised} words, but the file ends in word {row}. Copy it again."
                    )
                word = clean_text(name.decode(errors="replace"))
                if word and "\ufffd" not in word:
                    words.append(word)
                    data.append(values)
                    rows.append(row)
                else:
                    faults.append(f"word {row}: {name[:40]!r} is empty or not UTF-8")
            vectors = np.frombuffer(b"".join(data), "<f4").reshape(-1, size).astype(np.float32)
            absurd = np.abs(vectors).max(axis=1) > _LARGEST  # False for NaN, which is a fault of its own
            if absurd.any():
                word, value = words[absurd.argmax()], np.abs(vectors[absurd.argmax()]).max()
                raise InputError(f"{path}: {word!r} has the value {value:.0e}. {_BLANK}")
            yield _finite(words, vectors, rows, faults)
        if stream.read(_LONGEST_WORD).strip():
            raise InputError(f"{path}: more bytes follow the {promised} words of row 1. {_BLANK}")


def _word(stream: IO[bytes], path: Path, row: int) -> bytes:
    """Read the bytes of a word up to its blank, without a line feed that ends the row before."""
    letters: list[bytes] = []
    while (letter := stream.read(1)) != b" ":
        if not letter or len(letters) > _LONGEST_WORD:
            raise InputError(
                f"{path}: word {row} has no end. Copy the file again, if it is a binary file of word2vec."
            )
        letters.append(letter)
    return b"".join(letters).lstrip(b"\n")


def _parse_floats(texts: list[str]) -> np.ndarray:
    """Parse numbers between spaces to float32, several times faster than Python's `float`."""
    fields = pyarrow.compute.split_pattern(pyarrow.array(texts, pyarrow.large_string()), " ").flatten()
    return pyarrow.compute.cast(fields, pyarrow.float32()).to_numpy(zero_copy_only=False)
