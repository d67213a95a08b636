"""Measure how alignment changes slot filling and tagging in other languages, over many seeds.

    python benchmarks/downstream.py --data DATA --output_dir runs/downstream             # hours; resumable
    python benchmarks/downstream.py --data DATA --output_dir runs/trial --seeds 0 --languages de es --tasks pos \\
        --max_train_pairs 40 --max_train_examples 60 --max_eval_examples 20 --epochs 1                  # a trial

DATA is a folder with `builtin/LANG.train.jsonl` (sentence pairs, English the target), `pos/ud.en.ewt.dev.jsonl` and
`pos/ud.LANG.pud.jsonl`, `slots/en.train.jsonl`, `slots/LANG.test.jsonl` and `slots/labels.json`.

The systems:

- the raw encoder;
- FAO, alone and with continual alignment during task training, by each of its presets;
- the joint objective (`--preset joint` with weights of 5, 5 and 0, without an average) on first subwords;
- MAO's linear maps, or a centered rotation (Procrustes), frozen between encoder and head;
- `raw_kept`, `joint_kept`: raw and joint, fine-tuned with `--keep_aligned`.

Each is trained on English and tested on all
languages, with each seed of the task on the alignment of the same seed (the rotation has no randomness). The
recipes do all the work, and finished runs are skipped. Each task ends with `hf-xalign compare`, with the raw encoder
as baseline, and with `hf-xalign distances` on the models of the first seed. Only these models are kept (half a
gigabyte each).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAIN = "import sys; from hf_xalign.cli.main import main; sys.exit(main())"
# The presets of continual alignment.
CONTINUAL = ("continual", "continual_mean", "efimov")
SYSTEMS = ("raw", "fao", *CONTINUAL, "mao", "rotation", "raw_kept", "joint", "joint_kept")
# The systems that start from an encoder of FAO.
ALIGNED = {"fao": {"fao", *CONTINUAL}, "joint": {"joint", "joint_kept"}}
TASKS = ("pos", "slots")
# Sentences that a task is trained on, unless the command says otherwise: no more than it takes to learn the task.
EXAMPLES = {"pos": 1000, "slots": 3000}
# The list of all slots, in the output folder.
LABELS = "slots.json"
# Languages with text for alignment and for both tasks.
LANGUAGES = ("de", "es", "ru", "hi", "tr")


def command(*words: str) -> None:
    """Run a command of `hf-xalign`, or end with its status."""
    print(f"\n$ hf-xalign {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-c", MAIN, *words], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def config(name: str) -> list[str]:
    """The option that names a shipped configuration."""
    return ["--config", str(ROOT / "recipes" / "configs" / f"{name}.yaml")]


def parallel(given: argparse.Namespace, part: str) -> list[str]:
    """The sentence pairs of a part, `train` or `test`, as the recipes take them."""
    return [f"{name}={Path(given.data) / 'builtin' / f'{name}.{part}.jsonl'}" for name in given.languages]


def align(given: argparse.Namespace, models: Path) -> None:
    """The alignments that the systems need, one a seed, where they are not there yet."""
    # The headline score of an alignment is a check here: the tasks are what counts.
    text = ["--train_data", *parallel(given, "train"), "--eval_data", *parallel(given, "test")]
    text += ["--max_eval_pairs", "100", "--max_train_pairs", str(given.max_train_pairs)]
    settings = {
        "fao": config("fao_builtin"),
        # Heads of tasks read a word's first subword, so that is what is aligned.
        "joint": [
            "--preset",
            "joint",
            "--regularizer_weight",
            "5",
            "--similarity_weight",
            "0",
            "--start_share",
            "0",
            "--pooling",
            "first",
            "--model_name_or_path",
            "builtin",
        ],
        "mao": config("mao_linear_builtin"),
    }
    for name, needed in {**ALIGNED, "mao": {"mao"}}.items():
        for seed in given.seeds if needed & set(given.systems) else ():
            folder = models / f"{name}-{seed}"
            if not (folder / "results.json").exists():
                options = [*settings[name], *text, "--use_cpu", str(given.use_cpu).lower()]
                options += ["--seed", str(seed), "--eval_strategy", "no", "--save_strategy", "no"]
                options += ["--output_dir", str(folder), "--overwrite_output_dir", "true", "--report_to", "none"]
                command("train", "mao" if name == "mao" else "fao", *options)
    folder = models / "rotation"
    if "rotation" in given.systems and not (folder / "results.json").exists():
        options = [*config("mapping_builtin"), *text, "--output_dir", str(folder), "--overwrite_output_dir", "true"]
        command("train", "mapping", *options)


def write_labels(given: argparse.Namespace) -> None:
    """Write the list of slots that a recipe reads; the data's file has other lists too."""
    lists = json.loads((Path(given.data) / "slots" / "labels.json").read_text("utf-8"))
    Path(given.output_dir).mkdir(parents=True, exist_ok=True)
    (Path(given.output_dir) / LABELS).write_text(json.dumps(lists["bio"]), encoding="utf-8")


