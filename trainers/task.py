"""Fine-tuning on a task in one language (or several), scored on many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import disable_dropout, freeze
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.languages import LanguageInputs
from hf_xalign.tasks.models import freeze_encoder
from hf_xalign.tasks.prediction import score_languages
from hf_xalign.tasks.task import Task, TaskScores
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.model_init import first_model
from hf_xalign.trainers.task_config import TaskConfig


class TaskTrainer(AlignmentTrainer):
    """L = -log p(label), a mean over labelled words or examples of the whole optimizer step and all processes.

    Args:
        model: the task model, of [`~hf_xalign.tasks.load_task_model`].
        args: the settings.
        task: the task.
        train_dataset: the training text of each language; or rows that the task has encoded.
        eval_dataset: language -> evaluation text.
        processing_class: the model's fast tokenizer.
        kwargs: passed to `Trainer`.

    Attributes:
        language_inputs: what the model is told of languages.

    Raises:
        InputError: settings, model, tokenizer and text that do not go together.
    """

    args: TaskConfig
    eval_dataset: Any

    def __init__(
        self,
        model: PreTrainedModel | None,
        args: TaskConfig,
        *,
        task: Task,
        train_dataset: Sequence[Examples] | Dataset,
        eval_dataset: Mapping[str, Examples] | None = None,
        processing_class: PreTrainedTokenizerBase,
        **kwargs: Any,
    ):
        model = first_model(model, args, kwargs.get("model_init"))
        args.check_model(model, processing_class)
        self.task = task
        self.language_inputs = LanguageInputs.of(model)
        self._encoded: dict[str, tuple[Examples, Dataset]] = {}
        train = (
            train_dataset
            if isinstance(train_dataset, Dataset)
            else datasets.concatenate_datasets(
                [self._encode(part, processing_class, args, training=True) for part in train_dataset]
            )
        )
        for language, part in (eval_dataset or {}).items():
            self._encoded[language] = (part, self._encode(part, processing_class, args, training=False))
        self.train_languages = sorted(train.unique("source_lang"))
        if args.early_stopping_patience is not None and not {*self.train_languages} & {*self._encoded}:
            raise InputError(
                f"early_stopping_patience needs evaluation text in {' or '.join(self.train_languages)}, the language "
                "of training: what is tested on must not choose the checkpoint"
            )
        if not args.dropout:
            disable_dropout(model)
        freeze(model, embeddings=args.freeze_embeddings)
        if args.freeze_encoder:
            freeze_encoder(model)
        cast(nn.Module, model).to(args.device)
        train = task.prepare(model, train, cast(int, processing_class.pad_token_id))
        # The model is saved whole: no weight of the checkpoint that its encoder came from is carried along.
        model.name_or_path = ""
        super().__init__(
            model,
            args,
            train_dataset=train,
            eval_dataset=cast(Any, eval_dataset),
            processing_class=processing_class,
            data_collator=self._collator(cast(int, processing_class.pad_token_id)),
            **kwargs,
        )

    def _encode(
        self, examples: Examples, tokenizer: PreTrainedTokenizerBase, args: TaskConfig, *, training: bool
    ) -> Dataset:
        return self.task.encode(
            examples, tokenizer, self.language_inputs, max_length=args.max_length, training=training
        )

    def _collator(self, pad_token_id: int) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
        return self.task.collator(pad_token_id)

    # ---- Loss ----

    def count_items(self, batch: dict[str, torch.Tensor]) -> list[int]:
        """Labelled items of one batch."""
        return [self.task.count_items(batch)]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """The loss of one micro-batch; its sum over the step and mean over processes is the step's loss."""
        counts = self.step_counts(inputs, num_items_in_batch)
        output = model(**self.task.training_inputs(inputs))
        # DDP averages gradients over processes; the count is of all of them, so the sum is wanted back.
        loss = self.task.loss(output, inputs) * self.args.world_size / counts[0].clamp(min=1)
        self.log_term("task", loss)
        return (loss, output) if return_outputs else loss

    # ---- Scores and checkpoints ----

    def score(
        self, evaluation: Mapping[str, Examples] | None = None, *, desc: str | None = None
    ) -> dict[str, TaskScores]:
        """The scores of every evaluation language, with those of each example.

        Args:
            evaluation: language -> text; by default the trainer's `eval_dataset`.
            desc: label of the progress bars, or None for none.
        """
        encoded = self._encoded
        if evaluation is not None and evaluation is not self.eval_dataset:
            encoded = {
                language: (part, self._encode(part, self.processing_class, self.args, training=False))
                for language, part in evaluation.items()
            }
        return score_languages(
            self.accelerator.unwrap_model(self.model),
            self.task,
            encoded,
            self.processing_class,
            batch_size=self.args.per_device_eval_batch_size,
            desc=desc,
        )

    def _metrics(self, dataset: Any) -> dict[str, float]:
        """`<lang>_<metric>` of each language and metric; `<metric>`, the headline's mean over languages.

        `selection` is the mean over the languages that are trained on, where there is text of them.
        """
        scores = {language: found.totals() for language, found in self.score(dataset).items()}
        metrics = {f"{language}_{name}": value for language, found in scores.items() for name, value in found.items()}
        headline = {language: found[self.task.metric] for language, found in scores.items()}
        metrics[self.task.metric] = float(np.mean(list(headline.values())))
        own = [headline[language] for language in self.train_languages if language in headline]
        return metrics | {"selection": float(np.mean(own)) if own else metrics[self.task.metric]}

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        if not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir)
        self.model.save_pretrained(folder, state_dict=state_dict)
        self.processing_class.save_pretrained(folder)
        (folder / "training_args.json").write_text(self.args.to_json_string(), encoding="utf-8")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        Trainer._load_from_checkpoint(self, resume_from_checkpoint, cast(Any, model))
