"""Load parallel text from files, the Hub, the package or Python as a `datasets.Dataset`.

[`load_parallel`] is the only way in which commands, recipes, trainers and Python read sentence pairs.
`hf_xalign.data.sources` describes how sources are written.
"""

from __future__ import annotations

import html
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

import datasets
import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Dataset, concatenate_datasets
from huggingface_hub.errors import LocalEntryNotFoundError

from hf_xalign.cache import cache_dir, checksum, digest, map_rows
from hf_xalign.checks import check_choice, check_range
from hf_xalign.data import arrow, forms
from hf_xalign.data.parallel import COLUMNS, check_columns, check_dataset, describe_pair, is_by_language
from hf_xalign.data.readers.files import FORMATS, Rows, file_format, of_split
from hf_xalign.data.readers.pairs import SAY_LANGUAGES, Columns, check_row_language, read_aligned, read_file
from hf_xalign.data.sides import SAMPLE, faults_of_pairs, warn_of_pairs
from hf_xalign.data.sources import BUILTIN, SourceKind, find_source, parse_source
from hf_xalign.data.words import WORDS, check_words
from hf_xalign.environment import is_first_process
from hf_xalign.errors import InputError, explained
from hf_xalign.language_codes import check_language, parse_language, same_language
from hf_xalign.network import TransportError
from hf_xalign.record import hub_id

logger = logging.getLogger(__name__)

Row = tuple[Any, ...]  # values of the columns of `_SCHEMA`
Entry = dict[str, Any]  # what the record says of a source
_Opened = tuple[str, list[Path], Dataset | None, Columns, Rows]  # form, files or else a dataset, columns and rows
OnEmpty = Literal["error", "drop"]
_Empty = Literal["error", "drop", "keep"]

PAIRS = SourceKind(FORMATS, ("package", "folder", "aligned"))

# Raise it when the same input gives other rows: cached tables are then replaced.
_READING = 31
# Rows of an Arrow batch: text of a few megabytes.
_BATCH = 10_000
_WORDS = pyarrow.list_(pyarrow.string())
_SCHEMA = pyarrow.schema({**dict.fromkeys(COLUMNS, pyarrow.string()), **dict.fromkeys(WORDS, _WORDS)})
_LINKED_SCHEMA = _SCHEMA.append(pyarrow.field("links", pyarrow.list_(pyarrow.list_(pyarrow.int32()))))
PARQUET = "refs/convert/parquet"  # the branch of the Hub's own conversion
_HUB_URL = re.compile(r"hf://datasets/[^@]+@([^@/]+)")  # of a downloaded file, with its commit


