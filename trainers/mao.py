"""MAO: train a small module on a frozen encoder so that linked words get similar vectors."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from datasets import Dataset
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.data.batches.pairs import SIDES, CachedLinkCollator, CachedVectors, Side, WordCollator, link_rows
from hf_xalign.data.parallel import only_language
from hf_xalign.errors import InputError
from hf_xalign.modeling.features import Needed
from hf_xalign.modeling.freezing import disable_dropout, freeze_unused
from hf_xalign.modeling.xalign.config import XAlignConfig, base_of
from hf_xalign.modeling.xalign.top import language_numbers
from hf_xalign.trainers.base.trainer import Batch, Computed, Counts, Loss, Prepared
from hf_xalign.trainers.base.word import WordAlignmentTrainer, cache_f0, pair_collator, probe
from hf_xalign.trainers.mao_config import LINKED_ONLY, MAOConfig

# Inputs of a module of ours, which reads words instead of tokens.
_VIEW = ("input_ids", "attention_mask", "word_spans", "word_vectors", "word_mask", "language")


class MAOTrainer(WordAlignmentTrainer):
    """Trainer of the modified alignment objective (MAO section 4): L_align on the output of a small module.

    The settings describe the module, or `model` is a `PeftModel` that has one. A module on top of the frozen encoder
    is trained on word vectors that the encoder computes once and stores on disk; the loss is the same without it.

    Args: those of [`WordAlignmentTrainer`].

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> args = MAOConfig(max_steps=1, report_to="none", save_strategy="no")
        >>> given = {"train_dataset": tiny.pairs, "processing_class": tiny.tokenizer}
        >>> trainer = MAOTrainer(BertModel(tiny.config), args, **given)
        >>> trainer.train().global_step
        {'loss': ...}
        1
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "mao", "cross-lingual-alignment"]
    _paper = "saadi2022comparative"
    config_class = MAOConfig
    method = "mao"
    trains_encoder = False
    args: MAOConfig

    def _prepare(self, model: PreTrainedModel, train_dataset: Dataset) -> Prepared:
        args, languages, pivot = self.args, None, None
        module_config = cast(PeftModel, model).active_peft_config if hasattr(model, "peft_config") else None
        has_maps = getattr(module_config, "languages", None)
        mapped = list(language_numbers(cast(XAlignConfig, module_config))) if has_maps else None
        if mapped or (module_config is None and args.per_language != "none"):
            languages, pivot = _languages(train_dataset, "training", mapped)
            if self.eval_dataset is not None:
                _languages(self.eval_dataset, "held-out", mapped or languages)
        disable_dropout(model)
        # An aligner reads the encoder without a module.
        train_dataset = self._encoded(train_dataset, model, ahead=True)
        before = None
        if module_config is None:
            fixed_language = pivot if args.per_language == "others" else None
            own_map_languages = languages and [name for name in languages if name != fixed_language]
            ours = args.peft_type == "xalign"
            before = None if ours else probe(model).detach()
            model = cast(PreTrainedModel, args.add_module(model, own_map_languages, fixed_language))
            self.random_start = ours and args.init == "random"
        self._check_f0(model, before)
        freeze_unused(model, model.config.num_hidden_layers)
        self._settle_layers(model, [-1])
        module = cast(PeftModel, model).active_peft_config
        self._word_view = isinstance(module, XAlignConfig)
        if self._word_view:
            self.objective.require(("links", "f0"), LINKED_ONLY)
        # True if training starts from cached word vectors.
        self._cached = self._word_view and module.adapters is None and args.feature_cache is not False
        self._pairs_are_numbered = args.batch_of == "links"
        self._pivot = pivot
        if self._cached:  # rows and collator follow from the cache
            return model, train_dataset, pair_collator(self)
        return model, *self._batches(module, train_dataset)

    def _batches(self, module: Any, dataset: Dataset, features: CachedVectors | None = None) -> tuple[Dataset, Any]:
        """Return the rows of training, pairs or links, and their collator."""
        alone = features is not None and not (module.top == "transformer" and module.context)
        language_ids = language_numbers(module) if self._word_view and module.languages else None
        if self._pairs_are_numbered:
            with self.args.main_process_first(desc="splitting pairs into links"):
                dataset = link_rows(dataset, alone=alone)
        if features is not None and alone and self._pairs_are_numbered:
            return dataset, CachedLinkCollator(features, self.objective.kept_side, language_ids, self._pivot)
        if not self._word_view:
            return dataset, pair_collator(self)
        return dataset, WordCollator(
            pad_token_id=self.processing_class.pad_token_id,
            linked_tokens=self.args.linked_tokens,
            regularized_side=self.objective.kept_side,
            regularized_words=self.objective.kept_words,
            features=features,
            context=not alone,
            languages=language_ids,
            pivot=self._pivot,
        )

    def _encode_start(self, model: PreTrainedModel) -> None:
        """Cache the frozen encoder's vectors of all words that the loss and the module read, if they are cached."""
        if not self._cached:
            return
        args, encoder = self.args, cast(PeftModel, model)
        module = encoder.active_peft_config
        reads_every_word = module.top == "transformer" and module.context
        needed: dict[Side, Needed] = dict.fromkeys(SIDES, "all" if reads_every_word else "linked")
        if self.objective.kept_words != "linked":
            needed[self.objective.kept_side] = "all"
        with encoder.disable_adapter():
            start = cache_f0(
                self,
                base_of(model),
                cast(Dataset, self.train_dataset),
                needed=needed,
                linked_tokens=args.linked_tokens,
                dtype=getattr(torch, args.cache_dtype),
                batch_size=args.per_device_eval_batch_size,
                folder=args.cache_dir,
                ray=args.ray,
            )
        self.train_dataset, self.data_collator = self._batches(module, start.dataset, start.words)

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Counts = None
    ) -> Loss:
        """Return L_align: terms of the module's output for the words of a batch, and of the frozen encoder's f0."""
        computed, output = self._vectors(model, inputs)
        if self.objective.reads("f0", "sentences0"):
            computed |= self._frozen_vectors(model, inputs)
        loss = self.word_loss(inputs, computed, num_items_in_batch)
        return (loss, output) if return_outputs else loss

    def _vectors(self, model: nn.Module, inputs: Batch) -> Computed:
        if not self._word_view:
            return super()._vectors(model, inputs)
        output = model(**{name: inputs[name] for name in _VIEW if name in inputs})
        return {"words": output.last_hidden_state.flatten(0, 1).unsqueeze(1)}, output

    def _frozen_vectors(self, model: nn.Module, inputs: Batch) -> Batch:
        if not self._word_view:
            return super()._frozen_vectors(model, inputs)
        if "word_vectors" in inputs:
            frozen = inputs["word_vectors"]
        else:
            view = {name: inputs[name] for name in _VIEW if name in inputs}
            with torch.no_grad(), self.accelerator.autocast(), self._frozen_encoder(model) as encoder:
                frozen = encoder(**view).last_hidden_state
        return {"f0": frozen.flatten(0, 1)[inputs["kept_words"]].unsqueeze(1)}


def _languages(pairs: Dataset, name: str, known: list[str] | None) -> tuple[list[str], str]:
    """Return all languages of the pairs, and their pivot; raise an InputError if one is not `known`."""
    pivot = cast(str, only_language(pairs, "target_lang", "per_language"))
    languages = sorted({*pairs.unique("source_lang"), pivot})
    if known is not None and (unknown := sorted(set(languages) - set(known))):
        raise InputError(
            f"the {name} pairs are also in {', '.join(unknown)}, but there are only maps for {', '.join(known)}. "
            "Remove those pairs, train on that language too, or train one map for all languages (per_language=none)."
        )
    return languages, pivot
