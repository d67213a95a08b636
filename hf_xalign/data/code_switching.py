"""Code-switched data for fine-tuning on tasks of two texts (NLI, QA), from translated sets and their originals.

    halves = code_switch_pairs(german, english, first="question", second=("context", "answers"))
    encoded = halves.map(tokenize, batched=True, remove_columns=...)     # keep `group`; a row may become many features
    trainer = Trainer(model, args, train_dataset=gather_groups(encoded), data_collator=GroupCollator(collator))

The two halves of an example become one row of lists before training, and the collator separates them again. So any
sampler, several processes, accumulation and resuming keep the halves in one batch. Batch sizes therefore count groups:
`per_device_train_batch_size=16` is the paper's batch of 32.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, List, Value, concatenate_datasets

from hf_xalign.cache import map_rows
from hf_xalign.checks import check_lengths
from hf_xalign.data.arrow import column_array
from hf_xalign.data.parallel import Table, check_columns
from hf_xalign.data.readers.files import Record
from hf_xalign.errors import InputError, explained

GROUP = "group"
_ENGLISH = "english: "  # prefix of the English columns while both sets are joined


def code_switch_pairs(
    dataset: Dataset,
    english: Dataset,
    *,
    first: str | Sequence[str],
    second: str | Sequence[str],
    id_column: str | None = None,
) -> Dataset:
    """Code-switch a translated training set: combine one translated text with the other text's English original.

    As in Pan et al. (2021), section 2.3, the example (q_x, c_x) with its original (q_en, c_en) becomes the rows
    (q_x, c_en) and (q_en, c_x), in this order. If a column holds the language of a text, name it with the text:
    `first=("premise", "premise_lang")`.

    Args:
        dataset: the translated set.
        english: the English original, with the same columns.
        first: text column of q, or several columns: the text column, then columns that belong to that text.
        second: text column of c, or several columns, such as `("context", "answers")` with offsets.
        id_column: column that matches rows; `english` may then have more rows in any order. By default row i matches
            row i.

    Returns:
        Two rows for each row of `dataset`, with its columns and `group` int64, the index of the original row. Columns
        in neither `first` nor `second` keep the translated row's values. [`gather_groups`] needs `group`: keep it when
        tokenizing.

    Raises:
        InputError: a column is missing, the sets differ in length, an id is missing or repeated, labels (of a column
            `label` in both sets) differ, or an answer is not at its offset.
    """
    texts = [[text] if isinstance(text, str) else list(text) for text in (first, second)]
    columns = [*texts[0], *texts[1]]
    for what, data in (("translated", dataset), ("English", english)):
        check_columns(data, [*columns, *filter(None, [id_column])], f"the {what} set", "Name another column.")
    offsets = [name for name, kind in dataset.features.items() if has_offsets(kind)]
    if loose := [name for name in offsets if name not in columns]:
        raise InputError(f"{loose[0]} has offsets. Name it after its text: second=('context', {loose[0]!r})")
    shared = set(dataset.features) & set(english.features) - set(columns)
    compared = ["label"] if "label" in shared else []
    original = english if id_column is None else english.select(_rows_by_id(dataset, english, id_column))
    check_lengths("row", **{"translated examples": dataset, "English examples": original})
    original = original.select_columns(columns + compared)
    original = original.rename_columns({name: _ENGLISH + name for name in columns + compared})
    joined = concatenate_datasets([dataset, original], axis=1)
    # The function below is hashed with what it uses, so it uses no dataset.
    names = dataset.column_names

    def switch(batch: Table, rows: Sequence[int]) -> Table:
        """Make two rows of each row: c is English in the first, q in the second."""
        for i, row in enumerate(rows):
            for name in compared:
                if (translated := batch[name][i]) != (original := batch[_ENGLISH + name][i]):
                    values = f"{name} is {translated} here and {original} in the English set"
                    raise InputError(f"row {row}: {values}. Match the rows by id_column.")
            for text in texts:
                for prefix, side in (("", ""), (_ENGLISH, "English ")):
                    _check_text({name: batch[prefix + name][i] for name in text}, f"row {row}: the {side}", offsets)
        halves = {name: _twice(batch[name]) for name in names}
        for half, text in ((1, texts[0]), (0, texts[1])):
            for name in text:
                halves[name][half::2] = batch[_ENGLISH + name]
        return {**halves, GROUP: _twice(rows)}

    return map_rows(
        joined,
        switch,
        with_indices=True,
        remove_columns=joined.column_names,
        features=Features({**dataset.features, GROUP: Value("int64")}),
        desc="Code-switching",
    )


def _twice(values: Sequence[Any]) -> list[Any]:
    return list(itertools.chain.from_iterable(zip(values, values)))


def gather_groups(dataset: Dataset) -> Dataset:
    """Put the rows of each group into one row of lists, for [`GroupCollator`].

    The rows of a group must be consecutive; a group may have any size, and an example that is not code-switched is a
    group of one row. Gather each language before concatenating them, because their group numbers overlap.
    """
    dataset = check_columns(dataset, [GROUP], "the dataset", "Keep it when tokenizing.")
    columns = [name for name in dataset.column_names if name != GROUP]
    groups = column_array(dataset, GROUP)
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1])) if len(groups) else np.zeros(0, dtype=np.int64)
    group_ids, counts = np.unique(groups[starts], return_counts=True)
    if (counts > 1).any():
        group = group_ids[counts > 1][0]
        rows = starts[groups[starts] == group]
        places = f"rows {rows[0]} and {rows[1]} of group {group} are not consecutive"
        raise InputError(f"{places}. Gather each language before you shuffle and concatenate.")
    # A map over the groups' first rows, so that the result is cached where the dataset is.
    heads = dataset.select(starts).with_format("arrow", columns=[GROUP])
    return map_rows(
        heads,
        _gather,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=Features({name: List(dataset.features[name]) for name in columns}),
        fn_kwargs={"dataset": dataset.with_format("arrow", columns=columns), "bounds": np.append(starts, len(groups))},
        desc="Gathering groups",
    ).with_format(None)


@dataclass(eq=False)
class GroupCollator:
    """Collate rows of [`gather_groups`] with the task's collator of single examples; it also takes ungathered rows.

    Columns with one value for the whole group do not reach the task's collator.
    """

    collate: Callable[[list[Record]], Any]

    def __call__(self, rows: Sequence[Record]) -> Any:
        """Collate every example of every row into one batch."""
        flat: list[Record] = []
        for row in rows:
            if np.ndim(row["input_ids"][0]) == 0:
                flat.append(row)
                continue
            columns = {name: values for name, values in row.items() if not np.isscalar(values)}
            flat += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return self.collate(flat)


def _gather(table: pa.Table, groups: Sequence[int], *, dataset: Dataset, bounds: np.ndarray) -> pa.Table:
    """Return the rows of consecutive groups as lists, with the groups' bounds as arrow offsets."""
    starts = bounds[groups[0] : groups[-1] + 2]
    rows = dataset[int(starts[0]) : int(starts[-1])]
    offsets = pa.array(starts - starts[0], pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, column.combine_chunks()) for column in rows.columns]
    return pa.table(lists, rows.column_names)


