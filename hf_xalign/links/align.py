"""Word-align parallel text by a statistical aligner, a file, a dictionary, or an encoder: a dataset, or shards.

Both are a [`~hf_xalign.links.job.Job`] with a function that reads the text. The links of a dataset become one file in
the cache. For shards, fits and shards are tasks of processes or of a Ray cluster. Any number of workers gives the same
bytes.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute
from datasets import Dataset, Features

from hf_xalign.cache import cache_dir, check_output, checksum, digest, make_once, work_folder, write_json
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
from hf_xalign.data.sides import warn_of_pairs
from hf_xalign.data.words import WORDS
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.links import statistical
from hf_xalign.links.counts import LANGUAGES, count_links, link_statistics
from hf_xalign.links.job import ADDED, Job, make_linker, make_rules, normalize
from hf_xalign.links.statistical import STATISTICAL_ALIGNERS
from hf_xalign.links.symmetrization import Symmetrization

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_xalign.links.neural import LinkMethod

logger = logging.getLogger(__name__)

Files = Sequence[tuple[Path, int]]  # with their numbers of pairs
RECORD = "align-words.json"  # settings and shards, written last
_PART = 100_000  # pairs in a shard
_CHECKED = 1000  # pairs of a language pair whose words are checked against an encoder's vocabulary


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
    `links` are added, which [`~hf_xalign.load_parallel`] reads. The links are those of [`align_words`] on all
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
    counted = progress(files, desc="Counting pairs", unit=" files", leave=False)
    counts = count_links(chain.from_iterable(_rows([file], columns=LANGUAGES) for file in counted))
    sample = pyarrow.Table.from_batches(_rows(files, last=_CHECKED, columns=COLUMNS))
    warn_of_pairs(Dataset(normalize(sample)), "the shards")
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
        job = Job(rules, work, pairs, partial(_rows, files, columns=columns), load, parallel=True)
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


def _rows(files: Files, **part: Any) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of files in which each language has one code."""
    for batch in read_rows(files, **part):
        for column in LANGUAGES:
            codes = batch[column].unique().to_pylist()
            names = {code: check_language(code, f"{files[0][0]}: {column}") for code in codes}
            if [*names] != [*names.values()]:
                renamed = pyarrow.array(list(map(names.get, batch[column].to_pylist())))
                batch = batch.set_column(batch.schema.get_field_index(column), column, renamed)
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


def _link_shard(job: Job, files: Files, folder: Path, number: int, shards: int) -> tuple[dict[str, Any], list[Path]]:
    total = sum(rows for _, rows in files)
    first, last = total * number // shards, total * (number + 1) // shards
    rows = normalize(pyarrow.Table.from_batches(_rows(files, first=first, last=last)))
    with statistical.one_thread() if job.rules.kind in STATISTICAL_ALIGNERS else nullcontext():
        table, too_long = job.link(rows)
    languages = {}
    for pair, (pairs, links) in count_links([table]).items():
        name = "-".join(pair)
        languages[name] = {"pairs": pairs, "links": links, "too_long": too_long[name]}
    path = folder / shard_name(number, shards)
    # Without the schema's metadata, in which `datasets` lists the columns of the input.
    return write_shard(path, [table.replace_schema_metadata()]) | {"languages": languages}, [path]


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


def _load_encoder(name: str, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from hf_xalign.modeling.loading import load_encoder

    return load_encoder(name, device)


def encoder_identity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the hashes of an encoder and of its tokenizer."""
    from hf_xalign.modeling.freezing import encoder_fingerprint

    return [encoder_fingerprint(model), tokenizer_fingerprint(tokenizer)]
