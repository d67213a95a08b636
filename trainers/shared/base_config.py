"""Settings that every alignment trainer has, with presets of published values."""

from __future__ import annotations

import importlib.util
import json
import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, SchedulerType
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_utils import SaveStrategy
from transformers.training_args import TrainingArguments

from hf_xalign.checks import GIVEN, SettingError, check, check_choice, excludes, needs, setting, show
from hf_xalign.config import non_default_fields
from hf_xalign.data.batches.sampling import LanguageSampling
from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.data.encoding import check_embeddings
from hf_xalign.errors import InputError
from hf_xalign.record import mask_secrets, portable, to_plain
from hf_xalign.trainers.shared.inherited import BY_SCORE, CHECKS, SCORED, check_resolved, check_settings

logger = logging.getLogger(__name__)

# Parts of the names of scores.
_LOWER = {"loss", "perplexity", "distance", "distances", "l2", "drift", "aer", "error"}
_HIGHER = {"retrieval", "sentence", "alignment", "selection", "accuracy", "f1", "match", "cosine"}
# Trackers that the tests cover, and what to install for each.
_TRACKERS = {"wandb": '"hf_xalign[wandb]"', "tensorboard": "tensorboard", "trackio": "trackio"}
# Fields that are set from eval_strategy, or if there is no accelerator.
_DERIVED = {"do_eval", "eval_on_start", "dataloader_pin_memory"}

# Of every preset that names no other order.
_BY_LENGTH = {"train_sampling_strategy": "group_by_length"}

SAMPLING = (
    "proportional: every row once an epoch. each: equal numbers of each language in every step. temperature: a "
    "language of n rows counts as n ** language_alpha. ucb: languages whose loss falls most come more often."
)
SAMPLING_RULES = [
    excludes("ucb counts the rows of an epoch", "ucb", ignore_data_skip=GIVEN),
    excludes("that draws every row", ("temperature", "ucb"), train_sampling_strategy="sequential"),
]
Draw = Literal["first", "seed"]
DRAW = "With a maximum number of pairs per source: take the first that the filters keep (first), or a sample (seed)."
# Schedule of transformers' example scripts, with warm-up and decay.
ADAM: dict[str, Any] = {
    "lr_scheduler_type": "linear",
    "warmup_steps": 0.1,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
}


def by_preset(help: str, group: str = "Objective", **checks: Any) -> Any:
    """Return a field that gets the preset's value if it is None; its type is that of the finished config."""
    return setting(None, help=f"{help} Default: by preset.", group=group, **checks)


def own(default: Any, help: str, group: str = "Objective", **checks: Any) -> Any:
    """Return a field with its own default."""
    return setting(default, help=help, group=group, **checks)


