"""What every recipe that trains works with: an encoder, and text to train on and to score on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from datasets import Dataset
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.embedded.encoder import resolve_model
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.recipes.parts.common import TextArguments

# Sentences of the pivot that the drift check looks at.
DRIFT_SENTENCES = 500


@dataclass
class TrainingMaterial:
    """The encoder and the text of a run.

    Attributes:
        model: the encoder, float32, on the run's device; from [`TrainingMaterial.trainer`] on, what is trained.
        tokenizer: its fast tokenizer.
        train: training pairs.
        evaluation: held-out pairs.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    train: Dataset
    evaluation: Dataset

    @property
    def languages(self) -> list[str]:
        """The languages that are lined up with the pivot."""
        found: set[str] = set()
        for batch in self.train.select_columns(["source_lang"]).iter(100_000):
            found.update(batch["source_lang"])
        return sorted(found)

    def trainer(self, trainer_class: type[Any], args: Any) -> Any:
        """A method's trainer, by its settings, on this encoder and this data."""
        trainer = trainer_class(
            self.model,
            args,
            train_dataset=self.train,
            eval_dataset=self.evaluation,
            processing_class=self.tokenizer,
        )
        self.model = trainer.model
        return trainer


def load_checked(data: TextArguments, args: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The encoder, in float32 on the run's device, and its tokenizer, once the method's settings took them.

    Raises:
        InputError: there is no such encoder, or the settings cannot train it.
    """
    with args.main_process_first(desc="making the embedded encoder"):
        path = resolve_model(data.model_name_or_path)
    model = load_encoder(path, revision=data.model_revision)
    tokenizer = AutoTokenizer.from_pretrained(path, revision=data.model_revision)
    args.check_model(model, tokenizer)
    cast(nn.Module, model).to(args.device)
    return model, tokenizer
