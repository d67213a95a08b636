"""Clean a corpus of any size: stream it through the rules, remove duplicates, write Parquet shards and a record.

The corpus is read in chunks of 20,000 pairs into the work folder. Worker processes apply the rules to each pair, and
write the remaining pairs of a chunk and their hashes in place of its text. A chunk whose files are there is skipped.
Then duplicates are searched over all chunks, and the shards are written. The result does not depend on the number of
workers.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.compute
import xxhash

from hf_xalign._version import __version__
from hf_xalign.cache import check_output, digest, disk_errors, write_json
from hf_xalign.data.arrow import open_work, shard_name, take_rows, write_shard
from hf_xalign.data.load import PAIRS, stream_parallel
from hf_xalign.data.sources import find_source, parse_source
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.prepare.chunks import CHUNK, EXACT, EXAMPLES, NEAR, Chunk, Survivors, find_duplicates, judge
from hf_xalign.prepare.rules import STEPS, Limits, Pair, clean, test_hashes, unjudged
from hf_xalign.record import mask_secrets, portable

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Encoder = tuple[PreTrainedModel, PreTrainedTokenizerBase]

logger = logging.getLogger(__name__)


def write_shards(survivors: Survivors, origins: Sequence[str], folder: Path, shard_pairs: int) -> list[dict[str, Any]]:
    """Write the remaining pairs in order, and return `file`, `pairs` and `checksum` (XXH3) of each shard.

    `origins` are the sources of the chunks.
    """
    total = -(-int(survivors.left.sum()) // shard_pairs)
    stream = _batches(survivors, origins, shard_pairs)
    shards = []
    for number in progress(range(total), desc="Writing", unit=" shards", leave=False):
        shards.append(write_shard(folder / shard_name(number, total), take_rows(stream, shard_pairs)))
    return shards


def _batches(survivors: Survivors, origins: Sequence[str], shard_pairs: int) -> Iterator[pyarrow.Table]:
    """Yield tables that are each in one shard."""
    room = shard_pairs
    for chunk, origin in enumerate(origins):
        table = survivors.table(chunk)
        names = pyarrow.array([origin] * len(table), pyarrow.string())
        table = table.add_column(len(Pair._fields), "origin", names)
        while len(table):
            yield (piece := table.slice(0, room))
            table = table.slice(len(piece))
            room = room - len(piece) or shard_pairs


RECORD = "prepare.json"
_SOURCES = PAIRS._replace(schemes=(*PAIRS.schemes, "pattern"))
_PACKAGES = {"language": "lingua-language-detector", "near_duplicate": "datasketch"}


def prepare(
    sources: Sequence[str],
    output: str | os.PathLike[str],
    limits: Limits | None = None,
    *,
    test_sources: Sequence[str] = (),
    encoder: Encoder | None = None,
    shard_pairs: int = 1_000_000,
    workers: int = 1,
    **reading: Any,
) -> dict[str, Any]:
    """Clean sentence pairs and write them as Parquet shards; return the record, the content of `prepare.json`.

    The shards have the columns of [`~hf_xalign.load_parallel`] and `origin` (the source), `length_ratio`
    and `margin` (null without an encoder). Make the same call again to resume a killed run.

    Args:
        sources: sources of text, see [`~hf_xalign.data.sources`]; file names may contain `*` and `?`.
        output: folder of the result, which is empty or has an unfinished run.
        limits: limits of the steps, and the steps to skip.
        test_sources: sources whose sentences are removed from both sides of the result. Built-in and Hub sources give
            their split `test`.
        encoder: model and tokenizer of the margin, which is the cosine of a pair's sentence vectors, divided by the
            mean cosine of each side and its 4 nearest neighbours on the other side of the chunk.
        shard_pairs: pairs in a shard.
        workers: worker processes.
        reading: `target_lang`, `split`, `source_column`, `target_column` and `revision` of `load_parallel`.

    Raises:
        InputError: the input or a limit is bad, the folder has a finished result, or the disk is full.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "raw.tsv").write_text("Datei öffnen\\tOpen file\\nSpeichern\\t\\n", encoding="utf-8")
        >>> record = prepare([f"de={folder}/raw.tsv"], folder / "clean", Limits(skip=["language"]))
        >>> record["pairs"], record["removed"]["de-en"]["empty"]
        ({'read': 2, 'kept': 1}, 1)
    """
    limits, versions = limits or Limits(), dict[str, str]()
    skip = {*limits.skip, *(() if encoder else ("margin",))}
    for step, package in _PACKAGES.items():
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            if step not in skip:
                logger.warning("step %r is skipped: it needs %s (pip install hf-xalign[prepare])", step, package)
            skip.add(step)
    limits = dataclasses.replace(limits, skip=[step for step in STEPS if step in skip])
    folder = Path(output).expanduser()
    check_output(folder)
    if (folder / RECORD).exists():
        raise InputError(f"{folder} holds a finished result. Give another folder, or remove this one.")
    sources = list(itertools.chain.from_iterable(map(_expand, sources)))
    held_out = (pair for source in test_sources for pair in _read(source, {**reading, "split": "test"}))
    tests = test_hashes(clean(side) for pair in held_out for side in pair[:2])
    record: dict[str, Any] = {
        "limits": dataclasses.asdict(limits),
        "sources": list(map(mask_secrets, sources)),
        "test_sources": list(map(mask_secrets, test_sources)),
    }
    # The text is not part of the identity, because each chunk has its own digest.
    sorted_tests = np.sort(np.fromiter(tests, np.uint64, len(tests)))
    identity = [record, reading, xxhash.xxh3_64_hexdigest(sorted_tests.data), __version__, versions]
    with open_work(folder, digest(*identity)) as work, disk_errors(folder):
        summaries = judge(_chunks(sources, reading), work, limits, tests, workers)
        if not summaries:
            raise InputError(f"{', '.join(record['sources'])}: there are no sentence pairs in it")
        survivors = Survivors(work, len(summaries))
        pairs_read, languages = Counter[str](), Counter[str]()
        removed: dict[str, Counter[str]] = defaultdict(Counter)
        examples: dict[str, list[Pair]] = defaultdict(list)
        for summary in summaries:
            pairs_read.update(summary["read"])
            languages.update(summary["languages"])
            for name, counts in summary["removed"].items():
                removed[name].update(counts)
            for step, pairs in summary["examples"].items():
                examples[step] = [*examples[step], *itertools.starmap(Pair, pairs)][:EXAMPLES]
        record["off"] = _off(languages, limits)
        hint = "Is the language right? A code may name the script too, such as sr-Latn."
        hints = {"script": hint, "language": hint}
        for step, rows in _compare(survivors, limits, encoder):
            for name, count in survivors.remove(rows).items():
                removed[name][step] += count
            examples[step] = [survivors.pair(row) for row in rows[:EXAMPLES].tolist()]
        for name, counts in removed.items():
            for step, hint in hints.items():
                if counts[step] > pairs_read[name] / 2:
                    share = f"{counts[step]:,} of {pairs_read[name]:,}"
                    logger.warning("step %r removed %s pairs of %s. %s", step, share, name, hint)
        remaining = int(survivors.left.sum())
        if not remaining:
            shutil.rmtree(work)  # a run with other limits cannot use it
            step, count = sum(removed.values(), Counter()).most_common(1)[0]
            raise InputError(
                f"no pair is left: {step!r} removed {count:,} of {pairs_read.total():,}. Change its limit or skip the "
                f"step. {hints.get(step, '')}".strip()
            )
        record["pairs"] = {"read": pairs_read.total(), "kept": remaining}
        record["removed"] = {}
        for name in sorted(pairs_read):
            record["removed"][name] = {step: removed[name][step] for step in STEPS}
        origins = [summary["origin"] for summary in summaries]
        # A killed run may have had another number of shards.
        for shard in folder.glob("part-*-of-*.parquet"):
            shard.unlink()
        record["shards"] = write_shards(survivors, origins, folder, shard_pairs)
        # A path in a sentence stays as it is.
        record = portable(record) | {"examples": examples}
        write_json(folder / RECORD, record)
    return record


def _expand(source: str) -> list[str]:
    """Return the files that a pattern names, each with the language of the source, or the source itself."""
    name, language = parse_source(source)
    form, files = find_source(name, _SOURCES)
    prefix = "" if language is None else f"{language}="
    return [f"{prefix}{file}" for file in files] if form == "pattern" else [source]


def _read(source: str, reading: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    name, language = parse_source(source)
    return stream_parallel(name, source_lang=language, **reading)


def _chunks(sources: Sequence[str], reading: Mapping[str, Any]) -> Iterator[Chunk]:
    number = 0
    for source in sources:
        first_number, pairs = number, map(Pair._make, _read(source, reading))
        while batch := list(itertools.islice(pairs, CHUNK)):
            yield Chunk(number, mask_secrets(source), batch)
            number += 1
        if number == first_number:
            logger.warning("%s: there are no sentence pairs in it", mask_secrets(source))


def _off(languages: Mapping[str, int], limits: Limits) -> dict[str, dict[str, str]]:
    """Return {step: {language: why the step is off for it}}, and log a warning for each."""
    reasons: dict[str, dict[str, str]] = defaultdict(dict)
    for language, pairs in sorted(languages.items()):
        for step, why in unjudged(language, limits.skip).items():
            reasons[step][language] = why
            logger.warning("step %r is off for %s (%s pairs): %s", step, language, f"{pairs:,}", why)
    return dict(reasons)


def _compare(survivors: Survivors, limits: Limits, encoder: Encoder | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each step that compares pairs, with the numbers of the pairs that it removes."""
    near = None if "near_duplicate" in limits.skip else limits.near
    exact = "duplicate" not in limits.skip
    verdicts = find_duplicates(survivors.hashes, survivors.pair, exact=exact, near=near)
    yield "duplicate", np.flatnonzero(verdicts == EXACT)
    yield "near_duplicate", np.flatnonzero(verdicts == NEAR)
    if encoder is not None:
        for chunk, rows in enumerate(progress(survivors.chunks, desc="Scoring margins", unit=" chunks", leave=False)):
            survivors.margin[rows][survivors.left[rows]] = _margins(survivors.table(chunk), *encoder)
        yield "margin", np.flatnonzero(survivors.margin < limits.min_margin)


def _margins(table: pyarrow.Table, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Return the margin of each pair in a table, among the pairs of its languages: float32 (pairs,)."""
    import torch

    from hf_xalign.evaluation.vectors import encode_sentences
    from hf_xalign.search.ranking import nearest

    margins = np.full(len(table), np.nan, np.float32)
    columns = table.to_pydict()
    by_language: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, languages in enumerate(zip(columns["source_lang"], columns["target_lang"])):
        by_language[languages].append(row)
    for languages, rows in by_language.items():
        sides = []
        for side, lang in zip(("source", "target"), languages):
            texts = [columns[side][row] for row in rows]
            vectors = encode_sentences(model, tokenizer, texts, lang=lang)[:, 0]
            sides.append(torch.nn.functional.normalize(vectors, dim=-1))
        source, target = sides
        # 4 neighbours, as in Artetxe and Schwenk (2019).
        around = nearest(source, target, 4, similarity="cosine").scores.mean(1)
        around = around + nearest(target, source, 4, similarity="cosine").scores.mean(1)
        margins[rows] = ((source * target).sum(1) / (around / 2)).numpy()
    return margins
