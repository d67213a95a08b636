"""Filter a corpus chunk by chunk in worker processes, and read the remaining pairs by number."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

import numpy as np
import pyarrow
import regex
import xxhash

from hf_xalign.cache import read_mark, replacing, write_mark, write_text
from hf_xalign.cluster import run_tasks
from hf_xalign.environment import progress
from hf_xalign.language_codes import canonical_language
from hf_xalign.prepare.rules import Limits, Pair, bare, clean, length_ratio, make_rules, visible

KEPT, EXACT, NEAR = range(3)
# 24 bands of 6 values find 95% of the pairs at the default similarity of 0.7, and 31% of those at 0.5.
_BANDS, _ROWS, _GRAM = 24, 6, 5
_DIGIT = regex.compile(r"\p{Nd}")


def hashes(pairs: Sequence[Pair], near: bool) -> np.ndarray:
    """Return the hash of each pair and, if `near`, of each band of its signature: uint64 (pairs, 1 or 25)."""
    texts = ("\0".join([*map(visible, pair[:2]), *map(canonical_language, pair[2:])]) for pair in pairs)
    exact = np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], np.uint64)[:, None]
    if not near:
        return exact
    from datasketch import MinHash

    grams = [list(map(str.encode, _grams(pair))) for pair in pairs]
    signatures = MinHash.bulk(grams, num_perm=_BANDS * _ROWS, hashfunc=xxhash.xxh32_intdigest)
    values = np.array([signature.hashvalues for signature in signatures], np.uint64).reshape(-1, _ROWS)
    bands = np.array([xxhash.xxh3_64_intdigest(band.tobytes()) for band in values], np.uint64)
    return np.concatenate([exact, bands.reshape(-1, _BANDS)], 1)


def find_duplicates(
    chunk_hashes: Sequence[np.ndarray],
    pair_at: Callable[[int], Pair],
    *,
    exact: bool = True,
    near: float | None = None,
) -> np.ndarray:
    """Return for each pair whether it is KEPT, or repeats an earlier one EXACT or NEAR: uint8 (pairs,).

    `chunk_hashes` are the pairs' [`hashes`] in order, perhaps memory-mapped. `pair_at` returns a pair by its number,
    and `near` is the least Jaccard similarity of near duplicates.
    """
    verdicts = np.zeros(sum(map(len, chunk_hashes)), np.uint8)
    if exact:
        for _, others in _groups(chunk_hashes, 0, verdicts):
            verdicts[others] = EXACT
    if near is not None:
        for band in progress(range(1, 1 + _BANDS), desc="Near duplicates", unit=" bands", leave=False):
            for first, others in _groups(chunk_hashes, band, verdicts):
                grams = _grams(pair_at(first))
                for other in others:
                    other_grams = _grams(pair_at(other))
                    if len(grams & other_grams) >= near * len(grams | other_grams):
                        verdicts[other] = NEAR
    return verdicts


def _grams(pair: Pair) -> set[str]:
    """Return a pair's character 5-grams; those of the target are marked, so that equal ones are counted apart."""
    grams: set[str] = set()
    for mark, side in zip(("", "\0"), pair[:2]):
        text = _DIGIT.sub("0", bare(side))
        grams.update(mark + text[i : i + _GRAM] for i in range(max(len(text) - _GRAM + 1, 1)))
    return grams


