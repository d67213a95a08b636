"""Small run of each trainer, in this process or as a script: divided between processes, killed, resumed.

    python -m support.runs OUTPUT_DIR '{"name": {"trainer": "ppa", "contrast": "in_batch", ...}, ...}'
        [--exact] [--shard] [--resume] [--kill_after STEP]

Each run goes into a folder of its name. Process R leaves its outcome in `rank-R.safetensors`.
"""

import argparse
import contextlib
import gc
import json
import os
import signal
from pathlib import Path
from unittest import mock

import torch
from accelerate.state import AcceleratorState, DistributedType, PartialState
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from support import align_mlm, continual, fao, mao, ppa
from support.launch import outcome, trained
from support.tiny import make_encoder, make_links


def two_languages(count):
    """Pairs of two languages, four of one and four of the other: a batch of four has one of them only."""
    return make_links(count, ["de"] * 4 + ["nl"] * 4)


def shards_on_cpus():
    """Let accelerate shard over processes that have no GPU: it takes FSDP for processes with one alone."""
    original = AcceleratorState.__init__

    def init(state, *args, **kwargs):
        if PartialState().distributed_type == DistributedType.MULTI_CPU:
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        original(state, *args, **kwargs)

    return mock.patch.object(AcceleratorState, "__init__", init)


TRAINERS = ("fao", "mao", "align_mlm", "continual", "ppa", "task", "tagger")


@contextlib.contextmanager
def exact():
    """Compute everything in float64, also what is float32 on purpose: the CPU's rounding is then no difference."""

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


def make(
    folder, trainer, *, task="tokens", seed=0, dropout=0.0, count=16, callbacks=None, lora=False, types=2, **settings
):
    """Make a trainer of [`TRAINERS`] with `count` rows; `seed` and `dropout` are the encoder's, or the tagger's.

    With `page`, FAO has the objective of docs/develop/add-objective.md. With `lora`, FAO and PPA train adapters;
    `types` are the kinds of tokens of FAO's encoder.
    """
    settings["callbacks"] = callbacks
    encoder = {"seed": seed, "dropout": dropout}
    if trainer == "fao":
        if settings.pop("page", False):
            settings |= {"preset": "joint", "terms": fao.page_terms()}
        else:
            settings = {"objective": "l2", "regularizer_weight": 1.0, **settings}
        model = fao.lora(dropout, layers=4) if lora else make_encoder(layers=4, types=types, **encoder)
        made = fao.make(folder, model, two_languages(count), **{"learning_rate": 0.01, **settings})
    elif trainer == "mao":
        made = mao.make(folder, make_encoder(layers=4, **encoder), data=two_languages(count), **settings)
    elif trainer == "align_mlm":
        rows = align_mlm.make_rows(count, pairs=settings.get("objective") == "xlm")
        made = align_mlm.make(folder, make_encoder(**encoder), data=rows, **settings)
    elif trainer == "ppa":
        model = fao.lora(dropout) if lora else make_encoder(**encoder)
        made = ppa.make(folder, model, data=ppa.make_pairs(count), **settings)
    elif trainer == "tagger":
        made = continual.make_tagger(folder, count=count, **encoder, **settings)
    else:
        task = continual.TASKS[task]
        make_trainer = continual.make if trainer == "continual" else continual.make_task
        made = make_trainer(folder, continual.make_model(task, **encoder), task=task, count=count, **settings)
    if torch.get_default_dtype() == torch.float64:
        made.model.double()
    return made


def train(folder, trainer, **settings):
    return trained(make(folder, trainer, **settings))


def sharded(trainer):
    """Return whether every weight is sharded: of the encoder, of its frozen copy and of the momentum encoder."""
    modules = [trainer.model, getattr(trainer, "reference", None), getattr(trainer, "momentum", None)]
    states = [module.state_dict() for module in modules if module is not None]
    names = {name for name, _ in trainer.model.named_buffers()}
    return all(isinstance(t, DTensor) for state in states for name, t in state.items() if name not in names)


class _KillAfter(TrainerCallback):
    """Die as by `kill -9` at the end of a step."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def _let_go() -> None:
    """Free a trainer that nothing holds any more while no process talks to another.

    DistributedDataParallel's reference to gloo's group, released under the interpreter's lock, waits for threads of
    gloo's that may wait for that lock: where the garbage was collected in the midst of the next run, it hung.
    """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("runs", type=json.loads)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--shard", action="store_true")
    parser.add_argument("--kill_after", type=int, default=0)
    given = parser.parse_args()
    gc.freeze()  # accelerate collects the garbage of the whole process before each run
    with contextlib.ExitStack() as stack:
        if given.exact:
            stack.enter_context(exact())
        if given.shard:
            stack.enter_context(shards_on_cpus())
        for name, settings in given.runs.items():
            try:
                folder = given.output_dir / name
                trainer = make(folder, callbacks=[_KillAfter(given.kill_after)], **settings)
                trainer.train(resume_from_checkpoint=given.resume or None)
                log, found = outcome(trainer)
                found |= {"log": log, "world_size": torch.tensor(trainer.args.world_size)}
                if given.shard:
                    found["sharded"] = torch.tensor(sharded(trainer))
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
