"""The links that scores are taken on: made once in one fixed way, and kept in a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from datasets import Dataset

from hf_xalign.errors import InputError
from hf_xalign.links.align import align_words

COLUMNS = ("source", "target", "source_lang", "target_lang", "source_words", "target_words", "links")


def make_evaluation_links(test: Dataset, train: Dataset | None = None) -> Dataset:
    """Link test text as the headline score wants it.

    fast_align (5 iterations, lower-cased, fitted on each language's train and test text), intersection, 1-to-1, both
    words with a letter and not the same string. Pairs without a link stay: their words are candidates of the
    all-occurrences pool.

    Args:
        test: parallel text.
        train: more parallel text of the same languages for the aligner.
    """
    return align_words(test, drop_identical=True, require_letter=True, keep_unlinked=True, extra_data=train)


def write_links(dataset: Dataset, path: str | os.PathLike) -> None:
    """Write word-linked pairs as JSON lines, whole or not at all."""
    part = Path(f"{path}.part")
    with part.open("w", encoding="utf-8") as file:
        for row in dataset.select_columns(list(COLUMNS)):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(part, path)


def read_links(path: str | os.PathLike) -> Dataset:
    """Read the file of [`write_links`].

    Raises:
        InputError: there is no such file, or a row is not JSON, lacks a column, or has a link out of range or
            that is not 1-to-1; the message names file and row.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file of evaluation links")
    rows = []
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                row = {column: row[column] for column in COLUMNS}
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, row {number}: not JSON ({error})") from error
            except KeyError as error:
                raise InputError(f"{path}, row {number}: no field {error}; it needs {', '.join(COLUMNS)}") from error
            sizes = len(row["source_words"]), len(row["target_words"])
            for i, j in row["links"]:
                if not (0 <= i < sizes[0] and 0 <= j < sizes[1]):
                    raise InputError(
                        f"{path}, row {number}: link {i}-{j} is out of range ({sizes[0]} and {sizes[1]} words)"
                    )
            for side, own in enumerate(zip(*row["links"])):
                if len(set(own)) < len(own):
                    word = next(i for k, i in enumerate(own) if i in own[:k])
                    raise InputError(
                        f"{path}, row {number}: {('source', 'target')[side]} word {word} has two links, and word "
                        "retrieval needs 1-to-1 links; leave these out"
                    )
            rows.append(row)
    return Dataset.from_list(rows)
