"""Base class of every trainer: batches, loss scaling, safe checkpoints, retrieval scores."""

from __future__ import annotations

import inspect
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np
import torch
from datasets import Dataset
from peft import PeftConfig, PeftModel, PromptLearningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Sampler
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    set_seed,
)
from transformers.trainer_utils import (
    BestRun,
    IntervalStrategy,
    TrainOutput,
    number_of_arguments,
    rotate_checkpoints,
)
from transformers.utils import ADAPTER_SAFE_WEIGHTS_NAME

from hf_xalign.cache import check_output, disk_errors, follow_umask, hold_folder
from hf_xalign.data.batches.masked import EpochCollator
from hf_xalign.data.batches.sampling import LanguageBandit, PairSampler, lengths_and_languages
from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.encoding import check_pieces, set_prompt
from hf_xalign.data.load import join_languages
from hf_xalign.data.parallel import only_language
from hf_xalign.distributed import local_shard, own_storage, shard_like
from hf_xalign.environment import warn_of_spinning_threads
from hf_xalign.errors import InputError, NonFiniteLossError, explained, suggestion
from hf_xalign.evaluation.scores import Protocol, Scores, score_retrieval
from hf_xalign.modeling.checkpoint import HEAD_NAME, carried_weights, load_encoder, load_weights, save_encoder
from hf_xalign.modeling.export import LENGTH_FILE, open_sentence_transformer, read_length
from hf_xalign.modeling.freezing import find_switches, note_switched, switch_back
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.modeling.mlm_head import MaskedLMHead
from hf_xalign.modeling.xalign.config import SKETCH, XAlignConfig, base_of, changed_start, sketch_base
from hf_xalign.objectives.term import Objective, Read, Term, Vectors
from hf_xalign.record import write_text
from hf_xalign.trainers.base import checkpoints, fsdp
from hf_xalign.trainers.base.alignment_config import AlignmentConfig, check_optimizer, check_optimizers
from hf_xalign.trainers.base.hub import HubTrainer
from hf_xalign.trainers.base.probes import Probe
from hf_xalign.trainers.base.run import Reporting, Run, given_entries
from hf_xalign.trainers.base.tracking import use_tracker

logger = logging.getLogger(__name__)

_HEAD_FILE = f"{HEAD_NAME}.safetensors"
# Arguments that every trial of a search has of its own; `__class__` is Python's.
_OF_ONE_TRIAL = {"self", "model", "args", "model_init", "__class__"}
ModelInit = Callable[..., PreTrainedModel]


def make_model(model_init: ModelInit, args: AlignmentConfig, trial: Any = None) -> PreTrainedModel:
    """Call `model_init` with the seed of `args`; a function with one argument gets the trial of the search."""
    set_seed(args.seed)
    return model_init(trial) if number_of_arguments(model_init) == 1 else model_init()


