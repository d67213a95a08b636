"""Base of the trainers of maps: dictionaries, the map of a language, its scores, and the files of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from hf_xalign.cache import check_output, hold_folder, inside
from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.readers.dictionaries import turned
from hf_xalign.data.words import lower_word
from hf_xalign.errors import InputError, explained
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.scores import Examples, HeldOutWords, Protocol, Scores
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.mapping.procrustes import least_squares, procrustes
from hf_xalign.mapping.rcsls import rcsls
from hf_xalign.mapping.supervision import Matched, dictionary_vectors
from hf_xalign.mapping.vecmap import NORMALIZATIONS, vecmap
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.record import Record, start_record
from hf_xalign.score import Score
from hf_xalign.trainers.base.checkpoints import clear_run, signs_of_run
from hf_xalign.trainers.base.run import Reporting, about_scores, compared_by, finish, headlines, keep_scores
from hf_xalign.trainers.mapping.trainer_config import MappingConfig

Entries = Sequence[tuple[str, str]]
"""Entries of a dictionary: the word of the pivot, the other word."""
# Maps vectors of a language and of the pivot to the space in which they are compared.
Projection = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Folder of the maps, next to the record.
MAPS = "maps"
# Precisions that `lexicon_induction` returns with intervals.
_PRECISIONS = ("p@1", "p@5", "p@10", "p@1_oov_wrong", "p@5_oov_wrong")


class MapTrainer(ABC):
    """Base of the trainers that learn a map for each language; they find the vectors that it is learnt from.

    They set `base_model` (the encoder's name in the record) and `text` (the record's entries on the text).
    """

    method: ClassVar[str] = "mapping"
    base_model: str
    text: Record
    # How a message says that a word of a dictionary can be used.
    _usable: ClassVar[str]

    def __init__(
        self,
        args: MappingConfig,
        languages: list[str],
        pivot: str,
        *,
        dictionary: Mapping[str, Entries] | None,
        test_dictionary: Mapping[str, Entries] | None,
        protocols: Sequence[Protocol],
        reporting: Reporting | None,
        files: Mapping[tuple[str, str], str] | None,
    ):
        self.args, self.languages, self.pivot = args, languages, pivot
        self.dictionary, self.test_dictionary = dict(dictionary or {}), dict(test_dictionary or {})
        self.protocols, self.files = protocols, files or {}
        self.reporting = reporting or Reporting()
        self.show, self.seconds = self.reporting.show, {**self.reporting.seconds}
        self.anchors: dict[str, Anchors] = {}
        self.held_out: dict[str, HeldOutWords] = {}
        self.record: dict[str, Any] = {}
        self.examples: dict[str, Examples] = {}
        self.maps: dict[str, LanguageMap] = {}
        self.coverage: dict[str, dict[str, int]] = {}
        self._check_languages()

    # ---- Dictionaries ----

    @property
    def anchored(self) -> list[str]:
        """Languages whose words need a vector each, the pivot last; none if no dictionary is used."""
        used = self.dictionary if self.args.supervision == "dictionary" else {}
        languages = sorted({*self.test_dictionary, *used})
        return [*languages, self.pivot] if languages else []

    @abstractmethod
    def _find_words(self, language: str) -> tuple[set[str], str]:
        """Return the words of a language that have a vector, or will, in lower case, and a line about them."""

    def _check_languages(self) -> None:
        """Check that direction and dictionaries fit the languages that get a map."""
        there = ", ".join(self.languages)
        if self.args.direction == "from_pivot" and len(self.languages) > 1:
            raise InputError(
                f"direction=from_pivot maps {self.pivot} into the space of one language, but train_data has {there}. "
                "Keep one."
            )
        for name, lexicon in (("dictionary", self.dictionary), ("test_dictionary", self.test_dictionary)):
            if strange := sorted({*lexicon} - {*self.languages}):
                raise InputError(f"{name}: there is nothing to map in {strange[0]}, only in {there}. Remove it.")
        if self.args.supervision == "dictionary" and (missing := sorted({*self.languages} - {*self.dictionary})):
            raise InputError(f"dictionary: none for {', '.join(missing)}. Give one, in a recipe as {missing[0]}=FILE.")

    def _check_dictionaries(self) -> list[str]:
        """Put the pivot's word first in every dictionary; describe where its words have their vectors from."""
        words: dict[str, set[str]] = {}
        lines = []
        for language in self.anchored:
            words[language], line = self._find_words(language)
            lines.append(line)

        def there(word: str, language: str) -> bool:
            return lower_word(word, language) in words[language]

        def usable(entries: Entries, first: str, second: str) -> list[bool]:
            return [there(one, first) and there(two, second) for one, two in entries]

        learnt = "learn" if self.args.supervision == "dictionary" else "known"
        given = (("dictionary", learnt, self.dictionary), ("test_dictionary", "test", self.test_dictionary))
        for name, what, lexicon in given:
            for language in sorted(lexicon.keys() & {*self.anchored}):
                entries, first = lexicon[language], self.pivot
                both, other_way = usable(entries, first, language), usable(entries, language, first)
                if sum(other_way) > sum(both):
                    both, first = other_way, language
                    lexicon[language] = turned(entries)
                file = self.files.get((name, language), f"{name} of {language}")
                if not any(both):
                    fault = f"no entry of {len(entries)} {self._usable} in {language} and in {self.pivot}"
                    such = "; ".join(map(" / ".join, entries[:3]))
                    raise InputError(f"{name} {file}: {fault} ({such}). Use one of these languages, or more words.")
                without = [" / ".join(entry) for entry, good in zip(entries, both) if not good][:3]
                line = f"{what:8} {file}: {len(entries):,} entries, {sum(both):,} with both words there"
                lines.append(line + (f", not {'; '.join(without)}" if without else "") + f", {first} first")
        # Entries that lexicon induction takes for right, in addition to those of the test.
        self.known = dict(self.dictionary)
        return lines

    def _describe_map(self) -> str:
        args = self.args
        return f"map      {args.method} from {args.supervision} supervision, {args.direction.replace('_', ' ')}"

    # ---- Maps ----

    def _start_record(self) -> None:
        """Hold the output folder, and start the record of the run."""
        take_folder(self.args, self.base_model)
        self.record = start_record(
            method=self.method,
            preset=self.args.method,
            seed=self.args.seed,
            base_model=self.base_model,
            settings={**self.reporting.settings, **self.args.changed()},
            objective=self.args.formula(),
            paper=self.args.paper(),
            **{**self.text, "languages": self.languages, "pivot": self.pivot},
        )
        self.record["times"]["seconds"] |= self.seconds
        self.record["intervals"] = {"before": {}, "after": {}}

    def _learn_maps(self) -> None:
        for language in self.languages:
            with explained(f"the map of {language}"):
                self.maps[language] = self.learn(language)

    def _matched(self, language: str) -> tuple[Matched, Tensor, Tensor]:
        """Return pairs to learn from, and all vectors of the language and of the pivot."""
        anchors, pivot = self.anchors[language], self.anchors[self.pivot]
        pairs = dictionary_vectors(turned(self.dictionary[language]), anchors, pivot)
        entries = len({*self.dictionary[language]})
        self.coverage[language] = {"entries": entries, "used": len(pairs.source)}
        return pairs, anchors.vectors, pivot.vectors

    def learn(self, language: str) -> LanguageMap:
        """Learn the map of one language, in the direction of the settings."""
        args = self.args
        pairs, of_language, of_pivot = self._matched(language)
        sides = [(pairs.source, of_language, language), (pairs.target, of_pivot, self.pivot)]
        if args.direction == "from_pivot":
            sides.reverse()
        (source, all_source, source_lang), (target, all_target, target_lang) = sides
        layers = tuple(args.layers)
        candidates: dict[str, Any] = {"source_candidates": all_source, "target_candidates": all_target}
        if args.method == "procrustes":
            maps = procrustes(source, target, center=args.center, layers=layers)
        elif args.method == "least_squares":
            maps = least_squares(source, target, center=args.center, layers=layers)
        elif args.method == "rcsls":
            maps = rcsls(
                source,
                target,
                epochs=args.rcsls_epochs,
                learning_rate=args.rcsls_learning_rate,
                spectral=args.spectral,
                steps=("unit", "center", "unit") if args.center else ("unit",),
                layers=layers,
                **candidates,
            )
        else:
            steps = NORMALIZATIONS[args.normalization]
            maps = vecmap(source, target, whiten=args.whiten, steps=steps, layers=layers, **candidates)
        return LanguageMap(maps.source, maps.target, maps.method, layers, source_lang, target_lang)

    # ---- Scores ----

    def _score(self, when: str, maps: Mapping[str, LanguageMap] | None) -> None:
        """Score a stage of the run into its record: with `maps`, or the vectors as they are."""
        self.examples[when] = {}
        self.record["scores"][when], self.record["intervals"][when] = self.score(maps, self.examples[when])

    def score(
        self, maps: Mapping[str, LanguageMap] | None = None, examples: Examples | None = None
    ) -> tuple[Scores, dict[str, dict[str, list[float]]]]:
        """Score word retrieval and lexicon induction of each language and layer; without maps, of vectors as they are.

        Returns scores, `retrieval_*` and `bli_*` by language, and 95% intervals of the latter's two directions. With
        several layers each name ends in `, layer n`. `examples` is filled with every sentence's scores of retrieval.
        """
        args = self.args
        scores: Scores = {}
        intervals: dict[str, dict[str, list[float]]] = {}
        for language in self.languages:
            scores[language], intervals[language] = {}, {}
            for k, layer in enumerate(args.layers):
                project = _projection(None if maps is None else maps[language].of([layer]), args.direction)
                score = self._retrieval(layer)
                if language in self.held_out:
                    word_examples = None if examples is None else examples.setdefault(language, {})
                    scores[language] |= self.held_out[language].score(
                        score, self.protocols, layer=k, project=project, examples=word_examples
                    )
                if language in self.test_dictionary:
                    protocols = [protocol for protocol in self.protocols if protocol.cosine or not protocol.name]
                    induced, bounds = self.induction(language, k, project, protocols, replace(score, task="bli"))
                    scores[language] |= induced
                    intervals[language] |= bounds
        return scores, intervals

    def induction(
        self, language: str, layer: int, project: Projection, protocols: Sequence[Protocol], score: Score
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """Score lexicon induction of one layer in both directions: scores named after `score`, and 95% intervals."""
        anchors, pivot = self.anchors[language], self.anchors[self.pivot]
        source, target = project(anchors.vectors[:, layer], pivot.vectors[:, layer])
        test = self.test_dictionary[language]
        # A learnt translation of a test word is right too: a pivot word has entries on both sides of the split.
        entries = _anchor_entries(test, anchors, pivot)
        known = [*entries, *_anchor_entries(self.known.get(language, ()), anchors, pivot)]
        back, known_back = turned(entries), turned(known)
        scores: dict[str, float] = {}
        bounds: dict[str, list[float]] = {}
        for protocol in protocols:
            induce = partial(
                lexicon_induction, similarity="cosine" if protocol.cosine else "csls", seed=self.args.seed
            )
            to_pivot = induce(source, target, anchors.words, pivot.words, entries, more=known)
            from_pivot = induce(target, source, pivot.words, anchors.words, back, more=known_back)
            score = replace(score, protocol=protocol.name)
            for precision in _PRECISIONS:
                mean, *directions = replace(score, pooling=precision).directions()
                scores[mean.name] = (to_pivot[precision] + from_pivot[precision]) / 2
                for one, found in zip(directions, (to_pivot, from_pivot)):
                    scores[one.name] = found[precision]
                    bounds[one.name] = [found[f"{precision}_low"], found[f"{precision}_high"]]
            scores[replace(score, pooling="coverage").name] = to_pivot["coverage"]
            scores[score.pool().name] = (to_pivot["source_vocabulary"] + to_pivot["target_vocabulary"]) / 2
        return scores, bounds

    def _headline(self) -> str:
        """Return the name of the score by which `compare` compares the run, that of the last layer."""
        return self._retrieval(self.args.layers[-1]).name

    def _retrieval(self, layer: int) -> Score:
        """Return the score of word retrieval of a layer, which is named if there are several."""
        return Score("retrieval", self.args.pooling, layer=layer if len(self.args.layers) > 1 else None)

    # ---- Files ----

    def save_model(self, output_dir: str | None = None) -> None:
        """Write the maps, card and record, and what else the run has, in the place of an earlier run.

        Args:
            output_dir: the folder; default: that of the settings.
        """
        folder = Path(output_dir or self.args.output_dir)
        if folder.resolve() != Path(self.args.output_dir).resolve():
            take_folder(replace(self.args, output_dir=str(folder)), self.base_model)
        folder.mkdir(parents=True, exist_ok=True)
        # The old record goes first, so that it never stands next to new maps.
        clear_run(folder)
        files = {}
        for language, language_map in self.maps.items():
            file = inside(folder / MAPS, f"{language_map.source_lang}-{language_map.target_lang}.safetensors")
            language_map.save(file)
            files[language] = f"{MAPS}/{file.name}"
        self.record["maps"] = {"files": files, "dictionary": self.coverage}
        for language, counted in self.coverage.items():
            self.show(f"learnt   {language}: from {counted['used']} of {counted['entries']} dictionary entries")
        finish(self.record, folder, {"maps": str(folder / MAPS), **self._save_more(folder)})
        self.keep_scores(folder)

    def keep_scores(self, folder: Path) -> None:
        """Write the scores of every example, if retrieval was scored, by which `compare` compares the run."""
        if scores := headlines(self.examples.get("after", {}), self._headline()):
            keep_scores(folder, self.record, scores, self.examples, self.about_scores)

    def about_scores(self) -> Record:
        """Return the fields of the run's `scores.json`, before there are scores."""
        settings = {**self.reporting.settings, **self.args.changed(), "preset": self.args.method}
        compared = compared_by(self._headline())
        return about_scores(compared, self.args.seed, settings, self.text["data"], model=self.base_model)

    @abstractmethod
    def _save_more(self, folder: Path) -> dict[str, str]:
        """Write what else the run has, and return by its name where it is."""


def take_folder(args: MappingConfig, encoder: str) -> None:
    """Hold the output folder of a run of maps, after [`check_folder`]."""
    check_folder(args, encoder)
    hold_folder(args.output_dir)


def check_folder(args: MappingConfig, encoder: str) -> None:
    """Check that the output folder of a run of maps can be written, and holds nothing that must stay."""
    folder = Path(args.output_dir)
    check_output(folder)
    if Path(encoder).exists() and Path(encoder).resolve() == folder.resolve():
        raise InputError(f"output_dir={folder} holds the encoder. Use another output_dir.")
    if (signs := signs_of_run(folder)) and not args.overwrite_output_dir:
        raise InputError(
            f"{folder} holds another run ({', '.join(signs[:3])}). Use another output_dir, or "
            "overwrite_output_dir=true to replace it."
        )


def _projection(language_map: LanguageMap | None, direction: str) -> Projection:
    if language_map is None:
        return lambda source, target: (source, target)
    source_side, pivot_side = SIDES if direction == "to_pivot" else SIDES[::-1]
    return lambda source, target: (language_map.project(source, source_side), language_map.project(target, pivot_side))


def _anchor_entries(entries: Entries, anchors: Anchors, pivot: Anchors) -> list[tuple[str, str]]:
    """Return entries as (other word, pivot word). Test words match anchors in another case too, as learnt words do."""
    others = anchor_words([other for _, other in entries], anchors)
    return list(zip(others, anchor_words([word for word, _ in entries], pivot)))


def anchor_words(words: Sequence[str], anchors: Anchors) -> list[str]:
    """Return words as the anchors spell them; words without an anchor stay."""
    rows = anchors.lookup(words).tolist()
    return [word if row < 0 else anchors.words[row] for word, row in zip(words, rows)]
