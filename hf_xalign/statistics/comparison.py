"""Compare systems over languages and seeds.

A system is the folder of a run, with `scores.json` (the task, metric and scores of its seed) and
`examples/<language>.json` (its [`ExampleScores`]), or a folder of such runs, `seed-<s>` for each seed s.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from hf_xalign.cache import inside, read_json
from hf_xalign.checks import check_distinct, check_lengths
from hf_xalign.errors import InputError, explained
from hf_xalign.statistics import significance
from hf_xalign.statistics.examples import EXAMPLES, SCORES, ExampleScores
from hf_xalign.tables import table

_LEVEL = 0.05  # p below which a difference is marked
_BETTER, _WORSE, _MINUS = "*", "†", "−"  # a minus as wide as a plus, so that columns stay aligned
_WIDTH = 119  # of the notes in a terminal
# Fields of scores.json that are equal for all seeds of a system: else one folder would hold two.
SHARED = ("task", "metric", "train_language")


@dataclass(frozen=True)
class System:
    """Scores of one system, by language: of each ascending seed's examples, and fingerprints of the test text."""

    name: str
    folder: Path
    task: str
    metric: str
    train_language: str
    seeds: list[int]
    examples: dict[str, list[ExampleScores]]
    tests: dict[str, str]

    def scores(self, language: str) -> np.ndarray:
        """Return the total scores of a language, (seeds,) float64."""
        return np.array([run.score() for run in self.examples[language]])