def task_options(given: argparse.Namespace, task: str) -> list[str]:
    """Labelled text of a task, and how it is trained."""
    data = Path(given.data) / task
    languages = ["en", *given.languages]
    if task == "pos":
        train, name = data / "ud.en.ewt.dev.jsonl", "ud.{}.pud.jsonl"
        own = ["--label_column", "tags"]
    else:
        train, name = data / "en.train.jsonl", "{}.test.jsonl"
        own = ["--label_column", "labels", "--labels", str(Path(given.output_dir) / LABELS)]
    options = ["--train_data", f"en={train}", "--task", "token", "--text_columns", "tokens", *own]
    options += ["--eval_data", *(f"{language}={data / name.format(language)}" for language in languages)]
    options += ["--max_train_examples", str(given.max_train_examples or EXAMPLES[task])]
    options += ["--max_eval_examples", str(given.max_eval_examples)]
    options += ["--num_train_epochs", str(given.epochs), "--learning_rate", str(given.learning_rate)]
    options += ["--per_device_train_batch_size", str(given.batch_size), "--per_device_eval_batch_size", "64"]
    # As continual alignment, all start from a random head, also on few sentences.
    options += ["--fit_head", "false"]
    options += ["--freeze_embeddings", "true", "--use_cpu", str(given.use_cpu).lower(), "--report_to", "none"]
    return options


def train(given: argparse.Namespace, models: Path, task: str, system: str) -> Path:
    """Fine-tune one system under all seeds; its folder."""
    folder = Path(given.output_dir) / task / system
    options = [*task_options(given, task), "--output_dir", str(folder)]
    name = "finetune"
    aligned = [str(models / kind) + "-{seed}" for kind, systems in ALIGNED.items() if system in systems]
    options += ["--model_name_or_path", *(aligned or ["builtin"])]
    if system.endswith("_kept"):
        options += ["--keep_aligned", "true", "--start_share", str(given.start_share)]
    if system in CONTINUAL:
        options += ["--preset", system, "--reference", "builtin", "--pairs", *parallel(given, "train")]
        # Dropout in an alignment costs this encoder several points; FAO's configuration leaves it out too.
        options += ["--max_pairs", str(given.max_train_pairs), "--pairs_dropout", "false"]
        # The schedule of the other systems: the preset has two epochs, no warm-up, no decay and no clipping.
        options += ["--warmup_steps", "0.1", "--weight_decay", "0.01", "--max_grad_norm", "1.0"]
        options += ["--train_sampling_strategy", "group_by_length"]  # efimov draws at random
        options += [] if "--num_train_epochs" in options else ["--num_train_epochs", "3"]
        name = "continual"
    if system in ("mao", "rotation"):
        options += ["--adapter", str(models / ("mao-{seed}" if system == "mao" else "rotation"))]
    # The first seed's model is kept, for the distances; a finished seed is not run again.
    command("train", name, *options, "--save_models", "true", "--seeds", str(given.seeds[0]))
    if len(given.seeds) > 1:
        command("train", name, *options, "--seeds", *map(str, given.seeds))
    return folder


def check_models(given: argparse.Namespace) -> None:
    """End where the distances would lack a model: a seed that is finished is not trained again to keep it."""
    for task, system in product(given.tasks, given.systems):
        folder = Path(given.output_dir) / task / system / f"seed-{given.seeds[0]}"
        if (folder / "scores.json").exists() and not (folder / "config.json").exists():
            sys.exit(
                f"{folder} is finished and its model was not kept, which the distances are measured on: delete the "
                "folder, or name first a seed whose model is there"
            )


def distances(given: argparse.Namespace, models: Path, task: str) -> None:
    """Linked against random words, before the task and after it, in the first seed's models."""
    from hf_xalign.evaluation.distances import NUMBERS

    seed = given.seeds[0]
    stages = {"raw": "builtin"}
    for kind, systems in ALIGNED.items():
        if systems & set(given.systems):
            stages[kind] = str(models / f"{kind}-{seed}")
    for name in given.systems:
        stages[f"{name}, {task}"] = str(Path(given.output_dir) / task / name / f"seed-{seed}")
    folder = Path(given.output_dir) / "distances" / task
    if (numbers := folder / NUMBERS).exists():
        if json.loads(numbers.read_text())["stages"] == stages:
            return
        numbers.unlink()  # of other systems
    text = ["--train_data", *parallel(given, "train"), "--eval_data", *parallel(given, "test")]
    text += ["--max_eval_pairs", "200"]
    named = [f"{name}={source}" for name, source in stages.items()]
    command("distances", "--stages", *named, *text, "--output_dir", str(folder))


def main(argv: list[str] | None = None) -> None:
    """Run what is not finished, and print the comparisons."""
    from hf_xalign.evaluation.plots import require_matplotlib

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the data")
    parser.add_argument("--output_dir", default="runs/downstream")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--languages", nargs="+", default=LANGUAGES, help="beside English")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=float, default=3.0, help="of the task")
    # Chosen on English alone (EWT's test part, the slots' dev part): with 5e-4 and batches of 32 no slot is found.
    parser.add_argument("--learning_rate", type=float, default=2e-4, help="of the task")
    parser.add_argument("--batch_size", type=int, default=16, help="of the task")
    parser.add_argument("--start_share", type=float, default=0.25, help="of raw_kept and joint_kept")
    parser.add_argument("--max_train_pairs", type=int, default=500, help="sentence pairs a language")
    parser.add_argument(
        "--max_train_examples", type=int, help=", ".join(f"{task} {n}" for task, n in EXAMPLES.items())
    )
    parser.add_argument("--max_eval_examples", type=int, default=500, help="a language")
    parser.add_argument("--use_cpu", action=argparse.BooleanOptionalAction, default=True)
    given = parser.parse_args(argv)
    require_matplotlib()  # of the last step
    check_models(given)
    if "slots" in given.tasks:
        write_labels(given)
    models = Path(given.output_dir) / "models"
    align(given, models)
    for task in given.tasks:
        folders = [str(train(given, models, task, system)) for system in given.systems]
        if len(folders) > 1:
            table = Path(given.output_dir) / f"{task}.md"
            command("compare", *folders, "--names", *given.systems, "--markdown", str(table))
            distances(given, models, task)


if __name__ == "__main__":
    main()
