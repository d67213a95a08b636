"""Time anchors against the bare forward passes and against one word at a time.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/mapping_anchors.py                          # minutes on 2 cores
    OMP_WAIT_POLICY=PASSIVE python benchmarks/mapping_anchors.py --max_sentences 400 --repeats 1      # a trial run
    python benchmarks/mapping_anchors.py --text de.txt.gz --lang de

With the built-in encoder, in float32, last layer:

- `bare`: forward passes over the chosen sentences, in the same batches and side by side as the pass has them, and
  nothing done with what they give;
- `pass`: the same, averaged into the anchors;
- `whole`: `make_anchors`, which also counts and chooses, tokenizes, hashes the encoder and writes its file;
- `naive`: for each word a forward pass over its first k sentences. It is timed for a few words, drawn by their share
  of these sentences; all would take the mean of their seconds a sentence for each.

A repeat runs these one after the other, in another order each time. A ratio is taken within a repeat and the median
reported, because other work on the machine then slows both sides of it; ratios of CPU seconds stand beside those of
wall seconds, because they say more there. Aim: `pass` and `whole` with at least 0.85 of the throughput of `bare`.
Words that occur k times at most must come out the same both ways, or the benchmark stops.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from transformers import AutoTokenizer

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.load import load_parallel
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.mapping.anchors import (
    choose_sentences,
    count_words,
    cut_words,
    distinct_words,
    find_occurrences,
    make_anchors,
    sum_vectors,
)
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.word_vectors import extract_word_vectors, hidden_batches
from hf_xalign.recipes.parts.command import run, settle_cpu

AIM = 0.85
BATCH_SIZE = 64
TOLERANCE = 1e-4


class Seconds(NamedTuple):
    """Wall and CPU seconds."""

    wall: float
    cpu: float


def measure(
    texts: list[str],
    lang: str,
    sentences_per_word: int = 100,
    max_words: int = 20_000,
    threads: int | None = None,
    *,
    repeats: int = 3,
    sample: int = 12,
) -> dict[str, Any]:
    """Time all four on one text.

    Args:
        texts: sentences.
        lang: their language.
        sentences_per_word: k.
        max_words: size of the vocabulary.
        threads: torch's threads; default as they are.
        repeats: interleaved runs of all four.
        sample: words that `naive` runs.

    Returns:
        `words`, `sentences`, `distinct`, `tokens`, `threads`; and for `wall` and `cpu` each `seconds`, the
        medians, and `ratios`, of every repeat: the throughput of `pass` and of `whole` as a share of that of `bare`,
        and the time of `naive` over that of `whole`.

    Raises:
        RuntimeError: a word's vectors differ between `pass` and `naive`.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    path = resolve_model("builtin")
    model, tokenizer = load_trainable(path), AutoTokenizer.from_pretrained(path)
    counted = count_words(texts, lang, find_cut=partial(cut_words, model, tokenizer))
    vocabulary = counted.vocabulary(max_words)
    offsets, words = distinct_words(counted, vocabulary)
    chosen = choose_sentences(offsets, words, sentences_per_word)
    found = find_occurrences(model, tokenizer, counted, vocabulary, chosen, per_word=sentences_per_word)
    layers, pad = [model.config.num_hidden_layers], tokenizer.pad_token_id
    owner = np.repeat(np.arange(len(counted)), np.diff(offsets))
    needs = np.minimum(np.bincount(words), sentences_per_word)
    shares = (np.arange(sample) + 0.5) / sample * needs.sum()
    picked = np.searchsorted(np.cumsum(needs), shares).tolist()
    means: dict[int, torch.Tensor] = {}
    sums: list[torch.Tensor] = []

    def bare() -> None:
        ids = found.tokens
        for _ in hidden_batches(model, ids, pad, layers, batch_size=BATCH_SIZE):
            pass

    def one_pass() -> None:
        sums[:] = [sum_vectors(model, found, layers, pooling="mean", pad_token_id=pad, batch_size=BATCH_SIZE)]

    def whole() -> None:
        with tempfile.TemporaryDirectory() as folder:
            make_anchors(
                model,
                tokenizer,
                texts,
                lang=lang,
                max_words=max_words,
                sentences_per_word=sentences_per_word,
                batch_size=BATCH_SIZE,
                folder=folder,
            )

    def one_word(row: int) -> None:
        chosen = owner[words == row][:sentences_per_word]
        split = counted.split(chosen)
        vectors = extract_word_vectors(model, tokenizer, split, batch_size=BATCH_SIZE)
        each = []
        for k, sentence in enumerate(chosen.tolist()):
            types = counted.words[counted.offsets[sentence] : counted.offsets[sentence + 1]]
            here = torch.from_numpy(np.flatnonzero(types == vocabulary[row])) + vectors.offsets[k]
            each.append(vectors.vectors[here, 0].mean(0))
        means[row] = torch.stack(each).mean(0)

    def naive() -> Seconds:
        found = np.array([_timed(partial(one_word, row)) for row in picked])
        wall, cpu = needs.sum() * (found / needs[picked][:, None]).mean(0)
        return Seconds(wall, cpu)

    actions: dict[str, Callable[[], Seconds]] = {
        "bare": partial(_timed, bare),
        "pass": partial(_timed, one_pass),
        "whole": partial(_timed, whole),
        "naive": naive,
    }
    shuffle = random.Random(0).shuffle
    times: dict[str, list[dict[str, float]]] = {"wall": [], "cpu": []}
    for _ in range(repeats):
        names = list(actions)
        shuffle(names)
        taken = {name: actions[name]() for name in names}
        times["wall"].append({name: seconds.wall for name, seconds in taken.items()})
        times["cpu"].append({name: seconds.cpu for name, seconds in taken.items()})
    _compare(sums[0][:, 0] / torch.from_numpy(found.counts)[:, None], means, np.bincount(words), sentences_per_word)
    return {
        "words": len(vocabulary),
        "sentences": len(found),
        "distinct": len(counted),
        "tokens": len(found.tokens),
        "threads": torch.get_num_threads(),
        **{clock: _summary(taken) for clock, taken in times.items()},
    }


