"""A small run of PPA, and as a script the same in a process of its own: under `accelerate launch`, or to be killed.

    python -m support.ppa OUTPUT_DIR '{"name": {"contrast": "moco", ...}, ...}' [--resume] [--kill_after STEP]

Each process leaves `momentum-RANK.safetensors` too, the momentum encoder and the queue.
"""

from __future__ import annotations

from hf_xalign.modeling.momentum import save_momentum
from hf_xalign.trainers.ppa import PPATrainer
from hf_xalign.trainers.ppa_config import PPAConfig
from support.launch import be_script, numbers, tensors
from support.tiny import SENTENCES, make_encoder, make_tokenizer

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


def outcome(trainer):
    """The numbers of the log, float64 (steps, terms), and the weights of all that a step changes."""
    found = tensors(trainer.model)
    if trainer.queue is not None:
        found |= {f"momentum.{name}": tensor for name, tensor in tensors(trainer.momentum).items()}
        found |= {f"queue.{name}": tensor for name, tensor in tensors(trainer.queue).items()}
    return numbers(trainer, "loss", "loss/contrast", "loss/tlm", "loss/mlm", "grad_norm"), found


def make_run(folder, given, **settings):
    data = make_pairs(given.pairs)
    return make(folder, make_encoder(dropout=given.dropout), data=data, callbacks=given.callbacks, **settings)


def keep_momentum(trainer, folder) -> None:
    if trainer.queue is not None:
        save_momentum(folder / f"momentum-{trainer.args.process_index}.safetensors", trainer.momentum, trainer.queue)


if __name__ == "__main__":
    be_script(make_run, outcome, keep=keep_momentum, pairs=16)
