"""Load parallel text from files, the Hub or the package as a memory-mapped `datasets.Dataset`.

`hf_xalign.data.sources` describes how sources are written.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

import datasets
import numpy as np
import pyarrow
import pyarrow.compute
import regex
from datasets import Dataset, DatasetDict, concatenate_datasets
from huggingface_hub.errors import LocalEntryNotFoundError

from hf_xalign.cache import cache_dir, digest, make_once, map_rows
from hf_xalign.checks import check_choice, check_lengths, check_range
from hf_xalign.data import readers
from hf_xalign.data.mapped import scan_codes, scan_columns
from hf_xalign.data.shards import finished_shards
from hf_xalign.data.sources import BUILTIN, HUB_ID, SourceKind, find_source, parse_source
from hf_xalign.data.words import MARK, WORDS, check_words, clean_text
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained
from hf_xalign.language_codes import check_language, closest_language, likely_language, parse_language, same_language
from hf_xalign.network import TransportError

logger = logging.getLogger(__name__)

Pair = tuple[str, str, str, str]
Words = tuple[list[str] | None, list[str] | None]  # words of both sides, where the source has them
OnEmpty = Literal["error", "drop"]

COLUMNS = ("source", "target", "source_lang", "target_lang")
PAIRS = SourceKind(readers.FORMATS, ("package", "folder", "aligned"))

_READING = 3  # raise it when the same input gives other rows: cached tables are then replaced
_BATCH = 10_000  # rows
_WORDS = pyarrow.list_(pyarrow.string())
_SCHEMA = pyarrow.schema({**dict.fromkeys(COLUMNS, pyarrow.string()), **dict.fromkeys(WORDS, _WORDS)})
_LINKED_SCHEMA = _SCHEMA.append(pyarrow.field("links", pyarrow.list_(pyarrow.list_(pyarrow.int32()))))
_LISTS = (pyarrow.ListType, pyarrow.LargeListType, pyarrow.FixedSizeListType)
_SPLIT = ("lists of words", 1, "Split its text, or remove the column.")
# {column: what it holds, lists around each value, remedy}
HELD = {
    **dict.fromkeys(("source", "target"), ("text", 0, "Convert it to strings.")),
    **dict.fromkeys(WORDS, _SPLIT),
    "links": ("links", 2, "Give pairs [i, j] of word numbers, or align the words again."),
}
# Columns of text of one language.
MONOLINGUAL = {"text": HELD["source"], "words": _SPLIT}
_LABELLED = {
    "tokens": ("lists of words", 1, "Split its text."),
    "labels": ("lists of labels", 1, "Give a label for each word, as text or class labels."),
    **dict.fromkeys(("text_a", "text_b", "label"), ("text", 0, "Convert it to strings.")),
}
_SAMPLE = 100  # pairs whose scripts are checked
# Unicode's name of a script where ISO 15924 has another, or of a typical part of it.
_UNICODE = {"Hans": "Hani", "Hant": "Hani", "Jpan": "Kana", "Kore": "Hang"}
PARQUET = "refs/convert/parquet"  # the branch of the Hub's own conversion
_HUB_URL = re.compile(r"hf://datasets/[^@]+@([^@/]+)")


def read_linked(
    path: Path, columns: readers.Columns, *, drop_empty: bool, keep_unlinked: bool = False
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the pairs of a Parquet file with words and links; pairs without a link only if `keep_unlinked`.

    Raises:
        InputError: a column is missing or has another type, a value is null, a language differs from the one asked
            for, a side is empty without `drop_empty`, or a link points outside its sentence.
    """
    first = unlinked = empty = 0
    with readers.open_parquet(path) as file:
        if missing := [name for name in _LINKED_SCHEMA.names if name not in file.schema_arrow.names]:
            raise InputError(f"{path}: no column {', '.join(missing)}. The files of a folder need the same columns.")
        for batch in readers.parquet_batches(file, _BATCH, _LINKED_SCHEMA.names):
            with explained(f"{path}: a column has the wrong type", pyarrow.ArrowException):
                batch = _without_marks(batch.select(_LINKED_SCHEMA.names).cast(_LINKED_SCHEMA))
            blank, linked = _check_rows(batch, columns, path, first, drop_empty=drop_empty)
            linked |= keep_unlinked
            empty, unlinked = empty + int(blank.sum()), unlinked + int((~linked & ~blank).sum())
            first += len(batch)
            batch = batch.filter(pyarrow.array(linked & ~blank))
            for name, asked in (("source_lang", columns.source_lang), ("target_lang", columns.target_lang)):
                if asked is not None:  # the rows may have `deu` for `de`
                    codes = pyarrow.repeat(pyarrow.scalar(asked), len(batch))
                    batch = batch.set_column(_LINKED_SCHEMA.get_field_index(name), name, codes)
            yield batch
    if empty or unlinked:
        logger.info("%s: dropped %d pairs with an empty side and %d without links", path, empty, unlinked)


