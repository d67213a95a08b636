"""Compare systems over languages and seeds: means, spread, significance, intervals; as text and Markdown.

    hf-xalign compare runs/raw runs/fao runs/continual --markdown table.md

Give folders of runs or of runs with `--seeds`, by `hf-xalign train` or a trainer in Python, the baseline first.
`FOLDER/scores/NAME/before` has the encoder before training. All folders need the same task, metric, test sets, seeds
and languages; `--seeds 0 1` and `--languages de hi` select what they have in common. `--names` replaces their
names. The first table has mean ± standard deviation over seeds of each system, in points. The second has each system's
differences from the baseline. The same folders give the same tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hf_xalign.recipes.parts.arguments import option

if TYPE_CHECKING:
    from hf_xalign.statistics.comparison import Comparison


@dataclass
class CompareArguments:
    """Systems to compare, and files to write."""

    folders: list[str] = option("Data", "The systems' folders, the baseline first.", positional=True, metavar="FOLDER")
    names: list[str] | None = option("Data", "Names of the systems. Default: names of their folders.", None)
    languages: list[str] | None = option("Data", "Languages to compare, in this order. Default: all.", None)
    seeds: list[int] | None = option("Data", "Seeds to compare. Default: all.", None, distinct=True)
    permutations: int = option("Tests", "Number of permutations of the permutation test.", 10_000)
    concatenate_seeds: bool = option(
        "Tests", "Permutation test: swap the answers of each seed apart (Efimov et al. 2022), not together.", False
    )
    resamples: int = option("Tests", "Number of bootstrap resamples of examples and seeds for the intervals.", 2000)
    seed: int = option("Tests", "Seed of permutations and resamples.", 0, least=0)
    markdown: str | None = option("Output", "File to write as Markdown.", None)


def main(argv: list[str]) -> None:
    """Run the command with its words."""
    from hf_xalign.cache import check_output, write_text
    from hf_xalign.config import parse

    (args,) = parse((CompareArguments,), argv, prog="hf-xalign compare", description=__doc__)
    if args.markdown:
        check_output(args.markdown, file=True)

    from hf_xalign.statistics.comparison import compare

    settings = {name: value for name, value in vars(args).items() if name not in ("folders", "markdown")}
    comparison = compare(args.folders, **settings)
    print(comparison)
    if args.markdown:
        write_text(Path(args.markdown), as_markdown(comparison) + "\n")
        print(f"\nsaved: {args.markdown}")


def as_markdown(comparison: Comparison) -> str:
    """Return both tables and the notes as Markdown."""
    from hf_xalign.model_cards.markdown import table, text

    blocks = []
    for head, *rows in comparison.tables():
        cells = [list(map(text, row)) for row in rows]
        blocks.append(table(list(map(text, head)), cells, numbers=len(head) - 1))
    return "\n\n".join([*blocks, *map(text, comparison.notes())])
