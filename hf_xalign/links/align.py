"""Word-align parallel text by a statistical aligner, a file, a dictionary, or an encoder: a dataset, or shards.

Both share one engine ([`_Job`]). Statistical aligners are fitted on a sample and saved in a work folder. Then parts of
100,000 pairs are linked, with one aligner in memory at a time. The links of a dataset become one file in the cache.
For shards, fits and shards are tasks of processes or of a Ray cluster: finished tasks are not repeated, and any number
of workers gives the same bytes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Dataset, Features, List, Value

from hf_xalign.cache import cache_dir, check_output, checksum, digest, make_once, map_rows, work_folder
from hf_xalign.checks import check_choice
from hf_xalign.data.arrow import (
    finished_shards,
    hash_file,
    open_parquet,
    open_work,
    read_rows,
    scan_columns,
    shard_name,
    write_shard,
)
from hf_xalign.data.corpus import draw_pairs
from hf_xalign.data.encoding import check_pieces, check_vocabulary
from hf_xalign.data.load import as_parallel
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.readers import DictionaryLinker, load_dictionary
from hf_xalign.data.words import (
    WORDS,
    batch_words,
    clean_text,
    lower_word,
    lower_words,
    split_pairs,
    split_words,
    splitter_version,
)
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.links import statistical
from hf_xalign.links.files import PharaohReader
from hf_xalign.links.statistical import STATISTICAL_ALIGNERS, StatisticalLinker
from hf_xalign.links.symmetrization import SYMMETRIZATIONS, LinkFilters, Symmetrization
from hf_xalign.links.tasks import MarkedTasks, Workers
from hf_xalign.record import write_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_xalign.links.neural import LinkMethod

logger = logging.getLogger(__name__)

VERSION = 4  # raise it when the same call may give other links: cached links are then replaced
RECORD = "align-words.json"
_LAYER_PAIRS = 256  # pairs on which the encoder's layer is chosen
_PART = 100_000  # pairs in a shard
_BATCH = 1000  # pairs that are linked at once
_CHECKED = 1000  # pairs of a language pair whose words are checked against an encoder's vocabulary
_LANGUAGES = ["source_lang", "target_lang"]
_ADDED = Features(dict.fromkeys(WORDS, List(Value("string"))) | {"links": List(List(Value("int32")))})

Pair = tuple[str, str]
"""Source and target language."""
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
    require_letter: bool = False,
    keep_unlinked: bool = False,
    lowercase: bool = True,
    extra_data: Dataset | None = None,
    sample_size: int = 1_000_000,
    seed: int = 0,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    layer: int | None = None,
    method: LinkMethod | None = None,
    batch_size: int = 64,
) -> Dataset:
    """Split parallel text into words and link those that translate each other.

    Words are taken from the columns `source_words` and `target_words`. If these are missing or null, [`split_words`]
    splits the text; for links from a Pharaoh file, the text is split at blanks. Each language pair gets its own
    statistical aligner, fitted on a sample. The result is memory-mapped from the library's cache, and the same call on
    the same data reuses it.

    Args:
        dataset: columns `source`, `target`, `source_lang`, `target_lang`, or a column `translation`
            (`{"de": ..., "en": ...}`, as on the Hub); other columns are kept.
        aligner: `fast_align`, `hmm`, `ibm1` to `ibm4` or `eflomal` (statistical); `pharaoh:PATH` (existing links, one
            line for each row); `dictionary:PATH` (MUSE format, unambiguous matches only); or `encoder` (word vectors
            of `model`). `{lang}` in PATH stands for the source language.
        symmetrization: `intersection`, `union`, `grow-diag` or `grow-diag-final-and` of the two directions of a
            statistical aligner or the encoder.
        one_to_one: drop all links of a word that has several.
        drop_identical: after that, drop links between identical strings.
        source_lang: source language, for a dataset without that column or with translations.
        target_lang: target language, for a dataset without that column; for translations, English by default.
        require_letter: after that, drop links of words without a letter.
        keep_unlinked: keep pairs without links, which are dropped by default.
        lowercase: lower-case words for statistical aligners and dictionaries; the columns keep their case.
        extra_data: more parallel text to fit statistical aligners on; it is not linked.
        sample_size: largest number of sentence pairs to fit the aligner of a language pair on.
        seed: seed of the sample and of eflomal.
        model: encoder of aligner `encoder`.
        tokenizer: fast tokenizer of `model`.
        layer: position in the encoder's `hidden_states`; by default chosen without gold links, see [`choose_layer`].
        method: `subwords`, `argmax` or `softmax`, see [`encoder_links`]. Default: `subwords`, or `argmax` with
            `one_to_one`, which would drop all links of compounds.
        batch_size: sentences per forward pass of the encoder.

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
    filters = LinkFilters(one_to_one, drop_identical, require_letter)
    rules = _rules(
        aligner, symmetrization, filters, lowercase, fit_pairs=sample_size, seed=seed, layer=layer, method=method,
        batch_size=batch_size,
    )  # fmt: skip
    if rules.kind != "encoder" and (model is not None or tokenizer is not None):
        raise InputError(f"model, tokenizer: aligner={aligner!r} does not read them. Give aligner='encoder'.")
    text = [dataset]
    if extra_data is not None:
        extra_data = as_parallel(extra_data, "extra_data")
        text += [extra_data] if rules.kind in STATISTICAL_ALIGNERS else []
    counts = [_count(scan_columns(pairs, *_LANGUAGES)) for pairs in text]
    if not counts[0].keys() & counts[-1].keys():
        languages = (", ".join(map("-".join, by_pair)) for by_pair in (counts[-1], counts[0]))
        logger.warning("extra_data is in %s, so it is not used for the dataset, which is in %s", *languages)
    identity = [*rules.identity(counts[0]), keep_unlinked, *(pairs._fingerprint for pairs in text)]
    if rules.kind == "encoder":
        identity += _encoder_digest(model, tokenizer)
        assert tokenizer is not None  # checked by `_encoder_digest`
        check_pieces(dataset, tokenizer, "the dataset")
    path = cache_dir("links") / f"{digest(*identity)}.arrow"

    def make() -> None:
        with work_folder(path.with_suffix(".work")) as folder:
            tasks = MarkedTasks(folder, work=folder, settings=path.stem)
            pairs = {pair: sum(by_pair[pair][0] for by_pair in counts) for pair in counts[0]}
            lines = Counter[Path]()
            for pair, count in pairs.items() if rules.kind == "pharaoh" else ():
                lines[rules.file(pair)] += count
            readers = {file: PharaohReader(file, count) for file, count in lines.items()}
            job = _Job(rules, tasks, (*text,), (*pairs.items(),), encoder=(model, tokenizer), readers=readers)
            try:
                for name, task in job.fits().items():
                    tasks.perform(name, *task)
                _link_dataset(job, dataset, keep_unlinked, folder / "links.arrow")
            finally:
                _linker.cache_clear()
            os.replace(folder / "links.arrow", path)

    make_once(path, make)
    linked = Dataset.from_file(str(path))
    for name, statistics in link_statistics(linked, dataset).items():
        log = logger.info if statistics.pairs else logger.warning
        log("%s by %s: %s (%s)", name, rules.kind, statistics, path)
    return linked


