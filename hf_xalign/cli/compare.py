"""`hf-xalign compare`: compare fine-tuned systems, by the recipe of that name."""

from __future__ import annotations

import argparse

from hf_xalign.cli import packaged
from hf_xalign.recipes import compare

DESCRIPTION = packaged.description("compare")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """List the options of the recipe, which parses its own command line."""
    parser.usage = "hf-xalign compare FOLDER FOLDER ... [--field value ...]"
    parser.epilog = packaged.option_lines(compare.CompareArguments)


def run(args: argparse.Namespace) -> None:
    """Run the recipe."""
    compare.main(args.passed)
