"""Does the memory of `load_parallel` grow with the corpus? Peak resident memory at N and 10 N generated pairs.

    python benchmarks/parallel_scale.py [--pairs 100000] [--format jsonl]

Each size is loaded twice, in processes of their own: once written to the cache, once found there. The base is a process
that only imports the library. Resident memory counts memory-mapped pages once they are touched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

WORDS = ["Datei", "öffnen", "Fenster", "schließen", "the", "file", "সংরক্ষণ", "করুন", "window", "save & close", "<b>"]
FORMATS = ("jsonl", "tsv", "lines", "parquet", "tmx")


def generate(folder: Path, pairs: int, form: str) -> str:
    """Writes `pairs` random pairs of 4 to 16 words a side and returns the source as `load_parallel` takes it."""
    draw = random.Random(0)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(4, 16)))

    rows = ((f"{sentence()} {i}", sentence()) for i in range(pairs))
    name = folder / f"pairs{pairs}"
    if form == "parquet":
        from datasets import Dataset

        table = Dataset.from_generator(lambda: ({"de": s, "en": t} for s, t in rows), cache_dir=str(folder))
        table.to_parquet(f"{name}.parquet")
        return f"{name}.parquet"
    if form == "lines":
        with open(f"{name}.de", "w") as left, open(f"{name}.en", "w") as right:
            for source, target in rows:
                left.write(source + "\n")
                right.write(target + "\n")
        return f"{name}.de,{name}.en"
    with open(f"{name}.{form}", "w") as file:
        if form == "tmx":
            file.write('<tmx version="1.4"><header/><body>\n')
        for source, target in rows:
            if form == "jsonl":
                file.write(json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n")
            elif form == "tsv":
                file.write(f"{source}\t{target}\n")
            else:
                left = f'<tuv xml:lang="de"><seg>{escape(source)}</seg></tuv>'
                right = f'<tuv xml:lang="en"><seg>{escape(target)}</seg></tuv>'
                file.write(f"<tu>{left}{right}</tu>\n")
        if form == "tmx":
            file.write("</body></tmx>\n")
    return f"{name}.{form}"


def child(source: str) -> None:
    """Loads `source` (nothing when empty) and prints pairs, seconds and this process's peak memory in MiB."""
    from hf_xalign.data.parallel import load_parallel

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
            source = generate(Path(folder), pairs, arguments.format)
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
