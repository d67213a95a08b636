"""Recognise published data sets by their columns, and rename these to those of examples.

Each layout of `LAYOUTS` maps columns to roles, so a file or Hub dataset with these columns needs no `text_columns` and
`label_column`. Columns that already have the name of a role stay.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_xalign.data.readers import (
    Rows,
    file_format,
    is_conllu,
    read_cells,
    read_conll,
    read_json,
    read_jsonl,
    read_table,
)
from hf_xalign.data.span_labels import OUTSIDE, span_parts
from hf_xalign.errors import InputError, explained

# Files with one word on each line: CoNLL-2002 and 2003, pioNER, WikiANN (whose files have no suffix).
WORD_LINES = ("", ".conll", ".conll02", ".conll03", ".iob", ".iob2", ".bio", ".txt", ".train", ".testa", ".testb")
SUFFIXES = (".jsonl", ".json", ".tsv", ".csv", ".conllu", *WORD_LINES[1:])
_FACEBOOK = ("label", "spans", "text", "locale", "tokenization")
_PREFIX = re.compile(r"(?:[a-z]{2,3}(?:-[a-z]+)*|simple):(?!//)")


@dataclass(frozen=True)
class Layout:
    """Columns of a data set by role, and how to convert its values.

    Attributes:
        columns: `{role: column}`; a record that has all these columns has this layout. Roles are `tokens` and `labels`
            for words; `text_a`, `text_b`, `text` and `label` for texts; `language` in a file of several languages.
        make: function that makes further columns of a record; its second argument is the place, for messages.
        labels: `{label: label}` renames labels; a record whose label becomes None is left out.
    """

    columns: Mapping[str, str]
    make: Callable[[Mapping[str, Any], str], dict[str, Any]] | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)


def _slots(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the words and BIO labels of Facebook's character spans, `start:end:label,start:end:label`."""
    columns = "intent, start:end:label of each slot, text, locale, and JSON with tokens and tokenSpans"
    broken = (ValueError, TypeError, KeyError, AttributeError, IndexError)
    with explained(f"{where}: not the columns {columns}", *broken):
        found = json.loads(record["tokenization"])
        found = found.get("tokenizations", [found])[0]
        words = [(token["start"], token["start"] + token["length"]) for token in found["tokenSpans"]]
        spans = [span.split(":", 2) for span in record["spans"].split(",") if span]
        labels = _bio(words, [(int(start), int(end), kind) for start, end, kind in spans])
        return {"tokens": found["tokens"], "labels": labels}


def _pieces(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the text, words and BIO labels of SNIPS' pieces of text, some of which have an `entity`."""
    with explained(f"{where}: 'data' is not a list of pieces, each with a text", TypeError, KeyError):
        texts = [piece["text"] for piece in record["data"]]
        text, ends = "".join(texts), [sum(map(len, texts[: k + 1])) for k in range(len(texts))]
    spans = [
        (end - len(piece["text"]), end, piece["entity"])
        for end, piece in zip(ends, record["data"], strict=True)
        if "entity" in piece
    ]
    words = list(re.finditer(r"[^ \t\r\n]+", text))
    labels = _bio([word.span() for word in words], spans)
    return {"text": text, "tokens": [word[0] for word in words], "labels": labels}


def _bio(words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int, str]]) -> list[str]:
    """Return the BIO label of each word, by the first span that shares a character with it."""
    labels, before = [], None
    for start, end in words:
        span = next((span for span in spans if start < span[1] and span[0] < end), None)
        labels.append(OUTSIDE if span is None else f"{'I' if span is before else 'B'}-{span[2]}")
        before = span
    return labels


LAYOUTS = {
    "XNLI": Layout({"text_a": "sentence1", "text_b": "sentence2", "label": "gold_label", "language": "language"}),
    "MultiNLI": Layout({"text_a": "sentence1", "text_b": "sentence2", "label": "gold_label"}, labels={"-": None}),
    "XNLI's translations of MultiNLI": Layout(
        {"text_a": "premise", "text_b": "hypo", "label": "label"}, labels={"contradictory": "contradiction"}
    ),
    "XNLI on the Hub": Layout({"text_a": "premise", "text_b": "hypothesis", "label": "label"}),
    "WikiANN and CoNLL on the Hub": Layout({"tokens": "tokens", "labels": "ner_tags"}),
    "MultiATIS++": Layout({"tokens": "utterance", "labels": "slot_labels", "text": "utterance", "label": "intent"}),
    "Facebook's multilingual task-oriented dialogues": Layout({name: name for name in _FACEBOOK}, make=_slots),
    "SNIPS": Layout({"label": "list", "data": "data"}, make=_pieces),
}


def name_columns(record: dict[str, Any], language: str, where: str) -> tuple[dict[str, Any], str | None]:
    """Return a record with the columns of its layout, and the reason if it is left out, else None."""
    for layout in LAYOUTS.values():
        if not all(column in record for column in layout.columns.values()):
            continue
        own = layout.columns.get("language") and record["language"]
        if own and own != re.split("[-_]", language)[0]:
            return record, f"in {own}"
        made = layout.make(record, where) if layout.make else {}
        found = {role: record[column] for role, column in layout.columns.items()} | made | record
        label = found.get("label")
        if isinstance(label, str):
            found["label"] = layout.labels.get(label, label)
        return found, f"labelled {label}" if label and found["label"] is None else None
    return record, None


def read_rows(path: Path) -> Rows:
    """Yield the rows of a file of labelled text, by its suffix and, for TSV and CSV, its first lines."""
    match kind := file_format(path):
        case ".jsonl":
            return read_jsonl(path)
        case ".json":
            return read_json(path)
        case ".tsv" | ".csv":
            rows = [cells for _, cells in itertools.islice(read_cells(path), 20) if cells]
            if rows and len(rows[0]) == len(_FACEBOOK) and rows[0][-1].startswith("{"):
                return read_table(path, _FACEBOOK)
            # Words and their labels have no header.
            labels = {cells[-1] for cells in [cells for cells in rows if not cells[0].startswith("#")][:2]}
            if kind == ".csv" or not (is_conllu(path) or labels == {OUTSIDE} or span_parts(labels, certain=True)):
                return read_table(path)
    if kind in (".tsv", ".conllu", *WORD_LINES):
        return _unprefixed(path)
    raise InputError(
        f"{path}: labelled text is read from {', '.join(SUFFIXES)} or no suffix (each also .gz), not from {kind!r}"
    )


def _unprefixed(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield sentences without the language prefix of words (`en:word`), if the first word has one, as in WikiANN."""
    prefix: str | None = None
    for line, record in read_conll(path):
        words = record.get("tokens", [""])
        if prefix is None:
            prefix = match[0] if (match := _PREFIX.match(words[0])) else ""
        if prefix and all(word.startswith(prefix) for word in words):
            record["tokens"] = [word.removeprefix(prefix) for word in words]
        yield line, record
