"""Scores of a trainer: those of `evaluate`, the terms of the loss in the log, and the hooks of a run's record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel

from hf_xalign.data.load import join_languages
from hf_xalign.data.parallel import only_language
from hf_xalign.errors import InputError, suggestion
from hf_xalign.evaluation.scores import Scores, fill_words, score_retrieval
from hf_xalign.objectives.term import Objective
from hf_xalign.record import Record
from hf_xalign.score import Score
from hf_xalign.tasks.task import TaskScores
from hf_xalign.trainers.base.run import Run, about_scores, compared_by, given_entries, headlines, keep_scores
from hf_xalign.trainers.base.saving import SavingTrainer


class ScoringTrainer(SavingTrainer):
    """Trainer that scores its evaluation set and logs the terms of its loss.

    A method whose score is not word retrieval overrides `_metrics`, `headline` and `score_held_out`.
    """

    # True if a run scores the model before training.
    scores_start: ClassVar[bool] = True
    # True if a run without evaluation text has a record.
    scores_nothing: ClassVar[bool] = False
    # Terms of the loss, none for methods whose loss is not a list of them.
    objective: Objective
    # Term of the loss that grows by design, so that its growth is not a sign of divergence.
    growing_term: str = ""
    # True inside `training_step`; other calls of `compute_loss` are not logged.
    _in_step: bool = False
    # Step of the last row of the log.
    _terms_since: int = 0
    # Training text as it was given or drawn, and evaluation text as it was given, if there is a record.
    _given: Dataset | None = None
    _given_held_out: Dataset | None = None

    # ---- Scores ----

    def evaluate(
        self,
        eval_dataset: Dataset | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Compute and log the method's scores of the evaluation set.

        Returns:
            `<prefix>_<name>` for each score. Methods that align words or sentences return fractions between 0 and 1:
            `<lang>_<headline>`, such as `de_retrieval_mean` (mean of both directions), the same with `_to_pivot` and
            `_from_pivot`, and `retrieval`, the mean over languages.
        """
        dataset = self._read(self.eval_dataset if eval_dataset is None else eval_dataset, "eval_dataset")
        # Every process computes the same scores, so that all decide the same about early stopping.
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self._metrics(dataset).items()}
        if self.is_in_train and (best_metric := self.args.metric_for_best_model) is not None:
            best_metric = f"eval_{best_metric.removeprefix('eval_')}"
            # This is raised before the first step, because the start is scored too.
            if best_metric not in metrics:
                hint = suggestion(best_metric, metrics) or f": choose one of {', '.join(metrics)}"
                raise InputError(f"metric_for_best_model={best_metric}: there is no such score{hint}")
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _read(self, data: object, name: str) -> Dataset:
        """Return the dataset of this name, of one pivot and with translations as columns; or raise an InputError."""
        pairs = join_languages(data, name)
        only_language(pairs, "target_lang", name)
        return pairs

    def _metrics(self, dataset: Dataset) -> dict[str, float]:
        """Return the scores of `evaluate` without prefix."""
        name = self.headline(self.args)
        scores = (self.run and self.run.known(dataset)) or self._score(dataset)
        keys = [score.name for score in Score.read(name).directions()]
        metrics = {f"{language}_{key}": values[key] for language, values in scores.items() for key in keys}
        return metrics | {"retrieval": float(np.mean([values[name] for values in scores.values()]))}

    @staticmethod
    def headline(args: Any) -> str:
        """Return the name of the headline score under these settings."""
        return Score("retrieval", "mean").name

    def _score(self, dataset: Dataset) -> Scores:
        return self._score_by(score_retrieval, dataset, poolings=("mean",))

    def _score_by(self, score: Callable[..., Scores], dataset: Dataset, **options: object) -> Scores:
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

    def formula(self) -> str:
        """Return the objective as plain text."""
        return self.args.formula(self.objective)

    def text_entries(self) -> Record:
        """Return languages, pivot and text entries as arguments of [`~hf_xalign.record.start_record`]."""
        return given_entries(self._given, self._given_held_out)

    def last_entries(self) -> Record:
        """Return further entries of the record of a finished run."""
        return {}

    def score_held_out(self, model: PreTrainedModel, when: str) -> Iterator[Scores]:
        """Score a stage of the run on the evaluation set, by language, and keep its vectors in `run`.

        The first scores before training are shown before the others are computed.
        """
        raise NotImplementedError

    def about_scores(self) -> Record:
        """Return the fields of the run's `scores.json`, before there are scores."""
        run = cast(Run, self.run)
        settings = {**self.reporting.settings, **self.args.changed(), "preset": self.args.preset}
        models = {"model": run.base_model, "adapter": getattr(self, "module", None)}
        return about_scores(self.compared(), self.args.seed, settings, run.text()["data"], **models)

    def keep_scores(self, folder: Path) -> None:
        """Write the scores of every example, by which `compare` compares the run."""
        run = cast(Run, self.run)
        if "before" in run.examples:
            fill_words(run.examples, getattr(self.args, "pooling", ""))
        if scores := self.headline_scores():
            examples = run.examples if self.scores_start else {}
            keep_scores(folder, run.record, scores, examples, self.about_scores, run.probed)

    def compared(self) -> dict[str, str]:
        """Return the `task`, `metric` and `train_language` by which `compare` knows the run."""
        return compared_by(self.headline(self.args))

    def headline_scores(self) -> dict[str, TaskScores]:
        """Return the headline score of every example after training, by language; empty if there is none."""
        return headlines(cast(Run, self.run).examples.get("after", {}), self.headline(self.args))

    def keep_held_out(self, folder: Path) -> dict[str, str]:
        """Save the evaluation set, and return {description: file}."""
        return {}

    # ---- The log ----

    def log_term(self, name: str, value: torch.Tensor) -> None:
        """Add this micro-batch's share of a term, which is logged as `loss/<name>`, a mean over steps."""
        # A callback may call `compute_loss` too, whose terms are not of the training.
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
        """Return the `first` and `last` logged loss, or None if there are fewer than two."""
        # The first is of one step, the last a mean over the steps since the log before it.
        losses = []
        for row in self.state.log_history:
            # PPA's contrast with a queue that starts empty is left out, because it grows as the queue fills.
            terms = [row[name] for name in row if name.startswith("loss/") and name != f"loss/{self.growing_term}"]
            if "loss" in row and (terms or not self.growing_term):
                losses.append(sum(terms) if self.growing_term else row["loss"])
        return {"first": losses[0], "last": losses[-1]} if len(losses) > 1 else None
