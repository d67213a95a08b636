"""`hf-xalign distances`: measure distances of linked and random words, by the recipe of that name."""

from __future__ import annotations

import argparse

from hf_xalign.cli import packaged
from hf_xalign.recipes import distances

DESCRIPTION = packaged.description("distances")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """List the recipe's own options; the recipe parses its command line."""
    parser.usage = "hf-xalign distances --stages NAME=MODEL ... [--field value ...]"
    own = packaged.option_lines(distances.DistanceArguments)
    parser.epilog = f"{own}\n\n`hf-xalign distances -- --help` lists the options of the text too."


def run(args: argparse.Namespace) -> None:
    """Run the recipe."""
    distances.main(args.passed)
