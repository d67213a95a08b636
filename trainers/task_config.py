"""Settings of fine-tuning on a task, and the published ones as presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import SaveStrategy

from hf_xalign.data.limits import position_limit
from hf_xalign.errors import InputError
from hf_xalign.modeling.tagger.tagger import BiLSTMCRFForTokenClassification
from hf_xalign.trainers.shared.checks import check_one_gpu
from hf_xalign.trainers.shared.presets import PresetConfig, by_preset, own

_OURS: dict[str, Any] = {
    "max_length": 128,
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 32,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0.1,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
}
# The defaults of transformers' example scripts, which CONTINUAL says it keeps, in batches of 32.
_CONTINUAL: dict[str, Any] = {**_OURS, "warmup_steps": 0.0, "weight_decay": 0.0}
_MAO: dict[str, Any] = {
    **_CONTINUAL,
    "learning_rate": 1e-6,
    "per_device_train_batch_size": 8,
}
_PPA: dict[str, Any] = {**_OURS, "num_train_epochs": 2.0, "warmup_steps": 1000}
_ALIGN_MLM: dict[str, Any] = {**_CONTINUAL, "learning_rate": 2e-5}
# ROTATE's tagger: Adam, which is AdamW without decay; a schedule and clipping are not stated.
_ROTATE: dict[str, Any] = {
    **_CONTINUAL,
    "learning_rate": 1e-4,
    "num_train_epochs": 40.0,
    "per_device_train_batch_size": 10,
    "lr_scheduler_type": "constant",
}

Head = Literal["linear", "tagger"]
# The preset where none is named.
_OF_HEAD: dict[Head, str] = {"linear": "ours", "tagger": "rotate"}


@dataclass
class TaskConfig(PresetConfig):
    """Settings of [`TaskTrainer`](hf_xalign.trainers.task.TaskTrainer); a field left at None takes the preset's value.

    Presets (what a paper does not state is as in transformers' example scripts: no warm-up, no decay):

    - `ours` (default of a linear head): AdamW, 5e-5, 3 epochs, a tenth of warm-up.
    - `mao_xnli`: MAO's XNLI, 3 epochs at 1e-6 in batches of 8 (its XLM-R: 4), around a frozen module.
    - `align_mlm_xnli`, `align_mlm_tagging`: 2e-5, 5 epochs for XNLI and 10 for NER and POS.
    - `continual`: 5e-5, 3 epochs, batches of 32.
    - `ppa_xnli`: 5e-5, 2 epochs, 1000 steps of warm-up, decay 0.01.
    - `rotate` (default with `head=tagger`): Adam at 1e-4, which stays, 40 epochs, batches of 10; ROTATE takes 1e-5 for
      languages that are far from English.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "ours": _OURS,
        "mao_xnli": _MAO,
        "align_mlm_xnli": {**_ALIGN_MLM, "num_train_epochs": 5.0},
        "align_mlm_tagging": {**_ALIGN_MLM, "num_train_epochs": 10.0},
        "continual": _CONTINUAL,
        "ppa_xnli": _PPA,
        "rotate": _ROTATE,
    }
    # Checkpoints are chosen by the languages that are trained on: to look at the others is no zero-shot transfer.
    headline: ClassVar[str] = "eval_selection"

    preset: str = own(
        "",
        "Schedule",
        "Published settings: ours (default), mao_xnli, align_mlm_xnli, align_mlm_tagging, continual, ppa_xnli; or "
        "rotate (default of a tagger).",
    )
    head: Head = own(
        "linear",
        "Model",
        "On the encoder: a linear map; or, for word labels, a BiLSTM-CRF tagger, and no more is trained.",
    )
    freeze_embeddings: bool = own(
        False, "Model", "Train all but the word embeddings: half the time and memory of a large vocabulary."
    )
    freeze_encoder: bool = own(False, "Model", "Train the head alone.")
    dropout: bool = own(True, "Model", "The model's own dropout during training.")
    max_length: int = by_preset("Data", "Tokens a text (of a pair: both) at most.")
    save_strategy: SaveStrategy | str = field(
        default="no",
        metadata={"help": "When to write checkpoints, that an interrupted seed can go on from.", "group": "Run"},
    )

    def __post_init__(self) -> None:
        if self.head not in _OF_HEAD:
            raise InputError(f"head={self.head}: choose one of {', '.join(_OF_HEAD)}")
        self.preset = self.preset or _OF_HEAD[self.head]
        self.check_preset()
        self.fill_from_preset()
        if self.max_length < 1:
            raise InputError(f"max_length={self.max_length}: at least 1")
        if self.freeze_encoder and self.freeze_embeddings:
            raise InputError("freeze_encoder=true freezes the embeddings too: leave freeze_embeddings out")
        super().__post_init__()

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse a model or tokenizer that these settings cannot train, before any compute is spent.

        Raises:
            InputError: several GPUs in one process; a model with another head; a tokenizer that is slow or has no
                padding token; texts longer than the encoder takes.
        """
        check_one_gpu(self.n_gpu)
        if (self.head == "tagger") != isinstance(model, BiLSTMCRFForTokenClassification):
            raise InputError(
                f"head={self.head} with a {type(model).__name__}: a tagger is made by hf_xalign.tasks.load_tagger, "
                "and any other model by load_task_model"
            )
        if not tokenizer.is_fast:
            raise InputError(f"{type(tokenizer).__name__} is a slow tokenizer: use the fast one of the same model")
        if tokenizer.pad_token_id is None:
            raise InputError("the tokenizer has no padding token: set tokenizer.pad_token to one of its tokens")
        limit = position_limit(model.config)
        if min(self.max_length, tokenizer.model_max_length) > limit:
            raise InputError(
                f"max_length={self.max_length}: {type(model).__name__} takes {limit} tokens: set max_length to "
                f"{limit} or less"
            )

    def formula(self) -> str:
        """The objective in force, as plain text."""
        return f"L_task = {self._task_loss()}"

    def _task_loss(self) -> str:
        if self.head == "tagger":
            return "- (1 / words) sum over sentences log p(labels | sentence), p: BiLSTM-CRF"
        return "- mean over labelled items log p(label)"
