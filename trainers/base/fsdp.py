"""FSDP2: shard the trained encoder and its frozen copies, and save and load sharded state.

accelerate makes a group of every layer, of the word embeddings and of the rest. Weights, gradients and optimizer
state are DTensors. Between its forward and backward pass, a group has its full weights.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel, Trainer
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.training_args import ParallelMode
from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY

from hf_xalign.distributed import full_tensor, shard_like
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import encoder_layers
from hf_xalign.modeling.xalign.config import base_of
from hf_xalign.trainers.base.trainer_config import AlignmentConfig

if TYPE_CHECKING:
    from hf_xalign.trainers.base.saving import SavingTrainer


def wants_sharding(args: AlignmentConfig) -> bool:
    """Return whether the settings, or those of `accelerate launch`, ask for FSDP."""
    launched = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    return args.parallel_mode == ParallelMode.DISTRIBUTED and (args.fsdp or launched)


def check_sharding(args: AlignmentConfig, supported: bool) -> None:
    """Raise an InputError for `fsdp` in one process or an unsupported method, or with settings that FSDP2 lacks."""
    if args.fsdp and args.parallel_mode != ParallelMode.DISTRIBUTED:
        raise InputError(
            "fsdp=true shards the weights over processes, but this is the only one. Start one for each GPU by "
            "`accelerate launch --multi_gpu` or `hf-xalign train --processes`, or leave fsdp out"
        )
    if not wants_sharding(args):
        return
    if not supported:
        raise InputError("FSDP is supported by FAO, MAO and PPA only. Remove fsdp, or start with --multi_gpu only.")
    if args.fsdp:
        config = {name: str(value).lower() for name, value in cast(dict, args.fsdp_config).items()}
        config["offload_params"] = config.get("cpu_offload", "false")
    else:  # set by `accelerate launch`
        config = {name[5:].lower(): value.lower() for name, value in os.environ.items() if name.startswith("FSDP_")}
    if config.get("version", "2" if args.fsdp else "1") != "2":
        raise InputError("fsdp_version: only FSDP2 is supported. Set it to 2.")
    config = {f"fsdp_{name}": value for name, value in config.items()}
    unsupported = ("fsdp_activation_checkpointing", "fsdp_cpu_ram_efficient_loading", "fsdp_offload_params")
    for name in (*unsupported, "torch_compile", "fp16"):
        if config.get(name) == "true" or getattr(args, name, False):
            raise InputError(f"{name}=true: not supported with FSDP here. Set it to false.")


def settle(trainer: SavingTrainer) -> None:
    """Tell accelerate which parts of a trainer's encoder to shard, and to write full checkpoints."""
    if trainer.is_deepspeed_enabled:
        raise InputError("DeepSpeed is not supported. Use DDP, or fsdp=true for an encoder that no GPU can hold.")
    if trainer.args.fsdp and not trainer.is_fsdp_enabled:
        raise InputError("fsdp=true shards the weights over GPUs, but this run is on CPUs. Remove it.")
    if not trainer.is_fsdp_enabled:
        return
    accelerator, model = trainer.accelerator, trainer.model
    embeddings = model.get_input_embeddings().weight
    # A weight in two groups, such as a tied head, is an error of torch.
    if sum(p is embeddings for _, p in model.named_parameters(remove_duplicate=False)) > 1:
        raise InputError(
            f"{type(model).__name__} names its word embeddings twice, which FSDP2 cannot divide: leave fsdp out"
        )
    plugin = accelerator.state.fsdp_plugin
    # Half of the model classes do not name their layers, or also name the embeddings, which accelerate shards anyway.
    plugin.auto_wrap_policy = transformer_auto_wrap_policy
    albert = model.config.model_type == "albert"
    layer_class = "AlbertLayer" if albert else type(encoder_layers(base_of(model))[0]).__name__
    plugin.transformer_cls_names_to_wrap = [layer_class]
    plugin.set_state_dict_type("FULL_STATE_DICT")
    # Autocast computes in bfloat16, as without FSDP. This would also round the heads and the gradients' sums.
    plugin.mixed_precision_policy = None


def shard(accelerator: Accelerator, model: nn.Module, *heads: nn.Module) -> None:
    """Shard a frozen encoder, or a momentum encoder and its heads, like the trained encoder."""
    fsdp2_prepare_model(accelerator, model)
    for head in heads:
        fully_shard(head)
    record_states(model)


def record_states(model: nn.Module) -> None:
    """Let transformers, which looks for the class that FSDP2 replaced, return hidden states of a sharded encoder."""
    for module in model.modules():
        if isinstance(module, FSDPModule) and isinstance(module, PreTrainedModel):
            _CAN_RECORD_REGISTRY[module] = module._can_record_outputs


def reshard(module: nn.Module) -> None:
    """Free the full weights after a forward pass without a backward pass, because updates change only the shards."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def full_state(state: Any) -> Any:
    """Gather every sharded tensor in nested dicts and lists, onto the CPU of the first process."""
    # All processes must call this. The others get empty tensors in place of sharded ones.
    if isinstance(state, dict):
        return {name: full_state(value) for name, value in state.items()}
    if isinstance(state, list):
        return [full_state(value) for value in state]
    if not isinstance(state, torch.Tensor):
        return state
    full = full_tensor(state.detach())
    first = full is state or not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    return full.cpu() if first else full.new_empty(0)


def save_optimizer(trainer: Trainer, folder: Path) -> None:
    """Save the states of optimizer and scheduler in full, so that a run without FSDP can resume from them."""
    # Not by the Trainer, which would also save the weights a second time, in a pickle. All processes gather.
    optimizer, scheduler = cast(Optimizer, trainer.optimizer), cast(LRScheduler, trainer.lr_scheduler)
    state = full_state(optimizer.state_dict())
    if trainer.args.should_save:
        torch.save(state, folder / OPTIMIZER_NAME)
        torch.save(scheduler.state_dict(), folder / SCHEDULER_NAME)


def load_optimizer(trainer: Trainer, folder: Path) -> None:
    """Load the state from [`save_optimizer`] or a run without FSDP, each process its shards."""
    optimizer, scheduler = cast(Optimizer, trainer.optimizer), cast(LRScheduler, trainer.lr_scheduler)
    state = torch.load(folder / OPTIMIZER_NAME, map_location="cpu", weights_only=True, mmap=True)
    parameters: list[torch.Tensor] = []
    for group in optimizer.param_groups:
        parameters += group["params"]
    for number, values in state["state"].items():
        weight = parameters[number]
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and value.shape == weight.shape:
                values[name] = shard_like(value, weight)
    optimizer.load_state_dict(state)
    scheduler.load_state_dict(torch.load(folder / SCHEDULER_NAME, weights_only=True))
