"""Measure the alignment error rate of every aligner on hand-made links.

    python benchmarks/link_quality.py --gold GOLD.jsonl --bitext BITEXT.jsonl [--pairs 200 2000] [--model builtin]

GOLD has one sentence pair a row: `en` and `xx` (lists of tokens) and `align` (0-based `i-j`, English first). BITEXT is
parallel text of the same languages in the syntax of `load_parallel`, such as `de=FILE`; the statistical aligners are
fitted on it, or on its first `--pairs`, and on the gold sentences, all lower-cased. Links are scored as they come,
before any 1-to-1 filter. The gold links are taken as sure and possible at once, so AER = 1 - F1.
"""

from __future__ import annotations

import argparse
import json
import os
from itertools import product
from typing import get_args

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from datasets import Dataset, disable_progress_bars
from transformers import AutoTokenizer

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.load import load_parallel
from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.links import align_words
from hf_xalign.links.neural import LinkMethod, choose_layer, encoder_links
from hf_xalign.links.statistical import STATISTICAL_ALIGNERS
from hf_xalign.modeling.checkpoint import load_trainable

SYMMETRIZATIONS = ("intersection", "grow-diag-final-and")


def read_gold(path: str, lang: str) -> tuple[Dataset, list[list[tuple[int, int]]]]:
    """The sentences as a dataset that is split into words already, and their links, English second."""
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    links = [[(int(j), int(i)) for i, j in (link.split("-") for link in row["align"].split())] for row in rows]
    data = Dataset.from_dict(
        {
            "source": [" ".join(row["xx"]) for row in rows],
            "target": [" ".join(row["en"]) for row in rows],
            "source_lang": [lang] * len(rows),
            "target_lang": ["en"] * len(rows),
            "source_words": [row["xx"] for row in rows],
            "target_words": [row["en"] for row in rows],
        }
    )
    return data, links


def report(name: str, symmetrization: str, found: list, gold: list) -> None:
    """Print one row of the table."""
    score = alignment_error_rate(found, gold)
    figures = " | ".join(f"{100 * score[key]:.1f}" for key in ("precision", "recall", "alignment_error_rate"))
    print(f"| {name} | {symmetrization} | {figures} | {sum(map(len, found)):,} |", flush=True)


def main() -> None:
    """Print one Markdown row an aligner, setting and symmetrisation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gold", required=True, help="hand-made links, JSONL")
    parser.add_argument("--bitext", required=True, help="parallel text to fit the statistical aligners on")
    parser.add_argument("--pairs", nargs="*", type=int, default=[None], help="fit on the first N pairs of --bitext")
    parser.add_argument("--lang", default="de", help="the language beside English")
    parser.add_argument("--model", nargs="*", default=[], help="encoders: folders, Hub ids or `builtin`")
    parser.add_argument("--layers", nargs="*", type=int, default=[], help="layers of encoders, but for the chosen one")
    parser.add_argument(
        "--aligners", nargs="*", default=["fast_align", "hmm", "eflomal"], choices=STATISTICAL_ALIGNERS, metavar="NAME"
    )
    args = parser.parse_args()

    disable_progress_bars()
    data, gold = read_gold(args.gold, args.lang)
    print(f"{len(data)} sentence pairs with {sum(map(len, gold)):,} links\n")
    print("| aligner | symmetrization | precision | recall | AER | links |\n|---|---|---|---|---|---|")
    for pairs, aligner, symmetrization in product(args.pairs, args.aligners, SYMMETRIZATIONS):
        bitext = load_parallel(args.bitext, max_pairs=pairs)
        linked = align_words(data, aligner, symmetrization, one_to_one=False, keep_unlinked=True, extra_data=bitext)
        report(f"{aligner}, fitted on {len(bitext):,} more pairs", symmetrization, linked["links"][:], gold)
    for name in args.model:
        folder = resolve_model(name)
        model, tokenizer = load_trainable(folder), AutoTokenizer.from_pretrained(folder)
        words = data["source_words"][:], data["target_words"][:]
        for method in get_args(LinkMethod):
            chosen = choose_layer(model, tokenizer, *words, method=method)
            for layer, symmetrization in product([chosen, *args.layers], SYMMETRIZATIONS):
                options = {"layer": layer, "method": method, "symmetrization": symmetrization}
                found = encoder_links(model, tokenizer, *words, **options)
                how = " (chosen)" if layer == chosen else ""
                report(f"{name}, layer {layer}{how}, {method}", symmetrization, found, gold)


if __name__ == "__main__":
    main()