def _timed(action: Callable[[], None]) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def _summary(times: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "seconds": {name: median(taken[name] for taken in times) for name in times[0]},
        "ratios": {
            "pass": [taken["bare"] / taken["pass"] for taken in times],
            "whole": [taken["bare"] / taken["whole"] for taken in times],
            "naive": [taken["naive"] / taken["whole"] for taken in times],
        },
    }


def _compare(anchors: torch.Tensor, means: dict[int, torch.Tensor], totals: np.ndarray, per_word: int) -> None:
    """Stop where a word that has the same sentences both ways has other vectors."""
    same = [row for row in means if totals[row] <= per_word]
    worst = max((float((anchors[row] - means[row]).abs().max()) for row in same), default=0.0)
    if worst > TOLERANCE:
        raise RuntimeError(f"anchors of one pass and of one word at a time differ by {worst:.2g}")


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    said = {
        "bare": "bare forward passes",
        "pass": "the pass, its throughput over bare's",
        "whole": "make_anchors, its throughput over bare's",
        "naive": "one word at a time, its seconds over make_anchors'",
    }
    lines = ["| | seconds | ratio (range) | CPU seconds | ratio (range) | aim |", "|---|---|---|---|---|---|"]
    for name, what in said.items():
        cells = [what]
        for clock in ("wall", "cpu"):
            values = result[clock]["ratios"].get(name, [])
            cells.append(f"{result[clock]['seconds'][name]:,.1f}")
            cells.append(f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})" if values else "")
        met = name in ("pass", "whole") and median(result["wall"]["ratios"][name]) >= AIM
        cells.append("" if name in ("bare", "naive") else f">= {AIM}, {'met' if met else 'missed'}")
        lines.append(f"| {' | '.join(cells)} |")
    head = (
        f"{result['words']:,} words from {result['sentences']:,} of {result['distinct']:,} distinct sentences, "
        f"{result['tokens']:,} tokens, {result['threads']} threads"
    )
    return f"{head}\n\n" + "\n".join(lines)


def main() -> None:
    """Measure one text and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="file of one sentence a line; default the English side of builtin:de")
    parser.add_argument("--lang", default="en")
    parser.add_argument("--max_sentences", type=int)
    parser.add_argument("--sentences_per_word", type=int, default=100)
    parser.add_argument("--max_words", type=int, default=20_000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sample", type=int, default=12, help="words that are run one at a time")
    arguments = parser.parse_args()
    settle_cpu("cpu")
    if arguments.text:
        texts = load_monolingual(arguments.text, max_sentences=arguments.max_sentences)["text"][:]
    else:
        texts = load_parallel("builtin:de", split="train")["target"][: arguments.max_sentences]
    result = measure(
        texts,
        arguments.lang,
        arguments.sentences_per_word,
        arguments.max_words,
        arguments.threads,
        repeats=arguments.repeats,
        sample=arguments.sample,
    )
    print(f"\n{table(result)}")


if __name__ == "__main__":
    run(main)
