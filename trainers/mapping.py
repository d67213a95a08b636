"""Trainer of linear maps between the word vectors of two languages; encoders and vectors are not trained."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from datasets import Dataset
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import check_output, disk_errors, follow_umask, hold_folder, inside
from hf_xalign.data.arrow import count_languages
from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.encoding import check_pieces, word_tokenizer
from hf_xalign.data.load import join_languages
from hf_xalign.data.parallel import COLUMNS, check_columns, only_language
from hf_xalign.data.readers.dictionaries import turned
from hf_xalign.data.words import WORDS
from hf_xalign.errors import InputError, explained
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.scores import Examples, HeldOutWords, Protocol, Scores, held_out_words, read_protocols
from hf_xalign.evaluation.vectors import language_rows
from hf_xalign.links.counts import LinkStatistics, link_entries, link_statistics
from hf_xalign.links.frozen import keep_links, make_evaluation_links
from hf_xalign.links.linking import Linking
from hf_xalign.mapping.anchors import Anchors, count_words, lower_word, make_anchors
from hf_xalign.mapping.procrustes import least_squares, procrustes, refine
from hf_xalign.mapping.rcsls import rcsls
from hf_xalign.mapping.self_learning import self_learning
from hf_xalign.mapping.supervision import Coverage, Matched, dictionary_vectors, linked_vectors
from hf_xalign.mapping.vecmap import NORMALIZATIONS, vecmap
from hf_xalign.mapping.word2vec import write_word2vec
from hf_xalign.modeling.loading import choose_device, encoder_of, load, load_tokenizer
from hf_xalign.modeling.maps import LanguageMap, unit
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.config import base_of
from hf_xalign.modeling.xalign.linear import map_adapter
from hf_xalign.record import Record, phase, start_record
from hf_xalign.score import Score
from hf_xalign.trainers.base.checkpoints import clear_run, signs_of_run
from hf_xalign.trainers.base.opening import describe_encoder, describe_pairs, open_model
from hf_xalign.trainers.base.run import (
    Reporting,
    about_scores,
    adapter_entry,
    compared_by,
    finish,
    given_entries,
    headlines,
    keep_scores,
)
from hf_xalign.trainers.mapping_config import MappingConfig, VectorsFormat

Entries = Sequence[tuple[str, str]]
"""Entries of a dictionary: the word of the pivot, the other word."""
Encoder = tuple[PreTrainedModel, PreTrainedTokenizerBase]
# Maps vectors of a language and of the pivot to the space in which they are compared.
Projection = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Folders next to the record.
MAPS, VECTORS = "maps", "vectors"
# Precisions that `lexicon_induction` returns with intervals.
_PRECISIONS = ("p@1", "p@5", "p@10", "p@1_oov_wrong", "p@5_oov_wrong")
# Word vectors without a test dictionary: one source word of the dictionary in so many is held out.
HELD_OUT = 5
# Rows of word vectors that are mapped at a time.
_ROWS = 4096


class MappingTrainer:
    """Learn maps between the vectors of an encoder, or between two sets of word vectors, score and save them.

    Maps of an encoder are learnt from linked words, or from a dictionary whose words get averaged vectors (anchors).
    Maps of word vectors are learnt from a dictionary, as MUSE, VecMap and fastText do. `train` returns the maps by
    language, and `save_model` writes what `hf-xalign train mapping` does.

    Attributes:
        maps: the learnt maps by language.
        anchors: word vectors by language; given ones are mapped by `train` in their memory.
        coverage: of a map from a dictionary, how many entries were used.
        record: the content of `results.json`.
        examples: scores of every sentence before and after, by language and score.

    Args:
        model: encoder of both sides, or with `pivot_model` of the others: a Hub id, a folder, `builtin`, a model, a
            `PeftModel` or a `SentenceTransformer`. Of a task model its encoder is taken. Or word vectors of a language
            with one layer and a `lang`, as [`~hf_xalign.mapping.read_word2vec`] returns them; they are changed.
        args: settings; default: `MappingConfig()`. Those about text have no effect on word vectors.
        train_dataset: sentence pairs, as a dataset or by language; linked by fast_align if they have no links.
        eval_dataset: held-out pairs to score retrieval on; linked by the fixed evaluation aligner if need be.
        processing_class: fast tokenizer of the model; default: that of its folder.
        pivot_model: encoder of the pivot (the target side), if it has one of its own; or its word vectors.
        pivot_processing_class: its tokenizer.
        dictionary: {language: [(word of the pivot, other word), ...]} to learn from with `supervision="dictionary"`.
            Entries in the other order are turned.
        test_dictionary: dictionaries to score lexicon induction on, of the same form. Default for word vectors:
            entries of a fixed fifth of the dictionary's source words, which are not learnt from.
        text: {language: sentences} for anchors, in addition to those of `train_dataset`.
        linking: how pairs without links are linked, and how many are drawn; by default fast_align, and all.
        revision: branch, tag or commit of a `model` that is given by its Hub id.
        protocols: protocols that word retrieval is scored by.
        reporting: what a script adds to the record of the run.
        files: names of files in messages and record, by `("dictionary", "test_dictionary" or "vectors", language)`.

    Raises:
        InputError: text, vectors, dictionaries and settings do not fit each other.

    Example:
        >>> import tempfile
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> args = MappingConfig(tempfile.mkdtemp(), device="cpu")
        >>> given = {"train_dataset": tiny.pairs, "eval_dataset": tiny.pairs, "processing_class": tiny.tokenizer}
        >>> trainer = MappingTrainer(BertModel(tiny.config), args, **given)
        >>> trainer.train()["de"].source_lang
        'de'
    """

    method: ClassVar[str] = "mapping"

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel | nn.Sequential | Anchors,
        args: MappingConfig | None = None,
        *,
        train_dataset: Dataset | Mapping[str, Dataset] | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        pivot_model: str | PreTrainedModel | PeftModel | nn.Sequential | Anchors | None = None,
        pivot_processing_class: PreTrainedTokenizerBase | None = None,
        dictionary: Mapping[str, Entries] | None = None,
        test_dictionary: Mapping[str, Entries] | None = None,
        text: Mapping[str, Sequence[str]] | None = None,
        linking: Linking | None = None,
        revision: str = "main",
        protocols: Sequence[Protocol] = (Protocol(),),
        reporting: Reporting | None = None,
        files: Mapping[tuple[str, str], str] | None = None,
    ):
        start = time.perf_counter()
        self.args = args or MappingConfig()
        self.dictionary, self.test_dictionary = dict(dictionary or {}), dict(test_dictionary or {})
        self.protocols, self.files = protocols, files or {}
        self.reporting = reporting or Reporting()
        self.show, self.seconds = self.reporting.show, {**self.reporting.seconds}
        self.texts: dict[str, Sequence[str]] = {**(text or {})}
        self.anchors: dict[str, Anchors] = {}
        self.training: dict[str, Matched] = {}
        self.held_out: dict[str, HeldOutWords] = {}
        self.record: dict[str, Any] = {}
        self.examples: dict[str, Examples] = {}
        self.maps: dict[str, LanguageMap] = {}
        self.coverage: dict[str, Coverage | None] = {}
        self.of_words = isinstance(model, Anchors)
        if isinstance(model, Anchors):
            self._take_vectors(model, pivot_model)
            return
        train, self.pivot = read_pairs(train_dataset, "train_dataset")
        held_out, held_pivot = read_pairs(eval_dataset, "eval_dataset")
        if held_pivot != self.pivot:
            raise InputError(f"eval_dataset: target_lang is {held_pivot}, that of train_dataset is {self.pivot}")
        self.languages = sorted(count_languages(train))
        self._check_languages()
        source = _open_encoder(model, processing_class, self.args, revision)
        target = source if pivot_model is None else _open_encoder(pivot_model, pivot_processing_class, self.args)
        self.base_model = model if isinstance(model, str) else base_of(source[0]).name_or_path or "new"
        self.encoders: dict[str, Encoder] = dict(zip(SIDES, (source, target)))
        for pairs, what in ((train, "train_dataset"), (held_out, "eval_dataset")):
            check_pieces(pairs, source[1], what, target[1])
        linking = linking or (None if "links" in train.column_names else Linking())
        given, given_held_out = train, held_out
        if "links" not in held_out.column_names:
            check_folder(self.args, self.base_model)
            held_out = make_evaluation_links(held_out, None if linking is None else train)
        counts, by = None, "given"
        if linking is not None:
            linking = replace(linking, drop_identical=self.args.drop_identical or linking.drop_identical)
            train, counts, by = linking.apply(train, model=source[0], tokenizer=source[1])
            given = given if linking.max_pairs is None else train
        self.train_dataset, self.eval_dataset = train, held_out
        self._rows = language_rows(train)
        linked = link_statistics(train)
        self._check_pairs(linked)
        self._dictionary_lines = self._check_dictionaries()
        self.text = self.reporting.added_to(given_entries(given, given_held_out))
        self.text |= {"links": counts or link_entries(linked), "linked_by": by}
        self.seconds["preparing"] = round(time.perf_counter() - start, 3)

    # ---- Word vectors, text and dictionaries ----

    def _take_vectors(self, source: Anchors, target: Any) -> None:
        """Take given word vectors, and hold out entries of the dictionary."""
        for side, given in (("model", source), ("pivot_model", target)):
            if not isinstance(given, Anchors) or given.lang is None or given.vectors.shape[1] != 1:
                raise InputError(f"{side}: give word vectors of one layer, and name their language by lang")
        if source.lang == target.lang:
            raise InputError(f"both word vectors are in {source.lang}. Give vectors of two languages.")
        self.base_model, self.pivot, self.languages = "word vectors", target.lang, [str(source.lang)]
        # Rules between settings hold of what is learnt from.
        self.args = replace(self.args, supervision="dictionary")
        self.protocols = read_protocols(["cosine"])
        self.text = self.reporting.added_to({"license": "unknown"})
        self._check_languages()
        for given in (source, target):
            # Every published method divides the vectors by their lengths first.
            unit(given.vectors, out=given.vectors)
            on_device = given.vectors.to(choose_device(self.args.device))
            self.anchors[str(given.lang)] = replace(given, vectors=on_device)
        self._dictionary_lines = self._check_dictionaries()
        [language] = self.languages
        test = self.test_dictionary.get(language) or [
            entry for entry in self.dictionary[language] if _is_held_out(entry[1])
        ]
        # A word may stand in another case than its vector's, and is then the same source word.
        tested = {*_anchor_words([word for _, word in test], source)}
        words = _anchor_words([word for _, word in self.dictionary[language]], source)
        kept = [entry for entry, word in zip(self.dictionary[language], words) if word not in tested]
        if not kept or not test:
            raise InputError(
                f"dictionary: {len(kept)} entries are left to learn from and {len(test)} to test on. Use a larger "
                "dictionary, or another test_dictionary."
            )
        self.dictionary, self.test_dictionary = {language: kept}, {language: test}

    @property
    def anchored(self) -> list[str]:
        """Languages whose words need a vector each, the pivot last; none if no dictionary is used."""
        used = self.dictionary if self.args.supervision == "dictionary" else {}
        languages = sorted({*self.test_dictionary, *used})
        return [*languages, self.pivot] if languages else []

    def sentences(self, language: str) -> list[Any]:
        """Return the text for a language's anchors: its own, then its side of the pairs, as words."""
        sentences = [*self.texts.get(language, ())]
        if not self.args.anchor_pairs:
            return sentences
        if language == self.pivot:
            return [*sentences, *self.train_dataset["target_words"][:]]
        return [*sentences, *self.train_dataset.select(self._rows[language])["source_words"][:]]

    def _check_languages(self) -> None:
        """Check that dictionaries and text fit the languages of the training pairs or of the word vectors."""
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
        for language, sentences in self.texts.items():
            if isinstance(sentences, str):
                raise InputError(f"text[{language!r}] is one string. Give a list of sentences.")

    def _check_pairs(self, linked: Mapping[str, LinkStatistics]) -> None:
        """Check that every language has linked words to score, and enough pairs for the method."""
        args, size = self.args, self.encoders["source"][0].config.hidden_size
        scored = link_statistics(self.eval_dataset)
        for language in self.languages:
            pair = f"{language}-{self.pivot}"
            for name, counts in (("train_data", linked), ("eval_data (or eval_links)", scored)):
                if pair not in counts or not counts[pair].links:
                    raise InputError(f"{name}: no linked words in {language}. Add more text.")
            if args.supervision == "dictionary":
                pairs, what = len(set(self.dictionary[language])), "dictionary entries"
            else:
                pairs, what = linked[pair].links, "linked words"
            whitens = args.whiten and args.method == "vecmap"
            if pairs < size and (whitens or args.method == "least_squares"):
                remedy = "whiten=false, the orthogonal variant" if whitens else "method=procrustes"
                raise InputError(
                    f"method={args.method}: {pairs} {what} in {language} are fewer than the encoder's {size} "
                    f"dimensions. Add more, or set {remedy}."
                )

    def _find_words(self) -> tuple[dict[str, set[str]], list[str]]:
        """Return the words that have a vector, or will have one, by language, and a line about each language."""
        words: dict[str, set[str]] = {}
        lines = []
        for language in self.anchored:
            if self.of_words:
                words[language] = {lower_word(word, language) for word in self.anchors[language].words}
                count, _, size = self.anchors[language].vectors.shape
                file = self.files.get(("vectors", language))
                of_file = f" of {file}" if file else ""
                lines.append(f"vectors  {language}: {count:,} words x {size} dimensions{of_file}")
            else:
                text = self.sentences(language)
                words[language] = set(count_words(text, language).types)
                lines.append(f"anchors  {language}: of {len(text):,} sentences, {len(words[language]):,} words")
        return words, lines

    def _check_dictionaries(self) -> list[str]:
        """Put the pivot's word first in every dictionary; describe where its words have their vectors from."""
        words, lines = self._find_words()

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
                    where = "has a vector" if self.of_words else "is in the text for the anchors"
                    fault = f"no entry of {len(entries)} {where} in {language} and in {self.pivot}"
                    such = "; ".join(map(" / ".join, entries[:3]))
                    raise InputError(f"{name} {file}: {fault} ({such}). Use one of these languages, or more words.")
                without = [" / ".join(entry) for entry, good in zip(entries, both) if not good][:3]
                line = f"{what:8} {file}: {len(entries):,} entries, {sum(both):,} with both words there"
                lines.append(line + (f", not {'; '.join(without)}" if without else "") + f", {first} first")
        # Entries that lexicon induction takes for right, in addition to those of the test.
        self.known = dict(self.dictionary)
        return lines

    def describe(self) -> list[str]:
        """Describe encoder and text, the anchors, the maps to learn, and the data that stays unused, one line each."""
        args, tested = self.args, self.test_dictionary
        kind = f"map      {args.method} from {args.supervision} supervision, {args.direction.replace('_', ' ')}"
        if self.of_words:
            [train], [test] = self.dictionary.values(), tested.values()
            words = len({word for _, word in test})
            held_out = f"held out {words:,} source words, {len(test):,} entries; {len(train):,} to learn from"
            return [*self._dictionary_lines, held_out, kind]
        encoder = describe_encoder(self.base_model, self.encoders["source"][0])
        pairs = describe_pairs(self.train_dataset, self.text["links"], self.eval_dataset)
        vectors = f"vectors  of layers {', '.join(map(str, args.layers))}, {args.pooling} pooling"
        lines = [encoder, *pairs, *self._dictionary_lines, vectors, kind]
        for language in sorted(set(self.eval_dataset.unique("source_lang")) - {*self.languages}):
            lines.append(f"unused   eval_data in {language}: train_data has none, so there is no map")
        for language in sorted(tested) if args.supervision == "dictionary" else ():
            learnt = {lower_word(word, language) for _, word in self.dictionary[language]}
            both = sum(lower_word(word, language) in learnt for _, word in tested[language])
            if both:
                count = f"{both:,} of {len(tested[language]):,}"
                lines.append(f"not new  {count} test entries in {language}: the map is learnt from their words")
        return lines

    # ---- Vectors and maps ----

    def prepare(self) -> None:
        """Start the record, extract the vectors, and score them as they are; `train` does it if need be."""
        if self.record:
            return
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
        if self.of_words:
            return
        with phase(self.record, "vectors"):
            self.extract()
        with phase(self.record, "scoring"):
            source, pivot = (model.config.hidden_size for model, _ in self.encoders.values())
            # Vectors of different sizes are not comparable before they are mapped.
            if source == pivot:
                self._score("before")

    def extract(self) -> None:
        """Run the encoders over all text that maps are learnt from and scored on."""
        args, (source, pivot) = self.args, self.encoders.values()
        options: dict[str, Any] = {"layers": args.layers, "pooling": args.pooling, "batch_size": args.batch_size}
        held_out = language_rows(self.eval_dataset)
        for language in self.languages:
            label, pairs = f"Held-out words, {language}", self.eval_dataset.select(held_out[language])
            self.held_out[language] = held_out_words(self.encoders, pairs, self.protocols, desc=label, **options)
            if args.supervision == "parallel":
                label, pairs = f"Linked words, {language}", self.train_dataset.select(self._rows[language])
                self.training[language] = linked_vectors(*source, pairs, target_encoder=pivot, desc=label, **options)
        for language in self.anchored:
            self.anchors[language] = make_anchors(
                *(pivot if language == self.pivot else source),
                self.sentences(language),
                lang=language,
                max_words=args.max_words,
                sentences_per_word=args.sentences_per_word,
                ray=args.ray,
                **options,
            )

    def train(self) -> dict[str, LanguageMap]:
        """Learn the map of each language, score them, and return them by language; given word vectors are mapped."""
        if self.of_words and self.maps:
            raise InputError("train was called before, and the vectors are mapped: make a new trainer of new vectors")
        self.prepare()
        with phase(self.record, "mapping"):
            for language in self.languages:
                with explained(f"the map of {language}"):
                    self.maps[language], self.coverage[language] = self.learn(language)
            if self.of_words:
                self._map_vectors()
        with phase(self.record, "scoring"):
            self._score("after")
        return self.maps

    def learn(self, language: str) -> tuple[LanguageMap, Coverage | None]:
        """Learn the map of one language, in the direction of the settings; of a dictionary also its coverage."""
        args, coverage = self.args, None
        if args.supervision == "dictionary":
            anchors, pivot = self.anchors[language], self.anchors[self.pivot]
            pairs, coverage = dictionary_vectors(turned(self.dictionary[language]), anchors, pivot)
            sides = [(pairs.source, anchors.vectors, language), (pairs.target, pivot.vectors, self.pivot)]
        else:
            pairs = self.training[language]
            sides = [(pairs.source, pairs.source, language), (pairs.target, pairs.target, self.pivot)]
        if args.direction == "from_pivot":
            sides.reverse()
        (source, all_source, source_lang), (target, all_target, target_lang) = sides
        layers = tuple(args.layers)
        candidates: dict[str, Any] = {"source_candidates": all_source, "target_candidates": all_target}
        if args.method == "procrustes":
            maps = procrustes(source, target, center=args.center, layers=layers)
            if args.refine:
                maps = refine(all_source[:, 0], all_target[:, 0], maps, iterations=args.refine)
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
        elif args.method == "vecmap":
            steps = NORMALIZATIONS[args.normalization]
            maps = vecmap(source, target, whiten=args.whiten, steps=steps, layers=layers, **candidates)
        else:
            rows = [anchors.lookup(pairs.source_words), pivot.lookup(pairs.target_words)]
            seeds = torch.stack(rows if args.direction == "to_pivot" else rows[::-1], dim=1)
            maps = self_learning(
                all_source[:, 0], all_target[:, 0], seeds, whiten=args.whiten, seed=args.seed, layers=layers
            )
        if args.linear:
            maps = maps.linear(all_source, all_target)
        return LanguageMap(maps.source, maps.target, maps.method, layers, source_lang, target_lang), coverage

    def _map_vectors(self) -> None:
        """Map the word vectors of both languages in their memory, where their size stays."""
        [language] = self.languages
        learnt = self.maps[language]
        if learnt.source.means and learnt.source.steps[0] != "unit":
            # It was learnt on vectors of length 1, and is for those of the file.
            steps = ("unit", *learnt.source.steps)
            learnt = self.maps[language] = replace(learnt, source=replace(learnt.source, steps=steps))
        for code, side in zip((language, self.pivot), SIDES if self.args.direction == "to_pivot" else SIDES[::-1]):
            vectors = self.anchors[code].vectors
            if learnt.project(vectors[:1], side).shape[-1] == vectors.shape[-1]:
                for part in vectors.split(_ROWS):
                    part.copy_(learnt.project(part, side))
            else:
                vectors = torch.cat([learnt.project(part, side) for part in vectors.split(_ROWS)])
            self.anchors[code] = replace(self.anchors[code], vectors=vectors)

    # ---- Scores ----

    def _score(self, when: str) -> None:
        self.examples[when] = {}
        # `_map_vectors` has mapped word vectors in their memory.
        maps = None if when == "before" or self.of_words else self.maps
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

    def seeded(self, args: MappingConfig) -> Self:
        """Return a trainer of the same vectors and scores before, for a run of another seed and output folder."""
        trainer = copy.copy(self)
        trainer.args, trainer.record = args, copy.deepcopy(self.record) | {"seed": args.seed}
        trainer.maps, trainer.coverage, trainer.examples = {}, {}, {**self.examples}
        return trainer

    def about_scores(self) -> Record:
        """Return the fields of the run's `scores.json`, before there are scores."""
        if self.of_words:
            raise InputError("seeds: word vectors are mapped in memory, once. Give one seed a run.")
        settings = {**self.reporting.settings, **self.args.changed(), "preset": self.args.method}
        compared = compared_by(self._headline())
        return about_scores(compared, self.args.seed, settings, self.text["data"], model=self.base_model)

    def _headline(self) -> str:
        """Return the name of the score by which `compare` compares the run, that of the last layer."""
        return self._retrieval(self.args.layers[-1]).name

    def _retrieval(self, layer: int) -> Score:
        """Return the score of word retrieval of a layer, which is named if there are several."""
        return Score("retrieval", self.args.pooling, layer=layer if len(self.args.layers) > 1 else None)

    # ---- Files ----

    def save_model(self, output_dir: str | None = None, vectors_format: VectorsFormat = "safetensors") -> None:
        """Write the maps, card and record, and what else the run has, in the place of an earlier run.

        Of an encoder, the held-out links are written too, and affine maps on an encoder without adapters also as an
        adapter. No adapter holds the maps of two encoders. Of word vectors, the mapped vectors of both languages.

        Args:
            output_dir: the folder; default: that of the settings.
            vectors_format: of the files of word vectors.
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
        counts = {language: counted._asdict() for language, counted in self.coverage.items() if counted is not None}
        self.record["maps"] = {"files": files, "dictionary": counts}
        for language, counted in counts.items():
            self.show(f"learnt   {language}: from {counted['used']} of {counted['entries']} dictionary entries")
        saved = {"maps": str(folder / MAPS)}
        if self.of_words:
            saved = self._save_vectors(folder, vectors_format) | saved
        else:
            saved |= self._save_adapter(folder) | keep_links(self.eval_dataset, folder)
        finish(self.record, folder, saved)
        self.keep_scores(folder)

    def keep_scores(self, folder: Path) -> None:
        """Write the scores of every example, by which `compare` compares the run; word vectors have none."""
        if scores := headlines(self.examples.get("after", {}), self._headline()):
            keep_scores(folder, self.record, scores, self.examples, self.about_scores)

    def _save_vectors(self, folder: Path, vectors_format: VectorsFormat) -> dict[str, str]:
        for path in (folder / VECTORS).glob("*"):
            path.unlink()
        written = {}
        for code, anchors in self.anchors.items():
            file = inside(folder / VECTORS, f"{code}.{vectors_format}")
            cpu = replace(anchors, vectors=anchors.vectors.cpu())
            cpu.save(file) if vectors_format == "safetensors" else write_word2vec(cpu, file)
            written[code] = f"{VECTORS}/{file.name}"
        names = {code: self.files.get(("vectors", code), f"vectors of {code}") for code in self.anchors}
        self.record["maps"]["vectors"] = {"from": names, "files": written}
        return {"mapped vectors": str(folder / VECTORS)}

    def _save_adapter(self, folder: Path) -> dict[str, str]:
        """Write the tokenizer, and the maps as an adapter where one can hold them; return its folder by its name."""
        (model, tokenizer), (pivot_model, _) = self.encoders.values()
        if model is not pivot_model:
            self.show("model    none: the two languages have an encoder each; LanguageMap.load reads the maps")
            return {}
        with disk_errors(folder):
            tokenizer.save_pretrained(folder)
            try:
                adapter = map_adapter(model, {str(one.source_lang): one for one in self.maps.values()})
            except InputError as error:
                self.show(f"model    none: {error}")
                return {}
            config = adapter.active_peft_config
            # `hf_xalign.load` loads the base at this revision.
            config.revision = self.record["settings"].get("model_revision")
            try:
                adapter.save_pretrained(str(folder))
            finally:
                # The encoder is the caller's, and that of other seeds.
                adapter.unload()
            follow_umask(folder)
            self.record["adapter"] = adapter_entry(config)
            return {"adapter": str(folder)}


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


def read_pairs(data: object, name: str) -> tuple[Dataset, str]:
    """Return sentence pairs as one dataset, with their languages and the words of their links, and the pivot."""
    pairs = join_languages(data, name)
    needed = (*COLUMNS[2:], *(WORDS if "links" in pairs.column_names else ()))
    check_columns(pairs, needed, name, "load_parallel and align_words make these columns.")
    return pairs, cast(str, only_language(pairs, "target_lang", name))


def _open_encoder(
    model: object, tokenizer: PreTrainedTokenizerBase | None, args: MappingConfig, revision: str = "main"
) -> Encoder:
    """Return an encoder, with its adapter if it has one, and its tokenizer; of a task model, take the encoder."""
    if isinstance(model, str):
        tokenizer = tokenizer or load_tokenizer(model, revision=revision)
        encoder = encoder_of(load(model, revision=revision))
    else:
        opened, tokenizer = open_model(model, tokenizer)
        encoder = encoder_of(opened)
    # Both raise for what they cannot use: an unknown layer, a slow tokenizer.
    layer_index(args.layers, encoder.config.num_hidden_layers)
    word_tokenizer(tokenizer)
    cast(nn.Module, encoder).to(choose_device(args.device))
    return encoder.eval(), tokenizer


def _is_held_out(word: str) -> bool:
    """Return whether a source word is for testing. A hash decides, so that every run has the same split."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") % HELD_OUT == 0


def _projection(language_map: LanguageMap | None, direction: str) -> Projection:
    if language_map is None:
        return lambda source, target: (source, target)
    source_side, pivot_side = SIDES if direction == "to_pivot" else SIDES[::-1]
    return lambda source, target: (language_map.project(source, source_side), language_map.project(target, pivot_side))


def _anchor_entries(entries: Entries, anchors: Anchors, pivot: Anchors) -> list[tuple[str, str]]:
    """Return entries as (other word, pivot word). Test words match anchors in another case too, as learnt words do."""
    others = _anchor_words([other for _, other in entries], anchors)
    return list(zip(others, _anchor_words([word for word, _ in entries], pivot)))


def _anchor_words(words: Sequence[str], anchors: Anchors) -> list[str]:
    """Return words as the anchors spell them; words without an anchor stay."""
    rows = anchors.lookup(words).tolist()
    return [word if row < 0 else anchors.words[row] for word, row in zip(words, rows)]
