"""`hf-xalign compare`: the recipe that compares fine-tuned systems."""

from __future__ import annotations

import argparse

from hf_xalign.cli import packaged
from hf_xalign.recipes import compare

DESCRIPTION = packaged.description("compare")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own: the recipe reads its words, its fields are only listed."""
    parser.usage = "hf-xalign compare FOLDER FOLDER ... [--field value ...]"
    parser.epilog = "\n".join(["options of the recipe:", *packaged.option_lines(compare.CompareArguments)])


def run(args: argparse.Namespace) -> None:
    """Print the tables."""
    compare.main(args.passed)