@dataclass
class AlignmentConfig(TrainingArguments):
    """Settings that every alignment trainer has, in addition to [`~transformers.TrainingArguments`].

    A method subclasses it, lists its published variants in `PRESETS` and gives `preset` a default. Fields left at None
    take the preset's value. If `eval_strategy` is set, evaluation also runs before the first and after the last step.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}
    # {setting that the method does not read: reason}
    UNREAD: ClassVar[dict[str, str]] = {}
    # True if the loss of each language is known.
    sees_languages: ClassVar[bool] = False
    # Score of every evaluation that selects the best checkpoint.
    headline: ClassVar[str] = "eval_retrieval"

    output_dir: str = own("trainer_output", "Folder of the run; another run in it is an error.", "Run")
    overwrite_output_dir: bool = own(False, "Delete the checkpoints of another run in output_dir.", "Run")
    record: bool = own(
        True,
        "Score the evaluation set before and after training, and write results.json, pictures and a model card.",
        "Run",
    )
    early_stopping_patience: int | None = own(
        None,
        "Stop after this many evaluations without a better score, and restore the best checkpoint. eval_strategy and "
        "save_strategy must be equal.",
        "Run",
        least=1,
        rules=[SCORED],
    )
    resume_from_checkpoint: bool | str | None = own(  # type: ignore[assignment]
        None, "true: resume from the last complete checkpoint of output_dir. Or the path of a checkpoint.", "Run"
    )
    ddp_timeout: int = own(86_400, "Seconds that processes wait for one that aligns, fills a cache or scores.", "Run")
    eval_pooling: Pooling = own(
        "mean", "Word vectors of the retrieval score in training, from the first or last subword or their mean.", "Run"
    )
    language_sampling: LanguageSampling = own("proportional", SAMPLING, "Run", rules=SAMPLING_RULES)
    language_alpha: float = own(
        0.3,
        "Exponent of language_sampling=temperature: 1 is proportional, 0 equal shares.",
        "Run",
        least=0,
        most=1,
        rules=[needs(language_sampling="temperature")],
    )
    fsdp: bool = own(  # type: ignore[assignment]
        False, "Shard weights, gradients and optimizer state over the GPUs (FSDP2): FAO, MAO and PPA.", "Run"
    )
    logging_steps: float = own(10, "Log every this many steps, and the first and the last.", "Run")
    train_sampling_strategy: Literal["group_by_length", "random", "sequential"] = by_preset(
        "Order of the rows: group_by_length, random or sequential.", "Run"
    )
    remove_unused_columns: bool = own(False, "Must stay false: the collator needs every column.", "Run")
    ddp_find_unused_parameters: bool | None = own(
        False, "Not needed, because every step uses all trained parameters.", "Run"
    )
    logging_nan_inf_filter: bool = own(False, "Must stay false: a loss that is not finite stops the run.", "Run")
    preset: str = own("", "Published variant.")
    learning_rate: float = by_preset("Peak learning rate.", "Schedule", least=0)
    num_train_epochs: float = by_preset("Number of epochs.", "Schedule", least=0)
    per_device_train_batch_size: int = by_preset("Rows per device and micro-batch.", "Schedule", least=1)
    lr_scheduler_type: SchedulerType | str = by_preset("Learning rate schedule.", "Schedule")
    warmup_steps: float = by_preset("Warm-up steps; a value below 1 is a share of the run.", "Schedule")
    adam_beta1: float = by_preset("Adam's beta1.", "Schedule")
    adam_beta2: float = by_preset("Adam's beta2.", "Schedule")
    adam_epsilon: float = by_preset("Adam's epsilon.", "Schedule")
    weight_decay: float = by_preset("Decoupled weight decay.", "Schedule", least=0)
    max_grad_norm: float = by_preset("Clip the gradient to this norm; 0 turns clipping off.", "Schedule", least=0)

    def __post_init__(self) -> None:
        check_choice(self.PRESETS, preset=self.preset)
        self.fill_from_preset()
        check(self, inherited=CHECKS)
        if self.early_stopping_patience is not None:
            self.load_best_model_at_end = True
        self.check_settings()
        if self.language_sampling == "ucb" and not self.sees_languages:
            raise InputError("language_sampling=ucb: only FAO and MAO with objective=l2 or infonce have its losses")
        if str(self.resume_from_checkpoint).lower() in ("true", "false"):  # text on the command line
            self.resume_from_checkpoint = str(self.resume_from_checkpoint).lower() == "true"
        check_settings(self)
        self._choose_metric()
        on_cpu = self.use_cpu or not torch.accelerator.is_available()
        # Without AMX a product takes 1.4 to 11 times as long as in float32 (benchmarks/cpu_arithmetic.py).
        if self.bf16 and on_cpu and not torch.cpu.get_capabilities().get("amx_bf16"):
            logger.warning("bf16=true: a CPU without AMX is slower in bfloat16, so float32 is used")
            self.bf16 = False
        if not torch.accelerator.is_available():
            self.dataloader_pin_memory = False
            self.use_cpu = True  # needed by transformers for bf16 without a GPU
        super().__post_init__()
        check_resolved(self)
        for tracker in self.report_to or []:
            check_choice(("none", "all", *INTEGRATION_TO_CALLBACK), report_to=tracker)
        for tracker, package in _TRACKERS.items():
            modules = (tracker, "tensorboardX") if tracker == "tensorboard" else (tracker,)
            if tracker in (self.report_to or []) and not any(map(importlib.util.find_spec, modules)):
                raise InputError(f"report_to={tracker}: {tracker} is not installed. Run pip install {package}.")

    def _choose_metric(self) -> None:
        """Set the metric that chooses checkpoints or steps the schedule, and whether greater is better.

        Raises:
            InputError: `greater_is_better` is wrong for the metric.
        """
        by_score = SchedulerType(self.lr_scheduler_type) in BY_SCORE
        if self.load_best_model_at_end or by_score or SaveStrategy(self.save_strategy) == SaveStrategy.BEST:
            self.metric_for_best_model = self.metric_for_best_model or self.headline
        if (metric := self.metric_for_best_model) is None:
            return
        lower = is_lower_better(metric)
        if lower is not None and self.greater_is_better == lower:
            given = str(self.greater_is_better).lower()
            better = "lower" if lower else "greater"
            raise InputError(f"greater_is_better={given}: {better} is better for {metric}. Remove it.")
        if self.greater_is_better is None:
            self.greater_is_better = not lower

    def fill_from_preset(self) -> None:
        """Give every field at None the preset's value."""
        for name, value in (_BY_LENGTH | self.PRESETS[self.preset]).items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def check_settings(self) -> None:
        """Raise an InputError for settings that cannot be trained; the preset is already filled in."""

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raise an InputError for a model or a tokenizer that these settings cannot train."""
        if self.n_gpu > 1:
            raise InputError(
                f"this process sees {self.n_gpu} GPUs. Start one process per GPU with `accelerate launch`, or select "
                "one by CUDA_VISIBLE_DEVICES=0."
            )
        if tokenizer.pad_token_id is None:
            raise InputError("the tokenizer has no padding token. Set tokenizer.pad_token to one of its tokens.")
        check_embeddings(model, tokenizer)

    def refuse_unused(self, reason: str, *names: str) -> None:
        """Raise an InputError with the reason if one of these settings, which the run does not read, is changed."""
        given = self.changed()
        if unused := [name for name in names if name in given]:
            raise SettingError(f"{unused[0]}={show(given[unused[0]])}: {reason}", unused[0])

    def to_dict(self) -> dict[str, Any]:
        """Return all settings for trackers and `training_args.json`, without credentials and paths."""
        return portable(json.loads(mask_secrets(json.dumps(super().to_dict()))))

    def preset_values(self) -> dict[str, Any]:
        """Return the preset's settings as plain JSON."""
        return {name: to_plain(value) for name, value in (_BY_LENGTH | self.PRESETS[self.preset]).items()}

    def changed(self) -> dict[str, Any]:
        """Return the settings that differ from preset and defaults, as plain JSON and without credentials."""
        preset = self.preset_values()
        found = non_default_fields(self).items()
        return {k: v for k, v in found if k not in _DERIVED and (k not in preset or preset[k] != v)}


def is_lower_better(metric: str) -> bool | None:
    """Return whether a lower score of this name is better, or None if the name is unknown."""
    parts = set(metric.split("_"))
    return True if parts & _LOWER else False if parts & _HIGHER else None


def check_no_head(model: PreTrainedModel) -> None:
    """Raise an InputError for a model with a head on top of the encoder, or an adapter in it."""
    if hasattr(model, "peft_config"):
        raise InputError(
            "this method trains the encoder's own weights, which a PeftModel freezes. Merge the adapters by "
            "hf_xalign.modeling.merge, or train adapters with FAO, MAO or PPA"
        )
    if model.base_model is not model:
        name = type(model).__name__
        raise InputError(f"{name} is an encoder with a head. Give only the encoder, model.base_model.")
