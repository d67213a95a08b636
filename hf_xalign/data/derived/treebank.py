"""Dependency trees from CoNLL-U files (Universal Dependencies)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset, Features, List, Value

from hf_xalign.errors import InputError

TREE_COLUMNS = ("upos", "heads", "deprels")

_FIELDS = 10


class Tree(NamedTuple):
    """A sentence's words with their dependencies, a value a word in each list.

    Attributes:
        words: the syntactic words (UD splits French "du" into "de" and "le").
        upos: universal part-of-speech tags.
        heads: number of each word's head, counting from 1; 0 for the root.
        deprels: relation to the head, with its subtype where it has one (`nsubj:pass`).
    """

    words: Sequence[str]
    upos: Sequence[str]
    heads: Sequence[int]
    deprels: Sequence[str]

    def check(self) -> None:
        """Refuse what is no tree.

        Raises:
            InputError: the lists differ in length, a head is no word of the sentence, or heads go round in a circle.
        """
        lengths = [len(part) for part in self]
        if len(set(lengths)) > 1:
            raise InputError(f"{lengths[0]} words, but {lengths[1]} upos, {lengths[2]} heads and {lengths[3]} deprels")
        for number, head in enumerate(self.heads, 1):
            if not 0 <= head <= len(self.words):
                raise InputError(f"word {number} has the head {head}, in a sentence of {len(self.words)} words")
        rooted = {0}
        for number in range(1, len(self.words) + 1):
            path = []
            while number not in rooted:
                if number in path:
                    raise InputError(f"the heads of word {number} lead back to it, so this is not a tree")
                path.append(number)
                number = self.heads[number - 1]
            rooted.update(path)


def read_trees(path: str | Path) -> Iterator[Tree]:
    """The sentences of a CoNLL-U file; lines of multiword tokens (`1-2`) and empty nodes (`1.1`) are left out.

    Raises:
        InputError: no such file, or lines that are not CoNLL-U (named with the line).
    """
    rows: list[list[str]] = []
    number = start = 0
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\r\n")
                if not line:
                    if rows:
                        yield _tree(rows, f"{path}, line {start}")
                    rows = []
                elif not line.startswith("#"):
                    fields = line.split("\t")
                    if len(fields) != _FIELDS:
                        raise InputError(
                            f"{path}, line {number}: {len(fields)} tab-separated fields, where CoNLL-U has {_FIELDS}"
                        )
                    if fields[0].isdecimal():
                        start = start if rows else number
                        rows.append(fields)
        if rows:
            yield _tree(rows, f"{path}, line {start}")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 after line {number} ({error.reason})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def load_treebank(paths: str | Path | Sequence[str | Path]) -> Dataset:
    """The sentences of CoNLL-U files as a dataset with the columns `tokens`, `upos`, `heads`, `deprels`, see [`Tree`].

    Raises:
        InputError: as `read_trees`, or there are no sentences.
    """
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    trees = [tree for file in files for tree in read_trees(file)]
    if not trees:
        raise InputError(f"{', '.join(map(str, files))}: no sentences")
    words = List(Value("string"))
    features = Features({"tokens": words, "upos": words, "heads": List(Value("int32")), "deprels": words})
    columns: Iterable[Sequence] = zip(*trees)
    return Dataset.from_dict(dict(zip(features, map(list, columns))), features=features)


def _tree(rows: Sequence[Sequence[str]], where: str) -> Tree:
    if [row[0] for row in rows] != [str(number) for number in range(1, len(rows) + 1)]:
        raise InputError(f"{where}: the words of the sentence are not numbered 1, 2, 3, ...; a blank line is missing?")
    if wrong := [row for row in rows if not (row[6].isdecimal() and len(row[6]) < 10)]:
        raise InputError(f"{where}: word {wrong[0][0]} has the head {wrong[0][6]!r}, which is not a number")
    tree = Tree(
        [row[1] for row in rows], [row[3] for row in rows], [int(row[6]) for row in rows], [row[7] for row in rows]
    )
    try:
        tree.check()
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return tree
