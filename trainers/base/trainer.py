"""Base class of every trainer: what it is made from, its batches, and its loss."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from datasets import Dataset
from peft import PeftConfig, PeftModel, get_peft_model
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.data.data_collator import DataCollator
from transformers.trainer_utils import IntervalStrategy
from transformers.utils import ModelOutput
from transformers.utils.logging import set_verbosity

from hf_xalign.cache import check_output
from hf_xalign.checks import check, excludes
from hf_xalign.data.batches.sampling import PairedSampler, PairSampler, lengths_and_languages
from hf_xalign.data.encoding import check_pieces, set_prompt
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import Protocol
from hf_xalign.modeling.checkpoint import HEAD_NAME, load_trainable
from hf_xalign.modeling.freezing import find_switches, note_switched, switch_back
from hf_xalign.modeling.packing import prepare_cpu
from hf_xalign.objectives.term import Objective, Read, Term, Vectors
from hf_xalign.trainers.base import checkpoints, fsdp, opening
from hf_xalign.trainers.base.callbacks import AverageAtEnd, StepEnd, StepStart
from hf_xalign.trainers.base.probes import Probe
from hf_xalign.trainers.base.run import Reporting, Run
from hf_xalign.trainers.base.saving import check_push
from hf_xalign.trainers.base.scoring import ScoringTrainer
from hf_xalign.trainers.base.tracking import use_tracker
from hf_xalign.trainers.base.trainer_config import AlignmentConfig

logger = logging.getLogger(__name__)

Batch = dict[str, torch.Tensor]
Counts = torch.Tensor | int | None
"""Counts of an optimizer step, int64 (terms,); None for a batch that is a step of its own."""
Prepared = tuple[PreTrainedModel, Dataset, DataCollator]
"""Model to train, its encoded data and their collator."""
Computed = tuple[Batch, ModelOutput]
"""Vectors of a batch by their names, and the model's output."""
Loss = torch.Tensor | tuple[torch.Tensor, ModelOutput | None]
"""Loss of a batch, with the model's output where it is asked for."""


