"""Settings that every alignment trainer has."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from transformers import TrainingArguments

from hf_xalign.data.batches.sampling import LanguageSampling
from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.environment import cpu_has_bfloat16
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

# The trackers that are tested, and what to install.
_TRACKERS = {"wandb": '"hf_xalign[wandb]"', "tensorboard": "tensorboard", "trackio": "trackio"}


@dataclass
class AlignmentConfig(TrainingArguments):
    """Settings that every alignment trainer has; the rest is [`~transformers.TrainingArguments`].

    These defaults differ from `TrainingArguments`: `logging_steps`, `train_sampling_strategy`, `ddp_timeout`,
    `remove_unused_columns`, `ddp_find_unused_parameters`, `logging_nan_inf_filter`. With an `eval_strategy`, the score
    is also taken before the first step and after the last.
    """

    # The score that every evaluation has, and that the best checkpoint is chosen by.
    headline: ClassVar[str] = "eval_retrieval"

    output_dir: str = field(
        default="trainer_output",
        metadata={"help": "Folder of the run; one that holds a run is refused.", "group": "Run"},
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={"help": "Train into a folder that holds another run; its checkpoints are deleted.", "group": "Run"},
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={
            "help": "Stop after this many evaluations without a better retrieval score, and restore the best "
            "checkpoint. Needs eval_strategy and save_strategy to agree.",
            "group": "Run",
        },
    )
    resume_from_checkpoint: bool | str | None = field(  # type: ignore[assignment]
        default=None,
        metadata={
            "help": "true: go on from the last whole checkpoint of output_dir; or a checkpoint.",
            "group": "Run",
        },
    )
    ddp_timeout: int = field(
        default=86_400,
        metadata={
            "help": "Seconds that processes wait for each other: the first links, caches and scores.",
            "group": "Run",
        },
    )
    eval_pooling: Pooling = field(
        default="mean",
        metadata={
            "help": "Subword pooling of the retrieval score during training: first, last or mean.",
            "group": "Run",
        },
    )
    language_sampling: LanguageSampling = field(
        default="proportional",
        metadata={"help": "Languages by their share of the rows, or in equal numbers in each step.", "group": "Run"},
    )
    logging_steps: float = field(default=10, metadata={"help": "Log every so many steps.", "group": "Run"})
    train_sampling_strategy: str = field(
        default="group_by_length",
        metadata={"help": "Order of the rows: group_by_length, random or sequential.", "group": "Run"},
    )
    remove_unused_columns: bool = field(
        default=False, metadata={"help": "Must stay false: the collator needs every column.", "group": "Run"}
    )
    ddp_find_unused_parameters: bool | None = field(
        default=False,
        metadata={
            "help": "Every trained parameter takes part in every step, so there is nothing to find.",
            "group": "Run",
        },
    )
    logging_nan_inf_filter: bool = field(
        default=False,
        metadata={"help": "Off: a loss that is not finite stops the run instead of being hidden.", "group": "Run"},
    )

    def __post_init__(self) -> None:
        if self.train_sampling_strategy not in ("group_by_length", "random", "sequential"):
            raise InputError(
                f"train_sampling_strategy={self.train_sampling_strategy}: choose group_by_length, random or sequential"
            )
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
