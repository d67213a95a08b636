"""Write and read the result folders of a task, one for each seed, by which systems are compared.

    OUTPUT/seed-<s>/scores.json           task, metric, seed, train_language, languages, settings, inputs, warnings
    OUTPUT/seed-<s>/examples/<lang>.json  scores of every example

`scores.json` is written last, with checksums of itself and the examples; a seed with an undamaged one is finished.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_xalign.cache import inside, read_mark, write_mark
from hf_xalign.errors import InputError
from hf_xalign.score import Score
from hf_xalign.statistics.examples import EXAMPLES, SCORES, ExampleScores
from hf_xalign.tables import table
from hf_xalign.tasks.task import TaskScores

RUN = "run.json"  # deleted when there are scores: what it holds is then in them


def finished(folder: Path, how: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the content of a finished seed's scores.json, or None; a field unlike `how` raises an InputError."""
    return _agreeing(folder / SCORES, how)


def begin(folder: Path, how: Mapping[str, object], *, overwrite: bool = False) -> bool:
    """Prepare a seed's folder, and return whether it holds an interrupted run to resume.

    Until there are scores, `run.json` keeps the fields `how`; an interrupted run with other fields raises an
    InputError. If that file is damaged, or with `overwrite`, the seed starts over.
    """
    if overwrite:
        for path in (folder / SCORES, folder / RUN):
            path.unlink(missing_ok=True)
    elif _agreeing(folder / RUN, how) is not None:
        return True
    write_mark(folder / RUN, how)
    return False


def write_scores(
    folder: Path, scores: Mapping[str, TaskScores], *, how: Mapping[str, Any], warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Write the scores of every example by language, then `scores.json` with `how` and `warnings`; return that."""
    languages: dict[str, dict[str, object]] = {}
    files: list[Path] = []
    for language, task_scores in scores.items():
        examples = task_scores.examples[how["metric"]]
        files.append(inside(folder / EXAMPLES, f"{language}.json"))
        examples.save(files[-1])
        counts = {**task_scores.totals(), **task_scores.counts}
        languages[language] = {"score": examples.score(), "examples": len(examples), **counts}
        if task_scores.only is not None:
            languages[language]["only"] = task_scores.only
    content = {**how, "languages": languages, "warnings": list(warnings)}
    write_mark(folder / SCORES, content, files)
    (folder / RUN).unlink(missing_ok=True)
    return content


def write_examples(
    folder: Path, examples: Mapping[str, ExampleScores], *, train_language: str = "", **how: Any
) -> dict[str, Any]:
    """Write one metric's example scores by language to a folder `seed-<number>`, with what `compare` compares."""
    how |= {"seed": int(folder.name.removeprefix("seed-")), "train_language": train_language}
    found = {code: TaskScores({how["metric"]: scores}) for code, scores in examples.items()}
    return write_scores(folder, found, how=how)


def save_examples(examples: Mapping[str, Mapping[str, ExampleScores]], folder: Path, place: str, **how: Any) -> None:
    """Write example scores of retrieval, by language and metric, to folders `retrieval_last-mao/place`."""
    for metric in dict.fromkeys(itertools.chain.from_iterable(examples.values())):
        by_language = {language: by_metric[metric] for language, by_metric in examples.items() if metric in by_metric}
        score = Score.read(metric)
        write_examples(folder / score.folder / place, by_language, task=score.title, metric=metric, **how)


def _agreeing(path: Path, fields: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the content of a file that agrees with the fields of a run, or None without an undamaged file."""
    if (content := read_mark(path)) is None:
        return None
    # JSON turns tuples into lists, and keys into text.
    for name, expected in json.loads(json.dumps(fields)).items():
        recorded = content.get(name)
        if recorded == expected:
            continue
        if isinstance(recorded, dict) and isinstance(expected, dict):
            key = min(key for key in {*recorded, *expected} if recorded.get(key) != expected.get(key))
            recorded, expected, name = recorded.get(key), expected.get(key), key
        fault = f"{name} is {json.dumps(recorded)} there and {json.dumps(expected)} here"
        advice = f"Give another output_dir, or overwrite_output_dir=true to delete {path.parent}"
        raise InputError(f"{path} belongs to another run: {fault}. {advice}")
    return content


def format_scores(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of several `scores.json`: mean, standard deviation, minimum and maximum for each language."""
    metric = runs[0]["metric"]
    languages = list(runs[0]["languages"])
    scores, warnings, constants = [], [], []
    for run in runs:
        found = run["languages"]
        scores.append([found[language]["score"] for language in languages])
        begin = f"\nWARNING: seed {run['seed']}: "
        warnings += [begin + warning for warning in run.get("warnings", ())]
        only = {language: found[language]["only"] for language in found if "only" in found[language]}
        if only:
            constants.append(
                f"{begin}only {', '.join(sorted(set(only.values())))} was predicted in {', '.join(only)}. Train "
                "longer (--num_train_epochs), raise --learning_rate, or start from a fitted head (--fit_head true)."
            )
    percentages = 100 * np.array(scores)
    rows = [("language", metric, *(("sd", "min", "max") if len(runs) > 1 else ()))]
    by_language = list(zip(languages, percentages.T))
    if len(languages) > 1:
        by_language.append(("mean", percentages.mean(1)))
    for name, values in by_language:
        spread = (values.std(ddof=1), values.min(), values.max()) if len(runs) > 1 else ()
        rows.append((name, *(f"{number:.2f}" for number in (values.mean(), *spread))))
    seeds = ", ".join(str(run["seed"]) for run in runs)
    trained_on = f"trained on {runs[0]['train_language']}; " if runs[0]["train_language"] else ""
    return f"{table(rows, len(rows[0]) - 1)}\n{trained_on}seeds {seeds}; in percent{''.join(warnings + constants)}"
