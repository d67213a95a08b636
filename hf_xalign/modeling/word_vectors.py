"""Extract contextual word vectors in length-sorted batches."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import cache_dir, digest
from hf_xalign.cluster import Map, run_on_cluster
from hf_xalign.data.batches.pairs import Pooling, pad_rows, ranges, word_token_index
from hf_xalign.data.encoding import check_embeddings, position_limit, tokenize_words, word_tokenizer
from hf_xalign.distributed import is_sharded
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import encoder_fingerprint
from hf_xalign.modeling.languages import current_languages, language_ids
from hf_xalign.modeling.pooling import layer_index, pool_words
from hf_xalign.modeling.tensors import write_tensors
from hf_xalign.modeling.xalign.config import modules_of
from hf_xalign.modeling.xalign.top import TopLayer

States = tuple[np.ndarray, torch.Tensor, list[torch.Tensor]]
# The encoder of a block of [`sharing_states`], and its states by layers, language and token ids of a sentence.
_SHARED: ContextVar[tuple[nn.Module, dict[str, torch.Tensor]] | None] = ContextVar("shared", default=None)
# Bytes of the states that are shared at most: 160,000 tokens of 384 dimensions.
_MOST_SHARED = 256e6


class WordVectors(NamedTuple):
    """Vectors of every word in a list of sentences, float32 (words, layers, dim) on the CPU.

    Sentence `s` has the words `offsets[s]` to `offsets[s + 1]`, int64 (sentences + 1,). For a word without subwords,
    or cut by truncation, `present` bool (words,) is False and the vector is zero.
    """

    vectors: torch.Tensor
    offsets: torch.Tensor
    present: torch.Tensor

    def of_sentences(self, sentences: np.ndarray) -> WordVectors:
        """Copy the words of these sentences, int64 (n,), in this order."""
        starts, ends = self.offsets[sentences].numpy(), self.offsets[sentences + 1].numpy()
        words = torch.from_numpy(ranges(starts, ends - starts))
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(ends - starts)]))
        return WordVectors(self.vectors[words], offsets, self.present[words])


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
    cluster: Map | None = None,
) -> Generator[States]:
    """Run the encoder over token ids, longest sentences first, without gradients and dropout.

    `layers` are positions in `hidden_states`, `dtype` is the autocast dtype (None: no autocast), `desc` the label of a
    progress bar. `extra` returns further arguments of the model for the sentences of a batch, given by their numbers.

    With `cluster`, the encoders of [`ray_encoders`] run the batches. Inside [`sharing_states`], each sentence is
    encoded once.

    Yields `rows` (sentence numbers of the batch), `attention_mask` int64 (rows, width), and the states of each layer,
    float (rows, width, dim), all on the model's device.
    """
    device = next(model.parameters()).device
    if device.type == "cpu":
        # The states of more sentences leave its caches (64 take a fifth longer).
        batch_size = min(batch_size, 16)
    # Sentences of similar length share a batch, and one that is too large for the device fails at once.
    order = np.argsort([-len(ids) for ids in sentences], kind="stable")
    encoder, known = _SHARED.get() or (None, {})
    keys, share = [], encoder is model and not (dtype or extra or cluster)
    if share:
        context = f"layers {list(layers)} {current_languages(model)}"
        keys = [f"{context} {' '.join(map(str, ids))}" for ids in sentences]
        is_known = np.array([keys[k] in known for k in order], dtype=bool)
        for start in range(0, is_known.sum(), batch_size):
            rows = order[is_known][start : start + batch_size]
            found = [known[keys[k]] for k in rows]
            mask = pad_sequence([torch.ones(len(states), dtype=torch.int64) for states in found], True)
            yield rows, mask.to(device), list(pad_sequence(found, True).to(device).unbind(2))
        order = order[~is_known]
        size = sum(len(sentences[k]) for k in order) * len(layers) * model.config.hidden_size * model.dtype.itemsize
        share = sum(states.nbytes for states in known.values()) + size <= _MOST_SHARED
    starts = range(0, len(order), batch_size)

    def batch(start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, torch.Tensor]]:
        rows = order[start : start + batch_size]
        return rows, *pad_rows([sentences[k] for k in rows], pad_token_id), extra(rows) if extra else {}

    run = partial(_forward, layers=layers, dtype=dtype)
    threads = torch.get_num_threads()
    with evaluating(model):
        bar = progress(starts, desc=desc)
        if cluster:
            batches = cluster(run, map(batch, bar))
        elif (
            device.type == "cpu"
            and threads > 1
            and not any(is_sharded(module) or isinstance(module, TopLayer) for module in model.modules())
        ):
            # A CPU runs small batches in parallel, one on each of torch's threads. This is a quarter faster than large
            # batches on all threads, which wait for each other at every operation. But MAO's module works in hooks,
            # which hold one batch at a time, and FSDP2 gathers weights in a fixed order.
            batches = _in_threads(lambda start: run(model, *batch(start)), bar, threads)
        else:
            batches = (run(model, *batch(start)) for start in bar)
        for rows, mask, states in batches:
            if share:
                stacked = torch.stack(states, dim=2).cpu()
                for row, inside, of_row in zip(rows, mask.bool().cpu(), stacked, strict=True):
                    known[keys[row]] = of_row[inside]
            yield rows, mask, states


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside a `with` block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextlib.contextmanager
def sharing_states(model: nn.Module, keep: str = "") -> Iterator[None]:
    """Encode each sentence once inside a `with` block, for its words, for its vector, and for probes.

    `keep` is a name for the text, by which the states are also kept in the user's cache: runs from one encoder score
    the same text before training. Nothing is kept of adapters and MAO's module, which other runs do not have, and of
    sharded weights. Nothing is shared by an encoder with language embeddings.
    """
    if language_ids(cast(PreTrainedModel, model).config) is not None:
        yield
        return
    if any(is_sharded(module) or isinstance(module, (BaseTunerLayer, TopLayer)) for module in model.modules()):
        keep = ""
    path = cache_dir("states") / f"{digest(encoder_fingerprint(model), keep)}.safetensors" if keep else None
    known = load_file(path) if path is not None and path.exists() else {}
    before, outer = len(known), _SHARED.set((model, known))
    try:
        yield
    finally:
        _SHARED.reset(outer)
    if path is not None and len(known) > before:
        write_tensors(path, known, {})


def _forward(
    model: PreTrainedModel,
    rows: np.ndarray,
    ids: np.ndarray,
    inside: np.ndarray,
    extra: dict[str, torch.Tensor],
    *,
    layers: Sequence[int],
    dtype: torch.dtype | None,
) -> States:
    device, num_layers = next(model.parameters()).device, model.config.num_hidden_layers
    tokens, mask = torch.from_numpy(ids).to(device), torch.from_numpy(inside).to(device).long()
    extra_inputs = {name: value.to(device) for name, value in extra.items()}
    # FSDP2 reuses the tensors that it gathers weights into, and those of inference mode cannot be trained later.
    quiet = torch.no_grad() if is_sharded(model) else torch.inference_mode()
    with quiet, torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        states = {"output_hidden_states": list(layers) != [num_layers]}
        output = model(input_ids=tokens, attention_mask=mask, **states, **extra_inputs)
    return rows, mask, select_layers(output, layers, num_layers)


@contextlib.contextmanager
def ray_encoders(model: PreTrainedModel, address: str | None) -> Iterator[Map | None]:
    """Put copies of an encoder on the Ray cluster at `address`, for `hidden_batches`; without an address, yield None.

    A copy takes one core, or one GPU if the encoder is on a GPU. On CPUs the vectors equal those of a single machine.
    An encoder with adapters raises an InputError, and so does a missing cluster.
    """
    if address is None:
        yield None
        return
    state = model.state_dict()
    with torch.device("meta"):
        names = type(model)(model.config).state_dict().keys() if isinstance(model, PreTrainedModel) else {""}
    # A part that was removed from the encoder, such as a pooler, may be missing.
    missing = any(getattr(model, name.partition(".")[0], model) is not None for name in names - state.keys())
    if missing or not all(adapter.disable_adapters for adapter in modules_of(model, BaseTunerLayer)):
        raise InputError(f"ray={address}: an encoder with adapters cannot be sent. Merge them, or remove ray.")
    # Not the module, which cannot be pickled once transformers has put hooks into it.
    state = {name: state[name].detach().cpu() for name in names & state.keys()}
    gpu = next(model.parameters()).device.type != "cpu"
    sent = (type(model), model.config, model.dtype, state, gpu)
    yield lambda function, tasks: run_on_cluster(address, _rebuild, (function, *sent), tasks, gpus=int(gpu))


def _rebuild(
    function: Callable[..., States],
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    dtype: torch.dtype,
    state: dict[str, torch.Tensor],
    gpu: bool,
) -> Callable[[tuple], States]:
    """Make the encoder of a worker, and return the function that runs a batch by it."""
    torch.set_num_threads(1)
    model = model_class(config)
    cast(nn.Module, model).to("cuda" if gpu else "cpu", dtype)
    model.load_state_dict(state, strict=False)
    model.eval()

    def run(batch: tuple) -> States:
        rows, mask, states = function(model, *batch)
        return rows, mask.cpu(), [hidden.cpu() for hidden in states]

    return run


def _in_threads(forward: Callable[[int], States], starts: Iterable[int], threads: int) -> Generator[States]:
    """Yield `forward(start)` for each start, in order, from a thread pool that works a few calls ahead."""
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


def select_layers(output: Any, layers: Sequence[int], num_layers: int) -> list[torch.Tensor]:
    """Return the chosen layers of an encoder output; the last is `last_hidden_state`, after a final norm."""
    return [output.last_hidden_state if i == num_layers else output.hidden_states[i] for i in layers]


def word_spans(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    max_length: int | None,
    specials: bool = False,
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Return the token ids of each sentence, and the token spans int (words, 2) of its words, empty if truncated."""
    check_embeddings(model, tokenizer)
    encoded = tokenize_words(word_tokenizer(tokenizer), sentences, position_limit(model.config, max_length))
    ids, spans = encoded.input_ids, encoded.spans
    if specials:
        for row, tokens in enumerate(ids):
            spans[row] = np.concatenate([spans[row], [[0, 1], [len(tokens) - 1, len(tokens)]]])
    return ids, spans


