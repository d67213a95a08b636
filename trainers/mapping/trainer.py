"""Trainer of linear maps between the word vectors of two languages in an encoder, which is not trained."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

from datasets import Dataset
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import follow_umask
from hf_xalign.data.arrow import count_languages
from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.encoding import check_pieces, word_tokenizer
from hf_xalign.data.load import join_languages
from hf_xalign.data.parallel import COLUMNS, check_columns, only_language
from hf_xalign.data.words import WORDS, lower_word
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import Protocol, held_out_words
from hf_xalign.evaluation.vectors import language_rows
from hf_xalign.links.counts import LinkStatistics, link_entries, link_statistics
from hf_xalign.links.frozen import keep_links, make_evaluation_links
from hf_xalign.links.linking import Linking
from hf_xalign.mapping.anchors import count_words, make_anchors
from hf_xalign.mapping.supervision import Matched, linked_vectors
from hf_xalign.modeling.loading import choose_device, encoder_of, load, load_tokenizer
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.config import base_of
from hf_xalign.modeling.xalign.linear import map_adapter
from hf_xalign.record import phase
from hf_xalign.trainers.base.opening import describe_encoder, describe_pairs, open_model
from hf_xalign.trainers.base.run import Reporting, adapter_entry, given_entries
from hf_xalign.trainers.mapping.base import Entries, MapTrainer, check_folder
from hf_xalign.trainers.mapping.trainer_config import MappingConfig

Encoder = tuple[PreTrainedModel, PreTrainedTokenizerBase]


class MappingTrainer(MapTrainer):
    """Learn maps between the vectors of an encoder, score and save them.

    Maps are learnt from linked words, or from a dictionary whose words get averaged vectors (anchors). `train` returns
    them by language, and `save_model` writes what `hf-xalign train mapping` does: maps, record, card, the held-out
    links, and affine maps on an encoder without adapters also as an adapter. No adapter holds the maps of two
    encoders. [`VectorMappingTrainer`] maps files of word vectors.

    Attributes:
        maps: the learnt maps by language.
        anchors: vectors of the words of dictionaries by language.
        coverage: of maps from dictionaries, numbers of `entries` and `used` ones, by language.
        record: the content of `results.json`.
        examples: scores of every sentence before and after, by language and score.

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
            Entries in the other order are turned.
        test_dictionary: dictionaries to score lexicon induction on, of the same form.
        text: {language: sentences} for anchors, in addition to those of `train_dataset`.
        linking: how pairs without links are linked, and how many are drawn; by default fast_align, and all.
        revision: branch, tag or commit of a `model` that is given by its Hub id.
        protocols: protocols that word retrieval is scored by.
        reporting: what a script adds to the record of the run.
        files: names of files in messages and record, by `("dictionary" or "test_dictionary", language)`.

    Raises:
        InputError: text, dictionaries and settings do not fit each other.

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

    _usable = "is in the text for the anchors"

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel | nn.Sequential,
        args: MappingConfig | None = None,
        *,
        train_dataset: Dataset | Mapping[str, Dataset] | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        pivot_model: str | PreTrainedModel | PeftModel | nn.Sequential | None = None,
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
        args = args or MappingConfig()
        train, pivot = read_pairs(train_dataset, "train_dataset")
        held_out, held_pivot = read_pairs(eval_dataset, "eval_dataset")
        if held_pivot != pivot:
            raise InputError(f"eval_dataset: target_lang is {held_pivot}, that of train_dataset is {pivot}")
        super().__init__(
            args,
            sorted(count_languages(train)),
            pivot,
            dictionary=dictionary,
            test_dictionary=test_dictionary,
            protocols=protocols,
            reporting=reporting,
            files=files,
        )
        self.texts: dict[str, Sequence[str]] = {**(text or {})}
        for language, sentences in self.texts.items():
            if isinstance(sentences, str):
                raise InputError(f"text[{language!r}] is one string. Give a list of sentences.")
        source = _open_encoder(model, processing_class, args, revision)
        target = source if pivot_model is None else _open_encoder(pivot_model, pivot_processing_class, args)
        self.base_model = model if isinstance(model, str) else base_of(source[0]).name_or_path or "new"
        self.training: dict[str, Matched] = {}
        self.encoders: dict[str, Encoder] = dict(zip(SIDES, (source, target)))
        for pairs, what in ((train, "train_dataset"), (held_out, "eval_dataset")):
            check_pieces(pairs, source[1], what, target[1])
        linking = linking or (None if "links" in train.column_names else Linking())
        given, given_held_out = train, held_out
        if "links" not in held_out.column_names:
            check_folder(args, self.base_model)
            held_out = make_evaluation_links(held_out, None if linking is None else train)
        counts, by = None, "given"
        if linking is not None:
            linking = replace(linking, drop_identical=args.drop_identical or linking.drop_identical)
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

    # ---- Text and dictionaries ----

    def sentences(self, language: str) -> list[Any]:
        """Return the text for a language's anchors: its own, then its side of the pairs, as words."""
        sentences = [*self.texts.get(language, ())]
        if not self.args.anchor_pairs:
            return sentences
        if language == self.pivot:
            return [*sentences, *self.train_dataset["target_words"][:]]
        return [*sentences, *self.train_dataset.select(self._rows[language])["source_words"][:]]

    def _find_words(self, language: str) -> tuple[set[str], str]:
        text = self.sentences(language)
        words = set(count_words(text, language).types)
        return words, f"anchors  {language}: of {len(text):,} sentences, {len(words):,} words"

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

    def describe(self) -> list[str]:
        """Describe encoder and text, the anchors, the maps to learn, and the data that stays unused, one line each."""
        args, tested = self.args, self.test_dictionary
        encoder = describe_encoder(self.base_model, self.encoders["source"][0])
        pairs = describe_pairs(self.train_dataset, self.text["links"], self.eval_dataset)
        vectors = f"vectors  of layers {', '.join(map(str, args.layers))}, {args.pooling} pooling"
        lines = [encoder, *pairs, *self._dictionary_lines, vectors, self._describe_map()]
        for language in sorted(set(self.eval_dataset.unique("source_lang")) - {*self.languages}):
            lines.append(f"unused   eval_data in {language}: train_data has none, so there is no map")
        for language in sorted(tested) if args.supervision == "dictionary" else ():
            learnt = {lower_word(word, language) for _, word in self.dictionary[language]}
            both = sum(lower_word(word, language) in learnt for _, word in tested[language])
            if both:
                count = f"{both:,} of {len(tested[language]):,}"
                lines.append(f"not new  {count} test entries in {language}: the map is learnt from their words")
        return lines

    # ---- Vectors, maps and scores ----

    def prepare(self) -> None:
        """Start the record, extract the vectors, and score them as they are; `train` does it if need be."""
        if self.record:
            return
        self._start_record()
        with phase(self.record, "vectors"):
            self.extract()
        with phase(self.record, "scoring"):
            source, pivot = (model.config.hidden_size for model, _ in self.encoders.values())
            # Vectors of different sizes are not comparable before they are mapped.
            if source == pivot:
                self._score("before", None)

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
        """Learn the map of each language, score them, and return them by language."""
        self.prepare()
        with phase(self.record, "mapping"):
            self._learn_maps()
        with phase(self.record, "scoring"):
            self._score("after", self.maps)
        return self.maps

    def _matched(self, language: str) -> tuple[Matched, Tensor, Tensor]:
        if self.args.supervision == "dictionary":
            return super()._matched(language)
        pairs = self.training[language]
        return pairs, pairs.source, pairs.target

    def seeded(self, args: MappingConfig) -> Self:
        """Return a trainer of the same vectors and scores before, for a run of another seed and output folder."""
        trainer = copy.copy(self)
        trainer.args, trainer.record = args, copy.deepcopy(self.record) | {"seed": args.seed}
        trainer.maps, trainer.coverage, trainer.examples = {}, {}, {**self.examples}
        return trainer

    # ---- Files ----

    def _save_more(self, folder: Path) -> dict[str, str]:
        return self._save_adapter(folder) | keep_links(self.eval_dataset, folder)

    def _save_adapter(self, folder: Path) -> dict[str, str]:
        """Write the tokenizer, and the maps as an adapter where one can hold them; return its folder by its name."""
        (model, tokenizer), (pivot_model, _) = self.encoders.values()
        if model is not pivot_model:
            self.show("model    none: the two languages have an encoder each; LanguageMap.load reads the maps")
            return {}
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
