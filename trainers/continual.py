"""Fine-tune on a task while keeping linked words of two languages aligned (continual learning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.data.batches.sampling import (
    PAIR,
    PairedCollator,
    PairedSampler,
    PairedStreams,
    PairSampler,
    lengths_and_languages,
)
from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.encoding import check_embeddings, encode_pairs, position_limit
from hf_xalign.data.load import join_languages
from hf_xalign.data.parallel import only_language
from hf_xalign.errors import InputError
from hf_xalign.links.linking import Linking
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.packing import encode_batch
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.word_vectors import select_layers
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.objectives.term import Term, Vectors
from hf_xalign.record import Record
from hf_xalign.tasks.task import LanguageInputs
from hf_xalign.trainers.base.checkpoints import hash_rows
from hf_xalign.trainers.base.run import text_entries
from hf_xalign.trainers.base.trainer import Batch, Counts, Loss, Prepared
from hf_xalign.trainers.base.word import cache_f0, link_pairs, pair_collator, pool_layers
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.task import TaskTrainer


def _states(encoder: nn.Module, inputs: Mapping[str, torch.Tensor], layers: Sequence[int]) -> list[torch.Tensor]:
    """Return the hidden states of layers of a batch, without computing its padding where the encoder allows it."""
    depth = cast(PreTrainedModel, encoder).config.num_hidden_layers
    # They are language embeddings, which a packed row does not carry.
    if "token_type_ids" in inputs:
        output = encoder(**inputs, output_hidden_states=True)
    else:
        reruns = any(getattr(module, "gradient_checkpointing", False) for module in encoder.modules())
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        output = encode_batch(encoder, encoder, ids, mask, layers, reruns=reruns)
    return select_layers(output, layers, depth)


# Separates the pairs' random numbers from others of the same seed.
_STREAM = 7
# Inputs of the encoder among a batch's pairs.
_FED = ("input_ids", "attention_mask", "token_type_ids")


class ContinualTrainer(TaskTrainer):
    """Trainer of L = L_task + alpha (L_align + w L_reg) (CONTINUAL, Efimov et al. 2022, section 3).

    L_task is a mean over the labelled items of the whole optimizer step. L_align and L_reg are divided by the number
    of links in the step, or each by its number of words. The encoder reads the sentence pairs in a pass of their own.
    They do not change the examples, their order or their dropout ([`PairedSampler`]). Evaluation scores only the task.

    Args: (see [`AlignmentTrainer`] for the others)
        model: the task model, usually from an encoder that FAO aligned; or its Hub id or folder.
        task: the task.
        train_dataset: the task's training text, or encoded rows.
        pairs: pairs from [`~hf_xalign.load_parallel`], which are linked by the default aligner; or word-linked pairs
            from [`~hf_xalign.align_words`].
        linking: how pairs without links are linked, and how many are drawn; by default fast_align, and all.
        reference: the encoder before any alignment, which computes f0 and is frozen; or its Hub id or folder. With
            `cache_reference` it runs once over the pairs' pivot sentences.
        objective: the terms of linked words, which alpha weights; default: L_align + w L_reg, `args.terms()`.
        eval_dataset: evaluation text by language.

    Example:
        >>> from transformers import BertForSequenceClassification, BertModel
        >>> from hf_xalign.tasks import Examples, LabelSet, SequenceTask
        >>> from hf_xalign.trainers import tiny
        >>> trainer = ContinualTrainer(
        ...     BertForSequenceClassification(tiny.config), ContinualConfig(max_steps=1, report_to="none"),
        ...     task=SequenceTask(LabelSet.of(["no", "yes"])), train_dataset=Examples("file", "en", tiny.labelled),
        ...     pairs=tiny.pairs, reference=BertModel(tiny.config), processing_class=tiny.tokenizer)
        >>> trainer.train().global_step
        {'loss': ...}
        1
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "continual", "cross-lingual-alignment"]
    _paper = "efimov2022impact"
    config_class = ContinualConfig
    method = "continual"
    computes = ("links", "f0")
    args: ContinualConfig

    def __init__(
        self,
        model: str | PreTrainedModel,
        args: ContinualConfig | None = None,
        *,
        pairs: Dataset,
        reference: str | PreTrainedModel,
        linking: Linking | None = None,
        **kwargs: Any,
    ):
        # The reference is not part of the model, so that the optimizer and checkpoints leave it out.
        self._pairs, self._reference, self.linking = join_languages(pairs, "pairs"), reference, linking
        self._passes = (-1, 0)
        super().__init__(model, args, **kwargs)

    def _set_objective(self, objective: Sequence[Term] | None) -> None:
        super()._set_objective(objective)
        for term in self.objective:
            if term.gathers:
                raise InputError(f"objective: {term.name} needs the words of all processes, as only FAO gathers them")

    def _prepare(self, model: PreTrainedModel, train_dataset: Dataset) -> Prepared:
        args, pairs, reference = self.args, self._pairs, self._reference
        if isinstance(reference, str):
            with args.main_process_first(desc="loading the reference"):
                self._reference = reference = load_trainable(resolve_model(reference))
        if self.linking or "links" not in pairs.column_names:
            pairs = link_pairs(self, pairs).pairs
            if self.linking is not None and self.linking.max_pairs is not None:
                self._pairs = pairs
        check_embeddings(reference, self.processing_class)
        sizes = [(part.config.num_hidden_layers, part.config.hidden_size) for part in (reference, model)]
        if sizes[0] != sizes[1]:
            before, now = (f"{depth} layers of {size} numbers" for depth, size in sizes)
            raise InputError(f"the reference has {before}, and the model {now}. Give its encoder before alignment.")
        if {*map(id, reference.parameters())} & {*map(id, model.parameters())}:
            raise InputError(
                "the reference shares weights with the model, so it would be trained too. Give its folder or Hub id, "
                "or a copy made before adapters were added."
            )
        self.layers = layer_index(args.layers, model.config.num_hidden_layers)
        pivot = _pivot_of(pairs, model, reference)
        length = position_limit(model.config, args.max_pair_length)
        with args.main_process_first(desc="encoding pairs"):
            pairs = encode_pairs(pairs, self.processing_class, max_length=length)
        model, train_dataset, collator = super()._prepare(model, train_dataset)
        of_pairs = pair_collator(self)
        rows = LanguageInputs.of(reference).embeddings
        self._reference_row = None if rows is None else rows[cast(str, pivot)]
        cast(nn.Module, reference).to(args.device).eval().requires_grad_(False)
        if args.cache_reference and self.objective.reads("f0"):
            if rows is not None:
                raise InputError("cache_reference=true: the cache cannot use language embeddings. Remove it.")
            start = cache_f0(self, reference, pairs)
            of_pairs.reference, pairs = start.words, start.dataset
            # The cache holds all that training reads of it, so its memory is freed.
            del self._reference
        collator = PairedCollator(collator, of_pairs, language_rows=self.language_inputs.embeddings, pivot=pivot)
        return model, PairedStreams(train_dataset, pairs), collator

    def make_sampler(self, dataset: PairedStreams) -> PairedSampler:
        """Return the order of the examples, with the pairs that each step has next to them."""
        sampler = cast(PairSampler, super().make_sampler(dataset.task))
        step_pairs = max(1, round(sampler.step_pairs * self.args.pairs_per_example))
        lengths, languages, _ = lengths_and_languages(dataset.pairs)
        self.trained_text["rows"]["pairs"] = len(lengths)
        self.trained_text["text"] += hash_rows(dataset.pairs, lengths)
        stream = PairSampler(
            lengths,
            languages,
            step_pairs=step_pairs,
            seed=int(np.random.SeedSequence([sampler.seed, _STREAM]).generate_state(1)[0]),
            group_by_length=sampler.group_by_length,
            language_sampling=sampler.language_sampling,
            alpha=sampler.alpha,
            multiple=step_pairs,
        )
        share = self.args.pairs_per_example
        self.sampler = PairedSampler(sampler, stream, share=share, step_examples=sampler.step_pairs)
        return self.sampler

    def text_entries(self) -> Record:
        """Return languages and entries of the text, and those of the sentence pairs."""
        entries = super().text_entries()
        return {**entries, "data": entries["data"] | {"pairs": text_entries(self._pairs)}}

    def _task_entry(self) -> dict[str, object]:
        settings = ("alpha", "regularizer_weight", "pairs_per_example")
        return super()._task_entry() | {"continual": {name: getattr(self.args, name) for name in settings}}

    # ---- Loss ----

    def _count_items(self, batch: Batch) -> list[int]:
        _, pairs = _split(batch)
        return [self.task.count_items(batch), *(self.objective.counts(pairs) if pairs else [0] * len(self.objective))]

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Counts = None
    ) -> Loss:
        """Return L = L_task + alpha (L_align + w L_reg)."""
        counts = self.step_counts(inputs, num_items_in_batch)
        batch, pairs = _split(inputs)
        fed = {name: pairs.pop(name) for name in _FED if name in pairs}
        with self.accelerator.autocast(), self._packed(model):
            output = model(**self.task.training_inputs(batch))
        loss = self.task.loss(output, batch) * (self.args.world_size / counts[0].clamp(min=1))
        self.log_term("task", loss)
        if fed:
            vectors = self._pair_vectors(self._pair_states(model, fed), pairs)
            loss = loss + self.args.alpha * self.objective(vectors, counts[1:], self.log_term)
        else:  # every process logs every term, even if its examples came without a pair
            for term in self.objective:
                self.log_term(term.name, torch.zeros_like(loss))
        return (loss, output) if return_outputs else loss

    def _pair_states(self, model: nn.Module, inputs: Batch) -> list[torch.Tensor]:
        """Return the states of `layers` of the pairs, each (rows, width, dim), with the dropout of the settings."""
        # Not through a wrapper such as DDP, which expects one forward for each backward pass, and after it, because
        # it overwrites the model's buffers when it begins.
        encoder, device = backbone_of(self.accelerator.unwrap_model(model)), self.args.device
        devices = [] if device.type == "cpu" else [device.index or 0]
        training = encoder.training
        with (
            torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"),
            self.accelerator.autocast(),
        ):
            # Otherwise the next forward would have other dropout masks than without pairs.
            torch.manual_seed(self._pass_seed())
            try:
                encoder.train(training and self.args.pairs_dropout)
                return _states(encoder, inputs, self.layers)
            finally:
                encoder.train(training)

    def _pass_seed(self) -> int:
        """Derive the seed of the pairs' dropout from step, micro-batch and process, which a resumed run repeats."""
        step, number = self._passes
        now = self.state.global_step
        passes = (now, number + 1 if step == now else 0)
        if self._in_step:
            self._passes = passes
        words = (self.args.seed, _STREAM, *passes, self.args.process_index)
        return int(np.random.SeedSequence(words).generate_state(1)[0])

    def _pair_vectors(self, states: Sequence[torch.Tensor], pairs: Batch) -> Vectors:
        """Return f of the words of the pairs, and f0 of the pivot words: cached, or computed without gradient."""
        words = pool_layers(states, pairs, "token")
        if not self.objective.reads("f0"):
            return Vectors(pairs, words=words)
        if "reference" in pairs:
            return Vectors(pairs, words=words, f0=pairs["reference"])
        inputs = {"input_ids": pairs["kept_ids"], "attention_mask": pairs["kept_mask"]}
        if self._reference_row is not None:
            inputs["token_type_ids"] = torch.full_like(pairs["kept_ids"], self._reference_row)
        with torch.no_grad(), self.accelerator.autocast():
            before = _states(cast(nn.Module, self._reference), inputs, self.layers)
            return Vectors(pairs, words=words, f0=pool_layers(before, pairs, "kept"))


def _split(inputs: Batch) -> tuple[Batch, Batch]:
    """Return the tensors of the task, and those of the sentence pairs, which have a prefix in the batch."""
    batch, pairs = Batch(), Batch()
    for name, value in inputs.items():
        (pairs if name.startswith(PAIR) else batch)[name.removeprefix(PAIR)] = value
    return batch, pairs


def _pivot_of(pairs: Dataset, model: PreTrainedModel, reference: PreTrainedModel) -> str | None:
    """Return the pairs' target language if an encoder has language embeddings, else None."""
    embedded = [inputs for inputs in map(LanguageInputs.of, (model, reference)) if inputs.embeddings is not None]
    if not embedded:
        return None
    pivot = cast(str, only_language(pairs, "target_lang", "pairs"))
    for inputs in embedded:
        for language in (*pairs.unique("source_lang"), pivot):
            inputs.columns(language)
    return pivot
