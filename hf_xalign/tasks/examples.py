"""Labelled text of one language."""

from __future__ import annotations

import ast
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from datasets import Dataset

from hf_xalign.cache import digest
from hf_xalign.checks import check_choice, check_lengths, check_range
from hf_xalign.data import forms
from hf_xalign.data.load import hub_commit
from hf_xalign.data.parallel import check_dataset, check_labelled
from hf_xalign.data.readers import conll
from hf_xalign.data.readers.files import Cells, Record, text_of
from hf_xalign.data.readers.pairs import texts_by_language
from hf_xalign.data.sides import SAMPLE, warn_of_text
from hf_xalign.data.sources import parse_named
from hf_xalign.data.span_labels import IGNORED, UNLABELLED, word_labels
from hf_xalign.data.words import clean_text
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained
from hf_xalign.language_codes import check_language, closest_language, find_language
from hf_xalign.tasks.labelled_files import class_names, read_records
from hf_xalign.tasks.labels import LabelSet, label_of
from hf_xalign.tasks.layouts import name_columns, value_of

logger = logging.getLogger(__name__)

Kind = Literal["token", "sequence"]
_PAIR = ("text_a", "text_b")
# Several classes of one text, as in GoEmotions, whose combinations would become classes.
_SEVERAL = re.compile(r"\d+(?:,\d+)+|\[['\"\d].*\]")
_OFFSETS = re.compile(r'\[(\[\d|\{"[^}]*start)')
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Examples:
    """Labelled text of one language.

    Labels of words that mark spans (BIOES, BILOU, IOB1, ...) become BIO labels; the log says so.

    Attributes:
        name: file or Hub dataset, for messages.
        language: language code.
        rows: `tokens` and `labels` (lists of str of equal length), or `text_a`, `text_b` (pairs only) and `label`
            (str); and `line` (int), the example's place. Words labelled `_` are neither trained on nor scored.
        unit: unit of a place: `line` of a file, `row` of a Hub dataset.
        fingerprint: hash of the content.
        revision: commit of a Hub dataset.
        group_size: number of consecutive examples that training keeps in one batch; 2 for code-switched text.

    Raises:
        InputError: the rows are no labelled text, no word has a label, or labels of spans are in several schemes.
    """

    name: str
    language: str
    rows: Dataset
    unit: str = "line"
    fingerprint: str = ""
    revision: str | None = None
    group_size: int = 1

    def __post_init__(self) -> None:
        codes = [check_language(code, f"{self.name}: the language") for code in str(self.language).split("+")]
        object.__setattr__(self, "language", "+".join(codes))
        object.__setattr__(self, "rows", check_dataset(self.rows, self.name))
        if "context" in self.rows.column_names:
            return
        object.__setattr__(self, "rows", check_labelled(self.rows, self.name))
        if "labels" not in self.rows.column_names:
            return
        labels = word_labels(self.rows, self.name, self.place)
        if labels != self.rows["labels"][:]:
            rows = self.rows.remove_columns("labels").add_column("labels", labels)
            object.__setattr__(self, "rows", rows.select_columns(self.rows.column_names))
        names = list(itertools.chain.from_iterable(labels))
        words, missing = len(names), names.count(UNLABELLED)
        if missing and missing == words:
            raise InputError(f"{self.name}: no word has a label. Name another label_column.")
        if missing:
            count = f"{missing:,} of {words:,}"
            logger.warning("%s: %s words have no label, and are not trained on or scored", self.name, count)

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, row: int) -> str:
        """Describe the place of example `row` (from 0), for messages."""
        return f"{self.name}, {self.unit} {self.rows[row].get('line', row)}"

    @property
    def label_names(self) -> set[str]:
        """Labels that occur."""
        if "label" in self.rows.column_names:
            return set(self.rows.unique("label"))
        return set(itertools.chain.from_iterable(self.rows["labels"])) - {UNLABELLED}

    def describe(self) -> str:
        """Describe the number of examples, and the first one."""
        values = [value for name, value in self.rows[0].items() if name != "line"]
        first = " | ".join(" ".join(value) if isinstance(value, list) else str(value) for value in values)
        return f"{len(self)} examples of {self.name}, the first: {first:.100}"

    def check_labels(self, labels: LabelSet, source: str) -> None:
        """Raise an InputError that names the first label that is not in `labels`, which come from `source`."""
        if not (strange := self.label_names - set(labels.names)):
            return
        single = "label" in self.rows.column_names
        column = [[label] for label in self.rows["label"]] if single else self.rows["labels"]
        row, names = next((row, names) for row, names in enumerate(column) if strange & {*names})
        word = next(word for word, name in enumerate(names) if name in strange)
        place = self.place(row) + ("" if single else f" (word {word + 1}, {self.rows[row]['tokens'][word]!r})")
        fault = f"the label {names[word]!r} is not among the {labels.describe()} of {source}"
        raise InputError(f"{place}: {fault}. List all labels by labels=labels.json, or remove such examples.")


