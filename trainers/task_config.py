"""Settings of fine-tuning on a task, with the published ones as presets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import SaveStrategy

from hf_xalign.checks import GIVEN, excludes, needs
from hf_xalign.data.encoding import position_limit
from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification
from hf_xalign.objectives.term import Objective
from hf_xalign.trainers.base.trainer_config import ADAM, AlignmentConfig, Preset, own

_DEFAULT: Preset = {**ADAM, "learning_rate": 5e-5, "num_train_epochs": 3.0, "per_device_train_batch_size": 32}
# Defaults of transformers' example scripts, in batches of 32.
_EXAMPLE: Preset = {**_DEFAULT, "warmup_steps": 0.0, "weight_decay": 0.0}
# CONTINUAL's README and its scripts without a Trainer, which do not clip gradients.
_CONTINUAL: Preset = {**_EXAMPLE, "num_train_epochs": 2.0, "max_grad_norm": 0.0}
_MAO: Preset = {**_EXAMPLE, "learning_rate": 1e-6, "per_device_train_batch_size": 8}
_PPA: Preset = {**_DEFAULT, "num_train_epochs": 2.0, "warmup_steps": 1000}
_ALIGN_MLM: Preset = {**_EXAMPLE, "learning_rate": 2e-5}
# ROTATE's tagger: Adam is AdamW without decay; the paper states neither schedule nor clipping.
_ROTATE: Preset = {
    **_EXAMPLE,
    "learning_rate": 1e-4,
    "num_train_epochs": 40.0,
    "per_device_train_batch_size": 10,
    "lr_scheduler_type": "constant",
}

Head = Literal["linear", "tagger"]
# With fewer examples a head with random weights learns too little: docs/results/downstream.md, "Few labels".
FEW_EXAMPLES = 3000


@dataclass
class TaskConfig(AlignmentConfig):
    """Settings of [`TaskTrainer`]; fields left at None take the preset's value.

    Presets, with learning rate and epochs. For settings that a paper does not state, they have the defaults of
    transformers' example scripts (no warm-up, no weight decay):

    - `default` (chosen unless `head=tagger`): 5e-5, 3 epochs, warm-up over a tenth of the steps.
    - `mao_xnli`: MAO's XNLI with a frozen module, 1e-6, 3 epochs, batches of 8 (its mBERT and XLM-R: 4).
    - `align_mlm_xnli`, `align_mlm_tagging`: 2e-5, 5 epochs for XNLI, 10 for NER and POS.
    - `continual`, `continual_ner`, `continual_qa`: CONTINUAL's NLI (5e-5, 2 epochs), NER (2e-5, 3 epochs) and
      questions (3e-5, 2 epochs), in batches of 32, without clipping.
    - `ppa_xnli`: 5e-5, 2 epochs, 1000 steps of warm-up, weight decay 0.01.
    - `rotate` (default with `head=tagger`): constant 1e-4, 40 epochs, batches of 10. ROTATE uses 1e-5 for languages
      far from English: Armenian, Hindi, Thai and Turkish.
    """

    PRESETS: ClassVar[dict[str, Preset]] = {
        "default": _DEFAULT,
        "mao_xnli": _MAO,
        "align_mlm_xnli": {**_ALIGN_MLM, "num_train_epochs": 5.0},
        "align_mlm_tagging": {**_ALIGN_MLM, "num_train_epochs": 10.0},
        "continual": _CONTINUAL,
        "continual_ner": {**_CONTINUAL, "learning_rate": 2e-5, "num_train_epochs": 3.0},
        "continual_qa": {**_CONTINUAL, "learning_rate": 3e-5},
        "ppa_xnli": _PPA,
        "rotate": _ROTATE,
    }
    # By default, training languages select the checkpoint, see `selection`.
    headline: ClassVar[str] = "eval_selection"

    preset: str = own("", "Settings: default, or rotate with a tagger, unless given.", "Schedule")
    head: Head = own(
        "linear",
        "A linear map on the encoder, or a BiLSTM-CRF on a frozen one (tagger).",
        "Model",
        rules=[excludes("a tagger's encoder is frozen", "tagger", neftune_noise_alpha=GIVEN)],
    )
    freeze_embeddings: bool = own(False, "Do not train the word embeddings, which saves time and memory.", "Model")
    freeze_encoder: bool = own(
        False, "Train only the head.", "Model", rules=[excludes("it freezes them too", freeze_embeddings=True)]
    )
    fit_head: bool | None = own(
        None,
        "Start from a head that is fitted on the frozen encoder. Default: with preset=default, a new head and at most "
        f"{FEW_EXAMPLES:,} training examples.",
        "Model",
        rules=[excludes("a tagger's encoder is frozen, and its head is no linear map", head="tagger")],
    )
    keep_aligned: bool = own(
        False,
        "Preserve an alignment: first fit the head on the frozen encoder, and at the end average all weights with "
        "those before training.",
        "Model",
        rules=[
            excludes("a tagger's encoder is frozen and stays aligned", head="tagger"),
            excludes("it fits the head too", fit_head=True),
        ],
    )
    start_share: float = own(
        0.25,
        "keep_aligned: share of the weights before training in the average.",
        "Model",
        least=0,
        most=1,
        rules=[needs(keep_aligned=True)],
    )
    dropout: bool = own(True, "Use the model's dropout during training.", "Model")
    max_length: int | None = own(None, "Maximum tokens of a text or pair; 128, for questions 384.", "Data", least=3)
    selection: Literal["source", "target"] = own(
        "source",
        "Languages whose text selects the checkpoint (load_best_model_at_end, early_stopping_patience): the training "
        "languages (source), or the others as in ROTATE (target), which is not zero-shot transfer.",
        "Run",
        rules=[needs("with eval_strategy=epoch and save_strategy=epoch", "target", load_best_model_at_end=True)],
    )
    save_strategy: SaveStrategy | str = own("no", "When to write checkpoints to resume from.", "Run")

    def __post_init__(self) -> None:
        self.preset = self.preset or ("rotate" if self.head == "tagger" else "default")
        super().__post_init__()

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with a model or a tokenizer that these settings cannot train."""
        if (self.head == "tagger") != isinstance(model, BiLSTMCRFForTokenClassification):
            yield (
                f"head={self.head} does not fit a {type(model).__name__}. Load a tagger by "
                "hf_xalign.tasks.load_tagger, and other models by load_task_model."
            )
        yield from super().faults(model, tokenizer, loss)
        if self.keep_aligned and isinstance(model, PeftModel):
            yield "keep_aligned=true: the factors of adapters cannot be averaged. Remove it."
        limit = position_limit(model.config)
        if self.max_length is not None and min(self.max_length, tokenizer.model_max_length) > limit:
            yield (
                f"max_length={self.max_length}: {type(model).__name__} reads at most {limit} tokens. Set max_length "
                f"to {limit} or less."
            )

    def formula(self, objective: Objective) -> str:
        """Return the objective as plain text."""
        if self.head == "tagger":
            return "L_task = - (1 / words) sum over sentences log p(labels | sentence), p: BiLSTM-CRF"
        return "L_task = - mean over labelled items log p(label)"
