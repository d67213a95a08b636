"""Link the words of parallel text by one aligner: its settings, and the tasks of a run.

Statistical aligners are fitted on a sample and saved in a work folder; then parts of the text are linked, with one
aligner in memory at a time. A finished task leaves a mark, so that a killed run repeats the others alone.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Features, List, Value

from hf_xalign.cache import checksum, disk_errors, read_mark, write_mark
from hf_xalign.checks import check_choice
from hf_xalign.cluster import run_on_cluster, run_tasks
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.readers.dictionaries import load_dictionary, turned
from hf_xalign.data.words import WORDS, batch_words, clean_text, lower_word, lower_words, split_words, splitter_version
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained
from hf_xalign.links import statistical
from hf_xalign.links.counts import LANGUAGES, Pair
from hf_xalign.links.files import DictionaryLinker, PharaohReader
from hf_xalign.links.statistical import STATISTICAL_ALIGNERS, StatisticalLinker
from hf_xalign.links.symmetrization import SYMMETRIZATIONS, LinkFilters, Symmetrization

if TYPE_CHECKING:
    from hf_xalign.links.neural import LinkMethod

logger = logging.getLogger(__name__)

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
        chosen = np.sort(np.random.default_rng(self.rules.seed).choice(count, min(size, count), replace=False))
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
