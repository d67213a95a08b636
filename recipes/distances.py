r"""Compare the distances of linked and random word pairs at each stage of an encoder, in a table and histograms.

    hf-xalign distances --stages raw=builtin fao=runs/fao_builtin task=runs/pos/seed-0 \
        --output_dir runs/distances

A stage is a name and anything that `hf_xalign.load` takes: an encoder, a task model, an adapter.
The words of held-out text, `--eval_data`, are linked once, with `--train_data` for the aligner. Prints a table (AUC:
the probability that a random pair is farther apart than a linked pair) and writes `distances.json` and one figure for
each measure and layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xalign.recipes.parts.arguments import ParallelText, option
from hf_xalign.recipes.parts.command import settle_cpu
from hf_xalign.tables import table


@dataclass
class DistanceArguments(ParallelText):
    """Stages to compare, and the text to measure on."""

    stages: list[str] = option("Distances", "NAME=MODEL, one or more, in the order of the rows.", [])
    layers: list[int] = option("Distances", "Layers; -1 is the last.", [-1])
    pairs: int = option("Distances", "Maximum number of word pairs of each kind and language.", 10_000, least=1)
    seed: int = option("Distances", "Seed of the random pairs.", 0, least=0)
    device: str = option("Distances", "Torch device of the encoders.", "cpu")
    output_dir: str = option("Distances", "Output folder.", "runs/distances")


ARGUMENTS = (DistanceArguments,)


def main(argv: list[str]) -> None:
    """Run the command with its words."""
    from hf_xalign.config import parse

    (data,) = parse(ARGUMENTS, argv, prog="hf-xalign distances", description=__doc__)
    data.check_files()

    from hf_xalign.cache import check_output
    from hf_xalign.data.load import load_parallel
    from hf_xalign.data.sources import check_models
    from hf_xalign.errors import InputError
    from hf_xalign.evaluation.distances import NUMBERS, distance_grid, write_distances
    from hf_xalign.evaluation.plots import require_matplotlib
    from hf_xalign.links.frozen import make_evaluation_links

    stages = dict(item.split("=", 1) if "=" in item else ("", item) for item in data.stages)
    if not stages or "" in stages or len(stages) < len(data.stages):
        raise InputError(f"stages={data.stages}: give each stage once, as in raw=builtin fao=runs/fao_builtin")
    check_models(stages.values())
    folder = Path(data.output_dir)
    check_output(folder)
    if (folder / NUMBERS).exists():
        raise InputError(f"{folder / NUMBERS} exists: give another output_dir or remove it")
    require_matplotlib()
    settle_cpu(data.device)
    train = load_parallel(data.train_data, split=data.train_split, **data.columns())
    test = load_parallel(data.eval_data, split=data.eval_split, max_pairs=data.max_eval_pairs, **data.columns())
    settings = {name: getattr(data, name) for name in ("layers", "pairs", "seed", "device")}
    grid = distance_grid(stages, make_evaluation_links(test, train), **settings)
    saved = write_distances(grid, folder)
    print("\n" + format_grid(grid))
    print("\nsaved: " + ", ".join(map(str, saved)))


def format_grid(grid: dict[str, Any]) -> str:
    """Format the means and the AUC of every cell as a table."""
    rows: list[tuple[str, ...]] = [("stage", "language", "layer", "measure", "linked", "random", "AUC")]
    for cell in grid["cells"]:
        names = (str(cell[name]) for name in ("stage", "language", "layer", "measure"))
        means = (f"{cell[kind]['mean']:.3f}" for kind in ("linked", "random"))
        rows.append((*names, *means, f"{cell['auc']:.4f}"))
    return table(rows, numbers=3)
