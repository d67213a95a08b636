"""Compare MAO's cached modules with FAO: time, memory and word retrieval on the same pairs.

    python benchmarks/mao_against_fao.py --output runs/mao_against_fao.json            # half an hour
    python benchmarks/mao_against_fao.py --repeats 1 --max_train_pairs 40 --max_eval_pairs 40            # a trial
    python benchmarks/mao_against_fao.py --bare     # no evaluation or saving during training
    python benchmarks/mao_against_fao.py --mao_configs recipes/configs/mao_linear_builtin.yaml my_module.yaml

The recipes run as they are, without `accelerate launch`, each in a process of its own and in turns (FAO, MAO, FAO,
...), so that other work on the machine slows all of them; a ratio is taken within a repeat, and the median reported.
Every run starts from a cache that holds nothing but the converted built-in encoder, and follows its configuration to
the letter: where that evaluates or saves checkpoints while it trains, it is part of the time, unless `--bare`.

Time is that of the record's phases "preparing" (token ids, FAO's reference vectors, MAO's word vectors) and
"training"; loading, linking and scoring are in neither. CPU time says more on a machine that others use too.

Memory is the peak resident size, for which Linux keeps a mark (VmHWM): the run sets it back at the start of each phase
and reads it at the end. Resident are also the pages of mapped files that were touched, the encoder's weights and the
caches among them, and what an earlier phase has not given back.
"""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from hf_xalign import record as records
from hf_xalign.cache import write_json

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "recipes" / "configs"
COUNTED = ("preparing", "training")
METRICS = {"retrieval_mean": "", "retrieval_words": ", words"}
BARE = ("--eval_strategy", "no", "--save_strategy", "no")
TIME_AIM, MEMORY_AIM, SHARE_AIM = 0.25, 0.60, 0.05


class Run(NamedTuple):
    """One run of one configuration.

    Attributes:
        wall: seconds of the counted phases.
        cpu: CPU seconds of the same.
        preparing: wall seconds of the first of them.
        peak: bytes, of the counted phases.
        peak_total: bytes, of the whole run.
        before: `{language: {metric: value}}` of the untouched encoder.
        after: the same after training.
        trainable: `parameters` and `share`; empty where the record does not say.
    """

    wall: float
    cpu: float
    preparing: float
    peak: int
    peak_total: int
    before: dict[str, dict[str, float]]
    after: dict[str, dict[str, float]]
    trainable: dict[str, float]


def read_run(found: dict[str, Any]) -> Run:
    """A run's record (results.json) as the figures that are compared."""
    wall, cpu, peaks = found["times"]["seconds"], found["cpu_seconds"], found["peak_memory"]
    return Run(
        wall=sum(wall[name] for name in COUNTED),
        cpu=sum(cpu[name] for name in COUNTED),
        preparing=wall["preparing"],
        peak=max(peaks[name] for name in COUNTED),
        peak_total=max(peaks.values()),
        before=found["scores"]["before"],
        after=found["scores"]["after"],
        trainable=found.get("trainable") or {},
    )


# ---- Running ----


def measured(recipe: str, options: list[str]) -> None:
    """Run a recipe in this process; its record also gets `cpu_seconds` and `peak_memory` (bytes) of each phase."""
    plain = records.phase

    @contextmanager
    def phase(record: dict[str, Any], name: str) -> Iterator[None]:
        cpu, peaks = record.setdefault("cpu_seconds", {}), record.setdefault("peak_memory", {})
        _note_peak(peaks, "between phases")
        start = time.process_time()
        with plain(record, name):
            yield
        cpu[name] = cpu.get(name, 0.0) + time.process_time() - start
        _note_peak(peaks, name)

    records.phase = phase
    sys.argv = [recipe, *options]
    runpy.run_path(recipe, run_name="__main__")


def _note_peak(peaks: dict[str, int], name: str) -> None:
    """Note this process's peak since the last call, in bytes, and let it start again from here."""
    status = Path("/proc/self/status").read_text().splitlines()
    peak = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    peaks[name] = max(peaks.get(name, 0), peak)
    Path("/proc/self/clear_refs").write_text("5")


