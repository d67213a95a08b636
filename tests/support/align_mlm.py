"""A small run of ALIGN-MLM; as a script, the same in a process of its own: by `accelerate launch`, or to be killed.

    python -m support.align_mlm OUTPUT_DIR '{"name": {"objective": "align_mlm", ...}, ...}' [--resume]
        [--kill_after STEP]

Each process leaves `entries-RANK.safetensors` too, the entries that it had.
"""

from __future__ import annotations

import numpy as np
import torch
from safetensors.torch import save_file

from hf_xalign.data.entries import TokenEntries
from hf_xalign.data.pretraining import encode_pretraining
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.trainers.align_mlm import AlignMLMTrainer
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig
from support.launch import be_script, numbers, tensors
from support.ppa import make_pairs
from support.tiny import SENTENCES, make_encoder, make_tokenizer

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
    return numbers(trainer, "loss", "loss/mlm", "loss/align", "grad_norm"), tensors(trainer.model)


def make_run(folder, given, **settings):
    return make(folder, make_encoder(dropout=given.dropout), callbacks=given.callbacks, **settings)


def keep_entries(trainer, folder) -> None:
    if trainer.entries is not None:
        found = {"entries": torch.from_numpy(trainer.entries.ids)}
        save_file(found, folder / f"entries-{trainer.args.process_index}.safetensors")


if __name__ == "__main__":
    be_script(make_run, outcome, keep=keep_entries)
