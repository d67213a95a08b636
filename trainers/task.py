"""Fine-tune on a task in one or several languages, and score on many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, Trainer

from hf_xalign.data.code_switching import collate_groups, gather_groups
from hf_xalign.data.encoding import position_limit
from hf_xalign.data.parallel import check_dataset
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import Scores
from hf_xalign.modeling.freezing import disable_dropout, freeze
from hf_xalign.modeling.packing import packed_forward
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.record import FILENAME, Record, hub_id, read_record
from hf_xalign.statistics.significance import score_interval
from hf_xalign.tasks.classification import LabelledTask
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.models import fit_head, last_layer, load_task_model, name_labels
from hf_xalign.tasks.task import LanguageInputs, Task, TaskScores, score_languages
from hf_xalign.trainers.base.callbacks import AverageAtEnd, final_weights
from hf_xalign.trainers.base.run import Run
from hf_xalign.trainers.base.trainer import AlignmentTrainer, Batch, Counts, Loss, Prepared
from hf_xalign.trainers.task_config import FEW_EXAMPLES, TaskConfig


class TaskTrainer(AlignmentTrainer):
    """Trainer of a task, L = -log p(label), a mean over the labelled items of the optimizer step and all processes.

    With few examples, `fit_head` or `keep_aligned`, the head is initialized by a softmax regression on the frozen
    encoder's vectors (Kumar et al. 2022, arXiv 2202.10054). With `keep_aligned`, the weights are at last averaged with
    those before training (Wortsman et al. 2022, arXiv 2109.01903). Scores and checkpoints during training have the
    weights before the average.

    Args: (see [`AlignmentTrainer`] for the others)
        model: the task model; or a Hub id or folder for [`~hf_xalign.tasks.load_task_model`].
        task: the task.
        train_dataset: training text of each language, or rows that the task has encoded.
        eval_dataset: evaluation text by language.
        held_out: text by language that the trained model is scored on; by default `eval_dataset`, which may instead
            be the text that selects the checkpoint.
        module: name of a module between encoder and head, for the record.

    Attributes:
        language_inputs: the model's language-ID inputs.

    Example:
        >>> from transformers import BertForSequenceClassification
        >>> from hf_xalign.tasks import LabelSet, SequenceTask
        >>> from hf_xalign.trainers import tiny
        >>> trainer = TaskTrainer(
        ...     BertForSequenceClassification(tiny.config), TaskConfig(max_steps=1, report_to="none"),
        ...     task=SequenceTask(LabelSet.of(["no", "yes"])), train_dataset=Examples("file", "en", tiny.labelled),
        ...     processing_class=tiny.tokenizer)
        >>> trainer.train().global_step
        {'loss': ...}
        1
    """

    config_class = TaskConfig
    method = "finetune"
    # A new head has random weights, whose scores say nothing; `eval_on_start` has them for the curve.
    scores_start = scores_ends = False
    args: TaskConfig
    eval_dataset: Mapping[str, Examples] | None
    # Scores of the trained model by language.
    scores: dict[str, TaskScores]

    def __init__(
        self,
        model: str | PreTrainedModel,
        args: TaskConfig | None = None,
        *,
        task: Task,
        held_out: Mapping[str, Examples] | None = None,
        module: str | None = None,
        **kwargs: Any,
    ):
        self.task, self.held_out, self.module = task, held_out, module
        super().__init__(model, args, **kwargs)

    def _load_model(self, path: str, revision: str) -> PreTrainedModel:
        return load_task_model(path, self.task, seed=self.args.seed, revision=revision)

    def _read(self, data: Any, name: str) -> Dataset | Sequence[Examples] | Mapping[str, Examples]:
        by_language = name == "eval_dataset"
        if isinstance(data, Examples):
            data = {data.language: data} if by_language else [data]
        members = data.values() if isinstance(data, Mapping) else data
        examples = isinstance(data, list | tuple | Mapping) and all(isinstance(member, Examples) for member in members)
        if examples and isinstance(data, Mapping) == by_language:
            return data
        if not examples and "input_ids" in check_dataset(data, name).column_names and not by_language:
            return data
        wanted = '{"de": Examples(...)}' if by_language else "[Examples(...)]"
        raise InputError(
            f"{name} ({type(data).__name__}) holds no labelled text. Pass {wanted}, made by "
            'read_examples("de=FILE", kind) or Examples(name, language, dataset) of hf_xalign.tasks.'
        )

    def _prepare(self, model: PreTrainedModel, train_dataset: Dataset | Sequence[Examples]) -> Prepared:
        args, pad_token_id = self.args, cast(int, self.processing_class.pad_token_id)
        if (args.keep_aligned or args.fit_head) and not isinstance(self.task, LabelledTask):
            raise InputError(f"keep_aligned, fit_head: a head is fitted for labels, not {self.task.kind}. Remove it.")
        name_labels(model, self.task)
        self.language_inputs = LanguageInputs.of(model)
        self._max_length = args.max_length or position_limit(model.config, self.task.max_length)
        self._encoded: dict[str, tuple[Examples, Dataset]] = {}
        if not isinstance(train_dataset, Dataset):
            encoded = []
            # All parts need the same columns to be concatenated, so one part with groups makes groups of all.
            grouped = any(part.group_size > 1 for part in train_dataset)
            for part in train_dataset:
                rows = self._encode(part, True)
                encoded.append(_gathered(rows, part.group_size) if grouped else rows)
            train_dataset = datasets.concatenate_datasets(encoded)
        for language, part in (self.eval_dataset or {}).items():
            self._encoded[language] = (part, self._encode(part))
        self.train_languages = sorted(train_dataset.unique("source_lang"))
        chooses = args.load_best_model_at_end or args.metric_for_best_model == args.headline
        if chooses and not self._selecting(self._encoded):
            trained = " or ".join(self.train_languages)
            raise InputError(
                f"early_stopping_patience, load_best_model_at_end: there is no evaluation text in {trained}, the "
                "training language, and a test language must not select the checkpoint. Add such text, or select by "
                "the target language with selection=target."
                if args.selection == "source"
                else f"selection=target: all evaluation text is in {trained}, the training language. Add other text."
            )
        if not args.dropout:
            disable_dropout(model)
        freeze(model, embeddings=args.freeze_embeddings)
        if args.freeze_encoder:
            backbone_of(model).requires_grad_(False)
        cast(nn.Module, model).to(args.device)
        train_dataset = self.task.prepare(model, train_dataset, pad_token_id)
        collator = partial(collate_groups, collate=partial(self.task.collate, pad_token_id=pad_token_id))
        self._fits_head = self._wants_fitted_head(model, len(train_dataset))
        if self._fits_head:
            fit_head(
                model,
                cast(LabelledTask, self.task),
                train_dataset,
                collator,
                batch_size=args.per_device_eval_batch_size,
                seed=args.seed,
                autocast=torch.bfloat16 if args.bf16 else None,
                desc="Fitting the head" if args.should_save else None,
            )
            if args.keep_aligned and args.start_share:
                self._average = AverageAtEnd(model, args.start_share)
        # The model is saved without weights from the encoder's original checkpoint.
        model.name_or_path = ""
        return model, train_dataset, collator

    def _wants_fitted_head(self, model: PreTrainedModel, count: int) -> bool:
        """Return whether the head is first fitted, by default a new head with few training examples."""
        args = self.args
        if (fits := args.keep_aligned or args.fit_head) is not None:
            return fits
        # Published settings start from random heads.
        few = args.preset == "default" and args.head == "linear" and count <= FEW_EXAMPLES
        layer = last_layer(model) if few and isinstance(self.task, LabelledTask) else None
        # transformers initializes the bias of a new head with zeros.
        return layer is not None and not layer.bias.any()

    def _encode(self, examples: Examples, training: bool = False) -> Dataset:
        tokenizer, length = self.processing_class, self._max_length
        return self.task.encode(examples, tokenizer, self.language_inputs, max_length=length, training=training)

    # ---- Loss ----

    def _count_items(self, batch: Batch) -> list[int]:
        return [self.task.count_items(batch)]

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Counts = None
    ) -> Loss:
        """Return L = -log p(label), a mean over the labelled items of the step."""
        counts = self.step_counts(inputs, num_items_in_batch)
        with self._packed(model):
            output = model(**self.task.training_inputs(inputs))
        loss = self.task.loss(output, inputs) * self.args.world_size / counts[0].clamp(min=1)
        self.log_term("task", loss)
        return (loss, output) if return_outputs else loss

    def _packed(self, model: nn.Module) -> AbstractContextManager[None]:
        """Let the encoder skip padding, which no loss reads."""
        # A compiled model keeps its own forward.
        if self.args.torch_compile:
            return nullcontext()
        task_model = self.accelerator.unwrap_model(model)
        return packed_forward(task_model, reruns=bool(self.args.gradient_checkpointing))

    # ---- Scores ----

    def score(
        self, evaluation: Mapping[str, Examples] | None = None, *, desc: str | None = None
    ) -> dict[str, TaskScores]:
        """Score `evaluation`, {language: text}, by default `eval_dataset`; `desc` labels the progress bars."""
        encoded = self._encoded
        if evaluation is not None and evaluation is not self.eval_dataset:
            encoded = {language: (part, self._encode(part)) for language, part in evaluation.items()}
        return score_languages(
            self.accelerator.unwrap_model(self.model),
            self.task,
            encoded,
            self.processing_class,
            batch_size=self.args.per_device_eval_batch_size,
            desc=desc,
        )

    def _metrics(self, dataset: Mapping[str, Examples]) -> dict[str, float]:
        """Return `<lang>_<metric>` for each language and metric, and the mean of the headline score over languages."""
        metrics: dict[str, float] = {}
        headline: dict[str, float] = {}
        for language, scores in self.score(dataset).items():
            totals = scores.totals()
            metrics |= {f"{language}_{name}": value for name, value in totals.items()}
            headline[language] = totals[self.task.metric]
        metrics[self.task.metric] = float(np.mean(list(headline.values())))
        # The mean over the languages that select the checkpoint, or over all if there are none.
        selecting = [headline[language] for language in self._selecting(headline)]
        return metrics | {"selection": float(np.mean(selecting)) if selecting else metrics[self.task.metric]}

    def _selecting(self, languages: Iterable[str]) -> list[str]:
        """Return the languages with evaluation text that select the checkpoint."""
        source = self.args.selection == "source"
        return sorted(language for language in languages if (language in self.train_languages) == source)

    # ---- The record of a run ----

    def formula(self) -> str:
        """Return the objective and what happens to the weights before and after training as plain text."""
        fitted = "; the head is first fitted on the frozen encoder" if self._fits_head else ""
        end = f"; {final_weights(self.args.start_share)}" if self.args.keep_aligned else ""
        return super().formula() + fitted + end

    def _texts(self) -> tuple[list[Examples], list[str], dict[str, Examples], list[str]]:
        """Return training text (none if it was given encoded), its languages, scored text, and its other languages."""
        texts = [] if isinstance(self._given, Dataset) else list(self._given or ())
        trained = list(dict.fromkeys(part.language for part in texts)) or self.train_languages
        held_out: dict[str, Examples] = dict(self.held_out or self.eval_dataset or {})
        return texts, trained, held_out, [language for language in held_out if language not in trained]

    def text_entries(self) -> Record:
        """Return languages and entries of the text; the pivot is the first training language."""
        texts, trained, _, scored = self._texts()
        return {
            "languages": [*trained[1:], *scored],
            "pivot": trained[0],
            "data": {
                "train": [text_entry(part.name, part) for part in texts],
                "eval": [text_entry(part.name, part) for part, _ in self._encoded.values()],
            },
        }

    def score_held_out(self, model: PreTrainedModel, when: str) -> Iterator[Scores]:
        """Score the trained model on all text, and store the scores, with those of step 0 if there are any."""
        run = cast(Run, self.run)
        self.scores = self.score(self.held_out, desc=f"Scoring seed {self.args.seed}")
        start = next((row for row in self.state.log_history if row["step"] == 0), {})
        run.examples[when], totals = {}, {}
        for language, scores in self.scores.items():
            run.examples[when][language], totals[language] = scores.examples, scores.totals()
            before = {name: start[key] for name in scores.examples if (key := f"eval_{language}_{name}") in start}
            run.record["scores"]["before"] |= {language: before} if before else {}
        yield totals

    def compared(self) -> dict[str, str]:
        """Return the `task`, `metric` and `train_language` by which `compare` knows the run."""
        return {"task": self.task.kind, "metric": self.task.metric, "train_language": "+".join(self._texts()[1])}

    def headline_scores(self) -> dict[str, TaskScores]:
        """Return the scores of every example, by language."""
        cast(Run, self.run).record.setdefault("task", self.compared())
        return self.scores

    def last_entries(self) -> Record:
        """Return the entries of the task, and 95% intervals of its scores."""
        after = {}
        for language, scores in self.scores.items():
            after[language] = {metric: list(score_interval(found)) for metric, found in scores.examples.items()}
        return {"task": self._task_entry(), "intervals": {"before": {}, "after": after}}

    def _task_entry(self) -> dict[str, object]:
        args, (texts, trained, held_out, scored) = self.args, self._texts()
        selection, chosen = None, list[str]()
        if args.load_best_model_at_end:
            fingerprints = {part.fingerprint for part in held_out.values()}
            chosen = self._selecting(self._encoded)
            selection = {
                "by": args.selection,
                "metric": args.metric_for_best_model,
                "languages": chosen,
                "scored": any(self._encoded[language][0].fingerprint in fingerprints for language in chosen),
            }
        frozen = "encoder" if args.freeze_encoder or args.head == "tagger" else "embeddings"
        inputs, module = self.language_inputs, self.module
        return {
            **self.task.card(texts),
            "labels": [str(name) for name in self.task.config().get("id2label", {}).values()],
            "head": args.head,
            "frozen": frozen if frozen == "encoder" or args.freeze_embeddings else None,
            "train_languages": trained,
            "zero_shot": [language for language in scored if language not in chosen],
            "selection": selection,
            "encoder": origin_of(cast(Run, self.run).base_model),
            "module": module and {"name": module, "hub_id": hub_id(module), **(origin_of(module) or {})},
            "continual": False,
            "language_rows": inputs.embeddings and dict(inputs.embeddings),
            "maps": inputs.maps and list(inputs.maps),
        }

    # ---- Checkpoints ----

    def save_weights(self, folder: Path, state: dict[str, torch.Tensor] | None) -> None:
        """Save the model with its head."""
        self.model.save_pretrained(folder, state_dict=state)

    def load_model(self, checkpoint: str, model: PreTrainedModel) -> None:
        """Load the model with its head."""
        Trainer._load_from_checkpoint(self, checkpoint, model)


def origin_of(source: str) -> Record | None:
    """Return method, preset, languages and base model of an encoder or module whose folder has a record."""
    if not (Path(source) / FILENAME).is_file():
        return None
    record = read_record(source)
    return {name: record[name] for name in ("method", "preset", "languages", "base_model")}


def text_entry(source: str, part: Examples, split: str | None = None) -> dict[str, object]:
    """Return the record's entry of a labelled text; text from the Hub has a split and a revision."""
    entry = {"source": source, "language": part.language, "examples": len(part), "fingerprint": part.fingerprint}
    return {**entry, "split": split, "revision": part.revision} if part.revision else entry


def _gathered(encoded: Dataset, size: int) -> Dataset:
    """Put the encoded rows of each group of examples into one row, with one length and language."""
    owners = encoded["question"][:] if size > 1 and "question" in encoded.column_names else range(len(encoded))
    gathered = gather_groups(encoded, np.asarray(owners) // size)
    return gathered.map(
        lambda rows: {
            "length": list(map(max, rows["length"])),
            "source_lang": [names[0] for names in rows["source_lang"]],
        },
        batched=True,
        remove_columns=["length", "source_lang"],
    )