@dataclass(frozen=True)
class LinkStatistics:
    """Numbers of a language pair's sentence pairs, links, and pairs dropped because they had no links, if known."""

    pairs: int
    links: int
    dropped: int | None = None

    @property
    def links_per_pair(self) -> float:
        """Mean number of links of a sentence pair."""
        return self.links / max(self.pairs, 1)

    def __str__(self) -> str:
        dropped = "" if self.dropped is None else f", {self.dropped:,} without links dropped"
        return f"{self.links:,} links in {self.pairs:,} pairs ({self.links_per_pair:.1f} per pair){dropped}"


def link_statistics(linked: Dataset, before: Dataset | None = None) -> dict[str, LinkStatistics]:
    """Count the links of a word-aligned dataset by language pair (`de-en`), and the pairs that `before` had more.

    Example:
        >>> from datasets import Dataset
        >>> linked = Dataset.from_dict({"source_lang": ["de"], "target_lang": ["en"], "links": [[[0, 2], [1, 0]]]})
        >>> print(link_statistics(linked)["de-en"])
        2 links in 1 pairs (2.0 per pair)
    """
    counts = _count(scan_columns(linked, "links", *_LANGUAGES))
    total = counts if before is None else _count(scan_columns(before, *_LANGUAGES))
    return {
        "-".join(pair): LinkStatistics(*counts[pair], None if before is None else total[pair][0] - counts[pair][0])
        for pair in total
    }


