"""FAO: fine-tune the encoder so that linked words of two languages get similar vectors."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.modeling.features import add_sentences, cache_features
from hf_xalign.modeling.freezing import disable_dropout, freeze, freeze_unused, frozen_copy
from hf_xalign.record import cite
from hf_xalign.trainers.fao_config import FAOConfig
from hf_xalign.trainers.shared.checkpoints import AverageAtEnd
from hf_xalign.trainers.shared.fsdp import wants_sharding
from hf_xalign.trainers.shared.word import WordAlignmentTrainer


class FAOTrainer(WordAlignmentTrainer):
    """Trainer of the fine-tuning alignment objective (Cao et al. 2020; MAO eq. 1-3; CONTINUAL eq. 1; ROTATE eq. 7-10).

    The loss is that of [`WordAlignmentTrainer`]. f is the pooled vector of a word in `layers` of the tuned encoder,
    and f0 its vector in the encoder before training.

    Args: (see [`AlignmentTrainer`] for the others)
        train_dataset: pairs from `load_parallel`, which are linked by the default aligner; word-linked pairs from
            `align_words`; or pairs from `encode_pairs`.
        eval_dataset: pairs, linked by the fixed evaluation aligner if they have no links.
        objective: the terms of the loss ([`~hf_xalign.objectives.Term`]); default: the terms of the settings.

    Example:
        >>> from datasets import Dataset
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sleeps die katze schläft".split()
        >>> tokenizer = BertTokenizer(vocab={word: k for k, word in enumerate(words)})
        >>> config = BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> pairs = Dataset.from_dict({"source_words": [["die", "katze"]], "target_words": [["the", "cat"]],
        ...     "links": [[[0, 0], [1, 1]]], "source_lang": ["de"], "target_lang": ["en"]})
        >>> args = FAOConfig(max_steps=1, report_to="none", save_strategy="no")
        >>> trainer = FAOTrainer(BertModel(config), args, train_dataset=pairs, processing_class=tokenizer)
        >>> trainer.train().global_step
        {'loss': ...}
        1
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "fao", "cross-lingual-alignment"]
    _paper = cite(
        "Multilingual Alignment of Contextual Word Representations",
        "2002.03518",
        "cao2020multilingual",
        "Cao, Steven and Kitaev, Nikita and Klein, Dan",
        "International Conference on Learning Representations",
        2020,
    )
    config_class = FAOConfig
    method = "fao"
    args: FAOConfig

    def _prepare(self, model: PreTrainedModel, train_dataset: Any) -> tuple[PreTrainedModel, Any, Any]:
        args = self.args
        peft = hasattr(model, "peft_config")
        self._settle_layers(model, args.layers)
        words, sentences = self.objective.reads("f0"), self.objective.reads("sentences0")
        if peft:
            self._check_f0(model)
        train_dataset = self._encoded(train_dataset, model, ahead=args.reference == "cache")
        if not wants_sharding(args):
            cast(nn.Module, model).to(args.device)
        if not args.dropout:
            disable_dropout(model)
        if not peft:
            freeze(model, embeddings=args.freeze_embeddings, layers=args.freeze_layers)
        freeze_unused(cast(Any, model).get_base_model() if peft else model, max(self.layers))
        self._add_heads(model)
        if args.start_share:
            self._average = AverageAtEnd(model, args.start_share)
        # The copy is made before a checkpoint is loaded, because f0 is the encoder that the run started from.
        self.reference = frozen_copy(model) if (words or sentences) and args.reference == "copy" and not peft else None
        return model, train_dataset, self._pair_collator()

    def _encode_start(self, model: PreTrainedModel) -> None:
        args, dataset = self.args, cast(Dataset, self.train_dataset)
        if args.reference != "cache":
            return
        shared: dict[str, Any] = {
            "layers": self.layers,
            "pad_token_id": self.processing_class.pad_token_id,
            "autocast": torch.bfloat16 if args.bf16 else None,
            "ray": args.ray,
        }
        if self.objective.reads("sentences0"):
            dataset = add_sentences(model, dataset, **shared)
        if self.objective.reads("f0"):
            with args.main_process_first(desc="caching the reference vectors"):
                cast(PairCollator, self.data_collator).reference, dataset = cache_features(
                    model,
                    dataset,
                    needed={self.objective.kept_side: "all"},
                    pooling=args.pooling,
                    dtype=getattr(torch, args.reference_dtype),
                    folder=args.cache_dir,
                    **shared,
                )
        self.train_dataset = dataset
