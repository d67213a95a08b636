"""Dependency trees from CoNLL-U files (Universal Dependencies)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset, Features, List, Value

from hf_xalign.data.readers import WITHHELD, is_conllu, is_withheld, read_conll
from hf_xalign.errors import InputError, explained

logger = logging.getLogger(__name__)

TREE_COLUMNS = ("upos", "heads", "deprels")


class Tree(NamedTuple):
    """Dependency tree of a sentence; each list has one value for each syntactic word.

    UD splits French "du" into the syntactic words "de" and "le". Heads are word numbers from 1, and 0 for the root;
    relations have their subtype (`nsubj:pass`).
    """

    words: Sequence[str]
    upos: Sequence[str]
    heads: Sequence[int]
    deprels: Sequence[str]

    def check(self) -> None:
        """Raise an InputError for lists of different lengths, heads outside the sentence, and cycles of heads."""
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
    """Yield the sentences of a CoNLL-U file; multi-word tokens (`1-2`) and empty nodes (`1.1`) are skipped.

    Sentences whose words are withheld (`_`) are left out, and counted in the log.

    Raises:
        InputError: the file is not CoNLL-U, the words of all sentences are withheld, or a line is malformed.
    """
    if not is_conllu(path):
        raise InputError(f"{path}: not CoNLL-U, whose ten columns hold the trees. Name a .conllu file.")
    count = withheld = 0
    for start, columns in read_conll(path):
        count += 1
        if is_withheld(columns["tokens"]):
            withheld += 1
            continue
        where = f"{path}, line {start}"
        ids, heads = columns["id"], columns["head"]
        if ids != [str(number) for number in range(1, len(ids) + 1)]:
            raise InputError(
                f"{where}: the words of the sentence are not numbered 1, 2, 3, ... Is a blank line missing?"
            )
        for number, head in zip(ids, heads, strict=True):
            if not (head.isdecimal() and len(head) < 10):
                raise InputError(f"{where}: word {number} has the head {head!r}, which is not a number")
        tree = Tree(columns["tokens"], columns["upos"], [int(head) for head in heads], columns["deprel"])
        with explained(where):
            tree.check()
        yield tree
    if withheld and withheld == count:
        raise InputError(f"{path}: {WITHHELD}")
    if withheld:
        logger.info(
            "%s: left out %s of %s sentences, whose words are withheld (_)", path, f"{withheld:,}", f"{count:,}"
        )


def load_treebank(paths: str | Path | Sequence[str | Path]) -> Dataset:
    """Load the sentences of CoNLL-U files as a dataset with the columns `tokens`, `upos`, `heads` and `deprels`."""
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    trees = [tree for file in files for tree in read_trees(file)]
    if not trees:
        raise InputError(f"{', '.join(map(str, files))}: no sentences")
    words = List(Value("string"))
    features = Features({"tokens": words, "upos": words, "heads": List(Value("int32")), "deprels": words})
    columns: Iterable[Sequence] = zip(*trees)
    return Dataset.from_dict(dict(zip(features, map(list, columns))), features=features)
