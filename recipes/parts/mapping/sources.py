"""Read a mapping run's dictionaries and monolingual text, and check them before the encoder runs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.readers import load_dictionary
from hf_xalign.data.sources import parse_named
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors import count_words, lower_word
from hf_xalign.recipes.parts.mapping.arguments import MappingArguments
from hf_xalign.recipes.parts.parallel import Corpus, source_entry

Entries = list[tuple[str, str]]  # (pivot's word, other word)

# A dictionary is refused if reversing its columns would make this many times more entries usable.
_REVERSED = 2


@dataclass
class Sources:
    """Dictionaries and monolingual text of a mapping run by language, and the entries of `results.json` on them."""

    dictionaries: dict[str, Entries]
    test_dictionaries: dict[str, Entries]
    texts: dict[str, list[Dataset]]
    entries: dict[str, list[dict[str, Any]]]
    words_given: bool = False  # with the training pairs

    def anchor_languages(self, args: MappingArguments) -> set[str]:
        """Return the languages that need anchors, without the pivot."""
        return {*self.test_dictionaries, *(self.dictionaries if args.supervision == "dictionary" else ())}

    def used(self, args: MappingArguments) -> dict[str, list[dict[str, Any]]]:
        """Return the entries of `results.json` for the files that this run uses."""
        unused = "dictionary" if args.supervision == "parallel" else None
        return {name: entries for name, entries in self.entries.items() if entries and name != unused}

    def sentences(self, language: str, linked: Corpus, pivot: str, args: MappingArguments) -> list[Any]:
        """Return the text for a language's anchors: monolingual, then its side of the pairs (words if given)."""
        if not args.anchor_pairs:
            return list(chain(*(part["text"][:] for part in self.texts[language])))
        side = ("target" if language == pivot else "source") + "_words" * self.words_given
        rows = (linked.train if language == pivot else pairs_of(linked.train, language))[side]
        return list(chain(*(part["text"][:] for part in self.texts.get(language, [])), rows[:]))


def read_sources(args: MappingArguments, revision: str | None = None) -> Sources:
    """Read the dictionaries and texts that the arguments name; `revision` is that of texts from the Hub."""
    entries_of: dict[str, list[dict[str, Any]]] = {"dictionary": [], "test_dictionary": [], "text": []}
    lexicons: dict[str, dict[str, Entries]] = {}
    for name in ("dictionary", "test_dictionary"):
        lexicons[name] = {}
        for item in getattr(args, name):
            source, language = parse_named(item, name)
            entries = load_dictionary(Path(source).expanduser())
            if args.dictionary_order == "other_first":
                entries = [(second, first) for first, second in entries]
            lexicons[name].setdefault(language, []).extend(entries)
            entries_of[name].append(about(item, source, entries=len(entries)))
    texts: dict[str, list[Dataset]] = {}
    for item in args.text:
        source, language = parse_named(item, "text")
        part = load_monolingual(source, revision=revision)
        texts.setdefault(language, []).append(part)
        entries_of["text"].append(about(item, source, part, sentences=len(part)))
    return Sources(lexicons["dictionary"], lexicons["test_dictionary"], texts, entries_of)


def check_languages(sources: Sources, languages: Collection[str], pivot: str, args: MappingArguments) -> None:
    """Check that the dictionaries and texts fit the languages of the training pairs."""
    there = ", ".join(sorted(languages))
    if args.direction == "from_pivot" and len(languages) > 1:
        raise InputError(
            f"direction=from_pivot maps {pivot} into the space of one language, but train_data has {there}. Keep one."
        )
    for name, files in (("dictionary", sources.dictionaries), ("test_dictionary", sources.test_dictionaries)):
        if strange := sorted(set(files) - set(languages)):
            raise InputError(f"{name}: train_data has no {strange[0]}, only {there}. Remove this dictionary.")
    if args.supervision == "dictionary" and (missing := sorted(set(languages) - set(sources.dictionaries))):
        raise InputError(f"dictionary: none for {', '.join(missing)}. Add --dictionary {missing[0]}=FILE.")
    anchored = sources.anchor_languages(args)
    if strange := sorted(set(sources.texts) - (anchored | {pivot} if anchored else set())):
        raise InputError(
            f"text: {strange[0]} needs no anchors. Remove its text, or add a test_dictionary, or a dictionary with "
            "supervision=dictionary."
        )
    if not args.anchor_pairs and (missing := sorted((anchored and anchored | {pivot}) - set(sources.texts))):
        raise InputError(f"anchor_pairs=false: no text in {', '.join(missing)}. Add --text {missing[0]}=FILE.")


