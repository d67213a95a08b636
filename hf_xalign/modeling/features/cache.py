"""Cache a frozen encoder's word vectors on disk: FAO's reference f0 and MAO's training input."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from datasets import Dataset
from transformers import PretrainedConfig, PreTrainedModel

from hf_xalign.cache import cache_dir, disk_errors, locked, read_mark, write_mark
from hf_xalign.data.batches.pairs import CachedVectors, LinkedTokens, Side
from hf_xalign.data.batches.token_index import Pooling, word_token_index
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.executors import Map
from hf_xalign.modeling.features.plan import FeaturePlan, Needed, plan_features
from hf_xalign.modeling.freezing import model_fingerprint
from hf_xalign.modeling.pooling import pool_words
from hf_xalign.modeling.word_vectors import hidden_batches, ray_encoders

logger = logging.getLogger(__name__)

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
                _write(
                    vectors,
                    blocks,
                    identity,
                    plan,
                    model,
                    layers,
                    pooling,
                    pad_token_id,
                    autocast,
                    batch_size,
                    cluster,
                )
    return vectors, plan.add_rows()


def _write(
    vectors: CachedVectors,
    blocks: list[Block],
    identity: dict[str, Any],
    plan: FeaturePlan,
    model: PreTrainedModel,
    layers: list[int],
    pooling: Pooling,
    pad_token_id: int,
    autocast: torch.dtype | None,
    batch_size: int,
    cluster: Map | None,
) -> None:
    folder, row_bytes = vectors.path.parent, _row_bytes(vectors)
    part, done = folder / "vectors.part", _done(blocks)
    digest = xxhash.xxh3_64()
    kept, size = int(plan.row_offsets[done]) * row_bytes, plan.rows * row_bytes
    _check_room(folder, size - kept, vectors.dtype)
    logger.info("%s of word vectors (%d words of %d sentences) in %s", _gb(size), plan.rows, len(plan), folder)
    if done:
        logger.info("resuming after %d cached sentences", done)
    write_mark(folder / "cache.json", identity)
    write_mark(folder / _BLOCKS, {"blocks": blocks})
    block = max(1, _BLOCK // batch_size) * batch_size
    with (
        open(part, "ab") as file,
        progress(total=len(plan), initial=done, desc="Caching word vectors", unit="sentence") as bar,
    ):
        file.truncate(kept)
        for start in range(done, len(plan), block):
            ids, spans = plan.block(start, min(start + block, len(plan)))
            first_word = plan.word_offsets[start]
            batches = hidden_batches(
                model,
                ids,
                pad_token_id,
                layers,
                batch_size=batch_size,
                dtype=autocast,
                cluster=cluster,
            )
            with contextlib.closing(batches):  # restores the model's mode at once, also if the disk is full
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
    os.replace(part, vectors.path)


def _whole_blocks(folder: Path, ends: np.ndarray) -> list[Block]:
    """Return the undamaged blocks on disk up to the first damaged one; `ends` are the bytes before each sentence."""
    whole: list[Block] = []
    file = next((path for name in ("vectors.bin", "vectors.part") if (path := folder / name).exists()), None)
    if file is None or (mark := read_mark(folder / _BLOCKS)) is None:
        return whole
    with open(file, "rb") as stream:
        for ready, due in mark["blocks"]:
            start, end = int(ends[_done(whole)]), int(ends[min(ready, len(ends) - 1)])
            digest = xxhash.xxh3_64()
            while start < end and (read := stream.read(min(_READ, end - start))):
                digest.update(read)
                start += len(read)
            if digest.hexdigest() != due:
                break
            whole.append((ready, due))
    return whole


def _done(blocks: list[Block]) -> int:
    """Return the number of sentences in all blocks."""
    return blocks[-1][0] if blocks else 0


def _check_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Raise an InputError if the folder holds another cache."""
    path = folder / "cache.json"
    remedy = "Give another folder, or remove this one."
    if (there := read_mark(path)) is None:
        files = [file for name in ("vectors.bin", "vectors.part", _BLOCKS) if (file := folder / name).exists()]
        if files and not path.exists():
            raise InputError(f"{folder} holds vectors without the cache.json that describes them. {remedy}")
        for file in files:
            file.unlink()
        return
    differing = [name for name, value in identity.items() if there.get(name) != value]
    if not differing:
        return
    # Text and settings determine which words are stored, unless only the links differ.
    hashes = {"encoder": "another encoder", "text": "another text"}
    said = [text for name, text in hashes.items() if name in differing]
    settings = [name for name in differing if name not in {*hashes, "words", "rows", "dim"}]
    if settings:
        values = (f"{name} is {there.get(name)} there and {identity[name]} here" for name in settings)
        said.append(f"other settings ({', '.join(values)})")
    raise InputError(f"{folder} holds word vectors of {' and '.join(said or ['other word links'])}. {remedy}")


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