def _without_marks(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Remove U+FEFF, the byte order mark, which joining files leaves inside text and words."""
    for position, (name, column) in enumerate(zip(batch.schema.names[:6], batch.columns, strict=False)):
        words = column.type == _WORDS
        texts = column.values if words else column
        if pyarrow.compute.any(pyarrow.compute.match_substring(texts, MARK)).as_py():
            texts = pyarrow.compute.replace_substring(texts, MARK, "")
            if words:
                empty = column.is_null() if column.null_count else None
                texts = pyarrow.ListArray.from_arrays(column.offsets, texts, mask=empty)
            batch = batch.set_column(position, name, texts)
    return batch


def _check_rows(
    batch: pyarrow.RecordBatch, columns: readers.Columns, path: Path, first: int, *, drop_empty: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Check a batch, and return which rows have an empty side and which have links, bool (rows,)."""

    def refuse(bad: np.ndarray, what: str) -> None:
        if bad.any():
            raise InputError(f"{path}, row {first + int(bad.argmax()) + 1}: {what}")

    for name in _LINKED_SCHEMA.names:
        refuse(batch[name].is_null().to_numpy(zero_copy_only=False), f"the column {name} is null")
    for name, asked in (("source_lang", columns.source_lang), ("target_lang", columns.target_lang)):
        for code in batch[name].unique().to_pylist():
            readers.check_row_language({name: code}, name, asked, str(path))
    blank = np.zeros(len(batch), dtype=bool)
    for side in ("source", "target"):
        blank |= pyarrow.compute.equal(batch[side], "").to_numpy(zero_copy_only=False)
    if not drop_empty:
        refuse(blank, "a side is empty. Correct it, or drop such pairs by on_empty='drop'.")
    pairs = batch["links"].flatten()
    owners = pyarrow.compute.list_parent_indices(batch["links"]).to_numpy()
    bad = np.zeros(len(batch), dtype=bool)
    bad[owners[pairs.value_lengths().to_numpy() != 2]] = True
    refuse(bad, "a link is not a pair of word numbers")
    ends = pairs.flatten().to_numpy().reshape(-1, 2)
    for column, side in enumerate(("source", "target")):
        words = batch[f"{side}_words"].value_lengths().to_numpy()[owners]
        bad[owners[(ends[:, column] < 0) | (ends[:, column] >= words)]] = True
    refuse(bad, "a link points outside the sentence")
    return blank, batch["links"].value_lengths().to_numpy() > 0


def load_sources(
    items: Sequence[str],
    *,
    target_lang: str = "en",
    split: str = "train",
    max_pairs: int | None = None,
    on_empty: OnEmpty = "error",
    **options: Any,
) -> Dataset:
    """Load several sources into one corpus; `max_pairs` limits each source, `options` go to [`load_parallel`]."""
    if not items:
        raise InputError("no parallel text is given. Write for example builtin:de, or de=PATH for your own file.")
    common: dict[str, Any] = {"target_lang": target_lang, "split": split, "max_pairs": max_pairs, "on_empty": on_empty}
    return concatenate(
        [load_parallel(source, source_lang=lang, **common, **options) for source, lang in map(parse_source, items)]
    )


def load_parallel(
    source: str | Path | tuple[str | Path, str | Path] | list[str | Path],
    *,
    source_lang: str | None = None,
    target_lang: str = "en",
    split: str = "train",
    source_column: str | None = None,
    target_column: str | None = None,
    max_pairs: int | None = None,
    on_empty: OnEmpty = "error",
    keep_unlinked: bool = False,
    revision: str | None = None,
) -> Dataset:
    """Load sentence pairs as a dataset with the columns `source`, `target`, `source_lang` and `target_lang` (strings).

    Text is NFC-normalized and stripped. The pairs are streamed once into an Arrow file in the library's cache and
    memory-mapped from there, so memory does not grow with the corpus. The file's name and the dataset's fingerprint
    are a hash of the input's content and the arguments.

    Columns `source_words` and `target_words` (lists of strings; null for text that is still to be split) are kept for
    word alignment, in all formats but TSV, CSV and TMX. Parquet files that also have `links` keep all three columns;
    their text is not changed, and pairs without a link are dropped unless `keep_unlinked`.

    Args:
        source: a source as described in [`hf_xalign.data.sources`], without language prefix, or two line-aligned
            paths.
        source_lang: language of the source side; by default the column `source_lang` (or `src_lang`) of each row.
        target_lang: language of the target side, the pivot.
        split: split of a built-in or Hub dataset; files have no splits and are read whole.
        source_column: text column of the source side. By default the column named after the language, at the top
            level or in a `translation` dict, else the column `source`, see [`~hf_xalign.data.columns`]. The first line
            of a TSV or CSV file is a header if it names both columns.
        target_column: text column of the target side, required with `source_column`. Built-in and line-aligned text
            ignores both.
        max_pairs: keep only this many pairs from the start.
        on_empty: `error` refuses a pair with an empty side, `drop` drops it and logs the count.
        keep_unlinked: keep pairs without links in files with links, for losses on sentences.
        revision: branch, tag or commit of a Hub dataset.

    Raises:
        InputError: there is nothing under that name, the Hub cannot be reached, or the content is bad. The message
            names file and row.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "pairs.tsv"
        >>> _ = path.write_text("Datei öffnen\\tOpen file\\nSpeichern\\tSave\\n", encoding="utf-8")
        >>> pairs = load_parallel(path, source_lang="de")
        >>> pairs[0]
        {'source': 'Datei öffnen', 'target': 'Open file', 'source_lang': 'de', 'target_lang': 'en'}
    """
    if (source_column is None) != (target_column is None):
        raise InputError("source_column and target_column go together. Give both or none.")
    check_range(least=1, max_pairs=max_pairs)
    check_choice(get_args(OnEmpty), on_empty=on_empty)
    target_lang = check_language(target_lang, "target_lang")
    source_lang = None if source_lang is None else check_language(source_lang, "source_lang")
    if source_lang is not None and same_language(source_lang, target_lang):
        raise InputError(f"{source}: the source language is the pivot, {target_lang}. Give the other side's language.")
    name = str(source) if isinstance(source, (str, Path)) else ",".join(map(str, source))
    asked = readers.Columns(source_lang, target_lang, source_column, target_column)
    form, files, dataset, columns, rows = _open(source, asked, split, revision)
    linked = False
    if form in ("shards", ".parquet") and source_column is None:
        with readers.open_parquet(files[0]) as file:  # `hf-xalign align-words` writes words and links
            linked = set(_LINKED_SCHEMA.names) <= set(file.schema_arrow.names)
    names = (str(files[0]), str(files[1])) if form == "aligned" else (name, name)
    content = [dataset._fingerprint] if dataset else [linked and ("linked", keep_unlinked), *map(hash_file, files)]
    settings = [source_lang, target_lang, columns.source, columns.target, max_pairs, on_empty]
    key = digest(_READING, form, content, settings)
    table = cache_dir("parallel") / f"{key}.arrow"
    if linked:
        rules = {"drop_empty": on_empty == "drop", "keep_unlinked": keep_unlinked}
        shards = (read_linked(file, columns, **rules) for file in files)
        batches = take_rows(itertools.chain.from_iterable(shards), max_pairs)
    else:
        pairs = _pairs(_read(rows, columns, names[0], form), names, on_empty)
        batches = _batches(itertools.islice(pairs, max_pairs))
    make_once(table, lambda: write_rows(batches, table, name, "sentence pairs"))
    data = Dataset.from_file(str(table)).data
    word_counts = {column: len(data) - data[column].null_count for column in WORDS}
    if not any(word_counts.values()):
        data = data.drop(list(WORDS))
    elif not linked:
        counts = " and ".join(f"{column} of {count:,}" for column, count in word_counts.items())
        logger.info("%s: %s pairs, with words given in %s; other text will be split", name, f"{len(data):,}", counts)
    info = datasets.DatasetInfo(download_checksums=dataset.info.download_checksums if dataset else None)
    loaded = _one_code(Dataset(data, info=info, fingerprint=key), name)
    logger.info("%s: %s pairs, the first: %s", name, f"{len(loaded):,}", describe_pair(loaded[0]))
    _check_sides(loaded, name)
    return loaded


def _check_sides(pairs: Dataset, name: str) -> None:
    """Raise an InputError if a sample shows that the sides are swapped: each is in the script of the other."""
    first, sample = pairs[0], pairs[:_SAMPLE]
    scripts = [likely_language(first[column]).script or "" for column in ("source_lang", "target_lang")]
    try:
        source, target = (regex.compile(rf"\p{{Script={_UNICODE.get(script, script)}}}") for script in scripts)
    except regex.error:  # a script that Unicode does not know
        return
    sides = ("".join(sample["source"]), "".join(sample["target"]))
    counts = [[len(script.findall(side)) for script in (source, target)] for side in sides]
    if source.pattern != target.pattern and counts[0][0] * 2 < counts[0][1] and counts[1][1] * 2 < counts[1][0]:
        raise InputError(
            f"{name}: the sides are swapped, because the source ({first['source_lang']}) is in the script of the "
            f"target ({first['target_lang']}): {describe_pair(first)}. Name the columns by source_column and "
            "target_column (--source_column and --target_column on the command line), or swap the two files."
        )


def describe_pair(pair: Mapping[str, Any]) -> str:
    """Describe a pair in a log line: both sides, shortened, with their languages.

    Example:
        >>> describe_pair({"source": "Hund", "target": "dog", "source_lang": "de", "target_lang": "en"})
        "'Hund' (de) = 'dog' (en, the pivot)"
    """
    source, target = (text if len(text) <= 60 else f"{text[:57]}..." for text in (pair["source"], pair["target"]))
    return f"{source!r} ({pair['source_lang']}) = {target!r} ({pair['target_lang']}, the pivot)"


def stream_parallel(
    source: str,
    *,
    source_lang: str | None = None,
    target_lang: str = "en",
    split: str = "train",
    source_column: str | None = None,
    target_column: str | None = None,
    revision: str | None = None,
) -> Iterator[Pair]:
    """Yield the pairs of a source without a cache, including pairs with an empty side; see [`load_parallel`]."""
    asked = readers.Columns(source_lang, target_lang, source_column, target_column)
    form, files, _, columns, rows = _open(source, asked, split, revision)
    name = str(files[0]) if len(files) == 1 else source
    pairs = ((pair, words) for _, pair, words in _read(rows, columns, name, form) if pair is not None)
    for pair, words in itertools.islice(pairs, 1):
        logger.info("%s: the first pair: %s", name, describe_pair(dict(zip(COLUMNS, pair, strict=True))))
        if any(words):
            logger.warning("%s: the columns %s are not kept, because the text may change", name, ", ".join(WORDS))
        yield pair
    yield from (pair for pair, _ in pairs)


def concatenate(parts: Sequence[Dataset]) -> Dataset:
    """Concatenate parallel datasets (language pairs, sources) without copying their text.

    If only some of them have columns of words, the others get null there.

    Raises:
        InputError: there is no dataset, or their other columns differ.
    """
    if not parts:
        raise InputError("there are no datasets to concatenate")
    names = {f"dataset {number} of {len(parts)}": dataset for number, dataset in enumerate(parts, 1)}
    return _joined({name: as_parallel(dataset, name) for name, dataset in names.items()}, WORDS)


def check_columns(dataset: Dataset, names: Iterable[str], what: str, remedy: str) -> Dataset:
    """Return the rows as Python values; raise an InputError if they are no dataset, or a column is missing or bad."""
    dataset = check_dataset(dataset, what)
    if missing := [name for name in names if name not in dataset.column_names]:
        columns = ", ".join(dataset.column_names)
        raise InputError(f"{what} has no column {', '.join(missing)} (it has {columns}). {remedy}")
    for name in HELD.keys() & set(names):
        check_values(dataset, name, what, HELD)
    return dataset


def check_labelled(rows: Any, what: str) -> Dataset:
    """Return labelled words (`tokens`, `labels`) or texts (`text_a`, `label`) as Python values.

    Raises:
        InputError: there are none, a column is missing, of another type or null somewhere, or words lack labels.
    """
    rows = check_dataset(rows, what)
    names = ("tokens", "labels") if "tokens" in rows.column_names else ("text_a", "label")
    check_columns(rows, names, what, "Read the text by read_examples, or rename its columns.")
    if not len(rows):
        raise InputError(f"{what}: it has no examples. Give at least one.")
    for name in {*names, "text_b"} & {*rows.column_names}:
        check_values(rows, name, what, _LABELLED)
    start = 0
    for table in scan_columns(rows, *names) if "tokens" in names else ():
        words, labels = (pyarrow.compute.list_value_length(table[name]).to_numpy() for name in names)
        for row in np.flatnonzero(words != labels)[:1]:
            check_lengths(f"word of {what}, row {start + row}", words=range(words[row]), labels=range(labels[row]))
        start += len(table)
    return rows


def check_dataset(data: Any, name: str) -> Dataset:
    """Return a dataset without its format, or raise an InputError that says how to make it a `datasets.Dataset`."""
    if isinstance(data, Dataset):
        if (form := data.format["type"]) == "custom":
            raise InputError(f"{name} has a transform, which would not be read. Apply it by map.")
        return data if form is None else data.with_format(None)
    values = list(data.values()) if isinstance(data, Mapping) else []
    if any(isinstance(value, Dataset | datasets.IterableDataset) for value in values):
        fault = f"holds {', '.join(map(repr, data))}. Pass one of them, such as dataset[{next(iter(data))!r}]"
    elif hasattr(data, "__iter__") and not hasattr(data, "__len__"):
        fault = "is a stream, but its rows are read several times. Load it without streaming, or take its first rows: "
        fault += "Dataset.from_list(list(stream.take(100_000)))"
    else:
        fault = "is not a datasets.Dataset. Load it by load_parallel or datasets.load_dataset, or convert it by "
        fault += "Dataset.from_dict, Dataset.from_list or Dataset.from_pandas"
    raise InputError(f"{name} ({type(data).__name__}) {fault}.")


def read_dataset(data: Any, name: str, source_lang: str | None = None, target_lang: str | None = None) -> Dataset:
    """Return a dataset of sentence pairs with the columns `source`, `target`, `source_lang` and `target_lang`.

    A column `translation` (`{"de": ..., "en": ...}`) is split into these columns, with text in NFC: the target, or
    pivot, is `target_lang`, English by default, and the source is the other language. To other datasets, the given
    languages are added as columns.

    Raises:
        InputError: `data` is not a dataset, a text is null or no string, its translations lack a language or have
            several others, or it has a language column already.
    """
    dataset = check_dataset(data, name)
    if "translation" not in dataset.column_names or "source" in dataset.column_names:
        for column, language in (("source_lang", source_lang), ("target_lang", target_lang)):
            if language is not None and column in dataset.column_names:
                raise InputError(f"{column}={language}: {name} has a column {column} already. Remove the argument.")
            if language is not None:
                dataset = dataset.add_column(column, [language] * len(dataset))
        held = {"source", "target"} if "links" not in dataset.column_names else HELD.keys()
        for column in held & {*dataset.column_names}:
            check_values(dataset, column, name, HELD)
        return _one_code(dataset, name)
    feature = dataset.features["translation"]
    codes = list(getattr(feature, "languages", None) or (feature if isinstance(feature, dict) else ()))
    target = target_lang or "en"
    best = {code: (closest_language(code, tuple(codes)) or [None])[0] for code in filter(None, (source_lang, target))}
    others = [best[source_lang]] if source_lang else [code for code in codes if code != best[target]]
    if len(others) != 1 or None in (*others, best[target]) or others == [best[target]]:
        raise InputError(
            f"{name}: its column translation has {', '.join(codes) or 'no languages'}. Name two of them by the "
            "arguments source_lang and target_lang (the pivot) of align_words."
        )
    asked = (source_lang or others[0], target)
    languages = [(code, check_language(one, name)) for code, one in zip((others[0], best[target]), asked)]

    def translated(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        pairs = [pair or {} for pair in batch["translation"]]
        if {"language", "translation"} <= {*pairs[0]}:  # TranslationVariableLanguages
            pairs = [dict(zip(pair["language"], pair["translation"])) for pair in pairs]
        texts = [[clean_text(pair.get(code) or "").strip() for pair in pairs] for code, _ in languages]
        codes = [[language] * len(pairs) for _, language in languages]
        return dict(zip(COLUMNS, [*texts, *codes]))

    return map_rows(dataset, translated, desc="Reading translations", remove_columns=["translation"])


def _one_code(pairs: Dataset, name: str) -> Dataset:
    """Return pairs in which a language has one code: `iw` becomes `he`."""
    columns = [column for column in COLUMNS[2:] if column in pairs.column_names]
    codes: dict[str, str] = {}
    for column in columns:
        for part in scan_codes(pairs, column):
            codes |= {code: check_language(code, f"{name}: {column}") for code in part.unique().to_pylist()}
    if all(code == one for code, one in codes.items()):
        return pairs

    def renamed(batch: dict[str, list[str]]) -> dict[str, list[str]]:
        return {column: [codes[code] for code in batch[column]] for column in columns}

    return map_rows(pairs, renamed, desc="Reading languages")


def check_values(dataset: Dataset, column: str, name: str, held_by: Mapping[str, tuple[str, int, str]]) -> None:
    """Raise an InputError if a column of text, words or links holds something else, or null in or as a value."""
    kind = inner = dataset.features.arrow_schema.field(column).type
    held, depth, remedy = held_by[column]
    while depth and isinstance(inner, _LISTS):
        inner, depth = inner.value_type, depth - 1
    item = getattr(dataset.features[column], "feature", None)
    numbers = held == "links" or hasattr(item, "int2str")  # class labels
    good = pyarrow.types.is_integer(inner) if numbers else str(inner) in ("string", "large_string", "string_view")
    if not pyarrow.types.is_null(inner) and (depth or not good):
        raise InputError(f"{name}: the column {column} holds {kind}, not {held}. {remedy}")
    if not any(map(_has_null, dataset.data[column].chunks)):
        return
    start = 0
    for table in scan_columns(dataset, column):  # only the selected rows
        if len(empty := start + _null_rows(table[column].combine_chunks())):
            raise InputError(f"{name}, row {empty[0]}: the column {column} is empty. Fill it, or remove the row.")
        start += len(table)


def _has_null(values: Any) -> bool:
    return bool(values.null_count) or (isinstance(values.type, _LISTS) and _has_null(values.values))


def _null_rows(values: Any) -> np.ndarray:
    """Return the numbers of the rows that are null, or lists that hold null, int64."""
    rows = np.flatnonzero(values.is_null())
    if not isinstance(values.type, _LISTS):
        return rows
    parents = pyarrow.compute.list_parent_indices(values).to_numpy()
    return np.union1d(rows, parents[_null_rows(values.flatten())])


def join_languages(data: Any, name: str) -> Dataset:
    """Return one dataset of pairs, given as a dataset or by language (`{"de": dataset}`).

    A dataset without a column `source_lang` gets the language that it is given by; other rows must be in it.
    """
    if not isinstance(data, Mapping) or isinstance(data, DatasetDict) or {"train", "test"} & {*data}:
        return read_dataset(data, name)
    by_language = {}
    for key, rows in data.items():
        language = check_language(key, f"a key of {name}")
        pairs = read_dataset(rows, f"{name}[{language!r}]")
        if "source_lang" not in pairs.column_names:
            pairs = pairs.add_column("source_lang", [language] * len(pairs))
        check_key(language, pairs.unique("source_lang"), name)
        by_language[language] = pairs
    if not by_language:
        raise InputError(f"{name} is an empty dict. Give a dataset of pairs for each language.")
    return _joined({f"{name}[{language!r}]": pairs for language, pairs in by_language.items()})


def only_language(pairs: Dataset, column: str, what: str) -> str | None:
    """Return the language code in a column, None without that column; raise an InputError if there are several."""
    if column not in pairs.column_names:
        return None
    codes = dict.fromkeys(code for part in scan_codes(pairs, column) for code in part.unique().to_pylist())
    if len({parse_language(str(code)).language for code in codes}) > 1:
        raise InputError(f"{what}: {column} is {' and '.join(map(str, codes))}. Give the rows of each language alone.")
    return next(iter(codes), None)


def check_key(key: Any, languages: Iterable[Any], name: str) -> None:
    """Raise an InputError if rows that are given by language, as `name[key]`, are in another language."""
    if odd := [code for code in languages if parse_language(str(code)).language != parse_language(str(key)).language]:
        raise InputError(
            f"{name}[{key!r}]: its rows are in {odd[0]}. Name each dataset by the language of its rows, or join "
            "several of a language."
        )


def _joined(by_name: Mapping[str, Dataset], optional: Iterable[str] = ()) -> Dataset:
    """Concatenate datasets, given by their names in messages, whose columns may differ only in the optional ones."""
    first, *others = by_name.values()
    for name, dataset in by_name.items():
        if odd := sorted(({*dataset.column_names} ^ {*first.column_names}) - {*optional}):
            raise InputError(f"{name}: only some of the datasets have a column {odd[0]}. Give all the same columns.")
    return concatenate_datasets([first, *others]) if others else first


def as_parallel(data: Any, name: str, source_lang: str | None = None, target_lang: str | None = None) -> Dataset:
    """Apply [`read_dataset`], and raise an InputError if a column, a row or a valid language code is missing."""
    dataset = read_dataset(data, name, source_lang, target_lang)
    remedy = "Load it by load_parallel, rename its columns, or give languages to align_words."
    check_columns(dataset, COLUMNS, name, remedy)
    if not len(dataset):
        raise InputError(f"{name} has no rows. Give at least one sentence pair.")
    pairs_of_codes = (codes for table in scan_columns(dataset, *COLUMNS[2:]) for codes in _languages(table))
    for codes in dict.fromkeys(pairs_of_codes):
        if same_language(*codes):
            raise InputError(f"{name}: both sides of some rows are in {codes[1]}, the pivot. Correct or remove them.")
    return dataset


def _languages(table: pyarrow.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the distinct pairs of languages in a table."""
    distinct = table.select(COLUMNS[2:]).group_by(COLUMNS[2:]).aggregate([])
    yield from zip(*(column.to_pylist() for column in distinct.columns))


def _open(
    source: str | Path | Sequence[str | Path], columns: readers.Columns, split: str, revision: str | None
) -> tuple[str, list[Path], Dataset | None, readers.Columns, readers.Rows]:
    """Return a source's kind, its files or else its dataset, its columns, and its rows."""
    scheme, files = find_source(source, PAIRS, split)
    saved = scheme == "folder" and any((files[0] / name).is_file() for name in ("state.json", "dataset_dict.json"))
    if saved or scheme == "hub":
        dataset = _load_saved(files[0], split) if saved else load_hub(str(source), split, revision)
        rows = enumerate(dataset.select_columns(columns.select(dataset.column_names, str(source))), 1)
        return "hub", [], dataset, columns, cast(readers.Rows, rows)
    if scheme == "folder":
        shards = finished_shards(files[0])
        records = (record for shard in shards for _, record in readers.read_file(shard, columns))
        return "shards", shards, None, columns, enumerate(records, 1)
    if scheme != "file":
        columns = readers.Columns(columns.source_lang, columns.target_lang)
    if scheme == "aligned":
        return "aligned", [*files], None, columns, readers.read_aligned(*files)
    return readers.file_format(files[0]), [*files], None, columns, readers.read_file(files[0], columns)


def _load_saved(folder: Path, split: str) -> Dataset:
    """Load a dataset, or a split of several, from a folder that `save_to_disk` wrote."""
    errors = OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException
    with explained(f"{folder}: cannot be read as a folder of Dataset.save_to_disk", *errors):
        saved = datasets.load_from_disk(str(folder))
    if isinstance(saved, Dataset):
        return saved
    if split not in saved:
        raise InputError(f"{folder}: there is no split {split!r}, only {', '.join(map(repr, saved))}. Name one.")
    return saved[split]


def load_hub(name: str, split: str, revision: str | None) -> Dataset:
    """Load a split of a Hub dataset, written owner/name or owner/name:config."""
    match = HUB_ID.fullmatch(name)
    assert match is not None  # callers have checked the name
    repository, config = match.groups()
    try:
        # Not `load_dataset`, because only the builder knows the commit.
        # In the Hub's own conversion to Parquet, configurations are folders.
        converted = revision == PARQUET and config is not None
        where: dict[str, Any] = {"data_dir": config} if converted else {}
        builder = datasets.load_dataset_builder(repository, None if converted else config, revision=revision, **where)
        builder.download_and_prepare()
        dataset = builder.as_dataset(split=split)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise InputError(f"{name}: no such file, and no dataset on the Hub that you may read. Check it.") from error
    except (ConnectionError, LocalEntryNotFoundError, TransportError) as error:
        raise InputError(
            f"{name}: no such file, and the Hub cannot be reached to look for a dataset of that name. Offline, "
            f"use a local file or the text inside the package: {BUILTIN}de"
        ) from error
    except ValueError as error:  # unknown configuration or split; the text lists the known ones
        raise InputError(f"{name}: {error}") from error
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        raise InputError(
            f"{name}: the dataset needs a loading script, which `datasets` no longer runs. If the Hub has converted "
            f"it to Parquet, read that by --dataset_revision {PARQUET}"
        ) from error
    # The field in which `datasets` keeps download addresses when it verifies them.
    dataset.info.download_checksums = {f"hf://datasets/{repository}@{builder.hash}": {}}
    return dataset


def hub_commit(dataset: Dataset) -> str | None:
    """Return the commit of a dataset from the Hub, as [`load_parallel`] loads it; None for other datasets."""
    matches = map(_HUB_URL.match, dataset.info.download_checksums or ())
    return next((match[1] for match in matches if match), None)


def _pairs(
    rows: Iterator[tuple[int, Pair | None, Words]], names: tuple[str, str], on_empty: OnEmpty
) -> Iterator[tuple[Pair, Words]]:
    """Yield the pairs with two sides; errors call the file of the source and of the target side by `names`."""
    dropped = 0
    for row, pair, words in rows:
        if pair is not None and pair[0] and pair[1]:
            yield pair, words
        elif on_empty == "drop":
            dropped += 1
        else:
            side = "line" if pair is None else "target side" if pair[0] else "source side"
            where = names[1] if side == "target side" else names[0]
            raise InputError(f"{where}, row {row}: empty {side}. Fill it, or drop such pairs by on_empty='drop'.")
    if dropped:
        logger.info("%s: dropped %s pairs with an empty side", names[0], f"{dropped:,}")


def _read(
    rows: readers.Rows, columns: readers.Columns, name: str, form: str
) -> Iterator[tuple[int, Pair | None, Words]]:
    """Yield the pair and the words of each row, None for an empty line.

    Logs once which columns hold the pair, unless their names are obvious, and that links are not read.
    """
    plain = {("source", "target"), (columns.source_lang, columns.target_lang)}
    said = form in (".tsv", ".csv")  # the reader of the header has logged it
    for row, record in rows:
        if record is None or record.get("translation", ...) is None:
            yield row, None, (None, None)
            continue
        if not said and (pair_columns := columns.locate(record)[1]):
            said = True
            if pair_columns[:2] not in plain:
                columns.announce(pair_columns, name)
        if row == 1 and "links" in record:
            logger.warning("%s: links are not read, because they need a Parquet file with both columns of words", name)
        where = f"{name}, row {row}"
        pair = columns.read(record, where)
        source, target = (
            None if record.get(column) is None else check_words(record[column], f"{where}: {column}", text)
            for column, text in zip(WORDS[::-1] if columns.source == "target" else WORDS, pair)
        )
        yield row, pair, (source, target)


def _batches(pairs: Iterator[tuple[Pair, Words]]) -> Iterator[pyarrow.RecordBatch]:
    while batch := list(itertools.islice(pairs, _BATCH)):
        columns = zip(*((*pair, *words) for pair, words in batch), strict=True)
        arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, _SCHEMA)]
        yield pyarrow.record_batch(arrays, schema=_SCHEMA)


def take_rows(batches: Iterator[Any], rows: int | None) -> Iterator[Any]:
    """Yield Arrow batches or tables up to a number of rows; the last one may be cut."""
    while rows != 0 and (batch := next(batches, None)) is not None:
        yield (taken := batch.slice(0, rows))
        rows = None if rows is None else rows - len(taken)


def write_rows(batches: Iterator[pyarrow.RecordBatch], path: Path, name: str, unit: str) -> None:
    """Stream the rows of a source into an Arrow file that appears under `path` only when it is complete.

    `unit` says what a row is, in the progress bar and in the InputError for a source without rows.
    """
    unfinished = path.with_name(f".{path.name}.partial")
    first = next(batches, None)
    count = 0
    try:
        if first is not None:
            with (
                progress(desc=f"reading {name}", unit=f" {unit}", unit_scale=True, leave=False) as bar,
                pyarrow.OSFile(str(unfinished), "wb") as file,
                pyarrow.ipc.new_stream(file, first.schema) as out,
            ):
                for batch in itertools.chain([first], batches):
                    count += len(batch)
                    bar.update(len(batch))
                    out.write_batch(batch)
        if not count:
            raise InputError(f"{name}: there are no {unit} in it")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def hash_file(path: Path) -> str:
    """Return the BLAKE2b hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
