"""Score each of MAO's modules on the built-in encoder, with both objectives and several seeds.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/mao_modules.py                             # hours on 2 cores, resumable
    OMP_WAIT_POLICY=PASSIVE python benchmarks/mao_modules.py --max_train_pairs 40 --max_eval_pairs 40 --seeds 0
    python benchmarks/mao_modules.py --modules linear --set learning_rate=1e-3 --output runs/slower_linear.json

One process loads and links the built-in text, scores the untouched encoder, and then trains one module after another
on the same frozen encoder, each by its preset; the encoder's weights must be the same bits after every run, or the
benchmark stops. Every run goes to the JSON file of `--output` as it ends. The same call resumes from that file, and
refuses a file of other pairs or settings.

The score is word retrieval in float32, mean subword: of a plain forward, and ("words") of the view that the module is
trained in, where a sentence is a sequence of words. Gains are over the untouched encoder, whose word vectors are the
same in both. Seconds are those of training alone; the first run of a kind also writes the cache of word vectors that
the others read.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import disable_progress_bars
from kept import open_runs, write_runs
from text import Text, open_text
from transformers import set_seed

from hf_xalign.config import parse
from hf_xalign.evaluation.scores import Scores, score_retrieval
from hf_xalign.links.frozen import make_evaluation_links
from hf_xalign.modeling.freezing import autocast_removed, model_fingerprint
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.command import run, settle_cpu
from hf_xalign.recipes.parts.parallel import load_word_corpus
from hf_xalign.trainers import MAOConfig, MAOTrainer

MODULES: dict[str, dict[str, str]] = {
    "linear": {"preset": "linear"},
    "linear_per_language": {"preset": "linear", "per_language": "all"},
    "transformer": {"preset": "transformer"},
    # Each word alone, so batches can be drawn as those of the linear map are.
    "transformer_without_context": {
        "preset": "transformer",
        "context": "false",
        "batch_of": "links",
        "negatives": "all",
        "regularized_words": "linked",
        "per_device_train_batch_size": "256",
    },
    "adapter": {"preset": "adapter"},
}
OBJECTIVES = ("l2", "infonce")
# As in recipes/configs/mao_*_builtin.yaml.
COMMON = {
    "temperature": "0.07",
    "per_device_eval_batch_size": "32",
    "bf16": "true",
    "use_cpu": "true",
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
}
VIEWS = {"retrieval_mean": "", "retrieval_words": ", words"}

Run = dict[str, Any]
Key = tuple[str, str, int]
"""Module, objective and seed."""


def settings(module: str, objective: str, seed: int, overrides: dict[str, str]) -> list[str]:
    """The options of one run, as on a recipe's command line; `overrides` win."""
    chosen = {**COMMON, **MODULES[module], "objective": objective, "seed": str(seed), **overrides}
    return [word for name, value in chosen.items() for word in (f"--{name}", value)]


