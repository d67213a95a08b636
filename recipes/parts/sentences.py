"""What PPA works with: the encoder, sentence pairs to train on, and sentence pairs that it is scored on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.evaluation.scores import Scores
from hf_xalign.evaluation.sentence_scores import score_sentences
from hf_xalign.evaluation.vectors import encode_sentences
from hf_xalign.modeling.contrast.heads import SentencePooling
from hf_xalign.modeling.sentence_export import save_sentence_transformer
from hf_xalign.recipes.parts.common import TextArguments
from hf_xalign.recipes.parts.parallel import DRIFT_SENTENCES, Corpus, load_checked, load_parts
from hf_xalign.trainers.ppa_config import PPAConfig


@dataclass
class PPAArguments(TextArguments):
    """The encoder and the text of a run, and what is written beside the checkpoint."""

    sentence_transformer: str | None = field(
        default=None,
        metadata={"help": "Also write a folder that sentence-transformers loads.", "group": "Run"},
    )


@dataclass
class SentenceCorpus(Corpus):
    """The encoder and the data of a run.

    Attributes:
        train: sentence pairs.
        evaluation: held-out sentence pairs.
        sources: the record's entries of the training and the held-out text.
        pooling: how sentences are pooled in training.
        sentence_transformer: a folder for sentence-transformers to write at the end, or None.
    """

    sources: dict[str, list[dict[str, Any]]]
    pooling: SentencePooling
    sentence_transformer: str | None = None

    @property
    def link_counts(self) -> dict[str, dict[str, Any]]:
        """None: sentences are aligned as wholes."""
        return {}

    def describe(self) -> list[str]:
        """The text, a line a language."""
        counts = dict.fromkeys(self.languages, 0)
        for code in self.train["source_lang"][:]:
            counts[code] += 1
        return [
            *(f"text     {code}: {count} pairs" for code, count in counts.items()),
            f"held out {len(self.evaluation)} pairs",
        ]

    def keep(self, folder: Path) -> None:
        """Nothing: the text that is scored is named in the record."""

    def export(self, folder: Path) -> dict[str, str]:
        """Write the folder for sentence-transformers, if one is wished; what was saved, and where."""
        if self.sentence_transformer is None:
            return {}
        save_sentence_transformer(self.model, self.tokenizer, self.sentence_transformer, pooling=self.pooling)
        return {"for sentence-transformers": self.sentence_transformer}

    def score(self, args: PPAConfig, when: str) -> Scores:
        """Sentence retrieval by mean and by [CLS] vectors, cosine, both directions; always in float32."""
        return score_sentences(
            self.model,
            self.tokenizer,
            self.evaluation,
            batch_size=args.per_device_eval_batch_size,
            desc=f"Scoring {when}",
        )

    def pivot_vectors(self, args: PPAConfig) -> torch.Tensor:
        """Vectors (sentences, dim) of held-out pivot sentences, for the drift check."""
        texts = self.evaluation["target"][:DRIFT_SENTENCES]
        vectors = encode_sentences(
            self.model,
            self.tokenizer,
            texts,
            pooling=args.sentence_pooling,
            batch_size=args.per_device_eval_batch_size,
        )
        return vectors[:, 0]


def load_sentence_corpus(data: PPAArguments, args: PPAConfig, *, resume: str | None = None) -> SentenceCorpus:
    """Load the encoder and the text.

    Raises:
        InputError: anything that the data arguments name is missing or malformed, or does not go together.
    """
    model, tokenizer = load_checked(data, args)
    with args.main_process_first(desc="loading the text"):
        train, train_sources = load_parts(data.train_data, data.train_split, data.max_train_pairs, data)
        for side in ("source", "target"):
            check_vocabulary(tokenizer, train[side][:200], f"the {side} side of {', '.join(data.train_data)}")
        evaluation, eval_sources = load_parts(data.eval_data, data.eval_split, data.max_eval_pairs, data)
    sources = {"train": train_sources, "eval": eval_sources}
    return SentenceCorpus(
        model, tokenizer, train, evaluation, sources, args.sentence_pooling, data.sentence_transformer
    )
