r"""ALIGN-MLM's experiment: objectives x derived languages x tasks, pre-trained, fine-tuned and tested on both sides.

    hf-xalign train align_mlm_grid --config align_mlm_grid_small --corpus en=TEXT

One YAML file is the whole experiment. It has the settings of `recipes/align_mlm.py`, the `objectives`, the
`transformations`, and:

    tasks:                # options of recipes/finetune.py; the preset is align_mlm_tagging or align_mlm_xnli
      pos: {train_data: train.conllu, test_data: test.conllu}
      xnli: {task: sequence, train_data: FILE, test_data: FILE}
    studies:              # one setting varied, on these objectives and transformations
      dictionary: {objectives: [dict_mlm, align_mlm], dictionary_share: [0.25, 0.5]}

Each model is fine-tuned on the natural language and tested on both (ZS is the score on the derived one), and
fine-tuned on the derived language and tested on it (SUP). Prints SUP, ZS, delta = SUP - ZS and alignment, and
Spearman's rho of alignment and delta for each task; draws a figure of each. Resumes: finished parts are not run again.
`--show` prints the finished part of the table, `--dry_run` checks all settings and text.

BIO labels are repaired where an operation turns spans around. With `syntax`, labelled text needs trees too: a .conllu
file, or the columns upos, heads and deprels (of a pair of texts: text_a_upos, text_b_upos and so on).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hf_xalign.cache import check_output, read_mark, write_mark
from hf_xalign.errors import InputError
from hf_xalign.recipes import align_mlm
from hf_xalign.recipes.parts.common import option, run
from hf_xalign.recipes.parts.pretraining_arguments import DERIVED_FILE, PretrainingArguments
from hf_xalign.record import read_record

if TYPE_CHECKING:
    from datasets import Dataset

    from hf_xalign.data.derived.language import DerivedLanguage
    from hf_xalign.trainers import AlignMLMConfig

_GRID = "Grid"
_RECIPES = Path(__file__).resolve().parent
TABLE = "grid.md"
_TRAINED = "trained.json"  # the mark of a model, with the checksums of its files
_PARTS = ("train", "test")
# Options of the labelled text as it is given; the grid writes it under the names that need none.
_READING = {"text_columns", "label_column", "train_split", "eval_split", "dataset_revision"}
# Settings that change no score.
_ELSEWHERE = {
    "output_dir", "overwrite_output_dir", "disable_tqdm", "report_to", "logging_steps", "use_cpu",
    "per_device_eval_batch_size", "dataloader_num_workers",
}  # fmt: skip


@dataclass
class GridArguments:
    """Objectives, derived languages and tasks to combine, and studies of single settings."""

    objectives: list[str] = option(_GRID, "Objectives to compare.", ["mlm", "xlm", "dict_mlm", "align_mlm"])
    transformations: list[str] = option(
        _GRID,
        "Derived languages; operations joined by +, applied from left to right. Overrides derive.",
        ["transliteration", "inversion+transliteration"],
    )
    tasks: dict[str, Any] = option(_GRID, "Tasks by name: train_data, test_data, options of recipes/finetune.py.", {})
    studies: dict[str, Any] = option(_GRID, "Studies by name: objectives, transformations, one setting's values.", {})
    seeds: list[int] = option(_GRID, "Seeds, one grid each.", [0])
    show: bool = option(_GRID, "Print finished results and run nothing.", False)


ARGUMENTS = (GridArguments, *align_mlm.ARGUMENTS)


@dataclass(frozen=True, eq=False)
class Cell:
    """One model of the grid; `change` is the setting that a study varies."""

    objective: str
    transformation: str
    seed: int
    change: dict[str, Any]
    root: Path

    @property
    def folder(self) -> Path:
        """The folder of the model and its fine-tunings."""
        name = "-".join(filter(None, (self.objective, self.setting)))
        return self.root / self.transformation / name / f"seed-{self.seed}"

    @property
    def model(self) -> Path:
        """The pre-trained encoder."""
        return self.folder / "model"

    @property
    def setting(self) -> str:
        """The setting that a study varies, as text."""
        return ", ".join(f"{name}={value}" for name, value in self.change.items())

    def settings(self, data: PretrainingArguments, args: AlignMLMConfig) -> dict[str, Any]:
        """Return the settings of `recipes/align_mlm.py`."""
        from hf_xalign.config import non_default_fields

        found = {**non_default_fields(data), **args.changed(), "preset": args.preset, "objective": self.objective}
        found |= {"derive": self.transformation.split("+"), "seed": self.seed}
        # Always named, because older versions had another default.
        found |= ({"dict_mlm": args.dict_mlm} if self.objective == "dict_mlm" else {}) | self.change
        unused = {"dry_run", *(() if "syntax" in found["derive"] else ("order_of",))}
        unused |= set() if self.objective == "xlm" else {"parallel"}
        found = {name: value for name, value in found.items() if name not in unused}
        return found | {"output_dir": str(self.model), "overwrite_output_dir": True}

    def scores(self, task: str, trained_on: str) -> dict[str, float] | None:
        """Return the score of each language after fine-tuning on one side; None while unfinished."""
        path = self.folder / task / f"finetuned-{trained_on}" / f"seed-{self.seed}" / "scores.json"
        content = read_mark(path)
        return content and {code: found["score"] for code, found in content["languages"].items()}

    def is_trained(self) -> bool:
        """Return whether the model is there, with all files as the pre-training left them."""
        mark = self.folder / _TRAINED
        return read_mark(mark) is not None if mark.exists() else (self.model / "results.json").exists()

    def alignment(self) -> float | None:
        """Return the alignment; None while unfinished, or with one vocabulary."""
        after = read_record(self.model)["scores"]["after"] if (self.model / "results.json").exists() else {}
        return next((found["embedding_alignment"] for found in after.values()), None)

    def result(self, task: str) -> Any:
        """Return the [`~hf_xalign.evaluation.transfer.TransferRun`]; None while a part is unfinished."""
        from hf_xalign.evaluation.transfer import TransferRun

        natural, derived = self.scores(task, "natural"), self.scores(task, "derived")
        if natural is None or derived is None:
            return None
        [(code, supervised)] = derived.items()
        return TransferRun(
            self.objective, self.transformation, cast(float, self.alignment()), supervised, natural[code]
        )


@dataclass(frozen=True, eq=False)
class GridTask:
    """A task of the grid: its labelled text and the options of `recipes/finetune.py`."""

    name: str
    sources: dict[str, str]
    options: dict[str, Any]

    @classmethod
    def of(cls, name: str, given: Any) -> GridTask:
        """Read a task of the configuration; the preset is the paper's by default."""
        options = dict(given) if isinstance(given, dict) else {}
        if missing := [key for key in ("train_data", "test_data") if not isinstance(options.get(key), str)]:
            raise InputError(f"tasks: {name} has no {missing[0]}: name a file or a Hub dataset")
        sources = {part: options.pop(f"{part}_data") for part in _PARTS}
        words = options.setdefault("task", "token") == "token"
        options.setdefault("preset", "align_mlm_tagging" if words else "align_mlm_xnli")
        return cls(name, sources, options)

    def read(self, part: str, language: str, trees: bool) -> Dataset:
        """Return the labelled text, with the columns of [`read_examples`] and, for `trees`, those of [`derive`]."""
        from hf_xalign.tasks.derived import with_trees
        from hf_xalign.tasks.examples import read_examples

        split = self.options.get(*(("train_split", "train") if part == "train" else ("eval_split", "test")))
        revision, source = self.options.get("dataset_revision"), self.sources[part]
        columns = self.options.get("text_columns", [])
        rows = read_examples(
            f"{language}={source}",
            self.options["task"],
            text_columns=[columns] if isinstance(columns, str) else columns,
            label_column=self.options.get("label_column"),
            split=split,
            revision=revision,
        ).rows
        if not trees:
            return rows
        try:
            return with_trees(rows, source, split=split, revision=revision)
        except InputError as error:
            raise InputError(f"tasks: {self.name}, {error}") from error

    def derive(self, rows: Dataset, language: DerivedLanguage) -> Dataset:
        """Return labelled text in a derived language; characters that its alphabet lacks stay."""
        from hf_xalign.tasks.derived import derive_rows

        return derive_rows(rows, language, f"tasks: {self.name}")

    def settings(
        self, cell: Cell, side: str, language: DerivedLanguage, data: PretrainingArguments, args: AlignMLMConfig
    ) -> dict[str, Any]:
        """Return the settings of `recipes/finetune.py`, trained on the `natural` or the `derived` side."""
        natural = {part: f"{language.base}={_natural(args, self, part)}" for part in _PARTS}
        derived = {part: f"{language.code}={cell.folder / self.name / part}.jsonl" for part in _PARTS}
        return {
            "max_length": min(128, data.block_size),
            "report_to": "none",
            "smoke": data.smoke,
            "use_cpu": args.use_cpu,
            "bf16": args.bf16,
            "per_device_eval_batch_size": args.per_device_eval_batch_size,
            **{name: value for name, value in self.options.items() if name not in _READING},
            "model_name_or_path": str(cell.model),
            "train_data": [(natural if side == "natural" else derived)["train"]],
            "eval_data": [natural["test"], derived["test"]] if side == "natural" else [derived["test"]],
            "seeds": [cell.seed],
            "output_dir": str(cell.folder / self.name / f"finetuned-{side}"),
            "overwrite_output_dir": True,
        }


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse

    grid, data, args = parse(ARGUMENTS, argv, description=__doc__)
    data.shrink(args)
    grid.seeds = grid.seeds[:1] if data.smoke else grid.seeds

    from hf_xalign.evaluation.plots import require_matplotlib

    cells = make_cells(grid, data, args)
    tasks = [GridTask.of(name, given) for name, given in grid.tasks.items()]
    if not grid.show:
        check_output(args.output_dir)
        if not data.smoke:
            require_matplotlib()
        texts = check(cells, tasks, data, args)
        if data.dry_run:
            print(
                f"grid     {len(cells)} models, {2 * len(tasks) * len(cells)} fine-tunings; dry run: nothing was run"
            )
            return
        for (task, part), rows in texts.items():
            path = _natural(args, task, part)
            path.parent.mkdir(parents=True, exist_ok=True)
            rows.to_json(path)
        for number, cell in enumerate(cells, 1):
            if not cell.is_trained() or any(cell.result(task.name) is None for task in tasks):
                name = " ".join([cell.transformation, cell.objective, cell.setting, f"seed {cell.seed}"])
                print(f"\n## {number}/{len(cells)}: {name}")
                run_cell(cell, texts, data, args)
    report(cells, tasks, Path(args.output_dir), draw=not data.smoke)