def _check_text(columns: Record, where: str, spans: Sequence[str]) -> None:
    """Check that the first column has text, and that the answers are at their offsets in it."""
    name, text = next(iter(columns.items()))
    for column in columns.keys() & spans:
        for answer, start in answer_spans(columns[column]):
            if not stands_at(text, answer, start):
                found = text[max(start, 0) : start + len(answer)]
                fault = f"has {found!r} at offset {start}, not the answer {answer!r}"
                raise InputError(f"{where}{name} {fault}. Correct the offset or remove the row.")


def _rows_by_id(dataset: Dataset, english: Dataset, id_column: str) -> list[int]:
    places: dict[Any, int] = {}
    for row, name in enumerate(english[id_column][:]):
        if places.setdefault(name, row) != row:
            raise InputError(f"{id_column} {name!r} is in rows {places[name]} and {row} of the English set: keep one.")
    with explained(f"{id_column} not in the English set", KeyError):
        return [places[name] for name in dataset[id_column][:]]


def has_offsets(feature: Any) -> bool:
    """Return whether a column holds SQuAD's answers, with `text` and `answer_start`."""
    inner = feature.feature if isinstance(feature, List) else feature
    return isinstance(inner, dict) and {"text", "answer_start"} <= set(inner)


def answer_spans(answers: Any) -> list[tuple[str, Any]]:
    """Return text and start (None if it is missing) of each answer: of a text, a dict of lists or a list of either."""
    if isinstance(answers, str):
        answers = ast.literal_eval(answers) if answers.startswith(("[", "{")) else [answers]
    if isinstance(answers, Mapping):
        texts, starts = answers["text"], answers.get("answer_start")
        if isinstance(texts, str):
            return [(texts, starts)]
        return list(zip(texts, [None] * len(texts) if starts is None else starts, strict=True))
    found = ({"text": answer} if isinstance(answer, str) else answer for answer in answers)
    return [(answer["text"], answer.get("answer_start")) for answer in found]


def stands_at(text: str, answer: str, start: int) -> bool:
    """Return whether the answer is at its offset."""
    return start >= 0 and text.startswith(answer, start)
