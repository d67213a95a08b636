"""Word-align parallel text by a statistical aligner, a file, a dictionary, or an encoder: a dataset, or shards.

Both are a [`Job`], with a function that reads the text. Statistical aligners are fitted on a sample and saved in a
work folder; then parts of the text are linked, with one aligner in memory at a time. The links of a dataset become one
file in the cache. For shards, fits and shards are tasks of processes or of a Ray cluster. A finished task leaves a
mark, so that a killed run repeats the others alone. Any number of workers gives the same bytes.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Dataset, Features, List, Value

from hf_xalign.cache import (
    cache_dir,
    check_output,
    checksum,
    digest,
    disk_errors,
    make_once,
    read_mark,
    work_folder,
    write_json,
    write_mark,
)
from hf_xalign.checks import check_choice
from hf_xalign.cluster import run_on_cluster, run_tasks
from hf_xalign.data.arrow import (
    finished_shards,
    open_parquet,
    open_work,
    read_rows,
    scan_columns,
    shard_name,
    write_shard,
)
from hf_xalign.data.encoding import check_pieces, check_vocabulary, tokenizer_fingerprint
from hf_xalign.data.load import as_parallel
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.readers.dictionaries import load_dictionary, turned
from hf_xalign.data.words import WORDS, batch_words, clean_text, lower_word, lower_words, split_words, splitter_version
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained
from hf_xalign.language_codes import check_language
from hf_xalign.links import statistical
from hf_xalign.links.counts import LANGUAGES, Pair, count_links, link_statistics
from hf_xalign.links.files import DictionaryLinker, PharaohReader
from hf_xalign.links.statistical import STATISTICAL_ALIGNERS, StatisticalLinker
from hf_xalign.links.symmetrization import SYMMETRIZATIONS, LinkFilters, Symmetrization

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_xalign.links.neural import LinkMethod

logger = logging.getLogger(__name__)

RECORD = "align-words.json"  # settings and shards, written last
_PART = 100_000  # pairs in a shard
_CHECKED = 1000  # pairs of a language pair whose words are checked against an encoder's vocabulary
VERSION = 5  # raise it when the same call may give other links: cached links are then replaced
ADDED = Features(dict.fromkeys(WORDS, List(Value("string"))) | {"links": List(List(Value("int32")))})
_LAYER_PAIRS = 256  # pairs on which the encoder's layer is chosen
_ORDER, _ORDER_PAIRS = "order", 1000  # the task that finds a dictionary's first word, and the pairs it looks at
_BATCH = 1000  # pairs that are linked at once

Task = tuple[Any, ...]
"""A function and its arguments. It returns the content of its mark and the files that it wrote."""
Rows: TypeAlias = pyarrow.Table | pyarrow.RecordBatch
Sides: TypeAlias = Sequence[list[list[str]]]
"""Words of the source sentences, and words of the target sentences."""
Linker = Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], Sequence[Sequence[Sequence[int]]]]
"""Takes the words of consecutive sentence pairs and returns their links."""


def align_words(
    dataset: Dataset,
    aligner: str = "fast_align",
    symmetrization: Symmetrization = "intersection",
    one_to_one: bool = True,
    drop_identical: bool = False,
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    lowercase: bool = True,
    keep_unlinked: bool = False,
    extra_data: Dataset | None = None,
    sample_size: int = 1_000_000,
    seed: int = 0,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    layer: int | None = None,
    method: LinkMethod | None = None,
) -> Dataset:
    """Split parallel text into words and link those that translate each other.

    Words are taken from the columns `source_words` and `target_words`. If these are missing or null, [`split_words`]
    splits the text; for links from a Pharaoh file, the text is split at blanks. Statistical aligners and dictionaries
    ignore case. Each language pair gets its own statistical aligner, fitted on a sample. The result is memory-mapped
    from the library's cache, and the same call on the same data reuses it.

    Args:
        dataset: columns `source`, `target`, `source_lang`, `target_lang`, or a column `translation`
            (`{"de": ..., "en": ...}`, as on the Hub); other columns are kept.
        aligner: `fast_align`, `hmm`, `ibm1` to `ibm4` or `eflomal` (statistical); `pharaoh:PATH` (existing links, one
            line for each row); `dictionary:PATH` (MUSE format in either order, unambiguous matches only);
            or `encoder` (word vectors of `model`). `{lang}` in PATH stands for the source language.
        symmetrization: `intersection`, `union`, `grow-diag` or `grow-diag-final-and` of the two directions of a
            statistical aligner or the encoder.
        one_to_one: drop all links of a word that has several.
        drop_identical: after that, drop links between identical strings.
        source_lang: source language, for a dataset without that column or with translations.
        target_lang: target language, for a dataset without that column; for translations, English by default.
        lowercase: lower-case words for statistical aligners and dictionaries; the columns keep their case.
        keep_unlinked: keep pairs without links, which are dropped by default.
        extra_data: more parallel text to fit statistical aligners on; it is not linked.
        sample_size: largest number of sentence pairs to fit the aligner of a language pair on.
        seed: seed of the sample and of eflomal.
        model: encoder of aligner `encoder`.
        tokenizer: fast tokenizer of `model`.
        layer: position in the encoder's `hidden_states`; by default chosen without gold links, see [`choose_layer`].
        method: `subwords`, `argmax` or `softmax`, see [`encoder_links`]. Default: `subwords`, or `argmax` with
            `one_to_one`, which would drop all links of compounds.

    Returns:
        The linked pairs in their order, with `source_words`, `target_words` and `links` (lists of [i, j]).

    Raises:
        InputError: a column, file, model or segmenter is missing, an option or file is malformed, or there is no link.

    Example:
        >>> import pathlib, tempfile
        >>> from datasets import Dataset
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "en-de.txt"
        >>> _ = path.write_text("open\\töffnen\\nfile\\tDatei\\n", encoding="utf-8")
        >>> pair = {"source": "Datei öffnen", "target": "Open the file", "source_lang": "de", "target_lang": "en"}
        >>> linked = align_words(Dataset.from_list([pair]), f"dictionary:{path}")
        >>> linked[0]["target_words"], linked[0]["links"]
        (['Open', 'the', 'file'], [[0, 2], [1, 0]])
    """
    dataset = as_parallel(dataset, "the dataset", source_lang, target_lang)
    filters = (symmetrization, one_to_one, drop_identical)
    options: Any = {"fit_pairs": sample_size, "seed": seed, "layer": layer, "method": method}
    rules = make_rules(aligner, *filters, lowercase=lowercase, **options)
    text = [dataset]
    if extra_data is not None:
        extra_data = as_parallel(extra_data, "extra_data")
        text += [extra_data] if rules.kind in STATISTICAL_ALIGNERS else []
    counts = [count_links(scan_columns(pairs, *LANGUAGES)) for pairs in text]
    identity = [*rules.identity(counts[0]), keep_unlinked, *(pairs._fingerprint for pairs in text)]
    if rules.kind == "encoder":
        if model is None or tokenizer is None:
            raise InputError("aligner='encoder' needs an encoder. Give model= and tokenizer=.")
        identity += encoder_identity(model, tokenizer)
        check_pieces(dataset, tokenizer, "the dataset")
    path = cache_dir("links") / f"{digest(*identity)}.arrow"

    def make() -> None:
        with work_folder(path.with_suffix(".work")) as folder:
            pairs = dict.fromkeys(counts[0], 0)
            for by_pair, pair in product(counts, pairs):
                pairs[pair] += by_pair[pair][0]
            job = Job(rules, folder, (*pairs.items(),), partial(_scan, text), lambda: (model, tokenizer))
            try:
                for name, task in job.fits().items():
                    job.perform(name, *task)
                _link_dataset(job, dataset, keep_unlinked, folder / path.name)
            finally:
                make_linker.cache_clear()
            os.replace(folder / path.name, path)

    make_once(path, make)
    linked = Dataset.from_file(str(path))
    linked.info.description = dataset.info.description  # what is known of the sources
    for name, statistics in link_statistics(linked, dataset).items():
        log = logger.info if statistics.pairs else logger.warning
        log("%s by %s: %s (%s)", name, rules.kind, statistics, path)
    return linked


def align_shards(
    sources: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    aligner: str = "fast_align",
    *,
    fit_pairs: int = 1_000_000,
    model: str = "builtin",
    device: str = "cpu",
    shards: int | None = None,
    workers: int = 1,
    ray: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Word-align Parquet shards and write them as Parquet shards; return the content of `align-words.json`.

    All rows and columns are kept in their order, with text in NFC, and the columns `source_words`, `target_words` and
    `links` are added, which [`~hf_xalign.data.load_parallel`] reads. The links are those of [`align_words`] on all
    pairs. Make the same call again to resume a killed run.

    Args:
        sources: Parquet files with the columns `source`, `target`, `source_lang`, `target_lang`, or folders of them,
            of which those of the split `train` are read if their names say several.
        output: folder of the result: empty, or that of an unfinished run.
        aligner: as in [`align_words`], without `pharaoh`.
        fit_pairs: largest number of sentence pairs to fit the aligner of a language pair on.
        model: encoder of aligner `encoder`: a folder, Hub id or `builtin`.
        device: torch device of the encoder in each worker.
        shards: number of shards to write; by default one for each 100,000 pairs. A worker holds one in memory.
        workers: processes, each with one thread; an encoder has one process with torch's threads.
        ray: run on Ray instead: `local`, or the address of a cluster whose machines share these folders.
        options: `symmetrization`, `one_to_one`, `drop_identical`, `lowercase`, `seed`, `layer` and `method` of
            [`align_words`].

    Raises:
        InputError: input or options are bad, the folder holds a finished result, or a shard failed. The message
            names the shard; finished shards are kept.

    Example:
        >>> import pathlib, tempfile
        >>> from datasets import Dataset
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "en-de.txt").write_text("open\\töffnen\\nfile\\tDatei\\n", encoding="utf-8")
        >>> pair = {"source": "Datei öffnen", "target": "Open the file", "source_lang": "de", "target_lang": "en"}
        >>> _ = Dataset.from_list([pair]).to_parquet(folder / "pairs.parquet")
        >>> record = align_shards([folder / "pairs.parquet"], folder / "linked", f"dictionary:{folder}/en-de.txt")
        >>> record["languages"]
        {'de-en': {'pairs': 1, 'links': 2, 'too_long': 0}}
    """
    folder = Path(output).expanduser().absolute()
    check_output(folder)
    if (folder / RECORD).exists():
        raise InputError(f"{folder} holds a finished result. Give another folder, or remove it.")
    files, columns = _open_files(sources)
    counts = count_links(_languages(files))
    rules = make_rules(aligner, fit_pairs=fit_pairs, model=model, device=device, **options)
    if rules.kind == "pharaoh":
        raise InputError("aligner pharaoh reads the links of one text in order. Give another aligner for shards.")
    settings, versions, inputs = rules.identity(counts)
    inputs = [*([str(path), checksum(path)] for path, _ in files), *inputs]
    load = partial(_load_encoder, str(Path(model).absolute()) if Path(model).exists() else model, device)
    tokenizer = None
    if rules.kind == "encoder":
        # Each worker loads its own.
        loaded, tokenizer = load()
        inputs.append(encoder_identity(loaded, tokenizer))
        del loaded
    total = sum(rows for _, rows in files)
    shards = min(shards or -(-total // _PART), total)
    with open_work(folder, digest(settings, versions, inputs, shards)) as work:
        pairs = tuple((pair, count) for pair, (count, _) in counts.items())
        job = Job(rules, work, pairs, partial(read_rows, files, columns=columns), load, parallel=True)
        if tokenizer:
            for pair in counts:
                for words, language in zip(zip(*job.words(pair, _CHECKED)), pair):
                    check_vocabulary(tokenizer, words, language, "the shards")
        # An encoder stays in this process, whose threads run its batches: torch may not survive a fork.
        spread: Any = {"workers": workers if ray or not tokenizer else 1, "ray": ray}
        spread["gpus"] = int(bool(tokenizer) and not device.startswith("cpu"))
        try:
            job.finish(job.fits(), f"Fitting {rules.kind}", **spread)
            tasks = {
                shard_name(number, shards): (_link_shard, files, folder, number, shards) for number in range(shards)
            }
            written = job.finish(tasks, "Linking shards", **spread)
        finally:
            make_linker.cache_clear()
        languages = {name: {"pairs": 0, "links": 0, "too_long": 0} for name in map("-".join, counts)}
        for shard in written:
            for name, counted in shard["languages"].items():
                for key, value in counted.items():
                    languages[name][key] += value
        check_links({name: (counted["links"], counted["too_long"]) for name, counted in languages.items()}, total)
        record = {
            "settings": settings,
            "versions": versions,
            "sources": [path.name for path, _ in files],
            "languages": languages,
            "shards": [{key: shard[key] for key in ("file", "pairs", "checksum")} for shard in written],
        }
        write_json(folder / RECORD, record)
    return record


def _open_files(sources: Sequence[str | os.PathLike[str]]) -> tuple[list[tuple[Path, int]], list[str]]:
    """Return the Parquet files with their numbers of pairs, and the columns to read."""
    files: list[tuple[Path, int]] = []
    first = None
    for source in sources:
        path = Path(source).expanduser().absolute()
        for shard in finished_shards(path) if path.is_dir() else [path]:
            with open_parquet(shard) as file:
                first = first or file.schema_arrow
                if missing := [name for name in COLUMNS if name not in file.schema_arrow.names]:
                    raise InputError(
                        f"{shard}: no column {', '.join(missing)} (it has {', '.join(file.schema_arrow.names)}). "
                        "Write it by hf-xalign prepare, or rename its columns."
                    )
                files.append((shard, file.metadata.num_rows))
    if first is None or not any(rows for _, rows in files):
        raise InputError(f"{', '.join(map(str, sources))}: there are no sentence pairs in it")
    return files, [name for name in (*COLUMNS, *WORDS) if name in first.names]


def _languages(files: Sequence[tuple[Path, int]]) -> Iterator[pyarrow.RecordBatch]:
    for file in progress(files, desc="Counting pairs", unit=" files", leave=False):
        for batch in read_rows([file], columns=LANGUAGES):
            for column in LANGUAGES:
                for code in batch[column].unique().to_pylist():
                    check_language(code, f"{file[0]}: {column}")
            yield batch


def _scan(datasets: Sequence[Dataset]) -> Iterator[pyarrow.Table]:
    for dataset in datasets:
        yield from scan_columns(dataset, *(name for name in (*COLUMNS, *WORDS) if name in dataset.column_names))


def _link_dataset(job: Job, dataset: Dataset, keep_unlinked: bool, path: Path) -> None:
    links, too_long = Counter[str](), Counter[str]()

    def link(table: pyarrow.Table) -> pyarrow.Table:
        table, longer = job.link(table)
        too_long.update(longer)
        links.update({"-".join(pair): count for pair, (_, count) in count_links([table]).items()})
        if keep_unlinked:
            return table
        return table.filter(pyarrow.compute.greater(pyarrow.compute.list_value_length(table["links"]), 0))

    dataset.with_format("arrow").map(
        link,
        batched=True,
        batch_size=_PART,
        features=Features({**dataset.features, **ADDED}),
        cache_file_name=str(path),
        load_from_cache_file=False,
        # Otherwise `datasets` would hash the job, with the encoder in it.
        new_fingerprint=path.stem,
        desc="Linking",
    )
    check_links({name: (links[name], too_long[name]) for name in links}, len(dataset))


def _link_shard(
    job: Job, files: Sequence[tuple[Path, int]], folder: Path, number: int, shards: int
) -> tuple[dict[str, Any], list[Path]]:
    total = sum(rows for _, rows in files)
    first, last = total * number // shards, total * (number + 1) // shards
    rows = normalize(pyarrow.Table.from_batches(read_rows(files, first, last)))
    with statistical.one_thread() if job.rules.kind in STATISTICAL_ALIGNERS else nullcontext():
        table, too_long = job.link(rows)
    languages = {}
    for pair, (pairs, links) in count_links([table]).items():
        name = "-".join(pair)
        languages[name] = {"pairs": pairs, "links": links, "too_long": too_long[name]}
    path = folder / shard_name(number, shards)
    # Without the schema's metadata, in which `datasets` lists the columns of the input.
    return write_shard(path, [table.replace_schema_metadata()]) | {"languages": languages}, [path]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Settings that determine the links of a text: the aligner, split into its kind and its file, and its options."""

    aligner: str
    kind: str
    path: str
    symmetrization: Symmetrization
    filters: LinkFilters
    method: LinkMethod
    lowercase: bool
    fit_pairs: int = 1_000_000
    seed: int = 0
    layer: int | None = None
    model: str = ""
    device: str = ""

    def file(self, pair: Pair) -> Path:
        """Return the file that the aligner reads for a language pair."""
        return Path(self.path.replace("{lang}", pair[0]))

    def identity(self, pairs: Iterable[Pair]) -> list[Any]:
        """Return the settings, versions and file digests that determine the links of language pairs."""
        settings = {"aligner": self.aligner, "symmetrization": self.symmetrization, **self.filters._asdict()}
        settings |= {"lowercase": self.lowercase}
        versions = {"links": VERSION, "words": splitter_version(chain.from_iterable(pairs))}
        if self.kind in STATISTICAL_ALIGNERS:
            settings |= {"fit_pairs": self.fit_pairs, "seed": self.seed}
            versions["sil-thot"] = version("sil-thot")
        elif self.kind == "encoder":
            names = ("model", "device", "layer", "method", "seed")
            settings |= {name: getattr(self, name) for name in names}
        files = []
        for pair in pairs if self.path else ():
            with explained(f"{self.file(pair)}: cannot be read", OSError):
                files.append([pair[0], checksum(self.file(pair), "blake2b")])
        return [settings, versions, files]


def make_rules(
    aligner: str,
    symmetrization: Symmetrization = "intersection",
    one_to_one: bool = True,
    drop_identical: bool = False,
    *,
    lowercase: bool = True,
    method: LinkMethod | None = None,
    **options: Any,
) -> Rules:
    """Make the rules of an aligner; one that is unknown, not installed, or without its file raises an InputError."""
    check_choice(SYMMETRIZATIONS, symmetrization=symmetrization)
    kind, _, path = aligner.partition(":")
    if kind not in (("pharaoh", "dictionary") if path else (*STATISTICAL_ALIGNERS, "encoder")):
        names = ", ".join([*STATISTICAL_ALIGNERS, "pharaoh:PATH", "dictionary:PATH", "encoder"])
        raise InputError(f"aligner={aligner!r} is unknown. Give one of {names}.")
    if kind in STATISTICAL_ALIGNERS:
        statistical.import_thot()
    return Rules(
        aligner=aligner,
        kind=kind,
        # A worker on another machine has another working directory.
        path=path and os.path.abspath(path),
        symmetrization=symmetrization,
        filters=LinkFilters(one_to_one, drop_identical),
        method=method or ("argmax" if one_to_one else "subwords"),
        lowercase=lowercase and kind != "encoder",
        **options,
    )


@dataclass(frozen=True)
class Job:
    """Rules and text of a run; for shards, other processes and machines get a copy.

    Attributes:
        rules: settings that determine the links.
        work: folder of the marks of finished tasks and of fitted aligners.
        counts: language pairs to link, with their numbers of sentence pairs.
        scan: function that reads the text to fit on, in tables.
        load: function that returns the encoder and its tokenizer.
        parallel: True if tasks run next to each other: each fits one direction, and shows no progress of its own.
    """

    rules: Rules
    work: Path
    counts: tuple[tuple[Pair, int], ...]
    scan: Callable[[], Iterable[Rows]]
    load: Callable[[], Any]
    parallel: bool = False

    @cached_property
    def readers(self) -> dict[Path, Linker]:
        """Readers of Pharaoh files, each at its next line."""
        lines = Counter[Path]()
        for pair, count in self.counts if self.rules.kind == "pharaoh" else ():
            lines[self.rules.file(pair)] += count
        return {file: PharaohReader(file, count) for file, count in lines.items()}

    def finish(
        self, tasks: Mapping[str, Task], desc: str, *, workers: int = 1, ray: str | None = None, gpus: int = 0
    ) -> list[dict[str, Any]]:
        """Run the named tasks that are not finished, and return the marks of all.

        They run in processes of this machine, or on the Ray cluster at `ray`, each with so many GPUs. An error is
        raised after all others are finished.
        """
        marks = {name: read_mark(self.work / f"{name}.json") for name in tasks}
        unfinished = [(name, *tasks[name]) for name, mark in marks.items() if mark is None]
        attempt, numbers = partial(self._attempt, unfinished), range(len(unfinished))
        if ray is None:
            faults = run_tasks(attempt, len(unfinished), workers=workers, desc=desc)
        else:
            faults = list(run_on_cluster(ray, partial, (attempt,), numbers, gpus=gpus, cores=workers))
        if failed := {unfinished[number][0]: fault for number, fault in zip(numbers, faults, strict=True) if fault}:
            name, reason = min(failed.items())
            raise InputError(
                f"{name} ({len(failed)} of {len(tasks)} failed): {reason.strip().rstrip('.')}. Finished tasks are "
                "kept. Run again to resume."
            )
        return [mark or self.mark(name) for name, mark in marks.items()]

    def _attempt(self, tasks: Sequence[Task], number: int) -> str:
        """Run one of the named tasks, and return its error, or nothing."""
        try:
            self.perform(*tasks[number])
        except Exception as error:
            # Ray would send the text alone, without the class.
            return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        return ""

    def perform(self, name: str, function: Callable[..., tuple[dict[str, Any], list[Path]]], *arguments: Any) -> None:
        """Run one task and write its mark."""
        with disk_errors(self.work / name):
            content, files = function(self, *arguments)
        write_mark(self.work / f"{name}.json", content, files)

    def mark(self, name: str) -> dict[str, Any]:
        """Return the mark of a finished task."""
        if (mark := read_mark(self.work / f"{name}.json")) is None:
            raise InputError(f"{self.work / name}: the mark or a file of this task was damaged. Run again.")
        return mark

    def fits(self) -> dict[str, Task]:
        """Return the tasks that must finish before pairs are linked."""
        if self.rules.kind == "encoder" and self.rules.layer is None:
            return {"layer": (_choose_layer,)}
        if self.rules.kind == "dictionary":
            return {_fit_name(pair, _ORDER): (_find_order, pair) for pair, _ in self.counts}
        if self.rules.kind not in STATISTICAL_ALIGNERS:
            return {}
        # Both directions in one task read the text once. In parallel, two workers fit them in half of the time.
        fits = [[direction] for direction in statistical.DIRECTIONS] if self.parallel else [statistical.DIRECTIONS]
        tasks = product(self.counts, fits)
        return {_fit_name(pair, *directions): (_fit, pair, directions) for (pair, _), directions in tasks}

    def words(self, pair: Pair | None, size: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the words, as the aligner sees them, of a sample of one language pair (None: of all)."""
        count = sum(count for counted, count in self.counts if pair in (None, counted))
        chosen = statistical.draw_sample(count, size, self.rules.seed)
        seen = 0
        for table in self.scan():
            rows = np.arange(len(table)) if pair is None else _rows_of(table, pair)
            # The sample is numbered over all tables, its positions within this one.
            positions = chosen[slice(*np.searchsorted(chosen, [seen, seen + len(rows)]))] - seen
            seen += len(rows)
            if len(positions):
                drawn = table.take(pyarrow.array(rows[positions]))
                yield from zip(*self._split(normalize(drawn))[1], strict=True)

    def link(self, table: pyarrow.Table) -> tuple[pyarrow.Table, Counter[str]]:
        """Add words and links to a table; return it, and the numbers of pairs too long to link by language pair."""
        groups: dict[Any, list[Pair]] = defaultdict(list)
        for pair, _ in self.counts:
            # One encoder links all language pairs, and a Pharaoh file all that name it.
            shared = {"encoder": None, "pharaoh": self.rules.file(pair)}
            groups[shared.get(self.rules.kind, pair)].append(pair)
        order, tables, too_long = [], [], Counter[str]()
        for key, pairs in groups.items():
            rows = np.sort(np.concatenate([_rows_of(table, pair) for pair in pairs]))
            if not len(rows):
                continue
            order.append(rows)
            linker = self.readers.get(key) or make_linker(self, key)
            desc = None if self.parallel else f"Linking {'-'.join(pairs[0])}"
            for start in progress(range(0, len(rows), _BATCH), desc=desc, leave=False):
                words, seen = self._split(table.take(pyarrow.array(rows[start : start + _BATCH])))
                links = [self.rules.filters(*row) for row in zip(linker(*seen), *words, strict=True)]
                tables.append(pyarrow.table([*words, links], ADDED.arrow_schema.remove_metadata()))
            if isinstance(linker, StatisticalLinker):
                too_long["-".join(pairs[0])], linker.too_long = linker.too_long, 0
        # The groups were linked one after the other: their rows return to the order of the table.
        added = pyarrow.concat_tables(tables).take(pyarrow.array(np.argsort(np.concatenate(order))))
        table = table.drop_columns([name for name in added.column_names if name in table.column_names])
        for name in added.column_names:
            table = table.append_column(name, added[name])
        return table, too_long

    def dictionary_linker(self, pair: Pair, entries: Sequence[tuple[str, str]]) -> DictionaryLinker:
        """Return the linker of a language pair by entries (target word, source word)."""
        source, target = pair
        if self.rules.lowercase:
            entries = [(lower_word(t, target), lower_word(s, source)) for t, s in entries]
        return DictionaryLinker(entries)

    def _split(self, table: Rows) -> tuple[Sides, Sides]:
        """Return the words of both sides, and the words as the aligner sees them."""
        batch = table.select([name for name in (*COLUMNS, *WORDS) if name in table.schema.names]).to_pydict()
        words = batch_words(batch, blanks=self.rules.kind == "pharaoh")
        if not self.rules.lowercase:
            return words, words
        return words, [lower_words(side, batch[name]) for side, name in zip(words, LANGUAGES)]


def check_links(counts: dict[str, tuple[int, int]], pairs: int) -> None:
    """Warn of sentence pairs that were too long to link, and raise an InputError if there are no links.

    `counts` has the numbers of links and of too long pairs by language pair.
    """
    for name, (_, count) in counts.items():
        if count:
            logger.warning("%d %s pairs have no links, because they are too long for the aligner", count, name)
    links, too_long = map(sum, zip(*counts.values()))
    if not links:
        remedy = (
            "Check that source and target rows translate each other and that their languages are right, or name more "
            "text: an aligner learns little from few pairs."
        )
        if too_long:
            remedy = (
                f"{too_long:,} of them have more words on a side than the aligner allows (1,024; 200 for hmm, ibm3 "
                "and ibm4). Split them into sentences, or use the aligner encoder."
            )
        raise InputError(f"no links are left in {pairs:,} sentence pairs. {remedy}")


def _rows_of(table: Rows, pair: Pair) -> np.ndarray:
    """Return the ascending row numbers of a language pair."""
    source = pyarrow.compute.equal(table["source_lang"], pair[0])
    target = pyarrow.compute.equal(table["target_lang"], pair[1])
    return np.flatnonzero(pyarrow.compute.and_(source, target).to_numpy(zero_copy_only=False))


def normalize(table: Rows) -> Rows:
    """Return a table with clean text in NFC."""
    for side in COLUMNS[:2]:
        # Not by pyarrow's utf8_normalize, which before version 26 leaves characters decomposed.
        text = [clean_text(value or "") for value in table[side].to_pylist()]
        column = pyarrow.array(text, table.schema.field(side).type)
        table = table.set_column(table.schema.get_field_index(side), side, column)
    return table


def _fit_name(pair: Pair, *what: str) -> str:
    return f"{'-'.join(pair)} {', '.join(what)}"


def _fit(job: Job, pair: Pair, directions: Sequence[str]) -> tuple[dict[str, Any], list[Path]]:
    rules, desc = job.rules, None if job.parallel else f"{job.rules.kind} {'-'.join(pair)}"
    words = job.words(pair, rules.fit_pairs)
    folders: list[str] = []
    files: list[Path] = []
    for model in statistical.fit(rules.kind, words, directions, seed=rules.seed, desc=desc):
        # A new folder for each attempt, because a process of a killed run may still be writing.
        folder = Path(tempfile.mkdtemp(dir=job.work))
        statistical.save_model(model, folder)
        folders.append(folder.name)
        files += sorted(folder.iterdir())
    return {"folders": folders}, files


def _find_order(job: Job, pair: Pair) -> tuple[dict[str, Any], list[Path]]:
    """Find out by a sample whether a dictionary has the target word first, as MUSE's have, or the source word."""
    path = job.rules.file(pair)
    words, entries = list(zip(*job.words(pair, _ORDER_PAIRS))), load_dictionary(path, *pair)
    as_muse = sum(map(len, job.dictionary_linker(pair, entries)(*words)))
    other_way = sum(map(len, job.dictionary_linker(pair, turned(entries))(*words)))
    is_turned = other_way > as_muse
    if is_turned:
        found = f"{other_way:,} links in {len(words[0]):,} pairs, and {as_muse:,} the other way"
        logger.warning("%s is read with the words of %s first: %s", path, pair[0], found)
    _count_matchable(path, turned(entries) if is_turned else entries, *pair)
    return {"turned": is_turned}, []


def _choose_layer(job: Job) -> tuple[dict[str, Any], list[Path]]:
    from hf_xalign.links.neural import choose_layer

    words = map(list, zip(*job.words(None, _LAYER_PAIRS)))
    layer = choose_layer(*job.load(), *words, method=job.rules.method)
    logger.info("linking by layer %d, in which the two directions agree most", layer)
    return {"layer": layer}, []


@lru_cache(maxsize=1)
def make_linker(job: Job, key: Pair | None) -> Linker:
    """Return the linker of a language pair, or the encoder's (None); a process keeps the last one."""
    rules = job.rules
    if key is None:
        from hf_xalign.links.neural import encoder_links

        layer = job.mark("layer")["layer"] if rules.layer is None else rules.layer
        options: Any = {"symmetrization": rules.symmetrization, "layer": layer, "method": rules.method}
        return partial(encoder_links, *job.load(), **options)
    if rules.kind == "dictionary":
        entries, is_turned = load_dictionary(rules.file(key), *key), job.mark(_fit_name(key, _ORDER))["turned"]
        return job.dictionary_linker(key, turned(entries) if is_turned else entries)
    models = []
    for name, (_, pair, _) in job.fits().items():
        for folder in job.mark(name)["folders"] if pair == key else ():
            models.append(statistical.load_model(rules.kind, job.work / folder))
    return StatisticalLinker(models[0], models[1], rules.symmetrization)


def _count_matchable(path: Path, entries: Sequence[tuple[str, str]], source: str, target: str) -> None:
    """Log how many entries of a dictionary can match a word of each side, and name three that cannot."""
    cannot = []
    for word, other in entries:
        if len(split_words(word, target)) != 1 or len(split_words(other, source)) != 1:
            cannot.append(f"{word} / {other}")
    count = f"{len(entries) - len(cannot):,} of {len(entries):,}"
    without = f"; not, such as: {'; '.join(cannot[:3])}" if cannot else ""
    logger.log(logging.WARNING if cannot else logging.INFO, "%s: %s entries can match words%s", path, count, without)


def _load_encoder(name: str, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from hf_xalign.modeling.loading import load_encoder

    return load_encoder(name, device)


def encoder_identity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the hashes of an encoder and of its tokenizer."""
    from hf_xalign.modeling.freezing import encoder_fingerprint

    return [encoder_fingerprint(model), tokenizer_fingerprint(tokenizer)]
