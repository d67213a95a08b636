"""Labelled text of one language, and the set of its labels."""

from __future__ import annotations

import ast
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

from datasets import ClassLabel, Dataset, Features

from hf_xalign.cache import digest, read_json, table_rows
from hf_xalign.checks import check_choice, check_lengths, check_range
from hf_xalign.data import forms
from hf_xalign.data.arrow import finished_shards, of_one_split, open_parquet
from hf_xalign.data.load import hub_commit, load_hub
from hf_xalign.data.parallel import check_dataset, check_labelled
from hf_xalign.data.readers import conll, files
from hf_xalign.data.readers.files import Cells, Record, Rows, of_split, text_of
from hf_xalign.data.readers.pairs import texts_by_language
from hf_xalign.data.sides import SAMPLE, warn_of_text
from hf_xalign.data.sources import SourceKind, find_source, parse_named
from hf_xalign.data.span_labels import IGNORED, OUTSIDE, UNLABELLED, bio_names, span_parts, word_labels
from hf_xalign.data.words import clean_text
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained
from hf_xalign.language_codes import check_language, closest_language, find_language

logger = logging.getLogger(__name__)

# Files with one word on each line: CoNLL-2002 and 2003, pioNER, WikiANN (whose files have no suffix).
WORD_LINES = ("", ".conll", ".iob", ".iob2", ".bio", ".txt", ".train", ".dev", ".test", ".testa", ".testb", ".valid")
SUFFIXES = (".jsonl", ".json", ".tsv", ".csv", ".parquet", ".conllu", *WORD_LINES[1:])
_REMEDY = "Name the right ones by text_columns and label_column. Tables need headers; multiple choice is no task."
_FACEBOOK = ("label", "spans", "text", "locale", "tokenization")  # columns of its files, which have no header
_MTOP = ("id", "label", "spans", "text", "domain", "locale", "decoupled", "tokenization")
# Several classes of one text, as in GoEmotions, whose combinations would become classes.
_SEVERAL = re.compile(r"\d+(?:,\d+)+|\[['\"\d].*\]")
_FASTTEXT = re.compile(r"__label__(?P<label>\S+)[\s,]+(?P<text>(?!__label__).*)")
_OFFSETS = re.compile(r'\[(\[\d|\{"[^}]*start)')
# Scores in a tagger's output, as a column or in the label, are no labels either.
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SCORED = re.compile(r".+(?:[:|/]| ?\()\d?\.\d+\)?")
# Values that mark a missing label: PyTorch's ignored index, secret test labels on the Hub, SNLI without a majority.
_MISSING = frozenset({"-100", "-1", "-", "nan", "NaN", "NULL", "null", "N/A", "n/a", "<NA>"})


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
    "Facebook's multilingual task-oriented dialogues": Layout(dict(zip(_FACEBOOK, _FACEBOOK)), make=_slots),
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


def read_rows(path: Path) -> Rows:
    """Yield the rows of a file of labelled text, by its suffix and, for TSV and CSV, its first lines."""
    match suffix := files.file_format(path):
        case ".jsonl" | ".json" | ".parquet":
            records = files.TABLES[suffix](path)
            if suffix == ".parquet":
                with open_parquet(path) as file:
                    classes = _class_names(Features.from_arrow_schema(file.schema_arrow))
                records = ((row, record and _with_names(record, classes)) for row, record in records)
            row, record = next(records, (0, None))
            records = itertools.chain([(row, record)], records)
            columns = forms.word_columns(record or ())
            if record and columns and columns[0] and isinstance(record[columns[1]], str):
                return _group_words(path, records, *columns)
            return records
        case ".tsv" | ".csv" | ".txt":
            rows = [cells for _, cells in itertools.islice(files.read_cells(path), 20) if cells]
            for names in (_FACEBOOK, _MTOP):
                if rows and len(rows[0]) == len(names) and rows[0][-1].startswith("{"):
                    return files.read_table(path, names)
            if suffix == ".txt":
                names_lower = {*map(str.lower, rows[0] if rows else [])}
                if any({*layout.columns.values()} <= names_lower for layout in LAYOUTS.values()):
                    return files.read_table(path)
            elif rows and (columns := forms.word_columns(rows[0])):
                return _group_words(path, files.read_table(path), *columns)
            elif suffix == ".csv" or not (conll.is_conllu(path) or _is_word_lines(path, rows)):
                return files.read_table(path)
    if suffix in (".tsv", *WORD_LINES) or "conll" in suffix:  # `.v4_gold_conll`
        start = next((line for _, line in files.read_lines(path)), "")
        return _fasttext(path) if start.startswith("__label__") else _unprefixed(path)
    advice = f"labelled text is read from {', '.join(SUFFIXES)} or no suffix (each also .gz), not from {suffix!r}"
    raise InputError(f"{path}: {forms.ADVICE.get(suffix, advice)}")


