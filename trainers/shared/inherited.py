"""Settings of `TrainingArguments` that are supported, reasons why others are not, and checks of given optimizers."""

from __future__ import annotations

import copy
import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import Trainer, TrainingArguments
from transformers.optimization import get_scheduler

from hf_xalign.checks import GIVEN, needs, show
from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError, explained

if TYPE_CHECKING:
    from hf_xalign.trainers.shared.base_config import AlignmentConfig

logger = logging.getLogger(__name__)

_SCORES = "evaluation computes the method's own scores, which do not use it. Remove it."
_ROWS = "the collator needs every column of the rows that the trainer encodes. Remove it."
_PARTS = "only a part of this method's tokens are its model's input_ids. Remove it."

# Settings that work as transformers documents them.
_READ = """
output_dir do_train resume_from_checkpoint seed data_seed full_determinism use_cpu local_rank log_level
log_level_replica log_on_each_node disable_tqdm logging_strategy logging_steps logging_first_step report_to
run_name project trackio_space_id trackio_bucket_id trackio_static_space_id skip_memory_metrics
per_device_train_batch_size gradient_accumulation_steps num_train_epochs max_steps learning_rate
lr_scheduler_type lr_scheduler_kwargs warmup_steps optim optim_args optim_target_modules weight_decay
adam_beta1 adam_beta2 adam_epsilon max_grad_norm train_sampling_strategy
do_eval eval_strategy eval_steps eval_delay eval_on_start per_device_eval_batch_size load_best_model_at_end
metric_for_best_model greater_is_better save_strategy save_steps save_total_limit save_only_model
save_on_each_node ignore_data_skip restore_callback_states_from_checkpoint push_to_hub hub_model_id
hub_strategy hub_token hub_private_repo hub_always_push hub_revision
bf16 fp16 tf32 activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing
gradient_checkpointing_kwargs torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps
accelerator_config fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers
ddp_static_graph ddp_backend ddp_timeout dataloader_drop_last dataloader_num_workers dataloader_pin_memory
dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context
"""
# {setting: None if every method reads it, or the reason why it must keep its default}. If methods differ, the
# reason is {config class: reason}, and the others read it.
SETTINGS: dict[str, str | dict[str, str] | None] = {
    **dict.fromkeys(_READ.split()),
    "auto_find_batch_size": "the order of the rows depends on the batch size. Set per_device_train_batch_size.",
    "average_tokens_across_devices": "every loss counts over all processes. Remove it.",
    "batch_eval_metrics": _SCORES,
    "bf16_full_eval": "scores are computed in float32, or under bf16=true in bfloat16. Remove it.",
    "dataloader_in_order": "a step would get the rows of another step. Remove it.",
    "debug": "transformers' overflow detector fails on an encoder's boolean masks. Remove it.",
    "deepspeed": "DeepSpeed is not supported. Use DDP, or fsdp=true for an encoder that no GPU can hold.",
    "do_predict": "training does not predict. Remove it, and score the model by hf-xalign evaluate.",
    "enable_jit_checkpoint": "a killed run resumes from its last complete checkpoint. Set save_steps.",
    "eval_accumulation_steps": _SCORES,
    "eval_do_concat_batches": _SCORES,
    "eval_use_gather_object": _SCORES,
    "fp16_full_eval": "scores are computed in float32, or under bf16=true in bfloat16. Remove it.",
    "include_for_metrics": _SCORES,
    "include_num_input_tokens_seen": dict.fromkeys(("MAOConfig", "PPAConfig", "ContinualConfig"), _PARTS),
    "label_names": _SCORES,
    "label_smoothing_factor": "the losses have no label smoothing. Remove it.",
    "length_column_name": "lengths are in the column `length`, which the trainer writes. Remove it.",
    "liger_kernel_config": "Liger has kernels for decoders, not for encoders. Remove it.",
    "logging_nan_inf_filter": "a loss that is not finite stops the run. Remove it.",
    "neftune_noise_alpha": {"MAOConfig": "the encoder is frozen, and its embeddings take no noise. Remove it."},
    "parallelism_config": "only data parallelism and FSDP2 are supported. Start a process per GPU, or set fsdp=true.",
    "prediction_loss_only": _SCORES,
    "remove_unused_columns": _ROWS,
    "use_cache": "an encoder has no cache of keys and values. Remove it.",
    "use_liger_kernel": "Liger has kernels for decoders, not for encoders. Remove it.",
}
# Parts of `accelerator_config` that do not change the rows of a step.
_HARMLESS = {"non_blocking", "gradient_accumulation_kwargs", "use_configured_state"}
# Schedules that follow a score.
BY_SCORE = ("reduce_lr_on_plateau", "greedy")
_SCORED: dict[str, Any] = {"why": "nothing is scored in training otherwise", "eval_strategy": ("steps", "epoch")}
SCORED = needs(**_SCORED)
# What `check` reads of the fields that transformers defines.
CHECKS: dict[str, dict[str, Any]] = {
    **{name: {"least": 1} for name in ("per_device_eval_batch_size", "gradient_accumulation_steps")},
    **{name: {"rules": [SCORED]} for name in ("load_best_model_at_end", "metric_for_best_model", "greater_is_better")},
    **{name: {"rules": [needs(when=True, **_SCORED)]} for name in ("eval_on_start", "do_eval")},
    "save_strategy": {"rules": [needs(when="best", **_SCORED)]},
    "lr_scheduler_type": {"rules": [needs(when=BY_SCORE, **_SCORED)]},
    "fsdp_config": {"rules": [needs(when=GIVEN, fsdp=True)]},
}
_NAMED: set[str] = set()


