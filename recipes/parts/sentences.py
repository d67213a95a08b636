"""Encoder and sentence pairs of a PPA run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_xalign.data.encoding import check_pieces
from hf_xalign.data.mapped import count_languages
from hf_xalign.data.sentence_pairs import encode_sentence_pairs
from hf_xalign.modeling.contrast.heads import SentencePooling
from hf_xalign.recipes.parts.common import TextArguments
from hf_xalign.recipes.parts.parallel import (
    Corpus,
    draw_pairs,
    first_pairs,
    load_checked,
    read_text,
)
from hf_xalign.trainers.ppa_config import PPAConfig


@dataclass
class SentenceCorpus(Corpus):
    """Encoder and sentence pairs of a run."""

    pooling: SentencePooling = "mean"

    def describe(self) -> list[str]:
        """Describe the text, one line for each language."""
        counts = sorted(count_languages(self.train).items())
        texts = [f"text     {code}: {n} pairs" for code, n in counts]
        return [*texts, *first_pairs(self.train), f"held out {len(self.evaluation)} pairs"]


def load_sentence_corpus(data: TextArguments, args: PPAConfig, *, resume: str | None = None) -> SentenceCorpus:
    """Load the text and the encoder."""
    with args.main_process_first(desc="reading the text"):
        text = read_text(data, links=False)
    train = text.train
    model, tokenizer = load_checked(data, args)
    check_pieces(train, tokenizer, ", ".join(data.train_data))
    check_pieces(text.evaluation, tokenizer, "the held-out text")
    with args.main_process_first(desc="drawing pairs"):
        if data.max_train_pairs is not None:
            limits = {"min_tokens": args.min_tokens, "max_tokens": args.max_tokens}
            kept = np.zeros(len(train), dtype=bool)
            kept[encode_sentence_pairs(train, tokenizer, **limits).dataset["pair"][:]] = True
            train = draw_pairs(train, kept, text.sources["train"], data.max_train_pairs, args.seed, args.draw)
    return SentenceCorpus(model, tokenizer, train, text.evaluation, text.sources, pooling=args.sentence_pooling)
