"""What a run works with: the encoder, the linked training text, and the links that it is scored on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from datasets import Dataset
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.embedded import resolve_model
from hf_xalign.evaluation.frozen_links import write_links
from hf_xalign.evaluation.scores import Scores, score_retrieval
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.modeling.tuner import XAlignConfig, speaking
from hf_xalign.modeling.word_vectors import extract_word_vectors
from hf_xalign.recipes.common import DataArguments
from hf_xalign.recipes.text import load_text
from hf_xalign.trainers.word import WordAlignmentTrainer
from hf_xalign.trainers.word_config import WordAlignmentConfig

T = TypeVar("T", bound=WordAlignmentTrainer)

EVAL_LINKS = "eval_links.jsonl"
# English sentences that the drift check looks at.
_DRIFT_SENTENCES = 500


@dataclass
class Material:
    """The encoder and the data of a run.

    Attributes:
        model: the encoder, float32, on the run's device; from [`Material.trainer`] on, what is trained.
        tokenizer: its fast tokenizer.
        train: word-linked training pairs.
        evaluation: word-linked held-out pairs; pairs without a link are in it, as candidates.
        link_counts: statistics of the training links, by language pair.
        sources: the record's entries of the training and the held-out text.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    train: Dataset
    evaluation: Dataset
    link_counts: dict[str, dict[str, Any]]
    sources: dict[str, list[dict[str, Any]]]

    @property
    def languages(self) -> list[str]:
        """The languages that are lined up with the pivot."""
        found: set[str] = set()
        for batch in self.train.select_columns(["source_lang"]).iter(100_000):
            found.update(batch["source_lang"])
        return sorted(found)

    def describe(self) -> list[str]:
        """The text and its links, a line a language pair."""
        counted = {
            pair: ", ".join(f"{value} {name}" for name, value in counts.items())
            for pair, counts in self.link_counts.items()
        }
        links = sum(map(len, self.evaluation["links"][:]))
        return [
            *(f"text     {pair}: {counts}" for pair, counts in counted.items()),
            f"held out {len(self.evaluation)} pairs, {links} links",
        ]

    def keep(self, folder: Path) -> None:
        """Write down what the run is scored on, before it begins."""
        write_links(self.evaluation, folder / EVAL_LINKS)

    def export(self, folder: Path) -> dict[str, str]:
        """What the folder holds beside the model, record and card: what, and where."""
        return {"evaluation links": str(folder / EVAL_LINKS)}

    def score(self, args: WordAlignmentConfig, when: str) -> Scores:
        """The headline score for each language: mean and last-subword pooling, linked and all occurrences.

        Always in float32, whatever the precision of training, so that scores of different machines compare.
        """
        return score_retrieval(
            self.model,
            self.tokenizer,
            self.evaluation,
            poolings=("mean", "last"),
            all_occurrences=True,
            word_view=isinstance(getattr(self.model, "active_peft_config", None), XAlignConfig),
            batch_size=args.per_device_eval_batch_size,
            desc=f"Scoring {when}",
        )

    def trainer(self, trainer_class: type[T], args: WordAlignmentConfig) -> T:
        """A method's trainer on this encoder and this data."""
        trainer = trainer_class(
            self.model,
            args,
            train_dataset=self.train,
            eval_dataset=self.evaluation,
            processing_class=self.tokenizer,
        )
        self.model = trainer.model
        return trainer

    def pivot_vectors(self, args: WordAlignmentConfig) -> torch.Tensor:
        """Last-layer vectors (words, dim) of held-out pivot text, for the drift check."""
        rows = self.evaluation.select(range(min(_DRIFT_SENTENCES, len(self.evaluation))))
        with speaking(self.model, rows["target_lang"][0]):
            found = extract_word_vectors(
                self.model, self.tokenizer, rows["target_words"][:], batch_size=args.per_device_eval_batch_size
            )
        return found.vectors[found.present, 0]


def load_material(data: DataArguments, args: WordAlignmentConfig, *, resume: str | None = None) -> Material:
    """Load the encoder and the text, link the words, and fix the links to score on.

    A resumed run scores on the links that its folder holds.

    Raises:
        InputError: anything that the data arguments name is missing or malformed, or does not go together.
    """
    with args.main_process_first(desc="making the embedded encoder"):
        path = resolve_model(data.model_name_or_path)
    model = load_encoder(path, revision=data.model_revision)
    tokenizer = AutoTokenizer.from_pretrained(path, revision=data.model_revision)
    args.check_model(model, tokenizer)
    cast(nn.Module, model).to(args.device)
    kept = Path(args.output_dir) / EVAL_LINKS
    with args.main_process_first(desc="loading and linking the text"):
        text = load_text(
            data,
            model,
            tokenizer,
            eval_links=data.eval_links or (str(kept) if resume and kept.exists() else None),
            subwords=args.subword_links,
            seed=args.seed,
        )
    return Material(model, tokenizer, text.train, text.evaluation, text.link_counts, text.sources)
