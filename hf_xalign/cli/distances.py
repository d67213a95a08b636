"""`hf-xalign distances`: the recipe that measures how far linked words are apart, at each stage of an encoder."""

from __future__ import annotations

import argparse

from hf_xalign.cli import packaged
from hf_xalign.recipes import distances

DESCRIPTION = packaged.description("distances")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own: the recipe reads its words, the fields that only it has are listed."""
    own = packaged.option_lines(distances.DistanceArguments)
    parser.usage = "hf-xalign distances --stages NAME=MODEL ... [--field value ...]"
    parser.epilog = "\n".join(
        ["options of the recipe:", *own, "", "`hf-xalign distances -- --help` lists those of the text too."]
    )


def run(args: argparse.Namespace) -> None:
    """Measure, and print the table."""
    distances.main(args.passed)