def read_examples(
    item: str,
    kind: Kind,
    *,
    text_columns: Sequence[str] = (),
    label_column: str | None = None,
    label_names: Sequence[str] = (),
    split: str = "train",
    max_examples: int | None = None,
    revision: str | None = None,
) -> Examples:
    """Read labelled text in one language. Text is NFC-normalized; whole texts are also stripped.

    Sentences whose words are withheld (`_`), as in some treebanks, and texts without a label are left out. The labels
    `_`, `-`, -1 and -100 mark words and texts without a label, unless they are among the names of the classes.

    Args:
        item: `de=PATH` or `de=owner/name:config`: a .jsonl, .json, .tsv, .csv, .parquet, .conllu or CoNLL file (all
            but Parquet also .gz; columns of CoNLL's formats: [`~hf_xalign.data.readers.conll.read_conll`]), or a Hub
            dataset. `PATH` may be a pattern for several files, such as `snips/*/train_*.json`. The data sets of
            [`~hf_xalign.tasks.layouts.LAYOUTS`] need no column names; a TSV or CSV file needs a header. Its
            cells hold words parted by blanks, or lists as Python and JSON write them. `builtin:de` is tagged text
            inside the package.
        kind: `token` for word labels, `sequence` for one label for a text or a pair of texts.
        text_columns: one column of words (default `tokens`), or one or two columns of texts (default `text_a` and
            `text_b`, or `text`).
        label_column: column of labels; by default `labels` for words, else `upos` (CoNLL-U), and `label` for texts. In
            CoNLL-U it may be a key of FEATS or MISC, such as `NE` of `NE=B-PER`.
        label_names: names of labels that are numbers, from 0 on; a Hub dataset with class labels needs none.
        split: split of a Hub dataset or of the text inside the package.
        max_examples: keep only this many examples from the start.
        revision: branch, tag or commit of a Hub dataset.

    Raises:
        InputError: the language is missing, nothing is found, a column is missing, or a record is malformed; the
            message names file and line.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "de.jsonl")
        >>> _ = path.write_text('{"text": "Guten Tag", "label": "greeting"}')
        >>> read_examples(f"de={path}", "sequence").rows[0]
        {'text_a': 'Guten Tag', 'label': 'greeting', 'line': 1}
    """
    source, language = parse_named(item)
    check_choice(get_args(Kind), kind=kind)
    check_range(least=1, max_examples=max_examples)
    if len(text_columns) > (most := 1 if kind == "token" else 2):
        raise InputError(f"text_columns={', '.join(text_columns)}: name {most} of them at most, for {kind}")
    unit, records, hub = read_records(source, split=split, revision=revision)
    forms.warn_of_name(Path(source).name, language)
    classes = set(label_names).union(*class_names(hub.features if hub else {}).values())
    rows, others = list[Cells](), Counter[str]()
    for line, record in progress(records, desc=f"reading {source}", unit=" examples", leave=False):
        if len(rows) == max_examples:
            break
        where = f"{source}, {unit} {line}"
        record = {column: _in_language(value, language) for column, value in record.items()}
        record, left_out = name_columns(record, where)
        # Texts that are labelled by their languages are all read.
        if label_column not in forms.columns_of("row_language", record) and (
            other := forms.other_language(record, language)
        ):
            left_out = f"in {other}"
        if label_column != "answer" and record.get("answer") in ("reject", "ignore"):  # as Prodigy's annotators do
            left_out = "rejected by an annotator"
        if not left_out:
            _refuse_offsets(record, where)
            make = _words if kind == "token" else _texts
            row = make(record, text_columns, label_column, where, classes)
            if label_names:
                row = _rename(row, label_names, where)
            if kind == "token" and conll.is_withheld(row["tokens"]):
                left_out = "with withheld words (_)"
            elif row.get("label") == UNLABELLED:
                left_out = "without a label"
        if left_out:
            others[left_out] += 1
        else:
            rows.append({**row, "line": line})
    skipped = ", ".join(f"{count} {why}" for why, count in sorted(others.items()))
    if not rows:
        if [*others] == ["with withheld words (_)"]:
            raise InputError(f"{source}: {conll.WITHHELD}")
        raise InputError(f"{source}: it has no examples{skipped and f' in {language}; there are {skipped}'}")
    if others["without a label"]:
        count = f"{others['without a label']:,} of {len(rows) + others.total():,}"
        logger.warning("%s: %s texts have no label, and are not trained on or scored", source, count)
    if kind == "token":
        _check_words(source, rows)
    texts = [row["text_a"] if kind == "sequence" else " ".join(row["tokens"]) for row in rows[:SAMPLE]]
    warn_of_text(texts, language, source)
    if skipped:
        logger.info("%s: skipped examples (%s)", source, skipped)
    found = Examples(source, language, Dataset.from_list(rows), unit, digest(rows), hub_commit(hub))
    _warn_of_labels(source, found.label_names, [str(row.get("label")) for row in rows])
    return found


