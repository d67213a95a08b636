"""Extract word vectors from MAO's modules, which see a sentence as a sequence of words, not of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.modeling.word_vectors import WordVectors, hidden_batches, word_spans


def extract_word_view(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    *,
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    specials: bool = False,
    desc: str | None = None,
) -> WordVectors:
    """Extract the module's output for every word, pooled as its config says.

    Returns:
        The vectors, (words, 1, dim).
    """
    input_ids, parts = word_spans(model, tokenizer, sentences, max_length=max_length, specials=specials)
    counts = np.array([len(part) for part in parts], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    present = np.concatenate([*parts, np.zeros((0, 2), dtype=np.int64)])[:, 1] > 0
    vectors = torch.zeros(int(offsets[-1]), 1, model.config.hidden_size)

    def spans(rows: np.ndarray) -> dict[str, torch.Tensor]:
        padded = np.zeros((len(rows), max(1, counts[rows].max()), 2), dtype=np.int64)
        for k, row in enumerate(rows):
            padded[k, : counts[row]] = parts[row]
        return {"word_spans": torch.from_numpy(padded)}

    batches = hidden_batches(
        model,
        input_ids,
        tokenizer.pad_token_id,
        [model.config.num_hidden_layers],
        batch_size=batch_size,
        dtype=dtype,
        desc=desc,
        extra=spans,
    )
    for rows, _, (words,) in batches:
        inside = torch.from_numpy(np.arange(words.shape[1]) < counts[rows][:, None])
        places = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows])
        vectors[torch.from_numpy(places), 0] = words.float().cpu()[inside]
    vectors[torch.from_numpy(~present)] = 0.0
    return WordVectors(vectors, torch.from_numpy(offsets), torch.from_numpy(present))
