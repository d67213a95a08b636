"""Trainers of linear maps between the word vectors of two languages; encoders and vectors are not trained."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from datasets import Dataset
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import hf_xalign
from hf_xalign.cache import check_output, disk_errors, follow_umask, hold_folder, inside
from hf_xalign.data.arrow import count_languages
from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.encoding import check_pieces, word_tokenizer
from hf_xalign.data.load import concatenate, join_languages
from hf_xalign.data.parallel import COLUMNS, check_columns, only_language
from hf_xalign.data.words import WORDS
from hf_xalign.errors import InputError, explained
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.scores import Examples, HeldOutWords, Protocol, Scores, check_protocols, held_out_words
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
from hf_xalign.modeling.loading import choose_device, load_tokenizer
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.config import base_of
from hf_xalign.modeling.xalign.linear import map_adapter
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.record import find_warnings, phase, start_record
from hf_xalign.score import Score
from hf_xalign.trainers.base.checkpoints import clear_run, signs_of_run
from hf_xalign.trainers.base.opening import base_name, describe_encoder, describe_pairs, open_model
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
from hf_xalign.trainers.mapping_config import MappingConfig

logger = logging.getLogger(__name__)

Entries = Sequence[tuple[str, str]]
"""Entries of a dictionary: the word of the pivot, the other word."""
Encoder = tuple[PreTrainedModel, PreTrainedTokenizerBase]
# Maps vectors of a language and of the pivot to the space in which they are compared.
Projection = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

MAPS = "maps"
# Precisions that `lexicon_induction` returns with intervals.
_PRECISIONS = ("p@1", "p@5", "p@10", "p@1_oov_wrong", "p@5_oov_wrong")
_ENDS = ("low", "high")
# A dictionary is refused if reversing its columns would make this many times more entries usable.
_REVERSED = 2


class MapLearner:
    """Base of the trainers of maps: it learns a map of each language, scores it, and writes record and card.

    Attributes:
        maps: the learnt maps by language.
        coverage: of a map from a dictionary, how many entries were used.
        record: the content of `results.json`.
        examples: scores of every sentence before and after, by language and score.
    """

    method: ClassVar[str] = "mapping"
    args: MappingConfig

    def __init__(
        self,
        args: MappingConfig | None,
        base_model: str,
        pivot: str,
        languages: Sequence[str],
        reporting: Reporting | None = None,
        files: Mapping[tuple[str, str], str] | None = None,
    ):
        self.args = args or MappingConfig()
        self.base_model, self.pivot, self.languages = base_model, pivot, list(languages)
        self.dictionary: dict[str, Entries] = {}
        self.test_dictionary: dict[str, Entries] = {}
        # Entries that lexicon induction takes for right, beside those of the test.
        self.known: dict[str, Entries] = {}
        self.anchors: dict[str, Anchors] = {}
        self.training: dict[str, Matched] = {}
        self.held_out: dict[str, HeldOutWords] = {}
        self.protocols: Sequence[Protocol] = (Protocol(),)
        self.reporting = reporting or Reporting()
        self.show, self.seconds = self.reporting.show, {**self.reporting.seconds}
        self.text: dict[str, Any] = {}
        self.files = files or {}
        self.record: dict[str, Any] = {}
        self.examples: dict[str, Examples] = {}
        self.maps: dict[str, LanguageMap] = {}
        self.coverage: dict[str, Coverage | None] = {}

    def start(self) -> None:
        """Take the output folder and start the record."""
        take_folder(self.args, self.base_model)
        self.record = start_record(
            method=self.method,
            preset=self.args.method,
            seed=self.args.seed,
            base_model=self.base_model,
            settings={**self.reporting.settings, **self.args.changed()},
            objective=self.args.formula(),
            paper=self.args.paper(),
            **{**self.text, **self.reporting.text, "languages": self.languages, "pivot": self.pivot},
        )
        self.record["times"]["seconds"] |= self.seconds

    def learn(self, language: str) -> tuple[LanguageMap, Coverage | None]:
        """Learn the map of one language, in the direction of the settings; of a dictionary also its coverage."""
        args, coverage = self.args, None
        if args.supervision == "dictionary":
            anchors, pivot = self.anchors[language], self.anchors[self.pivot]
            entries = [(translation, word) for word, translation in self.dictionary[language]]
            pairs, coverage = dictionary_vectors(entries, anchors, pivot)
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

    def seeded(self, args: MappingConfig) -> Self:
        """Return a trainer of the same vectors and scores before, for a run of another seed and output folder."""
        trainer = copy.copy(self)
        trainer.args, trainer.record = args, copy.deepcopy(self.record) | {"seed": args.seed}
        trainer.maps, trainer.coverage, trainer.examples = {}, {}, {**self.examples}
        return trainer

    def about_scores(self) -> dict[str, Any]:
        """Return the fields of the run's `scores.json`, before there are scores."""
        settings = {**self.reporting.settings, **self.args.changed(), "preset": self.args.method}
        text = {**self.text, **self.reporting.text}["data"]
        return about_scores(compared_by(self._headline()), self.args.seed, settings, text, model=self.base_model)

    def _headline(self) -> str:
        """Return the name of the score by which `compare` compares the run, that of the last layer."""
        layers = self.args.layers
        return Score("retrieval", self.args.pooling, layer=layers[-1] if len(layers) > 1 else None).name

    def learn_all(self) -> None:
        """Learn the maps of all languages."""
        with phase(self.record, "mapping"):
            for language in self.languages:
                with explained(f"the map of {language}"):
                    self.maps[language], self.coverage[language] = self.learn(language)

    def _score(self, when: str) -> None:
        self.examples[when] = {}
        maps = None if when == "before" else self.maps
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
        for language, words in self.held_out.items():
            scores[language], intervals[language] = {}, {}
            for k, layer in enumerate(args.layers):
                project = _projection(None if maps is None else maps[language].of([layer]), args.direction)
                score = Score("retrieval", args.pooling, layer=layer if len(args.layers) > 1 else None)
                word_examples = None if examples is None else examples.setdefault(language, {})
                scores[language] |= words.score(
                    score, self.protocols, layer=k, project=project, examples=word_examples
                )
                if language in self.test_dictionary:
                    protocols = [protocol for protocol in self.protocols if protocol.cosine or not protocol.name]
                    induced, bounds = self.induction(language, k, project, protocols, replace(score, task="bli"))
                    scores[language] |= induced
                    intervals[language] |= bounds
        return scores, intervals

    def induction(
        self,
        language: str,
        layer: int,
        project: Projection,
        protocols: Sequence[Protocol],
        score: Score,
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """Score lexicon induction of one layer in both directions: scores named after `score`, and 95% intervals."""
        anchors, pivot = self.anchors[language], self.anchors[self.pivot]
        source, target = project(anchors.vectors[:, layer], pivot.vectors[:, layer])
        test = self.test_dictionary[language]
        # A learnt translation of a test word is right too: a pivot word has entries on both sides of the split.
        entries, known = (
            _anchor_entries(part, anchors, pivot) for part in (test, [*test, *self.known.get(language, ())])
        )
        back, known_back = ([(word, other) for other, word in part] for part in (entries, known))
        scores: dict[str, float] = {}
        bounds: dict[str, list[float]] = {}
        for protocol in protocols:
            options: Any = {"similarity": "cosine" if protocol.cosine else "csls", "seed": self.args.seed}
            to_pivot = lexicon_induction(source, target, anchors.words, pivot.words, entries, more=known, **options)
            from_pivot = lexicon_induction(
                target, source, pivot.words, anchors.words, back, more=known_back, **options
            )
            score = replace(score, protocol=protocol.name)
            for precision in _PRECISIONS:
                mean, *directions = replace(score, pooling=precision).directions()
                scores[mean.name] = (to_pivot[precision] + from_pivot[precision]) / 2
                for one, found in zip(directions, (to_pivot, from_pivot)):
                    scores[one.name] = found[precision]
                    bounds[one.name] = [found[f"{precision}_{end}"] for end in _ENDS]
            scores[replace(score, pooling="coverage").name] = to_pivot["coverage"]
            scores[score.pool().name] = (to_pivot["source_vocabulary"] + to_pivot["target_vocabulary"]) / 2
        return scores, bounds

    def save_maps(self, folder: Path) -> dict[str, str]:
        """Replace an earlier run by the maps, enter them into the record, and return their folder by its name."""
        if folder.resolve() != Path(self.args.output_dir).resolve():
            take_folder(replace(self.args, output_dir=str(folder)), self.base_model)
        folder.mkdir(parents=True, exist_ok=True)
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
        return {"maps": str(folder / MAPS)}


class MappingTrainer(MapLearner):
    """Learn maps between the vectors of an encoder, of linked words or of a dictionary's, and save them.

    `train` returns the maps by language, and `save_model` writes what `hf-xalign train mapping` does: the maps
    (`maps/de-en.safetensors`), a model that holds them where one can, the held-out links, `results.json` and a card.

    Args:
        model: encoder of both sides, or with `pivot_model` of the others: a Hub id, a folder, `builtin`, a model, a
            `PeftModel` or a `SentenceTransformer`. Of a task model its encoder is taken.
        args: settings; default: `MappingConfig()`.
        train_dataset: sentence pairs, as a dataset or by language; linked by fast_align if they have no links.
        eval_dataset: held-out pairs to score retrieval on; linked by the fixed evaluation aligner if need be.
        processing_class: fast tokenizer of the model; default: that of its folder.
        pivot_model: encoder of the pivot (the target side), if it has one of its own.
        pivot_processing_class: its tokenizer.
        dictionary: {language: [(word of the pivot, other word), ...]} to learn from with `supervision="dictionary"`.
        test_dictionary: dictionaries to score lexicon induction on, of the same form.
        text: {language: sentences} for anchors, beside those of `train_dataset`.
        linking: how pairs without links are linked, and how many are drawn; by default fast_align, and all.
        name: name of the encoder in record and card; default: that of its checkpoint.
        protocols: protocols that word retrieval is scored by.
        reporting: what a script adds to the record of the run.
        files: names of the dictionaries' files in messages, by `("dictionary" or "test_dictionary", language)`.

    Raises:
        InputError: text, dictionaries and settings do not fit each other.

    Example:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sleeps die katze schläft".split()
        >>> tokenizer = BertTokenizer(vocab={word: k for k, word in enumerate(words)})
        >>> config = BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> pairs = Dataset.from_dict({"source_words": [["die", "katze"]], "target_words": [["the", "cat"]],
        ...     "links": [[[0, 0], [1, 1]]], "source_lang": ["de"], "target_lang": ["en"]})
        >>> args = MappingConfig(tempfile.mkdtemp(), device="cpu")
        >>> trainer = MappingTrainer(
        ...     BertModel(config), args, train_dataset=pairs, eval_dataset=pairs, processing_class=tokenizer)
        >>> trainer.train()["de"].source_lang
        'de'
    """

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel | nn.Sequential,
        args: MappingConfig | None = None,
        *,
        train_dataset: Any,
        eval_dataset: Any,
        processing_class: PreTrainedTokenizerBase | None = None,
        pivot_model: str | PreTrainedModel | PeftModel | nn.Sequential | None = None,
        pivot_processing_class: PreTrainedTokenizerBase | None = None,
        dictionary: Mapping[str, Entries] | None = None,
        test_dictionary: Mapping[str, Entries] | None = None,
        text: Mapping[str, Sequence[str]] | None = None,
        linking: Linking | None = None,
        name: str | None = None,
        protocols: Sequence[Protocol] = (Protocol(),),
        reporting: Reporting | None = None,
        files: Mapping[tuple[str, str], str] | None = None,
    ):
        start = time.perf_counter()
        train, pivot = read_pairs(train_dataset, "train_dataset")
        held_out, held_pivot = read_pairs(eval_dataset, "eval_dataset")
        if held_pivot != pivot:
            raise InputError(f"eval_dataset: target_lang is {held_pivot}, that of train_dataset is {pivot}")
        super().__init__(args, "", pivot, sorted(count_languages(train)), reporting, files)
        self.protocols = protocols
        self.dictionary = check_entries(dictionary or {}, "dictionary")
        self.test_dictionary = check_entries(test_dictionary or {}, "test_dictionary")
        self.known = self.dictionary
        self.texts: dict[str, Sequence[str]] = {**(text or {})}
        for language, sentences in self.texts.items():
            if isinstance(sentences, str):
                raise InputError(f"text[{language!r}] is one string. Give a list of sentences.")
        check_languages(self.dictionary, self.test_dictionary, self.texts, self.languages, self.pivot, self.args)
        source = open_encoder(model, processing_class, self.args)
        target = source if pivot_model is None else open_encoder(pivot_model, pivot_processing_class, self.args)
        self.base_model = name or (model if isinstance(model, str) else base_name(source[0]))
        self.encoders: dict[str, Encoder] = dict(zip(SIDES, (source, target)))
        for pairs, what in ((train, "train_dataset"), (held_out, "eval_dataset")):
            check_pieces(pairs, source[1], what, target[1])
        linking = linking or (None if "links" in train.column_names else Linking())
        given = train, held_out
        if "links" not in held_out.column_names:
            check_folder(self.args, self.base_model)
            more = [] if linking is None or linking.extra_data is None else [linking.extra_data]
            held_out = make_evaluation_links(held_out, None if linking is None else concatenate([train, *more]))
        if linking is None:
            counts, by = link_entries(link_statistics(train)), "given"
        else:
            linking = replace(linking, drop_identical=self.args.drop_identical or linking.drop_identical)
            sources = self.reporting.text.get("data", {}).get("train")
            train, counts, by = linking.apply(train, sources, model=source[0], tokenizer=source[1])
        self.train_dataset, self.eval_dataset = train, held_out
        self._rows = language_rows(train)
        self._check_pairs(link_statistics(train))
        drawn = None if linking is None or linking.max_pairs is None else count_languages(train)
        self.text = given_entries(*given, drawn) | {"links": counts, "linked_by": by}
        self.seconds["preparing"] = round(time.perf_counter() - start, 3)
        self._anchor_lines: list[str] | None = None

    # ---- Text and dictionaries ----

    @property
    def anchored(self) -> set[str]:
        """Languages that need anchors, without the pivot."""
        return anchored(self.dictionary, self.test_dictionary, self.args)

    def sentences(self, language: str) -> list[Any]:
        """Return the text for a language's anchors: its own, then its side of the pairs, as words."""
        sentences = [*self.texts.get(language, ())]
        if not self.args.anchor_pairs:
            return sentences
        if language == self.pivot:
            return [*sentences, *self.train_dataset["target_words"][:]]
        return [*sentences, *self.train_dataset.select(self._rows[language])["source_words"][:]]

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

    def check_dictionaries(self) -> list[str]:
        """Look up the dictionaries' words in the text for the anchors; describe each language that needs them."""
        if self._anchor_lines is not None:
            return self._anchor_lines
        languages = sorted(self.anchored)
        words: dict[str, set[str]] = {}
        lines: dict[str, str] = {}
        for language in (*languages, self.pivot) if languages else ():
            text = self.sentences(language)
            words[language] = set(count_words(text, language).types)
            lines[language] = f"anchors  {language}: of {len(text):,} sentences, {len(words[language]):,} words"
        lexicons = {"test_dictionary": self.test_dictionary}
        if self.args.supervision == "dictionary":
            lexicons = {"dictionary": self.dictionary, **lexicons}
        for name, lexicon in lexicons.items():
            for language, entries in lexicon.items():
                pairs = list(dict.fromkeys(entries))
                without = _without_words(pairs, words, self.pivot, language)
                usable = len(pairs) - len(without)
                backwards = len(pairs) - len(_without_words(pairs, words, language, self.pivot))
                what = f"{name} {self.files.get((name, language), f'of {language}')}"
                if backwards > _REVERSED * usable:
                    raise InputError(
                        f"{what}: {usable} of {len(pairs)} entries have both words in the text, {backwards} with the "
                        f"columns reversed. Put the words of {self.pivot} first in each entry, or in a recipe set the "
                        "other dictionary_order."
                    )
                if not usable:
                    raise InputError(
                        f"{what}: none of {len(pairs)} entries has its words in {self.pivot} and in {language} in the "
                        "text for the anchors. Add more text, or use a dictionary of these languages."
                    )
                lines[language] += (
                    f"; {usable:,} of {len(pairs):,} entries of {name} have both words there{name_three(without)}"
                )
        self._anchor_lines = list(lines.values())
        return self._anchor_lines

    def describe(self) -> list[str]:
        """Describe encoder and text, the anchors, the maps to learn, and the data that stays unused, one line each."""
        args, tested = self.args, self.test_dictionary
        lines = [
            describe_encoder(self.base_model, self.encoders["source"][0]),
            *describe_pairs(self.train_dataset, self.text["links"], self.eval_dataset),
            *self.check_dictionaries(),
            f"map      {args.method} from {args.supervision} supervision, {args.direction.replace('_', ' ')}",
            f"vectors  of layers {', '.join(map(str, args.layers))}, {args.pooling} pooling",
        ]
        for language in sorted(set(self.eval_dataset.unique("source_lang")) - {*self.languages}):
            lines.append(f"unused   eval_data in {language}: train_data has none, so there is no map")
        if tested and (untested := [language for language in self.languages if language not in tested]):
            lines.append(f"unscored lexicon induction in {', '.join(untested)}: no test_dictionary")
        return lines

    # ---- Vectors, maps and scores ----

    def extract(self) -> None:
        """Run the encoders over all text that maps are learnt from and scored on."""
        args, (source, pivot) = self.args, self.encoders.values()
        for _, tokenizer in (source, pivot):
            check_protocols(self.protocols, tokenizer, self.eval_dataset)
        options: dict[str, Any] = {"layers": args.layers, "pooling": args.pooling, "batch_size": args.batch_size}
        held_out = language_rows(self.eval_dataset)
        for language in self.languages:
            label, pairs = f"Held-out words, {language}", self.eval_dataset.select(held_out[language])
            self.held_out[language] = held_out_words(self.encoders, pairs, self.protocols, desc=label, **options)
            if args.supervision == "parallel":
                label, pairs = f"Linked words, {language}", self.train_dataset.select(self._rows[language])
                self.training[language] = linked_vectors(*source, pairs, target_encoder=pivot, desc=label, **options)
        for language in [*sorted(self.anchored), self.pivot] if self.anchored else []:
            self.anchors[language] = make_anchors(
                *(pivot if language == self.pivot else source),
                self.sentences(language),
                lang=language,
                max_words=args.max_words,
                sentences_per_word=args.sentences_per_word,
                ray=args.ray,
                **options,
            )

    def prepare(self) -> None:
        """Start the record, extract the vectors, and score them as they are; `train` does it if need be."""
        if self.record:
            return
        self.check_dictionaries()
        self.start()
        with phase(self.record, "vectors"):
            self.extract()
        with phase(self.record, "scoring"):
            self.record["intervals"] = {"before": {}, "after": {}}
            source, pivot = (model.config.hidden_size for model, _ in self.encoders.values())
            if source == pivot:  # vectors of different sizes are not comparable before they are mapped
                self._score("before")

    def train(self) -> dict[str, LanguageMap]:
        """Learn the map of each language, score them, and return them by language."""
        self.prepare()
        self.learn_all()
        with phase(self.record, "scoring"):
            self._score("after")
        return self.maps

    # ---- Files ----

    def save_model(self, output_dir: str | None = None) -> None:
        """Write maps, model, held-out links, card and record, in the place of an earlier run.

        Affine maps on an encoder without adapters are also saved as an adapter. No adapter holds the maps of two
        encoders.

        Args:
            output_dir: the folder; default: that of the settings.
        """
        folder = Path(output_dir or self.args.output_dir)
        (model, tokenizer), (pivot_model, _) = self.encoders.values()
        saved = self.save_maps(folder)
        if model is not pivot_model:
            self.show("model    none: the two languages have an encoder each; LanguageMap.load reads the maps")
        else:
            with disk_errors(folder):
                tokenizer.save_pretrained(folder)
                try:
                    saved |= self._save_model(model, folder)
                except InputError as error:
                    self.show(f"model    none: {error}")
        finish(self.record, folder, {**saved, **keep_links(self.eval_dataset, folder)})
        if scores := headlines(self.examples.get("after", {}), self._headline()):
            warnings = find_warnings(self.record)
            keep_scores(folder, scores, self.examples, self.args.seed, about=self.about_scores, warnings=warnings)

    def _save_model(self, encoder: Any, folder: Path) -> dict[str, str]:
        """Save the maps as an adapter; its name on the summary, and its folder."""
        adapter = map_adapter(encoder, {str(one.source_lang): one for one in self.maps.values()})
        config = adapter.active_peft_config
        config.revision = self.record["settings"].get("model_revision")  # at which `hf_xalign.load` loads the encoder
        try:
            adapter.save_pretrained(str(folder))
        finally:
            adapter.unload()  # the encoder is the caller's, and that of other seeds
        follow_umask(folder)
        self.record["adapter"] = adapter_entry(config)
        return {"adapter": str(folder)}


