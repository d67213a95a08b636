"""Measure word links of Parquet shards: time against one process, memory of a worker, Ray, and runs that are killed.

    python benchmarks/link_shards.py --text de=pairs.jsonl --pairs 1000000 --against one ray
    python benchmarks/link_shards.py --text de=pairs.jsonl --pairs 100000 --kills 20

The text's pairs of at most 10 words a side are repeated with one of four words replaced, until there are as many as
asked for. `one` is `align_words` on all of them: one process fits and applies sil-thot's fast_align. Memory is the
largest private memory of a single process. On a busy machine compare the seconds of CPU, which are those of the
command and its busiest worker. `--kills` kills a run of one process and 40 shards that often at random moments,
and compares all files with those of an uninterrupted run.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]
import pyarrow

from hf_xalign.data.arrow import shard_name, write_shard
from hf_xalign.data.load import stream_parallel
from hf_xalign.data.sources import parse_source

LONGEST, CHUNK = 10, 100_000
ONE = """
import sys
from datasets import Dataset
from hf_xalign import align_words
print(len(align_words(Dataset.from_parquet(sys.argv[1] + "/*.parquet", cache_dir=sys.argv[2]), keep_unlinked=True)))
"""


def tables(source: str, pairs: int) -> Iterator[pyarrow.Table]:
    """Yield tables of short pairs, as many in all as asked for."""
    draw = random.Random(0)
    name, language = parse_source(source)
    text = [[side.split() for side in pair[:2]] for pair in stream_parallel(name, source_lang=language)]
    text = [pair for pair in text if max(map(len, pair)) <= LONGEST]
    vocabularies = [[word for pair in text for word in pair[side]] for side in (0, 1)]

    def edit(pair: list[list[str]]) -> tuple[str, str]:
        sides = [list(side) for side in pair]
        for side, vocabulary in zip(sides, vocabularies):
            for _ in range(max(1, len(side) // 4)):
                side[draw.randrange(len(side))] = draw.choice(vocabulary)
        return " ".join(sides[0]), " ".join(sides[1])

    stream = itertools.islice(map(edit, itertools.cycle(text)), pairs)
    while rows := list(itertools.islice(stream, CHUNK)):
        columns = dict(zip(("source", "target"), map(list, zip(*rows))))
        yield pyarrow.table(columns | {"source_lang": [language] * len(rows), "target_lang": ["en"] * len(rows)})


class Cost(NamedTuple):
    """Seconds of a command, those of CPU of it and its busiest child, and private memory (GiB) of one process."""

    seconds: float
    cpu: float
    memory: float

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s ({self.cpu:.0f} s of CPU), {self.memory:.2f} GiB a process"


def measure(command: list[str]) -> Cost:
    """Run a command to its end."""
    start, peak = time.perf_counter(), 0
    busy: dict[int, float] = {}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            own = psutil.Process(process.pid)
            for one in (own, *own.children(recursive=True)):
                peak = max(peak, one.memory_full_info().uss)
                busy[one.pid] = sum(one.cpu_times()[:2])
        except psutil.Error:
            continue
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(time.perf_counter() - start, busy.pop(process.pid) + max(busy.values(), default=0), peak / 2**30)


def kill(text: Path, out: Path, kills: int, shards: int) -> tuple[int, bool]:
    """Kill runs in forks of this process, which has imported everything: kills meet work.

    Returns:
        How many kills met a run, and whether the result is that of an uninterrupted run.
    """
    from hf_xalign.links import align_shards

    fork, draw, met = get_context("fork"), random.Random(0), 0
    options = {"shards": shards}
    start = time.perf_counter()
    whole = fork.Process(target=align_shards, args=([text], out.with_name("whole")), kwargs=options)
    whole.start()
    whole.join()
    seconds = time.perf_counter() - start
    for _ in range(kills):
        run = fork.Process(target=align_shards, args=([text], out), kwargs=options)
        run.start()
        run.join(draw.uniform(0, seconds / 2))
        met += run.is_alive()
        run.kill()
        run.join()
        if (out / "align-words.json").exists():
            if contents(out) != contents(out.with_name("whole")):
                return met, False
            shutil.rmtree(out)
    last = fork.Process(target=align_shards, args=([text], out), kwargs=options)
    last.start()
    last.join()
    return met, contents(out) == contents(out.with_name("whole"))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, metavar="LANG=FILE")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fit_pairs", type=int, default=1_000_000)
    parser.add_argument("--against", nargs="*", default=[], choices=["one", "ray"])
    parser.add_argument("--kills", type=int, default=0)
    args = parser.parse_args()
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for number, table in enumerate(tables(args.text, pairs)):
                write_shard(folder / "text" / shard_name(number, -(-pairs // CHUNK)), [table])

            def command(out: str, *more: str, folder: Path = folder) -> list[str]:
                tool = str(Path(sys.executable).with_name("hf-xalign"))
                words = ["align-words", str(folder / "text"), str(folder / out), "--workers", str(args.workers)]
                return [tool, *words, "--fit_pairs", str(args.fit_pairs), *more]

            cost = measure(command("out")) if args.workers else None
            if cost:
                print(f"{pairs:,} pairs, {args.workers} workers: {cost}", flush=True)
            if "one" in args.against:
                own = measure([sys.executable, "-P", "-c", ONE, str(folder / "text"), str(folder / "cache")])
                ratios = f"; ratio {cost.seconds / own.seconds:.2f} (CPU {cost.cpu / own.cpu:.2f})" if cost else ""
                print(f"{pairs:,} pairs, one process: {own}{ratios}", flush=True)
            if "ray" in args.against and cost:
                own = measure(command("ray", "--ray"))
                same = contents(folder / "ray") == contents(folder / "out")
                print(
                    f"{pairs:,} pairs, Ray: {own}; ratio {own.seconds / cost.seconds:.2f}; same bytes: {same}",
                    flush=True,
                )
            if args.kills:
                met, same = kill(folder / "text", folder / "killed", args.kills, 40)
                print(f"  {met} kills; same bytes: {same}", flush=True)


if __name__ == "__main__":
    main()
