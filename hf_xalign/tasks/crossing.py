"""Make examples with two languages in each from parallel sets."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from hf_xalign.cache import digest
from hf_xalign.data.batches.masked import example_draws
from hf_xalign.data.code_switching import code_switch_pairs
from hf_xalign.data.derived.language import DerivedLanguage, derive, tree_columns
from hf_xalign.data.derived.word_order import load_treebank
from hf_xalign.data.readers.conll import is_conllu
from hf_xalign.data.span_labels import IGNORED, UNLABELLED
from hf_xalign.errors import InputError, explained
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.labelled_files import read_records
from hf_xalign.tasks.squad import COLUMNS, pair_code, read_questions

_QUESTION = ("question", "question_lang")  # columns that the first source gives
_CONTEXT = ("context", "context_lang", "answers")  # and the second; answers lie in the context
_CROSSED = re.compile(r"([A-Za-z-]+)\+([A-Za-z-]+)=([^,]+),([^,]+)")


def read_crossed(item: str, read: Callable[..., Examples] = read_questions, **options: Any) -> Examples:
    """Read an item by `read`, or combine two sources, `hi+en=SOURCE,SOURCE`, into examples in two languages.

    Questions of the first source are combined with contexts of the second ([`cross_lingual`]). In pairs of texts of
    the first source, one text is replaced by the second source's ([`mix_languages`], seed 0).
    """
    if not (match := _CROSSED.fullmatch(item)):
        return read(item, **options)
    first, second = (read(f"{match[side]}={match[side + 2]}", **options) for side in (1, 2))
    if "context" in first.rows.column_names:
        return cross_lingual(first, second)
    return replace(mix_languages(first, second, seed=0), language=f"{match[1]}+{match[2]}")


def cross_lingual(questions: Examples, contexts: Examples) -> Examples:
    """Combine questions in one language with contexts and answers in another.

    This is MLQA's G-XLT (Lewis et al. 2020), for any set whose languages share ids, such as XQuAD.

    Args:
        questions: set from [`read_questions`] with the questions.
        contexts: set from [`read_questions`] with contexts and answers.

    Returns:
        The rows of `contexts` with the questions of `questions`; the language names both (`en+de`).

    Raises:
        InputError: a context's id is not among the questions.
    """
    halves = code_switch(contexts, questions).rows
    combined = halves.select(range(1, len(halves), 2)).select_columns(list(COLUMNS))  # questions of `questions`
    languages = set(zip(combined["question_lang"], combined["context_lang"], strict=True))
    name = f"{contexts.name} with the questions of {questions.name}"
    code = pair_code(*languages.pop()) if len(languages) == 1 else pair_code(questions.language, contexts.language)
    return Examples(name, code, combined, contexts.unit, digest(questions.fingerprint, contexts.fingerprint))


def mix_languages(examples: Examples, english: Examples, *, seed: int) -> Examples:
    """Replace one text of each example, chosen at random, by its English original.

    This makes the mixed-language NLI of Efimov et al. (2022). The texts are question and context, or a pair of texts.
    The choice depends on the seed and the example's number. Save the result by `mixed.rows.to_json("mixed.jsonl")`.

    Args:
        examples: questions, or pairs of texts (`text_a`, `text_b`).
        english: the same examples in English: questions are matched by `id`, pairs of texts by row.
        seed: seed of the choices.

    Returns:
        The rows of `examples`, with a column `english` that names the replaced column.

    Raises:
        InputError: an id is missing, or the numbers of rows or the labels differ.
    """
    halves, sides = code_switch(examples, english).rows, _sides(examples)
    second_is_english = example_draws(np.arange(len(examples)), 1, seed=seed, epoch=0) < 0.5
    # In the first half of each example, the second side is English.
    mixed = halves.select(2 * np.arange(len(examples)) + ~second_is_english)
    mixed = mixed.add_column("english", np.where(second_is_english, sides[1][0], sides[0][0]).tolist())
    name = f"{examples.name} mixed with {english.name} (seed {seed})"
    fingerprint = digest(examples.fingerprint, english.fingerprint, seed)
    return Examples(name, examples.language, mixed, examples.unit, fingerprint)


def code_switch(examples: Examples, english: Examples) -> Examples:
    """Code-switch translated training examples: combine each text with the English original of the other text.

    As in Pan et al. (2021), section 2.3, each example becomes two, which training keeps in one batch. The arguments
    are those of [`mix_languages`].
    """
    first, second = _sides(examples)
    key = "id" if "id" in examples.rows.column_names else None
    with explained(f"{examples.name} with {english.name}"):
        halves = code_switch_pairs(examples.rows, english.rows, first, second, key)
    return replace(
        examples,
        name=f"{examples.name} code-switched with {english.name}",
        rows=halves,
        fingerprint=digest(examples.fingerprint, english.fingerprint, "switched"),
        group_size=2,
    )


def _sides(examples: Examples) -> tuple[Sequence[str], Sequence[str]]:
    """Return the columns of each of the two texts of an example."""
    return (_QUESTION, _CONTEXT) if "context" in examples.rows.column_names else (("text_a",), ("text_b",))


def derive_examples(
    examples: Examples, source: str, language: DerivedLanguage, *, split: str = "train", revision: str | None = None
) -> Examples:
    """Rewrite examples that were read from `source` in a derived language; unknown characters stay.

    For a language with `syntax`, `source` must also have the trees; otherwise an InputError is raised.
    """
    rows = examples.rows
    if language.word_order is not None:
        rows = with_trees(rows, source, split=split, revision=revision)
    labels = "labels" if "labels" in rows.column_names else None
    with explained(examples.name):
        derived = derive(rows, language, _texts(rows), labels=labels)
    if labels:
        # A word without a label stays one: read again, `_` would be `O` in a set without `O`.
        names = [[IGNORED if name == UNLABELLED else name for name in row] for row in derived["labels"]]
        derived = derived.remove_columns("labels").add_column("labels", names)
    fingerprint = digest(examples.fingerprint, str(language))
    return replace(examples, language=language.code, rows=derived, fingerprint=fingerprint)


def with_trees(rows: Dataset, source: str, *, split: str = "train", revision: str | None = None) -> Dataset:
    """Add the [`tree_columns`] to rows that were read from `source`."""
    if Path(source).is_file() and is_conllu(source):
        trees = load_treebank(source).remove_columns("tokens")
        return concatenate_datasets([rows, trees.select(range(len(rows)))], axis=1)
    columns = list(chain.from_iterable(tree_columns(_texts(rows)).values()))
    unit, records, _ = read_records(source, split=split, revision=revision)
    records_by_line = dict(records)
    for line in rows["line"]:
        if missing := [name for name in columns if not records_by_line[line].get(name)]:
            fault = f"no column {', '.join(missing)}, and T_syn needs the tree of every text"
            raise InputError(f"{source}, {unit} {line}: {fault}. Take a .conllu file, or add these columns.")
    for name in columns:
        rows = rows.add_column(name, [records_by_line[line][name] for line in rows["line"]])
    return rows


def _texts(rows: Dataset) -> list[str]:
    return [name for name in ("tokens", "text_a", "text_b") if name in rows.column_names]