def take_folder(args: MappingConfig, encoder: str) -> None:
    """Hold the output folder of a run of maps, after [`check_folder`]."""
    check_folder(args, encoder)
    hold_folder(args.output_dir)


def check_folder(args: MappingConfig, encoder: str) -> None:
    """Check the output folder of a run of maps.

    Raises:
        InputError: the folder holds the encoder, or another run that is not to be replaced; or it cannot be written.
    """
    folder = Path(args.output_dir)
    check_output(folder)
    if Path(encoder).exists() and Path(encoder).resolve() == folder.resolve():
        raise InputError(f"output_dir={folder} holds the encoder. Use another output_dir.")
    if (signs := signs_of_run(folder)) and not args.overwrite_output_dir:
        raise InputError(
            f"{folder} holds another run ({', '.join(signs[:3])}). Use another output_dir, or "
            "overwrite_output_dir=true to replace it."
        )


def read_pairs(data: Any, name: str) -> tuple[Dataset, str]:
    """Return sentence pairs as one dataset, with their languages and the words of their links, and the pivot."""
    pairs = join_languages(data, name)
    needed = (*COLUMNS[2:], *(WORDS if "links" in pairs.column_names else ()))
    check_columns(pairs, needed, name, "load_parallel and align_words make these columns.")
    pivot = only_language(pairs, "target_lang", name)
    if pivot is None:
        raise InputError(f"{name} has no rows. Give at least one sentence pair.")
    return pairs, pivot


