"""Word-align a corpus of any size: Parquet shards in, Parquet shards out, by several processes or a Ray cluster.

Statistical aligners are fitted on a sample, each direction of a language pair by a task of its own, and saved in the
work folder. Then each shard is one task. Finished tasks are not run again. Any number of workers gives the same bytes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]

from hf_xalign.cache import check_output, checksum
from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.readers import clean_text, open_parquet
from hf_xalign.data.shards import finished_shards, open_work, read_rows, shard_name, write_shard
from hf_xalign.data.words import WORDS, batch_words, lower_words, splitter_version
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.executors import local_executor, ray_executor
from hf_xalign.language_codes import check_language
from hf_xalign.links.align import (
    LAYER_PAIRS,
    VERSION,
    Linker,
    Pair,
    dictionary_linker,
    encoder_digest,
    file_digest,
    link_batch,
    parse_aligner,
)
from hf_xalign.links.statistical import (
    DIRECTIONS,
    STATISTICAL_ALIGNERS,
    TOO_LONG,
    StatisticalLinker,
    draw_sample,
    fit,
    load_model,
    one_thread,
    save_model,
)
from hf_xalign.links.symmetrization import LinkFilters, Symmetrization, check_symmetrization
from hf_xalign.marked_tasks import MarkedTasks
from hf_xalign.record import write_text

if TYPE_CHECKING:
    from hf_xalign.links.neural import LinkMethod

logger = logging.getLogger(__name__)

RECORD = "align-words.json"
_SHARD = 100_000  # pairs
_BATCH = 1000  # pairs that are linked at once
_CHECKED = 1000  # pairs of a language pair, whose words an encoder must know
_ADDED = pyarrow.schema(
    [
        *((name, pyarrow.list_(pyarrow.string())) for name in WORDS),
        ("links", pyarrow.list_(pyarrow.list_(pyarrow.int32()))),
    ]
)


@dataclass(frozen=True)
class _Job:
    """Settings and input of a run, which are sent to worker processes and other machines."""

    tasks: MarkedTasks
    files: tuple[tuple[Path, int], ...]  # with their numbers of pairs
    columns: tuple[str, ...]
    pairs: tuple[tuple[Pair, int], ...]  # language pairs with their numbers of sentence pairs
    shards: int
    kind: str
    paths: tuple[tuple[str, Path], ...]  # dictionaries by source language
    filters: LinkFilters
    lowercase: bool
    symmetrization: Symmetrization
    fit_pairs: int
    seed: int
    encoder: tuple[tuple[str, Any], ...]


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
    model: str = "embedded",
    device: str = "cpu",
    layer: int | None = None,
    method: LinkMethod | None = None,
    batch_size: int = 64,
    shards: int | None = None,
    workers: int = 1,
    ray: str | None = None,
) -> dict[str, Any]:
    """Word-align Parquet shards and write them as Parquet shards; return the record, as in `align-words.json`.

    All rows and columns stay, in their order, with text in NFC. The columns `source_words`, `target_words` and `links`
    are added, which [`~hf_xalign.data.load_parallel`] reads. The links are those of [`align_words`] on all pairs.
    A run that was killed resumes where it stopped when it is started again.

    Args:
        sources: Parquet files, or folders of them, with the columns `source`, `target`, `source_lang`, `target_lang`.
        output: folder of the result, empty or of a run that did not finish.
        aligner: as in [`align_words`], without `pharaoh`.
        symmetrization: as in [`align_words`], like the next four.
        one_to_one: drop all links of a word that has several.
        drop_identical: then drop links between identical strings.
        require_letter: then drop links of words without a letter.
        lowercase: statistical aligners and dictionaries see lower-cased words.
        fit_pairs: largest number of sentence pairs that the aligner of a language pair is fitted on.
        seed: seed of the sample and of eflomal.
        model: encoder of aligner `encoder`, by what [`hf_xalign.load`] takes.
        device: device of the encoder in each worker.
        layer: position in the encoder's `hidden_states`; chosen without gold links by default.
        method: `subwords`, `argmax` or `softmax`, as in [`align_words`].
        batch_size: sentences a forward pass of the encoder.
        shards: number of shards to write; one for each 100,000 pairs by default. A worker holds one in memory.
        workers: worker processes, each with one thread.
        ray: run on Ray instead: `local`, or the address of a cluster, whose machines share these folders.

    Raises:
        InputError: bad input or options, a finished result in the folder, a full disk, or a worker that died. The
            message names the shard; finished shards are kept.

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
    check_symmetrization(symmetrization)
    if min(workers, fit_pairs, 1 if shards is None else shards) < 1:
        raise InputError("shards, workers and fit_pairs must be at least 1")
    folder = Path(output).expanduser().absolute()
    check_output(folder)
    if (folder / RECORD).exists():
        raise InputError(f"{folder}: holds a finished result. Give another folder, or remove it.")
    files, columns = _open_files(sources)
    counts = _count_pairs(files)
    kind, paths = parse_aligner(aligner, [source_lang for source_lang, _ in counts])
    if kind == "pharaoh":
        raise InputError("aligner pharaoh reads the links of one text in order. Give another aligner for shards.")
    total = sum(rows for _, rows in files)
    shards = min(shards or -(-total // _SHARD), total)
    filters = LinkFilters(one_to_one, drop_identical, require_letter)
    lowercase = lowercase and kind != "encoder"
    settings = {"aligner": aligner, "symmetrization": symmetrization, **filters._asdict(), "lowercase": lowercase}
    versions = {"links": VERSION, "words": splitter_version(lang for pair in counts for lang in pair)}
    encoder: dict[str, Any] = {}
    inputs: list[Any] = [[str(path), checksum(path)] for path, _ in files]
    inputs += [[lang, file_digest(path)] for lang, path in paths.items()]
    if kind in STATISTICAL_ALIGNERS:
        settings |= {"fit_pairs": fit_pairs, "seed": seed}
        versions["sil-thot"] = version("sil-thot")
    elif kind == "encoder":
        import torch

        from hf_xalign.modeling.loading import load_encoder

        method = method or ("argmax" if one_to_one else "subwords")
        encoder = {"model": model, "device": device, "layer": layer, "method": method, "batch_size": batch_size}
        settings |= encoder | {"seed": seed}
        if Path(model).exists():  # a worker on another machine has another working directory
            encoder["model"] = str(Path(model).absolute())
        checked, tokenizer = load_encoder(model, torch.device("cpu"))
        inputs.append(encoder_digest(checked, tokenizer))
    identity = json.dumps([settings, versions, inputs, shards])
    with open_work(folder, identity) as work:
        job = _Job(
            tasks=MarkedTasks(
                folder,
                work=work,
                settings=hashlib.blake2b(identity.encode(), digest_size=16).hexdigest(),
                around=one_thread,
            ),
            files=tuple(files),
            columns=tuple(columns),
            pairs=tuple(counts.items()),
            shards=shards,
            kind=kind,
            paths=tuple((lang, path.absolute()) for lang, path in paths.items()),
            filters=filters,
            lowercase=lowercase,
            symmetrization=symmetrization,
            fit_pairs=fit_pairs,
            seed=seed,
            encoder=tuple(encoder.items()),
        )

        for pair, count in counts.items() if encoder else ():
            sides = zip(*_sampled_words(job, pair, count, _CHECKED))
            for words, language in zip(sides, pair):
                check_vocabulary(tokenizer, words, language, "the shards")
        if ray is None:
            executor = local_executor(workers)
        else:
            gpus = int(kind == "encoder" and not device.startswith("cpu"))
            executor = ray_executor(ray, workers=workers, gpus=gpus)
        try:
            with executor as run:
                if kind in STATISTICAL_ALIGNERS:
                    fits = {_fit_name(pair, way): (_fit, job, pair, way) for pair in counts for way in DIRECTIONS}
                    job.tasks.finish(fits, run, f"Fitting {kind}")
                elif encoder and layer is None:
                    job.tasks.finish({"layer": (_choose_layer, job)}, run, "Choosing the layer")
                names = {shard_name(number, shards): (_link_shard, job, number) for number in range(shards)}
                found = job.tasks.finish(names, run, "Linking shards")
        finally:
            _linker.cache_clear()
        languages = {name: {"pairs": 0, "links": 0, "too_long": 0} for name in map("-".join, counts)}
        for shard in found:
            for name, own in shard["languages"].items():
                for key, value in own.items():
                    languages[name][key] += value
        for name, own in languages.items():
            if own["too_long"]:
                logger.warning("%d %s pairs are too long for the aligner: no links", own["too_long"], name)
        if not any(own["links"] for own in languages.values()):
            if long := sum(own["too_long"] for own in languages.values()):
                raise InputError(TOO_LONG.format(total=total, long=long))
            raise InputError(
                f"no links in {total:,} sentence pairs. Check that source and target translate each other."
            )
        record = {
            "settings": settings,
            "versions": versions,
            "sources": [path.name for path, _ in files],
            "languages": languages,
            "shards": [{key: shard[key] for key in ("file", "pairs", "checksum")} for shard in found],
        }
        write_text(folder / RECORD, json.dumps(record, ensure_ascii=False, indent=2) + "\n")
        shutil.rmtree(job.tasks.work, ignore_errors=True)
        return record


def _open_files(sources: Sequence[str | os.PathLike[str]]) -> tuple[list[tuple[Path, int]], list[str]]:
    """Return the Parquet files with their numbers of pairs, and the columns that the aligner reads."""
    files: list[tuple[Path, int]] = []
    first = None
    for path in (Path(source).expanduser().absolute() for source in sources):
        for part in finished_shards(path) if path.is_dir() else [path]:
            if not part.exists():
                raise InputError(f"{part}: no such file. Give Parquet shards, such as hf-xalign prepare writes.")
            with open_parquet(part) as file:
                first = first or file.schema_arrow
                if missing := [name for name in COLUMNS if name not in file.schema_arrow.names]:
                    raise InputError(
                        f"{part}: no column {', '.join(missing)} (there are {', '.join(file.schema_arrow.names)}). "
                        "Write it by hf-xalign prepare, or rename its columns."
                    )
                if not file.schema_arrow.equals(first):
                    raise InputError(
                        f"{part}: its columns ({_describe(file.schema_arrow)}) are not those of {files[0][0]} "
                        f"({_describe(first)}). Give all shards the same columns."
                    )
                files.append((part, file.metadata.num_rows))
    if first is None or not any(rows for _, rows in files):
        raise InputError(f"{', '.join(map(str, sources))}: no sentence pairs in it")
    return files, [name for name in (*COLUMNS, *WORDS) if name in first.names]


def _describe(schema: pyarrow.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _count_pairs(files: Sequence[tuple[Path, int]]) -> dict[Pair, int]:
    """Return the number of sentence pairs of each language pair, sorted."""
    counts: Counter[Pair] = Counter()
    languages = ["source_lang", "target_lang"]
    for file in progress(files, desc="Counting pairs", unit=" files", leave=False):
        for batch in read_rows([file], columns=languages):
            grouped = pyarrow.table(batch).group_by(languages).aggregate([([], "count_all")]).to_pylist()
            for row in grouped:
                pair = row["source_lang"], row["target_lang"]
                for column, code in zip(languages, pair):
                    check_language(code, f"{file[0]}: {column}")
                counts[pair] += row["count_all"]
    return dict(sorted(counts.items()))


def _fit_name(pair: Pair, direction: str) -> str:
    return f"{'-'.join(pair)} {direction}"


def _fit(job: _Job, pair: Pair, direction: str) -> tuple[dict[str, Any], list[Path]]:
    """Fit and save one direction of a language pair."""
    # A folder of its own for each try: what remains of a killed run may still be writing.
    folder = Path(tempfile.mkdtemp(dir=job.tasks.work))
    words = _sampled_words(job, pair, dict(job.pairs)[pair], job.fit_pairs)
    [model] = fit(job.kind, words, [direction], seed=job.seed)
    save_model(model, folder)
    return {"folder": folder.name}, sorted(folder.iterdir())


def _choose_layer(job: _Job) -> tuple[dict[str, Any], list[Path]]:
    """Choose the layer that the encoder links by."""
    from hf_xalign.links.neural import choose_layer

    model, tokenizer, options = _load_encoder(job)
    words = zip(*_sampled_words(job, None, sum(rows for _, rows in job.files), LAYER_PAIRS))
    return {"layer": choose_layer(model, tokenizer, *map(list, words), method=options["method"])}, []


def _sampled_words(job: _Job, pair: Pair | None, count: int, size: int) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the source and target words of a sample of the `count` sentence pairs of a language pair, or of all."""
    chosen = draw_sample(count, size, job.seed)
    seen = 0
    for batch in read_rows(job.files, columns=job.columns):
        rows = np.arange(len(batch)) if pair is None else _rows_of(batch, pair)
        numbers = chosen[slice(*np.searchsorted(chosen, [seen, seen + len(rows)]))] - seen
        seen += len(rows)
        drawn = _normalize(batch.take(pyarrow.array(rows[numbers]))).to_pydict()
        source, target = batch_words(drawn)
        if job.lowercase:
            source, target = lower_words(source, drawn["source_lang"]), lower_words(target, drawn["target_lang"])
        yield from zip(source, target, strict=True)


def _rows_of(table: Any, pair: Pair) -> np.ndarray:
    """Return the ascending numbers of the rows of a language pair."""
    equal = pyarrow.compute.equal
    mask = pyarrow.compute.and_(equal(table["source_lang"], pair[0]), equal(table["target_lang"], pair[1]))
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _normalize(batch: pyarrow.RecordBatch) -> pyarrow.Table:
    """Return a table with clean text, in NFC."""
    table = pyarrow.Table.from_batches([batch])
    for side in COLUMNS[:2]:
        # Not pyarrow's utf8_normalize: before version 26 it leaves characters decomposed.
        text = [clean_text(value or "") for value in table[side].to_pylist()]
        column = pyarrow.array(text, table.schema.field(side).type)
        table = table.set_column(table.column_names.index(side), side, column)
    return table


def _link_shard(job: _Job, number: int) -> tuple[dict[str, Any], list[Path]]:
    """Link the rows of one shard and write it."""
    total = sum(rows for _, rows in job.files)
    first, last = (total * edge // job.shards for edge in (number, number + 1))
    table = pyarrow.concat_tables(map(_normalize, read_rows(job.files, first, last)))
    words = table.select(job.columns)
    order, parts = [], []
    languages: dict[str, dict[str, int]] = {}
    for pair, _ in job.pairs:
        if not len(rows := _rows_of(table, pair)):
            continue
        linker = _linker(job, pair if job.kind != "encoder" else None)
        links = 0
        for start in range(0, len(rows), _BATCH):
            batch = words.take(pyarrow.array(rows[start : start + _BATCH]))
            added = link_batch(batch.to_pydict(), linker, job.filters, lowercase=job.lowercase)
            links += sum(map(len, added["links"]))
            parts.append(pyarrow.table(added, _ADDED))
        order.append(rows)
        languages["-".join(pair)] = {"pairs": len(rows), "links": links, "too_long": 0}
        if isinstance(linker, StatisticalLinker):
            languages["-".join(pair)]["too_long"], linker.too_long = linker.too_long, 0
    added = pyarrow.concat_tables(parts).take(pyarrow.array(np.argsort(np.concatenate(order))))
    table = table.drop_columns([name for name in _ADDED.names if name in table.column_names])
    for name in _ADDED.names:
        table = table.append_column(name, added[name])
    # Without the metadata, in which `datasets` lists the columns of the input.
    path = job.tasks.folder / shard_name(number, job.shards)
    return write_shard(path, [table.replace_schema_metadata()]) | {"languages": languages}, [path]


@functools.lru_cache(maxsize=1)
def _linker(job: _Job, pair: Pair | None) -> Linker:
    """Return the linker of a language pair, or the encoder, which links all. A worker keeps the last one."""
    if pair is None:
        from hf_xalign.links.neural import encoder_links

        model, tokenizer, options = _load_encoder(job)
        if options["layer"] is None:
            options["layer"] = job.tasks.marker("layer")["layer"]
        return partial(encoder_links, model, tokenizer, symmetrization=job.symmetrization, **options)
    if job.kind == "dictionary":
        return dictionary_linker(dict(job.paths)[pair[0]], pair, job.lowercase)
    markers = (job.tasks.marker(_fit_name(pair, direction)) for direction in DIRECTIONS)
    forward, backward = (load_model(job.kind, job.tasks.work / marker["folder"]) for marker in markers)
    return StatisticalLinker(forward, backward, job.symmetrization)


def _load_encoder(job: _Job) -> tuple[Any, Any, dict[str, Any]]:
    """Return the encoder, its tokenizer and its options."""
    import torch

    from hf_xalign.modeling.loading import load_encoder

    options = dict(job.encoder)
    return *load_encoder(options.pop("model"), torch.device(options.pop("device"))), options
