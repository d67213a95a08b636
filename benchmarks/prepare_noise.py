"""Measure what `hf-xalign prepare` finds of planted noise, how fast, and in how much memory.

    python benchmarks/prepare_noise.py --text de=pairs.jsonl --test de=test.jsonl [--pairs 1000000 3000000]
    python benchmarks/prepare_noise.py --text de=pairs.jsonl --test de=test.jsonl --pairs 100000 --language es=es.jsonl

The text's pairs of at least 8 words a side are repeated with three of five words replaced, until there are as many as
asked for; 1% of each kind of noise is then put between them. A near duplicate has one word of at most 8 letters
replaced, in pairs of at least 12 words a side. `--language` plants pairs whose source side is in that other language,
and runs the language identifier, which takes most of the time and memory. Memory is the peak of the sum of all
processes' private memory.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyarrow.parquet

from hf_xalign.data.load import stream_parallel
from hf_xalign.data.sources import parse_source

KINDS = ("empty", "identical", "length", "duplicate", "near_duplicate", "test")
LONG = 11  # words of a side
Pair = tuple[str, str]


def read(source: str, words: int) -> list[Pair]:
    """Return the pairs of a source with at least this many words a side."""
    name, language = parse_source(source)
    pairs = [(pair[0], pair[1]) for pair in stream_parallel(name, source_lang=language)]
    return [pair for pair in pairs if min(len(side.split()) for side in pair) >= words]


def edit(pair: Pair, vocabularies: list[list[str]], share: float, draw: random.Random) -> Pair:
    """Replace this share of the words of both sides by words of the same language; numbers stay."""
    sides = [side.split() for side in pair]
    for side, vocabulary in zip(sides, vocabularies):
        places = [place for place, word in enumerate(side) if word.isalpha()]
        for place in draw.sample(places, round(share * len(places))):
            side[place] = draw.choice(vocabulary)
    return " ".join(sides[0]), " ".join(sides[1])


def edit_one(pair: Pair, vocabulary: list[str], draw: random.Random) -> Pair:
    """Replace one word of the source side, of at most 8 letters like its replacement."""
    words = pair[0].split()
    place = draw.choice([place for place, word in enumerate(words) if len(word) <= 8])
    words[place] = draw.choice([word for word in draw.choices(vocabulary, k=100) if len(word) <= 8])
    return " ".join(words), pair[1]


def plant(kind: str, pair: Pair, other: Pair, vocabularies: list[list[str]], draw: random.Random) -> Pair:
    """Return noise of one kind, made of a clean pair and another pair (of the test set, or in another language)."""
    source, target = pair
    return {
        "empty": lambda: (source, draw.choice(["", " ", "...", "\u00a0"])),
        "identical": lambda: (target, target.upper()),
        "length": lambda: (source, " ".join([target] * 6)),
        "duplicate": lambda: pair,
        "near_duplicate": lambda: edit_one(pair, vocabularies[0], draw),
        "test": lambda: (source, other[1]),
        "language": lambda: (other[0], target),
    }[kind]()


def corpus(pairs: int, args: argparse.Namespace) -> Iterator[tuple[str, Pair]]:
    """Yield each pair with its kind, `clean` for no noise."""
    draw = random.Random(0)
    text = read(args.text, 8)
    others = {"test": read(args.test, 8), "language": read(args.language, 8) if args.language else []}
    vocabularies = [[word for pair in text for word in pair[side].split() if word.isalpha()] for side in (0, 1)]
    kinds = [*KINDS, *(["language"] if args.language else [])]
    for number in range(pairs):
        pair = text[number % len(text)]
        clean = pair if number < len(text) else edit(pair, vocabularies, 0.6, draw)
        yield "clean", clean
        for kind in kinds:
            long = min(len(side.split()) for side in clean) > LONG
            # Pairs that are long enough for a near duplicate are rarer, so each is taken more often.
            if draw.random() < (0.01 if kind != "near_duplicate" else 0.01 * args.rarity * long):
                other = draw.choice(others[kind]) if kind in others else clean
                yield kind, plant(kind, clean, other, vocabularies, draw)


def peak_memory(process: subprocess.Popen) -> int:
    """Wait for a process and return the peak of the private memory (bytes) of it and its children."""
    peak = 0
    while process.poll() is None:
        total = 0
        try:
            main = psutil.Process(process.pid)
            for one in (main, *main.children(recursive=True)):
                total += one.memory_full_info().uss
        except psutil.Error:
            continue
        peak = max(peak, total)
        time.sleep(0.5)
    return peak


def main() -> None:
    """Print a row for each size, and the shares found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, metavar="LANG=FILE")
    parser.add_argument("--test", required=True, metavar="LANG=FILE")
    parser.add_argument("--language", metavar="LANG=FILE")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 3_000_000])
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    text = read(args.text, 8)
    args.rarity = len(text) / max(1, sum(min(len(side.split()) for side in pair) > LONG for pair in text))
    code = parse_source(args.text)[1]
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory() as folder:
            noisy, clean = Path(folder, "noisy.jsonl"), Path(folder, "clean")
            with noisy.open("w", encoding="utf-8") as file:
                for _, (source, target) in corpus(pairs, args):
                    file.write(json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n")
            skip = [] if args.language else ["--skip", "language"]
            command = ["prepare", f"{code}={noisy}", "--output", str(clean), "--test_data", args.test, *skip]
            start = time.perf_counter()
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("hf-xalign")), *command, "--workers", str(args.workers)],
                stdout=subprocess.DEVNULL,
            )
            peak = peak_memory(process)
            seconds = time.perf_counter() - start
            if process.returncode:
                raise SystemExit(process.returncode)
            left: Counter[Pair] = Counter()
            for shard in sorted(clean.glob("*.parquet")):
                table = pyarrow.parquet.read_table(shard, columns=["source", "target"]).to_pydict()
                left.update(zip(table["source"], table["target"]))
            planted, found, original = Counter[str](), Counter[str](), ("", "")
            for kind, pair in corpus(pairs, args):
                planted[kind] += 1
                original = pair if kind == "clean" else original
                if kind in ("duplicate", "near_duplicate"):  # one of the two is left, or none
                    found[kind] += sum(left[one] for one in {pair, original}) <= 1
                else:
                    found[kind] += not left[pair]
            print(f"{pairs:,} pairs and noise: {seconds:.0f} s, peak {peak / 2**20:,.0f} MiB")
            for kind, count in planted.items():
                print(f"  {kind:<15} {count:>9,} removed {100 * found[kind] / count:6.2f}%", flush=True)


if __name__ == "__main__":
    main()
