"""Settings that every alignment trainer has, with presets of published values."""

from __future__ import annotations

import difflib
import importlib.util
import logging
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import torch
from transformers import SchedulerType, TrainingArguments

from hf_xalign.config import non_default_fields
from hf_xalign.data.batches.sampling import LanguageSampling
from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.environment import cpu_has_bfloat16
from hf_xalign.errors import InputError
from hf_xalign.record import to_plain

logger = logging.getLogger(__name__)

# Smallest value of a number that transformers does not check.
_LEAST = {
    "learning_rate": 0,
    "weight_decay": 0,
    "max_grad_norm": 0,
    "num_train_epochs": 0,
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "max_length": 3,
}
# Trackers that the tests cover, and what to install for each.
_TRACKERS = {"wandb": '"hf_xalign[wandb]"', "tensorboard": "tensorboard", "trackio": "trackio"}
# `TrainingArguments` sets these from eval_strategy and use_cpu.
_DERIVED = {"do_eval", "dataloader_pin_memory"}


def by_preset(group: str, help: str) -> Any:
    """Field that takes the preset's value when left at None; its type is that of the finished config."""
    return field(default=None, metadata={"help": f"{help} Default: by preset.", "group": group})


def own(default: Any, group: str, help: str) -> Any:
    """Field with its own default."""
    return field(default=default, metadata={"help": help, "group": group})


@dataclass
class AlignmentConfig(TrainingArguments):
    """Settings that every alignment trainer has, in addition to [`~transformers.TrainingArguments`].

    A method subclasses it, lists its published variants in `PRESETS` and gives `preset` a default. Fields left at None
    take the preset's value. If `eval_strategy` is set, evaluation also runs before the first and after the last step.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}
    # The score that every evaluation returns and that selects the best checkpoint.
    headline: ClassVar[str] = "eval_retrieval"

    output_dir: str = own(
        "trainer_output", "Run", "Folder of the run. Training into a folder that holds a run is refused."
    )
    overwrite_output_dir: bool = own(
        False, "Run", "Train into a folder that holds another run, and delete that run's checkpoints."
    )
    early_stopping_patience: int | None = own(
        None,
        "Run",
        "Stop after this many evaluations without a better score, and restore the best checkpoint. eval_strategy and "
        "save_strategy must be equal.",
    )
    resume_from_checkpoint: bool | str | None = own(  # type: ignore[assignment]
        None, "Run", "true: resume from the last complete checkpoint of output_dir. Or the path of a checkpoint."
    )
    ddp_timeout: int = own(
        86_400, "Run", "Seconds that processes wait for each other while one aligns words, fills a cache or scores."
    )
    eval_pooling: Pooling = own(
        "mean", "Run", "Subword pooling of the retrieval score during training: first, last or mean."
    )
    language_sampling: LanguageSampling = own(
        "proportional", "Run", "proportional: by each language's share of the rows. each: equal numbers in every step."
    )
    logging_steps: float = own(10, "Run", "Log every this many steps.")
    train_sampling_strategy: Literal["group_by_length", "random", "sequential"] = own(
        "group_by_length", "Run", "Order of the rows: group_by_length, random or sequential."
    )
    remove_unused_columns: bool = own(False, "Run", "Must stay false: the collator needs every column.")
    ddp_find_unused_parameters: bool | None = own(
        False, "Run", "Search for unused parameters; every trained parameter takes part in every step."
    )
    logging_nan_inf_filter: bool = own(
        False, "Run", "Hide non-finite losses in the log; by default they stop the run."
    )
    preset: str = own("", "Objective", "Published variant.")
    learning_rate: float = by_preset("Schedule", "Peak learning rate.")
    num_train_epochs: float = by_preset("Schedule", "Number of epochs.")
    per_device_train_batch_size: int = by_preset("Schedule", "Rows per device and micro-batch.")
    lr_scheduler_type: SchedulerType | str = by_preset("Schedule", "Learning rate schedule.")
    warmup_steps: float = by_preset("Schedule", "Warm-up steps; a value below 1 is a share of the run.")
    adam_beta1: float = by_preset("Schedule", "Adam's beta1.")
    adam_beta2: float = by_preset("Schedule", "Adam's beta2.")
    adam_epsilon: float = by_preset("Schedule", "Adam's epsilon.")
    weight_decay: float = by_preset("Schedule", "Decoupled weight decay.")
    max_grad_norm: float = by_preset("Schedule", "Clip the gradient to this norm; 0 turns clipping off.")

    def __post_init__(self) -> None:
        if self.preset not in self.PRESETS:
            near = difflib.get_close_matches(self.preset, self.PRESETS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(self.PRESETS)}"
            raise InputError(f"preset={self.preset}: {hint}")
        self.fill_from_preset()
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name, None)
            if get_origin(hint) is Literal and value not in get_args(hint):
                raise InputError(f"{name}={value}: choose one of {', '.join(get_args(hint))}")
        for name, least in _LEAST.items():
            value = getattr(self, name, None)
            if isinstance(value, int | float) and not least <= value < math.inf:
                raise InputError(f"{name}={value}: it must be a finite number, at least {least}")
        self.check_settings()
        if self.early_stopping_patience is not None:
            self.load_best_model_at_end = True
            self.metric_for_best_model = self.metric_for_best_model or self.headline
        if self.bf16 and (self.use_cpu or not torch.accelerator.is_available()) and not cpu_has_bfloat16():
            logger.warning("bf16=true: this CPU has no bfloat16 instructions and would be far slower; using float32")
            self.bf16 = False
        super().__post_init__()
        for tracker, package in _TRACKERS.items():
            modules = (tracker, "tensorboardX") if tracker == "tensorboard" else (tracker,)
            if tracker in (self.report_to or []) and not any(map(importlib.util.find_spec, modules)):
                raise InputError(f"report_to={tracker}: {tracker} is not installed: pip install {package}")

    def fill_from_preset(self) -> None:
        """Give every field at None the preset's value."""
        for name, value in self.PRESETS[self.preset].items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def check_settings(self) -> None:
        """Refuse values, or combinations of values, that cannot be trained; the preset is already filled in.

        Raises:
            InputError: names the field and how to fix it.
        """

    def refuse_unused(self, reason: str, *names: str) -> None:
        """Refuse changed settings that the run would not read.

        Raises:
            InputError: names the first such field, with the reason.
        """
        given = self.changed()
        if unused := [name for name in names if name in given]:
            raise InputError(f"{unused[0]}={given[unused[0]]}: {reason}")

    def preset_values(self) -> dict[str, Any]:
        """Return the preset's settings as plain JSON."""
        return {name: to_plain(value) for name, value in self.PRESETS[self.preset].items()}

    def changed(self) -> dict[str, Any]:
        """Return the settings that differ from preset and defaults, as plain JSON and without credentials."""
        preset = self.preset_values()
        found = non_default_fields(self).items()
        return {k: v for k, v in found if k not in _DERIVED and (k not in preset or preset[k] != v)}
