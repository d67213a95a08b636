"""Does the memory of `load_parallel` grow with the corpus? Peak resident memory at N and 10 N generated pairs.

    python benchmarks/parallel_scale.py [--pairs 100000] [--format jsonl]

Each size is loaded twice, in processes of their own: once written to the cache, once found there. The base is a
process that only imports the library. Resident memory counts memory-mapped pages once they are touched.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow
import pyarrow.parquet

WORDS = ["Datei", "öffnen", "Fenster", "schließen", "the", "file", "সংরক্ষণ", "করুন", "window", "save & close", "<b>"]
FORMATS = ("jsonl", "tsv", "lines", "parquet", "tmx")
SCHEMA = pyarrow.schema([("de", pyarrow.string()), ("en", pyarrow.string())])
LINES = {
    "jsonl": lambda source, target: json.dumps({"source": source, "target": target}, ensure_ascii=False),
    "tsv": lambda source, target: f"{source}\t{target}",
    "tmx": lambda source, target: (
        f'<tu><tuv xml:lang="de"><seg>{escape(source)}</seg></tuv>'
        f'<tuv xml:lang="en"><seg>{escape(target)}</seg></tuv></tu>'
    ),
}


def generate(folder: Path, pairs: int, form: str) -> str:
    """Writes `pairs` random pairs of 4 to 16 words a side and returns the source as `load_parallel` takes it."""
    draw = random.Random(0)
    name = folder / f"pairs{pairs}"
    endings = (".de", ".en") if form == "lines" else (f".{form}",)

    def rows() -> Iterator[tuple[str, str]]:
        for number in range(pairs):
            source, target = (" ".join(draw.choices(WORDS, k=draw.randint(4, 16))) for _ in range(2))
            yield f"{source} {number}", target

    if form == "parquet":
        with pyarrow.parquet.ParquetWriter(f"{name}.parquet", SCHEMA) as writer:
            stream = rows()
            while chunk := list(itertools.islice(stream, 10_000)):
                writer.write_table(pyarrow.table(dict(zip(("de", "en"), zip(*chunk)))))
    else:
        with ExitStack() as stack:
            files = [stack.enter_context(open(f"{name}{ending}", "w", encoding="utf-8")) for ending in endings]
            if form == "tmx":
                files[0].write('<tmx version="1.4"><header/><body>\n')
            for source, target in rows():
                if form == "lines":
                    files[0].write(source + "\n")
                    files[1].write(target + "\n")
                else:
                    files[0].write(LINES[form](source, target) + "\n")
            if form == "tmx":
                files[0].write("</body></tmx>\n")
    return ",".join(f"{name}{ending}" for ending in endings)


def child(source: str) -> None:
    """Loads `source` (nothing when empty) and prints pairs, seconds and this process's peak memory in MiB."""
    from hf_xalign.data.load import load_parallel

    start = time.perf_counter()
    pairs = len(load_parallel(source, source_lang="de")) if source else 0
    seconds = time.perf_counter() - start
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux KiB
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    print(json.dumps({"pairs": pairs, "seconds": seconds, "mib": mib}))


def measure(source: str) -> dict[str, float]:
    """Runs `child` in a process of its own."""
    command = [sys.executable, __file__, "--child", source]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    """Prints a table and the ratio of the two peaks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000, help="N; the second size is 10 N")
    parser.add_argument("--format", choices=FORMATS, default="jsonl")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        return child(arguments.child)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_XALIGN_CACHE"] = folder
        base = measure("")["mib"]
        print(f"format {arguments.format}; a process that only imports: {base:,.0f} MiB")
        print(
            f"{'pairs':>12} {'file MiB':>9} {'first load s':>13} {'peak MiB':>9} {'from cache s':>13} {'peak MiB':>9}"
        )
        peaks = []
        for pairs in (arguments.pairs, 10 * arguments.pairs):
            # in a process of its own, because a child inherits its parent's peak and the peak here must stay small
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                source = pool.submit(generate, Path(folder), pairs, arguments.format).result()
            size = sum(Path(part).stat().st_size for part in source.split(",")) / 2**20
            first, again = measure(source), measure(source)
            assert first["pairs"] == again["pairs"] == pairs
            peaks.append((first["mib"], again["mib"]))
            print(
                f"{pairs:>12,} {size:>9,.1f} {first['seconds']:>13.2f} {first['mib']:>9,.0f} "
                f"{again['seconds']:>13.2f} {again['mib']:>9,.0f}"
            )
        (small, small_cached), (large, large_cached) = peaks
        print(f"peak at 10 N / peak at N: {large / small:.3f} first, {large_cached / small_cached:.3f} from the cache")


if __name__ == "__main__":
    main()