def make_cells(grid: GridArguments, data: PretrainingArguments, args: AlignMLMConfig) -> list[Cell]:
    """Return the cells of the grid, then those of the studies; an objective needs a language that it can be run on."""
    wanted: list[tuple[list[str], list[str], dict[str, Any]]] = [(grid.objectives, grid.transformations, {})]
    for name, given in grid.studies.items():
        study = dict(given) if isinstance(given, dict) else {}
        on = [study.pop(key, getattr(grid, key)) for key in ("objectives", "transformations")]
        if len(study) != 1:
            raise InputError(f"studies: {name} varies {', '.join(study) or 'nothing'}: give one setting's values")
        [(field, values)] = study.items()
        for value in values if isinstance(values, list) else [values]:
            same = getattr(data, field, getattr(args, field, None)) == value
            wanted.append((*([one] if isinstance(one, str) else one for one in on), {} if same else {field: value}))  # type: ignore[arg-type]
    cells = [
        Cell(objective, transformation, seed, change, Path(args.output_dir))
        for seed in grid.seeds
        for objectives, transformations, change in wanted
        for transformation in transformations
        for objective in objectives
        # With one vocabulary there is no dictionary.
        if objective not in ("dict_mlm", "align_mlm") or "transliteration" in transformation.split("+")
    ]
    if not cells:
        raise InputError("no cell: dict_mlm and align_mlm need transformations with transliteration")
    return [*{cell.folder: cell for cell in cells}.values()]


