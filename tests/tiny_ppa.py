"""A small run of PPA, and as a script the same in a process of its own: under `accelerate launch`, or to be killed.

    python tiny_ppa.py OUTPUT_DIR '{"name": {"contrast": "moco", ...}, ...}' [--resume] [--kill_after STEP]

Each of the named runs goes into a folder of its name in OUTPUT_DIR, with `history.json` (the log), `final.safetensors`
(the encoder with its heads) and, for each process, `momentum-RANK.safetensors` (the momentum encoder and the queue).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny import SENTENCES, make_encoder, make_tokenizer
from tiny_launch import KillAfter, leave_processes

from hf_xalign.modeling.momentum import save_momentum
from hf_xalign.trainers.ppa import PPATrainer
from hf_xalign.trainers.ppa_config import PPAConfig

# Plain SGD: Adam divides a gradient that is pure rounding by its own size.
STEADY = {
    "optim": "sgd",
    "learning_rate": 0.02,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0.0,
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
    "train_sampling_strategy": "sequential",
}
SMALL = {
    "use_cpu": True,
    "disable_tqdm": True,
    "logging_steps": 1,
    "save_strategy": "no",
    "per_device_train_batch_size": 4,
    "num_train_epochs": 1,
    "queue_size": 10,
    "projection_dim": 6,
    "head_learning_rate": 0.01,
    "momentum": 0.9,
    "min_tokens": 2,
    "max_tokens": 60,
    "mlm_probability": 0.3,
}


def make_pairs(count=16):
    """Pairs that all differ, four of one language and four of another in turn."""
    from datasets import Dataset

    rows = [SENTENCES[k % len(SENTENCES)] for k in range(count)]
    return Dataset.from_dict(
        {
            "source": [f"{source} {k}" for k, (source, _, _) in enumerate(rows)],
            "target": [f"{target} {k}" for k, (_, target, _) in enumerate(rows)],
            "source_lang": [["de", "nl"][k // 4 % 2] for k in range(count)],
            "target_lang": ["en"] * count,
        }
    )


def make(folder, model=None, data=None, tokenizer=None, callbacks=None, trainer_class=PPATrainer, **settings):
    return trainer_class(
        make_encoder() if model is None else model,
        PPAConfig(output_dir=str(folder), **{**SMALL, **settings}),
        train_dataset=make_pairs() if data is None else data,
        eval_dataset=make_pairs(8),
        processing_class=make_tokenizer() if tokenizer is None else tokenizer,
        callbacks=callbacks,
    )


def train(folder, *args, **settings):
    trainer = make(folder, *args, **settings)
    trainer.train()
    return trainer


def tensors(module):
    """Every weight and buffer, copied."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def outcome(trainer):
    """The numbers of the log, float64 (steps, terms), and the weights of all that a step changes."""
    names = ("loss", "loss/contrast", "loss/tlm", "loss/mlm", "grad_norm")
    found = tensors(trainer.model)
    if trainer.queue is not None:
        found |= {f"momentum.{name}": tensor for name, tensor in tensors(trainer.momentum).items()}
        found |= {f"queue.{name}": tensor for name, tensor in tensors(trainer.queue).items()}
    rows = [[row[name] for name in names if name in row] for row in trainer.state.log_history if "loss" in row]
    return torch.tensor(rows, dtype=torch.float64), found


def run(folder, settings, given) -> None:
    trainer = make(
        folder,
        model=make_encoder(dropout=given.dropout),
        data=make_pairs(given.pairs),
        callbacks=[KillAfter(given.kill_after)] if given.kill_after else None,
        **settings,
    )
    trainer.train(resume_from_checkpoint=given.resume or None)
    rank = trainer.args.process_index
    if trainer.queue is not None:
        save_momentum(folder / f"momentum-{rank}.safetensors", trainer.momentum, trainer.queue)
    log, weights = outcome(trainer)
    if rank == 0:
        (folder / "world_size").write_text(str(trainer.args.world_size))
        save_file({**weights, "log": log}, folder / "final.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("runs", type=json.loads)
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--kill_after", type=int, default=0)
    given = parser.parse_args()
    for name, settings in given.runs.items():
        run(given.output_dir / name, settings, given)
    leave_processes()


if __name__ == "__main__":
    main()
