"""Time a step of FAO at a middle layer, with and without the layers above it.

    python benchmarks/fao_depth.py --layer 8          # two minutes on one core

The settings are those of recipes/configs/fao_builtin.yaml with cached reference vectors, in float32. Each batch takes
a step both ways, and both must give the same loss. Prints the median ratio of CPU times.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from itertools import islice
from statistics import median
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from transformers import AutoTokenizer

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.load import load_parallel
from hf_xalign.links import align_words
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.trainers import FAOConfig, FAOTrainer


def main() -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layer", type=int, default=8)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_flush_denormal(True)
    path, pairs = resolve_model("builtin"), load_parallel(["builtin:de"], max_pairs=400)
    settings = {"preset": "mao", "freeze_embeddings": True, "dropout": False, "reference": "cache"}
    args = FAOConfig(tempfile.mkdtemp(), layers=[given.layer], use_cpu=True, report_to="none", **settings)
    tokenizer = AutoTokenizer.from_pretrained(path)
    trainer = FAOTrainer(load_trainable(path), args, train_dataset=align_words(pairs), processing_class=tokenizer)
    ratios = []
    for batch in [*islice(trainer.get_train_dataloader(), given.batches)] * given.repeats:
        whole = step(
            trainer,
            batch,
            mock.patch("hf_xalign.trainers.base.word.stopped_at", lambda *_: contextlib.nullcontext()),
        )
        fewer = step(trainer, batch, contextlib.nullcontext())
        if abs(whole[1] - fewer[1]) > 1e-5 * abs(whole[1]):
            raise RuntimeError(f"the losses differ: {whole[1]} and {fewer[1]}")
        ratios.append(fewer[0] / whole[0])
    print(f"layer {given.layer}: {median(ratios):.2f} of the time with all layers, median of {len(ratios)} steps")


def step(trainer: FAOTrainer, batch: dict[str, torch.Tensor], how: contextlib.AbstractContextManager) -> tuple:
    """Return CPU seconds and loss of a forward and a backward pass."""
    trainer.model.zero_grad()
    start = time.process_time()
    with how:
        loss = trainer.training_step(trainer.model, dict(batch), num_items_in_batch=None)
    return time.process_time() - start, loss.item()


if __name__ == "__main__":
    main()
