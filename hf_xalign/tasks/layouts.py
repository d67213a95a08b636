"""Columns of published data sets of labelled text, and how to convert their values."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_xalign.cache import table_rows
from hf_xalign.data.readers.files import Cells, Record
from hf_xalign.data.span_labels import OUTSIDE
from hf_xalign.errors import InputError, explained

_REMEDY = "Name the right ones by text_columns and label_column. Tables need headers; multiple choice is no task."
FACEBOOK = ("label", "spans", "text", "locale", "tokenization")  # columns of its files, which have no header


@dataclass(frozen=True)
class Layout:
    """Columns of a data set by role, and how to convert its values.

    Attributes:
        columns: `{role: column}`; a record that has all these columns has this layout. Roles are `tokens` and `labels`
            for words; `text_a`, `text_b`, `text` and `label` for texts.
        make: function that makes further columns of a record; its second argument is the place, for messages.
        labels: `{label: label}` renames labels; a record whose label becomes None is left out.
    """

    columns: Mapping[str, str]
    make: Callable[[Record, str], Cells] | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)


def _slots(record: Record, where: str) -> Cells:
    """Return the words and BIO labels of Facebook's character spans, `start:end:label,start:end:label`."""
    columns = "intent, start:end:label of each slot, text, locale, and JSON with tokens and tokenSpans"
    broken = (ValueError, TypeError, KeyError, AttributeError, IndexError)
    with explained(f"{where}: not the columns {columns}", *broken):
        tokenization = json.loads(record["tokenization"])
        tokenization = tokenization.get("tokenizations", [tokenization])[0]
        words = [(token["start"], token["start"] + token["length"]) for token in tokenization["tokenSpans"]]
        spans = []
        for span in filter(None, record["spans"].split(",")):
            start, end, slot = span.split(":", 2)
            spans.append((int(start), int(end), slot))
        return {"tokens": tokenization["tokens"], "labels": _bio(words, spans)}


def _pieces(record: Record, where: str) -> Cells:
    """Return the text, words and BIO labels of SNIPS' pieces of text, some of which have an `entity`."""
    with explained(f"{where}: 'data' is not a list of pieces, each with a text", TypeError, KeyError):
        texts = [piece["text"] for piece in record["data"]]
        text = "".join(texts)
    spans = []
    for end, piece in zip(itertools.accumulate(map(len, texts)), record["data"]):
        if "entity" in piece:
            spans.append((end - len(piece["text"]), end, piece["entity"]))
    words = list(re.finditer(r"[^ \t\r\n]+", text))
    labels = _bio([word.span() for word in words], spans)
    return {"text": text, "tokens": [word[0] for word in words], "labels": labels}


def _brackets(record: Record, where: str) -> Cells:
    """Return the words and BIO labels of MASSIVE's slots, `weck mich um [time : neun uhr]`."""
    words: list[str] = []
    labels: list[str] = []
    for slot, inside, outside in re.findall(r"\[([^\[\]:]+):([^\[\]]*)\]|([^\[\]]+)", record["annot_utt"]):
        for number, word in enumerate((inside or outside).split()):
            words.append(word)
            labels.append(f"{'I' if number else 'B'}-{slot.strip()}" if slot else OUTSIDE)
    return {"tokens": words, "labels": labels}


def _bio(words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int, str]]) -> list[str]:
    """Return the BIO label of each word, by the first span that shares a character with it."""
    labels, before = [], None
    for start, end in words:
        span = next((span for span in spans if start < span[1] and span[0] < end), None)
        labels.append(OUTSIDE if span is None else f"{'I' if span is before else 'B'}-{span[2]}")
        before = span
    return labels


# The other layouts are the rows of `layouts.tsv`; a record has the first that fits.
LAYOUTS = {
    "Facebook's multilingual task-oriented dialogues": Layout(dict(zip(FACEBOOK, FACEBOOK)), make=_slots),
    "MASSIVE": Layout({"text": "utt", "label": "intent", "slots": "annot_utt"}, make=_brackets),
    "SNIPS": Layout({"label": "list", "data": "data"}, make=_pieces),
}
for _name, _columns, _labels in table_rows(Path(__file__).with_name("layouts.tsv")):
    _renamed = {label: new or None for label, new in (pair.split("=") for pair in _labels.split())}
    LAYOUTS[_name] = Layout(dict(column.split("=") for column in _columns.split()), labels=_renamed)


def name_columns(record: Cells, where: str) -> tuple[Cells, str | None]:
    """Return a record with the columns of its layout, and the reason if it is left out, else None."""
    for layout in LAYOUTS.values():
        if not record.keys() >= {*layout.columns.values()}:
            continue
        made_columns = layout.make(record, where) if layout.make else {}
        named = {role: value_of(record, column, where) for role, column in layout.columns.items()}
        named |= made_columns | record
        label = named.get("label")
        if named.get("text_a") == named.get("text_b") == "NS":  # in PAWS-X
            return record, "without a translation (NS)"
        if isinstance(label, str):
            named["label"] = layout.labels.get(label, label)
        return named, f"labelled {label}" if label and named["label"] is None else None
    return record, None


def value_of(record: Record, column: str, where: str, remedy: str = _REMEDY) -> Any:
    """Return a value of a record; an InputError that ends with `remedy` is raised if the record has no such column."""
    names = [name for name in record if name.lower() == column.lower()]
    if len(names) != 1:
        fault = f"{len(names)} columns are called" if names else "no column"
        columns = ", ".join(record) or "none"
        raise InputError(f"{where}: {fault} {column!r}; the columns are {columns}. {remedy}")
    return record[names[0]]
