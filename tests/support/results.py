"""Result folders of fine-tuned systems, and a grid of word distances, written by hand."""

import json

import numpy as np

from hf_xalign.statistics.examples import ExampleScores

LENGTHS = {"de": 80, "hi": 50}


def write_run(folder, seed, examples, *, task="pos", metric="token_f1", train_language="en"):
    languages = {}
    for code, scores in examples.items():
        scores.save(folder / f"seed-{seed}" / "examples" / f"{code}.json")
        languages[code] = {"score": scores.score(), "examples": len(scores)}
    record = {"task": task, "metric": metric, "seed": seed, "train_language": train_language}
    record |= {"languages": languages, "settings": {}}
    (folder / f"seed-{seed}" / "scores.json").write_text(json.dumps(record))


def edit_run(folder, seed=1, **changes):
    path = folder / f"seed-{seed}" / "scores.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def tagged(rng, length, chance):
    """A tagger's scores of sentences whose lengths depend on their number alone."""
    gold = np.random.default_rng(length).integers(2, 12, length)
    return ExampleScores.from_counts(rng.binomial(gold, chance), gold, gold)


def write_system(folder, chances, seeds=(0, 1, 2), kind=tagged, **fields):
    rng = np.random.default_rng(sum(map(ord, folder.name)))
    for seed in seeds:
        write_run(folder, seed, {c: kind(rng, LENGTHS[c], chance) for c, chance in chances.items()}, **fields)
    return folder


def write_three(folder):
    chances = {"raw": (0.8, 0.5), "fao_1%": (0.9, 0.5), "worse": (0.8, 0.3)}
    return [write_system(folder / name, dict(zip(("de", "hi"), both))) for name, both in chances.items()]


def make_grid(stages=("base", "tuned"), languages=("de",)):
    linked, random = ({"mean": 0.4, "sd": 0.1, "median": 0.4, "counts": counts} for counts in ([7, 2, 1], [1, 4, 5]))
    shared = {"layer": -1, "pairs": 10, "edges": [0.0, 0.5, 1.0, 1.5]}
    cells = [
        {"stage": stage, "language": language, "measure": measure, "auc": 0.9 - 0.1 * n, **shared}
        | {"linked": linked, "random": random}
        for n, stage in enumerate(stages)
        for language in languages
        for measure in ("l2", "cosine")
    ]
    named = {stage: f"runs/{stage}" for stage in stages}
    return {"stages": named, "languages": [*languages], "layers": [-1], "measures": ["l2", "cosine"], "cells": cells}
