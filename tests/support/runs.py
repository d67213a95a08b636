"""Small run of each trainer, in this process or as a script: divided between processes, killed, resumed.

    python -m support.runs OUTPUT_DIR '{"name": {"trainer": "ppa", "contrast": "in_batch", ...}, ...}'
        [--exact] [--resume] [--kill_after STEP] [--kill_in_save STEP]

Each run goes into a folder of its name. Process R leaves its outcome in `rank-R.safetensors`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import signal
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import save_file
from transformers import TrainerCallback

from hf_xalign.trainers import FAOConfig, FAOTrainer
from support import align_mlm, continual, mao, ppa
from support.launch import SMALL, outcome
from support.tiny import make_encoder, make_links, make_tokenizer


def two_languages(count):
    """Pairs of two languages, four of one and four of the other: a batch of four has one of them only."""
    return make_links(count).map(lambda row, k: {"source_lang": ["de", "nl"][k // 4 % 2]}, with_indices=True)


def _fao(folder, encoder, count, callbacks, **settings):
    return FAOTrainer(
        make_encoder(layers=4, **encoder),
        FAOConfig(output_dir=str(folder), **{**SMALL, "objective": "l2", "regularizer_weight": 1.0, **settings}),
        train_dataset=two_languages(count),
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def _mao(folder, encoder, count, callbacks, **settings):
    model = make_encoder(layers=4, **encoder)
    return mao.make(folder, model, data=two_languages(count), callbacks=callbacks, **settings)


def _align_mlm(folder, encoder, count, callbacks, **settings):
    data = align_mlm.make_rows(count, pairs=settings.get("objective") == "xlm")
    return align_mlm.make(folder, make_encoder(**encoder), data=data, callbacks=callbacks, **settings)


def _ppa(folder, encoder, count, callbacks, **settings):
    data = ppa.make_pairs(count)
    return ppa.make(folder, make_encoder(**encoder), data=data, callbacks=callbacks, **settings)


def _continual(folder, encoder, count, callbacks, task="tokens", pairs=7, **settings):
    task = continual.TASKS[task]
    model = continual.make_model(task, **encoder)
    pairs = make_links(pairs)
    return continual.make(folder, model, task=task, count=count, pairs=pairs, callbacks=callbacks, **settings)


def _task(folder, encoder, count, callbacks, task="tokens", **settings):
    task = continual.TASKS[task]
    model = continual.make_model(task, **encoder)
    return continual.make_task(folder, model, task=task, count=count, callbacks=callbacks, **settings)


def _tagger(folder, encoder, count, callbacks, **settings):
    return continual.make_tagger(folder, count=count, callbacks=callbacks, **encoder, **settings)


TRAINERS = {
    "fao": _fao,
    "mao": _mao,
    "align_mlm": _align_mlm,
    "continual": _continual,
    "ppa": _ppa,
    "task": _task,
    "tagger": _tagger,
}


@contextlib.contextmanager
def exact():
    """Compute everything in float64, also what the product computes in float32 on purpose.

    So a comparison of two runs sees what the steps are divided by, and not which CPU rounded them.
    """

    def cross_entropy(vectors, embeddings, bias, labels):
        return torch.nn.functional.cross_entropy(vectors @ embeddings.T + bias, labels, reduction="sum")

    torch.set_default_dtype(torch.float64)
    try:
        with (
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
            mock.patch("hf_xalign.modeling.mlm_head.tied_cross_entropy", cross_entropy),
        ):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def make(folder, trainer, *, seed=0, dropout=0.0, count=16, callbacks=None, **settings):
    """Make a trainer of [`TRAINERS`]; within [`exact`] in float64."""
    made = TRAINERS[trainer](folder, {"seed": seed, "dropout": dropout}, count, callbacks, **settings)
    if torch.get_default_dtype() == torch.float64:
        made.model.double()
    return made


def train(folder, trainer, **settings):
    """Make a trainer and train it."""
    made = make(folder, trainer, **settings)
    made.train()
    return made


class _KillAfter(TrainerCallback):
    """Die as by `kill -9` at the end of a step."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def _kill_in_save(trainer, step: int) -> None:
    """Die when half of a checkpoint's files are written."""
    original = trainer._save_rng_state

    def save_rng_state(output_dir):
        if trainer.state.global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        original(output_dir)

    trainer._save_rng_state = save_rng_state


def _let_go() -> None:
    """Free a trainer that nothing holds any more while no process talks to another.

    DistributedDataParallel's reference to gloo's group, released under the interpreter's lock, waits for threads of
    gloo's that may wait for that lock: where the garbage was collected in the midst of the next run, it hung.
    """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        gc.collect()


def main() -> None:
    """Train each run of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("runs", type=json.loads)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--kill_after", type=int, default=0)
    parser.add_argument("--kill_in_save", type=int, default=0)
    given = parser.parse_args()
    gc.freeze()  # accelerate collects the garbage of the whole process before each run
    with exact() if given.exact else contextlib.nullcontext():
        for name, settings in given.runs.items():
            try:
                folder = given.output_dir / name
                trainer = make(folder, callbacks=[_KillAfter(given.kill_after)], **settings)
                _kill_in_save(trainer, given.kill_in_save)
                trainer.train(resume_from_checkpoint=given.resume or None)
                log, found = outcome(trainer)
                found |= {"log": log, "world_size": torch.tensor(trainer.args.world_size)}
                found = {key: tensor.contiguous() for key, tensor in found.items()}
                save_file(found, folder / f"rank-{trainer.args.process_index}.safetensors")
                del trainer
            except Exception as error:
                raise RuntimeError(f"run {name!r} failed") from error
            _let_go()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
