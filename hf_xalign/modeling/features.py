"""Vectors and states of the encoder before training, computed in one pass over the distinct sentences.

The cache on disk holds vectors of words (f0) and of sentences, and states of frozen layers. It is whole or made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np
import pyarrow
import pyarrow.compute
import torch
import xxhash
from datasets import Dataset
from datasets.fingerprint import Hasher
from filelock import FileLock
from transformers import PreTrainedModel

from hf_xalign.cache import cache_dir, digest, disk_errors, map_rows, replacing, write_text
from hf_xalign.data.batches.pairs import SIDES, CachedVectors, LinkedTokens, Pooling, Side, ranges, word_token_index
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import encoder_fingerprint, outputs_of_layers
from hf_xalign.modeling.pooling import pool_sentences, pool_words
from hf_xalign.modeling.word_vectors import States, hidden_batches, ray_encoders

logger = logging.getLogger(__name__)

Needed = Literal["all", "linked"]
_ROWS = 10_000  # rows of the dataset in memory at a time


@dataclass(frozen=True)
class FeaturePlan:
    """The distinct sentences of the cached sides, longest first, and which of their words are stored.

    [CLS] and [SEP] follow the words of each sentence as two more words.

    Attributes:
        sentence: for each cached side int64 (pairs,), the sentence of each pair.
        occurrence: int64 (sentences,), first occurrence of each: a pair's index, plus the number of pairs if it is on
            the second cached side.
        word_offsets: int64; sentence `s` has the words `word_offsets[s]` to `word_offsets[s + 1]`.
        stored: bool (words,), whether a word has a row.
        row_offsets: int64; sentence `s` has the rows `row_offsets[s]` to `row_offsets[s + 1]`.
        token_offsets: int64; sentence `s` has the tokens `token_offsets[s]` to `token_offsets[s + 1]`.
        text: hash of all sentences.
    """

    dataset: Dataset
    sentence: dict[Side, np.ndarray]
    occurrence: np.ndarray
    word_offsets: np.ndarray
    stored: np.ndarray
    row_offsets: np.ndarray
    token_offsets: np.ndarray
    text: str

    def __len__(self) -> int:
        """Return the number of distinct sentences."""
        return len(self.occurrence)

    def block(self, start: int, stop: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the token ids of sentences `[start, stop)`, and the token spans int64 (words, 2) of their words."""
        ids: list[np.ndarray] = [np.empty(0)] * (stop - start)
        arrow = self.dataset.with_format("arrow")
        spans = np.empty((int(self.word_offsets[stop] - self.word_offsets[start]), 2), dtype=np.int64)
        begin = self.word_offsets[start:stop] - self.word_offsets[start]
        side_of, pair_of = np.divmod(self.occurrence[start:stop], len(self.dataset))
        for number, side in enumerate(self.sentence):
            positions = np.flatnonzero(side_of == number)
            if not len(positions):
                continue
            columns = [f"{side}_ids", f"{side}_starts", f"{side}_ends"]
            table = arrow.select_columns(columns)[pair_of[positions]]
            (tokens, lengths), (starts, counts), (ends, _) = map(_flat, table.columns)
            for k, sentence_ids in zip(positions, _split_lists(tokens, lengths), strict=True):
                ids[k] = sentence_ids
            spans[ranges(begin[positions], counts)] = np.stack([starts, ends], axis=1)
            specials = begin[positions] + counts
            spans[specials] = [0, 1]
            spans[specials + 1] = np.stack([lengths - 1, lengths], axis=1)
        return ids, spans

    def columns(
        self, sides: Collection[Side], means: CachedVectors | None, batch: dict[str, list], pairs: list[int]
    ) -> dict[str, Any]:
        """Return the new columns of a batch of pairs: rows of the words of `sides`, and means of sentences."""
        columns: dict[str, Any] = {}
        for side in sides:
            sentences = self.sentence[side][pairs]
            first_words, counts = self.word_offsets[sentences], np.diff(self.word_offsets)[sentences]
            is_stored = self.stored[ranges(first_words, counts)]
            # A sentence's rows are consecutive: a word's row is the first plus the number of stored words before it.
            before = np.concatenate([[0], np.cumsum(is_stored)])
            starts = _offsets(counts)[:-1]
            rows = np.repeat(self.row_offsets[sentences] - before[starts], counts) + before[:-1]
            columns[f"{side}_rows"] = np.split(np.where(is_stored, rows, -1), starts[1:])
        if means is not None:
            for side, sentence in self.sentence.items():
                columns[f"{side}_sentence"] = means.read(sentence[pairs]).numpy()
        return columns


