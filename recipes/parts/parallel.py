"""Parallel text of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from datasets import Dataset

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.encoding import set_prompt
from hf_xalign.data.load import draw_pairs, load_parallel, sources
from hf_xalign.data.parallel import warn_of_overlap
from hf_xalign.data.pretraining.rows import encode_sentence_pairs
from hf_xalign.evaluation.scores import Protocol, read_protocols
from hf_xalign.links.frozen import read_links
from hf_xalign.links.linking import Linking
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.recipes.parts.arguments import DataArguments, MappingArguments, TextArguments
from hf_xalign.recipes.parts.run import RunText
from hf_xalign.record import EVAL_LINKS, Record
from hf_xalign.trainers.base.probes import Probe, probe_entries, read_probes
from hf_xalign.trainers.base.run import about_scores, compared_by
from hf_xalign.trainers.base.word_config import WordAlignmentConfig
from hf_xalign.trainers.ppa_config import PPAConfig


@dataclass
class Corpus(RunText):
    """Parallel text of a run, and how the trainer links it; held-out pairs without links serve as candidates."""

    data: TextArguments
    train: Dataset
    evaluation: Dataset
    linking: Linking | None = None
    protocols: tuple[Protocol, ...] = (Protocol(),)
    probes: list[Probe] = field(default_factory=list)

    def about_seed(self, metric: str, settings: Record, seed: int) -> Record:
        """Return the fields of a seed's `scores.json`."""
        texts = {"train": sources(self.train), "eval": sources(self.evaluation), **probe_entries(self.probes)}
        return about_scores(compared_by(metric), seed, settings, texts, model=self.data.model_name_or_path)


def load_word_corpus(data: DataArguments, args: WordAlignmentConfig) -> Corpus:
    """Read the text of a loss on linked words; a resumed run keeps the evaluation links of its folder."""
    links_file = Path(args.output_dir) / EVAL_LINKS
    kept = str(links_file) if args.resume_from_checkpoint and links_file.exists() else None
    corpus = read_text(data, data.eval_links or kept, links=args.loss.reads("links"))
    corpus.linking = read_linking(data, args)
    return corpus


def load_sentence_corpus(data: TextArguments, args: PPAConfig) -> Corpus:
    """Read sentence pairs, and draw from those that PPA trains on."""
    corpus = read_text(data, links=False)
    if data.max_train_pairs is not None:
        tokenizer = load_tokenizer(resolve_model(data.model_name_or_path), revision=data.model_revision)
        if args.prompt:
            set_prompt(tokenizer, args.prompt)
        usable = np.zeros(len(corpus.train), dtype=bool)
        limits = {"min_tokens": args.min_tokens, "max_tokens": args.max_tokens}
        usable[encode_sentence_pairs(corpus.train, tokenizer, **limits)["pair"][:]] = True
        corpus.train = draw_pairs(corpus.train, usable, data.max_train_pairs, args.seed, args.draw)
    return corpus


def read_text(data: TextArguments, eval_links: str | None = None, *, links: bool = True) -> Corpus:
    """Read all pairs of a run, before an encoder is loaded.

    `eval_links` is a file of linked held-out text. A loss without `links` trains on pairs without links too.
    """
    protocols, probes = read_protocols(getattr(data, "protocol", None)), read_probes(data.probe)
    options = data.columns()
    train = load_parallel(data.train_data, split=data.train_split, keep_unlinked=not links, **options)
    if eval_links:
        evaluation = read_links(eval_links)
    else:
        evaluation = load_parallel(data.eval_data, split=data.eval_split, max_pairs=data.max_eval_pairs, **options)
        warn_of_overlap(train, evaluation)
    return Corpus(data, train, evaluation, protocols=protocols, probes=probes)


def read_linking(data: DataArguments, args: WordAlignmentConfig | MappingArguments) -> Linking:
    """Return how a trainer links its pairs."""
    return Linking(
        data.aligner,
        data.symmetrization,
        data.one_to_one,
        max_pairs=data.max_train_pairs,
        draw=args.draw,
        seed=args.seed,
    )
