"""Rewrite labelled text in a derived language; labels move with their words."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from datasets import Dataset, concatenate_datasets

from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.derived.rows import derive, tree_columns
from hf_xalign.data.derived.treebank import load_treebank
from hf_xalign.data.readers import is_conllu
from hf_xalign.data.span_labels import span_parts
from hf_xalign.errors import InputError, explained
from hf_xalign.tasks.examples import Examples, read_records


def derive_examples(
    part: Examples, source: str, language: DerivedLanguage, *, split: str = "train", revision: str | None = None
) -> Examples:
    """Rewrite examples that were read from `source` in a derived language; unknown characters stay.

    For a language with `syntax`, `source` must also have the trees; otherwise an InputError is raised.
    """
    rows = part.rows if language.word_order is None else with_trees(part.rows, source, split=split, revision=revision)
    content = f"{part.fingerprint} {language}".encode()
    derived = derive_rows(rows, language, part.name)
    return replace(
        part, language=language.code, rows=derived, fingerprint=hashlib.blake2b(content, digest_size=16).hexdigest()
    )


def derive_rows(rows: Dataset, language: DerivedLanguage, name: str) -> Dataset:
    """Rewrite labelled rows, with trees if `language` has `syntax`, in the derived language."""
    moved = {}
    if "labels" in rows.column_names:
        spans = span_parts(label for labels in rows["labels"] for label in labels)
        moved = {"spans" if spans else "labels": "labels"}
    with explained(name):
        return derive(rows, replace(language, on_unknown="keep"), _texts(rows), **moved)


def with_trees(rows: Dataset, source: str, *, split: str = "train", revision: str | None = None) -> Dataset:
    """Add the [`tree_columns`] to rows that were read from `source`."""
    if Path(source).is_file() and is_conllu(source):
        trees = load_treebank(source).remove_columns("tokens")
        return concatenate_datasets([rows, trees.select(range(len(rows)))], axis=1)
    wanted = [name for names in tree_columns(_texts(rows)).values() for name in names]
    unit, records, _ = read_records(source, split=split, revision=revision)
    found = dict(records)
    for place in rows["line"]:
        if missing := [name for name in wanted if not found[place].get(name)]:
            raise InputError(
                f"{source}, {unit} {place}: no column {', '.join(missing)}. T_syn needs the tree of every text. Take "
                "a .conllu file, or add these columns."
            )
    for name in wanted:
        rows = rows.add_column(name, [found[place][name] for place in rows["line"]])
    return rows


def _texts(rows: Dataset) -> list[str]:
    return [name for name in ("tokens", "text_a", "text_b") if name in rows.column_names]