def train(text: Text, options: list[str], encoder: str) -> Run:
    """Train and score a fresh module, and take it off the encoder again.

    Args:
        text: the encoder without a module, and the text.
        options: settings of [`MAOConfig`], as command line.
        encoder: fingerprint of the encoder.

    Returns:
        Seconds of `preparing` and `training`, `parameters` and `share` that are trained, and `scores`.

    Raises:
        RuntimeError: the encoder is not what it was.
    """
    size = sum(p.numel() for p in text.model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        (args,) = parse((MAOConfig,), [*options, "--output_dir", folder])
        set_seed(args.seed)
        start = time.perf_counter()
        trainer = MAOTrainer(
            text.model,
            args,
            train_dataset=text.train,
            eval_dataset=text.evaluation,
            processing_class=text.tokenizer,
        )
        prepared = time.perf_counter()
        trainer.train()
        trained = time.perf_counter()
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    text.model = model
    with autocast_removed(model):
        scores = score(text, word_view=args.top == "transformer")
    for values in scores.values():  # a linear map of a mean is the mean of the linear maps
        values.setdefault("retrieval_words", values["retrieval_mean"])
    text.model = model.unload()
    if model_fingerprint(text.model) != encoder:
        raise RuntimeError(f"the frozen encoder was changed by {' '.join(options)}")
    return {
        "preparing": round(prepared - start, 2),
        "training": round(trained - prepared, 2),
        "parameters": parameters,
        "share": parameters / size,
        "scores": scores,
    }


def score(text: Text, *, word_view: bool) -> Scores:
    """Word retrieval of the model as it is now, mean subword."""
    return score_retrieval(
        text.model,
        text.tokenizer,
        text.evaluation,
        word_view=word_view,
        batch_size=int(COMMON["per_device_eval_batch_size"]),
        desc="Scoring",
    )


# ---- The file of runs ----


def missing(found: dict[str, Any], wanted: list[Key]) -> list[Key]:
    """The runs that the file does not have yet."""
    done = {_key(one) for one in found["runs"]}
    return [key for key in wanted if key not in done]


def _key(one: Run) -> Key:
    return one["module"], one["objective"], one["seed"]


# ---- Report ----


def table(untouched: Scores, runs: list[Run]) -> str:
    """Mean and spread (largest minus smallest) over seeds, and gain, in %, as Markdown."""
    columns = [(language, view) for view in VIEWS for language in untouched]
    heads = ["module", "objective", "seeds"]
    heads += [cell for language, view in columns for cell in (f"{language}{VIEWS[view]} (spread)", "gain")]
    heads += ["training s", "trained", "share"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    cells = ["untouched", "-", "-"]
    for language, _ in columns:
        cells += [f"{100 * untouched[language]['retrieval_mean']:.1f}", "-"]
    lines.append(f"| {' | '.join([*cells, '-', '-', '-'])} |")
    for module, objective in dict.fromkeys(_key(one)[:2] for one in runs):
        same = [one for one in runs if _key(one)[:2] == (module, objective)]
        cells = [module, objective, str(len(same))]
        for language, view in columns:
            values = [100 * one["scores"][language][view] for one in same]
            gain = mean(values) - 100 * untouched[language]["retrieval_mean"]
            cells += [f"{mean(values):.1f} ({max(values) - min(values):.1f})", f"{gain:+.1f}"]
        seconds = median(one["training"] for one in same)
        cells += [f"{seconds:.1f}", f"{same[0]['parameters']:,}", f"{same[0]['share']:.2%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line; `set` becomes a dictionary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=list(MODULES))
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--max_train_pairs", type=int, help="use the first n pairs of each language")
    parser.add_argument("--max_eval_pairs", type=int, help="use the first n held-out pairs of each language")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="FIELD=VALUE", help="settings of MAOConfig, for all runs"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/mao_modules.json"), help="file of the runs")
    arguments = parser.parse_args(argv)
    if wrong := [item for item in arguments.set if "=" not in item]:
        parser.error(f"--set {wrong[0]}: write it as FIELD=VALUE")
    arguments.set = {name: value for name, _, value in (item.partition("=") for item in arguments.set)}
    return arguments


def main() -> None:
    """Run the benchmark and print one table."""
    arguments = parse_arguments()
    # By seed first, so that an interrupted benchmark has every module.
    wanted = [
        (module, objective, seed)
        for seed, module, objective in product(arguments.seeds, arguments.modules, arguments.objectives)
    ]
    disable_progress_bars()
    data = DataArguments(max_train_pairs=arguments.max_train_pairs, max_eval_pairs=arguments.max_eval_pairs)
    with tempfile.TemporaryDirectory() as folder:
        options = [settings(*key, arguments.set) for key in wanted]
        args = [parse((MAOConfig,), [*option, "--output_dir", folder])[0] for option in options]
        settle_cpu(args[0].device.type)
        corpus = load_word_corpus(data, args[0])
    text = open_text(corpus, args[0])
    linked = corpus.linking.apply(corpus.train, model=text.model, tokenizer=text.tokenizer)
    text.train, text.evaluation = linked.pairs, make_evaluation_links(corpus.evaluation, corpus.train)
    encoder = model_fingerprint(text.model)
    setup = {
        "encoder": encoder,
        "links": linked.counts,
        "held out": len(text.evaluation),
        "settings": {**COMMON, **arguments.set},
    }
    found = open_runs(arguments.output, setup)
    if "untouched" not in found:
        found["untouched"] = score(text, word_view=False)
        write_runs(arguments.output, found)
    todo = missing(found, wanted)
    for number, (module, objective, seed) in enumerate(todo, start=1):
        print(f"{number}/{len(todo)}: {module}, {objective}, seed {seed}", flush=True)
        result = train(text, settings(module, objective, seed, arguments.set), encoder)
        found["runs"].append({"module": module, "objective": objective, "seed": seed, **result})
        write_runs(arguments.output, found)
    chosen = [one for one in found["runs"] if _key(one) in wanted]
    pairs = ", ".join(f"{counts['pairs']} pairs of {name}" for name, counts in linked.counts.items())
    print(
        f"\n{torch.get_num_threads()} CPU threads, torch {torch.__version__}, {pairs}, "
        f"{len(text.evaluation)} held out\n\n{table(found['untouched'], chosen)}"
    )


if __name__ == "__main__":
    run(main)