def load_parallel(
    source: Any,
    *,
    source_lang: str | None = None,
    target_lang: str = "en",
    split: str = "train",
    source_column: str | None = None,
    target_column: str | None = None,
    max_pairs: int | None = None,
    on_empty: OnEmpty = "error",
    keep_unlinked: bool = False,
    sides_checked: bool = False,
    revision: str | None = None,
) -> Dataset:
    """Load sentence pairs as a dataset with the columns `source`, `target`, `source_lang` and `target_lang` (strings).

    Text is NFC-normalized and stripped. The pairs of a file are streamed once into an Arrow file in the library's
    cache and memory-mapped from there, so memory does not grow with the corpus. The file's name is a hash of the
    input's content and the arguments, the dataset's fingerprint one of the pairs. [`sources`] returns their origin.

    Columns `source_words` and `target_words` (lists of strings; null for text that is still to be split) are kept for
    word alignment, in all formats but TSV, CSV and TMX. Parquet files that also have `links` keep all three, and text.

    Args:
        source: a source as described in [`hf_xalign.data.sources`], such as `de=pairs.tsv`; a tuple of two
            line-aligned files; a `Dataset`, a `DataFrame` or a list of dicts; a list of sources; a dict of
            columns; a tuple of two lists of texts; or a dict of sources by language, `{"de": pairs}`.
        source_lang: language of the source side, where the source does not name it. By default it is that of each
            row (`source_lang`, `src_lang`), or of the only other column that is named after a language.
        target_lang: language of the target side, the pivot.
        split: split of a built-in or Hub dataset, or of rows whose column `split` says several; other files are read
            whole.
        source_column: text column of the source side. By default the column named after the language, at the top
            level or in a `translation` dict, else the column `source`. The first line of a TSV or CSV file is a header
            if it names both columns; files without one are read by their form, see [`~hf_xalign.data.forms`], or by
            the numbers of their columns, `1` and `2`.
        target_column: text column of the target side, required with `source_column`. Built-in and line-aligned text
            ignores both.
        max_pairs: keep only this many pairs from the start of each source.
        on_empty: `error` refuses a pair with an empty side, `drop` drops it and logs the count.
        keep_unlinked: keep pairs without links in files with links, for losses on sentences.
        sides_checked: True for text whose sides are right, although they look swapped or like no sentences.
        revision: branch, tag or commit of a Hub dataset.

    Raises:
        InputError: there is nothing under that name, the Hub cannot be reached, or the content is bad. The message
            names file and row.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "pairs.tsv"
        >>> _ = path.write_text("Datei öffnen\\tOpen file\\nSpeichern\\tSave\\n", encoding="utf-8")
        >>> pairs = load_parallel(f"de={path}")
        >>> pairs[0]
        {'source': 'Datei öffnen', 'target': 'Open file', 'source_lang': 'de', 'target_lang': 'en'}
        >>> load_parallel([{"fr": "chien", "en": "dog"}])[0]
        {'source': 'chien', 'target': 'dog', 'source_lang': 'fr', 'target_lang': 'en'}
    """
    if (source_column is None) != (target_column is None):
        raise InputError("source_column and target_column go together. Give both or none.")
    check_range(least=1, max_pairs=max_pairs)
    check_choice(get_args(OnEmpty), on_empty=on_empty)
    check_language(target_lang, "target_lang")
    parts, entries = [], []
    for name, item, lang in _items(source, source_lang, target_lang):
        # As it was asked for, because `pt-BR` next to `pt` is another column.
        if lang is not None and same_language(check_language(lang, "source_lang"), target_lang):
            raise InputError(f"{name}: the source language is the pivot, {target_lang}. Give the other side's.")
        asked = Columns(lang, target_lang, source_column, target_column, split)
        opened = _open(item, asked, revision)
        part = _load_files(_name(item), opened, max_pairs, on_empty, keep_unlinked)
        if is_first_process():
            logger.info("%s: %s pairs, the first: %s", name, f"{len(part):,}", describe_pair(part[0]))
        for fault in () if sides_checked else faults_of_pairs(part):
            raise InputError(f"{name}: {fault}. If they are right, give --sides_checked true.")
        codes = [*arrow.count_languages(part)]
        about = {"language": codes[0]} if len(codes) == 1 else {}
        entries.append(source_entry(name, part, split=split, pairs=len(part), fingerprint=part._fingerprint, **about))
        parts.append(part)
    return note_sources(concatenate(parts), entries)


def _items(source: Any, source_lang: str | None, target_lang: str) -> Iterator[tuple[str, Any, str | None]]:
    """Yield the name of each source in a source, the source itself, and its language."""
    if isinstance(source, tuple) and source and all(isinstance(side, list | tuple) for side in source):
        source = Dataset.from_dict(dict(zip(("source", "target"), source, strict=True)))
    if is_by_language(source):
        are_lists = all(isinstance(rows, list) for rows in source.values())
        # Columns of texts, not a list of rows for each language.
        if are_lists and forms.find_columns(tuple(map(str, source)), source_lang, target_lang):
            yield _name(source), Dataset.from_dict(source), source_lang
            return
        for language, rows in source.items():
            yield from _items(rows, language, target_lang)
    elif isinstance(source, list) and not (source and isinstance(source[0], Mapping)):
        if not source:
            raise InputError("no parallel text is given. Write for example builtin:de, or de=PATH for your own file.")
        for item in source:
            yield from _items(item, source_lang, target_lang)
    elif isinstance(source, str) and (source_lang is None or parse_source(source)[0] != source):
        yield source.strip(), *parse_source(source)
    else:
        name = _name(source)
        prefixed = source_lang is not None and isinstance(source, str | Path | tuple) and not name.startswith(BUILTIN)
        yield (f"{source_lang}={name}" if prefixed else name), source, source_lang