def plan_features(
    dataset: Dataset, needed: Mapping[Side, Needed], linked_tokens: LinkedTokens, *, both_sides: bool = False
) -> FeaturePlan:
    """Find the distinct sentences and the words to store, in a result of `encode_pairs`.

    The `linked` words of a sentence are those linked in any pair that it occurs in. `both_sides` adds the sentences of
    a side whose words are not needed. For the other arguments see [`cache_features`].
    """
    arrow = dataset.with_format("arrow")
    sides: list[Side] = [side for side in SIDES if both_sides or side in needed]
    hashed: list[tuple[np.ndarray, ...]] = []
    for side in sides:
        hashed += map(_keys, arrow.select_columns([f"{side}_ids", f"{side}_starts", f"{side}_ends"]).iter(_ROWS))
    keys, tokens, words = map(np.concatenate, zip(*hashed))
    # Sentences are ordered by length, then by a hash of their content, so that neither the order of the dataset nor
    # repeated pairs change the cache.
    distinct, first_pair, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(-tokens[first_pair], kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    sentence = dict(zip(sides, rank[inverse].reshape(len(sides), -1), strict=True))
    word_offsets = _offsets(words[first_pair[order]] + 2)
    stored = np.zeros(word_offsets[-1], dtype=bool)
    for side in needed:
        stores_all = needed[side] == "all"
        specials = word_offsets[1:][np.unique(sentence[side])] - 2
        stored[specials] |= stores_all or linked_tokens != "words"
        stored[specials + 1] |= stores_all or linked_tokens in ("cls_sep", "all")
        if not stores_all and linked_tokens not in ("words", "all"):
            continue
        pair, column = 0, f"{side}_ends" if stores_all else "links"
        for table in arrow.select_columns([column]).iter(_ROWS):
            first_words = word_offsets[sentence[side][pair : pair + len(table)]]
            pair += len(table)
            lists = table[column].combine_chunks()
            counts = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
            if stores_all:
                stored[ranges(first_words, counts)[lists.flatten().to_numpy() > 0]] = True
            else:
                linked = lists.flatten().flatten().to_numpy().reshape(-1, 2)[:, SIDES.index(side)]
                stored[np.repeat(first_words, counts) + linked] = True
    return FeaturePlan(
        dataset=dataset,
        sentence=sentence,
        occurrence=first_pair[order],
        word_offsets=word_offsets,
        stored=stored,
        row_offsets=_offsets(np.add.reduceat(stored, word_offsets[:-1], dtype=np.int64)),
        token_offsets=_offsets(tokens[first_pair[order]]),
        text=_hash(distinct),
    )


def _keys(table: pyarrow.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a hash of 16 bytes for each sentence (token ids and word spans), and its numbers of tokens and words."""
    (ids, tokens), (starts, words), (ends, _) = map(_flat, table.columns)
    keys = []
    for content in zip(_split_lists(ids, tokens), _split_lists(starts, words), _split_lists(ends, words), strict=True):
        text = b"%d|" % len(content[0]) + b"".join(array.tobytes() for array in content)
        keys.append(hashlib.blake2b(text, digest_size=16).digest())
    return np.frombuffer(b"".join(keys), dtype="V16"), tokens, words


def _split_lists(flat: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(flat, np.cumsum(lengths)[:-1])


def _flat(column: pyarrow.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of lists, int64, and the length of each list."""
    lists = column.combine_chunks()
    lengths = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    return lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64), lengths


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _hash(array: np.ndarray) -> str:
    return hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()


@dataclass
class FrozenStates:
    """States of every token after the encoder's first `layer` layers, which are frozen, by sentence.

    `states` float (tokens, 1, dim) are in a file, `keys` uint64 the sorted hashes of the sentences' token ids, and
    `starts` and `lengths` int64 the places of their tokens. `outputs` is the result of [`outputs_of_layers`].
    """

    layer: int
    states: CachedVectors
    keys: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    outputs: int

    def find(self, input_ids: torch.Tensor, inside: torch.Tensor) -> torch.Tensor | None:
        """Return the states of a batch's real tokens, float (tokens, dim), or None if a sentence is not here.

        `input_ids` int64 (rows, width) are padded; `inside` bool (rows, width) is False at padding.
        """
        lengths = inside.sum(1).cpu().numpy()
        rows = [ids[:length] for ids, length in zip(input_ids.cpu().numpy(), lengths, strict=True)]
        keys = _sentence_keys(rows)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        if (self.keys[places] != keys).any() or (self.lengths[places] != lengths).any():
            return None
        return self.states.stored(ranges(self.starts[places], lengths))[:, 0].to(input_ids.device)


class Start(NamedTuple):
    """Result of [`cache_features`]: vectors of words, the dataset with its new columns, states of frozen layers."""

    words: CachedVectors
    dataset: Dataset
    frozen: FrozenStates | None


# Version of the folder's layout; a new number invalidates older caches.
_SCHEMA = 2
# Sentences whose token ids are in memory at a time, rounded to whole batches.
_BLOCK = 16_384
# Bytes of states that are kept at most: the cache must not fill a disk unasked. It holds 10 million tokens of 384
# dimensions in float32, so about 200,000 short pairs.
_MOST_STATES = 16e9
_ELSEWHERE = "set $HF_XALIGN_CACHE or the folder of the cache to a larger disk"


def cache_features(
    model: PreTrainedModel,
    dataset: Dataset,
    *,
    needed: Mapping[Side, Needed],
    layers: list[int],
    pooling: Pooling,
    pad_token_id: int,
    linked_tokens: LinkedTokens = "words",
    sentences: bool = False,
    frozen_layers: int = 0,
    dtype: torch.dtype = torch.float32,
    autocast: torch.dtype | None = None,
    batch_size: int = 64,
    folder: str | os.PathLike | None = None,
    ray: str | None = None,
) -> Start:
    """Run the encoder over a dataset once and store what training reads of it on disk.

    Each distinct sentence is encoded and stored once. If several processes make the same call, one computes and the
    others wait for its files. `cache.json`, which is written last, holds the settings; a folder with other settings,
    or without it, is made again.

    `needed` has the sides whose words are stored: `all` words, with [CLS] and [SEP], or only the `linked` ones, which
    `linked_tokens` names. `sentences` also stores the mean of each sentence's tokens, and `frozen_layers` the states
    after so many layers, both of both sides. `layers` are positions in `hidden_states`. `dtype` is that of the stored
    words, float32 or bfloat16, and `autocast` that of the passes. The folder is by default one in the user's cache,
    named by a hash of all that determines the files. A Ray cluster at the address `ray` runs the encoder; `local`
    starts one on this machine.

    Returns:
        The vectors of words, the dataset with new columns, and the states of frozen layers or None. `{side}_rows`
        (list of int64), for each side of `needed`, has the row of each word's vector, then those of [CLS] and [SEP],
        and -1 for a word that is not stored. With `sentences`, there are `source_sentence` and `target_sentence`,
        float32 (layers, dim).
    """
    plan = plan_features(dataset, needed, linked_tokens, both_sides=sentences or frozen_layers > 0)
    states_size = int(plan.token_offsets[-1]) * model.config.hidden_size * model.dtype.itemsize
    if frozen_layers and states_size > _MOST_STATES:
        logger.info(
            "%s of states of frozen layers are too many to keep: they are computed in each step", _gb(states_size)
        )
        frozen_layers = 0
    identity = {
        "schema": _SCHEMA,
        "encoder": encoder_fingerprint(model),
        "text": plan.text,
        "words": _hash(np.packbits(plan.stored)),
        "needed": dict(sorted(needed.items())),
        "linked_tokens": linked_tokens if "linked" in needed.values() else None,
        "pooling": pooling,
        "layers": list(layers),
        "sentences": sentences,
        "frozen_layers": frozen_layers,
        "dtype": str(dtype).removeprefix("torch."),
        "autocast": None if autocast is None else str(autocast).removeprefix("torch."),
    }
    folder = Path(cache_dir("features", digest(identity)) if folder is None else folder)
    folder.mkdir(parents=True, exist_ok=True)
    dim = model.config.hidden_size
    words = CachedVectors(folder / "vectors.bin", (int(plan.row_offsets[-1]), len(layers), dim), dtype)
    means = CachedVectors(folder / "sentences.bin", (len(plan), len(layers), dim), torch.float32)
    states = CachedVectors(folder / "states.bin", (int(plan.token_offsets[-1]), 1, dim), model.dtype)
    files = [words, *([means] if sentences else []), *([states] if frozen_layers else [])]
    with FileLock(folder / "lock"), disk_errors(folder, f"free space and run again; or remove it and {_ELSEWHERE}"):
        if _is_whole(folder, identity, files):
            logger.info("using the cached word vectors in %s", folder)
        else:
            (folder / "cache.json").unlink(missing_ok=True)
            size, free = sum(map(_size, files)), shutil.disk_usage(folder).free
            if size > free:
                smaller = ", or store bfloat16 (half the size)" if dtype == torch.float32 else ""
                room = f"no space for {_gb(size)} of word vectors, only {_gb(free)} are free"
                raise InputError(f"{folder}: {room}: {_ELSEWHERE}{smaller}")
            counts = words.shape[0], len(plan)
            logger.info("%s of word vectors (%d words of %d sentences) in %s", _gb(size), *counts, folder)
            with ray_encoders(model, ray) as cluster:
                wanted = [*layers, frozen_layers] if frozen_layers else layers
                options: Any = {"pad_token_id": pad_token_id, "batch_size": batch_size, "dtype": autocast}
                encode = partial(hidden_batches, model, layers=wanted, cluster=cluster, **options)
                _write(files, plan, encode, pooling, batch_size)
            write_text(folder / "cache.json", json.dumps(identity))
    if needed or sentences:
        dataset = map_rows(
            dataset,
            partial(plan.columns, needed, means if sentences else None),
            with_indices=True,
            desc="Indexing vectors",
            new_fingerprint=Hasher.hash([dataset._fingerprint, identity]),
        )
    return Start(words, dataset, _frozen_states(model, frozen_layers, plan, states) if frozen_layers else None)


def can_cache_layers(model: PreTrainedModel, layers: int) -> bool:
    """Return whether the states after a model's first `layers` layers can be cached, so that steps start there."""
    return model.dtype in CachedVectors.TYPES and outputs_of_layers(model, layers) is not None


def _write(
    files: list[CachedVectors],
    plan: FeaturePlan,
    encode: Callable[..., Generator[States]],
    pooling: Pooling,
    batch_size: int,
) -> None:
    """Encode all sentences and write the files; `encode` is [`hidden_batches`] of the token ids."""
    block = max(1, _BLOCK // batch_size) * batch_size
    words, others = files[0], {file.path.stem: file for file in files[1:]}
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(progress(total=len(plan), desc="Caching word vectors", unit="sentence"))
        streams = {}
        for file in files:
            unfinished = stack.enter_context(replacing(file.path))
            streams[file.path.stem] = stack.enter_context(open(unfinished, "wb"))
        for start in range(0, len(plan), block):
            ids, spans = plan.block(start, min(start + block, len(plan)))
            first_word = plan.word_offsets[start]
            # Closing restores the model's mode at once, also if the disk is full.
            with contextlib.closing(encode(ids)) as batches:
                for rows, mask, states in batches:
                    pooled = states[: words.shape[1]]
                    # Sentences are sorted by length, as in hidden_batches, so a batch holds consecutive ones.
                    offsets = plan.word_offsets[start + rows[0] : start + rows[-1] + 2]
                    stored = plan.stored[offsets[0] : offsets[-1]]
                    owners = np.repeat(np.arange(len(rows)), np.diff(offsets))[stored]
                    chosen = spans[offsets[0] - first_word : offsets[-1] - first_word][stored]
                    if len(chosen):
                        tokens = word_token_index(chosen, owners, mask.shape[1], pooling).to(mask.device)
                        _append(streams["vectors"], [pool_words(hidden, tokens) for hidden in pooled], words.dtype)
                    if "sentences" in others:
                        means = [pool_sentences(hidden, mask, "mean") for hidden in pooled]
                        _append(streams["sentences"], means, torch.float32)
                    if "states" in others:
                        _append(streams["states"], [states[-1][mask.bool()]], others["states"].dtype)
                    bar.update(len(rows))


def _append(stream: BinaryIO, vectors: list[torch.Tensor], dtype: torch.dtype) -> None:
    """Write vectors of several layers, each float (rows, dim), as (rows, layers, dim)."""
    stacked = torch.stack([layer.to(dtype) for layer in vectors], dim=1)
    stream.write(stacked.cpu().contiguous().view(torch.uint8).numpy().data)


def _frozen_states(model: PreTrainedModel, layer: int, plan: FeaturePlan, states: CachedVectors) -> FrozenStates:
    keys = np.concatenate(
        [_sentence_keys(plan.block(start, min(start + _BLOCK, len(plan)))[0]) for start in range(0, len(plan), _BLOCK)]
    )
    # Sentences that differ in the spans of their words alone have the same states.
    keys, first = np.unique(keys, return_index=True)
    return FrozenStates(
        layer=layer,
        states=states,
        keys=keys,
        starts=plan.token_offsets[first],
        lengths=np.diff(plan.token_offsets)[first],
        outputs=cast(int, outputs_of_layers(model, layer)),
    )


def _sentence_keys(rows: Iterable[np.ndarray]) -> np.ndarray:
    """Return a hash of each sentence's token ids, uint64."""
    return np.array(
        [xxhash.xxh3_64_intdigest(np.ascontiguousarray(ids, dtype=np.int64).data) for ids in rows], np.uint64
    )


def _is_whole(folder: Path, identity: dict[str, object], files: list[CachedVectors]) -> bool:
    try:
        written = json.loads((folder / "cache.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return written == identity and all(f.path.exists() and f.path.stat().st_size == _size(f) for f in files)


def _size(vectors: CachedVectors) -> int:
    return math.prod(vectors.shape) * vectors.dtype.itemsize


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
