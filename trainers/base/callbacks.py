"""Callbacks of every run: what follows a step, the end of a run, losses that are not finite, averaged weights."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState

from hf_xalign.data.batches.masked import MaskingCollator
from hf_xalign.distributed import local_shard
from hf_xalign.environment import give_back_memory
from hf_xalign.errors import NonFiniteLossError
from hf_xalign.trainers.base.checkpoints import last_complete_checkpoint

if TYPE_CHECKING:
    from hf_xalign.trainers.base.saving import SavingTrainer
    from hf_xalign.trainers.base.trainer import AlignmentTrainer

logger = logging.getLogger(__name__)


def final_weights(share: float) -> str:
    """Return the shares of the weights before and after training in the average, as plain text."""
    return f"final weights: {share:g} before + {1 - share:g} after training"


class AverageAtEnd(TrainerCallback):
    """Average the trained weights with a `share` of those before at the end (WiSE-FT, Wortsman et al. 2022)."""

    def __init__(self, model: nn.Module, share: float):
        # Of the model before training, also in a resumed run, because checkpoints do not have those weights.
        trained = ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
        self._start = {name: weight.detach().to("cpu", copy=True) for name, weight in trained}
        self._share = share

    @torch.no_grad()
    def on_train_end(self, *_: object, **of_trainer: Any) -> None:
        """Average in place."""
        for name, weight in of_trainer["model"].named_parameters():
            if name in self._start:
                weight.lerp_(self._start[name].to(weight.device), self._share)


class StepStart(TrainerCallback):
    """Seed the order of each epoch, and update what follows the weights before anything is logged or saved."""

    def __init__(self, trainer: AlignmentTrainer):
        self._trainer = trainer
        self._epoch = 0

    def on_train_begin(self, args: object, state: TrainerState, control: TrainerControl, **of_trainer: Any) -> None:
        """Find the epoch of a resumed run; a run that had ended takes no step."""
        batches = len(of_trainer["train_dataloader"])
        self._epoch = state.global_step // -(-batches // self._trainer.args.gradient_accumulation_steps)
        self._trainer.begin()
        self._trainer.resumed_at_end = state.global_step > 0 and has_ended(self._trainer)
        # The Trainer looks for the end of the run only after a step.
        control.should_training_stop = self._trainer.resumed_at_end

    def on_epoch_begin(self, *_: object, **of_trainer: object) -> None:
        """Seed sampler and collator: accelerate's wrappers hide them from `set_epoch` in several processes."""
        self._trainer.sampler.set_epoch(self._epoch)
        if isinstance(self._trainer.data_collator, MaskingCollator):
            self._trainer.data_collator.set_epoch(self._epoch)
        self._epoch += 1

    def on_step_end(self, *_: object, **of_trainer: object) -> None:
        """Update what follows the weights."""
        self._trainer.advance()


class StepEnd(TrainerCallback):
    """Log the first and the last step, and stop before a model that is not finite is logged, scored or saved."""

    # Batches of other lengths leave blocks that no later one fits; given back each time, the next asks for all again.
    _STEPS_UNTIL_FREED = 10

    def __init__(self, trainer: AlignmentTrainer):
        self._trainer = trainer

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **of_trainer: object) -> None:
        """Settle what happens after a step."""
        trainer = self._trainer
        ended = has_ended(trainer)
        if trainer.args.logging_strategy != "no" and (state.global_step == 1 or ended):
            control.should_log = True
        if control.should_log or control.should_save or control.should_evaluate:
            stop_if_not_finite(trainer)
        if trainer.args.device.type == "cpu" and state.global_step % self._STEPS_UNTIL_FREED == 0:
            give_back_memory()
        # The run scores the end itself, by more scores.
        if trainer.run_scores_ends and not trainer.args.load_best_model_at_end and ended:
            control.should_evaluate = False

    def on_epoch_end(self, args: object, state: TrainerState, control: TrainerControl, **of_trainer: object) -> None:
        """Settle what happens after an epoch."""
        if self._trainer.resumed_at_end:  # no step was taken
            control.should_log = control.should_save = control.should_evaluate = False
        else:
            self.on_step_end(args, state, control)


def has_ended(trainer: AlignmentTrainer) -> bool:
    """Return whether the run took its last step, or was stopped early."""
    callbacks = (c for c in trainer.callback_handler.callbacks if isinstance(c, EarlyStoppingCallback))
    stopped = any(c.early_stopping_patience_counter >= c.early_stopping_patience for c in callbacks)
    return stopped or trainer.state.global_step >= trainer.state.max_steps


def stop_if_not_finite(trainer: SavingTrainer) -> None:
    """Raise a NonFiniteLossError if a loss since the start, or a weight now, is NaN or infinite on any process."""
    finite = [torch.isfinite(local_shard(p.detach())).all() for p in trainer.model.parameters() if p.requires_grad]
    bad = (trainer.not_finite | ~torch.stack(finite).all()).float()
    if trainer.args.world_size > 1:
        bad = trainer.accelerator.reduce(bad, reduction="sum")
    if bad.item() > 0:
        checkpoint = last_complete_checkpoint(trainer.args.output_dir) or "none"
        raise NonFiniteLossError(
            f"the loss or a weight became NaN or infinite at or before step {trainer.state.global_step}; last "
            f"complete checkpoint: {checkpoint}. Start over with a lower learning_rate or max_grad_norm=1.0, or "
            "resume with bf16 instead of fp16."
        )