def _name(source: Any) -> str:
    if isinstance(source, tuple):
        return ",".join(map(str, source))
    return str(source) if isinstance(source, str | Path) else f"a {type(source).__name__} given in Python"


def source_entry(item: str, text: Dataset | None = None, **more: Any) -> Entry:
    """Return the record's entry of a text."""
    source, language = parse_source(item)
    revision = hub_commit(text)
    entry = {"source": item, "hub_id": hub_id(source.partition(":")[0]), "language": language, "revision": revision}
    return {**entry, **more}


def sources(dataset: Dataset) -> list[Entry]:
    """Return what [`load_parallel`] knows of each source of a dataset: its name, Hub id, language, commit and counts.

    Example:
        >>> pairs = load_parallel(["builtin:de", "builtin:bn"], split="test").select(range(10))
        >>> [(entry["source"], entry["pairs"]) for entry in sources(pairs)]
        [('builtin:de', 500), ('builtin:bn', 488)]
    """
    lines = (dataset.info.description or "").split("\n")
    return [json.loads(line) for line in lines if line.startswith('{"source": ')]


def note_sources(dataset: Dataset, entries: Iterable[Entry]) -> Dataset:
    """Store what is known of a dataset's sources in it, for [`sources`]."""
    # `select`, `map`, `filter` and `concatenate_datasets` keep the description.
    dataset.info.description = "\n".join(map(json.dumps, entries))
    return dataset


def whole_sources(text: Dataset) -> list[Entry]:
    """Return what is known of the sources of a text that has all their pairs, else an empty list."""
    known = sources(text)
    return known if sum(entry["pairs"] for entry in known) == len(text) else []


def draw_pairs(
    text: Dataset, usable: np.ndarray, max_pairs: int | None, seed: int, draw: Literal["first", "seed"] = "seed"
) -> Dataset:
    """Select the pairs that the filters kept, bool (rows,), or of each source the first of them or a seeded draw.

    The entries of the sources of drawn pairs get `draw` and the numbers of these pairs.
    """
    if max_pairs is None:
        # The indices of a selection would need more memory than all else.
        return text if usable.all() else text.select(np.flatnonzero(usable))
    entries = whole_sources(text)
    chosen, start = [], 0
    for number, entry in enumerate(entries or [{"source": "train_dataset", "pairs": len(text)}]):
        rows = start + np.flatnonzero(usable[start : start + entry["pairs"]])
        start += entry["pairs"]
        # Of a permutation, a larger draw holds a smaller one of the same seed.
        drawn = rows if draw == "first" else np.random.default_rng([seed, number]).permutation(rows)
        rows = np.sort(drawn[:max_pairs])
        if len(rows) < max_pairs:
            used = f"all {len(rows):,} pairs are used: {max_pairs:,} were asked for"
            logger.warning("%s: %s", entry["source"], used)
        entry |= {"pairs": len(rows), "draw": draw}
        chosen.append(rows)
    selected = text.select(np.concatenate(chosen))
    return note_sources(selected, entries) if entries else selected