class AlignmentTrainer(ScoringTrainer):
    """Base class of all trainers.

    A method prepares model and data in `_prepare`, before the Trainer is made, and has its loss in `compute_loss`. A
    loss that is a list of terms is the `total` of the vectors that they read. Any other loss overrides `_count_items`,
    and reports its terms with `log_term`.

    Args:
        model: the encoder, changed in place (`PreTrainedModel`, a `PeftModel` around one, or a `SentenceTransformer`
            of one and its pooling); or the Hub id or folder to load it from, in float32 and from safetensors
            (`builtin` for the one that comes with the library).
        args: the method's config, by default one with its defaults.
        train_dataset: what the method reads, such as sentence pairs.
        eval_dataset: held-out pairs, scored by language; or a dict of them by language.
        processing_class: the fast tokenizer; by default that of the model's checkpoint.
        objective: the terms of the loss, by default `args.terms()`, for methods whose loss is a list of
            [`~hf_xalign.objectives.Term`].
        peft_config: adapter that is added to the encoder and trained instead of its weights.
        callbacks: callbacks of transformers, in addition to the Trainer's own.
        optimizer_cls_and_kwargs: class and options of the optimizer, which gets all trained weights.
        name: name of the encoder in record and card, by default that of its checkpoint.
        revision: branch, tag or commit of a `model` that is given by its Hub id.
        probes: labelled text of [`~hf_xalign.trainers.base.probes.read_probes`], by which the frozen vectors are
            probed before and after training.
        protocols: protocols that word retrieval is scored by before and after training.
        reporting: what a script adds to the record of the run.

    Raises:
        InputError: settings do not fit the model, the tokenizer or the data; or the output folder holds another run.
    """

    # compute_loss divides by counts of the whole optimizer step, so the Trainer must not divide again by its number
    # of micro-batches. (The default None guesses from the model's signature and the batch's keys.)
    loss_is_scaled_for_ga = True
    # Class of the settings, which are made by default if `args` is None.
    config_class: ClassVar[type[AlignmentConfig]]
    # Tags of the model on the Hub, and the key of the paper that its card cites.
    _tag_names: ClassVar[list[str]] = ["hf_xalign"]
    _paper: ClassVar[str] = ""
    # True if the method supports FSDP2.
    can_shard: ClassVar[bool] = False
    # False if the encoder is frozen below a module, so that its weights may have any type.
    trains_encoder: ClassVar[bool] = True
    # Times the preset's learning rate for an adapter, whose update begins at zero: the rate of full fine-tuning moves
    # it little (benchmarks/adapter_rate.py). Schulman et al. (2025, LoRA Without Regret) advise about ten times.
    adapter_rate: ClassVar[float] = 1.0
    # True if training starts from a module with random weights, so that scores before it are not the encoder's.
    random_start: bool = False
    # Short name of the method in the record of a run.
    method: ClassVar[str] = ""
    # Set by `_prepare` of a method that averages its weights with those before training.
    _average: AverageAtEnd | None = None
    # What the terms of the loss may read.
    computes: ClassVar[tuple[Read, ...]] = ()

    def __init__(
        self,
        model: str | PreTrainedModel,
        args: AlignmentConfig | None = None,
        *,
        train_dataset: Dataset | Mapping[str, Dataset],
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        objective: Sequence[Term] | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizer_cls_and_kwargs: tuple[type[Optimizer], dict[str, Any]] | None = None,
        name: str | None = None,
        revision: str = "main",
        probes: Sequence[Probe] = (),
        protocols: Sequence[Protocol] = (Protocol(),),
        reporting: Reporting | None = None,
    ):
        start = time.perf_counter()
        args = self.config_class() if args is None else args
        self.args, self.reporting = args, reporting or Reporting()
        self._set_objective(objective)
        if eval_dataset is None and args.eval_strategy != IntervalStrategy.NO:
            strategy = IntervalStrategy(args.eval_strategy).value
            raise InputError(f"eval_strategy={strategy}: there is nothing to score. Give eval_dataset.")
        check_output(args.output_dir)
        # As the Trainer does, which is made only after the text is shown.
        set_verbosity(args.get_process_log_level())
        fsdp.check_sharding(args, self.can_shard)
        given = model
        base_model, model, processing_class = opening.find_model(self, model, processing_class, revision)
        for fault in opening.adapter_faults(model, peft_config):
            raise InputError(fault)
        self.show(opening.describe_encoder(name or base_model, model))
        # An earlier trainer may have frozen parts of the same model, and switched its dropout off.
        switch_back(model)
        if peft_config is not None:
            model = cast(PreTrainedModel, get_peft_model(model, peft_config))
        if isinstance(model, PeftModel) and "learning_rate" not in args.changed() and self.adapter_rate != 1:
            self.args = args = replace(args, learning_rate=self.adapter_rate * args.learning_rate)
            self.show(f"adapter  learning rate {args.learning_rate:g}, {self.adapter_rate:g} times the preset's")
        if isinstance(given, str):
            checkpoints.check_output_dir(args)
        if args.push_to_hub:
            bases = [config.base_model_name_or_path for config in getattr(model, "peft_config", {}).values()]
            # Of a run without scores, no card names the encoder.
            is_recorded = args.record and (eval_dataset is not None or self.scores_nothing)
            check_push(args, [*bases, name or base_model] if is_recorded else bases)
        if self.trains_encoder:
            opening.check_precision(model)
        if prompt := getattr(args, "prompt", None):
            set_prompt(processing_class, prompt)
        args.check_model(model, processing_class, self.objective)
        if args.bf16 and args.device.type == "cpu":
            prepare_cpu(model)
        train_dataset = self._read(train_dataset, "train_dataset")
        eval_dataset = None if eval_dataset is None else self._read(eval_dataset, "eval_dataset")
        self.eval_dataset, self.processing_class = eval_dataset, processing_class
        for text, what in ((train_dataset, "train_dataset"), (eval_dataset, "eval_dataset")):
            if isinstance(text, Dataset) and {"source", "source_words"} & {*text.column_names}:
                check_pieces(text, processing_class, what)
        self._recorded = bool(args.record and self.method)
        if self._recorded and eval_dataset is not None:
            self._given, self._given_held_out = train_dataset, eval_dataset
        sharded, opened, switches = fsdp.wants_sharding(args), model, find_switches(model)
        # It is moved to its device in parts, because it may not fit there next to its frozen copy.
        if sharded:
            cast(nn.Module, model).to("cpu")
        model, train_dataset, collator = self._prepare(model, train_dataset)
        # Another model holds this one below an adapter, and sharding replaces the weights.
        if model is opened and not sharded:
            note_switched(model, switches)
        self.remember_base(model)
        # The average comes first, so that the others log and save it.
        callbacks = [*filter(None, [self._average]), StepStart(self), *(callbacks or [])]
        if args.early_stopping_patience is not None:
            callbacks.append(EarlyStoppingCallback(args.early_stopping_patience))
        # Last, because the others decide what happens after the step.
        callbacks.append(StepEnd(self))
        if hasattr(model, "add_model_tags"):
            model.add_model_tags(self._tag_names)
        args.eval_on_start = eval_dataset is not None and args.eval_strategy != IntervalStrategy.NO
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=self.eval_dataset,
            processing_class=processing_class,
            data_collator=collator,
            callbacks=callbacks,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
        )
        fsdp.settle(self)
        use_tracker(self)
        self._term_sums: dict[str, torch.Tensor] = {}
        self.not_finite = torch.zeros((), dtype=torch.bool, device=self.args.device)
        self._complete()
        if self._recorded and (self.eval_dataset is not None or self.scores_nothing):
            seconds = time.perf_counter() - start
            self.run = Run(self, name or base_model, seconds, probes, protocols)

    def _set_objective(self, objective: Sequence[Term] | None) -> None:
        """Store the terms of the loss, by default those of the settings, before anything is loaded."""
        args = self.args
        if objective is not None and not args.LOSS:
            raise InputError(f"objective: the loss of {type(self).__name__} is not a list of terms. Remove it.")
        if objective is not None:
            defined = excludes("objective= defines the loss. Set this in its terms.")
            check(args, inherited=dict.fromkeys(args.LOSS, defined))
        self.objective = args.loss if objective is None else Objective(objective)
        if args.LOSS and not self.objective:
            raise InputError("objective: give at least one term")
        reason = f"which {type(self).__name__} does not compute. Use {', '.join(self.computes)}."
        self.objective.require(self.computes, reason)

    def _complete(self) -> None:
        """Make the method's parts in addition to the model, when the Trainer is made."""

    def _load_model(self, path: str, revision: str) -> PreTrainedModel:
        return load_trainable(path, revision=revision)

    # ---- Data ----

    def _prepare(self, model: PreTrainedModel, train_dataset: Dataset) -> Prepared:
        """Prepare model and data before `Trainer.__init__` runs."""
        raise NotImplementedError

    def get_train_dataloader(self) -> DataLoader:
        """Return the batches of training; the first call may encode the text, see `cache_start`."""
        self.cache_start()
        return self._get_dataloader(
            cast(Dataset, self.train_dataset),
            "Training",
            self._train_batch_size,
            sampler_fn=self.make_sampler,
            is_training=True,
        )

    def make_sampler(self, dataset: Dataset) -> PairSampler | PairedSampler:
        """Return the order of the training rows, which is a function of seed and epoch alone."""
        strategy = self.args.train_sampling_strategy
        lengths, languages, names = lengths_and_languages(dataset)
        counts = dict(zip(names, np.bincount(languages, minlength=len(names)).tolist()))
        self.trained_text = {"rows": counts, "text": checkpoints.hash_rows(dataset, lengths)}
        # accelerate would repeat rows to fill all processes; in one process the last batch may be smaller.
        whole_batches = self.args.world_size > 1 or self.args.dataloader_drop_last
        batch = self.args.train_batch_size * self.args.world_size
        if self.args.dataloader_drop_last and len(lengths) < batch:
            raise InputError(f"dataloader_drop_last=true: {len(lengths)} rows fill no batch of {batch}. Remove it.")
        self.sampler: PairSampler | PairedSampler = PairSampler(
            lengths,
            languages,
            step_pairs=batch * self.args.gradient_accumulation_steps,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
            group_by_length=strategy == "group_by_length",
            language_sampling=self.args.language_sampling,
            alpha=self.args.language_alpha,
            shuffle=strategy != "sequential",
            multiple=batch if whole_batches else 1,
        )
        return self.sampler

    # ---- Loss ----

    def _count_items(self, batch: Batch) -> list[int]:
        """Count the items of one batch that each term of the loss is averaged over."""
        return self.objective.counts(batch)

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor:
        """Count the items of an optimizer step over its micro-batches and all processes; int64 (terms,)."""
        # The Trainer's counts labels alone, and a mean over each micro-batch would depend on how rows are divided.
        counts = torch.tensor([self._count_items(batch) for batch in batch_samples], device=device).sum(0)
        if self.args.world_size > 1:
            counts = self.accelerator.reduce(counts, reduction="sum")
        return counts

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, Counts]:
        """Return the micro-batches of an optimizer step, none for a run that had ended, and their counts."""
        if self.resumed_at_end:
            return [], None
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Counts = None
    ) -> Loss:
        """Return the micro-batch's share of the step's loss, summed over micro-batches and averaged over processes.

        Without `num_items_in_batch`, int64 (terms,), the step is this batch alone.
        """
        raise NotImplementedError

    def total(self, vectors: Vectors, counts: Counts) -> torch.Tensor:
        """Return the weighted sum of the terms of these vectors, each divided by its count, and log each."""
        with self.accelerator.autocast():
            return self.objective(vectors, self.step_counts(vectors.batch, counts), self.log_term)

    def step_counts(self, inputs: Batch, counts: Counts) -> torch.Tensor:
        """Return the counts of the optimizer step, or of this batch if it is all there is."""
        if isinstance(counts, torch.Tensor):
            return counts
        return self._get_num_items_in_batch([inputs], self.args.device)

    def training_step(self, model: nn.Module, inputs: Batch, num_items_in_batch: Counts = None) -> torch.Tensor:
        """Run the Trainer's step, and record without waiting for the device whether the loss was finite."""
        self._in_step = True
        try:
            loss = super().training_step(model, inputs, num_items_in_batch)
        finally:
            self._in_step = False
        self.not_finite |= ~torch.isfinite(loss)
        return loss

    def head(self, name: str) -> nn.Module:
        """Return the module of this name that is trained next to the encoder, such as a projection."""
        return cast(nn.ModuleDict, getattr(self.accelerator.unwrap_model(self.model), HEAD_NAME))[name]