def run_apart(recipe: Path, config: Path, options: list[str], encoders: Path) -> dict[str, Any]:
    """The record of a recipe run in a process of its own, its cache empty but for the folder of encoders.

    Raises:
        RuntimeError: the run failed; with the end of what it printed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cache").mkdir()
        (folder / "cache" / "encoders").symlink_to(encoders)
        command = [sys.executable, __file__, "--measured", str(recipe), "--config", str(config)]
        command += ["--output_dir", str(folder / "run"), *options]
        done = subprocess.run(
            command,
            env={**os.environ, "HF_XALIGN_CACHE": str(folder / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{recipe.name} --config {config} failed:\n{done.stdout[-3000:]}")
        return records.read_record(folder / "run")


# ---- Report ----


def spread(values: list[float], digits: int) -> str:
    """Median, and the range where there are several values."""
    text = f"{median(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def ratio(runs: dict[str, list[Run]], name: str, of: Callable[[Run], float]) -> float:
    """Median, over repeats, of a figure of configuration `name` over that of the first."""
    first = next(iter(runs.values()))
    return median(of(ours) / of(base) for ours, base in zip(runs[name], first, strict=True))


def score_cell(runs: list[Run], language: str, metric: str) -> str:
    """`before -> after` in %, medians of the repeats; `-` where the run has no such score."""
    after = [run.after[language][metric] for run in runs if metric in run.after[language]]
    if not after:
        return "-"
    # An untouched encoder has no view of words other than the pooled subwords that modules start from.
    before = [run.before[language].get(metric, run.before[language]["retrieval_mean"]) for run in runs]
    return f"{100 * median(before):.1f} -> {100 * median(after):.1f}"


def table(runs: dict[str, list[Run]]) -> str:
    """Time, memory, trained parameters and scores of each configuration, as Markdown."""
    languages = list(next(iter(runs.values()))[0].after)
    metrics = [
        metric
        for metric in METRICS
        if any(metric in run.after[languages[0]] for found in runs.values() for run in found)
    ]
    heads = ["configuration", "seconds", "of it preparing", "x FAO", "x FAO, CPU time", "peak GiB", "x FAO"]
    heads += ["peak GiB, whole run", "trained", "share"]
    heads += [f"{language}{METRICS[metric]}" for metric in metrics for language in languages]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, found in runs.items():
        trainable = found[0].trainable
        cells = [
            name,
            spread([run.wall for run in found], 1),
            f"{median(run.preparing for run in found):.1f}",
            f"{ratio(runs, name, lambda run: run.wall):.3f}",
            f"{ratio(runs, name, lambda run: run.cpu):.3f}",
            spread([run.peak / 2**30 for run in found], 2),
            f"{ratio(runs, name, lambda run: run.peak):.3f}",
            f"{median(run.peak_total for run in found) / 2**30:.2f}",
            f"{trainable['parameters']:,}" if trainable else "-",
            f"{trainable['share']:.2%}" if trainable else "-",
            *(score_cell(found, language, metric) for metric in metrics for language in languages),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(runs: dict[str, list[Run]]) -> str:
    """Format the aims of each module as Markdown."""
    lines = ["| configuration | what | figure | aim | |", "|---|---|---|---|---|"]
    for name in list(runs)[1:]:
        found = runs[name]
        figures = [
            ("time, x FAO", ratio(runs, name, lambda run: run.wall), TIME_AIM),
            ("peak memory, x FAO", ratio(runs, name, lambda run: run.peak), MEMORY_AIM),
        ]
        if found[0].trainable:
            figures.append(("trained share", found[0].trainable["share"], SHARE_AIM))
        for what, figure, aim in figures:
            lines.append(f"| {name} | {what} | {figure:.3f} | <= {aim:g} | {'met' if figure <= aim else 'missed'} |")
        for language, scores in found[0].before.items():
            gain = median(run.after[language]["retrieval_mean"] for run in found) - scores["retrieval_mean"]
            verdict = "met" if gain > 0 else "missed"
            lines.append(f"| {name} | gain, {language} | {100 * gain:+.1f} | > 0 | {verdict} |")
    return "\n".join(lines)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fao_config", type=Path, default=CONFIGS / "fao_builtin.yaml", help="of recipes/fao.py")
    parser.add_argument(
        "--mao_configs",
        type=Path,
        nargs="+",
        default=[CONFIGS / "mao_linear_builtin.yaml"],
        help="one or more, of recipes/mao.py",
    )
    parser.add_argument("--bare", action="store_true", help="no evaluation and no checkpoints during training")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each configuration, in turns")
    parser.add_argument("--max_train_pairs", type=int, help="use the first n pairs of each training source")
    parser.add_argument("--max_eval_pairs", type=int, help="use the first n pairs of each held-out source")
    parser.add_argument("--output", type=Path, help="JSON file for the record of every run")
    arguments = parser.parse_args(argv)
    configs = [arguments.fao_config, *arguments.mao_configs]
    if len({config.stem for config in configs}) < len(configs):
        parser.error(f"two configurations have the same name: {', '.join(config.stem for config in configs)}")
    if missing := [str(config) for config in configs if not config.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    return arguments


def main() -> None:
    """Run the benchmark and print two tables."""
    if sys.argv[1:2] == ["--measured"]:
        return measured(sys.argv[2], sys.argv[3:])
    arguments = parse_arguments()
    # Not at the top: a recipe sets the environment before torch is first imported.
    from hf_xalign.data.builtin import builtin_encoder

    recipes = {arguments.fao_config: ROOT / "recipes" / "fao.py"}
    recipes |= dict.fromkeys(arguments.mao_configs, ROOT / "recipes" / "mao.py")
    options = list(BARE) if arguments.bare else []
    for option in ("max_train_pairs", "max_eval_pairs"):
        if getattr(arguments, option) is not None:
            options += [f"--{option}", str(getattr(arguments, option))]
    encoders = builtin_encoder().parent
    runs: dict[str, list[Run]] = {config.stem: [] for config in recipes}
    saved = []
    for repeat in range(arguments.repeats):
        for config, recipe in recipes.items():
            found = run_apart(recipe, config, options, encoders)
            run = read_run(found)
            runs[config.stem].append(run)
            saved.append({"configuration": config.stem, "repeat": repeat, "record": found})
            if arguments.output:
                write_json(arguments.output, saved)
            print(
                f"{repeat + 1}/{arguments.repeats} {config.stem}: {run.wall:.1f} s, {run.peak / 2**30:.2f} GiB",
                flush=True,
            )
    machine = found["hardware"]
    precision = "bfloat16 autocast" if found["settings"].get("bf16") else "float32"
    what = "no evaluation during training" if arguments.bare else "configurations as they are"
    print(
        f"\n{machine['cpu']}, {machine['cores']} cores, torch {found['versions']['torch']}, {precision}, "
        f"{arguments.repeats} interleaved runs, {what}\n\n{table(runs)}\n\n{aims(runs)}"
    )


if __name__ == "__main__":
    main()
