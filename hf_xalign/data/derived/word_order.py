"""Read treebanks, and reorder the words of a sentence as another language does."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset

from hf_xalign.checks import check_lengths
from hf_xalign.data.readers.conll import WITHHELD, is_conllu, is_withheld, read_conll
from hf_xalign.errors import InputError, explained

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


def read_trees(path: str | Path) -> Iterator[Tree]:
    """Yield the sentences of a CoNLL-U file; multi-word tokens (`1-2`) and empty nodes (`1.1`) are skipped.

    Sentences whose words are withheld (`_`) are left out.
    """
    if not is_conllu(path):
        raise InputError(f"{path}: not CoNLL-U, whose ten columns hold the trees. Name a .conllu file.")
    withheld = True
    for start, columns in read_conll(path):
        if is_withheld(columns["tokens"]):
            continue
        withheld = False
        # A head may be no number.
        with explained(f"{path}, line {start}", ValueError):
            heads = list(map(int, columns["head"]))
        yield Tree(columns["tokens"], columns["upos"], heads, columns["deprel"])
    if withheld:
        raise InputError(f"{path}: {WITHHELD}")


def load_treebank(path: str | Path) -> Dataset:
    """Load the sentences of a CoNLL-U file as a dataset with the columns `tokens`, `upos`, `heads` and `deprels`."""
    return Dataset.from_list([tree._asdict() for tree in read_trees(path)]).rename_column("words", "tokens")


HEAD = "HEAD"  # label of the head itself, among the relations of its dependents

# Heads whose dependents are reordered.
_CATEGORIES = {"NOUN": "NOUN", "PROPN": "NOUN", "VERB": "VERB", "AUX": "VERB"}

_EXACT = 10  # longest phrase whose Z is summed exactly, over 2^10 sets


@dataclass(frozen=True)
class WordOrder:
    """Word order of a language: how often one relation stands before another.

    `counts` is `{category of the head: {first relation: {second relation: count}}}`. Categories are NOUN (with PROPN)
    and VERB (with AUX). Relations are those of Universal Dependencies without subtype, and `HEAD`. Pronouns
    (`obj/PRON`) count separately, because many languages place them differently from nouns.
    """

    counts: Mapping[str, Mapping[str, Mapping[str, int]]]

    @classmethod
    def learn(cls, trees: Iterable[Tree]) -> WordOrder:
        """Count the orders in the trees of a language; an InputError is raised if no noun or verb has a dependent."""
        counts: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in sorted(set(_CATEGORIES.values()))}
        for tree in trees:
            for number, members in enumerate(_phrases(tree)):
                category = _category(tree, number)
                if category is None:
                    continue
                labels = _labels(tree, number, members)
                counts[category].update(pair for pair in itertools.combinations(labels, 2) if pair[0] != pair[1])
        if not any(counts.values()):
            raise InputError("no noun or verb of the trees has a dependent to learn an order from. Take more trees.")
        # In sorted order, so that equal counts have equal fingerprints.
        nested: dict[str, dict[str, dict[str, int]]] = {category: {} for category in counts}
        for category, orders in counts.items():
            for (first, second), count in sorted(orders.items()):
                nested[category].setdefault(first, {})[second] = count
        return cls(nested)

    def probability(self, category: str, first: str, second: str, *, natural: bool) -> float:
        """Return P(first before second); `natural` if the sentence has this order, which equal relations keep."""
        if first == second:
            return float(natural)
        table = self.counts[category]
        before = table.get(first, {}).get(second, 0)
        after = table.get(second, {}).get(first, 0)
        return (before + natural) / (before + after + 1)

    def order(self, tree: Tree, draw: Callable[[], float]) -> list[int]:
        """Draw an order of a sentence's words: for each place, the index of the word that goes there.

        A dependent moves with all words below it, and phrases with gaps (not projective) become contiguous. Heads of
        other categories keep the order of their dependents. `draw` returns a random number in [0, 1).
        """
        check_lengths("word", **tree._asdict())
        phrases = _phrases(tree)
        order: list[int] = []
        todo = [(0, False)]
        while todo:
            number, is_word = todo.pop()
            if is_word:
                order.append(number - 1)
                continue
            members = phrases[number]
            category = _category(tree, number)
            if category is not None and len(members) > 1:
                members = [members[k] for k in self._draw(category, _labels(tree, number, members), draw)]
            todo += [(member, member == number) for member in reversed(members)]
        return order

    def _draw(self, category: str, labels: Sequence[str], draw: Callable[[], float]) -> list[int]:
        """Draw the new order of a phrase's members, as indices."""
        size = len(labels)
        before = tuple(
            tuple(self.probability(category, labels[i], labels[j], natural=i < j) for j in range(size))
            for i in range(size)
        )
        totals = _totals(before)
        rest = (1 << size) - 1
        order: list[int] = []
        while rest:
            options = [k for k in range(size) if rest >> k & 1]
            weights = [_precedes(before, k, rest) * totals[rest & ~(1 << k)] for k in options]
            bounds = list(itertools.accumulate(weights))
            chosen = options[bisect.bisect_right(bounds, draw() * bounds[-1])]
            order.append(chosen)
            rest &= ~(1 << chosen)
        return order


def _precedes(before: Sequence[Sequence[float]], k: int, members: int) -> float:
    """Return the product of the probabilities that member k stands before each other member (`members`: bit mask)."""
    product = 1.0
    for other, probability in enumerate(before[k]):
        if other != k and members >> other & 1:
            product *= probability
    return product


@functools.lru_cache(maxsize=4096)
def _totals(before: tuple[tuple[float, ...], ...]) -> Sequence[float] | defaultdict[int, float]:
    """Return Z for each set of members: the sum over its orders of the product over pairs."""
    # With 1 for every set, each place of a long phrase is drawn without looking ahead.
    if len(before) > _EXACT:
        return defaultdict(lambda: 1.0)
    totals = [1.0]
    for members in range(1, 1 << len(before)):
        options = (k for k in range(len(before)) if members >> k & 1)
        totals.append(sum(_precedes(before, k, members) * totals[members & ~(1 << k)] for k in options))
    return totals


def _phrases(tree: Tree) -> list[list[int]]:
    """Return for each word number, and for 0 above the root, the word and its dependents in sentence order."""
    phrases: list[list[int]] = [[], *([number] for number in range(1, len(tree.words) + 1))]
    for number, head in enumerate(tree.heads, 1):
        phrases[head].append(number)
    return list(map(sorted, phrases))


def _category(tree: Tree, number: int) -> str | None:
    return _CATEGORIES.get(tree.upos[number - 1]) if number else None


def _labels(tree: Tree, number: int, members: Sequence[int]) -> list[str]:
    """Return the label of each member: `HEAD`, or its relation, with `/PRON` for pronouns."""
    labels = []
    for member in members:
        relation = tree.deprels[member - 1].split(":")[0]
        pronoun = "/PRON" if tree.upos[member - 1] == "PRON" else ""
        labels.append(HEAD if member == number else relation + pronoun)
    return labels