def check_pairs(sources: Sources, linked: Corpus, size: int, args: MappingArguments) -> None:
    """Check that every language has linked words to score, and enough pairs for the method and vectors of `size`."""
    for language in linked.languages:
        counts = {}
        for name, dataset in (("train_data", linked.train), ("eval_data (or eval_links)", linked.evaluation)):
            counts[name] = sum(map(len, pairs_of(dataset, language)["links"][:]))
            if not counts[name]:
                raise InputError(f"{name}: no linked words in {language}. Add more text.")
        if args.supervision == "dictionary":
            pairs, what = len(set(sources.dictionaries[language])), "dictionary entries"
        else:
            pairs, what = counts["train_data"], "linked words"
        whitens = args.whiten and args.method == "vecmap"
        if pairs < size and (whitens or args.method == "least_squares"):
            remedy = "whiten=false, the orthogonal variant" if whitens else "method=procrustes"
            raise InputError(
                f"method={args.method}: {pairs} {what} in {language} are fewer than the encoder's {size} dimensions. "
                f"Add more, or set {remedy}."
            )


def check_dictionaries(sources: Sources, linked: Corpus, pivot: str, args: MappingArguments) -> list[str]:
    """Look up the dictionaries' words in the text for the anchors; a description of each language that needs them."""
    languages = sorted(sources.anchor_languages(args))
    if not languages:
        return []
    words, lines = {}, {}
    for language in (*languages, pivot):
        text = sources.sentences(language, linked, pivot, args)
        words[language] = set(count_words(text, language).types)
        lines[language] = f"anchors  {language}: of {len(text):,} sentences, {len(words[language]):,} words"
    lexicons = {"test_dictionary": sources.test_dictionaries}
    if args.supervision == "dictionary":
        lexicons = {"dictionary": sources.dictionaries, **lexicons}
    for name, lexicon in lexicons.items():
        for language, entries in lexicon.items():
            pairs = set(entries)
            usable, backwards = (
                sum(lower_word(a, first) in words[first] and lower_word(b, second) in words[second] for a, b in pairs)
                for first, second in ((pivot, language), (language, pivot))
            )
            files = ", ".join(entry["source"] for entry in sources.entries[name] if entry["language"] == language)
            if backwards > _REVERSED * usable:
                other = {"pivot_first": "other_first", "other_first": "pivot_first"}[args.dictionary_order]
                raise InputError(
                    f"{name} {files}: {usable} of {len(pairs)} entries have both words in the text, {backwards} with "
                    f"the columns reversed. Set dictionary_order={other}, or put the word in "
                    f"{pivot if other == 'other_first' else language} first in each line."
                )
            if not usable:
                raise InputError(
                    f"{name} {files}: none of {len(pairs)} entries has its words in {pivot} and in {language} in the "
                    "text for the anchors. Add more text, or use a dictionary of these languages."
                )
            lines[language] += f"; {usable:,} of {len(pairs):,} entries of {name} have both words there"
    return list(lines.values())


def pairs_of(dataset: Dataset, language: str) -> Dataset:
    """Select the pairs of one language."""
    return dataset.select(np.flatnonzero(np.asarray(dataset["source_lang"][:]) == language))


def about(item: str, source: str, text: Dataset | None = None, **more: Any) -> dict[str, Any]:
    """Return the entry of `results.json` for a file (with a hash of its content) or for a Hub dataset."""
    path = Path(source).expanduser()
    fingerprint = None if text is None else text._fingerprint
    if path.is_file():
        with path.open("rb") as file:
            fingerprint = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return source_entry(item, text, fingerprint=fingerprint, **more)