def find_kind(item: str, split: str) -> Kind:
    """Return whether the first record of a source labels words, or a text; one that labels both labels a text."""
    source, _ = parse_named(item)
    _, records, _ = read_records(source, split=split, revision=None)
    record = next((record for _, record in records), Cells())
    named, _ = name_columns(record, source)
    words = {"tokens", "labels"} & named.keys() and not {"text", "text_a"} & named.keys()
    return "token" if words or "tokens" in record else "sequence"


def by_language(parts: Iterable[Examples]) -> dict[str, Examples]:
    """Return evaluation sets by language; two sets in one language raise an InputError."""
    sets: dict[str, Examples] = {}
    for examples in parts:
        code = examples.language
        if code in sets:
            both = f"{sets[code].name} and {examples.name}"
            raise InputError(f"{code} has two evaluation sets, {both}. Keep one, or call one {code}-x-other.")
        sets[code] = examples
    return sets


def _words(
    record: Cells, text_columns: Sequence[str], label_column: str | None, where: str, classes: Container[str]
) -> Cells:
    column = text_columns[0] if text_columns else "tokens"
    label_column = label_column or "labels"
    if label_column not in record and "misc" in record:
        record = {**record, label_column: conll.attribute(record, label_column)}
    words, labels = value_of(record, column, where), value_of(record, label_column, where)
    if isinstance(words, str) and isinstance(labels, str):
        printed = [cell.startswith("[") and cell.endswith("]") for cell in (labels, words)]
        words = _entries(words, all(printed), f"{where}: column {column!r}")
        labels = _entries(labels, printed[0], f"{where}: column {label_column!r}")
    for name, values in ((column, words), (label_column, labels)):
        if not isinstance(values, list) or not values:
            raise InputError(f"{where}: column {name!r} holds {values!r:.60}, not a list with an entry for each word")
    with explained(where):
        check_lengths("word", **{f"words in {column!r}": words, f"labels in {label_column!r}": labels})
    return {
        "tokens": [clean_text(text_of(word, column, where)) for word in words],
        "labels": [label_of(label, label_column, where, IGNORED, classes) for label in labels],
    }


def _entries(cell: str, printed: bool, where: str) -> list[object]:
    """Return the entries of a cell of a table: parted by blanks, or a list as Python prints it."""
    if not printed:
        return list(filter(None, cell.split(" ")))
    try:
        values = ast.literal_eval(cell)
    except (SyntaxError, ValueError):
        values = None
    # NumPy prints no commas, and Python joins strings that follow one another.
    if not values or re.search(r"['\"]\s+['\"]", cell):
        raise InputError(f"{where} holds {cell!r:.60}, which is no list of Python or JSON. Save lists as JSON Lines.")
    return values


