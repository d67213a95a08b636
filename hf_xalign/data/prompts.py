"""Prompts: text before every sentence, such as `query: ` for the e5 encoders, kept in the tokenizer.

A prompt is part of the tokenizer's template, like [CLS]. So everything that encodes text adds it: training,
evaluation, [`~hf_xalign.encode_sentences`], and every program that loads the saved tokenizer. Its tokens belong to no
word.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tokenizers import processors
from transformers import PreTrainedTokenizerBase

from hf_xalign.errors import InputError

_MARK = "[prompt] "


def prompt_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the prompt of a tokenizer, "" if it has none."""
    template = _template(_processors(tokenizer))
    return next((name.removeprefix(_MARK) for name in template["special_tokens"] if name.startswith(_MARK)), "")


def set_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str) -> PreTrainedTokenizerBase:
    """Make a fast tokenizer put a prompt before every text, in place of an earlier prompt, and return the tokenizer.

    The token ids are those of `prompt + text`. In a pair of texts, only the first gets the prompt. The prompt ""
    removes it. `save_pretrained` saves it with the tokenizer.

    Raises:
        InputError: the tokenizer is not a fast one, or splits a text differently after the prompt than alone.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> backend = Tokenizer(models.WordLevel({"[UNK]": 0, "query": 1, ":": 2, "cat": 3}, unk_token="[UNK]"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = set_prompt(PreTrainedTokenizerFast(tokenizer_object=backend), "query: ")
        >>> tokenizer("cat").input_ids, prompt_of(tokenizer)
        ([1, 2, 3], 'query: ')
    """
    states = _processors(tokenizer)
    template = _template(states)
    for sequence in (template["single"], template["pair"]):
        sequence[:] = [part for part in sequence if not _name(part).startswith(_MARK)]
    template["special_tokens"] = {
        name: token for name, token in template["special_tokens"].items() if not name.startswith(_MARK)
    }
    if prompt:
        ids, text, both = (tokenizer(one, add_special_tokens=False).input_ids for one in (prompt, "a", f"{prompt}a"))
        if both != [*ids, *text]:
            raise InputError(
                f"prompt={prompt!r}: {tokenizer.name_or_path or 'this tokenizer'} splits a text differently after the "
                f"prompt than alone ({tokenizer.convert_ids_to_tokens(both)}). End the prompt with a blank, or put it "
                "into the text"
            )
        name = _MARK + prompt
        for sequence in (template["single"], template["pair"]):
            sequence.insert(sequence.index({"Sequence": {"id": "A", "type_id": 0}}), _special(name, 0))
        template["special_tokens"][name] = {"id": name, "ids": ids, "tokens": tokenizer.convert_ids_to_tokens(ids)}
    state = states[0] if len(states) == 1 else {"type": "Sequence", "processors": states}
    made: Any = processors.Sequence([]) if len(states) > 1 else processors.TemplateProcessing("$A", "$A $B", [])
    made.__setstate__(json.dumps(state).encode())
    tokenizer.backend_tokenizer.post_processor = made
    return tokenizer


@contextlib.contextmanager
def prompted(tokenizer: PreTrainedTokenizerBase, prompt: str | None) -> Iterator[None]:
    """Set a tokenizer's prompt within a `with` block; None keeps its own."""
    if prompt is None:
        yield
        return
    before = tokenizer.backend_tokenizer.post_processor if tokenizer.is_fast else None
    set_prompt(tokenizer, prompt)
    try:
        yield
    finally:
        tokenizer.backend_tokenizer.post_processor = before


def _processors(tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Any]]:
    """Return the states of a tokenizer's post-processors, with a template among them."""
    if not tokenizer.is_fast:
        raise InputError(f"{type(tokenizer).__name__} cannot have a prompt. Use the fast tokenizer of the same model.")
    processor: Any = tokenizer.backend_tokenizer.post_processor
    state = json.loads(processor.__getstate__()) if processor else None
    states = [] if state is None else state["processors"] if state["type"] == "Sequence" else [state]
    states = [_as_template(one) if one["type"].startswith(("Bert", "Roberta")) else one for one in states]
    if not any(one["type"] == "TemplateProcessing" for one in states):
        states.append(_as_template(None))
    return states


def _template(states: list[dict[str, Any]]) -> dict[str, Any]:
    return next(one for one in states if one["type"] == "TemplateProcessing")


def _as_template(state: dict[str, Any] | None) -> dict[str, Any]:
    """Convert BERT's or RoBERTa's post-processor, or None, into a template."""
    texts = [{"Sequence": {"id": text, "type_id": 0}} for text in "AB"]
    if state is None:
        return {"type": "TemplateProcessing", "single": texts[:1], "pair": texts, "special_tokens": {}}
    bert = state["type"].startswith("Bert")
    (cls, cls_id), (sep, sep_id) = state["cls"], state["sep"]
    second = int(bert)
    single = [_special(cls, 0), texts[0], _special(sep, 0)]
    pair = [*single, *([] if bert else [_special(sep, 0)]), {"Sequence": {"id": "B", "type_id": second}}]
    tokens = {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ((cls, cls_id), (sep, sep_id))}
    whole = [*pair, _special(sep, second)]
    return {"type": "TemplateProcessing", "single": single, "pair": whole, "special_tokens": tokens}


def _special(name: str, type_id: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": type_id}}


def _name(part: dict[str, Any]) -> str:
    return next(iter(part.values()))["id"]
