"""Sum contextual word vectors over a corpus in one resumable pass."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.token_index import Pooling, word_token_index
from hf_xalign.data.limits import position_limit
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors.cover import CountedText, FindCut, ranges, vocabulary_rows
from hf_xalign.modeling.tensors import write_tensors
from hf_xalign.modeling.word_vectors import hidden_batches, word_spans
from hf_xalign.modeling.xalign.top import TopLayer

# Sentences tokenized at a time.
_BLOCK = 10_000
# Seconds between writes of the progress file: the work that a killed run may lose.
_MARK_SECONDS = 120.0


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Token ids of the chosen sentences, longest first, and the vocabulary words in them.

    Sentence `s` has the int32 `tokens` `token_offsets[s]` to `token_offsets[s + 1]` and the occurrences `offsets[s]`
    to `offsets[s + 1]`. Each has an int32 token span in the sentence, a vocabulary row in `words`, and a weight, one
    over the word's occurrences in the sentence. `counts` are the sentences of each word.
    """

    tokens: np.ndarray
    token_offsets: np.ndarray
    offsets: np.ndarray
    spans: np.ndarray
    words: np.ndarray
    weights: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.offsets) - 1

    def token_ids(self, start: int = 0) -> list[np.ndarray]:
        """Return the token ids of each sentence, starting at sentence `start`."""
        return np.split(self.tokens, self.token_offsets[1:-1])[start:] if len(self) else []

    def fingerprint(self) -> str:
        """Hash everything, except the encoder, that the sums depend on."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.tokens, self.token_offsets, self.offsets, self.spans, self.words, self.counts):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def cut_finder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> FindCut:
    """Return a function that finds words cut off by the length limit; it tokenizes only what may be too long.

    A token covers at least one byte, or starts a word. Tokenizers that spell a character out (some do with ﷺ) break
    this rule; such a word may be chosen, and is dropped when its sentence is tokenized.
    """
    limit = min(max_length or position_limit(model.config), position_limit(model.config), tokenizer.model_max_length)
    room = limit - tokenizer.num_special_tokens_to_add()

    def find(sentences: list[list[str]]) -> dict[int, np.ndarray]:
        long = [k for k, words in enumerate(sentences) if len("".join(words).encode()) + len(words) > room]
        if not long:
            return {}
        chosen = [sentences[k] for k in long]
        _, spans = word_spans(model, tokenizer, chosen, max_length=max_length, specials=False)
        return {k: span[:, 1] == 0 for k, span in zip(long, spans, strict=True)}

    return find


def find_occurrences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    counted: CountedText,
    vocabulary: np.ndarray,
    sentences: np.ndarray,
    *,
    per_word: int,
    max_length: int | None,
) -> Occurrences:
    """Tokenize the chosen sentences, int64 numbers, and find each word in its first `per_word` of them.

    Sentences that no word needs are dropped. `vocabulary` is the int64 types of the words.
    """
    rows_of = vocabulary_rows(len(counted.types), vocabulary)
    tokens, sizes, owners, words, spans = [], [], [], [], []
    with tqdm(
        total=len(sentences),
        desc=f"Encoding sentences ({counted.lang})",
        unit="sentence",
        disable=int(os.environ.get("RANK", "0")) != 0,
    ) as bar:
        for start in range(0, len(sentences), _BLOCK):
            block = sentences[start : start + _BLOCK]
            ids, parts = word_spans(model, tokenizer, counted.split(block), max_length=max_length, specials=False)
            tokens.append(np.concatenate([np.asarray(row, dtype=np.int32) for row in ids]))
            sizes.append(np.array([len(row) for row in ids]))
            begins, counts = counted.offsets[block], counted.offsets[block + 1] - counted.offsets[block]
            rows, span = rows_of[counted.words[ranges(begins, counts)]], np.concatenate(parts)
            here = (rows >= 0) & (span[:, 1] > 0)
            owners.append(np.repeat(np.arange(start, start + len(block)), counts)[here])
            words.append(rows[here])
            spans.append(span[here])
            bar.update(len(block))
    # Keep occurrences in the first `per_word` sentences of their word, and sort sentences by length.
    token, lengths, owner, word = (np.concatenate(parts) for parts in (tokens, sizes, owners, words))
    pairs, pair_of, times = np.unique(word * len(lengths) + owner, return_inverse=True, return_counts=True)
    word_of_pair = pairs // len(lengths)
    totals = np.bincount(word_of_pair, minlength=len(vocabulary))
    place = np.arange(len(pairs)) - (np.cumsum(totals) - totals)[word_of_pair]
    kept = (place < per_word)[pair_of]
    counts = np.bincount(owner[kept], minlength=len(lengths))
    order = np.argsort(-lengths, kind="stable")
    order = order[counts[order] > 0]
    begins = np.cumsum(counts) - counts
    chosen = np.flatnonzero(kept)[ranges(begins[order], counts[order])]
    return Occurrences(
        token[ranges((np.cumsum(lengths) - lengths)[order], lengths[order])],
        np.concatenate([[0], np.cumsum(lengths[order])]),
        np.concatenate([[0], np.cumsum(counts[order])]),
        np.concatenate(spans)[chosen],
        word[chosen],
        (1.0 / times[pair_of[chosen]]).astype(np.float32),
        np.minimum(totals, per_word),
    )


def sum_vectors(
    model: PreTrainedModel,
    found: Occurrences,
    layers: list[int],
    *,
    pooling: Pooling,
    pad_token_id: int,
    batch_size: int = 64,
    dtype: torch.dtype | None = None,
    progress: Path | None = None,
    desc: str | None = None,
) -> Tensor:
    """Sum each word's vectors over its sentences: float32 (vocabulary, layers, dim) on the CPU.

    A word's vector in a sentence is the mean of its occurrences there. `layers` are positions in `hidden_states`. With
    `progress`, a file of the partial sums written every few minutes and removed by the caller, an interrupted run
    resumes; on a CPU with the same batches, to the same bits.

    Raises:
        InputError: the disk is full, or the progress file cannot be read.
    """
    device = next(model.parameters()).device
    done, sums = 0, torch.zeros(len(found.counts), len(layers), model.config.hidden_size)
    if progress is not None and progress.exists():
        try:
            with safe_open(progress, "pt") as file:
                done, sums = int(file.metadata()["sentences"]), file.get_tensor("sums")
        except (OSError, SafetensorError) as error:
            raise InputError(f"{progress}: cannot be read ({error}). Remove it and run again.") from error
    sums = sums.to(device)
    marked = time.monotonic()
    batches = hidden_batches(
        model,
        found.token_ids(done),
        pad_token_id,
        layers,
        batch_size=batch_size,
        dtype=dtype,
        desc=desc,
        # A module in hooks can hold only one batch at a time.
        pooled_threads=not any(isinstance(module, TopLayer) for module in model.modules()),
    )
    with contextlib.closing(batches):  # restores the model's mode at once, also when the disk is full
        for rows, mask, states in batches:
            # Sentences are sorted as hidden_batches sorts them, so a batch is a contiguous range.
            bounds = found.offsets[done : done + len(rows) + 1]
            here = slice(bounds[0], bounds[-1])
            owners = np.repeat(np.arange(len(rows)), np.diff(bounds))
            tokens = word_token_index(found.spans[here], owners, mask.shape[1], pooling).to(device)
            words, weights = (torch.from_numpy(part[here]).to(device) for part in (found.words, found.weights))
            if tokens.word is not None and tokens.counts is not None:
                words, weights = words[tokens.word], (weights / tokens.counts)[tokens.word]
            for k, hidden in enumerate(states):
                vectors = hidden.flatten(0, 1).index_select(0, tokens.index).float()
                sums[:, k].index_add_(0, words, vectors * weights.unsqueeze(-1))
            done += len(rows)
            if progress is not None and time.monotonic() - marked > _MARK_SECONDS:
                write_tensors(progress, {"sums": sums.cpu()}, {"sentences": str(done)})
                marked = time.monotonic()
    return sums.cpu()
