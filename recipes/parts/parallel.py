"""Encoder and parallel text of a training run, loaded, word-aligned, and scored."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.compute
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import is_whole, map_rows
from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.encoding import check_pieces, set_prompt
from hf_xalign.data.mapped import count_languages, scan_columns
from hf_xalign.data.parallel import concatenate, describe_pair, hub_commit, load_sources
from hf_xalign.data.sentence_pairs import encode_sentence_pairs
from hf_xalign.data.sources import parse_source
from hf_xalign.data.words import split_pairs
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import (
    Protocol,
    check_protocols,
    fill_words,
    read_protocols,
)
from hf_xalign.links.align import align_words, link_statistics
from hf_xalign.links.frozen import make_evaluation_links, read_links
from hf_xalign.modeling import loading
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.recipes.parts.arguments import DataArguments, ParallelText, TextArguments
from hf_xalign.recipes.parts.probes import Probe, read_probes
from hf_xalign.recipes.parts.run import RunText, about_seed, keep_seed
from hf_xalign.record import EVAL_LINKS, base_entry, hub_id
from hf_xalign.trainers.base.alignment_config import Draw
from hf_xalign.trainers.base.word_config import WordAlignmentConfig
from hf_xalign.trainers.ppa_config import PPAConfig

logger = logging.getLogger(__name__)


@dataclass
class Corpus(RunText):
    """Encoder and parallel text of a run; held-out pairs without links serve as candidates.

    `model` is None before the encoder is loaded, and once a trainer was made of it; the next one gets the encoder as
    `data` names it. `more` is text that aligners are fitted on too, `sources` are the record's entries of all text.
    """

    data: TextArguments
    train: Dataset
    evaluation: Dataset
    sources: dict[str, list[dict[str, Any]]]
    more: Dataset | None = None
    links_given: bool = False  # of the held-out pairs
    model: Any = None
    tokenizer: Any = None  # with the model
    link_counts: dict[str, dict[str, Any]] = field(default_factory=dict)
    protocols: tuple[Protocol, ...] = (Protocol(),)
    linked_by: str | None = None
    probes: list[Probe] = field(default_factory=list)

    @property
    def languages(self) -> list[str]:
        """Languages to align with the pivot, sorted."""
        return sorted(count_languages(self.train))

    def describe(self) -> list[str]:
        """Describe encoder and text, one line for each language pair, and the held-out text."""
        counts: Mapping[str, Mapping[str, Any]] = self.link_counts or {
            code: {"pairs": pairs} for code, pairs in sorted(count_languages(self.train).items())
        }
        held_out = [f"{pairs} pairs of {code}" for code, pairs in sorted(count_languages(self.evaluation).items())]
        links = sum(map(len, self.evaluation["links"][:])) if "links" in self.evaluation.column_names else None
        return [
            encoder_line(self.data.model_name_or_path, self.model),
            *(
                f"text     {pair}: " + ", ".join(f"{value} {name}" for name, value in numbers_of.items())
                for pair, numbers_of in counts.items()
            ),
            *first_pairs(self.train),
            "held out " + ", ".join(held_out + ([] if links is None else [f"{links} links"])),
        ]

    def check_pieces(self, pivot_tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        """Raise an InputError for text in a script that a tokenizer does not know."""
        for text, name in ((self.train, ", ".join(self.data.train_data)), (self.evaluation, "the held-out text")):
            check_pieces(text, self.tokenizer, name, pivot_tokenizer)

    def entries(self) -> dict[str, Any]:
        """Return the arguments of [`~hf_xalign.record.start_record`] on the text."""
        kinds = ("train", "test") if self.probes else ()
        probed = {f"probe_{kind}": [entry for probe in self.probes for entry in probe.entries(kind)] for kind in kinds}
        return {"data": self.sources | probed, "links": self.link_counts, "linked_by": self.linked_by}

    def trainer(self, trainer_class: type[Any], args: Any) -> Any:
        """Return a trainer of the given class for this encoder and text."""
        model, self.model = self.model or load_checked(self.data, args)[0], None
        trainer = trainer_class(
            model, args, train_dataset=self.train, eval_dataset=self.evaluation, processing_class=self.tokenizer
        )
        if run := trainer.run:
            run.base_model, run.probes, run.protocols = self.data.model_name_or_path, self.probes, self.protocols
        return trainer

    def about_seed(self, *about: Any) -> dict[str, Any]:
        """Return the fields of a seed's `scores.json`, as [`~hf_xalign.recipes.parts.run.about_seed`] does."""
        return about_seed(self.entries()["data"], self.data.model_name_or_path, *about)

    def keep_seed(self, trainer: Any, folder: Path, how: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the scores of a seed's examples, and return the content of its `scores.json`."""
        run = trainer.run
        fill_words(run.examples, getattr(trainer.args, "pooling", ""))
        return keep_seed(folder, run.examples, how, run.record, self.probes, run.probed)


def encoder_line(name: str, model: Any) -> str:
    """Describe the encoder."""
    parameters = sum(p.numel() for p in model.parameters())
    return f"encoder  {base_entry(name)['name']}: {parameters / 1e6:.1f} million parameters"


def load_checked(data: TextArguments, args: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the encoder, in float32 on the run's device, and its tokenizer, and check that the settings fit them."""
    with args.main_process_first(desc="making the built-in encoder"):
        path = resolve_model(data.model_name_or_path)
    model = load_encoder(path, revision=data.model_revision)
    tokenizer = load_tokenizer(path, revision=data.model_revision)
    if prompt := getattr(args, "prompt", None):
        set_prompt(tokenizer, prompt)
    args.check_model(model, tokenizer)
    cast(nn.Module, model).to(args.device)
    return model, tokenizer


def source_entry(item: str, text: Dataset | None = None, **more: Any) -> dict[str, Any]:
    """Return the record's entry of a text."""
    source, language = parse_source(item)
    revision = None if text is None else hub_commit(text)
    entry = {"source": item, "hub_id": hub_id(source.partition(":")[0]), "language": language, "revision": revision}
    return {**entry, **more}


def load_parts(
    items: list[str], split: str, max_pairs: int | None, data: ParallelText, *, keep_unlinked: bool = False
) -> tuple[Dataset, list[dict[str, Any]]]:
    """Load sources, each up to `max_pairs`, as one corpus, with the record's entry of each.

    Pairs of linked shards that have no link are dropped unless `keep_unlinked`.
    """
    options = {"on_empty": data.on_empty, "keep_unlinked": keep_unlinked, **data.columns()}
    texts, entries = [], []
    for item in items:
        text = load_sources([item], split=split, max_pairs=max_pairs, **options)
        entries.append(source_entry(item, text, split=split, pairs=len(text), fingerprint=text._fingerprint))
        texts.append(text)
    return concatenate(texts), entries


def read_text(data: TextArguments, eval_links: str | None = None, *, links: bool = True) -> Corpus:
    """Read all pairs of a run, which needs no encoder: a bad row is reported before one loads.

    `eval_links` is a file of linked held-out text. A loss that needs no `links` is trained on the pairs without links
    too.
    """
    protocols, sources = read_protocols(getattr(data, "protocol", None)), {}
    train, sources["train"] = load_parts(data.train_data, data.train_split, None, data, keep_unlinked=not links)
    if eval_links:
        evaluation = read_links(eval_links)
        sources["eval"] = [{"source": eval_links, "hub_id": None, "pairs": len(evaluation)}]
    else:
        evaluation, sources["eval"] = load_parts(data.eval_data, data.eval_split, data.max_eval_pairs, data)
        warn_of_mixed_texts(train, evaluation)
    aligner_text = None
    if aligner_data := getattr(data, "aligner_data", None):
        aligner_text, sources["aligner"] = load_parts(aligner_data, data.train_split, None, data)
    return Corpus(data, train, evaluation, sources, aligner_text, eval_links is not None, protocols=protocols)


def link_text(
    corpus: Corpus,
    *,
    subwords: bool = False,
    links: bool = True,
    drop_identical: bool = False,
    draw: Draw = "seed",
    seed: int = 0,
    pivot_tokenizer: PreTrainedTokenizerBase | None = None,
) -> Corpus:
    """Word-align the training pairs, and the held-out pairs unless they were read from a file of links.

    `subwords` links tokens, not words. Without `links` the training pairs have none, and all of them stay.
    Aligners are fitted on all the text, also where `max_train_pairs` draws from the pairs with links.
    """
    data, model, tokenizer = cast(DataArguments, corpus.data), corpus.model, corpus.tokenizer
    train, evaluation, sources, protocols = corpus.train, corpus.evaluation, corpus.sources, corpus.protocols
    corpus.check_pieces(pivot_tokenizer)
    if not corpus.links_given:
        text = train if corpus.more is None else concatenate([train, corpus.more])
        evaluation = make_evaluation_links(evaluation, text)
    for vocabulary in (tokenizer, pivot_tokenizer or tokenizer):
        check_protocols(protocols, vocabulary, evaluation)
    aligner, encoder = data.aligner, dict[str, Any]()
    if aligner == "encoder":
        encoder = {"model": model, "tokenizer": tokenizer}
    elif aligner.startswith("encoder:"):
        aligner, _, name = aligner.partition(":")
        encoder["model"], encoder["tokenizer"] = loading.load_encoder(name, model.device)
    if encoder and data.max_train_pairs is not None:
        # The encoder links each pair alone, and slowly: it sees a tenth more pairs than are wanted, not all.
        most = data.max_train_pairs * 11 // 10 + 100
        if any(entry["pairs"] > most for entry in sources["train"]):
            train = draw_pairs(train, np.ones(len(train), dtype=bool), sources["train"], most, seed, draw)
    pairs, fit = train, corpus.more
    if subwords and "source_words" in train.column_names:
        raise InputError(
            "subword_links=true links tokens, and train_data has words of its own. Name text without words."
        )
    if subwords:
        pairs, fit = (
            part and map_rows(part, _subwords, fn_kwargs={"tokenizer": tokenizer}, desc="Splitting subwords")
            for part in (train, corpus.more)
        )
    rules = (aligner, data.symmetrization, data.one_to_one, drop_identical)
    if "links" in pairs.column_names:
        linked, by = pairs, "given" if links else "none"
        if links and drop_identical:
            logger.warning("drop_identical=true: train_data has links of its own, which all stay")
    elif links:
        by = aligner.partition(":")[0]
        linked = align_words(pairs, *rules, keep_unlinked=True, extra_data=fit, seed=seed, **encoder)
    else:
        linked, by = split_pairs(pairs), "none"
    has_link = has_links(linked) if links else np.ones(len(pairs), dtype=bool)
    chosen = draw_pairs(linked, has_link, sources["train"], data.max_train_pairs, seed, draw)
    # A pass over millions of pairs takes seconds.
    dropped = {} if has_link.all() else link_statistics(linked.select(np.flatnonzero(has_link)), linked)
    counts = {
        pair: {
            "pairs": statistics.pairs,
            "dropped pairs": dropped[pair].dropped if dropped else 0,
            "links": statistics.links,
            "links a pair": round(statistics.links_per_pair, 2),
        }
        for pair, statistics in link_statistics(chosen).items()
    }
    return replace(corpus, train=chosen, evaluation=evaluation, link_counts=counts, linked_by=by)


def warn_of_mixed_texts(train: Dataset, test: Dataset) -> None:
    """Warn of held-out pairs that are trained on too, and of languages that only one of the texts has."""
    held_out = pyarrow.concat_arrays(list(_texts(test)))
    shared = (text.filter(pyarrow.compute.is_in(text, value_set=held_out)) for text in _texts(train))
    in_both = pyarrow.concat_arrays(list(shared))
    if count := pyarrow.compute.is_in(held_out, value_set=in_both).true_count:
        logger.warning(
            "%s of the %s held-out pairs are in the training text too, so that the scores say less about new text",
            f"{count:,}",
            f"{len(test):,}",
        )
    trained, counts = sorted(count_languages(train)), count_languages(test)
    for language in sorted(counts.keys() - set(trained)):
        trained_codes = ", ".join(trained)
        logger.warning(
            "%s held-out pairs are in %s: no training pair is, only %s", counts[language], language, trained_codes
        )
    if unscored := sorted(set(trained) - counts.keys()):
        logger.warning("no held-out pair is in %s, so it has no scores: give some by eval_data", ", ".join(unscored))


def first_pairs(pairs: Dataset) -> list[str]:
    """Describe the first pair of each source language, one line each, and which side is the pivot."""
    first_rows: dict[str, int] = {}
    start = 0
    for batch in scan_columns(pairs, "source_lang"):
        codes = batch["source_lang"].combine_chunks()
        for code in codes.unique().to_pylist():
            first_rows.setdefault(code, start + codes.index(code).as_py())
        start += len(codes)
    return [f"first    {describe_pair(pairs[row])}" for _, row in sorted(first_rows.items())]


def _texts(pairs: Dataset) -> Iterator[Any]:
    for batch in scan_columns(pairs, "source", "target"):
        sides = (batch[name].combine_chunks() for name in ("source", "target"))
        yield pyarrow.compute.binary_join_element_wise(*sides, "\t")


def draw_pairs(
    text: Dataset,
    usable: np.ndarray,
    sources: list[dict[str, Any]],
    max_pairs: int | None,
    seed: int,
    draw: Draw = "seed",
) -> Dataset:
    """Select the pairs that the filters kept, bool (rows,), or of each source the first of them or a seeded draw.

    A larger draw holds a smaller one of the same seed. The sources' entries get `draw` and the numbers of pairs drawn.
    """
    if max_pairs is None and usable.all():
        return text  # its indices would need more memory than all else
    chosen, start = [], 0
    for number, entry in enumerate(sources):
        rows = start + np.flatnonzero(usable[start : start + entry["pairs"]])
        start += entry["pairs"]
        if max_pairs is not None:
            drawn = rows if draw == "first" else np.random.default_rng([seed, number]).permutation(rows)
            rows = np.sort(drawn[:max_pairs])
            if len(rows) < max_pairs:
                logger.warning(
                    "%s: all %s pairs are used: %s were asked for", entry["source"], f"{len(rows):,}", f"{max_pairs:,}"
                )
            entry |= {"pairs": len(rows), "draw": draw}
        chosen.append(rows)
    return text.select(np.concatenate(chosen))


def has_links(linked: Dataset) -> np.ndarray:
    """Return which pairs have links, bool (rows,)."""
    batches = scan_columns(linked, "links")
    return np.concatenate([pyarrow.compute.list_value_length(batch["links"]).to_numpy() > 0 for batch in batches])


def _subwords(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[str]]]:
    """Use tokens as words, for `align_words` to link."""
    return {f"{side}_words": [tokenizer.tokenize(text) for text in batch[side]] for side in ("source", "target")}


def load_sentence_corpus(data: TextArguments, args: PPAConfig, *, resume: str | None = None) -> Corpus:
    """Read sentence pairs, and load the encoder."""
    corpus = _load(data, args, None, links=False)
    corpus.check_pieces()
    with args.main_process_first(desc="drawing pairs"):
        if data.max_train_pairs is not None:
            limits = {"min_tokens": args.min_tokens, "max_tokens": args.max_tokens}
            usable = np.zeros(len(corpus.train), dtype=bool)
            usable[encode_sentence_pairs(corpus.train, corpus.tokenizer, **limits).dataset["pair"][:]] = True
            limit = (data.max_train_pairs, args.seed, args.draw)
            corpus.train = draw_pairs(corpus.train, usable, corpus.sources["train"], *limit)
    return corpus


def load_word_corpus(data: DataArguments, args: WordAlignmentConfig, *, resume: str | None = None) -> Corpus:
    """Read the text, load the encoder and link the words; a resumed run keeps the evaluation links of its folder."""
    links_file, links = Path(args.output_dir) / EVAL_LINKS, args.loss.reads("links")
    corpus = _load(
        data, args, data.eval_links or (str(links_file) if resume and is_whole(links_file) else None), links=links
    )
    options: Any = {name: getattr(args, name) for name in ("drop_identical", "draw", "seed")}
    with args.main_process_first(desc="linking the text"):
        return link_text(corpus, subwords=args.subword_links, links=links, **options)


def _load(data: TextArguments, args: Any, eval_links: str | None, *, links: bool) -> Corpus:
    probes = read_probes(data.probe)
    with args.main_process_first(desc="reading the text"):
        corpus = read_text(data, eval_links, links=links)
    model, tokenizer = load_checked(data, args)
    return replace(corpus, model=model, tokenizer=tokenizer, probes=probes)
