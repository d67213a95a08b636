"""Word vectors in the text format of word2vec, MUSE and VecMap: `N D`, then lines of a word and D numbers."""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TextIO, cast

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
import torch

from hf_xalign.cache import replacing
from hf_xalign.data.readers import clean_text, read_lines
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors.anchors import Anchors

logger = logging.getLogger(__name__)

# Rows of text in memory at a time.
_ROWS = 2_000


def write_word2vec(anchors: Anchors, path: str | os.PathLike, layer: int = -1) -> None:
    """Write the vectors of one layer, atomically, with the digits that restore the same float32.

    A path that ends in `.gz` is compressed.

    Raises:
        InputError: unknown layer, a word that is empty or has white space, or a full disk.

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
    if layer not in anchors.layers:
        raise InputError(f"{path}: there are no anchors of layer {layer}. Use one of {anchors.layers}.")
    if broken := [word for word in anchors.words if len(word.split()) != 1]:
        raise InputError(f"{path}: the word {broken[0]!r} is empty or has white space. Remove it.")
    vectors = anchors.vectors[:, anchors.layers.index(layer)]
    row = "%s" + " %.9g" * vectors.shape[1] + "\n"
    # Only "\n" ends a row: words may contain other characters that Python treats as line breaks.
    opener = gzip.open if path.suffix == ".gz" else open
    with replacing(path) as partial, cast(TextIO, opener(partial, "wt", encoding="utf-8", newline="\n")) as file:
        file.write(f"{len(anchors)} {vectors.shape[1]}\n")
        for start in range(0, len(anchors), _ROWS):
            block = zip(anchors.words[start : start + _ROWS], vectors[start : start + _ROWS].tolist())
            file.writelines(row % (word, *numbers) for word, numbers in block)


def read_word2vec(path: str | os.PathLike, lang: str | None = None) -> Anchors:
    """Read word vectors, with or without (GloVe) a first line `N D`.

    Words are NFC-normalised. The first row of a repeated word is used, and the number of ignored rows is logged. The
    anchors have one layer, -1, and counts of 0.

    Args:
        path: UTF-8 file with single spaces between fields; `.gz` is decompressed.
        lang: language code of the words.

    Raises:
        InputError: the file cannot be read; a row has a wrong number of fields or a field that is not a finite number;
            or the number of rows differs from the first line.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "de.vec").write_text("2 2\\nHaus 1 0.5\\nHund 0 2\\n")
        ...     anchors = read_word2vec(f"{folder}/de.vec", lang="de")
        >>> anchors.words, anchors.vectors[1, 0].tolist()
        (['Haus', 'Hund'], [0.0, 2.0])
    """
    words: dict[str, int] = {}
    blocks: list[np.ndarray] = []
    rows = 0
    lines: Iterator[str] = (line for _, line in read_lines(Path(path)))
    first = next(lines, "")
    fields = first.split()
    if len(fields) == 2 and all(field.isascii() and field.isdigit() and len(field) < 10 for field in fields):
        (promised, size), start = map(int, fields), 2
    else:
        promised, size, lines, start = None, len(fields) - 1, chain([first], lines), 1
    if size < 1:
        raise InputError(f"{path}: row 1, {first[:60]!r}, is neither `N D` nor a word and its numbers.")
    while block := list(islice(lines, _ROWS)):
        names, vectors = _parse(block, size, path, start + rows)
        blocks.append(vectors[[words.setdefault(word, rows + k) == rows + k for k, word in enumerate(names)]])
        rows += len(block)
    if not words:
        raise InputError(f"{path}: no words.")
    if promised not in (None, rows):
        raise InputError(f"{path}: row 1 says {promised} words, but {rows} rows follow. Is the file complete?")
    if len(words) < rows:
        logger.warning("%s: %d rows of repeated words are ignored", path, rows - len(words))
    found = torch.from_numpy(np.concatenate(blocks)).unsqueeze(1)
    return Anchors(list(words), found, torch.zeros(len(words), dtype=torch.int64), lang=lang)


def _parse(lines: list[str], size: int, path: str | os.PathLike, start: int) -> tuple[list[str], np.ndarray]:
    """Return the words and vectors, float32 (rows, size), of some rows; `start` is the number of the first row."""
    words, texts = [], []
    for row, line in enumerate(lines, start=start):
        word, _, numbers = line.rstrip(" ").partition(" ")
        if not word or not numbers or numbers.count(" ") != size - 1:
            found = len(line.rstrip(" ").split(" "))
            raise InputError(
                f"{path}, row {row}: {found} fields, {line[:40]!r} ... Expected a word and {size} numbers with single "
                "spaces between."
            )
        words.append(clean_text(word))
        texts.append(numbers)
    try:
        vectors = _numbers(texts).reshape(-1, size)
    except pyarrow.ArrowInvalid as error:
        for row, text in enumerate(texts, start=start):
            try:
                _numbers([text])
            except pyarrow.ArrowInvalid as inner:
                raise InputError(f"{path}, row {row}: not all fields are numbers ({inner}).") from error
        raise
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise InputError(f"{path}, row {start + bad[0]}: the vector of {words[bad[0]]!r} holds NaN or infinity")
    return words, vectors


def _numbers(texts: list[str]) -> np.ndarray:
    """Parse numbers between spaces to float32, several times faster than Python's `float`."""
    fields = pyarrow.compute.split_pattern(pyarrow.array(texts, pyarrow.large_string()), " ").flatten()
    return pyarrow.compute.cast(fields, pyarrow.float32()).to_numpy(zero_copy_only=False)
