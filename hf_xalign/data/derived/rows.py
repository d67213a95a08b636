"""Rewrite datasets in a derived language, with their labels, and pair derived with natural sentences."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

from datasets import Dataset, Features, LargeList, List, Value

from hf_xalign.cache import map_rows
from hf_xalign.data.derived.language import DerivedLanguage, sentences
from hf_xalign.data.derived.word_order import TREE_COLUMNS, Tree
from hf_xalign.data.parallel import LINKED, Table, check_columns
from hf_xalign.data.span_labels import Span, find_spans, span_parts
from hf_xalign.errors import explained

logger = logging.getLogger(__name__)


def derive(
    dataset: Dataset, language: DerivedLanguage, columns: Sequence[str], *, labels: str | None = None
) -> Dataset:
    """Rewrite text of the natural language in a derived one; labels move with their words.

    `columns` hold text (strings with blanks between words, or word lists). If there is one, the column `labels` may
    hold one string for each of its words; labels of spans are BIO labels, see [`move_spans`]. A language with `syntax`
    also needs the [`tree_columns`]. Other list columns are dropped, because their values may belong to words that
    moved.
    """
    trees = tree_columns(columns) if "syntax" in language.operations else dict.fromkeys(columns, ())
    _check_columns(dataset, trees, *([] if labels is None else [labels]))
    read = {*columns, labels}
    columns_left = []
    for name, feature in dataset.features.items():
        if name in read or not isinstance(feature, List | LargeList | list):
            columns_left.append(name)
    if left := sorted(set(dataset.column_names).difference(columns_left, *tree_columns(columns).values())):
        logger.info("dropped, because the values may belong to words that moved: %s", ", ".join(left))
    spans = labels is not None and bool(span_parts(chain.from_iterable(dataset[labels])))

    def rewrite(batch: Table, rows: Sequence[int]) -> Table:
        rewritten: Table = {name: [] for name in (*trees, *([labels] if labels else []))}
        for i, row in enumerate(rows):
            for name, tree in trees.items():
                value = batch[name][i]
                _, order, derived = _sentence(batch, i, row, name, tree, language)
                rewritten[name].append(" ".join(derived) if isinstance(value, str) else derived)
            if labels:
                values = batch[labels][i]
                rewritten[labels].append(move_spans(values, order) if spans else [values[k] for k in order])
        return rewritten

    return map_rows(
        dataset,
        rewrite,
        with_indices=True,
        remove_columns=[name for name in dataset.column_names if name not in columns_left],
        features=Features({name: dataset.features[name] for name in columns_left}),
        desc=f"Deriving {language.code}",
    )


def tree_columns(columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the tree columns of each text column: `upos`, `heads` and `deprels`, see [`Tree`].

    With several text columns, each name begins with that of its text, as in `text_b_heads`.
    """
    return {name: tuple(f"{name}_{end}" if len(columns) > 1 else end for end in TREE_COLUMNS) for name in columns}


def derive_pairs(dataset: Dataset, language: DerivedLanguage, column: str) -> Dataset:
    """Make parallel text of a derived language and its natural one, with exact word links.

    `column` holds the text; arguments and errors are those of [`derive`]. Every sentence of a row becomes a pair. With
    `syntax` the whole row is one pair, because it has one tree. Returns the columns `source` (derived), `target`
    (natural), `source_lang`, `target_lang`, `source_words`, `target_words` and `links`, one link for each word.
    """
    trees = tree_columns([column])[column] if "syntax" in language.operations else ()
    _check_columns(dataset, {column: trees})
    texts, text = List(Value("string")), Value("string")

    def pair(batch: Table, rows: Sequence[int]) -> Table:
        pairs: list[tuple] = []
        for i, row in enumerate(rows):
            words, order, derived = _sentence(batch, i, row, column, trees, language)
            # Without trees no word leaves its sentence.
            stops = [len(words)] if trees else [stop for _, _, stop in sentences(words)]
            for start, stop in pairwise([0, *stops]):
                if start < stop:
                    sides = derived[start:stop], words[start:stop]
                    links = [[new_index, index - start] for new_index, index in enumerate(order[start:stop])]
                    pairs.append((*map(" ".join, sides), language.code, language.base, *sides, links))
        return {name: [row[k] for row in pairs] for k, name in enumerate(LINKED)}

    return map_rows(
        dataset,
        pair,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=Features(dict(zip(LINKED, (*[text] * 4, texts, texts, List(List(Value("int32")))), strict=True))),
        desc=f"Pairing {language.code}",
    )


def move_spans(labels: Sequence[str], order: Sequence[int]) -> list[str]:
    """Reorder BIO labels with their words; `order` has for each new place the index of the word that goes there.

    Words of one span that are still next to each other stay one span: the first is B, the others I (B I I reversed is
    B I I). A span whose words are separated becomes several spans. An I without a B of its type before it begins a
    span (IOB1).
    """
    span_of: dict[int, Span] = {}
    for span in find_spans(labels):
        span_of |= dict.fromkeys(range(span.start, span.end), span)
    moved = []
    last = None
    for index in order:
        own = span_of.get(index)
        moved.append(labels[index] if own is None else f"{'I' if own == last else 'B'}-{own.kind}")
        last = own
    return moved


def _sentence(
    batch: Table, i: int, row: int, column: str, trees: Sequence[str], language: DerivedLanguage
) -> tuple[list[str], list[int], list[str]]:
    """Return the words of a row, their new order, and the derived words."""
    value = batch[column][i]
    words = value.split() if isinstance(value, str) else list(value)
    with explained(f"row {row}, {column}"):
        tree = Tree(words, *(batch[name][i] for name in trees)) if trees else None
        order = language.order(words, tree)
        return words, order, [language.spell(words[k]) for k in order]


def _check_columns(dataset: Dataset, trees: Mapping[str, Sequence[str]], *labels: str) -> None:
    needed = list(chain.from_iterable(trees.values()))
    remedy = "syntax needs dependency trees: read them from CoNLL-U by load_treebank." if needed else ""
    check_columns(dataset, [*trees, *labels, *needed], "the dataset", remedy)
