"""Ablate PPA's two terms over seeds: full, without MoCo, without TLM, and with MLM instead of TLM.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/ppa_ablation.py --tatoeba FOLDER         # hours
    OMP_WAIT_POLICY=PASSIVE python benchmarks/ppa_ablation.py --tatoeba FOLDER --encoder reinitialised

    OMP_WAIT_POLICY=PASSIVE python benchmarks/ppa_ablation.py --max_steps 3 --seeds 0 --set max_train_pairs=40 \\
        max_eval_pairs=40 per_device_train_batch_size=8 queue_size=16 --output runs/trial.json            # a trial

    python benchmarks/ppa_ablation.py --show runs/ppa_ablation_raw.json

Encoder, text and settings are those of recipes/configs/ppa_embedded.yaml and of `--set`. The encoder is taken as it is
(`raw`: its sentences are aligned already, so there is something to lose), or with its last layers (three, or as many
as `--layers`) put back to random weights, the same ones for all runs (`reinitialised`: there is more to win). Every
run starts from this encoder and takes the same number of optimizer steps: `--max_steps`, or as many as `full` takes in
`--minutes` by the seconds of a short run of it that comes first; steps of the other variants take as long or less. A
number of steps makes variants compare, where a limit by the clock would give fewer to what runs while the machine is
busy; it is kept with the runs.

Every run goes to the JSON file of `--output` as it ends. The same call resumes from that file, and refuses a
file of other text or settings.

The score is sentence retrieval by cosine in float32, mean of both directions, of [CLS] and of mean pooling: on the
held-out text, and on Tatoeba where `--tatoeba` names a folder with a LANG.jsonl (columns `en` and `xx`) for each
language that is trained on. Gains are over the encoder before training. Seconds are those of training alone.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import Dataset, disable_progress_bars
from kept import open_runs, write_runs
from transformers import AutoModel, PreTrainedModel, set_seed

from hf_xalign.config import non_default_fields, parse
from hf_xalign.data import concatenate, load_parallel
from hf_xalign.data.sentence_pairs import encode_sentence_pairs
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import Scores
from hf_xalign.evaluation.sentence_scores import score_sentences
from hf_xalign.modeling.freezing import encoder_layers, model_fingerprint
from hf_xalign.recipes.parts.common import run, settle_cpu
from hf_xalign.recipes.parts.sentences import PPAArguments, SentenceCorpus, load_sentence_corpus
from hf_xalign.trainers import PPAConfig, PPATrainer

CONFIG = Path(__file__).resolve().parents[1] / "recipes" / "configs" / "ppa_embedded.yaml"
VARIANTS: dict[str, dict[str, str]] = {
    "full": {},
    "no_moco": {"contrast": "none"},
    "no_tlm": {"words": "none"},
    "mlm": {"words": "mlm"},
}
LABELS = {"full": "full", "no_moco": "- MoCo", "no_tlm": "- TLM", "mlm": "TLM -> MLM"}
QUIET = {"save_strategy": "no", "eval_strategy": "no", "logging_strategy": "no", "report_to": "none"}
HELD_OUT, TATOEBA = "held out", "Tatoeba"
POOLINGS = {"sentence_cls": "[CLS]", "sentence_mean": "mean"}
MEASURED_STEPS = 10
WANTED_GAIN = 20.0  # points, of the encoder whose sentences are not aligned

Key = tuple[str, int]
"""Variant and seed."""


# ---- What is trained, and on what ----


def options(config: Path, overrides: dict[str, str], **more: Any) -> list[str]:
    """A recipe's command line: the configuration, under `QUIET`, `overrides` and `more`."""
    chosen = {**QUIET, **overrides, **{name: str(value) for name, value in more.items()}}
    return ["--config", str(config), *(word for name, value in chosen.items() for word in (f"--{name}", value))]


