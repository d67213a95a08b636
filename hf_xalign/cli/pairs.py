"""Options of commands that read sentence pairs."""

from __future__ import annotations

import argparse
from typing import Any


def add_options(parser: argparse.ArgumentParser, split: str) -> None:
    """Add the options of split, pivot, columns and revision."""
    parser.add_argument("--split", default=split, help="split of embedded and Hub text")
    parser.add_argument("--target_lang", default="en", help="the pivot: language of the target side")
    parser.add_argument("--source_column", metavar="NAME", help="column of source text (default: LANG, else source)")
    parser.add_argument(
        "--target_column", metavar="NAME", help="column of target text (default: target_lang, else target)"
    )
    parser.add_argument("--dataset_revision", metavar="NAME", help="branch, tag or commit of Hub datasets")


def columns(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `load_sources` for these options, without the split."""
    names = {name: getattr(args, name) for name in ("target_lang", "source_column", "target_column")}
    return {**names, "revision": args.dataset_revision}
