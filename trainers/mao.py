"""MAO: train a small module on a frozen encoder so that linked words get similar vectors."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import SIDES, CachedLinkCollator, CachedVectors, Side, WordCollator, link_rows
from hf_xalign.errors import InputError
from hf_xalign.modeling.features.cache import cache_features
from hf_xalign.modeling.features.plan import Needed
from hf_xalign.modeling.freezing import disable_dropout, freeze_unused
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.top import language_numbers
from hf_xalign.trainers.mao_config import MAOConfig
from hf_xalign.trainers.shared.base import first_model
from hf_xalign.trainers.shared.word import WordAlignmentTrainer, encoded, pair_collator

_VIEW = ("input_ids", "attention_mask", "word_spans", "word_vectors", "word_mask", "language")


class MAOTrainer(WordAlignmentTrainer):
    """Trainer of the modified alignment objective (MAO section 4): L_align on the output of a small module.

    The settings describe the module, or `model` is a `PeftModel` that has one. A module on top of the frozen encoder
    trains from word vectors that the encoder computes once and keeps on disk; the loss is the same without that cache.

    Args:
        model: the encoder, changed in place, or a `PeftModel`.
        args: the settings.
        train_dataset: word-linked pairs from `align_words`, or pairs from `encode_pairs`.
        eval_dataset: word-linked pairs, scored by word retrieval.
        processing_class: the model's fast tokenizer.
        kwargs: passed to `Trainer`.

    Raises:
        InputError: a slow tokenizer, pairs without links, or settings that do not fit the model or the pairs.

    Example:
        >>> from datasets import Dataset
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sleeps die katze schläft".split()
        >>> tokenizer = BertTokenizer(vocab={word: k for k, word in enumerate(words)})
        >>> config = BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> pairs = Dataset.from_dict({"source_words": [["die", "katze"]], "target_words": [["the", "cat"]],
        ...     "links": [[[0, 0], [1, 1]]], "source_lang": ["de"], "target_lang": ["en"]})
        >>> encoder = BertModel(config, add_pooling_layer=False)
        >>> args = MAOConfig(max_steps=1, report_to="none", save_strategy="no")
        >>> trainer = MAOTrainer(encoder, args, train_dataset=pairs, processing_class=tokenizer)
        >>> trainer.train().global_step
        {'train_runtime': ...}
        1
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "mao", "cross-lingual-alignment"]
    _paper: ClassVar[dict[str, str]] = {
        "title": "Comparative Analysis of Cross-lingual Contextualized Word Embeddings",
        "id": "MRL 2022",
        "citation": (
            "@inproceedings{saadi2022comparative,\n"
            "  title = {Comparative Analysis of Cross-lingual Contextualized Word Embeddings},\n"
            "  author = {Saadi, Hossain Shaikh and Hangya, Viktor and Eder, Tobias and Fraser, Alexander},\n"
            "  booktitle = {Proceedings of the 2nd Workshop on Multi-lingual Representation Learning (MRL)},\n"
            "  year = {2022}\n"
            "}"
        ),
    }
    args: MAOConfig

    def __init__(
        self,
        model: PreTrainedModel | None,
        args: MAOConfig,
        *,
        train_dataset: Dataset,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase,
        **kwargs: Any,
    ):
        model = first_model(model, args, kwargs.get("model_init"))
        args.check_model(model, processing_class)
        own_maps = _own_maps(model, args)
        languages, pivot = _languages(train_dataset) if own_maps else (None, None)
        if hasattr(model, "peft_config"):
            _check_given(model, args, languages)
        if languages is not None and eval_dataset is not None:
            _check_scored(eval_dataset, _mapped(model) if hasattr(model, "peft_config") else languages)
        train_dataset = encoded(train_dataset, model, processing_class, args)
        disable_dropout(model)
        if not hasattr(model, "peft_config"):
            others = None if languages is None else [name for name in languages if name != pivot]
            kept = pivot if args.per_language == "others" else None
            named = languages if args.per_language == "all" else others
            model = cast(PreTrainedModel, args.add_module(model, named, kept))
            self.random_start = args.own_module and args.init == "random"
        freeze_unused(cast(Any, model).get_base_model(), model.config.num_hidden_layers)
        self.layers = layer_index([-1], model.config.num_hidden_layers)
        module = cast(Any, model).active_peft_config
        self._word_view = isinstance(module, XAlignConfig)
        features = None
        if self._word_view and module.adapters is None and args.feature_cache is not False:
            features, train_dataset = self._cache(model, module, train_dataset, args, processing_class)
        alone = features is not None and not (module.top == "transformer" and module.context)
        numbers = language_numbers(module) if self._word_view and module.languages else None
        self._pairs_are_numbered = args.batch_of == "links"
        if self._pairs_are_numbered:
            with args.main_process_first(desc="splitting pairs into links"):
                train_dataset = link_rows(train_dataset, alone=alone)
        if features is not None and alone and self._pairs_are_numbered:
            collator: Any = CachedLinkCollator(features, args.regularized_side, numbers, pivot)
        elif self._word_view:
            collator = WordCollator(
                pad_token_id=processing_class.pad_token_id,
                linked_tokens=args.linked_tokens,
                regularized_side=args.regularized_side,
                regularized_words=args.reference_words,
                features=features,
                context=not alone,
                languages=numbers,
                pivot=pivot,
            )
        else:
            collator = pair_collator(args, processing_class)
        super().__init__(
            model,
            args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=collator,
            **kwargs,
        )

    def _cache(
        self,
        model: PreTrainedModel,
        module: XAlignConfig,
        dataset: Dataset,
        args: MAOConfig,
        tokenizer: PreTrainedTokenizerBase,
    ) -> tuple[CachedVectors, Dataset]:
        """Cache the frozen encoder's vectors of all words that the loss and the module read."""
        cast(nn.Module, model).to(args.device)
        whole = module.top == "transformer" and module.context
        needed: dict[Side, Needed] = dict.fromkeys(SIDES, "all" if whole else "linked")
        if args.reference_words == "all":
            needed[args.regularized_side] = "all"
        encoder = cast(Any, model)
        with args.main_process_first(desc="caching word vectors"), encoder.disable_adapter():
            return cache_features(
                encoder.get_base_model(),
                dataset,
                needed=needed,
                layers=self.layers,
                pooling=args.pooling,
                pad_token_id=tokenizer.pad_token_id,
                linked_tokens=args.linked_tokens,
                dtype=getattr(torch, args.cache_dtype),
                autocast=torch.bfloat16 if args.bf16 else None,
                batch_size=args.per_device_eval_batch_size,
                folder=args.cache_dir,
            )

    def _word_vectors(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
        if not self._word_view:
            return super()._word_vectors(model, inputs)
        output = model(**{name: inputs[name] for name in _VIEW if name in inputs})
        return output.last_hidden_state.flatten(0, 1).unsqueeze(1), output

    def _reference_vectors(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        if not self._word_view:
            return super()._reference_vectors(model, inputs)
        if "word_vectors" in inputs:
            frozen = inputs["word_vectors"]
        else:
            view = {name: inputs[name] for name in _VIEW if name in inputs}
            with torch.no_grad(), self.accelerator.autocast(), self._frozen_encoder(model) as encoder:
                frozen = encoder(**view).last_hidden_state
        return frozen.flatten(0, 1)[inputs["kept_words"]].unsqueeze(1)


def _own_maps(model: PreTrainedModel, args: MAOConfig) -> bool:
    """Return True if each language has its own map, in the model's module or by the settings."""
    if not hasattr(model, "peft_config"):
        return args.per_language != "none"
    return bool(getattr(cast(Any, model).active_peft_config, "languages", None))


def _check_given(model: PreTrainedModel, args: MAOConfig, languages: list[str] | None) -> None:
    """Refuse a `PeftModel` that does not fit the settings or the pairs: its own module is trained."""
    module = cast(Any, model).active_peft_config
    own = isinstance(module, XAlignConfig)
    on_top = own and module.adapters is None
    if not any(parameter.requires_grad for parameter in cast(nn.Module, model).parameters()):
        raise InputError(
            "every weight of this PeftModel is frozen: load it with PeftModel.from_pretrained(..., is_trainable=True)"
        )
    if len(cast(Any, model).active_adapters) > 1:
        names = ", ".join(cast(Any, model).active_adapters)
        raise InputError(f"adapters {names} of this PeftModel are active: choose the one to train by set_adapter")
    if args.batch_of == "links" and not on_top:
        raise InputError(
            "batch_of=links: this PeftModel trains inside the encoder, which would run over two sentences for "
            "each link; use preset=adapter, or batch_of=pairs"
        )
    if (args.feature_cache or args.cache_dir) and not on_top:
        raise InputError(
            "feature_cache, cache_dir: this PeftModel trains inside the encoder's layers, which changes the word "
            "vectors in every step; leave them out"
        )
    if own and module.pooling != args.pooling:
        raise InputError(f"pooling={args.pooling}: this PeftModel's module is for pooling={module.pooling}")
    unknown = sorted(set(languages or ()) - set(_mapped(model) if own else ()))
    if unknown:
        known = ", ".join(_mapped(model))
        raise InputError(f"the pairs are in {', '.join(unknown)} too, and this PeftModel has maps for {known}")


def _mapped(model: PreTrainedModel) -> list[str]:
    """Return the languages that a `PeftModel`'s module has maps for, and the pivot."""
    return list(language_numbers(cast(Any, model).active_peft_config))


def _check_scored(pairs: Dataset, known: list[str]) -> None:
    """Refuse held-out pairs that could not be scored after training."""
    unknown = sorted(set(_languages(pairs)[0]) - set(known))
    if unknown:
        raise InputError(
            f"the held-out pairs are in {', '.join(unknown)} too, and there are maps for {', '.join(known)} alone: "
            "leave those pairs out, or train on that language too, or train one map for all (per_language=none)"
        )


def _languages(dataset: Dataset) -> tuple[list[str], str]:
    """Return all languages of the pairs, and their pivot."""
    if "target_lang" not in dataset.column_names:
        raise InputError(
            "per_language: the pairs have no column target_lang, which names the pivot; give word-linked pairs, not "
            "encoded ones"
        )
    pivots = set(dataset.unique("target_lang"))
    if len(pivots) > 1:
        raise InputError(f"per_language: target_lang must be one pivot, not {sorted(pivots)}")
    return sorted({*dataset.unique("source_lang"), *pivots}), pivots.pop()