def read_dataset(data: Any, name: str, source_lang: str | None = None, target_lang: str | None = None) -> Dataset:
    """Return a dataset of sentence pairs with the columns `source`, `target`, `source_lang` and `target_lang`.

    One with `source` and `target`, or with words, keeps all columns; English is the pivot by default. Other datasets
    are read as files are, and their other columns are left out.
    """
    dataset = check_dataset(data, name)
    columns = {*dataset.column_names}
    is_named = {"source", "target"} <= columns and not {*map(forms.plain_name, columns)} & SAY_LANGUAGES - {*COLUMNS}
    # Pairs of words or of token ids need no text.
    if not is_named and not {"source_words", "source_ids"} & columns:
        opened = _open_dataset(dataset, "dataset", name, Columns(source_lang, target_lang or "en"))
        return _load_files(name, opened, None, "keep", False)
    for column, language in (("source_lang", source_lang), ("target_lang", target_lang)):
        language = language and check_language(language, column)
        if language is not None and column in dataset.column_names:
            if any(not same_language(str(code), language) for code in dataset.unique(column)):
                raise InputError(f"{column}={language}: {name} has other codes in this column. Remove the argument.")
        elif language is not None:
            dataset = dataset.add_column(column, [language] * len(dataset))
    if "source_lang" in dataset.column_names and "target_lang" not in dataset.column_names:
        dataset = dataset.add_column("target_lang", ["en"] * len(dataset))
    held = {"source", "target", *((*WORDS, "links") if "links" in dataset.column_names else ())}
    check_columns(dataset, held & {*dataset.column_names}, name, "")
    return _one_code(dataset, name)


def _one_code(pairs: Dataset, name: str) -> Dataset:
    """Return pairs in which a language has one code: `iw` becomes `he`."""
    columns = [column for column in COLUMNS[2:] if column in pairs.column_names]
    codes: dict[str, str] = {}
    for column in columns:
        codes |= {code: check_language(code, f"{name}: {column}") for code in arrow.count_languages(pairs, column)}
    if all(code == one for code, one in codes.items()):
        return pairs

    def renamed(batch: dict[str, list[str]]) -> dict[str, list[str]]:
        return {column: list(map(codes.__getitem__, batch[column])) for column in columns}

    return map_rows(pairs, renamed, desc="Reading languages")


def _load_files(name: str, opened: _Opened, max_pairs: int | None, on_empty: _Empty, keep_unlinked: bool) -> Dataset:
    form, files, dataset, columns, rows = opened
    linked = False
    if form in ("shards", ".parquet") and columns.source_column is None:
        # `hf-xalign align-words` writes words and links.
        with arrow.open_parquet(files[0]) as file:
            linked = set(_LINKED_SCHEMA.names) <= set(file.schema_arrow.names)
            if linked and forms.column_of("split", file.schema_arrow.names):
                logger.warning("%s: the rows of all splits are read. Link each split by itself", name)
    names = (str(files[0]), str(files[1])) if form == "aligned" else (name, name)
    hashes = [checksum(file, "blake2b") for file in files]  # none for a dataset
    content = [dataset._fingerprint] if dataset else [linked and ("linked", keep_unlinked), *hashes]
    key = digest(_READING, form, content, vars(columns), max_pairs, on_empty)
    if linked:
        shards = (_read_linked(file, columns, on_empty, keep_unlinked) for file in files)
        batches = arrow.take_rows(itertools.chain.from_iterable(shards), max_pairs)
    else:
        pairs = _pairs(_without_covering(_read(rows, columns, names[0], form)), names, on_empty)
        batches = _batches(itertools.islice(pairs, max_pairs))
    table = cache_dir("parallel") / f"{key}.arrow"
    data = arrow.cached_rows(batches, table, name, "sentence pairs").data
    if all(data[column].null_count == len(data) for column in WORDS):
        data = data.drop(list(WORDS))
    sums = dataset.info.download_checksums if dataset else None
    # The same fingerprint for rows that were read by another split, or from another format.
    return Dataset(data, info=datasets.DatasetInfo(download_checksums=sums), fingerprint=checksum(table))