@dataclass(frozen=True)
class Difference:
    """Difference between a system and the baseline in one language, or on average over languages.

    The average has the `language` None and no test. `examples` is the size of the test set, and `difference` the mean
    over seeds of system minus baseline. `low` and `high` bound the interval over examples and seeds. `p` is the
    two-sided p of the test over examples; `corrected` is p after Holm's correction over the languages of this system.
    """

    system: str
    language: str | None
    examples: int
    difference: float
    low: float
    high: float
    p: float | None = None
    corrected: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Differences between systems and the first of them, the baseline.

    Attributes:
        systems: the systems, the baseline first.
        test: `paired t-test` if the score is a mean over examples, else `permutation test`.
        differences: sorted by system, then in the order of the languages, then the average.
    """

    systems: list[System]
    languages: list[str]
    test: Literal["paired t-test", "permutation test"]
    differences: list[Difference]

    def __str__(self) -> str:
        """Return both tables and the notes as plain text."""
        parts = [table(rows, len(rows[0]) - 1) for rows in self.tables()]
        return "\n\n".join([*parts, *(fill(note, _WIDTH) for note in self.notes())])

    def tables(self) -> list[list[list[str]]]:
        """Return the rows of two tables: means of each system, and differences from the baseline."""
        marks = {}
        for difference in self.differences:
            if difference.corrected is not None and difference.corrected < _LEVEL:
                mark = _BETTER if difference.difference > 0 else _WORSE
                marks[difference.system, difference.language] = f" {mark}"
        several = len(self.languages) > 1
        means = [["system", *self.languages, *["average"] * several]]
        for system in self.systems:
            scores = [system.scores(code) for code in self.languages]
            cells = []
            for code, seed_scores in zip(self.languages, scores, strict=True):
                cells.append(_spread(seed_scores) + marks.get((system.name, code), ""))
            means.append([system.name, *cells, *[_spread(np.mean(scores, axis=0))] * several])
        rows = [["system", "language", "examples", "difference", "95% interval", "p", "p corrected"]]
        for difference in self.differences:
            bounds = f"[{_signed(difference.low)}, {_signed(difference.high)}]"
            cells = [difference.system, difference.language or "average", str(difference.examples)]
            cells += [_signed(difference.difference), bounds]
            rows.append([*cells, _p(difference.p), _p(difference.corrected)])
        return [means, rows]

    def notes(self) -> list[str]:
        """Return one line for each thing measured and tested."""
        first = self.systems[0]
        trained = {system.train_language for system in self.systems}
        by_system = "; ".join(f"{system.name} on {system.train_language}" for system in self.systems)
        told = f", trained on {first.train_language if len(trained) == 1 else by_system}" if any(trained) else ""
        seeds = " ".join(map(str, first.seeds))
        count = len(self.languages)
        notes = [
            f"{first.task}, {first.metric}{told}; "
            f"mean{' ± standard deviation' * (len(first.seeds) > 1)} over seeds {seeds}, in points.",
            f"{_BETTER} better, {_WORSE} worse than {first.name}: p < {_LEVEL:g} by the "
            f"{self.test} over examples{f', after Holm over the {count} languages of a system' * (count > 1)}.",
        ]
        if len(first.seeds) > 1:
            notes.append(
                "p covers other test examples for these models; the intervals also cover other seeds. A marked "
                "difference whose interval contains 0 may be due to the seeds."
            )
        else:
            notes.append("One seed only: p and intervals do not cover the variation between seeds.")
        for code in self.languages:
            if len({system.tests[code] for system in self.systems if code in system.tests}) > 1:
                notes.append(f"The test text in {code} is not the same: p and interval pair examples that differ.")
        if first.metric.startswith("retrieval"):
            notes.append("All systems are asked for every link; a word that an encoder cuts off is a miss.")
        return notes


def compare(
    folders: Sequence[str | Path],
    *,
    names: Sequence[str] | None = None,
    languages: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    permutations: int = 10_000,
    concatenate_seeds: bool = False,
    resamples: int = 2000,
    seed: int = 0,
    quiet: bool = False,
) -> Comparison:
    """Compare systems with the first of them, the baseline.

    All systems must have the same seeds, languages and test sets: tests pair examples, intervals pair examples and
    seeds. A score that is a mean over examples (accuracy of sentences, QA F1) gets the paired t-test. Any other (micro
    F1, accuracy of words) gets the permutation test, whose options are those of
    [`~hf_xalign.statistics.significance.permutation_test`]. All systems and languages get the same test.

    By default systems have their folders' names, and all languages and seeds are compared. A difference is significant
    if p is below 0.05. Each interval contains 95% of `resamples` differences between resampled examples and seeds.

    Raises:
        InputError: a folder has no finished system, or the systems cannot be compared.

    Example:
        >>> import json, pathlib, tempfile
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name, values in {"raw": [0.2, 0.5, 0.4, 0.3], "fao": [0.5, 0.7, 0.9, 0.6]}.items():
        ...     scores = ExampleScores.from_values(values)
        ...     scores.save(root / name / "seed-0" / "examples" / "de.json")
        ...     found = {"task": "qa", "metric": "qa_f1", "train_language": "en", "seed": 0}
        ...     found["languages"] = {"de": {"score": scores.score()}}
        ...     _ = (root / name / "seed-0" / "scores.json").write_text(json.dumps(found))
        >>> [difference] = compare([root / "raw", root / "fao"], quiet=True).differences
        >>> print(f"{difference.system}: {difference.difference:+.3f} (p = {difference.p:.3f})")
        fao: +0.325 (p = 0.014)
    """
    bounds = [(1 - significance.INSIDE) / 2, (1 + significance.INSIDE) / 2]
    systems = []
    for folder, name in zip(folders, _names(folders, names)):
        systems.append(load_system(folder, name=name, languages=languages, seeds=seeds))
    baseline = systems[0]
    columns = list(baseline.examples)
    for system in systems[1:]:
        _check_comparable(system, baseline)
    runs = [run for system in systems for run in itertools.chain(*system.examples.values())]
    means = significance.is_mean(runs)
    options: Any = {"permutations": permutations, "seed": seed, "concatenate_seeds": concatenate_seeds}
    permute = partial(significance.permutation_test, **options)
    test: Callable[..., float] = significance.paired_t_test if means else permute
    differences = []
    with tqdm(total=(len(systems) - 1) * len(columns), desc="testing", disable=quiet, leave=False, delay=5) as bar:
        for system in systems[1:]:
            drawn, p_values = [], []
            for language in columns:
                pair = system.examples[language], baseline.examples[language]
                with explained(f"{system.folder} against {baseline.folder}, {language}"):
                    drawn.append(significance.resampled_differences(*pair, resamples=resamples, seed=seed))
                    p_values.append(test(*pair))
                bar.update()
            sizes = [len(baseline.examples[language][0]) for language in columns]
            means_apart = [float(np.mean(system.scores(code) - baseline.scores(code))) for code in columns]
            tests = zip(columns, p_values, significance.holm(p_values).tolist())
            for number, (language, p, corrected) in enumerate(tests):
                low, high = np.quantile(drawn[number], bounds).tolist()
                apart = means_apart[number]
                differences.append(Difference(system.name, language, sizes[number], apart, low, high, p, corrected))
            if len(columns) > 1:
                low, high = np.quantile(np.mean(drawn, axis=0), bounds).tolist()
                differences.append(Difference(system.name, None, sum(sizes), float(np.mean(means_apart)), low, high))
    return Comparison(systems, columns, "paired t-test" if means else "permutation test", differences)


def load_system(
    folder: str | Path,
    *,
    name: str | None = None,
    languages: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> System:
    """Read one system's results, by default of all languages and seeds, under the folder's name."""
    folder = Path(folder)
    folders = {int(match[1]): path for path in folder.glob("*") if (match := re.fullmatch(r"seed-(\d+)", path.name))}
    if not folders:  # a run of one seed
        folders = {_read_scores(folder)["seed"]: folder}
    chosen = sorted(set(folders if seeds is None else seeds))
    if missing := [number for number in chosen if number not in folders]:
        raise InputError(f"{folder}: has no seed {_list(missing)}, only {_list(sorted(folders))}")
    records = {number: _read_scores(folders[number]) for number in chosen}
    first = records[chosen[0]]
    codes = list(dict.fromkeys(languages or (code for record in records.values() for code in record["languages"])))
    for number, record in records.items():
        for field in SHARED:
            if record[field] != first[field]:
                raise InputError(
                    f"{folders[number] / SCORES}: {field} is {record[field]!r}, but {first[field]!r} for seed "
                    f"{chosen[0]}: one folder holds one system"
                )
    examples = {}
    for code in codes:
        files = [inside(folders[number] / EXAMPLES, f"{code}.json") for number in chosen]
        examples[code] = [ExampleScores.load(file) for file in files]
    inputs = first.get("inputs", {}).items()
    # Of training and test text in one language, the test text comes last.
    tests = {entry[5:].partition("=")[0]: mark for entry, mark in inputs if entry[:5] in ("eval ", "text ")}
    shared = {field: first[field] for field in SHARED}
    return System(name or folder.resolve().name, folder, seeds=chosen, examples=examples, tests=tests, **shared)


def _read_scores(folder: Path) -> dict[str, Any]:
    path = folder / SCORES
    advice = ". Give the output folder of a finished run, or name its finished seeds by --seeds."
    with explained(f"{path}", FileNotFoundError, advice=advice):
        return read_json(path, remedy="The file was edited or cut off.")


def _check_comparable(system: System, baseline: System) -> None:
    for field in ("task", "metric"):
        value, expected = getattr(system, field), getattr(baseline, field)
        if value != expected:
            raise InputError(f"{system.folder}: {field} is {value!r}, but {expected!r} in {baseline.folder}")
    for what, these, others in (
        ("seeds", system.seeds, baseline.seeds),
        ("languages", list(system.examples), list(baseline.examples)),
    ):
        if {*these} != {*others}:
            common = [item for item in others if item in these]
            advice = f", or compare the common ones by --{what} {_list(common, ' ')}" if common else ""
            raise InputError(
                f"{system.folder}: has {what} {_list(these)}, but {baseline.folder} has {_list(others)}. Run the "
                f"missing ones{advice}."
            )


def _names(folders: Sequence[str | Path], names: Sequence[str] | None) -> list[str]:
    paths = [Path(folder).resolve() for folder in folders]
    check_distinct(folders=list(map(str, paths)))
    if names is None:
        ends = [path.name for path in paths]
        return ends if len(set(ends)) == len(ends) else list(map(str, folders))
    check_lengths("folder", folders=folders, names=names)
    check_distinct(names=names)
    return list(names)


def _list(items: Iterable[object], mark: str = ", ") -> str:
    return mark.join(map(str, items))


def _spread(scores: np.ndarray) -> str:
    """Format the mean and, over several seeds, the sample standard deviation, in points."""
    spread = f" ± {100 * scores.std(ddof=1):.1f}" if len(scores) > 1 else ""
    return f"{100 * scores.mean():.1f}{spread}"


def _signed(difference: float) -> str:
    points = f"{100 * difference:+.1f}"
    # What rounds to zero has no sign.
    return "0.0" if float(points) == 0 else points.replace("-", _MINUS)


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
