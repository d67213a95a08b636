"""What a run works with: the encoder, the linked training text, and the links that it is scored on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hf_xalign.evaluation.scores import Scores, score_retrieval
from hf_xalign.links.frozen import write_links
from hf_xalign.modeling.word_vectors import extract_word_vectors
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.tuner import speaking
from hf_xalign.recipes.parts.common import DataArguments
from hf_xalign.recipes.parts.text import describe_links, load_text
from hf_xalign.recipes.parts.training_material import DRIFT_SENTENCES, TrainingMaterial, load_checked
from hf_xalign.trainers.shared.word_config import WordAlignmentConfig

EVAL_LINKS = "eval_links.jsonl"


@dataclass
class Material(TrainingMaterial):
    """The encoder and the data of a run.

    Attributes:
        train: word-linked training pairs.
        evaluation: word-linked held-out pairs; pairs without a link are in it, as candidates.
        link_counts: statistics of the training links, by language pair.
        sources: the record's entries of the training and the held-out text.
    """

    link_counts: dict[str, dict[str, Any]]
    sources: dict[str, list[dict[str, Any]]]

    def describe(self) -> list[str]:
        """The text and its links, a line a language pair."""
        return describe_links(self.link_counts, self.evaluation)

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

    def pivot_vectors(self, args: WordAlignmentConfig) -> torch.Tensor:
        """Last-layer vectors (words, dim) of held-out pivot text, for the drift check."""
        rows = self.evaluation.select(range(min(DRIFT_SENTENCES, len(self.evaluation))))
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
    model, tokenizer = load_checked(data, args)
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
