"""`hf-xalign compare` and `hf-xalign distances`: the recipes of these names."""

from __future__ import annotations

import argparse

from hf_xalign.cli import packaged
from hf_xalign.recipes import compare, distances

_USAGE = {"compare": "FOLDER FOLDER ...", "distances": "--stages NAME=MODEL ..."}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """List the options of the recipe, which parses its own command line."""
    name = parser.prog.split()[-1]
    parser.description = packaged.description(name)
    parser.usage = f"hf-xalign {name} {_USAGE[name]} [--field value ...]"
    if name == "compare":
        parser.epilog = packaged.option_lines(compare.CompareArguments)
    else:
        own = packaged.option_lines(distances.DistanceArguments)
        parser.epilog = f"{own}\n\n`hf-xalign distances -- --help` lists the options of the text too."
    parser.set_defaults(recipe=compare if name == "compare" else distances)


def run(args: argparse.Namespace) -> None:
    """Run the recipe."""
    args.recipe.main(args.passed)