def _texts(
    record: Cells, text_columns: Sequence[str], label_column: str | None, where: str, classes: Container[str]
) -> Cells:
    columns, label_column = tuple(text_columns), label_column or "label"
    columns = columns or (_PAIR if set(_PAIR) & set(record) else ("text",))
    row = Cells()
    for name, column in zip(_PAIR, columns):
        row[name] = clean_text(text_of(value_of(record, column, where), column, where)).strip()
        if not row[name]:
            raise InputError(f"{where}: column {column!r} is empty. Remove the example.")
    value = value_of(record, label_column, where)
    if isinstance(value, str) and _SEVERAL.fullmatch(value) and value not in classes:
        raise InputError(f"{where}: the label {value!r} joins several classes. Write one class a text.")
    return {**row, "label": label_of(value, label_column, where, UNLABELLED, classes)}


def _in_language(value: object, language: str) -> object:
    """Return the text in a language of a value that holds several, as in XNLI's `all_languages`, else the value."""
    texts = texts_by_language(value) if isinstance(value, Mapping) else {}
    found = closest_language(language, tuple(filter(find_language, texts)))
    return texts[found[0]] if found else value


def _rename(row: Cells, names: Sequence[str], where: str) -> Cells:
    """Return a row whose numbered labels have these names."""
    column = "labels" if "labels" in row else "label"
    renamed = []
    for label in row["labels"] if column == "labels" else [row["label"]]:
        number = label.isdecimal() and label not in names
        if number and int(label) >= len(names):
            raise InputError(f"{where}: the label {label}, but label_names has {len(names)} names. List all of them.")
        renamed.append(names[int(label)] if number else label)
    return {**row, column: renamed if column == "labels" else renamed[0]}


def _refuse_offsets(record: Record, where: str) -> None:
    """Raise an InputError if a record labels spans by character offsets, as doccano, Prodigy and Label Studio do."""
    by_offset = "annotations" in record and "data" in record
    for name in ("spans", "label", "labels", "entities") if "text" in record else ():
        # A cell of a table has them as JSON. The key is `start` in Prodigy, `start_offset` or `start_char` elsewhere.
        value = record.get(name)
        by_offset |= bool(_OFFSETS.match(value if isinstance(value, str) else json.dumps(value, default=str)))
    if by_offset:
        fault = "spans are labelled by character offsets, but a tagger needs a label for each word"
        advice = "Export CoNLL from Label Studio, or convert them by spaCy's offsets_to_biluo_tags"
        raise InputError(f"{where}: {fault}. {advice}.")


def _check_words(source: str, rows: Sequence[Record]) -> None:
    """Raise an InputError if each row holds one word, or the labels are numbers, which would be scored by accuracy."""
    labels = set(itertools.chain.from_iterable(row["labels"] for row in rows)) - {UNLABELLED, IGNORED}
    fault = ""
    if labels and all(map(_NUMBER.fullmatch, labels)):
        fault = f"the labels of words are numbers ({', '.join(sorted(labels)[:6])}) without names. Name them by "
        fault += "--label_names O B-PER I-PER, or another column by --label_column (probe: NAME:COLUMN)"
    elif len(rows) > 9 and all(len(row["tokens"]) == 1 for row in rows):
        fault = "each row holds one word. Call the columns sentence, word and tag, by which rows become sentences"
    if fault:
        raise InputError(f"{source}: {fault}.")


def _warn_of_labels(source: str, labels: set[str], texts: Sequence[str]) -> None:
    """Warn of labels or kinds of spans that are scores or counts, differ in capitals or join others (`joy|anger`)."""
    labels = {re.sub("^[BI]-", "", label) for label in labels}
    numbers = sorted(filter(_NUMBER.fullmatch, labels))
    # The number that one text alone has may be that of a row of totals.
    once = [label for label, count in Counter(texts).items() if count == 1 and len(texts) > 10 * len(labels)]
    scores = [label for label in numbers if "." in label or len(numbers) < len(labels) or label in once]
    by_case = {label.casefold(): label for label in labels}
    for label in sorted(labels):
        joins = labels.issuperset(parts := re.split(r" ?[|;,+/] ?| ", label)) and len(parts) > 1
        if joins or label in scores[:1] or by_case[label.casefold()] != label:
            others = ", ".join(sorted(labels)[:9])
            logger.warning("%s: the label %r is a class of its own, next to %s", source, label, others)
