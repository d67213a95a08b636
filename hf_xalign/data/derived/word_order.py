"""Give one language the word order of another: reorder dependents of nouns and verbs at random, as learned from trees.

Based on Galactic Dependencies (Wang and Eisner, 2016, TACL 4). There, the order pi of a head and its dependents has
p(pi) ~ exp(sum over i < j of theta(pi_i, pi_j)), trained by gradient. Here the weight of a pair is a log count:

    p(pi) = prod over i < j of P(pi_i before pi_j) / Z

    P(a before b) = (n(a before b) + [a stands before b in the sentence]) / (n(a before b) + n(b before a) + 1)

n counts in the other language's trees, separately for noun and verb heads. Relations that it lacks keep their order;
frequent ones follow its proportions.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_xalign.data.derived.treebank import Tree
from hf_xalign.errors import InputError

HEAD = "HEAD"  # stands for the head itself among the relations of its dependents

_FORMAT, _VERSION = "word_order", 1
_CATEGORIES = {"NOUN": "NOUN", "PROPN": "NOUN", "VERB": "VERB", "AUX": "VERB"}
_EXACT = 10  # members of a phrase up to which Z is summed exactly, over at most 2^10 sets


@dataclass(frozen=True)
class WordOrder:
    """Counts of one relation standing before another, under heads of a category.

    They are `{category: {first relation: {second relation: count}}}`. Categories are NOUN (with PROPN) and VERB (with
    AUX). Relations are those of Universal Dependencies without subtype, and `HEAD`. Pronouns (`obj/PRON`) count
    separately, because many languages place them differently from nouns.
    """

    counts: Mapping[str, Mapping[str, Mapping[str, int]]]

    @classmethod
    def learn(cls, trees: Iterable[Tree]) -> WordOrder:
        """Count the orders in the trees of a language."""
        counts: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in sorted(set(_CATEGORIES.values()))}
        for tree in trees:
            for number, members in enumerate(_phrases(tree)):
                category = _category(tree, number)
                if category is None:
                    continue
                labels = _labels(tree, number, members)
                for k, first in enumerate(labels):
                    counts[category].update((first, second) for second in labels[k + 1 :] if second != first)
        if not any(counts.values()):
            raise InputError("the trees have no noun or verb with a dependent: no word order can be learned from them")
        # In sorted order, so that equal counts have equal fingerprints.
        nested: dict[str, dict[str, dict[str, int]]] = {category: defaultdict(dict) for category in counts}
        for category, found in counts.items():
            for (first, second), count in sorted(found.items()):
                nested[category][first][second] = count
        return cls({category: dict(table) for category, table in nested.items()})

    def probability(self, category: str, first: str, second: str, *, natural: bool) -> float:
        """Return P(first before second); `natural`: the sentence has this order. Equal relations keep theirs."""
        if first == second:
            return float(natural)
        table = self.counts[category]
        before = table.get(first, {}).get(second, 0)
        after = table.get(second, {}).get(first, 0)
        return (before + natural) / (before + after + 1)

    def order(self, tree: Tree, draw: Callable[[], float]) -> list[int]:
        """Draw an order of a sentence's words: for each place, the index of the word that goes there.

        Phrases stay whole: a dependent moves with everything below it, and phrases with gaps (not projective) are
        closed. Heads of other categories keep the order of their dependents. `draw` returns the next number in [0, 1).
        """
        tree.check()
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

    def to_json(self) -> dict[str, Any]:
        """Return the counts with format and version, for JSON."""
        return {"format": _FORMAT, "version": _VERSION, "counts": self.counts}

    @classmethod
    def from_json(cls, value: Any) -> WordOrder:
        """Read what `to_json` returned; another format raises an InputError."""
        if not isinstance(value, dict) or (value.get("format"), value.get("version")) != (_FORMAT, _VERSION):
            raise InputError(f"format {_FORMAT!r} of version {_VERSION} is expected")
        if not isinstance(value.get("counts"), dict) or set(value["counts"]) != set(_CATEGORIES.values()):
            raise InputError(f"counts for the heads {', '.join(sorted(set(_CATEGORIES.values())))} are expected")
        return cls(value["counts"])

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
    """Return the probability factors for member k standing before every other in `members` (a bit mask)."""
    product = 1.0
    for other, probability in enumerate(before[k]):
        if other != k and members >> other & 1:
            product *= probability
    return product


@functools.lru_cache(maxsize=4096)
def _totals(before: tuple[tuple[float, ...], ...]) -> Sequence[float] | defaultdict[int, float]:
    """Return Z of each set of members: the sum over its orders of the product over pairs.

    Phrases longer than `_EXACT` use 1, so each place is drawn without looking ahead.
    """
    if len(before) > _EXACT:
        return defaultdict(lambda: 1.0)
    totals = [1.0]
    for members in range(1, 1 << len(before)):
        options = (k for k in range(len(before)) if members >> k & 1)
        totals.append(sum(_precedes(before, k, members) * totals[members & ~(1 << k)] for k in options))
    return totals


def _phrases(tree: Tree) -> list[list[int]]:
    """Return for each word number (0 is above the root) its dependents and itself, in sentence order."""
    phrases: list[list[int]] = [[], *([number] for number in range(1, len(tree.words) + 1))]
    for number, head in enumerate(tree.heads, 1):
        phrases[head].append(number)
    return [sorted(members) for members in phrases]


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