def _read_linked(path: Path, columns: Columns, on_empty: _Empty, keep_unlinked: bool) -> Iterator[pyarrow.RecordBatch]:
    first = unlinked = empty = 0
    with arrow.open_parquet(path) as file:
        for batch in arrow.parquet_batches(file, _BATCH, _LINKED_SCHEMA.names):
            with explained(f"{path}: a column is missing or has the wrong type", KeyError, pyarrow.ArrowException):
                batch = batch.select(_LINKED_SCHEMA.names).cast(_LINKED_SCHEMA)
            for name, asked in (("source_lang", columns.source_lang), ("target_lang", columns.target_lang)):
                # The rows may have `deu` for `de`.
                codes = [check_row_language(code, name, asked, str(path)) for code in batch[name].to_pylist()]
                batch = batch.set_column(_LINKED_SCHEMA.get_field_index(name), name, pyarrow.array(codes))
            sides = (pyarrow.compute.equal(batch[side].fill_null(""), "") for side in ("source", "target"))
            blank = pyarrow.compute.or_(*sides).to_numpy(zero_copy_only=False)
            if on_empty == "error" and blank.any():
                fault = "a side is empty. Correct it, or drop such pairs by on_empty='drop'."
                raise InputError(f"{path}, row {first + int(blank.argmax()) + 1}: {fault}")
            kept = (batch["links"].value_lengths().to_numpy() > 0) | keep_unlinked
            empty, unlinked = empty + int(blank.sum()), unlinked + int((~kept & ~blank).sum())
            first += len(batch)
            yield batch.filter(pyarrow.array(kept & ~blank))
    if empty or unlinked:
        logger.info("%s: dropped %d pairs with an empty side and %d without links", path, empty, unlinked)


def stream_parallel(
    source: str, *, source_lang: str | None = None, revision: str | None = None, **columns: str
) -> Iterator[Row]:
    """Yield the pairs of a source without a cache, including pairs with an empty side; see [`load_parallel`].

    `columns` are the pivot, the columns and the split: `target_lang`, `source_column`, `target_column` and `split`.

    Text that may be noisy is not refused: a warning says if its first pairs look swapped or like no sentences.
    """
    form, files, _, asked, rows = _open(source, Columns(source_lang, **columns), revision)
    name = str(files[0]) if len(files) == 1 else source
    pairs = (pair for _, pair in _without_covering(_read(rows, asked, name, form)) if pair is not None)
    if sample := list(itertools.islice(pairs, SAMPLE)):
        first = dict(zip(_SCHEMA.names, sample[0], strict=True))
        logger.info("%s: the first pair: %s", name, describe_pair(first))
        if any(first[column] for column in WORDS):
            logger.warning("%s: the columns %s are not kept, because the text may change", name, ", ".join(WORDS))
        # `prepare` takes escapes out.
        text = dict(zip(COLUMNS, map(list, zip(*sample))))
        text |= {side: list(map(html.unescape, text[side])) for side in COLUMNS[:2]}
        warn_of_pairs(Dataset.from_dict(text), name)
    yield from (pair[: len(COLUMNS)] for pair in itertools.chain(sample, pairs))


def concatenate(parts: Sequence[Dataset]) -> Dataset:
    """Concatenate parallel datasets (language pairs, sources) without copying their text.

    If only some of them have columns of words, the others get null there.

    Raises:
        InputError: their other columns differ.
    """
    by_name = {}
    for number, part in enumerate(parts, 1):
        name = f"dataset {number} of {len(parts)}"
        by_name[name] = as_parallel(part, name)
    return _joined(by_name, WORDS)


