r"""Distances of linked against random word pairs at each stage of an encoder: numbers, and histograms as figures.

    python recipes/distances.py --stages raw=embedded fao=runs/fao_embedded task=runs/pos/seed-0 \
        --output_dir runs/distances

A stage is a name and what `hf_xalign.load` takes: an encoder, a task model, an adapter, a mapped encoder. Words are
linked once, in held-out text, as the headline score has them (`--eval_data`, with `--train_data` for the aligner; or
`--eval_links` of another run). It ends with a table (AUC: the chance that a random pair is farther apart than a linked
one) and leaves `distances.json` and a figure for each measure and layer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hf_xalign.recipes.parts.common import ParallelText, run, settle_cpu


@dataclass
class DistanceArguments(ParallelText):
    """The stages, and the text that is measured on."""

    stages: list[str] = field(
        default_factory=list,
        metadata={"help": "NAME=MODEL, one or more, in the order of the rows.", "group": "Distances"},
    )
    eval_links: str | None = field(
        default=None,
        metadata={"help": "The eval_links.jsonl of another run, in place of eval_data.", "group": "Distances"},
    )
    layers: list[int] = field(
        default_factory=lambda: [-1], metadata={"help": "Layers; -1 is the last.", "group": "Distances"}
    )
    pairs: int = field(
        default=10_000, metadata={"help": "Word pairs of each kind and language at most.", "group": "Distances"}
    )
    bins: int = field(default=50, metadata={"help": "Of the histograms.", "group": "Distances"})
    seed: int = field(default=0, metadata={"help": "Of the random pairs.", "group": "Distances"})
    device: str = field(default="cpu", metadata={"help": "Where the encoders run.", "group": "Distances"})
    output_dir: str = field(default="runs/distances", metadata={"help": "Folder.", "group": "Distances"})


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse
    from hf_xalign.errors import InputError
    from hf_xalign.evaluation.distances import NUMBERS, distance_grid, write_distances
    from hf_xalign.evaluation.plots import require_matplotlib
    from hf_xalign.links.frozen import make_evaluation_links, read_links
    from hf_xalign.recipes.parts.parallel import load_parts

    (data,) = parse((DistanceArguments,), argv, description=__doc__)
    stages = dict(item.split("=", 1) if "=" in item else ("", item) for item in data.stages)
    if not stages or "" in stages or len(stages) < len(data.stages):
        raise InputError(f"stages={data.stages}: name each once, as in raw=embedded fao=runs/fao_embedded")
    folder = Path(data.output_dir)
    if (folder / NUMBERS).exists():
        raise InputError(f"{folder / NUMBERS} is there already: give another output_dir, or remove it")
    require_matplotlib()
    settle_cpu(data.device)
    if data.eval_links:
        dataset = read_links(data.eval_links)
    else:
        train, _ = load_parts(data.train_data, data.train_split, data.max_train_pairs, data)
        test, _ = load_parts(data.eval_data, data.eval_split, data.max_eval_pairs, data)
        dataset = make_evaluation_links(test, train)
    grid = distance_grid(
        stages,
        dataset,
        layers=data.layers,
        pairs=data.pairs,
        bins=data.bins,
        seed=data.seed,
        device=data.device,
    )
    saved = write_distances(grid, folder)
    print("\n" + format_grid(grid))
    print("\nsaved: " + ", ".join(map(str, saved)))


def format_grid(grid: dict[str, Any]) -> str:
    """The means and the AUC of every cell as a Markdown table."""
    lines = [
        "| stage | language | layer | measure | linked | random | AUC |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for cell in grid["cells"]:
        names = " | ".join(str(cell[name]) for name in ("stage", "language", "layer", "measure"))
        means = " | ".join(f"{cell[kind]['mean']:.3f}" for kind in ("linked", "random"))
        lines.append(f"| {names} | {means} | {cell['auc']:.4f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run(main, when_interrupted="nothing was written; run the same command again")
