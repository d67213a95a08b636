"""Encoder and parallel text of a training run, loaded, word-aligned, and scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.arrow import count_languages
from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.corpus import draw_pairs, first_pairs, warn_of_mixed_texts
from hf_xalign.data.encoding import check_pieces, set_prompt
from hf_xalign.data.load import concatenate, load_parallel, sources
from hf_xalign.data.sentence_pairs import encode_sentence_pairs
from hf_xalign.evaluation.scores import (
    Protocol,
    check_protocols,
    fill_words,
    read_protocols,
)
from hf_xalign.links.align import Linking
from hf_xalign.links.frozen import make_evaluation_links, read_links
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.recipes.parts.arguments import DataArguments, TextArguments
from hf_xalign.recipes.parts.run import RunText, about_seed, keep_seed
from hf_xalign.record import EVAL_LINKS, base_entry
from hf_xalign.trainers.base.probes import Probe, read_probes
from hf_xalign.trainers.base.word_config import WordAlignmentConfig
from hf_xalign.trainers.ppa_config import PPAConfig


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
        return {"data": self.sources, "links": self.link_counts, "linked_by": self.linked_by}

    def encoder(self, args: Any) -> PreTrainedModel:
        """Return the encoder for a trainer, which is loaded again when another trainer has taken it."""
        model, self.model = self.model or load_checked(self.data, args)[0], None
        return model

    def about_seed(self, *about: Any) -> dict[str, Any]:
        """Return the fields of a seed's `scores.json`, as [`~hf_xalign.recipes.parts.run.about_seed`] does."""
        kinds = ("train", "test") if self.probes else ()
        probed = {f"probe_{kind}": [entry for probe in self.probes for entry in probe.entries(kind)] for kind in kinds}
        return about_seed(self.sources | probed, self.data.model_name_or_path, *about)

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


def read_text(data: TextArguments, eval_links: str | None = None, *, links: bool = True) -> Corpus:
    """Read all pairs of a run, which needs no encoder: a bad row is reported before one loads.

    `eval_links` is a file of linked held-out text. A loss that needs no `links` is trained on the pairs without links
    too.
    """
    protocols = read_protocols(getattr(data, "protocol", None))
    options: dict[str, Any] = data.reading()
    train = load_parallel(data.train_data, split=data.train_split, keep_unlinked=not links, **options)
    entries = {"train": sources(train)}
    if eval_links:
        evaluation = read_links(eval_links)
        entries["eval"] = [{"source": eval_links, "hub_id": None, "pairs": len(evaluation)}]
    else:
        evaluation = load_parallel(data.eval_data, split=data.eval_split, max_pairs=data.max_eval_pairs, **options)
        entries["eval"] = sources(evaluation)
        warn_of_mixed_texts(train, evaluation)
    aligner_text = None
    if aligner_data := getattr(data, "aligner_data", None):
        aligner_text = load_parallel(aligner_data, split=data.train_split, **options)
        entries["aligner"] = sources(aligner_text)
    return Corpus(data, train, evaluation, entries, aligner_text, eval_links is not None, protocols=protocols)


def link_text(
    corpus: Corpus,
    *,
    subwords: bool = False,
    pivot_tokenizer: PreTrainedTokenizerBase | None = None,
    links: bool = True,
    **options: Any,
) -> Corpus:
    """Word-align the training pairs, and the held-out pairs unless they were read from a file of links.

    `subwords` links tokens, not words; without `links` the pairs get none. `options` are others of
    [`~hf_xalign.links.align.Linking`]: `drop_identical`, `draw` and `seed`.
    """
    data, tokenizer = cast(DataArguments, corpus.data), corpus.tokenizer
    train, evaluation = corpus.train, corpus.evaluation
    corpus.check_pieces(pivot_tokenizer)
    if not corpus.links_given:
        text = train if corpus.more is None else concatenate([train, corpus.more])
        evaluation = make_evaluation_links(evaluation, text)
    for vocabulary in (tokenizer, pivot_tokenizer or tokenizer):
        check_protocols(corpus.protocols, vocabulary, evaluation)
    linking = Linking(
        data.aligner,
        data.symmetrization,
        data.one_to_one,
        subwords=subwords,
        extra_data=corpus.more,
        max_pairs=data.max_train_pairs,
        **options,
    )
    entries = corpus.sources["train"]
    chosen, counts, by = linking.apply(train, entries, links=links, model=corpus.model, tokenizer=tokenizer)
    return replace(corpus, train=chosen, evaluation=evaluation, link_counts=counts, linked_by=by)


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
        data, args, data.eval_links or (str(links_file) if resume and links_file.exists() else None), links=links
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
