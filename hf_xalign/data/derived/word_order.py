"""The word order of one language given to another: dependents of nouns and verbs re-ordered at random, as learned.

After Galactic Dependencies (Wang and Eisner, 2016, TACL 4), whose model of the order pi of a head and its dependents
is log-linear in features of pairs, p(pi) ~ exp(sum over i < j of theta(pi_i, pi_j)), trained by gradient. Here the
weight of a pair is the logarithm of how often the other language has its relations in that order: only counting.

    p(pi) = prod over i < j of P(pi_i before pi_j) / Z
    P(a before b) = (n(a before b) + [a stands before b in the sentence]) / (n(a before b) + n(b before a) + 1)

n counts in the other language's trees, apart for noun and verb heads. So what that language does not have (a relation,
or two of them under one head) keeps its order, and what it often has is ordered as often the one way as there.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_xalign.cache import replacing
from hf_xalign.data.derived.treebank import Tree
from hf_xalign.errors import InputError

HEAD = "HEAD"  # stands for the head itself among the relations of its dependents

_FORMAT, _VERSION = "word_order", 1
_CATEGORIES = {"NOUN": "NOUN", "PROPN": "NOUN", "VERB": "VERB", "AUX": "VERB"}
_EXACT = 10  # members of a phrase up to which Z is summed exactly, over at most 2^10 sets


@dataclass(frozen=True)
class WordOrder:
    """How often one relation stands before another under heads of a category.

    Attributes:
        counts: `{category: {first relation: {second relation: times}}}`; categories are NOUN (PROPN too) and VERB
            (AUX too), relations those of Universal Dependencies without subtype, and `HEAD`. Pronouns (`obj/PRON`) are
            counted apart, as many languages have them elsewhere than nouns (French before the verb).
    """

    counts: Mapping[str, Mapping[str, Mapping[str, int]]]

    @classmethod
    def learn(cls, trees: Iterable[Tree]) -> WordOrder:
        """Count the orders in the trees of a language.

        Raises:
            InputError: no noun or verb with a dependent.
        """
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
        return cls({category: _nested(found) for category, found in counts.items()})

    def probability(self, category: str, first: str, second: str, *, natural: bool) -> float:
        """P(first before second); `natural`: it stands so in the sentence. Equal relations keep their order."""
        if first == second:
            return float(natural)
        table = self.counts[category]
        before = table.get(first, {}).get(second, 0)
        after = table.get(second, {}).get(first, 0)
        return (before + natural) / (before + after + 1)

    def order(self, tree: Tree, draw: Callable[[], float]) -> list[int]:
        """The order of a sentence's words, drawn.

        Phrases stay whole: a dependent moves with all below it. A tree whose phrases have gaps (not projective) is
        brought into an order in which they have none. Heads of other categories keep the order of their dependents.

        Args:
            tree: of the sentence to re-order.
            draw: gives the next random number in [0, 1).

        Returns:
            For each place, the index of the word that comes there; each word once.

        Raises:
            InputError: it is no tree.
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

    def save(self, path: str | os.PathLike) -> None:
        """Write it as JSON."""
        with replacing(path) as partial:
            partial.write_text(json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike) -> WordOrder:
        """Read what `save` wrote.

        Raises:
            InputError: no such file, or not one of these.
        """
        try:
            with open(path, encoding="utf-8") as file:
                return cls.from_json(json.load(file))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise InputError(f"{path}: not a word order that hf_xalign saved ({error})") from error

    def to_json(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"format": _FORMAT, "version": _VERSION, "counts": self.counts}

    @classmethod
    def from_json(cls, value: Any) -> WordOrder:
        """The inverse of `to_json`.

        Raises:
            InputError: another format or version.
        """
        if not isinstance(value, dict) or (value.get("format"), value.get("version")) != (_FORMAT, _VERSION):
            raise InputError(f"format {_FORMAT!r} of version {_VERSION} is expected")
        if not isinstance(value.get("counts"), dict) or set(value["counts"]) != set(_CATEGORIES.values()):
            raise InputError(f"counts for the heads {', '.join(sorted(set(_CATEGORIES.values())))} are expected")
        return cls(value["counts"])

    def _draw(self, category: str, labels: Sequence[str], draw: Callable[[], float]) -> list[int]:
        """The new order of a phrase's members, as indices."""
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
    """The factors of member k at the head of a set of members (a bit mask): that it stands before each other one."""
    product = 1.0
    for other, probability in enumerate(before[k]):
        if other != k and members >> other & 1:
            product *= probability
    return product


@functools.lru_cache(maxsize=4096)
def _totals(before: tuple[tuple[float, ...], ...]) -> Sequence[float] | defaultdict[int, float]:
    """Z of each set of members: the sum over its orders of the product over pairs.

    In phrases longer than `_EXACT` it is taken for 1: each place is drawn without looking ahead.
    """
    if len(before) > _EXACT:
        return defaultdict(lambda: 1.0)
    totals = [1.0]
    for members in range(1, 1 << len(before)):
        options = (k for k in range(len(before)) if members >> k & 1)
        totals.append(sum(_precedes(before, k, members) * totals[members & ~(1 << k)] for k in options))
    return totals


def _phrases(tree: Tree) -> list[list[int]]:
    """For each word (by number; 0 is above the root) its dependents and itself, in the order of the sentence."""
    phrases: list[list[int]] = [[], *([number] for number in range(1, len(tree.words) + 1))]
    for number, head in enumerate(tree.heads, 1):
        phrases[head].append(number)
    return [sorted(members) for members in phrases]


def _category(tree: Tree, number: int) -> str | None:
    return _CATEGORIES.get(tree.upos[number - 1]) if number else None


def _labels(tree: Tree, number: int, members: Sequence[int]) -> list[str]:
    """What tells the members of a phrase apart: `HEAD`, or the relation, of pronouns with `/PRON`."""
    labels = []
    for member in members:
        relation = tree.deprels[member - 1].split(":")[0]
        pronoun = "/PRON" if tree.upos[member - 1] == "PRON" else ""
        labels.append(HEAD if member == number else relation + pronoun)
    return labels


def _nested(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """In sorted order, so that equal counts have equal fingerprints."""
    nested: dict[str, dict[str, int]] = {}
    for (first, second), count in sorted(counts.items()):
        nested.setdefault(first, {})[second] = count
    return nested
