"""Engine of word alignment: the settings that determine links, fitted aligners, and the linker of each language pair.

A job links text that is a dataset, or shards. Statistical aligners are fitted on a sample and saved in a work folder;
then parts of the text are linked, with one aligner in memory at a time. Fits are tasks of processes or of a cluster.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Features, List, Value

from hf_xalign.checks import check_choice
from hf_xalign.data.arrow import hash_file, read_rows, scan_columns
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.readers import DictionaryLinker, load_dictionary
from hf_xalign.data.words import WORDS, batch_words, clean_text, lower_word, lower_words, split_words, splitter_version
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.links import statistical
from hf_xalign.links.counts import LANGUAGES, Pair
from hf_xalign.links.statistical import STATISTICAL_ALIGNERS, StatisticalLinker
from hf_xalign.links.symmetrization import SYMMETRIZATIONS, LinkFilters, Symmetrization
from hf_xalign.links.tasks import MarkedTasks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_xalign.links.neural import LinkMethod

logger = logging.getLogger(__name__)

VERSION = 4  # raise it when the same call may give other links: cached links are then replaced
ADDED = Features(dict.fromkeys(WORDS, List(Value("string"))) | {"links": List(List(Value("int32")))})
_LAYER_PAIRS = 256  # pairs on which the encoder's layer is chosen
_BATCH = 1000  # pairs that are linked at once

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
    batch_size: int = 64
    model: str = ""
    device: str = ""

    def file(self, pair: Pair) -> Path:
        """Return the file that the aligner reads for a language pair."""
        return Path(self.path.replace("{lang}", pair[0]))

    def identity(self, pairs: Iterable[Pair]) -> list[Any]:
        """Return the settings, versions and file digests that determine the links of language pairs."""
        settings = {"aligner": self.aligner, "symmetrization": self.symmetrization, **self.filters._asdict()}
        settings |= {"lowercase": self.lowercase}
        versions = {"links": VERSION, "words": splitter_version(lang for pair in pairs for lang in pair)}
        if self.kind in STATISTICAL_ALIGNERS:
            settings |= {"fit_pairs": self.fit_pairs, "seed": self.seed}
            versions["sil-thot"] = version("sil-thot")
        elif self.kind == "encoder":
            names = ("model", "device", "layer", "method", "batch_size", "seed")
            settings |= {name: getattr(self, name) for name in names}
        return [settings, versions, [[pair[0], _file_digest(self.file(pair))] for pair in pairs if self.path]]


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
        tasks: finished tasks, and the work folder of fitted aligners.
        text: datasets, of which the first is linked; or Parquet files with their numbers of rows.
        counts: language pairs to link, with their numbers of sentence pairs.
        columns: columns to read from files.
        ways: directions that one task fits.
        encoder: the encoder and its tokenizer; or its name and device.
        readers: readers of Pharaoh files, each at its next line.
    """

    rules: Rules
    tasks: MarkedTasks
    text: tuple[Any, ...]
    counts: tuple[tuple[Pair, int], ...]
    columns: tuple[str, ...] = ()
    ways: tuple[tuple[str, ...], ...] = (statistical.DIRECTIONS,)
    encoder: tuple[Any, Any] = (None, None)
    readers: Mapping[Path, Linker] = field(default_factory=dict, compare=False)

    def fits(self) -> dict[str, tuple[Any, ...]]:
        """Return the tasks that must finish before pairs are linked."""
        if self.rules.kind == "encoder" and self.rules.layer is None:
            return {"layer": (_choose_layer, self)}
        pairs = [pair for pair, _ in self.counts if self.rules.kind in STATISTICAL_ALIGNERS]
        return {_fit_name(pair, ways): (_fit, self, pair, ways) for pair in pairs for ways in self.ways}

    def words(self, pair: Pair | None, size: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the words, as the aligner sees them, of a sample of one language pair (None: of all)."""
        count = sum(count for counted, count in self.counts if pair in (None, counted))
        chosen = statistical.draw_sample(count, size, self.rules.seed)
        seen = 0
        for table in self._tables():
            rows = np.arange(len(table)) if pair is None else _rows_of(table, pair)
            positions = chosen[slice(*np.searchsorted(chosen, [seen, seen + len(rows)]))] - seen
            seen += len(rows)
            if len(positions):
                drawn = table.take(pyarrow.array(rows[positions]))
                yield from zip(*self._split(normalize(drawn) if self.columns else drawn)[1], strict=True)

    def _tables(self) -> Iterator[Any]:
        if self.columns:
            yield from read_rows(self.text, columns=self.columns)
            return
        for dataset in self.text:
            yield from scan_columns(dataset, *(name for name in (*COLUMNS, *WORDS) if name in dataset.column_names))

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
            desc = None if self.columns else f"Linking {'-'.join(pairs[0])}"
            for start in progress(range(0, len(rows), _BATCH), desc=desc, leave=False):
                words, seen = self._split(table.take(pyarrow.array(rows[start : start + _BATCH])))
                links = [self.rules.filters(*row) for row in zip(linker(*seen), *words, strict=True)]
                tables.append(pyarrow.table([*words, links], ADDED.arrow_schema.remove_metadata()))
            if isinstance(linker, StatisticalLinker):
                too_long["-".join(pairs[0])], linker.too_long = linker.too_long, 0
        added = pyarrow.concat_tables(tables).take(pyarrow.array(np.argsort(np.concatenate(order))))
        table = table.drop_columns([name for name in added.column_names if name in table.column_names])
        for name in added.column_names:
            table = table.append_column(name, added[name])
        return table, too_long

    def _split(self, table: Any) -> tuple[Any, Any]:
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


def _rows_of(table: Any, pair: Pair) -> np.ndarray:
    """Return the ascending row numbers of a language pair."""
    source, target = (pyarrow.compute.equal(table[name], code) for name, code in zip(LANGUAGES, pair))
    return np.flatnonzero(pyarrow.compute.and_(source, target).to_numpy(zero_copy_only=False))


def normalize(batch: Any) -> pyarrow.Table:
    """Return a batch as a table, with clean text in NFC."""
    table = pyarrow.Table.from_batches([batch])
    for side in COLUMNS[:2]:
        # Not by pyarrow's utf8_normalize, which before version 26 leaves characters decomposed.
        text = [clean_text(value or "") for value in table[side].to_pylist()]
        column = pyarrow.array(text, table.schema.field(side).type)
        table = table.set_column(table.column_names.index(side), side, column)
    return table


def _fit_name(pair: Pair, ways: tuple[str, ...]) -> str:
    return f"{'-'.join(pair)} {', '.join(ways)}"


def _fit(job: Job, pair: Pair, ways: tuple[str, ...]) -> tuple[dict[str, Any], list[Path]]:
    """Fit and save directions of a language pair."""
    desc = None if job.columns else f"{job.rules.kind} {'-'.join(pair)}"
    models = statistical.fit(
        job.rules.kind, job.words(pair, job.rules.fit_pairs), ways, seed=job.rules.seed, desc=desc
    )
    # A new folder for each attempt, because a process of a killed run may still be writing.
    folders = [Path(tempfile.mkdtemp(dir=job.tasks.work)) for _ in ways]
    for model, folder in zip(models, folders, strict=True):
        statistical.save_model(model, folder)
    files = [path for folder in folders for path in sorted(folder.iterdir())]
    return {"folders": [folder.name for folder in folders]}, files


def _choose_layer(job: Job) -> tuple[dict[str, Any], list[Path]]:
    """Choose the layer of the encoder's vectors."""
    from hf_xalign.links.neural import choose_layer

    words = map(list, zip(*job.words(None, _LAYER_PAIRS)))
    layer = choose_layer(*load_encoder(job.encoder), *words, method=job.rules.method)
    logger.info("linking by layer %d, in which the two directions agree most", layer)
    return {"layer": layer}, []


@functools.lru_cache(maxsize=1)
def make_linker(job: Job, key: Pair | None) -> Linker:
    """Return the linker of a language pair, or the encoder's (None); a process keeps the last one."""
    rules = job.rules
    if key is None:
        from hf_xalign.links.neural import encoder_links

        layer = job.tasks.mark("layer")["layer"] if rules.layer is None else rules.layer
        options: Any = {"symmetrization": rules.symmetrization, "layer": layer, "method": rules.method}
        return functools.partial(encoder_links, *load_encoder(job.encoder), batch_size=rules.batch_size, **options)
    if rules.kind == "dictionary":
        entries, (source, target) = load_dictionary(rules.file(key)), key
        _count_matchable(rules.file(key), entries, source, target)
        return DictionaryLinker(
            [(lower_word(t, target), lower_word(s, source)) for t, s in entries] if rules.lowercase else entries
        )
    markers = [job.tasks.mark(_fit_name(key, ways)) for ways in job.ways]
    folders = [job.tasks.work / name for marker in markers for name in marker["folders"]]
    forward, backward = (statistical.load_model(rules.kind, folder) for folder in folders)
    return StatisticalLinker(forward, backward, rules.symmetrization)


def _count_matchable(path: Path, entries: Sequence[tuple[str, str]], source: str, target: str) -> None:
    """Log how many entries of a dictionary can match a word of each side, and name three that cannot."""
    cannot = [
        f"{word} / {other}"
        for word, other in entries
        if len(split_words(word, target)) != 1 or len(split_words(other, source)) != 1
    ]
    count = f"{len(entries) - len(cannot):,} of {len(entries):,}"
    if cannot:
        logger.warning("%s: %s entries can match words; not, such as: %s", path, count, "; ".join(cannot[:3]))
    else:
        logger.info("%s: %s entries can match words", path, count)


def load_encoder(encoder: tuple[Any, Any]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return encoder and tokenizer; a name and a device are loaded."""
    if not isinstance(encoder[0], str):
        return encoder
    import torch

    from hf_xalign.modeling.loading import load_encoder

    return load_encoder(encoder[0], torch.device(encoder[1]))


def _file_digest(path: Path) -> str:
    """Return the digest of a file's content."""
    try:
        return hash_file(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def encoder_digest(model: PreTrainedModel | None, tokenizer: PreTrainedTokenizerBase | None) -> list[str]:
    """Return the digests of an encoder's weights and of its tokenizer."""
    if model is None or tokenizer is None:
        raise InputError("aligner='encoder' needs an encoder. Give model= and tokenizer=.")
    from hf_xalign.data.encoding import word_tokenizer
    from hf_xalign.modeling.freezing import model_fingerprint

    settings = json.loads(word_tokenizer(tokenizer).backend_tokenizer.to_str())
    for setting in ("truncation", "padding"):  # left over from the last call of the tokenizer
        settings.pop(setting)
    settings["model_max_length"] = tokenizer.model_max_length
    return [model_fingerprint(model), hashlib.blake2b(json.dumps(settings).encode()).hexdigest()]
