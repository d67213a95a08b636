"""A small run of ALIGN-MLM; as a script, the same in a process of its own: by `accelerate launch`, or to be killed.

    python tiny_align_mlm.py OUTPUT_DIR '{"name": {"objective": "align_mlm", ...}, ...}' [--resume] [--kill_after STEP]

Each of the named runs goes into a folder of its name in OUTPUT_DIR, with `final.safetensors` (the encoder with its
head, the numbers of the log, and for each process the entries that it had).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tiny import SENTENCES, make_encoder, make_tokenizer
from tiny_launch import KillAfter, leave_processes
from tiny_ppa import STEADY, make_pairs

from hf_xalign.data.entries import TokenEntries
from hf_xalign.data.pretraining import encode_pretraining
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.trainers.align_mlm import AlignMLMTrainer
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig

__all__ = ["STEADY"]

OBJECTIVES = ("mlm", "xlm", "dict_mlm", "align_mlm")
SMALL = {
    "use_cpu": True,
    "disable_tqdm": True,
    "logging_steps": 1,
    "save_strategy": "no",
    "per_device_train_batch_size": 4,
    "num_train_epochs": 1,
    "mlm_probability": 0.3,
}


def make_rows(count=16, pairs=False, block_size=24):
    """Rows of two languages, and of pairs of both."""
    from datasets import Dataset

    text = [SENTENCES[k % len(SENTENCES)] for k in range(4 * count)]
    corpora = {
        "en": Dataset.from_dict({"text": [f"{english} {k}" for k, (_, english, _) in enumerate(text)]}),
        "de": Dataset.from_dict({"text": [f"{german} {k}" for k, (german, _, _) in enumerate(text)]}),
    }
    rows = encode_pretraining(
        corpora,
        make_tokenizer(),
        make_encoder().config,
        block_size=block_size,
        pairs=make_pairs(16) if pairs else None,
    ).dataset
    return rows.select(np.linspace(0, len(rows) - 1, count, dtype=int))


def make_entries(seed=0):
    """A dictionary of tokens that the rows have, some of them in two entries."""
    ids = np.array([[10, 40], [12, 41], [12, 42], [97, 98], [20, 60], [22, 61], [24, 40]])
    return TokenEntries.from_counterparts(ids, share=6 / 7, seed=seed)


def make(folder, model=None, data=None, entries=None, callbacks=None, objective="align_mlm", **settings):
    args = AlignMLMConfig(output_dir=str(folder), objective=objective, **{**SMALL, **settings})
    model = make_encoder() if model is None else model
    if args.has_language_embeddings:
        add_language_embeddings(model, ["en", "de", "nl"])
    if args.needs_entries and entries is None:
        entries = make_entries()
    return AlignMLMTrainer(
        model,
        args,
        train_dataset=make_rows(pairs=objective == "xlm") if data is None else data,
        entries=entries,
        eval_dataset=make_rows(6, pairs=objective == "xlm"),
        test_entries=np.array([[10, 40], [12, 41], [50, 51]]),
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def train(folder, *args, **settings):
    trainer = make(folder, *args, **settings)
    trainer.train()
    return trainer


def outcome(trainer):
    """The numbers of the log, float64 (steps, terms), and the weights."""
    names = ("loss", "loss/mlm", "loss/align", "grad_norm")
    rows = [[row[name] for name in names if name in row] for row in trainer.state.log_history if "loss" in row]
    weights = {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}
    return torch.tensor(rows, dtype=torch.float64), weights


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("runs", type=json.loads)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--kill_after", type=int, default=0)
    given = parser.parse_args()
    for name, settings in given.runs.items():
        folder = given.output_dir / name
        trainer = make(
            folder,
            make_encoder(dropout=given.dropout),
            callbacks=[KillAfter(given.kill_after)] if given.kill_after else None,
            **settings,
        )
        trainer.train(resume_from_checkpoint=given.resume or None)
        log, weights = outcome(trainer)
        rank = trainer.args.process_index
        if trainer.entries is not None:
            save_file({"entries": torch.from_numpy(trainer.entries.ids)}, folder / f"entries-{rank}.safetensors")
        if rank == 0:
            (folder / "world_size").write_text(str(trainer.args.world_size))
            save_file({**weights, "log": log}, folder / "final.safetensors")
    leave_processes()


if __name__ == "__main__":
    main()
