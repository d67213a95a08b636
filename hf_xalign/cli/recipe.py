"""`hf-xalign compare`, `hf-xalign distances` and `hf-xalign reproduce`: the recipes of these names."""

from __future__ import annotations

from collections.abc import Sequence

from hf_xalign.cli import train
from hf_xalign.recipes import compare, distances, reproduce

_USAGE = {"compare": "FOLDER FOLDER ...", "distances": "--stages NAME=MODEL ...", "reproduce": "[TABLE ...] [--list]"}
_RECIPES = {
    "compare": (compare, compare.CompareArguments),
    "distances": (distances, distances.DistanceArguments),
    "reproduce": (reproduce, reproduce.ReproduceArguments),
}


def main(name: str, words: Sequence[str]) -> None:
    """Run the recipe, which parses its own command line, or list its options."""
    recipe, arguments = _RECIPES[name]
    given = words[: words.index("--")] if "--" in words else words
    if {"-h", "--help"} & set(given):
        print(f"usage: hf-xalign {name} {_USAGE[name]} [--field value ...]\n\n{recipe.__doc__}")
        print(train.option_lines(arguments))
        if name == "distances":
            print("\n`hf-xalign distances -- --help` lists the options of the text too.")
        raise SystemExit(0)
    recipe.main([word for word in words if word != "--"])