def check(
    cells: Sequence[Cell], tasks: Sequence[GridTask], data: PretrainingArguments, args: AlignMLMConfig
) -> dict[tuple[GridTask, str], Dataset]:
    """Check the settings and the text of every run before the first one starts.

    Returns the labelled text of each task and part, with trees if an operation needs them.
    """
    from hf_xalign.config import parse
    from hf_xalign.data.derived.language import DerivedLanguage
    from hf_xalign.data.derived.transliteration import Alphabet
    from hf_xalign.data.derived.treebank import read_trees
    from hf_xalign.data.derived.word_order import WordOrder
    from hf_xalign.data.sources import parse_source
    from hf_xalign.recipes.finetune import FinetuneArguments
    from hf_xalign.recipes.parts.task_data import load_task
    from hf_xalign.trainers import AlignMLMConfig, TaskConfig

    languages: dict[str, DerivedLanguage] = {}
    for cell in cells:
        settings = cell.settings(data, args)
        own, own_args = parse((PretrainingArguments, AlignMLMConfig), _words(settings))
        own.check(own_args)
        _check_same(cell.folder, settings)
        if cell.transformation not in languages:
            order = WordOrder.learn(t for path in own.order_of for t in read_trees(path)) if own.order_of else None
            # The alphabet is known after pre-training; everything else about the text shows without.
            alphabet = Alphabet("") if "transliteration" in own.derive else None
            base = cast(str, parse_source(own.corpus[0])[1])
            languages[cell.transformation] = DerivedLanguage(base, own.derive, alphabet=alphabet, word_order=order)
        for task in tasks:
            settings = task.settings(cell, "derived", languages[cell.transformation], data, args)
            _check_same(cell.folder / task.name, task.sources | settings)
    texts = {}
    for task in tasks:
        [base] = {language.base for language in languages.values()}
        given = {f"{name}_data": [f"{base}={task.sources[part]}"] for name, part in zip(("train", "eval"), _PARTS)}
        load_task(parse((FinetuneArguments, TaskConfig), _words(task.options | given))[0])
        for part in _PARTS:
            trees = any(language.word_order is not None for language in languages.values())
            texts[task, part] = task.read(part, base, trees)
            for language in languages.values():
                task.derive(texts[task, part], language)
    return texts


