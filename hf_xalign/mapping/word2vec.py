"""Word vectors in the text format of word2vec, MUSE and VecMap: `N D`, then a word and its D numbers a line."""

from __future__ import annotations

import gzip
import logging
import os
import unicodedata
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO, cast

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
import torch

from hf_xalign.cache import replacing
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors.anchors import Anchors

logger = logging.getLogger(__name__)

# Rows in memory as text at a time.
_ROWS = 2_000


def write_word2vec(anchors: Anchors, path: str | os.PathLike, layer: int = -1) -> None:
    """Write the vectors of one layer, whole or not at all; `.gz` is compressed.

    Numbers have the digits that give the same float32 when they are read.

    Args:
        anchors: the vectors.
        path: file to write.
        layer: one of `anchors.layers`.

    Raises:
        InputError: no such layer, a word that is empty or has white space (the format cannot hold it), or a full disk.
    """
    path = Path(path)
    if layer not in anchors.layers:
        raise InputError(f"{path}: there are no anchors of layer {layer}; name one of {anchors.layers} by layer")
    if broken := [word for word in anchors.words if len(word.split()) != 1]:
        raise InputError(
            f"{path}: the word {broken[0]!r} is empty or has white space, which word2vec's text format cannot hold"
        )
    vectors = anchors.vectors[:, anchors.layers.index(layer)]
    row = "%s" + " %.9g" * vectors.shape[1] + "\n"
    with replacing(path) as partial, _open(partial, "w", compressed=path.suffix == ".gz") as file:
        file.write(f"{len(anchors)} {vectors.shape[1]}\n")
        for start in range(0, len(anchors), _ROWS):
            block = zip(anchors.words[start : start + _ROWS], vectors[start : start + _ROWS].tolist())
            file.writelines(row % (word, *numbers) for word, numbers in block)


def read_word2vec(path: str | os.PathLike, max_words: int | None = None, lang: str | None = None) -> Anchors:
    """Read word vectors, with a first line `N D` or without one (GloVe).

    Words are NFC-normalised. Of a word that is there twice the first row is taken, the more frequent in files that
    are sorted so; how many were passed over is logged.

    Args:
        path: the file, UTF-8, one blank between fields; `.gz` is decompressed.
        max_words: read only the first so many words.
        lang: language of the words.

    Returns:
        Anchors of one layer, -1, whose counts are 0.

    Raises:
        InputError: the file cannot be read; a row has too few or too many fields, something that is no number, NaN or
            infinity; or there are more or fewer rows than the first line says.
    """
    words: dict[str, int] = {}
    blocks: list[np.ndarray] = []
    repeated = rows = 0
    try:
        with _open(Path(path), "r", compressed=Path(path).suffix == ".gz") as file:
            first = file.readline()
            promised, size = _header(first)
            if promised is None:
                lines, size = _chained(first, file), len(first.split()) - 1
            else:
                lines = iter(file)
            if size < 1:
                raise InputError(f"{path}: row 1, {first[:60]!r}, is neither `N D` nor a word and its numbers")
            start = 1 if promised is None else 2
            while (max_words is None or len(words) < max_words) and (block := list(islice(lines, _ROWS))):
                names, vectors = _parse(block, size, path, start + rows)
                rows += len(block)
                fresh = []
                for k, word in enumerate(names):
                    if word in words:
                        repeated += 1
                    elif max_words is None or len(words) < max_words:
                        words[word] = len(words)
                        fresh.append(k)
                blocks.append(vectors[fresh])
            whole = next(lines, None) is None
    except (EOFError, zlib.error, OSError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 after row {rows} ({error.reason}); save it as UTF-8") from error
    if not words:
        raise InputError(f"{path}: no words in it")
    if promised is not None and (rows > promised or (whole and rows < promised)):
        raise InputError(f"{path}: row 1 says {promised} words, and {rows} rows follow it; was the file cut short?")
    if repeated:
        logger.warning("%s: %d rows of words that had come before are passed over", path, repeated)
    found = torch.from_numpy(np.concatenate(blocks)).unsqueeze(1)
    return Anchors(list(words), found, torch.zeros(len(words), dtype=torch.int64), lang=lang)


def _open(path: Path, mode: str, *, compressed: bool) -> TextIO:
    # Only "\n" ends a row: words may hold other characters that Python takes for line ends.
    opener = gzip.open if compressed else open
    return cast(TextIO, opener(path, mode + "t", encoding="utf-8", newline="\n"))


def _header(line: str) -> tuple[int | None, int]:
    """`N` and `D` of a first line that is nothing but these; else None."""
    fields = line.split()
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        return int(fields[0]), int(fields[1])
    return None, 0


def _chained(first: str, rest: TextIO) -> Iterator[str]:
    yield first
    yield from rest


def _parse(lines: list[str], size: int, path: str | os.PathLike, start: int) -> tuple[list[str], np.ndarray]:
    """The words of some rows, and their vectors float32 (rows, size); `start` is the number of the first row."""
    words, texts = [], []
    for row, line in enumerate(lines, start=start):
        word, _, numbers = line.rstrip(" \r\n").partition(" ")
        if not word or not numbers or numbers.count(" ") != size - 1:
            found = len(line.rstrip(" \r\n").split(" "))
            raise InputError(
                f"{path}, row {row}: {found} fields, {line[:40]!r} ..., where a word and {size} numbers are due, one "
                "blank between them"
            )
        words.append(unicodedata.normalize("NFC", word))
        texts.append(numbers)
    try:
        vectors = _numbers(texts).reshape(-1, size)
    except pyarrow.ArrowInvalid as error:
        for row, text in enumerate(texts, start=start):
            try:
                _numbers([text])
            except pyarrow.ArrowInvalid as inner:
                raise InputError(f"{path}, row {row}: not all of its fields are numbers ({inner})") from error
        raise
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise InputError(f"{path}, row {start + bad[0]}: the vector of {words[bad[0]]!r} holds NaN or infinity")
    return words, vectors


def _numbers(texts: list[str]) -> np.ndarray:
    """Numbers between blanks, float32; several times as quick as Python's `float`."""
    fields = pyarrow.compute.split_pattern(pyarrow.array(texts, pyarrow.large_string()), " ").flatten()
    return pyarrow.compute.cast(fields, pyarrow.float32()).to_numpy(zero_copy_only=False)
