"""Filter a corpus chunk by chunk in worker processes, and read the remaining pairs by number.

For each chunk, three files are written: its remaining pairs (Arrow), their hashes, and last a summary, which marks the
chunk as done and has the checksums of the others.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import xxhash

from hf_xalign.cache import read_mark, replacing, write_mark
from hf_xalign.data.mapped import release_pages
from hf_xalign.environment import progress
from hf_xalign.executors import local_executor
from hf_xalign.prepare.duplicates import hashes
from hf_xalign.prepare.rules import Limits, Pair, clean, decode_entities, length_ratio, make_rules

CHUNK = 20_000  # pairs
EXAMPLES = 5  # removed pairs of each step in the report
_SCHEMA = pyarrow.schema([*((name, pyarrow.string()) for name in Pair._fields), ("length_ratio", pyarrow.float32())])
_rules: dict[str, Callable[[Pair], bool]] = {}  # set in each worker process


class Chunk(NamedTuple):
    """Consecutive pairs of a source."""

    number: int
    origin: str
    pairs: list[Pair]

    @property
    def digest(self) -> str:
        """Return a hash of the origin and all pairs."""
        text = "\0".join([self.origin, *itertools.chain.from_iterable(self.pairs)])
        return xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))


def judge(chunks: Iterable[Chunk], work: Path, limits: Limits, tests: frozenset[int], workers: int) -> list[Any]:
    """Filter the chunks that are not done, and return the summaries of all chunks.

    A summary has `origin`, `digest` of the chunk, `read` {language pair: number of pairs}, `languages` {language:
    number of pairs}, `decoded` {language pair: number of pairs with entities}, `removed` {language pair: {step:
    number}} and `examples` {step: pairs}.

    Raises:
        InputError: a worker died.
    """
    found: dict[str, dict[str, Any]] = {}

    def left() -> Iterator[tuple[str, tuple[Any, ...]]]:
        for chunk in progress(chunks, desc="Checking pairs", unit=f" x {CHUNK:,} pairs", leave=False):
            name = f"chunk {chunk.number} ({chunk.origin})"
            summary = read_mark(_summary_file(work, chunk.number))
            found[name] = summary or {}
            if summary is None or summary["digest"] != chunk.digest:
                yield name, (chunk, work, limits)

    with local_executor(workers, start=(_start, limits, tests), ahead=workers) as run:
        for name, future in run(_judge, left()):
            found[name] = future.result()
    return list(found.values())


def _summary_file(work: Path, number: int) -> Path:
    return work / f"{number:06d}.json"


def _start(limits: Limits, tests: frozenset[int]) -> None:
    _rules.clear()
    _rules.update(make_rules(limits, tests))


def _judge(chunk: Chunk, work: Path, limits: Limits) -> dict[str, Any]:
    """Write the files of one chunk, and return its summary."""
    survivors: list[Pair] = []
    decoded: Counter[str] = Counter()
    removed: dict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[str, list[Pair]] = defaultdict(list)
    for source, target, *languages in chunk.pairs:
        texts = decode_entities(source), decode_entities(target)
        pair = Pair(*(clean(text) for text in texts), *languages)
        decoded[pair.languages] += texts != (source, target)
        step = next((step for step, broken in _rules.items() if broken(pair)), None)
        if step is None:
            survivors.append(pair)
            continue
        removed[pair.languages][step] += 1
        if len(examples[step]) < EXAMPLES:
            examples[step].append(pair)
    columns = [*(zip(*survivors) if survivors else ([] for _ in Pair._fields)), [*map(length_ratio, survivors)]]
    table = pyarrow.table({name: list(column) for name, column in zip(_SCHEMA.names, columns)}, _SCHEMA)
    file = _summary_file(work, chunk.number)
    files = file.with_suffix(".arrow"), file.with_suffix(".npy")
    with replacing(files[0]) as partial, pyarrow.ipc.new_file(str(partial), _SCHEMA) as writer:
        writer.write_table(table)
    with replacing(files[1]) as partial, partial.open("wb") as stream:
        np.save(stream, hashes(survivors, near="near_duplicate" not in limits.skip))
    summary = {
        "origin": chunk.origin,
        "digest": chunk.digest,
        "read": Counter(pair.languages for pair in chunk.pairs),
        "languages": Counter(code for pair in chunk.pairs for code in {pair.source_lang, pair.target_lang}),
        "decoded": +decoded,
        "removed": removed,
        "examples": examples,
    }
    write_mark(file, summary, files)
    return summary


class Survivors:
    """Pairs that passed the rules, numbered from 0 over all chunks.

    Attributes:
        left: bool (pairs,), false for pairs that a later step removed.
        margin: float32 (pairs,), NaN until it is set.
        hashes: the [`~hf_xalign.prepare.duplicates.hashes`] of each chunk.
        chunks: the range of pairs of each chunk.
    """

    def __init__(self, work: Path, count: int):
        names = [f"{number:06d}" for number in range(count)]
        self.hashes = [np.load(work / f"{name}.npy", mmap_mode="r") for name in names]
        self.tables = [
            pyarrow.ipc.open_file(pyarrow.memory_map(str(work / f"{name}.arrow"))).read_all() for name in names
        ]
        self._files = frozenset(str((work / f"{name}.arrow").resolve()) for name in names)
        self.starts = np.cumsum([0, *map(len, self.tables)])
        self.chunks = list(itertools.starmap(slice, itertools.pairwise(self.starts.tolist())))
        self.left = np.ones(self.starts[-1], bool)
        self.margin = np.full(self.starts[-1], np.nan, np.float32)

    def release(self) -> None:
        """Release the memory of the pairs that were read, which are mapped from disk."""
        release_pages(self._files)

    def pair(self, row: int) -> Pair:
        """Return a pair by its number."""
        chunk = int(np.searchsorted(self.starts, row, "right")) - 1
        table, place = self.tables[chunk], row - int(self.starts[chunk])
        return Pair(*(table.column(name)[place].as_py() for name in Pair._fields))

    def remove(self, rows: np.ndarray) -> Counter[str]:
        """Remove the pairs with these numbers, int64 in ascending order, and count them by language pair."""
        self.left[rows] = False
        counts: Counter[str] = Counter()
        parts = np.split(rows, np.searchsorted(rows, self.starts[1:-1]))
        for table, own, start in zip(self.tables, parts, self.starts):
            gone = table.select(["source_lang", "target_lang"]).take(own - start)
            counts.update(f"{row['source_lang']}-{row['target_lang']}" for row in gone.to_pylist())
        self.release()
        return counts

    def table(self, chunk: int) -> Any:
        """Return the pairs of a chunk that are left, with their margins."""
        own = self.chunks[chunk]
        margin = pyarrow.array(self.margin[own], pyarrow.float32(), from_pandas=True)  # NaN becomes null
        return self.tables[chunk].append_column("margin", margin).filter(pyarrow.array(self.left[own]))
