"""Reference vectors f0 that are computed once: what is computed, in which order, and the cache on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow
import pyarrow.compute
import torch
import xxhash
from datasets import Dataset
from datasets.fingerprint import Hasher
from transformers import PretrainedConfig, PreTrainedModel

from hf_xalign.cache import cache_dir, disk_errors, locked, map_rows, read_mark, write_mark
from hf_xalign.data.batches.pairs import SIDES, CachedVectors, LinkedTokens, Pooling, Side, ranges, word_token_index
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import model_fingerprint
from hf_xalign.modeling.pooling import pool_sentences, pool_words
from hf_xalign.modeling.word_vectors import hidden_batches, ray_encoders

logger = logging.getLogger(__name__)


Needed = Literal["all", "linked"]
_ROWS = 10_000  # rows of the dataset in memory at a time


@dataclass(frozen=True)
class FeaturePlan:
    """The distinct sentences of the cached sides, longest first, and which of their words are stored.

    Sentences are ordered by length, then by a hash of their content, so that neither the order of the dataset nor
    repeated pairs change the cache. [CLS] and [SEP] follow the words of each sentence as two more words.

    Attributes:
        sentence: for each cached side int64 (pairs,), the sentence of each pair.
        occurrence: int64 (sentences,), first occurrence of each: a pair's index, plus the number of pairs if it is on
            the second cached side.
        word_offsets: int64; sentence `s` has the words `word_offsets[s]` to `word_offsets[s + 1]`.
        stored: bool (words,), whether a word has a row.
        row_offsets: int64; sentence `s` has the rows `row_offsets[s]` to `row_offsets[s + 1]`.
        text: hash of all sentences.
        words: hash of `stored`.
    """

    dataset: Dataset
    sentence: dict[Side, np.ndarray]
    occurrence: np.ndarray
    word_offsets: np.ndarray
    stored: np.ndarray
    row_offsets: np.ndarray
    text: str
    words: str

    @property
    def rows(self) -> int:
        """Number of rows of the whole cache."""
        return int(self.row_offsets[-1])

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
            (tokens, lengths), (starts, counts), (ends, _) = (_flat(table[column]) for column in columns)
            for k, sentence_ids in zip(positions, _split_lists(tokens, lengths), strict=True):
                ids[k] = sentence_ids
            spans[ranges(begin[positions], counts)] = np.stack([starts, ends], axis=1)
            specials = begin[positions] + counts
            spans[specials] = [0, 1]
            spans[specials + 1] = np.stack([lengths - 1, lengths], axis=1)
        return ids, spans

    def add_rows(self) -> Dataset:
        """Return the dataset with a column `{side}_rows` for each cached side: see [`cache_features`]."""
        # Unlike add_column, map leaves the table on disk.
        return map_rows(
            self.dataset,
            partial(_row_columns, self.sentence, self.word_offsets, self.stored, self.row_offsets),
            with_indices=True,
            desc="Indexing word vectors",
        )


def plan_features(dataset: Dataset, needed: Mapping[Side, Needed], linked_tokens: LinkedTokens) -> FeaturePlan:
    """Find the distinct sentences and the words to store, in a result of `encode_pairs`.

    The `linked` words of a sentence are those linked in any pair that it occurs in. For the arguments see
    [`cache_features`].
    """
    arrow = dataset.with_format("arrow")
    sides: list[Side] = [side for side in SIDES if side in needed]
    columns = {side: [f"{side}_ids", f"{side}_starts", f"{side}_ends"] for side in sides}
    hashed = [_keys(table, names) for names in columns.values() for table in arrow.select_columns(names).iter(_ROWS)]
    keys = np.frombuffer(b"".join(key for table_keys, _, _ in hashed for key in table_keys), dtype="V16")
    tokens, words = (np.concatenate([table_keys[k] for table_keys in hashed]) for k in (1, 2))
    distinct, first_pair, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(-tokens[first_pair], kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    sentence = dict(zip(sides, rank[inverse].reshape(len(sides), -1), strict=True))
    word_offsets = _offsets(words[first_pair[order]] + 2)
    stored = np.zeros(word_offsets[-1], dtype=bool)
    for side in sides:
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
        text=_hash(distinct),
        words=_hash(np.packbits(stored)),
    )


def _keys(table: pyarrow.Table, columns: list[str]) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Return a hash of 16 bytes for each sentence (token ids and word spans), and its numbers of tokens and words."""
    (ids, tokens), (starts, words), (ends, _) = (_flat(table[name]) for name in columns)
    keys = []
    for content in zip(_split_lists(ids, tokens), _split_lists(starts, words), _split_lists(ends, words), strict=True):
        text = b"%d|" % len(content[0]) + b"".join(array.tobytes() for array in content)
        keys.append(hashlib.blake2b(text, digest_size=16).digest())
    return keys, tokens, words