def _groups(chunk_hashes: Sequence[np.ndarray], column: int, verdicts: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Yield the kept pairs with an equal hash: the number of the first, and those of the others."""
    rows = np.flatnonzero(verdicts == KEPT)
    values = np.concatenate([hashes[:, column] for hashes in chunk_hashes])[rows]
    order = np.argsort(values, kind="stable")
    values = values[order]
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    ends = np.r_[starts[1:], len(values)]
    repeated = ends - starts > 1
    for start, end in zip(starts[repeated], ends[repeated]):
        first, *others = rows[order[start:end]].tolist()
        yield first, others


# Pairs of a chunk: some megabytes of text for each worker, and seconds of work that a kill loses.
CHUNK = 20_000
EXAMPLES = 5  # removed pairs of each step in the report
_SCHEMA = pyarrow.schema(dict.fromkeys(Pair._fields, pyarrow.string()) | {"length_ratio": pyarrow.float32()})


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


class Summary(TypedDict):
    """Result of a chunk that is done, as its file holds it."""

    origin: str
    digest: str
    read: dict[str, int]  # pairs by language pair
    languages: dict[str, int]  # pairs by language
    removed: dict[str, Counter[str]]  # pairs by language pair and step
    examples: dict[str, list[Pair]]  # of removed pairs, by step


def judge(chunks: Iterable[Chunk], work: Path, limits: Limits, tests: frozenset[int], workers: int) -> list[Summary]:
    """Filter the chunks that are not done, in processes, and return the summaries of all chunks in order."""
    count, unfinished = 0, []
    for chunk in progress(chunks, desc="Reading", unit=f" x {CHUNK:,} pairs", leave=False):
        count += 1
        summary = read_mark(_summary_file(work, chunk.number))
        if summary is None or summary["digest"] != chunk.digest:
            # On the disk, because the text may not fit into memory.
            write_text(_text_file(work, chunk.number), json.dumps(chunk))
            unfinished.append(chunk.number)

    def judge_one(position: int) -> str:
        file = _text_file(work, unfinished[position])
        number, origin, pairs = json.loads(file.read_text("utf-8"))
        _judge(Chunk(number, origin, list(itertools.starmap(Pair, pairs))), work, limits, tests)
        file.unlink()
        return ""

    run_tasks(judge_one, len(unfinished), workers=workers, desc="Checking pairs")
    return [cast(Summary, read_mark(_summary_file(work, number))) for number in range(count)]


def _summary_file(work: Path, number: int) -> Path:
    return work / f"{number:06d}.json"


def _text_file(work: Path, number: int) -> Path:
    return work / f"{number:06d}.text"


def _judge(chunk: Chunk, work: Path, limits: Limits, tests: frozenset[int]) -> None:
    rules = make_rules(limits, tests)
    survivors: list[Pair] = []
    removed: dict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[str, list[Pair]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for source, target, *languages in chunk.pairs:
        counts.update(set(languages))
        pair = Pair(clean(source), clean(target), *languages)
        step = next((step for step, broken in rules.items() if broken(pair)), None)
        if step is None:
            survivors.append(pair)
            continue
        removed[pair.languages][step] += 1
        if len(examples[step]) < EXAMPLES:
            examples[step].append(pair)
    rows = [{**pair._asdict(), "length_ratio": length_ratio(pair)} for pair in survivors]
    file = _summary_file(work, chunk.number)
    files = file.with_suffix(".arrow"), file.with_suffix(".npy")
    with replacing(files[0]) as partial, pyarrow.ipc.new_file(str(partial), _SCHEMA) as writer:
        writer.write_table(pyarrow.Table.from_pylist(rows, _SCHEMA))
    with replacing(files[1]) as partial, partial.open("wb") as stream:
        np.save(stream, hashes(survivors, near="near_duplicate" not in limits.skip))
    summary: Summary = {
        "origin": chunk.origin,
        "digest": chunk.digest,
        "read": Counter(pair.languages for pair in chunk.pairs),
        "languages": counts,
        "removed": removed,
        "examples": examples,
    }
    # Last, because it marks the chunk as done, with the checksums of the other files.
    write_mark(file, summary, files)


class Survivors:
    """Pairs that passed the rules, numbered from 0 over all chunks.

    Attributes:
        left: bool (pairs,), false for pairs that a later step removed.
        margin: float32 (pairs,), NaN until it is set.
        hashes: the [`~hf_xalign.prepare.chunks.hashes`] of each chunk.
        chunks: the range of pairs of each chunk.
    """

    def __init__(self, work: Path, count: int):
        self.hashes, tables = [], []
        for number in range(count):
            file = _summary_file(work, number)
            self.hashes.append(np.load(file.with_suffix(".npy"), mmap_mode="r"))
            tables.append(pyarrow.ipc.open_file(pyarrow.memory_map(str(file.with_suffix(".arrow")))).read_all())
        self.pairs = pyarrow.concat_tables(tables)
        starts = np.cumsum([0, *map(len, tables)]).tolist()
        self.chunks = list(itertools.starmap(slice, itertools.pairwise(starts)))
        self.left = np.ones(len(self.pairs), bool)
        self.margin = np.full(len(self.pairs), np.nan, np.float32)

    def pair(self, row: int) -> Pair:
        """Return a pair by its number."""
        [pair] = self.pairs.slice(row, 1).select(Pair._fields).to_pylist()
        return Pair(**pair)

    def remove(self, rows: np.ndarray) -> Counter[str]:
        """Remove the pairs with these numbers, int64, and count them by language pair."""
        self.left[rows] = False
        gone = self.pairs.select(["source_lang", "target_lang"]).take(pyarrow.array(rows))
        return Counter("-".join(row.values()) for row in gone.to_pylist())

    def table(self, chunk: int) -> pyarrow.Table:
        """Return the pairs of a chunk that are left, with their margins."""
        rows = self.chunks[chunk]
        margin = pyarrow.array(self.margin[rows], pyarrow.float32(), from_pandas=True)  # NaN becomes null
        pairs = self.pairs.slice(rows.start, rows.stop - rows.start).append_column("margin", margin)
        return pairs.filter(pyarrow.array(self.left[rows]))
