r"""ALIGN-MLM's experiment: objectives x derived languages, each pre-trained, then fine-tuned and tested on both sides.

    python recipes/align_mlm_grid.py --config recipes/configs/align_mlm_small.yaml --corpus en=TEXT \
        --eval_corpus en=TEXT --train_data TAGGED --test_data TAGGED --label_column tags --output_dir runs/grid

For each objective and transformation it runs `recipes/align_mlm.py` (with all settings of the config and the command
line), derives the labelled text, and runs `recipes/finetune.py` twice: trained on the natural language and tested on
both (ZS is the score on the derived one), and trained on the derived language and tested on it (SUP). Prints SUP,
ZS, delta = SUP - ZS and alignment as a table, and Spearman's rho of alignment and delta; draws a figure.
Resumes: finished parts are not run again. `--show` prints the finished part of the table.

Labels are parts of speech or any other label per word. BIO labels are repaired where inversion turns spans around.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_xalign.errors import InputError
from hf_xalign.recipes.align_mlm import DERIVED_FILE
from hf_xalign.recipes.parts.common import option, run
from hf_xalign.recipes.parts.pretraining_arguments import PretrainingArguments
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig

_GRID = "Grid"
_RECIPES = Path(__file__).resolve().parent
TABLE = "grid.md"
FIGURE = "alignment.png"


@dataclass
class GridArguments:
    """Objectives and derived languages to combine, and the labelled text."""

    objectives: list[str] = option(_GRID, "Objectives to compare.", ["mlm", "xlm", "dict_mlm", "align_mlm"])
    transformations: list[str] = option(
        _GRID,
        "Derived languages; operations joined by +, applied from left to right. Overrides derive.",
        ["transliteration", "inversion+transliteration"],
    )
    seeds: list[int] = option(_GRID, "Seeds, one grid each.", [0])
    train_data: str | None = option(_GRID, "Labelled text to fine-tune on, .jsonl.", None)
    test_data: str | None = option(_GRID, "Labelled text to test on.", None)
    words_column: str = option(_GRID, "Column of words.", "tokens")
    label_column: str = option(_GRID, "Column of labels.", "labels")
    max_train_examples: int | None = option(_GRID, "Fine-tune on the first n examples.", None)
    finetune_epochs: float = option(_GRID, "Epochs of fine-tuning.", 10.0)
    finetune_learning_rate: float = option(_GRID, "Learning rate of fine-tuning.", 2e-5)
    finetune_max_length: int | None = option(_GRID, "max_length of fine-tuning. Default: block_size.", None)
    show: bool = option(_GRID, "Print finished results and run nothing.", False)


@dataclass(frozen=True)
class Cell:
    """One run of the grid: its objective, operations joined by +, seed and folder."""

    objective: str
    transformation: str
    seed: int
    folder: Path

    @property
    def model(self) -> Path:
        """The pre-trained encoder."""
        return self.folder / "model"

    def scores(self, trained_on: str) -> dict[str, float] | None:
        """Return the score of each language after fine-tuning on one side; None while unfinished."""
        path = self.folder / f"finetuned-{trained_on}" / f"seed-{self.seed}" / "scores.json"
        if not path.exists():
            return None
        return {code: found["score"] for code, found in json.loads(path.read_text("utf-8"))["languages"].items()}

    def result(self) -> Any:
        """Return the [`~hf_xalign.evaluation.transfer.TransferRun`]; None while a part is unfinished."""
        from hf_xalign.evaluation.transfer import TransferRun

        natural, derived = self.scores("natural"), self.scores("derived")
        if natural is None or derived is None:
            return None
        record = json.loads((self.model / "results.json").read_text("utf-8"))
        [code] = record["languages"]["others"]
        alignment = record["scores"]["after"][code]["embedding_alignment"]
        return TransferRun(self.objective, self.transformation, alignment, derived[code], natural[code])


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse
    from hf_xalign.evaluation.plots import require_matplotlib

    grid, data, args = parse((GridArguments, PretrainingArguments, AlignMLMConfig), argv, description=__doc__)
    cells = [
        Cell(objective, transformation, seed, Path(args.output_dir) / transformation / objective / f"seed-{seed}")
        for seed in grid.seeds
        for transformation in grid.transformations
        for objective in grid.objectives
    ]
    if not grid.show:
        require_matplotlib()
        check(grid, data, args)
        for number, cell in enumerate(cells, 1):
            if cell.result() is None:
                print(f"\n## {number}/{len(cells)}: {cell.transformation}, {cell.objective}, seed {cell.seed}")
                run_cell(cell, grid, data, args)
    report(cells, Path(args.output_dir))


def check(grid: GridArguments, data: PretrainingArguments, args: AlignMLMConfig) -> None:
    """Check the arguments of every run before the first one starts."""
    for name in ("train_data", "test_data"):
        path = getattr(grid, name)
        if path is None or not Path(path).is_file():
            raise InputError(f"{name}={path}: name a .jsonl file of labelled words")
    for transformation in grid.transformations:
        if "transliteration" not in transformation.split("+"):
            raise InputError(
                f"transformations: {transformation} shares all words with the natural language, so there is no "
                "alignment to measure: add +transliteration"
            )
        for objective in grid.objectives:
            own: Any = {"objective": objective}
            replace(data, derive=transformation.split("+")).check(replace(args, **own))


def run_cell(cell: Cell, grid: GridArguments, data: PretrainingArguments, args: AlignMLMConfig) -> None:
    """Pre-train, derive the labelled text, and fine-tune on both sides, skipping finished parts."""
    from hf_xalign.config import non_default_fields
    from hf_xalign.data.derived.language import DerivedLanguage
    from hf_xalign.data.parallel import parse_source

    if not (cell.model / "results.json").exists():
        settings = {**non_default_fields(data), **args.changed(), "preset": args.preset}
        settings |= {"derive": cell.transformation.split("+"), "objective": cell.objective, "seed": cell.seed}
        settings |= {"output_dir": str(cell.model), "overwrite_output_dir": True}
        _call("align_mlm.py", settings)
    language = DerivedLanguage.load(cell.model / DERIVED_FILE)
    natural = parse_source(data.corpus[0])[1]
    texts = {}
    for name in ("train", "test"):
        path = cell.folder / f"{name}.jsonl"
        derive_labelled(getattr(grid, f"{name}_data"), path, language, grid.words_column, grid.label_column)
        texts[name] = {"natural": f"{natural}={getattr(grid, f'{name}_data')}", "derived": f"{language.code}={path}"}
    for side in ("natural", "derived"):
        if cell.scores(side) is None:
            settings = {
                "task": "token",
                "model_name_or_path": str(cell.model),
                "train_data": [texts["train"][side]],
                "eval_data": list(texts["test"].values()) if side == "natural" else [texts["test"]["derived"]],
                "text_columns": [grid.words_column],
                "label_column": grid.label_column,
                "max_train_examples": grid.max_train_examples,
                "num_train_epochs": grid.finetune_epochs,
                "learning_rate": grid.finetune_learning_rate,
                "max_length": grid.finetune_max_length or data.block_size,
                "per_device_eval_batch_size": args.per_device_eval_batch_size,
                "seeds": [cell.seed],
                "save_strategy": "no",
                "report_to": "none",
                "use_cpu": args.use_cpu,
                "bf16": args.bf16,
                "output_dir": str(cell.folder / f"finetuned-{side}"),
                "overwrite_output_dir": True,
            }
            _call("finetune.py", settings)


def derive_labelled(source: str, path: Path, language: Any, words: str, labels: str) -> None:
    """Write labelled text in the derived language, as .jsonl; a character that pre-training lacked is kept."""
    from datasets import load_dataset

    from hf_xalign.data.derived.rows import derive
    from hf_xalign.data.parallel import check_columns

    text = load_dataset("json", data_files=source, split="train")
    check_columns(text, (words, labels), source, "Name them by words_column and label_column.")
    bio = any(label.startswith(("B-", "I-")) for row in text[labels][:] for label in row)
    moved: dict[str, Any] = {"spans": labels} if bio else {"labels": labels}
    path.parent.mkdir(parents=True, exist_ok=True)
    derive(text.select_columns([words, labels]), replace(language, on_unknown="keep"), words, **moved).to_json(path)


def report(cells: Sequence[Cell], folder: Path) -> None:
    """Print the table and the correlation of the finished runs, and write both with the figure."""
    from hf_xalign.evaluation.plots import alignment_plot
    from hf_xalign.evaluation.transfer import spearman
    from hf_xalign.record import write_text

    done = {cell: found for cell in cells if (found := cell.result()) is not None}
    lines = [
        "| derived language | objective | seed | SUP | ZS | delta | alignment |",
        f"|{' --- |' * 2}{' ---: |' * 5}",
    ]
    for cell, one in done.items():
        figures = " | ".join(f"{100 * x:.1f}" for x in (one.supervised, one.zero_shot, one.delta, one.alignment))
        lines.append(f"| {cell.transformation} | {cell.objective} | {cell.seed} | {figures} |")
    lines += ["", f"{len(done)} of {len(cells)} runs are finished."]
    found = None
    try:
        found = spearman([one.alignment for one in done.values()], [one.delta for one in done.values()])
        said = f"Spearman's rho = {found.rho:.3f}, p = {found.p_value:.4f} ({found.runs} runs)"
        lines.append(f"Alignment and delta: {said}.")
    except InputError as error:
        lines.append(f"No correlation: {error}.")
    text = "\n".join(lines) + "\n"
    print("\n" + text)
    if done:
        write_text(folder / TABLE, text)
        print(f"saved: {folder / TABLE}, {alignment_plot(list(done.values()), folder / FIGURE, found)}")


def _call(recipe: str, settings: dict[str, Any]) -> None:
    """Run another recipe in a subprocess."""
    done = subprocess.run([sys.executable, str(_RECIPES / recipe), *_words(settings)], check=False)
    if done.returncode:
        raise InputError(f"{recipe} ended with status {done.returncode}; run the same command again to resume")


def _words(settings: dict[str, Any]) -> list[str]:
    """Return settings as command-line arguments."""
    words: list[str] = []
    for name, value in settings.items():
        if value not in (None, []):
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


if __name__ == "__main__":
    run(main, when_interrupted="run the same command again to resume")
