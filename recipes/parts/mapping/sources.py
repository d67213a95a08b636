"""The dictionaries and the monolingual text of a mapping run: read, and checked before the encoder runs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset

from hf_xalign.data.dictionary import load_dictionary
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.parallel import hub_commit, parse_source
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors.cover import count_words, lower_word
from hf_xalign.recipes.parts.mapping.arguments import MappingArguments
from hf_xalign.recipes.parts.parallel import LinkedText
from hf_xalign.record import hub_id

Entries = list[tuple[str, str]]
"""(pivot's word, other word) pairs."""

# A dictionary with more than so many times the entries when turned round is refused.
_TURNED = 2


@dataclass
class Sources:
    """What a run reads beside parallel text.

    Attributes:
        dictionaries: training entries by language.
        test_dictionaries: test entries by language.
        texts: monolingual text by language.
        about: the record's entries of `dictionary`, `test_dictionary` and `text`.
    """

    dictionaries: dict[str, Entries]
    test_dictionaries: dict[str, Entries]
    texts: dict[str, list[Dataset]]
    about: dict[str, list[dict[str, Any]]]

    def anchored(self, args: MappingArguments) -> set[str]:
        """The languages that need anchors, the pivot left out."""
        return {*self.test_dictionaries, *(self.dictionaries if args.supervision == "dictionary" else ())}

    def used(self, args: MappingArguments) -> dict[str, list[dict[str, Any]]]:
        """The record's entries of what the run makes use of."""
        unused = "dictionary" if args.supervision == "parallel" else None
        return {name: entries for name, entries in self.about.items() if entries and name != unused}

    def sentences(self, language: str, linked: LinkedText, pivot: str) -> list[str]:
        """The text that a language's anchors are of: its own, then its side of the training pairs."""
        rows = linked.train["target"] if language == pivot else pairs_of(linked.train, language)["source"]
        return list(chain(*(part["text"][:] for part in self.texts.get(language, [])), rows[:]))


class Known(NamedTuple):
    """What the text of a language has of its dictionaries.

    Attributes:
        sentences: sentences of the text.
        words: words in it, in lower case.
        entries: by argument (`dictionary`, `test_dictionary`): entries, and those of which the text of both languages
            has the word.
    """

    sentences: int
    words: int
    entries: dict[str, tuple[int, int]]


def read_sources(args: MappingArguments) -> Sources:
    """Read all dictionaries and texts that the settings name.

    Raises:
        InputError: an item without language, or a file that cannot be read.
    """
    about: dict[str, list[dict[str, Any]]] = {"dictionary": [], "test_dictionary": [], "text": []}
    lexicons: dict[str, dict[str, Entries]] = {}
    for name in ("dictionary", "test_dictionary"):
        lexicons[name] = {}
        for item, source, language in _items(getattr(args, name), name):
            entries = load_dictionary(Path(source).expanduser())
            lexicons[name].setdefault(language, []).extend(entries)
            about[name].append(_about(item, source, language, entries=len(entries)))
    texts: dict[str, list[Dataset]] = {}
    for item, source, language in _items(args.text, "text"):
        part = load_monolingual(source)
        texts.setdefault(language, []).append(part)
        about["text"].append(_about(item, source, language, part, sentences=len(part)))
    return Sources(lexicons["dictionary"], lexicons["test_dictionary"], texts, about)


def check_languages(sources: Sources, languages: Collection[str], pivot: str, args: MappingArguments) -> None:
    """Refuse dictionaries and text that nothing is made of, and languages without what their map is made of.

    Args:
        sources: what was read.
        languages: the languages of the training pairs.
        pivot: the pivot.
        args: the settings.

    Raises:
        InputError: naming the argument and the language.
    """
    there = ", ".join(sorted(languages))
    if args.direction == "from_pivot" and len(languages) > 1:
        raise InputError(
            f"direction=from_pivot maps {pivot} into the space of one language, and train_data has {there}: choose one"
        )
    for name, found in (("dictionary", sources.dictionaries), ("test_dictionary", sources.test_dictionaries)):
        if strange := sorted(set(found) - set(languages)):
            raise InputError(f"{name}: there is one of {strange[0]}, and train_data has {there} only; leave it out")
    if args.supervision == "dictionary" and (missing := sorted(set(languages) - set(sources.dictionaries))):
        raise InputError(f"dictionary: none for {', '.join(missing)}, which train_data has; name one as {missing[0]}=")
    anchored = sources.anchored(args)
    if strange := sorted(set(sources.texts) - (anchored | {pivot} if anchored else set())):
        raise InputError(
            f"text: there is some of {strange[0]}, and anchors are made for languages with a test_dictionary, or with "
            "a dictionary and supervision=dictionary; name one, or leave the text out"
        )


def check_pairs(sources: Sources, linked: LinkedText, size: int, args: MappingArguments) -> None:
    """Refuse a language without linked words to score or to learn from, or with too few pairs for the method.

    Args:
        sources: what was read.
        linked: the text.
        size: dimensions of the encoder's vectors.
        args: the settings.

    Raises:
        InputError: naming the argument and the language.
    """
    for language in sorted(linked.train.unique("source_lang")):
        counts = {}
        for name, dataset in (("train_data", linked.train), ("eval_data (or eval_links)", linked.evaluation)):
            counts[name] = sum(map(len, pairs_of(dataset, language)["links"][:]))
            if not counts[name]:
                raise InputError(f"{name}: no linked words in {language}, which train_data has; name more text in it")
        if args.supervision == "dictionary":
            pairs, what = len(set(sources.dictionaries[language])), "dictionary entries"
        else:
            pairs, what = counts["train_data"], "linked words"
        whitens = args.whiten and args.method == "vecmap"
        if pairs < size and (whitens or args.method == "least_squares"):
            remedy = "whiten=false, the orthogonal variant" if whitens else "method=procrustes"
            raise InputError(
                f"method={args.method}: {pairs} {what} in {language} are fewer than the encoder's {size} dimensions; "
                f"give more, or set {remedy}"
            )


def check_dictionaries(
    sources: Sources, linked: LinkedText, pivot: str, args: MappingArguments
) -> Mapping[str, Known]:
    """Look the dictionaries' words up in the text that anchors will be made of.

    Returns:
        What was found, for each language with anchors and for the pivot; empty without anchors.

    Raises:
        InputError: a dictionary of which no entry, or that turned round would have more than twice the entries, whose
            words are both in the text.
    """
    languages = sorted(sources.anchored(args))
    if not languages:
        return {}
    words, sizes = {}, {}
    for language in (*languages, pivot):
        text = sources.sentences(language, linked, pivot)
        words[language], sizes[language] = set(count_words(text, language).types), len(text)
    found = {}
    for language in languages:
        entries: dict[str, tuple[int, int]] = {}
        lexicons = {"test_dictionary": sources.test_dictionaries}
        if args.supervision == "dictionary":
            lexicons = {"dictionary": sources.dictionaries, **lexicons}
        for name, lexicon in lexicons.items():
            if language not in lexicon:
                continue
            own = set(lexicon[language])
            usable, turned = (
                sum(lower_word(a, first) in words[first] and lower_word(b, second) in words[second] for a, b in own)
                for first, second in ((pivot, language), (language, pivot))
            )
            files = ", ".join(entry["source"] for entry in sources.about[name] if entry["language"] == language)
            if turned > _TURNED * usable:
                raise InputError(
                    f"{name} {files}: of {len(own)} entries {usable} have both words in the text, and {turned} if "
                    f"turned round; the word in {pivot} comes first in a line, then the one in {language}"
                )
            if not usable:
                raise InputError(
                    f"{name} {files}: none of {len(own)} entries has its words in {pivot} and in {language} in the "
                    "text that anchors are made of; give more text, or a dictionary of these languages"
                )
            entries[name] = (len(own), usable)
        found[language] = Known(sizes[language], len(words[language]), entries)
    return {**found, pivot: Known(sizes[pivot], len(words[pivot]), {})}


def pairs_of(dataset: Dataset, language: str) -> Dataset:
    """The pairs of one language; there may be none."""
    return dataset.select(np.flatnonzero(np.asarray(dataset["source_lang"][:]) == language))


def _items(items: Sequence[str], name: str) -> list[tuple[str, str, str]]:
    """(item, source, language) of each."""
    found = []
    for item in items:
        source, language = parse_source(item)
        if language is None:
            other = "the other side" if name != "text" else "the text"
            raise InputError(f"{name}={item}: say the language of {other}, as in de={item}")
        found.append((item, source, language))
    return found


def _about(item: str, source: str, language: str, text: Dataset | None = None, **counts: int) -> dict[str, Any]:
    """The record's entry of a file, whose fingerprint is its content's, or of a dataset of the Hub."""
    path = Path(source).expanduser()
    fingerprint = None if text is None else text._fingerprint
    if path.is_file():
        with path.open("rb") as file:
            fingerprint = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return {
        "source": item,
        "hub_id": hub_id(source.partition(":")[0]),
        "language": language,
        "revision": None if text is None else hub_commit(text),
        **counts,
        "fingerprint": fingerprint,
    }
