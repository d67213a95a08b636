"""Seeds of one command: each has its own folder, and one that is finished is not run again."""

from __future__ import annotations

import copy
import gc
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hf_xalign.evaluation.scores import Examples
from hf_xalign.recipes.parts.probes import Probe, keep_examples
from hf_xalign.record import find_warnings
from hf_xalign.tables import Metric
from hf_xalign.tasks.results import begin, finished, format_scores, write_scores
from hf_xalign.tasks.task import TaskScores
from hf_xalign.trainers.shared.checkpoints import clear_run, last_complete_checkpoint
from hf_xalign.trainers.shared.tracking import finish_run

# Settings that change no score.
_ELSEWHERE = {
    "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "seed", "seeds", "save_models", "languages",
    "disable_tqdm", "logging_steps", "logging_strategy", "report_to", "run_name", "per_device_eval_batch_size",
    "dataloader_num_workers",
}  # fmt: skip


def score_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that may change a score: a seed that was run with others is another run's."""
    return {name: value for name, value in settings.items() if name not in _ELSEWHERE}


def run_unfinished(
    seeds: Sequence[int],
    args: Any,
    describe: Callable[[int], dict[str, Any]],
    run_one: Callable[[Any, dict[str, Any]], dict[str, Any]],
) -> None:
    """Run each seed that is not finished, and print a table over languages.

    `describe` gives the fields of a seed's `scores.json`. `run_one` takes the seed's own settings and these fields,
    and returns what it wrote. Its `resume_from_checkpoint` is the last complete checkpoint of an interrupted run.
    """
    runs = []
    main = getattr(args, "should_save", True)
    for seed in seeds:
        folder, how = Path(args.output_dir) / f"seed-{seed}", describe(seed)
        before = None if args.overwrite_output_dir else finished(folder, how)
        if before is not None:
            runs.append(before)
            if main:
                print(f"seed {seed}   finished before: {folder}")
            continue
        own = copy.copy(args)
        own.seed, own.output_dir = seed, str(folder)
        with _main_first(args):
            if not begin(folder, how, overwrite=args.overwrite_output_dir):
                clear_run(folder)
        # The folder holds nothing but an interrupted run of the same settings.
        resume = None if args.overwrite_output_dir else last_complete_checkpoint(folder)
        own.resume_from_checkpoint, own.overwrite_output_dir = resume, not resume
        runs.append(run_one(own, how))
        gc.collect()  # the trainer of this seed, before the next one starts
    if main:
        print("\n" + format_scores(runs))
        print(f"\nscores: {args.output_dir}/seed-*/scores.json")


def leave(trainer: Any) -> None:
    """Release a seed's trainer, and end its tracked run, before the next one starts."""
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.free_memory()
    finish_run(trainer.args)


def describe_seed(record: Mapping[str, Any], metric: str, drawn_by: int, seed: int) -> dict[str, Any]:
    """Return the fields of an alignment's `scores.json`; `drawn_by` is the seed that drew and linked the text."""
    texts = {f"{kind} {one['source']}": one.get("fingerprint") for kind, own in record["data"].items() for one in own}
    return {
        "task": Metric.parse(metric).task,
        "metric": metric,
        "seed": seed,
        "train_language": "",  # no labels were learned from
        "settings": score_settings(record["settings"]) | {"preset": record["preset"], "drawn_by": drawn_by},
        "inputs": texts | weights(model=record["base_model"]["name"]),
    }


def keep_seed(
    folder: Path,
    examples: Mapping[str, Examples],
    how: Mapping[str, Any],
    record: Mapping[str, Any],
    probes: Sequence[Probe] = (),
    probed: Mapping[tuple[str, int], Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Keep an alignment's example scores; returns the content of its `scores.json`, which marks it as finished.

    `folder/seed-<number>` gets the headline score after training, `folder/scores` all of them, before and after.
    """
    metric, seed = how["metric"], how["seed"]
    keep_examples(folder / "scores", seed, examples, probes, probed)
    own = {language: TaskScores({metric: found[metric]}) for language, found in examples["after"].items()}
    return write_scores(folder / f"seed-{seed}", own, how=how, warnings=find_warnings(record))


def weights(**named: str | None) -> dict[str, str]:
    """Fingerprints of models' files, where these are folders here."""
    found = {}
    for kind, name in named.items():
        if name is None or not Path(name).is_dir():
            continue
        digest = hashlib.blake2b(digest_size=16)
        for path in sorted(p for p in Path(name).iterdir() if p.suffix == ".safetensors" or p.name == "config.json"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        found[kind] = digest.hexdigest()
    return found


def _main_first(args: Any) -> Any:
    if not hasattr(args, "main_process_first"):
        return nullcontext()
    return args.main_process_first(desc="making the seed's folder")
