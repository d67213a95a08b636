"""Options of commands that read sentence pairs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hf_xalign.data.sources import check_files
from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset


def add_options(parser: argparse.ArgumentParser, split: str) -> None:
    """Add the options of split, pivot, columns and revision."""
    parser.add_argument("--split", default=split, help="split of embedded and Hub text")
    parser.add_argument("--target_lang", default="en", help="the pivot: language of the target side")
    parser.add_argument("--source_column", metavar="NAME", help="column of source text (default: by its name)")
    parser.add_argument("--target_column", metavar="NAME", help="column of target text (default: by its name)")
    parser.add_argument("--dataset_revision", metavar="NAME", help="branch, tag or commit of Hub datasets")


def columns(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `load_sources` for these options, without the split."""
    names = {name: getattr(args, name) for name in ("target_lang", "source_column", "target_column")}
    return {**names, "revision": args.dataset_revision}


def add_text(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options of held-out text, as pairs or word-aligned; `default` describes the text without any."""
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="PAIRS",
        help="parallel text: embedded:de, LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX; .gz too), LANG=FILE1,FILE2 "
        f"or a Hub dataset (default: {default})",
    )
    parser.add_argument(
        "--links", metavar="FILE", help="word-aligned text, such as eval_links.jsonl of a run, instead of --data"
    )
    add_options(parser, "test")


def read_text(args: argparse.Namespace, *, linked: bool = True) -> Dataset:
    """Load the text of [`add_text`], `embedded:de` and `embedded:bn` by default; word-aligned if `linked`."""
    from hf_xalign.data.parallel import load_sources
    from hf_xalign.links.frozen import make_evaluation_links, read_links

    if args.links:
        return read_links(args.links)
    items = args.data or ["embedded:de", "embedded:bn"]
    text = load_sources(items, split=args.split, max_pairs=args.max_pairs, **columns(args))
    if not linked:
        return text
    # As in the recipes, the aligner also learns from the embedded train split, so that the links are equal.
    inside = [item for item in items if item.startswith("embedded:")]
    train = load_sources(inside, split="train", **columns(args)) if inside else None
    return make_evaluation_links(text, train)


def check_text(args: argparse.Namespace) -> None:
    """Raise an InputError if the options of [`add_text`] name two texts, or files that are not there."""
    if args.links and args.data:
        raise InputError("--links already names the text: leave --data out")
    check_files([args.links] if args.links else args.data or [])