def open_encoder(
    model: str | PreTrainedModel | PeftModel | nn.Sequential,
    tokenizer: PreTrainedTokenizerBase | None,
    args: MappingConfig,
    revision: str | None = None,
) -> Encoder:
    """Return an encoder, with its adapter if it has one, and its tokenizer; of a task model, take the encoder."""
    opened: Any
    if isinstance(model, str):
        opened = hf_xalign.load(model, revision=revision, dtype=torch.float32)
        name, tokenizer = model, tokenizer or load_tokenizer(model, revision=revision)
    else:
        opened, tokenizer = open_model(model, tokenizer)
        name = base_name(opened)
    inner = base_of(opened)
    if backbone_of(inner) is not inner:
        if any(isinstance(module, BaseTunerLayer) for module in opened.modules()):
            raise InputError(
                f"model_name_or_path={name} has a task head and an adapter. Name the encoder or the adapter."
            )
        opened = backbone_of(inner)
    layer_index(args.layers, opened.config.num_hidden_layers)  # raises for an unknown layer
    word_tokenizer(tokenizer)  # raises for a slow one
    return opened.to(choose_device(args.device)).eval(), tokenizer


def check_entries(lexicon: Mapping[str, Entries], name: str) -> dict[str, Entries]:
    """Return dictionaries by language. A string of two letters, which is no entry, would be taken for two words."""
    for language, entries in lexicon.items():
        for number, entry in enumerate(entries):
            if isinstance(entry, str) or len(entry) != 2:
                raise InputError(
                    f"{name}[{language!r}], entry {number}: {entry!r} is not two words. Give a list of (word of the "
                    "pivot, other word)."
                )
    return {language: [(word, other) for word, other in entries] for language, entries in lexicon.items()}