def open_model(
    model: Any, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a model that was given, of a `SentenceTransformer` its encoder, and its tokenizer."""
    if isinstance(model, nn.Sequential):
        model, own_tokenizer = open_sentence_transformer(model)
        tokenizer = tokenizer or own_tokenizer
    if not isinstance(model, nn.Module):
        raise InputError(f"model is {model!r:.80}. Give a model, or the Hub id or folder to load it from.")
    encoder = cast(PreTrainedModel, model)
    if tokenizer is None:
        if not encoder.name_or_path:
            raise InputError("this model has no checkpoint with a tokenizer. Give processing_class.")
        tokenizer = load_tokenizer(encoder.name_or_path, revision=getattr(encoder.config, "_commit_hash", None))
    return encoder, tokenizer


def base_name(model: PreTrainedModel) -> str:
    """Return the Hub id or folder of an encoder or of the encoder below adapters, or `new` if it has none."""
    return base_of(model).name_or_path or "new"


def _adapter_faults(model: PreTrainedModel, added: PeftConfig | None) -> Iterator[str]:
    """Yield what is wrong with the adapters in a model, or with one to add to it."""
    encoder = base_of(model)
    configs = getattr(model, "peft_config", {})
    foreign = any(not isinstance(config, XAlignConfig) for config in configs.values())
    if configs and encoder is model and (foreign or model.base_model is model):  # others belong to the model's task
        yield (
            f"this {type(model).__name__} has an adapter inside, put there by add_adapter, PEFT or a trainer. Give "
            "the PeftModel (of a trainer: trainer.model), or load the encoder again."
        )
    if added is not None and configs:
        yield "peft_config: the model is a PeftModel already. Give its base, or remove peft_config."
    for config in configs.values() if added is None else [added]:
        if isinstance(config, PromptLearningConfig):
            yield (
                f"peft_config: {config.peft_type} puts vectors before a sentence and leaves the encoder as it is. Use "
                "LoRA, or another adapter of the encoder's layers."
            )
        if encoder.base_model is encoder and config.task_type not in (None, "FEATURE_EXTRACTION"):
            yield f"peft_config: task_type={config.task_type} is for a model with a head. Leave it out."


def _check_precision(model: PreTrainedModel) -> None:
    """Raise an InputError for trained weights in float16, and warn of bfloat16, in which small steps are lost."""
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    remedy = "Load the model with dtype=torch.float32, and set bf16=true for speed"
    if torch.float16 in kinds:
        raise InputError(f"the weights are float16, which the optimizer cannot train. {remedy}.")
    if torch.bfloat16 in kinds:
        logger.warning("the weights are bfloat16: steps of less than 0.2%% of a weight are lost. %s", remedy)


def _sketch_of_base(model: PreTrainedModel) -> str | None:
    """Return the fingerprint of the encoder below a `PeftModel`'s adapters, unless their config has it."""
    if not isinstance(model, PeftModel):
        return None
    for config in cast(Any, model).peft_config.values():
        if isinstance(config, XAlignConfig) or changed_start(config):
            return None
    return sketch_base(model)


class AlignmentTrainer(HubTrainer):
    """Base class of all trainers.

    A method overrides `_prepare`, and `_vectors`, which computes what the terms of its loss read. Each term is divided
    by its count over the whole optimizer step and logged. A loss that is not a list of terms overrides `_count_items`
    and `_loss`, and reports its terms with [`log_term`]. Batches, loss and scores are the method's: in place of the
    Trainer's `data_collator`, `compute_loss_func` and `compute_metrics`, override `_prepare`, `compute_loss` and
    `evaluate` in a subclass.

    Args:
        model: the encoder, changed in place (`PreTrainedModel`, a `PeftModel` around one, or a `SentenceTransformer`
            of one and its pooling); or the Hub id or folder to load it from, in float32 and from safetensors
            (`builtin` for the one that comes with the library).
        args: the method's config; by default one with its defaults.
        train_dataset: encoded pairs, with `length` and `source_lang` columns.
        eval_dataset: word-linked pairs (`source_words`, `target_words`, `links`, `source_lang`), scored by word
            retrieval for each language; or a dict of them by language.
        processing_class: the fast tokenizer; by default that of the model's checkpoint.
        objective: the terms of the loss, for methods whose loss is a list of [`~hf_xalign.objectives.Term`].
        peft_config: adapter that is added to the encoder and trained instead of its weights.
        callbacks: callbacks of transformers, in addition to the Trainer's own.
        optimizers: optimizer and learning-rate schedule, for a model that is given as an object.
        optimizer_cls_and_kwargs: class and options of the optimizer, which gets all trained weights.
        model_init: function that returns a model for each trial of a search. It also makes this trainer's model if
            `model` is None.
        name: name of the encoder in record and card, by default that of its checkpoint.
        probes: labelled text of [`~hf_xalign.trainers.base.probes.read_probes`], by which the frozen vectors are
            probed before and after training.
        protocols: protocols that word retrieval is scored by before and after training.
        reporting: what a script adds to the record of the run.

    Raises:
        InputError: settings that do not fit the model, the tokenizer or the data; or, before anything is loaded by id
            or linked, an output folder that holds another run.
    """

    # compute_loss divides by counts of the whole optimizer step, so the Trainer must not divide again by its number
    # of micro-batches. (The default None guesses from the model's signature and the batch's keys.)
    loss_is_scaled_for_ga = True
    config_class: ClassVar[type[AlignmentConfig]]
    _tag_names: ClassVar[list[str]] = ["hf_xalign"]
    _paper: ClassVar[dict[str, str]] = {}
    # True if the method supports FSDP2.
    can_shard: ClassVar[bool] = False
    # False if the encoder is frozen below a module, so that its weights may have any type.
    trains_encoder: ClassVar[bool] = True
    # True if training starts from a module with random weights, so that scores before it are not the encoder's.
    random_start: bool = False
    # True if a run scores the model before training.
    scores_start: ClassVar[bool] = True
    # True if the scores before and after training are the ends of the curve, which `evaluate` then reports.
    scores_ends: ClassVar[bool] = True
    # Short name of the method in the record of a run.
    method: ClassVar[str] = ""
    # Scores before and after training, with the record that `save_model` writes; None without an evaluation set.
    run: Run | None = None
    # Set by `_prepare` of a method that averages its weights with those before training.
    _average: checkpoints.AverageAtEnd | None = None
    processing_class: PreTrainedTokenizerBase
    model: PreTrainedModel
    args: AlignmentConfig
    # Terms of the loss, for methods whose loss is a list of them, and what these may read.
    objective: Objective | None = None
    computes: ClassVar[tuple[Read, ...]] = ()
    # Arguments of this trainer, from which a search makes others; a subclass adds its own.
    arguments: Mapping[str, Any] = MappingProxyType({})
    # Term of the loss that grows by design, so that its growth is not a sign of divergence.
    _growing_term: str = ""
    # True if `cache_start` was called.
    _start_cached: bool = False
    # Numbers of training rows by language as `rows`, and their hash as `text`.
    _trained_text: dict[str, Any]
    # True inside `training_step`; other calls of `compute_loss` are not logged.
    _in_step: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show a constructor's `**kwargs` as the arguments of the base class that takes them."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            signature, base = inspect.signature(cls.__init__), inspect.signature(super(cls, cls).__init__)
            parameters = {p.name: p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
            if len(parameters) < len(signature.parameters):
                parameters = {**parameters, **base.parameters, **parameters}
                cast(Any, cls.__init__).__signature__ = signature.replace(parameters=list(parameters.values()))

    def __init__(
        self,
        model: str | PreTrainedModel | None = None,
        args: AlignmentConfig | None = None,
        *,
        train_dataset: Any,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        objective: Sequence[Term] | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Optimizer | None, LambdaLR | None] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[Optimizer], dict[str, Any]] | None = None,
        model_init: ModelInit | None = None,
        name: str | None = None,
        probes: Sequence[Probe] = (),
        protocols: Sequence[Protocol] = (Protocol(),),
        reporting: Reporting | None = None,
    ):
        arguments = {name: value for name, value in locals().items() if name not in _OF_ONE_TRIAL}
        start = time.perf_counter()
        args = self.config_class() if args is None else args
        if not isinstance(args, self.config_class):
            name, wanted = type(self).__name__, self.config_class.__name__
            raise InputError(f"args is a {type(args).__name__}: {name} needs {wanted}")
        self.args = args
        check_optimizers(args, model, optimizers, optimizer_cls_and_kwargs)
        self._set_objective(objective)
        # The Trainer would replace the prepared model by a new one.
        self.make_model = model_init
        if model_init is not None:
            self.arguments = {**self.arguments, **arguments}
        if eval_dataset is None and args.eval_strategy != IntervalStrategy.NO:
            strategy = IntervalStrategy(args.eval_strategy).value
            raise InputError(f"eval_strategy={strategy}: there is nothing to score. Give eval_dataset.")
        check_output(args.output_dir)
        fsdp.check_sharding(args, self.can_shard)
        base_model, model, processing_class = self._open_model(model, processing_class)
        for fault in _adapter_faults(model, peft_config):
            raise InputError(fault)
        if switch_back(model):
            logger.info("weights that an earlier trainer froze, and its dropout, are as they were before it")
        if peft_config is not None:
            with explained(f"peft_config: PEFT cannot put it on {type(model).__name__}", ValueError):
                model = cast(PreTrainedModel, get_peft_model(model, peft_config))
        if args.push_to_hub:
            self._check_push(model)
        if self.trains_encoder:
            _check_precision(model)
        if prompt := getattr(args, "prompt", None):
            set_prompt(processing_class, prompt)
        args.check_model(model, processing_class, self.objective)
        if args.bf16 and args.device.type == "cpu" and model.config._attn_implementation == "sdpa":
            # In bfloat16, the backward pass of torch's fused kernel is several times slower
            # (benchmarks/cpu_arithmetic.py).
            model.set_attn_implementation("eager")
        train_dataset = self._read(train_dataset, "train_dataset")
        eval_dataset = None if eval_dataset is None else self._read(eval_dataset, "eval_dataset")
        self.eval_dataset, self.processing_class = eval_dataset, processing_class
        # True if the method keeps a record and the settings want it.
        self._recorded = bool(args.record and self.method)
        self._given = train_dataset if self._recorded and eval_dataset is not None else None
        if fsdp.wants_sharding(args):
            # Sharding moves the model to its device in parts, because it may not fit there next to its frozen copy.
            cast(nn.Module, model).to("cpu")
        opened, switches = model, find_switches(model)
        model, train_dataset, collator = self._prepare(model, train_dataset)
        # Another model holds this one below an adapter, and sharding replaces the weights.
        if model is opened and not fsdp.wants_sharding(args):
            note_switched(model, switches)
        held_out = self.eval_dataset
        if isinstance(held_out, Dataset) and {"source", "source_words"} & {*held_out.column_names}:
            check_pieces(held_out, processing_class, "eval_dataset")
        # Weights of unused heads are kept in memory, because the base's folder may be gone when the run ends.
        self._prefix, self._carried = ("", {}) if hasattr(model, "peft_config") else carried_weights(model)
        self._sketch = _sketch_of_base(model)
        self._length = {} if hasattr(model, "peft_config") else read_length(model.config)
        callbacks = [*filter(None, [self._average]), checkpoints.StepEnd(self.advance), *(callbacks or [])]
        if args.early_stopping_patience is not None:
            callbacks.append(EarlyStoppingCallback(args.early_stopping_patience))
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
            optimizers=optimizers,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
        )
        if self.is_deepspeed_enabled:
            raise InputError("DeepSpeed is not supported. Use DDP, or fsdp=true for an encoder that no GPU can hold.")
        if args.fsdp and not self.is_fsdp_enabled:
            raise InputError("fsdp=true shards the weights over GPUs, but this run is on CPUs. Remove it.")
        if self.is_fsdp_enabled:
            fsdp.settle_plugin(self.accelerator, self.model)
        if self.optimizer is not None:
            check_optimizer(self.optimizer, self.model)
        use_tracker(self)
        self._term_sums: dict[str, torch.Tensor] = {}
        self._terms_since = 0
        self._not_finite = torch.zeros((), dtype=torch.bool, device=self.args.device)
        self._trained = False
        self._complete()
        if self._recorded and self._has_scores():
            seconds = time.perf_counter() - start
            options: Any = {"probes": probes, "protocols": protocols, "reporting": reporting}
            self.run = Run(self, name or base_model, seconds, **options)

    def _set_objective(self, objective: Sequence[Term] | None) -> None:
        """Store the terms of the loss, by default those of the settings, before anything is loaded."""
        args: Any = self.args
        if objective is not None and not args.LOSS:
            raise InputError(f"objective: the loss of {type(self).__name__} is not a list of terms. Remove it.")
        if objective is not None:
            args.refuse_unused("objective= defines the loss. Set this in its terms.", *args.LOSS)
        if args.LOSS:
            self.objective = Objective(args.terms() if objective is None else objective)
            reason = f"which {type(self).__name__} does not compute. Use {', '.join(self.computes)}."
            self.objective.require(self.computes, reason)

    def _open_model(
        self, model: str | PreTrainedModel | None, tokenizer: PreTrainedTokenizerBase | None
    ) -> tuple[str, PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the name of the encoder (or `new`), the model, loaded or made if need be, and its tokenizer."""
        if model is None:
            if self.make_model is None:
                raise InputError("model is None. Give a model, or model_init, a function that returns one.")
            model = make_model(self.make_model, self.args)
        if isinstance(model, str):
            checkpoints.check_output_dir(self.args)
            with self.args.main_process_first(desc="loading the model"):
                path = resolve_model(model)
                tokenizer = tokenizer or load_tokenizer(path)
                return model, self._load_model(path), tokenizer
        model, tokenizer = open_model(model, tokenizer)
        return base_name(model), model, tokenizer

    def _complete(self) -> None:
        """Make the method's parts in addition to the model, when the Trainer is made."""

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> BestRun:
        """Search for the best settings with Optuna; every trial gets a new model from `model_init`.

        See [`~hf_xalign.trainers.base.search.search_settings`] for the arguments, which are the Trainer's.
        """
        from hf_xalign.trainers.base.search import search_settings

        return search_settings(self, *args, **kwargs)

    def _load_model(self, path: str) -> PreTrainedModel:
        """Load the model of a Hub id or folder."""
        return load_encoder(path)

    # ---- Data ----

    def _read(self, data: Any, name: str) -> Any:
        """Return the dataset of this name, with translations as columns; raise an InputError if it is not one.

        Its rows have one pivot.
        """
        pairs = join_languages(data, name)
        only_language(pairs, "target_lang", name)
        return pairs

    def _prepare(self, model: PreTrainedModel, train_dataset: Any) -> tuple[PreTrainedModel, Any, Any]:
        """Return the model to train, its encoded data and their collator, before `Trainer.__init__` runs."""
        raise NotImplementedError

    def cache_start(self) -> None:
        """Compute and store the vectors of the encoder before training that the training reads, once.

        `train` calls this after the scores before training, so that their table is printed first.
        """
        if self._start_cached:
            return
        self._start_cached = True
        model = self.accelerator.unwrap_model(self.model)
        home = next(model.parameters()).device  # sharded weights wait on the CPU
        cast(nn.Module, model).to(self.args.device)
        self._encode_start(model)
        cast(nn.Module, model).to(home)

    def _encode_start(self, model: PreTrainedModel) -> None:
        """Encode the training text by the model before training, if the settings cache its vectors."""

    def get_train_dataloader(self) -> DataLoader:
        """Return the batches of training; the first call may encode the text, see `cache_start`."""
        self.cache_start()
        return super().get_train_dataloader()

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler | None:
        dataset = train_dataset if train_dataset is not None else self.train_dataset
        strategy = self.args.train_sampling_strategy
        lengths, languages, names = lengths_and_languages(dataset)
        counts = dict(zip(names, np.bincount(languages, minlength=len(names)).tolist()))
        self._trained_text = {"rows": counts, "text": checkpoints.hash_rows(dataset, lengths)}
        # accelerate would repeat rows to fill all processes; in one process the last batch may be smaller.
        whole_batches = self.args.world_size > 1 or self.args.dataloader_drop_last
        batch = self.args.train_batch_size * self.args.world_size
        if self.args.dataloader_drop_last and len(lengths) < batch:
            raise InputError(f"dataloader_drop_last=true: {len(lengths)} rows fill no batch of {batch}. Remove it.")
        self._train_sampler = PairSampler(
            lengths,
            languages,
            step_pairs=batch * self.args.gradient_accumulation_steps,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
            group_by_length=strategy == "group_by_length",
            language_sampling=self.args.language_sampling,
            alpha=self.args.language_alpha,
            bandit=self._make_bandit(names) if self.args.language_sampling == "ucb" else None,
            shuffle=strategy != "sequential",
            multiple=batch if whole_batches else 1,
        )
        return self._train_sampler

    def _make_bandit(self, languages: list[str]) -> LanguageBandit:
        """Return a new bandit over these languages, which learns from the loss of each."""
        raise NotImplementedError

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # A run resumed at its end would take one more step: the Trainer looks for the end only after a step.
        if kwargs["resume_from_checkpoint"] is not None and self._has_ended():
            self.control.should_training_stop = True
            return
        # In a resumed run of several processes, accelerate's wrappers hide the sampler from `set_epoch`.
        self._train_sampler.set_epoch(kwargs["epoch"])
        if isinstance(self.data_collator, EpochCollator):
            self.data_collator.set_epoch(kwargs["epoch"])
        super()._run_epoch(*args, **kwargs)

    def _has_ended(self) -> bool:
        callbacks = (c for c in self.callback_handler.callbacks if isinstance(c, EarlyStoppingCallback))
        stopped = any(c.early_stopping_patience_counter >= c.early_stopping_patience for c in callbacks)
        return stopped or self.state.global_step >= self.state.max_steps

    def _prepare_for_training(self, *args: Any) -> Any:
        if self.is_fsdp_enabled:
            # accelerate does not wrap the forward of a sharded model into autocast.
            self.accelerator.prepare_model(self.model, device_placement=False, evaluation_mode=True)
        prepared = super()._prepare_for_training(*args)
        if self.is_fsdp_enabled:
            fsdp.record_states(self.model)
        return prepared

    # ---- Loss ----

    def _count_items(self, batch: dict[str, torch.Tensor]) -> list[int]:
        """Count the items of one batch that each term of the loss is averaged over."""
        return cast(Objective, self.objective).counts(batch)

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor:
        """Count the items of an optimizer step over its micro-batches and all processes; int64 (terms,)."""
        counts = torch.tensor([self._count_items(batch) for batch in batch_samples], device=device).sum(0)
        if self.args.world_size > 1:
            counts = self.accelerator.reduce(counts, reduction="sum")
        return counts

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return the micro-batch's share of the step's loss, summed over micro-batches and averaged over processes.

        Without `num_items_in_batch`, int64 (terms,), the step is this batch alone.
        """
        loss, output = self._loss(model, inputs, self._step_counts(inputs, num_items_in_batch))
        return (loss, output) if return_outputs else loss

    def _loss(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], counts: torch.Tensor
    ) -> tuple[torch.Tensor, Any]:
        """Return the loss and the encoder's output; `counts` are those of the step, int64 (terms,)."""
        computed, output = self._vectors(model, inputs)
        vectors = Vectors(inputs, heads=self._head, **computed)
        with self.accelerator.autocast():
            return cast(Objective, self.objective)(vectors, counts, self.log_term), output

    def _vectors(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[dict[str, Any], Any]:
        """Return what the terms read, by its name in [`Vectors`], and the encoder's output."""
        raise NotImplementedError

    def _step_counts(self, inputs: dict[str, torch.Tensor], counts: torch.Tensor | int | None) -> torch.Tensor:
        if isinstance(counts, torch.Tensor):
            return counts
        return self._get_num_items_in_batch([inputs], self.args.device)

    def training_step(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Run the Trainer's step, and record without waiting for the device whether the loss was finite."""
        self._in_step = True
        try:
            loss = self._step(model, inputs, num_items_in_batch)
        finally:
            self._in_step = False
        self._not_finite |= ~torch.isfinite(loss)
        return loss

    def _step(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor:
        """Run forward and backward of one micro-batch, and return its detached loss."""
        return super().training_step(model, inputs, num_items_in_batch)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Make the schedule, and warn if the learning rate of every step is 0."""
        schedule = super().create_scheduler(num_training_steps, optimizer)
        if isinstance(schedule, torch.optim.lr_scheduler.LambdaLR) and self.is_world_process_zero():
            factors = [factor for rate, factor in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True) if rate]
            if not any(factor(step) for step in range(num_training_steps) for factor in factors):
                logger.warning(
                    "This run trains nothing: the learning rate of every step (%d in all) is 0, as in the first of "
                    "warm-up. Take more steps, warmup_steps=0 or another learning_rate.",
                    num_training_steps,
                )
        return schedule

    def _head(self, name: str) -> nn.Module:
        return cast(nn.ModuleDict, getattr(self.accelerator.unwrap_model(self.model), HEAD_NAME))[name]

    def log_term(self, name: str, value: torch.Tensor) -> None:
        """Add this micro-batch's share of a term, which is logged as `loss/<name>`, a mean over steps.

        Outside a training step, as in a callback, nothing is logged.
        """
        if not self._in_step:
            return
        if not self._term_sums:
            self._terms_since = self.state.global_step
        self._term_sums[name] = self._term_sums.get(name, torch.zeros_like(value.detach())) + value.detach()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, adding each term to a row that has the loss."""
        if "loss" in logs and self._term_sums:
            steps = self.state.global_step - self._terms_since
            for name, total in self._term_sums.items():
                logs[f"loss/{name}"] = self.accelerator.reduce(total, reduction="mean").item() / steps
            self._term_sums = {}
        super().log(logs, start_time)

    def loss_change(self) -> dict[str, float] | None:
        """Return the `first` and `last` logged loss, or None if there are fewer than two.

        The first is of one step, the last a mean over the steps since the log before it. PPA's contrast with a queue
        that starts empty, which grows as the queue fills, is left out.
        """
        losses = []
        for row in self.state.log_history:
            terms = [row[name] for name in row if name.startswith("loss/") and name != f"loss/{self._growing_term}"]
            if "loss" in row and (terms or not self._growing_term):
                losses.append(sum(terms) if self._growing_term else row["loss"])
        return {"first": losses[0], "last": losses[-1]} if len(losses) > 1 else None

    def advance(self) -> None:
        """Update what follows the weights, after each optimizer step and before anything is logged or saved."""

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        if self.args.logging_strategy != "no" and (self.state.global_step == 1 or self._has_ended()):
            self.control.should_log = True
        if self.control.should_log or self.control.should_save or self.control.should_evaluate:
            self._stop_if_not_finite()
        if self._run_scores_ends and not self.args.load_best_model_at_end and self._has_ended():
            self.control.should_evaluate = False
        super()._maybe_log_save_evaluate(*args, **kwargs)

    @property
    def _run_scores_ends(self) -> bool:
        return self.run is not None and bool(self.run.record) and self.scores_ends

    def _stop_if_not_finite(self) -> None:
        weights_bad = ~torch.stack(
            [torch.isfinite(local_shard(p.detach())).all() for p in self.model.parameters() if p.requires_grad]
        ).all()
        bad = (self._not_finite | weights_bad).float()
        if self.args.world_size > 1:
            bad = self.accelerator.reduce(bad, reduction="sum")
        if bad.item() > 0:
            checkpoint = checkpoints.last_complete_checkpoint(self.args.output_dir) or "none"
            raise NonFiniteLossError(
                f"the loss or a weight became NaN or infinite at or before step {self.state.global_step}; last "
                f"complete checkpoint: {checkpoint}. Start over with a lower learning_rate or max_grad_norm=1.0, or "
                "resume with bf16 instead of fp16."
            )

    # ---- Scores ----

    def evaluate(
        self,
        eval_dataset: Dataset | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Compute and log the method's scores of the evaluation set.

        Every process computes the same scores, so that all decide the same about early stopping.

        Returns:
            `<prefix>_<name>` for each score. Methods that align words or sentences return fractions between 0 and 1:
            `<lang>_retrieval_<pooling>` (mean of both directions), the same with `_to_pivot` and `_from_pivot`, and
            `retrieval`, the mean over languages.
        """
        dataset = eval_dataset if eval_dataset is not None else self.eval_dataset
        if dataset is None:
            raise InputError("evaluate() needs an eval_dataset")
        dataset = self._read(dataset, "eval_dataset")
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self._metrics(dataset).items()}
        if self.is_in_train and (best_metric := self.args.metric_for_best_model) is not None:
            best_metric = f"eval_{best_metric.removeprefix('eval_')}"
            if best_metric not in metrics:  # raised before the first step, which is scored too
                hint = suggestion(best_metric, metrics) or f": choose one of {', '.join(metrics)}"
                raise InputError(f"metric_for_best_model={best_metric}: there is no such score{hint}")
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _metrics(self, dataset: Dataset) -> dict[str, float]:
        """Return the scores of `evaluate` without prefix."""
        name = self.headline(self.args)
        scores = (self.run and self.run.known(dataset)) or self._score(dataset)
        metrics = {
            f"{language}_{key}": values[key]
            for language, values in scores.items()
            for key in (name, f"{name}_to_pivot", f"{name}_from_pivot")
        }
        return metrics | {"retrieval": float(np.mean([values[name] for values in scores.values()]))}

    @staticmethod
    def headline(args: Any) -> str:
        """Return the name of the headline score under these settings."""
        return f"retrieval_{args.eval_pooling}"

    def _score(self, dataset: Dataset) -> Scores:
        """Return the scores of each language."""
        return self._score_by(score_retrieval, dataset, poolings=(self.args.eval_pooling,))

    def _score_by(self, score: Callable[..., Scores], dataset: Dataset, **options: Any) -> Scores:
        """Call a function of `hf_xalign.evaluation.scores` in the precision of training."""
        return score(
            self.accelerator.unwrap_model(self.model),
            self.processing_class,
            dataset,
            batch_size=self.args.per_device_eval_batch_size,
            dtype=torch.bfloat16 if self.args.bf16 else None,
            desc=f"Scoring step {self.state.global_step}",
            **options,
        )

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an InputError: batches have no labels to predict."""
        raise InputError("predict: there is nothing to predict. Score by evaluate(dataset), or apply trainer.model.")

    # ---- Checkpoints ----

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train; `resume_from_checkpoint=True` resumes from the last complete checkpoint. Default: the config's.

        Raises:
            InputError: the output folder holds another run, and the settings neither resume nor overwrite it.
            NonFiniteLossError: the loss became NaN or infinite.
        """
        output_dir = self.args.output_dir
        if self._trained:
            checkpoint = checkpoints.resolve_resume(resume_from_checkpoint, self.args)
        else:
            checkpoint = checkpoints.check_output_dir(self.args, resume_from_checkpoint)
        if self.args.device.type == "cpu" and self.args.local_process_index == 0:
            warn_of_spinning_threads()
        if self.args.should_save:
            hold_folder(output_dir)
        self.accelerator.wait_for_everyone()
        if self.args.should_save and checkpoint:
            checkpoints.remove_incomplete(output_dir)
        elif self.args.should_save and self.args.overwrite_output_dir and not self._trained:
            checkpoints.clear_run(output_dir)
        self.accelerator.wait_for_everyone()
        self._trained, self._term_sums = True, {}  # sums of steps outside the run
        run = self.run if trial is None else None
        if run is not None:
            run.start()
        with run.phase("preparing") if run is not None else nullcontext():
            self.cache_start()  # before weights of a checkpoint are loaded
        with run.phase("training") if run is not None else nullcontext():
            result = super().train(checkpoint, trial, ignore_keys_for_eval)
        self._stop_if_not_finite()
        if self.run is not None and trial is None and not self.is_fsdp_enabled:
            self.run.score_end()
        scored = (int(row["step"]) for row in self.state.log_history if self.args.headline in row)
        if self.args.eval_on_start and not self._run_scores_ends and max(scored, default=-1) < self.state.global_step:
            self.evaluate()
        return result

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; after training, also score it and write `results.json`, pictures and the model card.

        Without an evaluation set, or with `record=False`, the folder has the model and the tokenizer alone.
        """
        super().save_model(output_dir, _internal_call=True)
        folder = self.args.output_dir if output_dir is None else output_dir
        if self.run is not None and self.run.record and not Path(folder).name.startswith("checkpoint-"):
            self.run.finish(Path(folder))
        elif self._trained and self.run is None and self._recorded and self.args.should_save and not _internal_call:
            logger.warning("%s: no eval_dataset was given, so there are no scores, no record and no card", folder)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(revision=self.args.hub_revision)

    def formula(self) -> str:
        """Return the objective as plain text."""
        formula = cast(Any, self.args).formula
        return formula() if self.objective is None else formula(self.objective)

    def _has_scores(self) -> bool:
        """Return whether the run has text to be scored on."""
        return self.eval_dataset is not None

    def text_entries(self) -> dict[str, Any]:
        """Return languages, pivot and text entries as arguments of [`~hf_xalign.record.start_record`]."""
        return given_entries(self._given, cast(Dataset, self.eval_dataset))

    def last_entries(self) -> dict[str, Any]:
        """Return further entries of the record of a finished run."""
        return {}

    def score_held_out(self, model: PreTrainedModel, when: str) -> Iterator[Scores]:
        """Score a stage of the run on the evaluation set, by language, and keep its vectors in `run`.

        The first scores before training are shown before the others are computed.
        """
        raise NotImplementedError

    def keep_held_out(self, folder: Path) -> dict[str, str]:
        """Save the evaluation set, and return {description: file}."""
        return {}

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        run_dir = self._get_output_dir(trial=trial)
        folder = Path(run_dir) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            (folder / checkpoints.COMPLETE).unlink(missing_ok=True)  # of a damaged checkpoint of this step
        # Older checkpoints may be deleted only when this one is complete, so rotation waits for the mark.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            with self._saving(folder):
                super()._save_checkpoint(model, trial)
                if (head := getattr(self.model, HEAD_NAME, None)) is not None:
                    state = fsdp.full_state(head.state_dict())
                    if self.args.should_save:
                        save_file(state, folder / _HEAD_FILE)
                        follow_umask(folder)
        except InputError:
            shutil.rmtree(folder, ignore_errors=True)  # frees the space of the incomplete checkpoint
            raise
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            checkpoints.mark_complete(folder, self._trained_text)
            rotate_checkpoints(run_dir, limit, self.state.best_model_checkpoint, use_mtime=True)

    def _saving(self, folder: Path) -> AbstractContextManager[None]:
        """Turn the error of a full disk into an InputError with the needed space and how to resume."""
        size = sum(p.numel() * p.element_size() for p in self.model.parameters() if p.requires_grad)
        return disk_errors(
            folder,
            f"a checkpoint needs about {3 * size / 1e9:.1f} GB (weights and optimizer). Free space, and resume by "
            "resume_from_checkpoint=true from the last complete checkpoint",
        )

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        for head in getattr(self.accelerator.unwrap_model(self.model), HEAD_NAME, {}).values():
            if isinstance(head, MaskedLMHead):  # replaces that of the original checkpoint; all processes gather it
                self._carried = head.put_into(self._carried)
        # The Trainer pickles the arguments. Resuming does not read them, so JSON is enough.
        if not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir)
        state_dict = state_dict and {name: own_storage(tensor) for name, tensor in state_dict.items()}
        with self._saving(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._save_weights(folder, state_dict)
            follow_umask(folder)
            self.processing_class.save_pretrained(folder)
        write_text(folder / checkpoints.ARGUMENTS, self.args.to_json_string() + "\n")

    def _save_weights(self, folder: Path, state_dict: dict | None) -> None:
        if hasattr(self.model, "peft_config"):
            self.model.save_pretrained(folder, state_dict=state_dict)
            if self._sketch:
                for path in folder.rglob(ADAPTER_SAFE_WEIGHTS_NAME):
                    if not path.relative_to(folder).parts[0].startswith("checkpoint-"):
                        save_file(load_file(path), path, metadata={"format": "pt", SKETCH: self._sketch})
        else:
            save_encoder(self.model, folder, self._prefix, self._carried, state_dict)
            if self._length:
                write_text(folder / LENGTH_FILE, json.dumps(self._length) + "\n")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        model = self.model if model is None else cast(PreTrainedModel, model)
        if hasattr(model, "peft_config"):
            checkpoints.check_same_adapter(cast(Any, model), resume_from_checkpoint)
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            load_weights(model, resume_from_checkpoint, self._prefix)
        if (head := getattr(model, HEAD_NAME, None)) is not None:
            state, like = load_file(os.path.join(resume_from_checkpoint, _HEAD_FILE)), head.state_dict()
            head.load_state_dict({name: shard_like(tensor, like[name]) for name, tensor in state.items()})

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        fsdp.save_optimizer(self, Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None and not self.args.ignore_data_skip:
            checkpoints.check_same_text(checkpoint, self._trained_text)
        if not self.is_fsdp_enabled or checkpoint is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        fsdp.load_optimizer(self, Path(checkpoint))

    def _load_best_model(self) -> None:
        logger.info("restoring the best checkpoint, %s", self.state.best_model_checkpoint)
        self._load_from_checkpoint(cast(str, self.state.best_model_checkpoint))
