"""A small run of the tagger; as a script, the same in a process of its own: by `accelerate launch`, or to be killed.

python -m support.tagging OUTPUT_DIR '{"name": {"learning_rate": 0.1, ...}, ...}' --base FOLDER [--resume] [...]
"""

from __future__ import annotations

from hf_xalign.tasks import TaggingTask, load_tagger
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig
from support.continual import LABELS, examples
from support.launch import be_script, numbers, tensors
from support.tiny import make_tokenizer

SMALL = {
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "logging_steps": 1,
    "per_device_train_batch_size": 4,
    "num_train_epochs": 1,
}


def make(folder, base, *, dropout=0.0, keep_vectors=True, callbacks=None, **settings):
    task = TaggingTask(LABELS, keep_vectors=keep_vectors)
    return TaskTrainer(
        load_tagger(str(base), task, seed=1, lstm_size=6, dropout=dropout),
        TaskConfig(output_dir=str(folder), head="tagger", **{**SMALL, **settings}),
        task=task,
        train_dataset=[examples()],
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def train(folder, *args, **settings):
    trainer = make(folder, *args, **settings)
    trainer.train()
    return trainer


def outcome(trainer):
    """The numbers of the log, float64 (steps, terms), and the weights."""
    return numbers(trainer, "loss", "grad_norm"), tensors(trainer.model)


def make_run(folder, given, **settings):
    return make(folder, given.base, dropout=given.dropout, callbacks=given.callbacks, **settings)


if __name__ == "__main__":
    be_script(make_run, outcome, base="")
