"""What a run works with: the encoder, the linked training text, and the links that it is scored on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.embedded import resolve_model
from hf_xalign.data.parallel import load_sources, parse_source
from hf_xalign.data.word_alignment import align_words, link_statistics
from hf_xalign.evaluation.frozen_links import make_evaluation_links, read_links
from hf_xalign.evaluation.scores import Scores, score_retrieval
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.modeling.word_vectors import extract_word_vectors
from hf_xalign.recipes.common import DataArguments
from hf_xalign.record import hub_id
from hf_xalign.trainers.base import AlignmentConfig

logger = logging.getLogger(__name__)

EVAL_LINKS = "eval_links.jsonl"
# English sentences that the drift check looks at.
_DRIFT_SENTENCES = 500


@dataclass
class Material:
    """The encoder and the data of a run.

    Attributes:
        model: the encoder, float32, on the run's device.
        tokenizer: its fast tokenizer.
        train: word-linked training pairs.
        evaluation: word-linked held-out pairs; pairs without a link are in it, as candidates.
        link_counts: statistics of the training links, by language pair.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    train: Dataset
    evaluation: Dataset
    link_counts: dict[str, dict[str, Any]]

    @property
    def languages(self) -> list[str]:
        """The languages that are lined up with the pivot."""
        return sorted({pair.rpartition("-")[0] for pair in self.link_counts})

    def score(self, args: AlignmentConfig, when: str) -> Scores:
        """The headline score for each language: mean and last-subword pooling, linked and all occurrences."""
        return score_retrieval(
            self.model,
            self.tokenizer,
            self.evaluation,
            poolings=("mean", "last"),
            all_occurrences=True,
            batch_size=args.per_device_eval_batch_size,
            dtype=torch.bfloat16 if args.bf16 else None,
            desc=f"Scoring {when}",
        )

    def pivot_vectors(self, args: AlignmentConfig) -> torch.Tensor:
        """Last-layer vectors (words, dim) of held-out pivot text, for the drift check."""
        sentences = self.evaluation["target_words"][:_DRIFT_SENTENCES]
        found = extract_word_vectors(self.model, self.tokenizer, sentences, batch_size=args.per_device_eval_batch_size)
        return found.vectors[found.present, 0]


def load_material(data: DataArguments, args: AlignmentConfig, *, resume: bool = False) -> Material:
    """Load the encoder and the text, link the words, and fix the links to score on.

    A resumed run scores on the links that its folder holds.

    Raises:
        InputError: anything that the data arguments name is missing or malformed.
    """
    options: dict[str, Any] = {"target_lang": data.target_lang, "on_empty": data.on_empty}
    with args.main_process_first(desc="loading and linking the text"):
        train = load_sources(data.train_data, split=data.train_split, max_pairs=data.max_train_pairs, **options)
        kept = Path(args.output_dir) / EVAL_LINKS
        if data.eval_links or (resume and kept.exists()):
            evaluation = read_links(data.eval_links or kept)
        else:
            test = load_sources(data.eval_data, split=data.eval_split, max_pairs=data.max_eval_pairs, **options)
            evaluation = make_evaluation_links(test, train)
    with args.main_process_first(desc="making the embedded encoder"):
        path = resolve_model(data.model_name_or_path)
    model = load_encoder(path, revision=data.model_revision)
    cast(nn.Module, model).to(args.device)
    tokenizer = AutoTokenizer.from_pretrained(path, revision=data.model_revision)
    if getattr(args, "subword_links", False):
        train = train.map(_subwords, fn_kwargs={"tokenizer": tokenizer}, batched=True, desc="Splitting into subwords")
    encoder: dict[str, Any] = {"model": model, "tokenizer": tokenizer} if data.aligner == "encoder" else {}
    with args.main_process_first(desc="linking the words"):
        linked = align_words(
            train,
            data.aligner,
            data.symmetrization,
            data.one_to_one,
            data.drop_identical,
            seed=args.seed,
            **encoder,
        )
    counts = {
        pair: {
            "pairs": found.pairs,
            "dropped pairs": found.dropped,
            "links": found.links,
            "links a pair": round(found.links_per_pair, 2),
        }
        for pair, found in link_statistics(linked, train).items()
    }
    return Material(model, tokenizer, linked, evaluation, counts)


def _subwords(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[str]]]:
    """The tokenizer's own tokens in the place of words, which `align_words` then links."""
    return {f"{side}_words": [tokenizer.tokenize(text) for text in batch[side]] for side in ("source", "target")}


def describe_sources(items: list[str], split: str, dataset: Dataset) -> list[dict[str, Any]]:
    """The record's entry of each source of `dataset`."""
    pairs = {pair.rpartition("-")[0]: found.pairs for pair, found in link_statistics(dataset).items()}
    described = []
    for item in items:
        source, language = parse_source(item)
        described.append(
            {
                "source": item,
                "hub_id": hub_id(source),
                "language": language,
                "split": split,
                "pairs": pairs.get(language or ""),
                "fingerprint": dataset._fingerprint,
            }
        )
    return described