def _without_words(entries: Entries, words: Mapping[str, set[str]], first: str, second: str) -> Entries:
    """Return the entries of which a word, of the languages `first` and `second`, is not in the text."""
    there, others = words[first], words[second]
    return [(a, b) for a, b in entries if lower_word(a, first) not in there or lower_word(b, second) not in others]


def name_three(entries: Entries) -> str:
    """Name up to three entries of a dictionary that cannot be used, to be added to a count of those that can."""
    return f", not {'; '.join(f'{a} / {b}' for a, b in entries[:3])}" if entries else ""


def anchored(
    dictionary: Mapping[str, Entries], test_dictionary: Mapping[str, Entries], args: MappingConfig
) -> set[str]:
    """Return the languages that need anchors, without the pivot."""
    return {*test_dictionary, *(dictionary if args.supervision == "dictionary" else ())}


def check_languages(
    dictionary: Mapping[str, Entries],
    test_dictionary: Mapping[str, Entries],
    texts: Iterable[str],
    languages: Collection[str],
    pivot: str,
    args: MappingConfig,
) -> None:
    """Check that dictionaries, and texts by language, fit the languages of the training pairs."""
    there = ", ".join(sorted(languages))
    if args.direction == "from_pivot" and len(languages) > 1:
        raise InputError(
            f"direction=from_pivot maps {pivot} into the space of one language, but train_data has {there}. Keep one."
        )
    for name, lexicon in (("dictionary", dictionary), ("test_dictionary", test_dictionary)):
        if strange := sorted({*lexicon} - {*languages}):
            raise InputError(f"{name}: train_data has no {strange[0]}, only {there}. Remove this dictionary.")
    if args.supervision == "dictionary" and (missing := sorted({*languages} - {*dictionary})):
        raise InputError(f"dictionary: none for {', '.join(missing)}. Give one, in a recipe as {missing[0]}=FILE.")
    needed = anchored(dictionary, test_dictionary, args)
    if not args.anchor_pairs and (missing := sorted((needed and needed | {pivot}) - {*texts})):
        raise InputError(f"anchor_pairs=false: no text in {', '.join(missing)}. Add some, in a recipe by text.")


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
