"""`hf-xalign prepare`: clean noisy sentence pairs."""

from __future__ import annotations

import argparse

from hf_xalign.cli import pairs

DESCRIPTION = """Clean noisy sentence pairs: Parquet shards and a report.

    hf-xalign prepare de=opus/*.tsv.gz bn=pairs.jsonl --output clean --test_data de=test.jsonl
    hf-xalign prepare de=crawl.de,crawl.en --output clean --skip numbers language --margin embedded

SOURCE is LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX; .gz too), LANG=FILE1,FILE2 (line by line), a Hub dataset, or
embedded:de. FILE may hold * and ?.

The folder gets part-*.parquet, prepare.json (settings and counts) and prepare.html (examples of what was removed).
Run the same command again to resume a killed run. The result does not depend on --workers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the input, the steps and the output."""
    from hf_xalign.prepare.rules import STEPS, Limits

    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="sentence pairs, see above")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to write")
    pairs.add_options(parser, "train", on_empty=False)  # it removes and counts such pairs
    parser.add_argument("--test_data", nargs="+", default=[], metavar="SOURCE", help="test sets that may not leak in")
    steps = "; ".join(f"{step} ({what})" for step, what in STEPS.items())
    parser.add_argument("--skip", nargs="+", default=[], metavar="STEP", help=f"steps to leave out of: {steps}")
    for name, what in {
        "max_words": "most words of a side",
        "max_ratio": "largest ratio of the sides' lengths",
        "min_script": "least share of letters in the language's script",
        "min_numbers": "least share of digits that both sides have",
        "min_language": "least confidence of the language identifier",
        "near": "least Jaccard similarity of near duplicates",
        "min_margin": "least margin, with --margin",
    }.items():
        default = getattr(Limits, name)
        parser.add_argument(f"--{name}", type=type(default), default=default, metavar="N", help=what)
    parser.add_argument("--margin", metavar="MODEL", help="score pairs by this encoder: Hub id, folder or builtin")
    parser.add_argument("--device", help="device of the encoder: cpu or cuda (default: the GPU if there is one)")
    parser.add_argument("--shard_pairs", type=int, default=1_000_000, metavar="N", help="pairs in a shard")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one for each core)")


def run(args: argparse.Namespace) -> None:
    """Clean the pairs and print what each step removed."""
    from hf_xalign.environment import usable_cores
    from hf_xalign.prepare.pipeline import prepare
    from hf_xalign.prepare.rules import Limits
    from hf_xalign.tables import table

    names = ("skip", "max_words", "max_ratio", "min_script", "min_numbers", "min_language", "near", "min_margin")
    limits = Limits(**{name: getattr(args, name) for name in names})
    encoder = None
    if args.margin:
        from hf_xalign.modeling.loading import choose_device, load_encoder

        encoder = load_encoder(args.margin, choose_device(args.device))
    record = prepare(
        args.sources,
        args.output,
        limits,
        test_sources=args.test_data,
        encoder=encoder,
        shard_pairs=args.shard_pairs,
        workers=usable_cores() if args.workers is None else args.workers,
        split=args.split,
        **pairs.columns(args),
    )
    languages = list(record["removed"])
    rows = [
        [step, *(f"{record['removed'][name][step]:,}" for name in languages)]
        for step in record["removed"][languages[0]]
        if step not in record["limits"]["skip"]
    ]
    print(table([["removed by", *languages], *rows], len(languages)))
    for name, pairs_decoded in record["entities"].items():
        print(f"entities such as &amp; were decoded in {pairs_decoded:,} pairs of {name}")
    counts = record["pairs"]
    print(f"{counts['kept']:,} of {counts['read']:,} pairs are left, in {len(record['shards'])} shards: {args.output}")