def check_settings(args: AlignmentConfig) -> None:
    """Raise an InputError for changed settings that the run would not read, before transformers resolves them.

    A setting of a newer transformers, which is not in the table, gives a warning.
    """
    changed = non_default_fields(args)
    methods = {cls.__name__ for cls in type(args).__mro__}
    for name, unread in type(args).UNREAD.items():
        args.refuse_unused(unread, name)
    for name in [field.name for field in fields(TrainingArguments) if field.name in changed]:
        reason = SETTINGS.get(name)
        if isinstance(reason, dict):
            reason = next((text for method, text in reason.items() if method in methods), None)
        if reason is not None:
            raise InputError(f"{name}={show(changed[name])}: {reason}")
        if name not in SETTINGS and name not in _NAMED:
            _NAMED.add(name)
            logger.warning("%s=%s: hf_xalign does not know this setting, which may do nothing", name, changed[name])
    if args.fp16 and (args.use_cpu or not torch.accelerator.is_available()):
        raise InputError("fp16=true: half precision needs a GPU. Remove it, or set bf16=true.")


def check_resolved(args: AlignmentConfig) -> None:
    """Raise an InputError for bad settings of accelerate, optimizer or schedule, after transformers has resolved them.

    Optimizer and schedule are made on a single number, as the Trainer makes them when everything is loaded.
    """
    given = cast(Any, args.accelerator_config)
    default = vars(type(given)())
    own = {name for name, value in vars(given).items() if value != default.get(name)}
    if own - _HARMLESS:
        raise InputError(
            f"accelerator_config: the trainer itself divides the rows over processes. Remove {min(own - _HARMLESS)}."
        )
    kind, schedule = show(args.optim), show(args.lr_scheduler_type)
    if kind.startswith("schedule_free"):
        raise InputError(
            f"optim={kind}: its weights in training are not those to score and save. Choose another optimizer."
        )
    with explained(f"optim={kind}", ImportError, ValueError, TypeError):
        made = _optimizer(args)
        for name, values in _OPTIMIZERS_OWN.items():
            other = next(value for value in values if value != getattr(args, name))
            if made and name in args.changed() and made == _optimizer(args, **{name: other}):
                args.refuse_unused(f"optim={kind} does not read it. Remove it.", name)
    if schedule in ("constant", *BY_SCORE) and args.warmup_steps:
        args.refuse_unused(f"lr_scheduler_type={schedule} has no warm-up. Set it to 0.", "warmup_steps")
    if schedule.startswith("constant"):
        args.refuse_unused(f"lr_scheduler_type={schedule} has no settings. Remove it.", "lr_scheduler_kwargs")
    if schedule in BY_SCORE:
        mode = "max" if args.greater_is_better else "min"
        args.lr_scheduler_kwargs = {"mode": mode, **cast(dict, args.lr_scheduler_kwargs or {})}
        if (other := args.lr_scheduler_kwargs["mode"]) != mode:
            raise InputError(f"lr_scheduler_kwargs: mode={other} is wrong for {args.metric_for_best_model}")
    with explained(f"lr_scheduler_type={schedule}", ValueError, TypeError):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=args.learning_rate)
        get_scheduler(schedule, optimizer, 1, 10, cast(Any, args.lr_scheduler_kwargs))


# Settings that only some optimizers read, each with two values, of which one is another than the run's.
_OPTIMIZERS_OWN = {
    **dict.fromkeys(("optim_args", "optim_target_modules"), (None, "")),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "adam_epsilon"), (0.5, 0.25)),
}


def _optimizer(args: AlignmentConfig, **changes: Any) -> Any:
    """Return class and options of the optimizer, or None if it needs the model."""
    own = copy.copy(args)
    for name, value in changes.items():
        setattr(own, name, value)
    try:
        return Trainer.get_optimizer_cls_and_kwargs(own)
    except ValueError as error:
        if "need to pass a" in str(error):
            return None
        raise


def check_optimizers(args: AlignmentConfig, model: Any, optimizers: Any, made_of: Any) -> None:
    """Raise an InputError for an optimizer or schedule that cannot train the model, before anything is loaded.

    Settings that are then not read give a warning. `made_of` are the optimizer's class and options.
    """
    optimizer, scheduler = optimizers or (None, None)
    if scheduler is not None and getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise InputError("optimizers: the scheduler belongs to another optimizer. Give both, or neither.")
    unread: tuple[str, ...] = ()
    if optimizer is not None:
        unread = ("learning_rate", "weight_decay", *_OPTIMIZERS_OWN, "optim")
    elif made_of is not None:
        unread = ("learning_rate", *_OPTIMIZERS_OWN, "optim")
    if scheduler is not None:
        unread += ("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps")
    if optimizer is not None and isinstance(model, str):
        raise InputError(
            "optimizers: the model is loaded by its name, so the optimizer cannot have its weights. Set optim."
        )
    if unread := tuple(name for name in unread if name in args.changed()):
        logger.warning("%s: not read, because the trainer is given its optimizer", ", ".join(unread))


def check_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    """Raise an InputError for an optimizer without some of the trained weights, which would never change."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    names = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise InputError(
            f"optimizers: the optimizer has no group with {', '.join(names[:3])}{more}, which the trainer trains. Set "
            "optim, or give optimizer_cls_and_kwargs=(class, {...}), which gets all of them."
        )
