"""FAO: fine-tune the encoder so that linked words of two languages get similar vectors."""

from __future__ import annotations

import logging
from typing import ClassVar, cast

from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.features import can_cache_layers
from hf_xalign.modeling.freezing import disable_dropout, freeze, freeze_unused, frozen_copy
from hf_xalign.trainers.base.callbacks import AverageAtEnd, final_weights
from hf_xalign.trainers.base.fsdp import wants_sharding
from hf_xalign.trainers.base.trainer import Batch, Counts, Loss, Prepared
from hf_xalign.trainers.base.word import ENCODED_AHEAD, WordAlignmentTrainer, cache_f0, pair_collator
from hf_xalign.trainers.fao_config import FAOConfig

logger = logging.getLogger(__name__)


class FAOTrainer(WordAlignmentTrainer):
    """Trainer of the fine-tuning alignment objective (Cao et al. 2020; MAO eq. 1-3; CONTINUAL eq. 1; ROTATE eq. 7-10).

    The loss is that of [`WordAlignmentTrainer`]. f is the pooled vector of a word in `layers` of the tuned encoder,
    and f0 its vector in the encoder before training.

    Args: those of [`WordAlignmentTrainer`].

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> args = FAOConfig(max_steps=1, report_to="none", save_strategy="no")
        >>> given = {"train_dataset": tiny.pairs, "processing_class": tiny.tokenizer}
        >>> trainer = FAOTrainer(BertModel(tiny.config), args, **given)
        >>> trainer.train().global_step
        {'loss': ...}
        1
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "fao", "cross-lingual-alignment"]
    _paper = "cao2020multilingual"
    config_class = FAOConfig
    method = "fao"
    adapter_rate = 10.0
    args: FAOConfig

    def _prepare(self, model: PreTrainedModel, train_dataset: Dataset) -> Prepared:
        args = self.args
        peft = hasattr(model, "peft_config")
        self._settle_layers(model, args.layers)
        if peft:
            self._check_f0(model)
        train_dataset = self._encoded(train_dataset, model, ahead=args.reference == "cache")
        if not wants_sharding(args):
            cast(nn.Module, model).to(args.device)
        if not args.dropout:
            disable_dropout(model)
        if not peft:
            freeze(model, embeddings=args.freeze_embeddings, layers=args.freeze_layers)
        freeze_unused(model, max(self.layers))
        # A head is a submodule of the encoder, so that optimizer, DDP and checkpoints include it.
        if heads := self.objective.heads(model.config.hidden_size):
            cast(nn.Module, model).add_module(HEAD_NAME, heads)
        reason = args.keeps_no_average(model)
        if args.start_share and reason:
            logger.info("start_share: the preset's %g is not used, because %s", args.start_share, reason)
        elif args.start_share:
            self._average = AverageAtEnd(model, args.start_share)
        # The copy is made before a checkpoint is loaded, because f0 is the encoder that the run started from. It is
        # not a part of the model, so that optimizer and checkpoints leave it out.
        frozen = self.objective.reads("f0", "sentences0") and args.reference == "copy" and not peft
        self.reference = frozen_copy(model) if frozen else None
        return model, train_dataset, pair_collator(self)

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Counts = None
    ) -> Loss:
        """Return L = L_align + w L_reg and what else the objective has: terms of f and f0 of words and sentences."""
        computed, output = self._vectors(model, inputs)
        if self.objective.reads("f0", "sentences0"):
            computed |= self._frozen_vectors(model, inputs)
        loss = self.word_loss(inputs, computed, num_items_in_batch)
        return (loss, output) if return_outputs else loss

    def formula(self) -> str:
        """Return the objective and the final average of weights, if there is one, as plain text."""
        return super().formula() + (f"\n{final_weights(self.args.start_share)}" if self._average else "")

    def _encode_start(self, model: PreTrainedModel) -> None:
        args, dataset = self.args, cast(Dataset, self.train_dataset)
        frozen, note = self.layers_computed_once(model, len(dataset))
        if note:
            logger.info(note)
        cached = args.reference == "cache"
        reads_words, reads_sentences = (cached and self.objective.reads(name) for name in ("f0", "sentences0"))
        if not (reads_words or reads_sentences or frozen):
            return
        start = cache_f0(
            self,
            model,
            dataset,
            needed={self.objective.kept_side: "all"} if reads_words else {},
            sentences=reads_sentences,
            frozen_layers=frozen,
            folder=args.cache_dir,
            ray=args.ray,
        )
        if reads_words:
            cast(PairCollator, self.data_collator).reference = start.words
        self.train_dataset, self.frozen_states = start.dataset, start.frozen

    def layers_computed_once(self, model: PreTrainedModel, rows: int) -> tuple[int, str]:
        """Return how many frozen layers are computed once for each distinct sentence of `rows` pairs, and why."""
        args = self.args
        if not args.freeze_layers:
            return 0, ""
        drawn = args.max_steps * args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        reason = ""
        if (drawn <= rows) if args.max_steps > 0 else (args.num_train_epochs <= 1):
            reason = "each sentence is drawn once"
        elif rows > ENCODED_AHEAD and args.reference != "cache":
            reason = "the pairs are encoded as they are drawn"
        elif args.dropout:
            reason = "dropout=true changes them"
        elif self.is_fsdp_enabled or not can_cache_layers(model, args.freeze_layers):
            reason = "this encoder does not allow it"
        elif min(self.layers) < args.freeze_layers:
            reason = "a term reads a layer below"
        when = f"in each step, because {reason}" if reason else "once for each distinct sentence"
        return 0 if reason else args.freeze_layers, f"{args.freeze_layers} frozen layers are computed {when}"
