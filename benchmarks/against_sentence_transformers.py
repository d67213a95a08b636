"""Teach an encoder the same pairs by sentence-transformers' two recipes and by ours: scores, drift, time and memory.

    python benchmarks/against_sentence_transformers.py                     # the built-in text, half an hour on 2 cores

    python benchmarks/against_sentence_transformers.py --train DATA/bitext/{de,bn}.train.jsonl \\
        --probe pos:tags en=TRAIN en=TEST de=TEST --probe slots:labels en=TRAIN en=TEST de=TEST \\
        --sentences de=DATA/tatoeba/de.jsonl --systems raw mse mnrl joint joint,similarity_weight=1 --seeds 0 1 2

Systems: `raw` (not trained), `mse` (sentence-transformers' distillation: both sides go to the encoder's own vector of
the English side), `mnrl` (its in-batch contrast, without duplicates in a batch), and ours: a preset of FAO with
settings after commas. All have the same pairs, steps, batch size, learning rate and warm-up, and word embeddings that
are frozen unless `--train_embeddings` is given, as an encoder with new pieces needs it:

    hf-xalign extend-vocabulary builtin:minilm builtin:de builtin:bn --split_over 2 --output runs/extended
    python benchmarks/against_sentence_transformers.py --model runs/extended --train_embeddings \\
        --pairs 2000 --steps 250 --batch_size 16 --learning_rate 2e-4 --systems raw mse mnrl joint,start_share=0

The rest is each recipe's own, such as dropout (theirs has it) and batches of similar length (ours).

Every system and seed runs in a process of its own and has a file in --output; the same command resumes. A step's time
is that of the whole training loop. CPU seconds say more than wall time on a machine that others use. Preparing is all
before the loop: links, token ids, reference vectors and labels. Memory is the peak resident size up to the end of the
training. Rank correlation is that of the similarities of English sentences and words, before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from datasets import Dataset
from kept import open_runs, write_runs
from transformers import TrainerCallback

from hf_xalign import FAOConfig, FAOTrainer, align_words, encode_sentences, encode_words
from hf_xalign.config import parse
from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.load import draw_pairs, load_parallel
from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.evaluation.vectors import vector_drift
from hf_xalign.links.frozen import make_evaluation_links
from hf_xalign.modeling.freezing import freeze
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.recipes.parts.command import settle_cpu
from hf_xalign.tables import table
from hf_xalign.trainers.base.probes import read_probes

# Held-out English sentences whose similarities are compared.
SENTENCES = 500
BASELINE = "mnrl"


class Clock(TrainerCallback):
    """Wall and CPU seconds of a run's preparation, and of its steps."""

    def __init__(self) -> None:
        self.start = self.now()

    def now(self) -> np.ndarray:
        """Return wall and CPU time, float64 (2,)."""
        return np.array([time.perf_counter(), time.process_time()])

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """End the preparation."""
        self.preparing, self.start = self.now() - self.start, self.now()

    def on_train_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Note the mean of all steps: a trainer may start with its longest batch."""
        self.step = (self.now() - self.start) / state.max_steps


def options(given: argparse.Namespace, seed: int, folder: str) -> dict[str, Any]:
    """Return the training arguments that all systems share."""
    names = {"max_steps": "steps", "per_device_train_batch_size": "batch_size"}
    same = {name: getattr(given, names.get(name, name)) for name in (*names, "learning_rate", "bf16", "use_cpu")}
    return same | {
        "output_dir": folder,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 0.1,
        "seed": seed,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
    }


def theirs(
    given: argparse.Namespace, system: str, folder: str, pairs: Dataset, clock: Clock, shared: dict[str, Any]
) -> Any:
    """Train by a recipe of sentence-transformers, and return the encoder."""
    import sentence_transformers as st
    from sentence_transformers.sentence_transformer.losses import MSELoss, MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(shared["seed"])
    encoder = Transformer(folder, max_seq_length=128)
    pooling = Pooling(encoder.get_embedding_dimension(), pooling_mode="mean")
    model = st.SentenceTransformer(modules=[encoder, pooling], device="cpu" if shared["use_cpu"] else None)
    freeze(encoder.auto_model, embeddings=not given.train_embeddings)
    columns = {"english": pairs["target"][:], "other": pairs["source"][:]}
    if system == "mse":
        columns["label"] = model.encode(columns["english"], show_progress_bar=False).tolist()
    loss = {"mse": MSELoss, "mnrl": MultipleNegativesRankingLoss}[system](model)
    sampler = "no_duplicates" if system == "mnrl" else "batch_sampler"
    args = st.SentenceTransformerTrainingArguments(**shared, batch_sampler=sampler)
    data = Dataset.from_dict(columns)
    st.SentenceTransformerTrainer(model, args, train_dataset=data, loss=loss, callbacks=[clock]).train()
    return encoder.auto_model


def ours(
    given: argparse.Namespace,
    system: str,
    model: Any,
    tokenizer: Any,
    pairs: Dataset,
    clock: Clock,
    shared: dict[str, Any],
) -> Any:
    """Train by a preset of FAO, and return the encoder."""
    preset, *own = system.split(",")
    fixed = {"preset": preset, "freeze_embeddings": not given.train_embeddings}
    fixed |= {"reference": "cache", "cache_dir": shared["output_dir"]}
    words = [f"{name}={value}" for name, value in {**shared, **fixed}.items()]
    (args,) = parse([FAOConfig], [f"--{word}" for word in [*words, *own]])
    linked = align_words(pairs) if args.loss.reads("links") else pairs
    trainer = FAOTrainer(model, args, train_dataset=linked, processing_class=tokenizer, callbacks=[clock])
    trainer.train()
    return trainer.accelerator.unwrap_model(trainer.model)


def measure(given: argparse.Namespace, system: str, seed: int) -> dict[str, Any]:
    """Train one system, and return its scores and costs."""
    folder = resolve_model(given.model)
    device = torch.device("cpu" if given.use_cpu else "cuda")
    settle_cpu(device.type)
    model, tokenizer = load_encoder(folder, device)
    text = load_parallel(given.eval, split="test")
    held_out = make_evaluation_links(text, load_parallel(given.train))
    english = list(dict.fromkeys(text["target"][:]))[:SENTENCES]
    before = english_vectors(model, tokenizer, english)
    found: dict[str, Any] = {"system": system, "seed": seed}
    if system != "raw":
        text = load_parallel(given.train)
        pairs = draw_pairs(text, np.ones(len(text), dtype=bool), given.pairs, seed)
        clock = Clock()
        with tempfile.TemporaryDirectory() as made:
            shared = options(given, seed, made)
            if system in ("mse", "mnrl"):
                del model  # no part of their memory
                model = theirs(given, system, folder, pairs, clock, shared)
            else:
                model = ours(given, system, model, tokenizer, pairs, clock, shared)
        found |= {"step": [*clock.step], "preparing": [*clock.preparing], "pairs": len(pairs)}
        found["peak"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found | {"scores": score(given, model.eval(), tokenizer, held_out, before, english)}


def english_vectors(model: Any, tokenizer: Any, english: list[str]) -> dict[str, torch.Tensor]:
    """Return the vectors of sentences and of their words by kind, float32 (items, dim)."""
    words = [text.vectors[:, 0] for text in encode_words(model, tokenizer, english)]
    return {"sentences": encode_sentences(model, tokenizer, english, -1), "words": torch.cat(words)}


def score(
    given: argparse.Namespace,
    model: Any,
    tokenizer: Any,
    held_out: Dataset,
    before: dict[str, torch.Tensor],
    english: list[str],
) -> dict[str, float]:
    """Return all scores of an encoder: probes and retrieval in %, and rank correlations."""
    scores: dict[str, float] = {}
    dtype = torch.bfloat16 if given.bf16 else None
    for probe in read_probes([word for words in given.probe for word in words], given.examples):
        found = probe.scores(probe.examples(model, tokenizer, dtype=dtype))
        own = {language: 100 * value for language, values in found.items() for value in values.values()}
        scores |= {f"{probe.name} {language}": value for language, value in own.items()}
        others = [value for language, value in own.items() if language != probe.train.language]
        scores |= {f"{probe.name} others": mean(others)}
    for language, values in score_sentences(
        model, tokenizer, load_parallel(given.sentences or given.eval, split="test"), poolings=("mean",), dtype=dtype
    ).items():
        scores[f"sentences {language}"] = 100 * values["sentence_mean"]
    for language, values in score_retrieval(model, tokenizer, held_out, dtype=dtype).items():
        scores[f"words {language}"] = 100 * values["retrieval_mean"]
    if given.questions:
        scores |= search(given, model, tokenizer)
    after = english_vectors(model, tokenizer, english)
    drift = {kind: vector_drift(before[kind], after[kind]) for kind in before}
    return scores | {f"rank, {kind}": values["rank_correlation"] for kind, values in drift.items()}


def search(given: argparse.Namespace, model: Any, tokenizer: Any) -> dict[str, float]:
    """Return, by language, the share of questions (in %) whose nearest English paragraph is their own.

    The pool has every English paragraph of --questions; the file of another language translates that of its position.
    """
    files = [source.split("=", 1) for source in given.questions]
    read = [(language, json.loads(Path(path).read_text("utf-8"))["data"]) for language, path in files]
    texts: dict[str, list[dict[str, Any]]] = {}
    for language, articles in read:
        texts.setdefault(language, []).extend(paragraph for article in articles for paragraph in article["paragraphs"])
    pool = [paragraph["context"] for paragraph in texts["en"]]
    own = {question["id"]: row for row, paragraph in enumerate(texts["en"]) for question in paragraph["qas"]}
    keys = encode_sentences(model, tokenizer, pool, -1, prompt=given.prompts[1], normalize=True, batch_size=16)
    scores = {}
    for language, paragraphs in texts.items():
        asked = [question for paragraph in paragraphs for question in paragraph["qas"]]
        if language == "en":  # the questions that the other languages translate
            others = {q["id"] for name, own_text in texts.items() if name != "en" for p in own_text for q in p["qas"]}
            asked = [question for question in asked if question["id"] in others]
        words = [question["question"] for question in asked]
        queries = encode_sentences(model, tokenizer, words, -1, prompt=given.prompts[0], normalize=True)
        right = (queries @ keys.T).argmax(1) == torch.tensor([own[question["id"]] for question in asked])
        scores[f"search {language}"] = 100 * right.double().mean().item()
    scores["search others"] = mean(value for name, value in scores.items() if name != "search en")
    return scores


def report(runs: list[dict[str, Any]]) -> str:
    """Return the table: a row a system, mean and standard deviation over seeds."""
    systems = list(dict.fromkeys(run["system"] for run in runs))
    shown = [name for name in runs[0]["scores"] if re.search("^sentences|^words|^rank|^search| en$| others$", name)]
    base = {run["seed"]: run["step"] for run in runs if run["system"] == BASELINE}
    rows = [["system", "seeds", *shown, "s a step", "against mnrl, CPU", "preparing, s", "peak, GiB"]]
    for system in systems:
        own = [run for run in runs if run["system"] == system]
        row = [system, str(len(own))]
        row += [spread([run["scores"][name] for run in own], 2 if name[:4] == "rank" else 1) for name in shown]
        if system != "raw":
            ratios = [run["step"][1] / base[run["seed"]][1] for run in own if run["seed"] in base]
            row += [spread([run["step"][0] for run in own], 2), spread(ratios, 2) if ratios else ""]
            row += [spread([run["preparing"][0] for run in own], 0), spread([run["peak"] / 2**30 for run in own], 2)]
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    return table(rows, len(rows[0]) - 1)


def spread(values: list[float], digits: int) -> str:
    """Return the mean, and the standard deviation where there are several values."""
    text = f"{mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {stdev(values):.{digits}f}"


def main(argv: list[str] | None = None) -> None:
    """Run what is not in --output yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin", help="Hub id or folder of the encoder")
    parser.add_argument("--train", nargs="+", default=["builtin:de", "builtin:bn"], help="text to train on")
    parser.add_argument(
        "--eval", nargs="+", default=["builtin:de", "builtin:bn"], help="text for words and rank correlations"
    )
    parser.add_argument("--sentences", nargs="+", help="text for sentence retrieval; default: --eval")
    parser.add_argument("--questions", nargs="+", help="XQuAD's files, en=FILE and others: search English paragraphs")
    parser.add_argument("--prompts", nargs=2, default=["query: ", "passage: "], help="of questions and paragraphs")
    pos = ["pos", "builtin:en", "builtin:en", "builtin:de", "builtin:bn"]
    parser.add_argument("--probe", nargs="+", action="append", help="as in `hf-xalign evaluate --probe`")
    parser.add_argument("--examples", type=int, default=150, help="most examples of a probe's test")
    parser.add_argument("--systems", nargs="+", default=["raw", "mse", "mnrl", "joint"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--pairs", type=int, default=500, help="pairs of each source, drawn by the seed")
    parser.add_argument("--steps", type=int, default=125)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 in training and probes")
    parser.add_argument("--train_embeddings", action="store_true", help="train the word embeddings too")
    parser.add_argument("--use_cpu", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("runs/against_sentence_transformers"))
    parser.add_argument("--only", nargs=2, metavar=("SYSTEM", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    given.probe = given.probe or [pos]
    given.use_cpu |= not torch.cuda.is_available()
    setup = {name: value for name, value in vars(given).items() if name not in ("systems", "seeds", "output", "only")}
    # A fault in the text that scores is found before a system is trained.
    load_parallel(given.sentences or given.eval, split="test")
    read_probes([word for words in given.probe for word in words], given.examples)
    kept = {}
    for seed in [int(given.only[1])] if given.only else given.seeds:
        for system in given.only[:1] if given.only else given.systems:
            path = given.output / f"{system}-{seed}.json"
            found = open_runs(path, setup)
            if given.only:
                found["runs"] = [measure(given, system, seed)]
                path.parent.mkdir(parents=True, exist_ok=True)
                write_runs(path, found)
            elif not found["runs"]:
                words = sys.argv[1:] if argv is None else argv
                subprocess.run([sys.executable, __file__, *words, "--only", system, str(seed)], check=True)
                found = open_runs(path, setup)
            kept[system, seed] = found["runs"][0]
    if not given.only:
        print(report(list(kept.values())))


if __name__ == "__main__":
    main()
