"""Extract contextual word vectors in length-sorted batches."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.token_index import Pooling, word_token_index
from hf_xalign.data.encoding import position_limit, tokenize_words, word_tokenizer
from hf_xalign.modeling.pooling import layer_index, pool_words


class WordVectors(NamedTuple):
    """Vectors of every word in a list of sentences.

    Attributes:
        vectors: float32 CPU tensor (words, layers, dim), sentence after sentence.
        offsets: int64 tensor (sentences + 1,): sentence `s` has rows `offsets[s]` to `offsets[s + 1]`.
        present: bool tensor (words,): False (and a zero vector) where a word has no subword or was cut off.
    """

    vectors: torch.Tensor
    offsets: torch.Tensor
    present: torch.Tensor


def hidden_batches(
    model: PreTrainedModel,
    sentences: Sequence[Sequence[int]] | Sequence[np.ndarray],
    pad_token_id: int,
    layers: Sequence[int],
    *,
    batch_size: int = 64,
    dtype: torch.dtype | None = None,
    desc: str | None = None,
    extra: Callable[[np.ndarray], dict[str, torch.Tensor]] | None = None,
    pooled_threads: bool = False,
) -> Generator[tuple[np.ndarray, torch.Tensor, list[torch.Tensor]]]:
    """Run the encoder over token ids, longest sentences first, without gradients and without dropout.

    Args:
        model: the encoder; its mode is put back afterwards.
        sentences: token ids.
        pad_token_id: the padding token.
        layers: positions in `hidden_states`.
        batch_size: sentences a batch.
        dtype: autocast to this dtype (`torch.bfloat16`), or None for the model's own.
        desc: label of the progress bar; None for no bar.
        extra: further arguments of the model for a batch of these sentence numbers.
        pooled_threads: on a CPU, run as many batches at a time as torch has threads, each on one thread: a quarter
            faster than one batch on all of them, whose threads wait for each other at every operation. Not for a model
            with a module that acts in its hooks: these know one batch at a time.

    Yields:
        `rows` (sentence numbers of this batch), `attention_mask` (rows, width), and one (rows, width, dim) state a
        layer, all on the model's device.
    """
    device = next(model.parameters()).device
    order = np.argsort([-len(ids) for ids in sentences], kind="stable")
    num_layers = model.config.num_hidden_layers
    starts = range(0, len(order), batch_size)

    def forward(start: int) -> tuple[np.ndarray, torch.Tensor, list[torch.Tensor]]:
        rows = order[start : start + batch_size]
        width = len(sentences[rows[0]])
        ids = torch.full((len(rows), width), pad_token_id)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for k, row in enumerate(rows):
            ids[k, : len(sentences[row])] = torch.as_tensor(sentences[row])
            mask[k, : len(sentences[row])] = 1
        mask = mask.to(device)
        more = {name: value.to(device) for name, value in extra(rows).items()} if extra else {}
        with (
            torch.inference_mode(),
            torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None),
        ):
            output = model(
                input_ids=ids.to(device),
                attention_mask=mask,
                output_hidden_states=list(layers) != [num_layers],
                **more,
            )
        return rows, mask, select_layers(output, layers, num_layers)

    threads = torch.get_num_threads()
    training = model.training
    model.eval()
    try:
        bar = tqdm(starts, desc=desc, disable=desc is None or os.environ.get("RANK", "0") != "0")
        if pooled_threads and device.type == "cpu" and threads > 1:
            yield from _in_threads(forward, bar, threads)
        else:
            yield from map(forward, bar)
    finally:
        model.train(training)


def _in_threads(forward: Callable[[int], Any], starts: Iterable[int], threads: int) -> Generator[Any]:
    """`map(forward, starts)`, in order, on a pool of single threads that is a few calls ahead."""
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    ahead: deque[Future] = deque()
    try:
        for start in starts:
            ahead.append(pool.submit(forward, start))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def select_layers(output, layers: Sequence[int], num_layers: int) -> list[torch.Tensor]:
    """Return chosen layers of an encoder output; the last is `last_hidden_state`, after any final norm."""
    return [output.last_hidden_state if i == num_layers else output.hidden_states[i] for i in layers]


def word_spans(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    *,
    max_length: int | None,
    specials: bool,
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Token ids of each sentence, and the token spans int (words, 2) of its words; empty where one was cut off."""
    limit = min(max_length or position_limit(model.config), position_limit(model.config))
    encoded = tokenize_words(word_tokenizer(tokenizer), sentences, limit)
    if not specials:
        return encoded.input_ids, encoded.spans
    ends = [len(ids) for ids in encoded.input_ids]
    with_specials = [
        np.concatenate([part, [[0, 1], [end - 1, end]]]) for part, end in zip(encoded.spans, ends, strict=True)
    ]
    return encoded.input_ids, with_specials


def extract_pooled(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    *,
    layers: Sequence[int] = (-1,),
    poolings: Sequence[Pooling] = ("mean",),
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    specials: bool = False,
    desc: str | None = None,
) -> dict[Pooling, WordVectors]:
    """Extract word vectors with several poolings in one pass of the encoder."""
    index = layer_index(layers, model.config.num_hidden_layers)
    input_ids, parts = word_spans(model, tokenizer, sentences, max_length=max_length, specials=specials)
    counts = np.array([len(part) for part in parts], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    spans = np.concatenate([*parts, np.zeros((0, 2), dtype=np.int32)])
    present = spans[:, 1] > 0
    shape = (int(offsets[-1]), len(index), model.config.hidden_size)
    vectors = {pooling: torch.zeros(shape) for pooling in poolings}
    pad = tokenizer.pad_token_id
    for rows, mask, states in hidden_batches(
        model, input_ids, pad, index, batch_size=batch_size, dtype=dtype, desc=desc
    ):
        words = np.concatenate([np.arange(offsets[r], offsets[r + 1]) for r in rows])
        batch_rows = np.repeat(np.arange(len(rows)), counts[rows])[present[words]]
        words = words[present[words]]
        if not len(words):
            continue
        for pooling in poolings:
            tokens = word_token_index(spans[words], batch_rows, mask.shape[1], pooling).to(mask.device)
            for k, hidden in enumerate(states):
                vectors[pooling][torch.from_numpy(words), k] = pool_words(hidden, tokens).float().cpu()
    return {
        pooling: WordVectors(vectors[pooling], torch.from_numpy(offsets), torch.from_numpy(present))
        for pooling in poolings
    }


def extract_word_vectors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    *,
    pooling: Pooling = "mean",
    **options: Any,
) -> WordVectors:
    """Extract word vectors with one pooling; see [`extract_pooled`] for the arguments."""
    return extract_pooled(model, tokenizer, sentences, poolings=(pooling,), **options)[pooling]