def run_cell(
    cell: Cell, texts: dict[tuple[GridTask, str], Dataset], data: PretrainingArguments, args: AlignMLMConfig
) -> None:
    """Pre-train, derive the labelled text, and fine-tune on both sides, skipping finished parts."""
    from hf_xalign.data.derived.language import DerivedLanguage

    settings = cell.settings(data, args)
    _check_same(cell.folder, settings, write=True)
    if not cell.is_trained():
        _call("align_mlm.py", settings)
        write_mark(cell.folder / _TRAINED, {}, sorted(path for path in cell.model.rglob("*") if path.is_file()))
    language = DerivedLanguage.load(cell.model / DERIVED_FILE)
    for task in dict.fromkeys(task for task, _ in texts):
        if cell.result(task.name) is not None:
            continue
        settings = task.settings(cell, "derived", language, data, args)
        _check_same(cell.folder / task.name, task.sources | settings, write=True)
        for part in _PARTS:
            task.derive(texts[task, part], language).to_json(cell.folder / task.name / f"{part}.jsonl")
        for side in ("natural", "derived"):
            if cell.scores(task.name, side) is None:
                _call("finetune.py", task.settings(cell, side, language, data, args))


def report(cells: Sequence[Cell], tasks: Sequence[GridTask], folder: Path, *, draw: bool = True) -> None:
    """Print the table and the correlations of the finished runs, and write them with the figures."""
    from hf_xalign.evaluation.plots import alignment_plot
    from hf_xalign.evaluation.transfer import spearman
    from hf_xalign.record import write_text

    heads = ["derived language", "objective", "setting", "seed"]
    figures = [f"{task.name} {kind}".strip() for task in tasks for kind in ("SUP", "ZS", "delta")] + ["alignment"]
    lines = [f"| {' | '.join(heads + figures)} |", f"|{' --- |' * len(heads)}{' ---: |' * len(figures)}"]
    done = {task.name: {cell: found for cell in cells if (found := cell.result(task.name))} for task in tasks}
    for cell in cells:
        found = [done[task.name].get(cell) for task in tasks]
        values = [x for one in found for x in ((one.supervised, one.zero_shot, one.delta) if one else (None,) * 3)]
        values.append(cell.alignment())
        if any(value is not None for value in values):
            shown = ["-" if value is None else f"{100 * value:.1f}" for value in values]
            row = [cell.transformation, cell.objective, cell.setting, str(cell.seed), *shown]
            lines.append(f"| {' | '.join(row)} |")
    lines.append("")
    saved = []
    for name, runs in done.items():
        lines.append(f"{name}: {len(runs)} of {len(cells)} runs are finished.")
        # The correlation is of the objectives and languages, as in the paper: studies repeat one of these.
        own = [one for cell, one in runs.items() if not cell.change and one.alignment is not None]
        correlation = None
        try:
            correlation = spearman([one.alignment for one in own], [one.delta for one in own])
            said = f"Spearman's rho = {correlation.rho:.3f}, p = {correlation.p_value:.4f} ({correlation.runs} runs)"
            lines.append(f"{name}, alignment and delta: {said}.")
        except InputError as error:
            lines.append(f"{name}: no correlation: {error}.")
        if own and draw:
            saved.append(alignment_plot(own, folder / f"alignment-{name}.png", correlation))
    text = "\n".join(lines) + "\n"
    print("\n" + text)
    if any(cell.alignment() is not None for cell in cells) or saved:
        write_text(folder / TABLE, text)
        print(f"saved: {', '.join(map(str, [folder / TABLE, *saved]))}")


def _natural(args: AlignMLMConfig, task: GridTask, part: str) -> Path:
    return Path(args.output_dir, "natural", task.name, f"{part}.jsonl")


def _check_same(folder: Path, settings: dict[str, Any], *, write: bool = False) -> None:
    """Refuse a folder that was made with other settings, and write those of this run."""
    path = folder / "settings.json"
    now = json.loads(json.dumps({name: value for name, value in settings.items() if name not in _ELSEWHERE}))
    before = (read_mark(path) or {}).get("settings") if path.exists() else now
    if before is None:
        raise InputError(f"{path} is damaged, so nobody knows what {folder} was made with: remove that folder")
    for name in sorted({*now, *before}):
        if now.get(name) != before.get(name):
            raise InputError(
                f"{folder} was made with {name}={before.get(name)}, not {now.get(name)}: give the same settings, "
                "another output_dir, or remove that folder"
            )
    if write:
        write_mark(path, {"settings": now})


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
