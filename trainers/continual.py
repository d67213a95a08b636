"""Fine-tuning on a task while linked words of two languages are held together (continual learning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import Sampler
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.data.batches.sampling import PairSampler, lengths_and_languages
from hf_xalign.data.batches.streams import PairedSampler, PairedStreams
from hf_xalign.data.batches.task_and_pairs import PAIR, PairedCollator
from hf_xalign.data.batches.token_index import TokenIndex
from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.limits import position_limit
from hf_xalign.errors import InputError
from hf_xalign.losses import word_distance
from hf_xalign.modeling.pooling import layer_index, pool_words
from hf_xalign.modeling.second_pass import second_pass
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.languages import LanguageInputs
from hf_xalign.tasks.task import Task
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.shared.model_init import first_model
from hf_xalign.trainers.task import TaskTrainer

# Keeps the pairs' generator apart from the others that the same seed starts.
_STREAM = 7
# What the encoder reads of the pairs.
_FED = ("input_ids", "attention_mask", "token_type_ids")


class ContinualTrainer(TaskTrainer):
    """L = L_task + alpha (L_align + w L_reg) (CONTINUAL, Efimov et al. 2022, section 3; METHODS section 5).

    L_task is a mean over the labelled items of the whole optimizer step, L_align and L_reg are divided by its links
    (or each by its own words). The sentence pairs pass through the encoder within the model's forward over the task's
    examples ([`second_pass`]), and are a stream of their own ([`PairedSampler`]): the task's examples, their order and
    their dropout are as they would be without them. Pairs are always shuffled, and are grouped by length and sampled
    by language as the task's examples are. Evaluation is the task's alone.

    Args:
        model: the task model, as for `TaskTrainer`; as a rule from an encoder that FAO aligned.
        args: the settings.
        task: the task.
        train_dataset: the task's training text, or encoded rows.
        pairs: word-linked pairs of [`~hf_xalign.align_words`], or of `encode_pairs`.
        reference: f0, the encoder before any alignment; frozen here, never changed.
        eval_dataset: language -> evaluation text.
        processing_class: the model's fast tokenizer, which is the reference's too.
        kwargs: passed to `Trainer`.

    Raises:
        InputError: settings, models and text that do not go together.
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "continual", "cross-lingual-alignment"]
    _paper: ClassVar[dict[str, str]] = {
        "title": "The Impact of Cross-Lingual Adjustment of Contextual Word Representations on Zero-Shot Transfer",
        "id": "2204.06457",
        "citation": (
            "@article{efimov2022impact,\n"
            "  title = {The Impact of Cross-Lingual Adjustment of Contextual Word Representations on Zero-Shot "
            "Transfer},\n"
            "  author = {Efimov, Pavel and Boytsov, Leonid and Arslanova, Elena and Braslavski, Pavel},\n"
            "  journal = {arXiv preprint arXiv:2204.06457},\n"
            "  year = {2022}\n"
            "}"
        ),
    }
    args: ContinualConfig

    def __init__(
        self,
        model: PreTrainedModel | None,
        args: ContinualConfig,
        *,
        task: Task,
        train_dataset: Sequence[Examples] | Dataset,
        pairs: Dataset,
        reference: PreTrainedModel,
        eval_dataset: Mapping[str, Examples] | None = None,
        processing_class: PreTrainedTokenizerBase,
        **kwargs: Any,
    ):
        model = first_model(model, args, kwargs.get("model_init"))
        if reference.config.hidden_size != model.config.hidden_size:
            raise InputError(
                f"the reference's vectors have {reference.config.hidden_size} numbers and the model's "
                f"{model.config.hidden_size}: give the encoder that the model's was aligned from"
            )
        self.layers = layer_index(args.layers or [-1], model.config.num_hidden_layers)
        self._pivot = _pivot_of(pairs, model, reference)
        if "source_ids" not in pairs.column_names:
            with args.main_process_first(desc="encoding pairs"):
                pairs = encode_pairs(
                    pairs, processing_class, max_length=min(args.max_pair_length, position_limit(model.config))
                )
        self._pairs = pairs
        super().__init__(
            model,
            args,
            task=task,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self.train_dataset = cast(Any, PairedStreams(cast(Dataset, self.train_dataset), pairs))
        self.data_collator = PairedCollator(
            self.data_collator,
            PairCollator(
                cast(int, processing_class.pad_token_id), pooling=args.pooling, linked_tokens=args.linked_tokens
            ),
            language_rows=self.language_inputs.embeddings,
            pivot=self._pivot,
        )
        rows = LanguageInputs.of(reference).embeddings
        self._reference_row = None if rows is None else rows[cast(str, self._pivot)]
        self._passes = (-1, 0)
        # Off the model, so that neither the optimizer nor a checkpoint has it.
        self._reference = [cast(nn.Module, reference).to(args.device).eval().requires_grad_(False)]

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler | None:
        streams = cast(PairedStreams, train_dataset if train_dataset is not None else self.train_dataset)
        sampler = cast(PairSampler, super()._get_train_sampler(streams.task))
        step_pairs = max(1, round(sampler.step_pairs * self.args.pairs_per_example))
        stream = PairSampler(
            *lengths_and_languages(streams.pairs),
            step_pairs=step_pairs,
            seed=int(np.random.SeedSequence([sampler.seed, _STREAM]).generate_state(1)[0]),
            group_by_length=sampler.group_by_length,
            language_sampling=sampler.language_sampling,
            multiple=step_pairs,
        )
        paired = PairedSampler(sampler, stream, share=self.args.pairs_per_example, step_examples=sampler.step_pairs)
        self._train_sampler = cast(Any, paired)
        return self._train_sampler

    # ---- Loss ----

    def count_items(self, batch: dict[str, torch.Tensor]) -> list[int]:
        """Labelled items, links and regularised words of one batch."""
        names = ("links", "kept_words")
        return [self.task.count_items(batch), *(len(batch[name]) if (name := PAIR + n) in batch else 0 for n in names)]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """The loss of one micro-batch; its sum over the step and mean over processes is the step's loss."""
        # DDP averages gradients over processes; the counts are of all of them, so the sums are wanted back.
        shares = self.args.world_size / self.step_counts(inputs, num_items_in_batch).clamp(min=1)
        pairs = {name.removeprefix(PAIR): value for name, value in inputs.items() if name.startswith(PAIR)}
        batch = {name: value for name, value in inputs.items() if not name.startswith(PAIR)}
        fed = {name: pairs.pop(name) for name in _FED if name in pairs}
        own = self.accelerator.unwrap_model(model)
        passing = second_pass(own, fed, seed=self._pass_seed(), dropout=self.args.pairs_dropout)
        with passing as states, self.accelerator.autocast():
            output = model(**self.task.training_inputs(batch))
        if fed and not states:
            raise RuntimeError(
                f"{type(model).__name__} did not pass the sentence pairs on: a compiled model, or another wrapper "
                "that leaves hooks out, cannot be trained continually; train without it"
            )
        loss = self.task.loss(output, batch) * shares[0]
        self.log_term("task", loss)
        # Every process logs every term, also where its examples came without a pair.
        align = regularizer = torch.zeros_like(loss)
        if states:
            align, regularizer = self._alignment(states[0], pairs)
            align, regularizer = align * shares[1], regularizer * shares[2 if self.args.reduction == "words" else 1]
            loss = loss + self.args.alpha * (align + self.args.regularizer_weight * regularizer)
        self.log_term("align", align)
        self.log_term("regularizer", regularizer)
        return (loss, output) if return_outputs else loss

    def _pass_seed(self) -> int:
        """Of the pairs' dropout: step, micro-batch and process make it, so that a resumed run has it again."""
        step, number = self._passes
        now = self.state.global_step
        self._passes = (now, number + 1 if step == now else 0)
        words = (self.args.seed, _STREAM, *self._passes, self.args.process_index)
        return int(np.random.SeedSequence(words).generate_state(1)[0])

    def _alignment(
        self, hidden_states: Sequence[torch.Tensor], pairs: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over links of the distance of their words, and over pivot words of that to f0."""
        words = self._pooled(hidden_states, pairs, "token")
        reference, own = self._reference[0], {}
        if self._reference_row is not None:
            own["token_type_ids"] = torch.full_like(pairs["kept_ids"], self._reference_row)
        with torch.no_grad(), self.accelerator.autocast():
            states = reference(
                input_ids=pairs["kept_ids"], attention_mask=pairs["kept_mask"], output_hidden_states=True, **own
            ).hidden_states
            f0 = self._pooled(states, pairs, "kept")
        source, target = words[pairs["links"][:, 0]], words[pairs["links"][:, 1]]
        return self._distance(source, target).sum(), self._distance(words[pairs["kept_words"]], f0).sum()

    def _pooled(self, states: Sequence[torch.Tensor], pairs: dict[str, torch.Tensor], name: str) -> torch.Tensor:
        tokens = TokenIndex(pairs[f"{name}_index"], pairs.get(f"{name}_word"), pairs.get(f"{name}_counts"))
        return torch.stack([pool_words(states[layer], tokens) for layer in self.layers], dim=1)

    def _distance(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return word_distance(a, b, norm="squared_l2", mean_over_dims=self.args.mean_over_dims)


def _pivot_of(pairs: Dataset, model: PreTrainedModel, reference: PreTrainedModel) -> str | None:
    """The language of the pairs' target side, where an encoder has language embeddings.

    Raises:
        InputError: it is not said, or there are several; or an encoder does not know a language of the pairs.
    """
    told = [inputs for inputs in map(LanguageInputs.of, (model, reference)) if inputs.embeddings is not None]
    if not told:
        return None
    pivots = pairs.unique("target_lang") if "target_lang" in pairs.column_names else []
    if len(pivots) != 1:
        raise InputError(
            f"the pairs' target_lang is {' and '.join(map(str, pivots)) or 'not there'}: an encoder with language "
            "embeddings must be told one, so give pairs of hf_xalign.align_words, which are not encoded yet"
        )
    for inputs in told:
        for language in (*pairs.unique("source_lang"), *pivots):
            inputs.columns(language)
    return pivots[0]