def subword_spans(spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the token spans of all subwords, and each one's word, for token spans of words, int (words, 2)."""
    lengths = spans[:, 1] - spans[:, 0]
    words = np.repeat(np.arange(len(spans)), lengths)
    firsts = ranges(spans[:, 0], lengths)
    return np.stack([firsts, firsts + 1], axis=1), words


def extract_pooled(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    *,
    layers: Sequence[int] = (-1,),
    poolings: Sequence[Pooling] = ("mean",),
    max_length: int | None = None,
    specials: bool = False,
    subwords: bool = False,
    word_view: bool = False,
    **options: Any,
) -> dict[str, WordVectors]:
    """Extract word vectors with several poolings in one pass of the encoder.

    With `specials`, [CLS] and [SEP] follow the words of each sentence. With `subwords`, every subword counts as a
    word. With `word_view`, for MAO's modules that read a sentence as a sequence of words, the model pools (by its
    config), and not this function. `options` go to [`hidden_batches`].
    """
    index = layer_index(layers, model.config.num_hidden_layers)
    input_ids, spans_by_sentence = word_spans(model, tokenizer, sentences, max_length, specials)
    if subwords:
        spans_by_sentence = [subword_spans(sentence_spans)[0] for sentence_spans in spans_by_sentence]
    counts = np.array(list(map(len, spans_by_sentence)), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    spans = np.concatenate([*spans_by_sentence, np.zeros((0, 2), dtype=np.int32)])
    present = spans[:, 1] > 0
    if word_view:
        positions = np.arange(len(spans)) - np.repeat(offsets[:-1], counts)
        spans = np.stack([positions, positions + 1], axis=1)

    def padded_spans(rows: np.ndarray) -> dict[str, torch.Tensor]:
        batch_spans = (torch.from_numpy(spans_by_sentence[row]) for row in rows)
        # At least one word, because some modules fail on none.
        return {"word_spans": pad_sequence([torch.zeros(1, 2).long(), *batch_spans], True)[1:].long()}

    shape = (int(offsets[-1]), len(index), model.config.hidden_size)
    vectors: dict[str, torch.Tensor] = {pooling: torch.zeros(shape) for pooling in poolings}
    extra = padded_spans if word_view else None
    for rows, _, states in hidden_batches(model, input_ids, tokenizer.pad_token_id, index, extra=extra, **options):
        words = ranges(offsets[rows], counts[rows])
        batch_rows = np.repeat(np.arange(len(rows)), counts[rows])[present[words]]
        words = words[present[words]]
        if not len(words):
            continue
        for pooling in poolings:
            tokens = word_token_index(spans[words], batch_rows, states[0].shape[1], pooling).to(states[0].device)
            for k, hidden in enumerate(states):
                vectors[pooling][torch.from_numpy(words), k] = pool_words(hidden, tokens).float().cpu()
    words_of_all = torch.from_numpy(offsets), torch.from_numpy(present)
    return {pooling: WordVectors(pooled, *words_of_all) for pooling, pooled in vectors.items()}


def extract_word_vectors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    *,
    pooling: Pooling = "mean",
    **options: Any,
) -> WordVectors:
    """Extract word vectors with one pooling; `options` go to [`extract_pooled`]."""
    return extract_pooled(model, tokenizer, sentences, poolings=(pooling,), **options)[pooling]