def _count(tables: Iterable[Any]) -> dict[Pair, tuple[int, int]]:
    """Return the numbers of sentence pairs and of links (if there is a column `links`) by language pair, sorted."""
    by_pair: dict[Pair, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for table in tables:
        links = pyarrow.nulls(len(table), pyarrow.int32())
        if "links" in table.schema.names:
            links = pyarrow.compute.list_value_length(table["links"])
        grouped = pyarrow.table([*(table[name] for name in _LANGUAGES), links], [*_LANGUAGES, "links"])
        for row in grouped.group_by(_LANGUAGES).aggregate([([], "count_all"), ("links", "sum")]).to_pylist():
            pair = row["source_lang"], row["target_lang"]
            pairs, count = by_pair[pair]
            by_pair[pair] = pairs + row["count_all"], count + (row["links_sum"] or 0)
    return defaultdict(lambda: (0, 0), sorted(by_pair.items()))


class LinkedPairs(NamedTuple):
    """Training pairs with links, the record's numbers of their links, of [`link_entries`], and what linked them."""

    pairs: Dataset
    counts: dict[str, dict[str, Any]]
    linked_by: str


@dataclass(frozen=True)
class Linking:
    """Settings by which a trainer word-aligns its training pairs, and draws from those with links.

    Attributes:
        aligner: as in [`align_words`]; `encoder` is the trained encoder, and `encoder:NAME` another one.
        symmetrization: as in [`align_words`].
        one_to_one: drop all links of a word that has several.
        drop_identical: after that, drop links between identical strings.
        subwords: link the tokens of the trained encoder, not words.
        extra_data: more parallel text to fit a statistical aligner on; it is not trained on.
        max_pairs: largest number of pairs of each source that are kept.
        draw: keep the `first` pairs with links, or a draw by `seed`.
        seed: seed of the draw and of the aligner.

    Example:
        >>> import pathlib, tempfile
        >>> from datasets import Dataset
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "en-de.txt"
        >>> _ = path.write_text("open\\töffnen\\nfile\\tDatei\\n", encoding="utf-8")
        >>> pair = {"source": "Datei öffnen", "target": "Open the file", "source_lang": "de", "target_lang": "en"}
        >>> linked = Linking(f"dictionary:{path}").apply(Dataset.from_list([pair]))
        >>> linked.pairs["links"][:], linked.linked_by
        ([[[0, 2], [1, 0]]], 'dictionary')
    """

    aligner: str = "fast_align"
    symmetrization: Symmetrization = "intersection"
    one_to_one: bool = True
    drop_identical: bool = False
    subwords: bool = False
    extra_data: Dataset | None = None
    max_pairs: int | None = None
    draw: Literal["first", "seed"] = "seed"
    seed: int = 0

    def apply(
        self,
        pairs: Dataset,
        sources: Sequence[dict[str, Any]] | None = None,
        *,
        links: bool = True,
        model: PreTrainedModel | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> LinkedPairs:
        """Word-align pairs, unless they have links, and keep those with links, or draw from these.

        Aligners are fitted on all pairs, also where only some are drawn.

        Args:
            pairs: sentence pairs of [`~hf_xalign.data.load_parallel`].
            sources: the record's entries of their sources, which get the numbers of pairs drawn; default: one source.
            links: False for a loss that reads none: all pairs stay, without links.
            model: the trained encoder, for aligners `encoder` and `encoder:NAME` (on its device).
            tokenizer: tokenizer of `model`.

        Raises:
            InputError: as [`align_words`], or for subwords of pairs that have words.
        """
        aligner = self.aligner
        encoder: tuple[PreTrainedModel | None, PreTrainedTokenizerBase | None] = (None, None)
        sources = sources or [{"source": "train_dataset", "pairs": len(pairs)}]
        given = "links" in pairs.column_names
        if links and not given and aligner.partition(":")[0] == "encoder":
            aligner, encoder = "encoder", self._encoder(model, tokenizer)
        if encoder[0] is not None and self.max_pairs is not None:
            # The encoder links each pair alone, and slowly: it sees a tenth more pairs than are wanted, not all.
            most = self.max_pairs * 11 // 10 + 100
            if any(entry["pairs"] > most for entry in sources):
                every = np.ones(len(pairs), dtype=bool)
                pairs = draw_pairs(pairs, every, sources, most, self.seed, self.draw)
        extra_data = self.extra_data
        if self.subwords:
            if "source_words" in pairs.column_names:
                raise InputError(
                    "subword_links=true links tokens, and train_data has words of its own. Name text without words."
                )
            pairs, extra_data = (
                part and map_rows(part, _subwords, fn_kwargs={"tokenizer": tokenizer}, desc="Splitting subwords")
                for part in (pairs, extra_data)
            )
        if given:
            linked, linked_by = pairs, "given" if links else "none"
            if links and self.drop_identical:
                logger.warning("drop_identical=true: train_data has links of its own, which all stay")
        elif links:
            linked_by = aligner.partition(":")[0]
            rules = (aligner, self.symmetrization, self.one_to_one, self.drop_identical)
            options: dict[str, Any] = dict(zip(("model", "tokenizer"), encoder))
            linked = align_words(pairs, *rules, keep_unlinked=True, extra_data=extra_data, seed=self.seed, **options)
        else:
            linked, linked_by = split_pairs(pairs), "none"
        usable = has_links(linked) if links else np.ones(len(pairs), dtype=bool)
        chosen = draw_pairs(linked, usable, sources, self.max_pairs, self.seed, self.draw)
        # A pass over millions of pairs takes seconds.
        dropped = {} if usable.all() else link_statistics(linked.select(np.flatnonzero(usable)), linked)
        return LinkedPairs(chosen, link_entries(link_statistics(chosen), dropped), linked_by)

    def _encoder(
        self, model: PreTrainedModel | None, tokenizer: PreTrainedTokenizerBase | None
    ) -> tuple[PreTrainedModel | None, PreTrainedTokenizerBase | None]:
        """Return the encoder that links: the trained one, or the one that the aligner names."""
        _, _, name = self.aligner.partition(":")
        if not name:
            return model, tokenizer
        from hf_xalign.modeling.loading import load_encoder

        return load_encoder(name, "cpu" if model is None else model.device)


def link_entries(
    statistics: Mapping[str, LinkStatistics], dropped: Mapping[str, LinkStatistics] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the record's numbers of pairs and links by language pair; `dropped` has those of pairs before a draw."""
    return {
        pair: {
            "pairs": numbers.pairs,
            "dropped pairs": (dropped or statistics)[pair].dropped or 0,
            "links": numbers.links,
            "links a pair": round(numbers.links_per_pair, 2),
        }
        for pair, numbers in statistics.items()
    }


def has_links(linked: Dataset) -> np.ndarray:
    """Return which pairs have links, bool (rows,)."""
    batches = scan_columns(linked, "links")
    return np.concatenate([pyarrow.compute.list_value_length(batch["links"]).to_numpy() > 0 for batch in batches])


def _subwords(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[str]]]:
    """Use tokens as words, for `align_words` to link."""
    return {f"{side}_words": [tokenizer.tokenize(text) for text in batch[side]] for side in ("source", "target")}


def align_shards(
    sources: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    aligner: str = "fast_align",
    symmetrization: Symmetrization = "intersection",
    one_to_one: bool = True,
    drop_identical: bool = False,
    *,
    require_letter: bool = False,
    lowercase: bool = True,
    fit_pairs: int = 1_000_000,
    seed: int = 0,
    model: str = "builtin",
    device: str = "cpu",
    layer: int | None = None,
    method: LinkMethod | None = None,
    batch_size: int = 64,
    shards: int | None = None,
    workers: int = 1,
    ray: str | None = None,
) -> dict[str, Any]:
    """Word-align Parquet shards and write them as Parquet shards; return the content of `align-words.json`.

    All rows and columns are kept in their order, with text in NFC, and the columns `source_words`, `target_words` and
    `links` are added, which [`~hf_xalign.data.load_parallel`] reads. The links are those of [`align_words`] on all
    pairs. Make the same call again to resume a killed run.

    Args:
        sources: Parquet files, or folders of them, with the columns `source`, `target`, `source_lang`, `target_lang`.
        output: folder of the result: empty, or that of an unfinished run.
        aligner: as in [`align_words`], without `pharaoh`.
        symmetrization: as in [`align_words`].
        one_to_one: drop all links of a word that has several.
        drop_identical: after that, drop links between identical strings.
        require_letter: after that, drop links of words without a letter.
        lowercase: lower-case words for statistical aligners and dictionaries.
        fit_pairs: largest number of sentence pairs to fit the aligner of a language pair on.
        seed: seed of the sample and of eflomal.
        model: encoder of aligner `encoder`: a folder, Hub id or `builtin`.
        device: torch device of the encoder in each worker.
        layer: position in the encoder's `hidden_states`; by default chosen without gold links.
        method: `subwords`, `argmax` or `softmax`, as in [`align_words`].
        batch_size: sentences per forward pass of the encoder.
        shards: number of shards to write; by default one for each 100,000 pairs. A worker holds one in memory.
        workers: processes, each with one thread; an encoder has one process with torch's threads.
        ray: run on Ray instead: `local`, or the address of a cluster whose machines share these folders.

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
    counts = _count(_languages(files))
    filters = LinkFilters(one_to_one, drop_identical, require_letter)
    rules = _rules(
        aligner, symmetrization, filters, lowercase, fit_pairs=fit_pairs, seed=seed, layer=layer, method=method,
        batch_size=batch_size, model=model, device=device,
    )  # fmt: skip
    if rules.kind == "pharaoh":
        raise InputError("aligner pharaoh reads the links of one text in order. Give another aligner for shards.")
    settings, versions, inputs = rules.identity(counts)
    inputs = [*([str(path), checksum(path)] for path, _ in files), *inputs]
    encoder = (str(Path(model).absolute()) if Path(model).exists() else model, device)
    loaded: Any = None
    tokenizer: Any = None
    if rules.kind == "encoder":
        loaded, tokenizer = _load_encoder(encoder)
        inputs.append(_encoder_digest(loaded, tokenizer))
    total = sum(rows for _, rows in files)
    shards = min(shards or -(-total // _PART), total)
    identity = [settings, versions, inputs, shards]
    with open_work(folder, json.dumps(identity)) as work:
        tasks = MarkedTasks(folder, work=work, settings=digest(*identity), around=statistical.one_thread)
        # Absolute paths, because a worker on another machine has another working directory.
        job = _Job(
            replace(rules, path=rules.path and os.path.abspath(rules.path)),
            tasks,
            tuple(files),
            tuple((pair, count) for pair, (count, _) in counts.items()),
            columns=tuple(columns),
            ways=tuple((way,) for way in statistical.DIRECTIONS),
            encoder=encoder,
        )
        for pair in counts if tokenizer else ():
            for words, language in zip(zip(*job.words(pair, _CHECKED)), pair):
                check_vocabulary(tokenizer, words, language, "the shards")
        # An encoder stays in this process, whose threads run its batches: torch may not survive a fork.
        spread = Workers(workers if ray or not tokenizer else 1, ray, int(bool(tokenizer) and device[:3] != "cpu"))
        del loaded
        try:
            tasks.finish(job.fits(), spread, f"Fitting {rules.kind}")
            names = {shard_name(number, shards): (_link_shard, job, number, shards) for number in range(shards)}
            written = tasks.finish(names, spread, "Linking shards")
        finally:
            _linker.cache_clear()
        languages = {name: {"pairs": 0, "links": 0, "too_long": 0} for name in map("-".join, counts)}
        for shard in written:
            for name, counted in shard["languages"].items():
                for key, value in counted.items():
                    languages[name][key] += value
        _check_links({name: (counted["links"], counted["too_long"]) for name, counted in languages.items()}, total)
        record = {
            "settings": settings,
            "versions": versions,
            "sources": [path.name for path, _ in files],
            "languages": languages,
            "shards": [{key: shard[key] for key in ("file", "pairs", "checksum")} for shard in written],
        }
        write_text(folder / RECORD, json.dumps(record, ensure_ascii=False, indent=2) + "\n")
        shutil.rmtree(work, ignore_errors=True)
        return record


@dataclass(frozen=True)
class _Rules:
    """Settings that determine the links of a text: the aligner, split into its kind and its file, and its options."""

    aligner: str
    kind: str
    path: str
    symmetrization: Symmetrization
    filters: LinkFilters
    lowercase: bool
    fit_pairs: int
    seed: int
    layer: int | None
    method: LinkMethod
    batch_size: int
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


def _rules(
    aligner: str,
    symmetrization: Symmetrization,
    filters: LinkFilters,
    lowercase: bool,
    *,
    method: LinkMethod | None,
    **options: Any,
) -> _Rules:
    """Make the rules of an aligner; one that is unknown, not installed, or without its file raises an InputError."""
    check_choice(SYMMETRIZATIONS, symmetrization=symmetrization)
    kind, _, path = aligner.partition(":")
    aligners = [*STATISTICAL_ALIGNERS, "pharaoh:PATH", "dictionary:PATH", "encoder"]
    if kind not in {name.split(":")[0] for name in aligners}:
        raise InputError(f"aligner={aligner!r} is unknown. Give one of {', '.join(aligners)}.")
    if kind in STATISTICAL_ALIGNERS:
        statistical.import_thot()
    if path and kind not in ("pharaoh", "dictionary"):
        raise InputError(f"aligner {kind!r} reads no file. Remove {path}, or give pharaoh:PATH or dictionary:PATH.")
    if not path and kind in ("pharaoh", "dictionary"):
        raise InputError(f"aligner={aligner!r}: the path of its file is missing. Give {kind}:PATH.")
    if kind != "encoder" and (options["layer"] is not None or method is not None):
        raise InputError(f"layer, method: aligner={aligner!r} does not read them. Give aligner='encoder'.")
    lowercase = lowercase and kind != "encoder"
    method = method or ("argmax" if filters.one_to_one else "subwords")
    return _Rules(aligner, kind, path, symmetrization, filters, lowercase, method=method, **options)


@dataclass(frozen=True)
class _Job:
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

    rules: _Rules
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
                yield from zip(*self._split(_normalize(drawn) if self.columns else drawn)[1], strict=True)

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
            linker = self.readers.get(key) or _linker(self, key)
            desc = None if self.columns else f"Linking {'-'.join(pairs[0])}"
            for start in progress(range(0, len(rows), _BATCH), desc=desc, leave=False):
                words, seen = self._split(table.take(pyarrow.array(rows[start : start + _BATCH])))
                links = [self.rules.filters(*row) for row in zip(linker(*seen), *words, strict=True)]
                tables.append(pyarrow.table([*words, links], _ADDED.arrow_schema.remove_metadata()))
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
        return words, [lower_words(side, batch[name]) for side, name in zip(words, _LANGUAGES)]


def _open_files(sources: Sequence[str | os.PathLike[str]]) -> tuple[list[tuple[Path, int]], list[str]]:
    """Return the Parquet files with their numbers of pairs, and the columns to read."""
    files: list[tuple[Path, int]] = []
    first = None
    for path in (Path(source).expanduser().absolute() for source in sources):
        for shard in finished_shards(path) if path.is_dir() else [path]:
            if not shard.exists():
                raise InputError(f"{shard}: no such file. Give Parquet shards, such as hf-xalign prepare writes.")
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


def _languages(files: Sequence[tuple[Path, int]]) -> Iterator[Any]:
    """Yield the languages of all rows; an invalid code raises an InputError."""
    for file in progress(files, desc="Counting pairs", unit=" files", leave=False):
        for batch in read_rows([file], columns=_LANGUAGES):
            for column in _LANGUAGES:
                for code in batch[column].unique().to_pylist():
                    check_language(code, f"{file[0]}: {column}")
            yield batch


def _link_dataset(job: _Job, dataset: Dataset, keep_unlinked: bool, path: Path) -> None:
    """Link a dataset and write it to `path`."""
    links, too_long = Counter[str](), Counter[str]()

    def link(table: pyarrow.Table) -> pyarrow.Table:
        table, longer = job.link(table)
        too_long.update(longer)
        links.update({"-".join(pair): count for pair, (_, count) in _count([table]).items()})
        if keep_unlinked:
            return table
        return table.filter(pyarrow.compute.greater(pyarrow.compute.list_value_length(table["links"]), 0))

    dataset.with_format("arrow").map(
        link,
        batched=True,
        batch_size=_PART,
        features=Features({**dataset.features, **_ADDED}),
        cache_file_name=str(path),
        load_from_cache_file=False,
        new_fingerprint=job.tasks.settings,  # avoids hashing the job
        desc="Linking",
    )
    _check_links({name: (links[name], too_long[name]) for name in links}, len(dataset))


def _link_shard(job: _Job, number: int, shards: int) -> tuple[dict[str, Any], list[Path]]:
    """Link the rows of one shard and write it."""
    total = sum(rows for _, rows in job.text)
    first, last = (total * edge // shards for edge in (number, number + 1))
    table, too_long = job.link(pyarrow.concat_tables(map(_normalize, read_rows(job.text, first, last))))
    languages = {
        "-".join(pair): {"pairs": pairs, "links": links, "too_long": too_long["-".join(pair)]}
        for pair, (pairs, links) in _count([table]).items()
    }
    path = job.tasks.folder / shard_name(number, shards)
    # Without the schema's metadata, in which `datasets` lists the columns of the input.
    return write_shard(path, [table.replace_schema_metadata()]) | {"languages": languages}, [path]


def _check_links(counts: dict[str, tuple[int, int]], pairs: int) -> None:
    """Warn of sentence pairs that were too long to link, and raise an InputError if there are no links.

    `counts` has the numbers of links and of too long pairs by language pair.
    """
    for name, (_, count) in counts.items():
        if count:
            logger.warning("%d %s pairs have no links, because they are too long for the aligner", count, name)
    links, too_long = map(sum, zip(*counts.values()))
    if not links and too_long:
        raise InputError(
            f"no links are left in {pairs:,} sentence pairs: {too_long:,} of them have more words on a side than the "
            "aligner allows (1,024; 200 for hmm, ibm3 and ibm4). Split them into sentences, or use the aligner "
            "encoder."
        )
    if not links:
        raise InputError(
            f"no links are left in {pairs:,} sentence pairs. Check that source and target rows translate each other "
            "and that their languages are right, or name more text: an aligner learns little from few pairs."
        )


def _rows_of(table: Any, pair: Pair) -> np.ndarray:
    """Return the ascending row numbers of a language pair."""
    source, target = (pyarrow.compute.equal(table[name], code) for name, code in zip(_LANGUAGES, pair))
    return np.flatnonzero(pyarrow.compute.and_(source, target).to_numpy(zero_copy_only=False))


def _normalize(batch: Any) -> pyarrow.Table:
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


def _fit(job: _Job, pair: Pair, ways: tuple[str, ...]) -> tuple[dict[str, Any], list[Path]]:
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


def _choose_layer(job: _Job) -> tuple[dict[str, Any], list[Path]]:
    """Choose the layer of the encoder's vectors."""
    from hf_xalign.links.neural import choose_layer

    words = map(list, zip(*job.words(None, _LAYER_PAIRS)))
    layer = choose_layer(*_load_encoder(job.encoder), *words, method=job.rules.method)
    logger.info("linking by layer %d, in which the two directions agree most", layer)
    return {"layer": layer}, []


@functools.lru_cache(maxsize=1)
def _linker(job: _Job, key: Pair | None) -> Linker:
    """Return the linker of a language pair, or the encoder's (None); a process keeps the last one."""
    rules = job.rules
    if key is None:
        from hf_xalign.links.neural import encoder_links

        layer = job.tasks.mark("layer")["layer"] if rules.layer is None else rules.layer
        options: Any = {"symmetrization": rules.symmetrization, "layer": layer, "method": rules.method}
        return functools.partial(encoder_links, *_load_encoder(job.encoder), batch_size=rules.batch_size, **options)
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


def _load_encoder(encoder: tuple[Any, Any]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
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


def _encoder_digest(model: PreTrainedModel | None, tokenizer: PreTrainedTokenizerBase | None) -> list[str]:
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