def join_languages(data: Any, name: str) -> Dataset:
    """Return one dataset of pairs, given as a dataset or by language (`{"de": dataset}`).

    A dataset without a column `source_lang` gets the language that it is given by; other rows must be in it.
    """
    if is_by_language(data) and data:
        by_name = {}
        for key, rows in data.items():
            language = check_language(key, f"a key of {name}")
            part = f"{name}[{language!r}]"
            dataset = check_dataset(rows, part)
            pairs = read_dataset(dataset, part, None if "source_lang" in dataset.column_names else language)
            for code in pairs.unique("source_lang"):
                if parse_language(str(code)).language != parse_language(language).language:
                    raise InputError(f"{part}: its rows are in {code}. Name each dataset by the language of its rows.")
            by_name[part] = pairs
        joined = _joined(by_name)
    else:
        joined = read_dataset(data, name)
    # What `load_parallel` made is checked.
    if not sources(joined) and {*COLUMNS} <= {*joined.column_names}:
        warn_of_pairs(joined, name)
    return joined


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
    for table in arrow.scan_columns(dataset, *COLUMNS[2:]):
        for codes in table.group_by(COLUMNS[2:]).aggregate([]).to_pylist():
            if same_language(*codes.values()):
                pivot = codes["target_lang"]
                raise InputError(f"{name}: both sides of some rows are in {pivot}, the pivot. Correct or remove them.")
    return dataset


def _open_dataset(dataset: Dataset, form: str, name: str, columns: Columns) -> _Opened:
    used = dataset.select_columns(columns.select(dataset.features, name))
    rows = of_split(lambda: cast(Rows, enumerate(used, form == "hub")), columns.split, name)
    return form, [], dataset, columns, rows


def _open(source: Any, columns: Columns, revision: str | None) -> _Opened:
    if not isinstance(source, str | Path | tuple):
        name = _name(source)
        return _open_dataset(check_dataset(source, name), "dataset", name, columns)
    scheme, files = find_source(source, PAIRS, columns.split)
    if scheme == "hub":
        dataset = load_hub(str(source), columns.split, revision)
        return _open_dataset(dataset, "hub", str(source), columns)
    if scheme == "folder":
        shards = arrow.finished_shards(files[0], columns.split)
        records = (record for shard in shards for _, record in read_file(shard, columns))
        return "shards", shards, None, columns, enumerate(records, 1)
    if scheme != "file":
        columns = Columns(columns.source_lang, columns.target_lang, split=columns.split)
    if scheme == "aligned":
        first, second = ("/".join(file.parts[-2:]) for file in files)  # `hu/train.txt`, `fi/train.txt`
        if forms.names_are_turned(first, second, columns.source_lang, columns.target_lang):
            logger.warning("%s and %s: their names say that the pivot is first, so both sides are turned", *files)
            files = files[::-1]
        return "aligned", [*files], None, columns, read_aligned(files[0], files[1], columns)
    forms.warn_of_name(files[0].name, columns.source_lang, columns.target_lang)
    return file_format(files[0]), [*files], None, columns, read_file(files[0], columns)


def load_hub(name: str, split: str, revision: str | None) -> Dataset:
    """Load a split of a Hub dataset, written owner/name or owner/name:config, or of a folder of `save_to_disk`."""
    if (folder := Path(name).expanduser()).is_dir():
        with explained(name, OSError, ValueError, KeyError, TypeError):
            saved = datasets.load_from_disk(str(folder))
            if not isinstance(saved, Dataset):
                check_choice(saved, split=split)
        return saved if isinstance(saved, Dataset) else saved[split]
    repository, _, config = name.partition(":")
    # In the Hub's own conversion to Parquet, configurations are folders.
    where = {"data_dir": config} if config and revision == PARQUET else {}
    missing = f"{name}: no such file, and no dataset on the Hub that you may read"
    unreachable = f"{name}: no such file, and the Hub cannot be reached to look for a dataset of that name"
    offline = f". Offline, use a local file or the text inside the package: {BUILTIN}de"
    converted = ". If it needs a loading script and the Hub has converted it to Parquet, read that by "
    converted += f"--dataset_revision {PARQUET}"
    with (
        # An unknown configuration or split; the error lists the known ones.
        explained(name, ValueError),
        # A loading script, which `datasets` no longer runs.
        explained(name, RuntimeError, advice=converted),
        explained(unreachable, ConnectionError, LocalEntryNotFoundError, TransportError, advice=offline),
        explained(missing, datasets.exceptions.DatasetNotFoundError),
    ):
        # Not `load_dataset`, because only the builder knows the commit.
        named = None if where else config or None
        builder = datasets.load_dataset_builder(repository, named, revision=revision, **where)
        builder.download_and_prepare()
        dataset = builder.as_dataset(split=split)
    # The field in which `datasets` keeps download addresses when it verifies them.
    dataset.info.download_checksums = {f"hf://datasets/{repository}@{builder.hash}": {}}
    return dataset