def _fasttext(path: Path) -> Iterator[tuple[int, Cells]]:
    """Yield the labels and texts of lines `__label__good a text`, as fastText reads them."""
    for row, line in files.read_lines(path):
        if match := _FASTTEXT.fullmatch(line):
            yield row, match.groupdict()
        elif line.strip():
            raise InputError(
                f"{path}, line {row}: {line[:40]!r} is not one __label__ and a text. Write one class a text."
            )


def _is_word_lines(path: Path, rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a TSV file without a header holds a word and its label on each line, by its first rows."""
    # Without empty cells at the end.
    words = [list(filter(None, cells)) for cells in rows if not cells[0].startswith("#")]
    # An annotator or a language may follow the labels.
    for labels in map(set, [*zip(*words[:2])][1:]):
        if labels == {OUTSIDE} or span_parts(labels, certain=True):
            return True
    # Tables have no blank lines and words no blanks inside.
    parted = not all(cells for _, cells in itertools.islice(files.read_cells(path), 200))
    return parted and all(len(cells) == 2 and " " not in cells[0] + cells[1] for cells in words)


def _group_words(path: Path, rows: Rows, places: Sequence[str], word: str, tag: str) -> Iterator[tuple[int, Cells]]:
    """Yield the sentences of a table of words; an empty cell of `places` continues the sentence before.

    Without `places`, blank lines part sentences.
    """
    first, place, columns, blank_lines = 0, tuple[str, ...](), Cells(), 0
    fault = f"each row holds one word ({word!r}), but no column says where sentences end. Add a column 'sentence', or "
    fault = "" if places else f"{fault}write blank lines between sentences"
    seen = set[tuple[str, ...]]()
    for line, row in rows:
        if row is None:
            blank_lines, fault = blank_lines + 1, ""
            continue
        cells = ["" if row.get(name) is None else str(row[name]) for name in places] or [str(blank_lines)]
        here = tuple(cell or before for cell, before in itertools.zip_longest(cells, place, fillvalue=""))
        if here != place:
            if columns:
                yield first, {**columns, "tokens": columns[word], "labels": columns[tag]}
            first, place, columns = line, here, {name: [] for name in row}
            if here in seen:
                fault = f"the sentence {' '.join(here)!r} goes on in row {line}, apart from its other rows. Sort the "
                fault += "rows by sentence, and give each sentence of the file its own number"
                break
            seen.add(here)
        for name, values in columns.items():
            values.append(row.get(name))
    if fault:
        raise InputError(f"{path}: {fault}.")
    if columns:
        yield first, {**columns, "tokens": columns[word], "labels": columns[tag]}


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


def _unprefixed(path: Path) -> Iterator[tuple[int, Cells]]:
    """Yield sentences without the language prefix that all their words have, `en:word`, as in WikiANN."""
    for line, record in conll.read_conll(path):
        words = record.get("tokens", [""])
        prefix = re.match(r"(?:[a-z]{2,3}(?:-[a-z]+)*|simple):(?!//)", words[0])
        if prefix and all(word.startswith(prefix[0]) for word in words):
            record["tokens"] = [word.removeprefix(prefix[0]) for word in words]
        yield line, record


Records = Iterator[tuple[int, Cells]]
Kind = Literal["token", "sequence"]

LABELLED = SourceKind(SUFFIXES, ("package", "folder", "pattern"), ".pos")
_PAIR = ("text_a", "text_b")


@dataclass(frozen=True)
class LabelSet:
    """Labels in the order of their ids.

    Attributes:
        names: all labels; BIO labels always have both B and I of a type.

    Example:
        >>> labels = LabelSet.of(["B-city", "O", "B-date", "I-date"])
        >>> labels.names
        ('O', 'B-city', 'I-city', 'B-date', 'I-date')
        >>> labels.ids["B-date"], labels.mark_spans
        (3, True)
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> LabelSet:
        """Make a label set from the labels that occur: `O` first, the rest sorted. Labels of spans become BIO labels.

        Raises:
            InputError: there are fewer than two labels.
        """
        found_names = set(bio_names(names).values())
        if span_parts(found_names):
            ordered = [OUTSIDE]
            for span_type in sorted({name[2:] for name in found_names - {OUTSIDE}}):
                ordered += [f"B-{span_type}", f"I-{span_type}"]
        else:
            ordered = sorted(found_names, key=lambda name: (name != OUTSIDE, name))
        return cls._of(ordered, "the training text")

    @classmethod
    def load(cls, source: str) -> LabelSet:
        """Load a label set from a JSON file, in its order. Labels of spans become BIO labels, with missing ones last.

        Args:
            source: path of a list of labels.

        Raises:
            InputError: the file is missing.
        """
        with explained(f"labels={source}", OSError):
            content = read_json(Path(source).expanduser())
        content = list(dict.fromkeys(bio_names(content).values()))
        missing = sorted(set(cls.of(content).names) - set(content)) if span_parts(content) else []
        return cls._of([*content, *missing], f"labels={source}")

    @classmethod
    def _of(cls, names: list[str], where: str) -> LabelSet:
        if len(names) < 2:
            raise InputError(f"{where}: {len(names)} different labels ({', '.join(names)}). A classifier needs two")
        return cls(tuple(names))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each label."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def mark_spans(self) -> bool:
        """True if the labels are BIO labels."""
        return bool(span_parts(self.names))

    def describe(self) -> str:
        """Return the labels in one line, for messages."""
        first_names = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
        return f"{len(self.names)} labels ({first_names})"

    def config(self) -> dict[str, Any]:
        """Return the label fields of a model's config."""
        return {"num_labels": len(self.names), "id2label": dict(enumerate(self.names)), "label2id": dict(self.ids)}


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
            [`~hf_xalign.tasks.examples.LAYOUTS`] need no column names; a TSV or CSV file needs a header. Its
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
    classes = set(label_names).union(*_class_names(hub.features if hub else {}).values())
    rows, others = list[Cells](), Counter[str]()
    for line, record in progress(records, desc=f"reading {source}", unit=" examples", leave=False):
        if len(rows) == max_examples:
            break
        where = f"{source}, {unit} {line}"
        record = {column: _in_language(value, language) for column, value in record.items()}
        record, left_out = name_columns(record, where)
        # Texts that are labelled by their languages are all read.
        if label_column not in forms.OF_ROW and (other := forms.other_language(record, language)):
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
    _warn_of_labels(source, found.label_names)
    return found


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


def _warn_of_labels(source: str, labels: set[str]) -> None:
    """Warn of labels or kinds of spans that are scores or counts, differ in capitals or join others (`joy|anger`)."""
    labels = {re.sub("^[BI]-", "", label) for label in labels}
    numbers = sorted(filter(_NUMBER.fullmatch, labels))
    scores = [label for label in numbers if "." in label or len(numbers) < len(labels)]
    by_case = {label.casefold(): label for label in labels}
    for label in sorted(labels):
        joins = labels.issuperset(parts := re.split(r" ?[|;,+/] ?| ", label)) and len(parts) > 1
        if joins or label in scores[:1] or by_case[label.casefold()] != label:
            others = ", ".join(sorted(labels)[:9])
            logger.warning("%s: the label %r is a class of its own, next to %s", source, label, others)


def find_kind(item: str, split: str) -> Kind:
    """Return whether the first record of a source labels words, or a text; one that labels both labels a text."""
    source, _ = parse_named(item)
    _, records, _ = read_records(source, split=split, revision=None)
    record = next((record for _, record in records), Cells())
    named, _ = name_columns(record, source)
    words = {"tokens", "labels"} & named.keys() and not {"text", "text_a"} & named.keys()
    return "token" if words or "tokens" in record else "sequence"


def read_records(source: str, *, split: str, revision: str | None) -> tuple[str, Records, Dataset | None]:
    """Return the unit of places (`line` or `row`), the records with their places, and the dataset of a Hub source."""
    scheme, paths = find_source(source, LABELLED, split)
    if scheme == "hub":
        dataset = load_hub(source, split, revision)
        named = map(partial(_with_names, names=_class_names(dataset.features)), dataset)
        return "row", _lowered(enumerate(named, 1)), dataset
    if scheme == "folder":
        paths = finished_shards(paths[0], split)
    if scheme == "pattern":
        paths = of_one_split(paths, split, source)
    rows = of_split(lambda: itertools.chain.from_iterable(map(read_rows, paths)), split, source)
    if scheme == "pattern":
        return "example", enumerate((row for _, row in _lowered(rows)), 1), None
    return "line", _lowered(rows), None


def _lowered(rows: Rows) -> Records:
    """Yield the records of rows with their columns in lower case (`Text`), unless two would then have one name."""
    for line, row in rows:
        if row is not None:
            times = Counter(map(str.lower, row))
            yield line, {name.lower() if times[name.lower()] == 1 else name: value for name, value in row.items()}


def _class_names(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the classes of each column that holds class ids."""
    inner = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    return {column: feature.names for column, feature in inner.items() if isinstance(feature, ClassLabel)}


def _with_names(record: Record, names: Mapping[str, list[str]]) -> Cells:
    """Return a record with the names of classes instead of their ids."""
    return {column: _named(value, names[column]) if column in names else value for column, value in record.items()}


def _named(value: list | int | None, names: list[str]) -> object:
    if isinstance(value, list):
        return [_named(number, names) for number in value]
    return value if value is None or value < 0 else names[value]


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


def value_of(record: object, column: str, where: str, remedy: str = _REMEDY) -> Any:
    """Return a value of a record; an InputError that ends with `remedy` is raised if the record has no such column."""
    if not isinstance(record, Mapping):
        raise InputError(f"{where}: {type(record).__name__}, not an object with {column!r}. {remedy}")
    names = [name for name in record if name.lower() == column.lower()]
    if len(names) != 1:
        fault = f"{len(names)} columns are called" if names else "no column"
        columns = ", ".join(record) or "none"
        raise InputError(f"{where}: {fault} {column!r}; the columns are {columns}. {remedy}")
    return record[names[0]]


def label_of(value: object, column: str, where: str, missing: str = UNLABELLED, classes: Container[str] = ()) -> str:
    """Return a label or an id as text, and `missing` for a missing one."""
    value = value.strip() if isinstance(value, str) else value
    if type(value) not in (str, int) or value == "" or _SCORED.fullmatch(str(value)):
        raise InputError(f"{where}: column {column!r} holds {json.dumps(value)}. Write a text or whole number alone.")
    # -1 and -100 are labels where the names of the set's classes say so.
    return missing if str(value) in _MISSING and str(value) not in classes else str(value)
