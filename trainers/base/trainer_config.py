"""Settings that every alignment trainer has, with presets of published values."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, SchedulerType, Trainer
from transformers.optimization import get_scheduler
from transformers.trainer_utils import SaveStrategy
from transformers.training_args import TrainingArguments

from hf_xalign.checks import Rule, check, check_choice, excludes, needs, setting, show
from hf_xalign.config import non_default_fields
from hf_xalign.data.batches.sampling import LanguageSampling
from hf_xalign.data.encoding import check_embeddings
from hf_xalign.errors import InputError, explained
from hf_xalign.objectives.term import Objective, Term
from hf_xalign.record import mask_secrets, portable, to_plain
from hf_xalign.trainers.base.tracking import check_trackers

logger = logging.getLogger(__name__)

Preset = dict[str, Any]
"""Values of settings by their names."""
# Read by parts of the Trainer that ours replace: its loop of evaluation, its loss, its columns.
_UNREAD = """
average_tokens_across_devices batch_eval_metrics bf16_full_eval dataloader_in_order debug do_predict
eval_accumulation_steps eval_do_concat_batches eval_use_gather_object fp16_full_eval include_for_metrics label_names
label_smoothing_factor length_column_name liger_kernel_config logging_nan_inf_filter prediction_loss_only
remove_unused_columns use_cache use_liger_kernel
"""
# {setting of transformers: why it must keep its default}. The others work as transformers documents them.
REFUSED: dict[str, str] = {
    "auto_find_batch_size": "the order of the rows depends on the batch size. Set per_device_train_batch_size.",
    "deepspeed": "DeepSpeed is not supported. Use DDP, or fsdp=true for an encoder that no GPU can hold.",
    **dict.fromkeys(("hub_strategy", "hub_always_push"), "a run is pushed when it has ended, without checkpoints."),
    "enable_jit_checkpoint": "a killed run resumes from its last complete checkpoint. Set save_steps.",
    "parallelism_config": "only data parallelism and FSDP2 are supported. Start a process per GPU, or set fsdp=true.",
    **dict.fromkeys(_UNREAD.split(), "the trainers of hf_xalign do not read it. Remove it."),
}
# Why a method that feeds its model several inputs does not count tokens.
PARTS = "only a part of this method's tokens are its model's input_ids. Remove it."
# Parts of `accelerator_config` that do not change the rows of a step.
_HARMLESS = {"non_blocking", "gradient_accumulation_kwargs", "use_configured_state"}
# Schedules that follow a score.
BY_SCORE = ("reduce_lr_on_plateau", "greedy")
_WHY, _SCORES = "nothing is scored in training otherwise", ("steps", "epoch")
SCORED = needs(_WHY, eval_strategy=_SCORES)
# Rules of the fields that transformers defines.
RULES: dict[str, Rule] = {
    "load_best_model_at_end": SCORED,
    "max_steps": excludes("give at least 1, or leave it out and set num_train_epochs", when=0),
    "save_strategy": needs(_WHY, when="best", eval_strategy=_SCORES),
    "lr_scheduler_type": needs(_WHY, when=BY_SCORE, eval_strategy=_SCORES),
}


def check_resolved(args: AlignmentConfig) -> None:
    """Raise an InputError for bad settings of accelerate, optimizer or schedule that transformers has resolved."""
    # Optimizer and schedule are made on a single number: the Trainer makes them only when everything is loaded.
    accelerator: object = args.accelerator_config
    default = vars(type(accelerator)())
    changed = {name for name, value in vars(accelerator).items() if value != default.get(name)} - _HARMLESS
    if changed:
        raise InputError(
            f"accelerator_config: the trainer itself divides the rows over processes. Remove {min(changed)}."
        )
    kind, schedule = show(args.optim), show(args.lr_scheduler_type)
    if kind.startswith("schedule_free"):
        raise InputError(
            f"optim={kind}: its weights in training are not those to score and save. Choose another optimizer."
        )
    with explained(f"optim={kind}", ImportError, ValueError, TypeError):
        try:
            optimizer, options = Trainer.get_optimizer_cls_and_kwargs(args)
        except ValueError as error:
            # The others are made of the model, which is not here yet.
            if "need to pass a" not in str(error):
                raise
        else:
            optimizer([torch.zeros(1)], **options)
    if schedule in BY_SCORE:
        mode = "max" if args.greater_is_better else "min"
        args.lr_scheduler_kwargs = {**cast(dict, args.lr_scheduler_kwargs or {}), "mode": mode}
    with explained(f"lr_scheduler_type={schedule}", ValueError, TypeError):
        get_scheduler(schedule, torch.optim.SGD([torch.zeros(1)], lr=0.1), 1, 10, cast(dict, args.lr_scheduler_kwargs))


# Parts of the names of scores that fall in training. Of any other score more is better, as transformers takes it.
_LOWER = {"loss", "perplexity", "distance", "distances", "l2", "drift", "aer", "error", "mae", "mse", "rmse"}
# Fields that are set from eval_strategy, or if there is no accelerator.
_DERIVED = {"do_eval", "eval_on_start", "dataloader_pin_memory"}

# Of every preset that names no other order.
_ORDER: Preset = {"train_sampling_strategy": "group_by_length", "language_sampling": "proportional"}

Draw = Literal["first", "seed"]
DRAW = "With a maximum number of pairs per source: take the first that the filters keep (first), or a sample (seed)."
# Schedule of transformers' example scripts, with warm-up and decay.
ADAM: Preset = {
    "lr_scheduler_type": "linear",
    "warmup_steps": 0.1,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
}


def by_preset(help: str, group: str = "Objective", **checks: object) -> Any:
    """Return a field that gets the preset's value if it is None; its type is that of the finished config."""
    return setting(None, help=f"{help} Default: by preset.", group=group, **checks)


