"""Give a model the language of its text, if it has one map per language, or language embeddings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from hf_xalign.checks import check_distinct
from hf_xalign.errors import InputError
from hf_xalign.language_codes import same_language

# It imports this module.
if TYPE_CHECKING:
    from hf_xalign.modeling.xalign.top import TopLayer

EMBEDDINGS = "the encoder has language embeddings"


def add_language_embeddings(model: PreTrainedModel, languages: Sequence[str]) -> dict[str, int]:
    """Give an encoder a token-type embedding for each language, in place.

    A new language starts from the old row 0 (zeros if the checkpoint has none, as DeBERTa-v3), so the encoder's
    outputs do not change until it is trained. A language that the encoder already has keeps its row. The config gets
    `type_vocab_size`, and `language_ids` with the row of each code.

    Rows for a second segment (BERT's) are removed. The tokenizer knows no languages: replace the `token_type_ids` that
    it returns. Without `token_type_ids`, text is in the first language, row 0.

    Args:
        model: an encoder, or a model with an encoder and a head.
        languages: language codes in the order of their rows.

    Returns:
        The row of each language, new and old.

    Raises:
        InputError: `languages` is empty or has duplicates, or the model family has no token types.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from hf_xalign.modeling import add_language_embeddings
        >>> tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> encoder = BertModel(BertConfig(vocab_size=20, **tiny))
        >>> add_language_embeddings(encoder, ["en", "de", "bn"])
        {'en': 0, 'de': 1, 'bn': 2}
        >>> encoder.embeddings.token_type_embeddings
        Embedding(3, 8)
    """
    check_distinct(languages=languages)
    embeddings = cast(nn.Module, getattr(model.base_model, "embeddings", None))
    if not hasattr(embeddings, "token_type_embeddings"):
        raise InputError(
            f"{type(model).__name__} ({model.config.model_type}) has no token-type embeddings to hold language "
            "embeddings. Train without language embeddings (the objectives MLM and ALIGN-MLM use none), or take an "
            "encoder of the BERT, RoBERTa, XLM-R, ALBERT, ELECTRA or DeBERTa family"
        )
    config = model.config
    ids = language_ids(config) or {}
    old_count = len(ids)
    for language in languages:
        ids.setdefault(language, len(ids))
    old = cast(nn.Embedding | None, embeddings.token_type_embeddings)
    words = cast(nn.Embedding, model.get_input_embeddings()).weight
    weight = words.new_zeros(1, words.shape[1]) if old is None else old.weight.detach()
    rows = torch.cat([weight[:old_count], weight[:1].expand(len(ids) - old_count, -1)])
    widened = nn.Embedding.from_pretrained(rows, freeze=old is not None and not old.weight.requires_grad)
    embeddings.token_type_embeddings = widened.train(model.training)
    config.type_vocab_size = len(ids)
    config.language_ids = ids
    return dict(ids)


def language_ids(config: PreTrainedConfig) -> dict[str, int] | None:
    """Return the `token_type_ids` by language code; None for an encoder without language embeddings."""
    ids = getattr(config, "language_ids", None)
    return None if ids is None else dict(ids)


def language_embedding(model: PreTrainedModel, language: str) -> torch.Tensor:
    """Return the embedding of a language, (dim,), detached."""
    embeddings = cast(nn.Module, model.base_model.embeddings)
    row = language_number(language, language_ids(model.config) or {}, EMBEDDINGS)
    return cast(nn.Embedding, embeddings.token_type_embeddings).weight.detach()[row]


def refuse_language_embeddings(model: PreTrainedModel, method: str) -> None:
    """Raise an InputError for an encoder with language embeddings, if `method` would take all text as row 0."""
    if (rows := language_ids(model.config)) is not None:
        raise InputError(
            f"the encoder has language embeddings ({', '.join(rows)}), but {method} would treat all text as "
            f"{next(iter(rows))}. Take an encoder without them (pre-trained by MLM or ALIGN-MLM, not XLM or DICT-MLM)"
        )


Language = str | Sequence[str] | Tensor
"""One code for all rows, one code for each row, or int64 ids (rows,)."""


def set_language(model: nn.Module, language: str | None) -> None:
    """Set the language of the text that follows, for a model with one map per language.

    Args:
        model: encoder, task model or `PeftModel` with one map per language.
        language: code of a language with a map, or of the pivot, whose text is not mapped; None unsets it.

    Raises:
        InputError: the model has no map for the language, or no maps per language at all.

    Example:
        >>> from peft import get_peft_model
        >>> from transformers import BertConfig, BertModel
        >>> from hf_xalign.modeling import XAlignConfig, set_language
        >>> tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> encoder = BertModel(BertConfig(vocab_size=20, **tiny), add_pooling_layer=False).eval()
        >>> model = get_peft_model(encoder, XAlignConfig(languages=["de", "bn"], pivot="en"))
        >>> set_language(model, "de")
        >>> model(input_ids=torch.tensor([[2, 7, 3]])).last_hidden_state.shape
        torch.Size([1, 3, 8])
    """
    modules = _modules_with_maps(model)
    if not modules:
        raise InputError(f"set_language({language!r}): this model has no map per language. Remove the call.")
    for module in modules:
        module.set_language(language)


@contextlib.contextmanager
def language_context(model: nn.Module, language: str | None) -> Iterator[None]:
    """Set the language of text within a `with` block; a model that does not distinguish languages stays as it is."""
    if language is None:
        yield
        return
    modules = _modules_with_maps(model)
    before = current_languages(model)
    rows = language_ids(cast(PreTrainedModel, model).config)
    row = None if rows is None else language_number(language, rows, EMBEDDINGS)

    # The language embeddings are those of token types, which a call may also pass itself.
    def add_types(module: nn.Module, args: tuple, kwargs: dict[str, torch.Tensor]) -> tuple[tuple, dict]:
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        return args, {"token_type_ids": torch.full_like(ids, cast(int, row)), **kwargs}

    with contextlib.nullcontext() if row is None else model.register_forward_pre_hook(add_types, with_kwargs=True):
        try:
            for module in modules:
                module.set_language(language)
            yield
        finally:
            for module, old in zip(modules, before, strict=True):
                module._language = old


def current_languages(model: nn.Module) -> list[str | None]:
    """Return the language that each module with one map per language is set to."""
    return [module._language for module in _modules_with_maps(model)]


def _modules_with_maps(model: nn.Module) -> list[TopLayer]:
    return cast("list[TopLayer]", [module for module in model.modules() if getattr(module, "language_maps", None)])


def language_number(language: str, ids: Mapping[str, int], what: str) -> int:
    """Return the id of a language, such as that of `he` for `iw`; `what` says who has `ids` in the InputError."""
    code = language if language in ids else next((code for code in ids if same_language(code, language)), None)
    if code is None:
        raise InputError(f"language={language}: {what} for {', '.join(ids) or 'no language'}. Give one of them.")
    return ids[code]


def row_numbers(language: Language | None, ids: Mapping[str, int], rows: int) -> Tensor:
    """Return the language id of each row, int64 (rows,); ids that were given are kept."""
    if language is None:
        raise InputError(
            "this module has a map for each language. Give the language of the text by "
            f"hf_xalign.modeling.set_language(model, {next(iter(ids))!r}) or language=... ({', '.join(ids)})"
        )
    if isinstance(language, Tensor):
        all_ids = ids.values()
        strange = (language < min(all_ids)) | (language > max(all_ids))
        if strange.any():
            raise InputError(f"language: unknown id {int(language[strange][0])}. The ids are {dict(ids)}.")
        return language
    # Not as a list, whose length would become a constant of an exported graph.
    if isinstance(language, str):
        return torch.full((rows,), language_number(language, ids, "this module has maps"))
    return torch.tensor([language_number(name, ids, "this module has maps") for name in language])