def reinitialise(model: PreTrainedModel, layers: int, seed: int = 0) -> None:
    """Give the last `layers` layers random weights, drawn as the family draws those of a new model."""
    with torch.device("meta"):
        family = AutoModel.from_config(model.config, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for old, new in zip(encoder_layers(model)[-layers:], encoder_layers(family)[-layers:], strict=True):
            # transformers leaves weights alone that came out of a checkpoint, so they are drawn elsewhere and copied.
            new.to_empty(device="cpu").apply(family._init_weights)
            old.load_state_dict(new.state_dict())


def load_tatoeba(folder: Path, languages: list[str], pivot: str) -> Dataset:
    """Tatoeba's test sentences of these languages.

    Raises:
        InputError: the folder has no file of one of them.
    """
    return concatenate(
        [
            load_parallel(
                folder / f"{language}.jsonl",
                source_lang=language,
                target_lang=pivot,
                source_column="xx",
                target_column="en",
            )
            for language in languages
        ]
    )


def score(corpus: SentenceCorpus, tests: dict[str, Dataset], batch_size: int) -> dict[str, Scores]:
    """Sentence retrieval of the encoder as it is now, on each test set, in float32."""
    return {
        name: score_sentences(corpus.model, corpus.tokenizer, test, batch_size=batch_size, desc=f"Scoring, {name}")
        for name, test in tests.items()
    }


def train(
    corpus: SentenceCorpus, start: PreTrainedModel, words: list[str], tests: dict[str, Dataset]
) -> dict[str, Any]:
    """Train a copy of `start` and score it.

    Args:
        corpus: the training text, encoded; its model becomes the trained one.
        start: the encoder before training, which stays as it is.
        words: settings of [`PPAConfig`], as command line.
        tests: what to score on.

    Returns:
        `steps` taken, seconds of `training`, and `scores` of each test set.
    """
    corpus.model = copy.deepcopy(start)
    with tempfile.TemporaryDirectory() as folder:
        _, args = parse((PPAArguments, PPAConfig), [*words, "--output_dir", folder])
        set_seed(args.seed)
        trainer = corpus.trainer(PPATrainer, args)
        begun = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begun
    # Without the autocast that training in bf16 leaves around the forward.
    corpus.model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    return {
        "steps": trainer.state.global_step,
        "training": round(seconds, 2),
        "scores": score(corpus, tests, args.per_device_eval_batch_size),
    }


# ---- The file of runs ----


def settle_steps(found: dict[str, Any], max_steps: int | None, path: Path) -> int | None:
    """The number of steps of a run, as asked for or as the file has it; None where it is to be measured.

    Raises:
        InputError: the file's runs have another number of steps.
    """
    kept = found.get("max_steps")
    if kept is not None and max_steps is not None and kept != max_steps:
        raise InputError(f"{path}: holds runs of {kept} steps, not of {max_steps}; give another --output")
    return max_steps if kept is None else kept


def missing(found: dict[str, Any], wanted: list[Key]) -> list[Key]:
    """The runs that the file does not have yet."""
    done = {(one["variant"], one["seed"]) for one in found["runs"]}
    return [key for key in wanted if key not in done]


# ---- Report ----


def columns(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Test set, language and metric of every score, in the order of the table."""
    return [
        (test, language, metric)
        for test, scores in found["before"].items()
        for language in scores
        for metric in POOLINGS
    ]


def value(scores: dict[str, Scores], column: tuple[str, str, str]) -> float:
    """A score in percent."""
    test, language, metric = column
    return 100 * scores[test][language][metric]


def table(found: dict[str, Any]) -> str:
    """Mean, smallest and largest over seeds, and gain, in %, as Markdown."""
    shown = columns(found)
    heads = ["variant", "seeds", "steps", "training s", "step s"]
    heads += [f"{test} {language}, {POOLINGS[metric]}" for test, language, metric in shown]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    before = [f"{value(found['before'], column):.1f}" for column in shown]
    lines.append(f"| before | {' | '.join(['-'] * 4 + before)} |")
    for variant in dict.fromkeys(one["variant"] for one in found["runs"]):
        same = [one for one in found["runs"] if one["variant"] == variant]
        cells = [LABELS[variant], str(len(same)), str(same[0]["steps"])]
        seconds = [one["training"] for one in same]
        cells += [f"{mean(seconds):.0f} ({min(seconds):.0f}-{max(seconds):.0f})"]
        cells += [f"{sum(seconds) / sum(one['steps'] for one in same):.2f}"]
        for column in shown:
            values = [value(one["scores"], column) for one in same]
            gain = mean(values) - value(found["before"], column)
            cells.append(f"{mean(values):.1f} ({min(values):.1f}-{max(values):.1f}) {gain:+.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(found: dict[str, Any]) -> str:
    """Format the aims of `full` on this encoder and its mean gains over seeds as Markdown.

    Raw: no [CLS] score may fall, no Tatoeba score of Bengali either, and mean pooling by 0.5 at most. Reinitialised:
    two languages must gain 20, in one way of scoring at least.
    """
    full = [one["scores"] for one in found["runs"] if one["variant"] == "full"]
    if not full:
        return ""
    gains = {
        column: mean(value(scores, column) for scores in full) - value(found["before"], column)
        for column in columns(found)
    }
    lines = ["| full | gain | aim | |", "|---|---|---|---|"]
    if found["setup"]["encoder"] == "raw":
        for (test, language, metric), gain in gains.items():
            aim = 0.0 if metric == "sentence_cls" or (test, language) == (TATOEBA, "bn") else -0.5
            met = "met" if gain >= aim else "missed"
            lines.append(f"| {test} {language}, {POOLINGS[metric]} | {gain:+.2f} | >= {aim:+g} | {met} |")
    else:
        for test, (pooling, name) in product(found["before"], POOLINGS.items()):
            own = sorted(gain for column, gain in gains.items() if (column[0], column[2]) == (test, pooling))
            second = own[-2] if len(own) > 1 else float("-inf")
            met = "met" if second >= WANTED_GAIN else "missed"
            lines.append(f"| {test}, {name}, second-best language | {second:+.2f} | >= {WANTED_GAIN:+g} | {met} |")
    return "\n".join(lines)


def report(found: dict[str, Any]) -> str:
    """The tables of a file of runs."""
    setup, hardware = found["setup"], found["hardware"]
    pairs = ", ".join(f"{kept} of {of} pairs of {language}" for language, (kept, of) in setup["pairs"].items())
    where = ", ".join(hardware["gpus"]) or f"{hardware['cores']} CPU cores"
    head = f"{where}, torch {found['versions']['torch']}, {setup['encoder']} encoder, trained on {pairs}"
    return "\n\n".join(filter(None, [head, table(found), aims(found)]))


# ---- Command line ----


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line; `set` becomes a dictionary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", choices=("raw", "reinitialised"), default="raw")
    parser.add_argument("--layers", type=int, default=3, help="how many are put back to random weights")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--max_steps", type=int, help="optimizer steps of each run")
    length.add_argument("--minutes", type=float, default=5.0, help="about how long a run of `full` takes")
    parser.add_argument("--tatoeba", type=Path, metavar="FOLDER", help="score on its LANG.jsonl too")
    parser.add_argument("--config", type=Path, default=CONFIG, help="of recipes/ppa.py")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="settings on top of the config's")
    parser.add_argument("--output", type=Path, help="file of the runs; default runs/ppa_ablation_ENCODER.json")
    parser.add_argument(
        "--show", type=Path, metavar="FILE", help="print the tables of a file of runs, and run nothing"
    )
    arguments = parser.parse_args(argv)
    if wrong := [item for item in arguments.set if "=" not in item]:
        parser.error(f"--set {wrong[0]}: write it as FIELD=VALUE")
    arguments.set = {name: value for name, _, value in (item.partition("=") for item in arguments.set)}
    arguments.output = arguments.output or Path("runs") / f"ppa_ablation_{arguments.encoder}.json"
    return arguments


def main() -> None:
    """Run the benchmark and print its tables."""
    arguments = parse_arguments()
    if arguments.show:
        print(report(json.loads(arguments.show.read_text(encoding="utf-8"))))
        return
    # By seed first, so that an interrupted benchmark has every variant.
    wanted = [(variant, seed) for seed, variant in product(arguments.seeds, arguments.variants)]
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        # Of every variant, so that settings that one of them cannot take are refused before any runs.
        chosen = [
            options(arguments.config, {**arguments.set, **VARIANTS[variant]}, output_dir=folder)
            for variant in arguments.variants
        ]
        for words in [*chosen, options(arguments.config, arguments.set, output_dir=folder)]:
            data, args = parse((PPAArguments, PPAConfig), words)
        settle_cpu(args.device.type)
        corpus = load_sentence_corpus(data, args)
    if arguments.encoder == "reinitialised":
        reinitialise(corpus.model, arguments.layers)
    tests = {HELD_OUT: corpus.evaluation}
    if arguments.tatoeba:
        tests[TATOEBA] = load_tatoeba(arguments.tatoeba, corpus.languages, data.target_lang)
    corpus.train, counts = encode_sentence_pairs(
        corpus.train, corpus.tokenizer, min_tokens=args.min_tokens, max_tokens=args.max_tokens
    )
    start = corpus.model
    settings = {**non_default_fields(data), **args.changed()}
    setup = {
        "encoder": arguments.encoder,
        "weights": model_fingerprint(start),
        "pairs": {language: (count.kept, sum(count)) for language, count in counts.items()},
        "data": corpus.sources,
        "tests": {name: test._fingerprint for name, test in tests.items()},
        "settings": {name: value for name, value in settings.items() if name != "output_dir"},
    }
    found = open_runs(arguments.output, setup)
    max_steps = settle_steps(found, arguments.max_steps, arguments.output)
    if "before" not in found:
        found["before"] = score(corpus, tests, args.per_device_eval_batch_size)
    if max_steps is None:
        print(f"measuring {MEASURED_STEPS} steps of full", flush=True)
        words = options(arguments.config, arguments.set, max_steps=MEASURED_STEPS)
        max_steps = max(1, int(60 * arguments.minutes / train(corpus, start, words, {})["training"] * MEASURED_STEPS))
    found["max_steps"] = max_steps
    write_runs(arguments.output, found)
    todo = missing(found, wanted)
    for number, (variant, seed) in enumerate(todo, start=1):
        print(f"{number}/{len(todo)}: {variant}, seed {seed}, {max_steps} steps", flush=True)
        words = options(arguments.config, {**arguments.set, **VARIANTS[variant]}, seed=seed, max_steps=max_steps)
        result = train(corpus, start, words, tests)
        print(f"{result['training']:.0f} s, {result['training'] / max_steps:.2f} s a step", flush=True)
        found["runs"].append({"variant": variant, "seed": seed, **result})
        write_runs(arguments.output, found)
    print(f"\n{report(found)}")


if __name__ == "__main__":
    run(main)