def _row_columns(
    sentence: dict[Side, np.ndarray],
    word_offsets: np.ndarray,
    stored: np.ndarray,
    row_offsets: np.ndarray,
    batch: dict[str, list],
    pairs: list[int],
) -> dict[str, list[np.ndarray]]:
    columns = {}
    for side, sentence_of in sentence.items():
        sentences = sentence_of[pairs]
        first_words, counts = word_offsets[sentences], np.diff(word_offsets)[sentences]
        is_stored = stored[ranges(first_words, counts)]
        # A sentence's rows are consecutive: a word's row is the first one plus the number of stored words before it.
        before = np.concatenate([[0], np.cumsum(is_stored)])
        starts = _offsets(counts)[:-1]
        rows = np.repeat(row_offsets[sentences] - before[starts], counts) + before[:-1]
        columns[f"{side}_rows"] = np.split(np.where(is_stored, rows, -1), starts[1:])
    return columns


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


_SCHEMA = 1  # version of the folder's layout; a new number invalidates older caches
_BLOCK = 16_384  # sentences whose token ids are in memory at a time, rounded to whole batches
_MARK_EVERY = 50  # batches in a block with a checksum: the most that an interrupted run repeats
_BLOCKS = "blocks.json"
_READ = 1 << 24
Block = tuple[int, str]  # number of sentences up to the block's end, and the block's checksum
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
    dtype: torch.dtype = torch.float32,
    autocast: torch.dtype | None = None,
    batch_size: int = 64,
    folder: str | os.PathLike | None = None,
    ray: str | None = None,
) -> tuple[CachedVectors, Dataset]:
    """Run the encoder over a dataset once and store the word vectors on disk.

    Each distinct sentence is encoded and stored once. After an interruption, the same call resumes; on a CPU with the
    same `batch_size`, the file is then equal byte for byte. If several processes make the same call, one computes and
    the others wait for its file. The folder holds `cache.json` (the settings), `vectors.bin` (`vectors.part` until it
    is complete) and `blocks.json`, the checksums of its blocks. A damaged cache is recomputed from its first damaged
    block, with a warning.

    `dataset` is a result of `encode_pairs`. `needed` says for each side whether `all` words are stored, with [CLS] and
    [SEP], or only the `linked` ones; `linked_tokens` says which tokens are linked. `layers` are positions in
    `hidden_states`. `dtype` is that of the stored vectors (float32 or bfloat16), `autocast` that of the forward
    passes. The default `folder` is in the user's cache, named by a hash of all that determines the vectors. `ray` is
    the address of a Ray cluster that runs the encoder; `local` starts one on this machine.

    Returns:
        The vectors, and the dataset with a column `{side}_rows` (list of int64) for each side of `needed`: the row of
        each word's vector, then those of [CLS] and [SEP]; -1 for a word that is not stored.
    """
    plan = plan_features(dataset, needed, linked_tokens)
    identity = {
        "schema": _SCHEMA,
        "encoder": _encoder_fingerprint(model),
        "text": plan.text,
        "words": plan.words,
        "needed": dict(sorted(needed.items())),
        "linked_tokens": linked_tokens if "linked" in needed.values() else None,
        "pooling": pooling,
        "layers": list(layers),
        "dtype": str(dtype).removeprefix("torch."),
        "autocast": None if autocast is None else str(autocast).removeprefix("torch."),
        "rows": plan.rows,
        "dim": model.config.hidden_size,
    }
    if folder is None:
        key = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()
        folder = cache_dir("features", key)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vectors = CachedVectors(folder / "vectors.bin", (plan.rows, len(layers), model.config.hidden_size), dtype)
    with locked(folder), disk_errors(folder, f"free space and run again to resume; or remove it and {_ELSEWHERE}"):
        _check_identity(folder, identity)
        blocks = _whole_blocks(folder, plan.row_offsets * _row_bytes(vectors))
        size = _row_bytes(vectors) * plan.rows
        if vectors.path.exists() and _done(blocks) == len(plan) and vectors.path.stat().st_size == size:
            logger.info("using the cached word vectors in %s", folder)
        else:
            if vectors.path.exists():
                logger.warning(
                    "%s is damaged: sentences from number %d on are encoded again", vectors.path, _done(blocks)
                )
                os.replace(vectors.path, folder / "vectors.part")
            with ray_encoders(model, ray) as cluster:
                options: Any = {"batch_size": batch_size, "dtype": autocast, "cluster": cluster}
                encode = partial(hidden_batches, model, pad_token_id=pad_token_id, layers=layers, **options)
                _write(vectors, blocks, identity, plan, encode, pooling, batch_size)
    return vectors, plan.add_rows()