def own(default: object, help: str, group: str = "Objective", **checks: object) -> Any:
    """Return a field with its own default."""
    return setting(default, help=help, group=group, **checks)


def bfloat16_is_fast() -> bool:
    """Return whether products of the CPU take less time in bfloat16 than in float32 (benchmarks/cpu_arithmetic.py)."""
    found = torch.cpu.get_capabilities()
    # With AVX-512 alone Intel's take 1.4 times as long, and AMD's 0.44.
    by_amd = found.get("avx512_bf16", False) and str(found.get("cpu_name")).startswith("AMD")
    return bool(found.get("amx_bf16") or by_amd)


@dataclass
class AlignmentConfig(TrainingArguments):
    """Settings that every alignment trainer has, in addition to [`~transformers.TrainingArguments`].

    A method subclasses it, lists its published variants in `PRESETS` and gives `preset` a default. Fields left at None
    take the preset's value. If `eval_strategy` is set, evaluation also runs before the first and after the last step.
    """

    PRESETS: ClassVar[dict[str, Preset]] = {}
    # {setting that the method does not read: reason}
    UNREAD: ClassVar[dict[str, str]] = {}
    # Settings that define the terms of the loss, which `objective=` of a trainer replaces; empty without terms.
    LOSS: ClassVar[tuple[str, ...]] = ()
    # Score of every evaluation that selects the best checkpoint.
    headline: ClassVar[str] = "eval_retrieval"

    output_dir: str = own("trainer_output", "Folder of the run; another run in it is an error.", "Run")
    overwrite_output_dir: bool = own(False, "Delete the checkpoints of another run in output_dir.", "Run")
    record: bool = own(True, "Score before and after training, and write results.json, pictures and a card.", "Run")
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
    language_sampling: LanguageSampling = by_preset(
        "proportional: every row once an epoch. each: equal numbers of each language in every step. temperature: a "
        "language of n rows counts as n ** language_alpha.",
        "Run",
        rules=[excludes("that draws every row", "temperature", train_sampling_strategy="sequential")],
    )
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
    ddp_find_unused_parameters: bool | None = own(False, "Not needed: a step uses all trained parameters.", "Run")
    logging_nan_inf_filter: bool = own(False, "Must stay false: a loss that is not finite stops the run.", "Run")
    preset: str = own("", "Published variant.")
    learning_rate: float = by_preset("Peak learning rate.", "Schedule", least=0)
    num_train_epochs: float = by_preset("Number of epochs.", "Schedule", above=0)
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
        if isinstance(layers := getattr(self, "layers", None), int):
            vars(self)["layers"] = [layers]
        for name, value in self.preset_defaults().items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        unread = {name: excludes(why) for name, why in (REFUSED | self.UNREAD).items()}
        check(self, inherited=RULES | unread)
        if self.early_stopping_patience is not None:
            self.load_best_model_at_end = True
        self.check_settings()
        self._choose_metric()
        on_cpu = self.use_cpu or not torch.accelerator.is_available()
        if self.fp16 and on_cpu:
            raise InputError("fp16=true: half precision needs a GPU. Remove it, or set bf16=true.")
        if self.bf16 and on_cpu and not bfloat16_is_fast():
            logger.warning("bf16=true: this CPU is slower in bfloat16, so float32 is used")
            self.bf16 = False
        if not torch.accelerator.is_available():
            self.dataloader_pin_memory = False
            # transformers needs it for bf16 without a GPU.
            self.use_cpu = True
        with explained("transformers refuses these settings", ValueError):
            super().__post_init__()
        check_resolved(self)
        check_trackers(self)

    def _choose_metric(self) -> None:
        """Set the metric that chooses checkpoints or steps the schedule, and whether greater is better."""
        by_score = SchedulerType(self.lr_scheduler_type) in BY_SCORE
        if self.load_best_model_at_end or by_score or SaveStrategy(self.save_strategy) == SaveStrategy.BEST:
            self.metric_for_best_model = self.metric_for_best_model or self.headline
        if self.metric_for_best_model is not None and self.greater_is_better is None:
            self.greater_is_better = _LOWER.isdisjoint(self.metric_for_best_model.split("_"))

    def preset_defaults(self) -> Preset:
        """Return the preset's settings, as far as they go with those that are given."""
        return _ORDER | self.PRESETS[self.preset]

    def check_settings(self) -> None:
        """Raise an InputError for settings that cannot be trained; the preset is already filled in."""

    def terms(self) -> list[Term]:
        """Return the terms of the loss of these settings; none if the loss is not a list of them."""
        return []

    @property
    def loss(self) -> Objective:
        """Return the objective of these settings."""
        return Objective(self.terms())

    def check_model(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, objective: Objective | None = None
    ) -> None:
        """Raise an InputError for a model or a tokenizer that these settings, or this objective, cannot train."""
        for fault in self.faults(model, tokenizer, objective or self.loss):
            raise InputError(fault)

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with a model or tokenizer that these settings, or the terms of `loss`, cannot train."""
        if self.n_gpu > 1:
            yield (
                f"this process sees {self.n_gpu} GPUs. Start one process per GPU with `accelerate launch`, or select "
                "one by CUDA_VISIBLE_DEVICES=0."
            )
        check_embeddings(model, tokenizer)

    def formula(self, objective: Objective) -> str:
        """Return an objective under these settings as plain text."""
        return objective.formula()

    def to_dict(self) -> dict[str, Any]:
        """Return all settings for trackers and `training_args.json`, without credentials and paths."""
        return portable(json.loads(mask_secrets(json.dumps(super().to_dict()))))

    def changed(self) -> dict[str, object]:
        """Return the settings that differ from preset and defaults, as plain JSON and without credentials."""
        preset = {name: to_plain(value) for name, value in self.preset_defaults().items()}
        changed = non_default_fields(self).items()
        return {k: v for k, v in changed if k not in _DERIVED and (k not in preset or preset[k] != v)}
