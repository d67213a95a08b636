"""`hf-xalign compare`, `hf-xalign distances` and `hf-xalign reproduce`: the recipes of these names."""

from __future__ import annotations

import argparse

from hf_xalign.cli import packaged
from hf_xalign.recipes import compare, distances, reproduce

_USAGE = {"compare": "FOLDER FOLDER ...", "distances": "--stages NAME=MODEL ...", "reproduce": "[TABLE ...] [--list]"}
_RECIPES = {
    "compare": (compare, compare.CompareArguments),
    "distances": (distances, distances.DistanceArguments),
    "reproduce": (reproduce, reproduce.ReproduceArguments),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """List the options of the recipe, which parses its own command line."""
    name = parser.prog.split()[-1]
    parser.description = packaged.description(name)
    parser.usage = f"hf-xalign {name} {_USAGE[name]} [--field value ...]"
    recipe, arguments = _RECIPES[name]
    parser.epilog = packaged.option_lines(arguments)
    if name == "distances":
        parser.epilog += "\n\n`hf-xalign distances -- --help` lists the options of the text too."
    if name == "reproduce":
        parser.add_argument("--list", action="append_const", const="--list", default=[], help="list tables and rows")
    parser.set_defaults(recipe=recipe)


def run(args: argparse.Namespace) -> None:
    """Run the recipe."""
    args.recipe.main([*args.passed, *getattr(args, "list", [])])