def _write(
    vectors: CachedVectors,
    blocks: list[Block],
    identity: dict[str, Any],
    plan: FeaturePlan,
    encode: Callable[..., Any],
    pooling: Pooling,
    batch_size: int,
) -> None:
    """Encode and store the sentences after the given blocks; `encode` is [`hidden_batches`] of the token ids."""
    folder, row_bytes = vectors.path.parent, _row_bytes(vectors)
    part_file, done = folder / "vectors.part", _done(blocks)
    digest = xxhash.xxh3_64()
    resumed, size = int(plan.row_offsets[done]) * row_bytes, plan.rows * row_bytes
    _check_room(folder, size - resumed, vectors.dtype)
    logger.info("%s of word vectors (%d words of %d sentences) in %s", _gb(size), plan.rows, len(plan), folder)
    if done:
        logger.info("resuming after %d cached sentences", done)
    write_mark(folder / "cache.json", identity)
    write_mark(folder / _BLOCKS, {"blocks": blocks})
    block = max(1, _BLOCK // batch_size) * batch_size
    with (
        open(part_file, "ab") as file,
        progress(total=len(plan), initial=done, desc="Caching word vectors", unit="sentence") as bar,
    ):
        file.truncate(resumed)
        for start in range(done, len(plan), block):
            ids, spans = plan.block(start, min(start + block, len(plan)))
            first_word = plan.word_offsets[start]
            # Closing restores the model's mode at once, also if the disk is full.
            with contextlib.closing(encode(ids)) as batches:
                for rows, mask, states in batches:
                    # Sentences are sorted by length, as in hidden_batches, so a batch holds consecutive ones.
                    offsets = plan.word_offsets[start + rows[0] : start + rows[-1] + 2]
                    stored = plan.stored[offsets[0] : offsets[-1]]
                    owners = np.repeat(np.arange(len(rows)), np.diff(offsets))[stored]
                    words = spans[offsets[0] - first_word : offsets[-1] - first_word][stored]
                    tokens = word_token_index(words, owners, mask.shape[1], pooling).to(mask.device)
                    pooled = torch.stack([pool_words(hidden, tokens).to(vectors.dtype) for hidden in states], dim=1)
                    written = pooled.cpu().view(torch.uint8).numpy().data
                    file.write(written)
                    digest.update(written)
                    bar.update(len(rows))
                    ready = start + int(rows[-1]) + 1
                    if ready - _done(blocks) >= batch_size * _MARK_EVERY or ready == len(plan):
                        _sync(file)
                        blocks = [*blocks, (ready, digest.hexdigest())]
                        write_mark(folder / _BLOCKS, {"blocks": blocks})
                        digest.reset()
    os.replace(part_file, vectors.path)


def _whole_blocks(folder: Path, ends: np.ndarray) -> list[Block]:
    """Return the undamaged blocks on disk up to the first damaged one; `ends` are the bytes before each sentence."""
    undamaged: list[Block] = []
    file = next((path for name in ("vectors.bin", "vectors.part") if (path := folder / name).exists()), None)
    if file is None or (mark := read_mark(folder / _BLOCKS)) is None:
        return undamaged
    with open(file, "rb") as stream:
        for ready, due in mark["blocks"]:
            start, end = int(ends[_done(undamaged)]), int(ends[min(ready, len(ends) - 1)])
            digest = xxhash.xxh3_64()
            while start < end and (chunk := stream.read(min(_READ, end - start))):
                digest.update(chunk)
                start += len(chunk)
            if digest.hexdigest() != due:
                break
            undamaged.append((ready, due))
    return undamaged


def _done(blocks: list[Block]) -> int:
    """Return the number of sentences in all blocks."""
    return blocks[-1][0] if blocks else 0


def _check_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Raise an InputError if the folder holds another cache."""
    path = folder / "cache.json"
    remedy = "Give another folder, or remove this one."
    if (cached := read_mark(path)) is None:
        files = [file for name in ("vectors.bin", "vectors.part", _BLOCKS) if (file := folder / name).exists()]
        if files and not path.exists():
            raise InputError(f"{folder} holds vectors without the cache.json that describes them. {remedy}")
        for file in files:
            file.unlink()
        return
    differing = [name for name, value in identity.items() if cached.get(name) != value]
    if not differing:
        return
    # Text and settings determine which words are stored, unless only the links differ.
    hashes = {"encoder": "another encoder", "text": "another text"}
    differences = [text for name, text in hashes.items() if name in differing]
    settings = [name for name in differing if name not in {*hashes, "words", "rows", "dim"}]
    if settings:
        values = (f"{name} is {cached.get(name)} there and {identity[name]} here" for name in settings)
        differences.append(f"other settings ({', '.join(values)})")
    raise InputError(f"{folder} holds word vectors of {' and '.join(differences or ['other word links'])}. {remedy}")


def _encoder_fingerprint(model: PreTrainedModel) -> str:
    """Return a hash of the weights and of the architecture's configuration, without names and dropout rates."""
    general = {*PretrainedConfig().to_dict(), "use_cache"}  # the Trainer switches use_cache off
    config = {
        name: value
        for name, value in model.config.to_dict().items()
        if name not in general and not name.startswith("_") and "dropout" not in name
    }
    text = json.dumps([model_fingerprint(model), type(model).__name__, config], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _check_room(folder: Path, size: int, dtype: torch.dtype) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        smaller = ", or store bfloat16 (half the size)" if dtype == torch.float32 else ""
        raise InputError(
            f"{folder}: no space for {_gb(size)} of word vectors, only {_gb(free)} are free: {_ELSEWHERE}{smaller}"
        )


def _row_bytes(vectors: CachedVectors) -> int:
    return vectors.shape[1] * vectors.shape[2] * vectors.dtype.itemsize


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def add_sentences(
    model: PreTrainedModel,
    dataset: Dataset,
    *,
    layers: list[int],
    pad_token_id: int,
    autocast: torch.dtype | None = None,
    ray: str | None = None,
) -> Dataset:
    """Add the columns `source_sentence` and `target_sentence`, float32 (layers, dim), to a result of `encode_pairs`.

    Each is the mean over all tokens. `layers` are positions in `hidden_states`, `autocast` is the dtype of the forward
    passes, `ray` the address of a Ray cluster that runs them.
    """

    def encode(rows: dict[str, list]) -> dict[str, np.ndarray]:
        sentences = [*rows["source_ids"], *rows["target_ids"]]
        vectors = np.empty((len(sentences), len(layers), model.config.hidden_size), dtype=np.float32)
        for batch_rows, mask, states in hidden_batches(
            model, sentences, pad_token_id, layers, dtype=autocast, cluster=cluster
        ):
            pooled = [pool_sentences(hidden, mask, "mean") for hidden in states]
            vectors[batch_rows] = torch.stack(pooled, dim=1).float().cpu().numpy()
        source, target = np.split(vectors, 2)
        return {"source_sentence": source, "target_sentence": target}

    settings = [dataset._fingerprint, model_fingerprint(model), layers, str(autocast)]
    with ray_encoders(model, ray) as cluster:
        return map_rows(
            dataset,
            encode,
            batch_size=1000,  # pairs within which sentences are sorted by length
            new_fingerprint=Hasher.hash(["sentences", *settings]),
            desc="Encoding the sentences of pairs",
        )