def hub_commit(dataset: Dataset | None) -> str | None:
    """Return the commit of a dataset from the Hub, as [`load_parallel`] loads it; None for another one, or none."""
    addresses = None if dataset is None else dataset.info.download_checksums
    matches = map(_HUB_URL.match, addresses or ())
    return next((match[1] for match in matches if match), None)


def _pairs(rows: Iterator[tuple[int, Row | None]], names: tuple[str, str], on_empty: _Empty) -> Iterator[Row]:
    """Yield the pairs with two sides; errors call the file of the source and of the target side by `names`."""
    dropped = 0
    for row, pair in rows:
        if pair is not None and (on_empty == "keep" or (pair[0] and pair[1])):
            yield pair
        elif on_empty == "drop":
            dropped += 1
        else:
            side = "line, or the header again" if pair is None else "target side" if pair[0] else "source side"
            where = names[1] if side == "target side" else names[0]
            raise InputError(f"{where}, row {row}: empty {side}. Fill it, or drop such pairs by on_empty='drop'.")
    if dropped:
        logger.info("%s: dropped %s pairs with an empty side", names[0], f"{dropped:,}")


def _read(rows: Rows, columns: Columns, name: str, form: str) -> Iterator[tuple[int, Row | None]]:
    """Yield the pair of each row with its words, None for an empty line."""
    # Columns with obvious names are not logged.
    plain = {("source", "target"), (columns.source_lang, columns.target_lang)}
    # The reader of a header has logged it.
    said = form in (".tsv", ".csv")
    count = pairs = 0
    for row, record in rows:
        if record is None or record.get("translation", ...) is None:
            yield row, None
            continue
        if not said and (pair_columns := columns.locate(record)[1]):
            said = True
            if pair_columns[:2] not in plain:
                columns.announce(pair_columns, name, record)
        if row == 1 and "links" in record:
            logger.warning("%s: links are not read, because they need a Parquet file with both columns of words", name)
        where = f"{name}, row {row}"
        found = columns.read(record, where)
        words = []
        for column in WORDS[::-1] if columns.source_column == "target" else WORDS:
            value = record.get(column)
            words.append(None if value is None else check_words(value, f"{where}: {column}"))
        count, pairs = count + 1, pairs + len(found)
        for pair in found:
            yield row, (*pair, *words)
    if pairs != count:
        logger.warning("%s: %s rows, some of which hold lists, are read as %s pairs", name, f"{count:,}", f"{pairs:,}")


def _without_covering(rows: Iterator[tuple[int, Row | None]]) -> Iterator[tuple[int, Row | None]]:
    """Yield the pairs; a side is empty where it is a verse that the one before covers, or the verse that covers it."""
    for (row, pair), (_, following) in itertools.pairwise(itertools.chain(rows, [(0, None)])):
        after = (following or ("", ""))[:2]
        if pair is not None and forms.COVERED in (*pair[:2], *after):
            sides = ("" if forms.COVERED in texts else texts[0] for texts in zip(pair, after))
            pair = (*sides, *pair[2:])
        yield row, pair


def _batches(pairs: Iterator[Row]) -> Iterator[pyarrow.RecordBatch]:
    while batch := list(itertools.islice(pairs, _BATCH)):
        columns = zip(*batch, strict=True)
        arrays = list(map(pyarrow.array, columns, _SCHEMA.types))
        yield pyarrow.record_batch(arrays, schema=_SCHEMA)
