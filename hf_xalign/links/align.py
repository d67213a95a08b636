"""Word-align parallel text by a statistical aligner, a file, a dictionary, or an encoder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, Features, List, Value, concatenate_datasets

from hf_xalign.cache import cache_dir, make_once, work_folder
from hf_xalign.data.dictionary import DictionaryLinker, load_dictionary
from hf_xalign.data.encoding import check_pieces
from hf_xalign.data.mapped import scan_columns
from hf_xalign.data.parallel import as_parallel
from hf_xalign.data.words import batch_words, lower_word, lower_words, splitter_version
from hf_xalign.errors import InputError
from hf_xalign.links.pharaoh import PharaohReader
from hf_xalign.links.statistical import (
    STATISTICAL_ALIGNERS,
    TOO_LONG,
    StatisticalLinker,
    draw_sample,
    fit,
    import_thot,
    read_words,
)
from hf_xalign.links.symmetrization import LinkFilters, Symmetrization, check_symmetrization

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_xalign.links.neural import LinkMethod

logger = logging.getLogger(__name__)

VERSION = 3  # raise it when the same call may give other links: cached links are then replaced

LAYER_PAIRS = 256  # that the encoder's layer is chosen on

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

    Words are the columns `source_words` and `target_words`, as far as the dataset has them. Where they are missing or
    null, [`split_words`] splits the text, or blanks do if the links come from a Pharaoh file. Each language pair gets
    its own statistical aligner, fitted on a sample. The result is memory-mapped from the library's cache; the same
    call on the same data reuses it.

    Args:
        dataset: columns `source`, `target`, `source_lang`, `target_lang`, or a column `translation`
            (`{"de": ..., "en": ...}`, as on the Hub); others are kept.
        aligner: `fast_align`, `hmm`, `ibm1` to `ibm4` or `eflomal` (statistical); `pharaoh:PATH` (existing links, one
            line a row); `dictionary:PATH` (MUSE format, unambiguous matches only); or `encoder` (word vectors of
            `model`). `{lang}` in PATH stands for the source language.
        symmetrization: `intersection`, `union`, `grow-diag` or `grow-diag-final-and` of the two directions of a
            statistical aligner or the encoder.
        one_to_one: drop all links of a word that has several.
        drop_identical: then drop links between identical strings.
        source_lang: language of every source side, for a dataset without that column or with translations.
        target_lang: language of every target side, for a dataset without that column; of translations, by default
            English.
        require_letter: then drop links of words without a letter.
        keep_unlinked: keep pairs without links, which are dropped by default.
        lowercase: statistical aligners and dictionaries see lower-cased words. The columns keep their case.
        extra_data: more parallel text to fit statistical aligners on; it is not linked.
        sample_size: largest number of sentence pairs that the aligner of a language pair is fitted on.
        seed: seed of the sample and of eflomal.
        model: encoder of aligner `encoder`.
        tokenizer: fast tokenizer of `model`.
        layer: position in the encoder's `hidden_states`; chosen without gold links by default, see [`choose_layer`].
        method: `subwords`, `argmax` or `softmax`, see [`encoder_links`]. Default: `subwords`, or `argmax` if
            `one_to_one`, because `one_to_one` drops the links of compounds.
        batch_size: sentences a forward pass of the encoder.

    Returns:
        The linked pairs in their order, with `source_words`, `target_words` and `links` (lists of [i, j]).

    Raises:
        InputError: a column, file, model or segmenter is missing, an option or file is malformed, or no link is left.

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
    check_symmetrization(symmetrization)
    dataset = as_parallel(dataset, "the dataset", source_lang, target_lang)
    if extra_data is not None:
        extra_data = as_parallel(extra_data, "extra_data")
    by_pair = _rows_by_pair(dataset)
    kind, paths = parse_aligner(aligner, [source_lang for source_lang, _ in by_pair])
    lowercase = lowercase and kind != "encoder"
    filters = LinkFilters(one_to_one, drop_identical, require_letter)

    identity: dict[str, Any] = {
        "versions": [VERSION, splitter_version(lang for pair in by_pair for lang in pair)],
        "dataset": dataset._fingerprint,
        "links": [kind, *filters, keep_unlinked, lowercase],
        "files": {lang: file_digest(path) for lang, path in paths.items()},
    }
    if kind in STATISTICAL_ALIGNERS:
        identity["fit"] = [version("sil-thot"), symmetrization, sample_size, seed]
        identity["extra_data"] = extra_data and extra_data._fingerprint
    elif kind == "encoder":
        method = method or ("argmax" if one_to_one else "subwords")
        options: dict[str, Any] = {"symmetrization": symmetrization, "layer": layer, "method": method}
        identity["encoder"] = [encoder_digest(model, tokenizer), options, seed]
        assert tokenizer is not None  # or `encoder_digest` has refused it
        check_pieces(dataset, tokenizer, "the dataset")

    def make_linker(pair: Pair, rows: np.ndarray) -> Linker:
        if kind == "encoder":
            from hf_xalign.links.neural import choose_layer, encoder_links

            assert model is not None and tokenizer is not None
            link = partial(encoder_links, model, tokenizer, batch_size=batch_size, **options)
            if layer is not None:
                return link
            some = dataset.with_format(None).select(np.random.default_rng(seed).permutation(rows)[:LAYER_PAIRS])
            best = choose_layer(model, tokenizer, *batch_words(some[:]), method=options["method"])
            logger.info("linking by layer %d, where the directions agree most", best)
            return partial(link, layer=best)
        if kind == "pharaoh":
            return PharaohReader(paths[pair[0]], len(rows))
        if kind == "dictionary":
            return dictionary_linker(paths[pair[0]], pair, lowercase)
        corpora = [(dataset, rows)]
        if extra_data is not None:
            corpora.append((extra_data, _rows_by_pair(extra_data, pair)[pair]))
        edges = np.cumsum([0, *(len(own) for _, own in corpora)])
        sample = draw_sample(int(edges[-1]), sample_size, seed)
        drawn = [
            part.select(own[sample[slice(*np.searchsorted(sample, [start, start + len(own)]))] - start])
            for (part, own), start in zip(corpora, edges)
        ]
        words = read_words(drawn, lowercase=lowercase, desc=f"Reading {'-'.join(pair)}")
        forward, backward = fit(kind, words, seed=seed, desc=f"{kind} {'-'.join(pair)}")
        return StatisticalLinker(forward, backward, symmetrization)

    # A Pharaoh file is read once for all language pairs that use it; the encoder links everything in one group.
    members: dict[Any, list[Pair]] = defaultdict(list)
    for pair in by_pair:
        members[paths.get(pair[0]) if kind in ("pharaoh", "encoder") else pair].append(pair)
    groups = [(own[0], np.sort(np.concatenate([by_pair[pair] for pair in own]))) for own in members.values()]
    path = cache_dir("links") / f"{hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()}.arrow"
    link_rows = partial(_link_rows, filters=filters, keep_unlinked=keep_unlinked, lowercase=lowercase)
    link_rows = partial(link_rows, blanks=kind == "pharaoh")
    make_once(path, lambda: _link_groups(dataset, groups, make_linker, link_rows, path))
    linked = Dataset.from_file(str(path))
    for name, counts in link_statistics(linked, dataset).items():
        log = logger.info if counts.pairs else logger.warning
        log("%s by %s: %s (%s)", name, kind, counts, path)
    return linked


@dataclass(frozen=True)
class LinkStatistics:
    """Numbers of one language pair's sentence pairs, of their links, and of pairs dropped without links, if known."""

    pairs: int
    links: int
    dropped: int | None = None

    @property
    def links_per_pair(self) -> float:
        """Mean number of links of a sentence pair."""
        return self.links / max(self.pairs, 1)

    def __str__(self) -> str:
        dropped = "" if self.dropped is None else f", {self.dropped:,} without links dropped"
        return f"{self.links:,} links in {self.pairs:,} pairs ({self.links_per_pair:.1f} a pair){dropped}"


def link_statistics(linked: Dataset, before: Dataset | None = None) -> dict[str, LinkStatistics]:
    """Count the links of a word-aligned dataset by language pair (`de-en`), and pairs of `before` that were dropped.

    Example:
        >>> from datasets import Dataset
        >>> linked = Dataset.from_dict({"source_lang": ["de"], "target_lang": ["en"], "links": [[[0, 2], [1, 0]]]})
        >>> print(link_statistics(linked)["de-en"])
        2 links in 1 pairs (2.0 a pair)
    """
    pairs, links, total = Counter[Pair](), Counter[Pair](), Counter[Pair]()
    for _, batch, rows in _batches_by_pair(linked, "links"):
        lengths = batch["links"].combine_chunks().value_lengths().to_numpy()
        for pair, own in rows.items():
            pairs[pair] += len(own)
            links[pair] += int(lengths[own].sum())
    for _, _, rows in () if before is None else _batches_by_pair(before):
        total.update({pair: len(own) for pair, own in rows.items()})
    return {
        "-".join(pair): LinkStatistics(pairs[pair], links[pair], None if before is None else total[pair] - pairs[pair])
        for pair in sorted(pairs if before is None else total)
    }


def _link_groups(
    dataset: Dataset,
    groups: list[tuple[Pair, np.ndarray]],
    make_linker: Callable[[Pair, np.ndarray], Linker],
    link_rows: Callable[[Dataset, Linker, str, str], tuple[Dataset, np.ndarray]],
    path: Path,
) -> None:
    """Link group by group, with one aligner in memory at a time, and write the rows in their old order."""
    with work_folder(path.with_suffix(".work")) as folder:
        parts, origin, too_long = [], [], 0
        for number, (pair, rows) in enumerate(groups):
            linker = make_linker(pair, rows)
            own = dataset if len(rows) == len(dataset) else dataset.select(rows)
            part, kept = link_rows(own, linker, f"Linking {'-'.join(pair)}", f"{folder}/{number}.arrow")
            parts.append(part)
            origin.append(rows[kept])
            if isinstance(linker, StatisticalLinker) and linker.too_long:
                too_long += linker.too_long
                logger.warning("%d %s pairs are too long for the aligner: no links", linker.too_long, "-".join(pair))
        if not any(counts.links for part in parts for counts in link_statistics(part).values()):
            if too_long:
                raise InputError(TOO_LONG.format(total=len(dataset), long=too_long))
            raise InputError(
                f"no links are left in {len(dataset)} sentence pairs. Check that source and target rows translate "
                "each other and that their languages are right, or name more text: an aligner learns little from few "
                "pairs."
            )
        if len(parts) > 1:
            order = np.argsort(np.concatenate(origin))
            concatenate_datasets(parts).select(order).flatten_indices(cache_file_name=f"{folder}/all.arrow")
        os.replace(f"{folder}/all.arrow" if len(parts) > 1 else f"{folder}/0.arrow", path)


def link_batch(
    batch: dict[str, list], linker: Linker, filters: LinkFilters, *, lowercase: bool, blanks: bool = False
) -> dict[str, list]:
    """Return the columns `source_words`, `target_words` and `links` of a batch of parallel text."""
    source, target = batch_words(batch, blanks=blanks)
    seen = (source, target)
    if lowercase:
        seen = (lower_words(source, batch["source_lang"]), lower_words(target, batch["target_lang"]))
    found = linker(*seen)
    links = [filters(*pair) for pair in zip(found, source, target, strict=True)]
    return {"source_words": source, "target_words": target, "links": links}


def _link_rows(
    dataset: Dataset,
    linker: Linker,
    desc: str,
    path: str,
    *,
    filters: LinkFilters,
    keep_unlinked: bool,
    lowercase: bool,
    blanks: bool,
) -> tuple[Dataset, np.ndarray]:
    """Link all rows and write those that stay to `path`; also return their numbers."""
    kept = array("q")

    def link(batch: dict[str, list], numbers: list[int]) -> dict[str, list]:
        batch |= link_batch(batch, linker, filters, lowercase=lowercase, blanks=blanks)
        links = batch["links"]
        rows = [row for row, own in enumerate(links) if own or keep_unlinked]
        kept.extend(numbers[row] for row in rows)
        return {column: [values[row] for row in rows] for column, values in batch.items()}

    words, links = List(Value("string")), List(List(Value("int32")))
    linked = dataset.with_format(None).map(
        link,
        batched=True,
        with_indices=True,
        features=Features({**dataset.features, "source_words": words, "target_words": words, "links": links}),
        cache_file_name=path,
        load_from_cache_file=False,
        new_fingerprint=hashlib.blake2b(path.encode(), digest_size=8).hexdigest(),  # avoids hashing the aligner
        desc=desc,
    )
    return linked, np.frombuffer(kept, dtype=np.int64)


def dictionary_linker(path: Path, pair: Pair, lowercase: bool) -> DictionaryLinker:
    """Return the linker of a dictionary file for a language pair."""
    entries, (source, target) = load_dictionary(path), pair
    return DictionaryLinker(
        [(lower_word(t, target), lower_word(s, source)) for t, s in entries] if lowercase else entries
    )


def parse_aligner(aligner: str, langs: Sequence[str]) -> tuple[str, dict[str, Path]]:
    """Return the kind of aligner, and the file of each source language if it reads files."""
    kind, _, path = aligner.partition(":")
    known = [*STATISTICAL_ALIGNERS, "pharaoh:PATH", "dictionary:PATH", "encoder"]
    if kind not in {name.split(":")[0] for name in known}:
        raise InputError(f"aligner={aligner!r} is none of {', '.join(known)}")
    if kind in STATISTICAL_ALIGNERS:
        import_thot()
    if kind not in ("pharaoh", "dictionary"):
        if path:
            raise InputError(f"aligner {kind!r} reads no files; {path} is for pharaoh or dictionary")
        return kind, {}
    if not path:
        raise InputError(f"aligner={aligner!r}: give {kind}:PATH")
    return kind, {lang: Path(path.replace("{lang}", lang)) for lang in langs}


def _rows_by_pair(dataset: Dataset, only: Pair | None = None) -> dict[Pair, np.ndarray]:
    """Return the ascending row numbers of each language pair, or of one that may have none."""
    rows: dict[Pair, list[np.ndarray]] = defaultdict(list, {} if only is None else {only: [np.zeros(0, dtype=int)]})
    for start, _, found in _batches_by_pair(dataset):
        for pair, own in found.items():
            if only in (None, pair):
                rows[pair].append((start + own).astype(np.int32))
    return {pair: np.concatenate(parts) for pair, parts in sorted(rows.items())}


def _batches_by_pair(dataset: Dataset, *columns: str) -> Iterator[tuple[int, Any, dict[Pair, np.ndarray]]]:
    """Yield Arrow batches of these columns, with the number of their first row and the rows of each language pair."""
    start = 0
    languages = ["source_lang", "target_lang"]
    for batch in scan_columns(dataset, *columns, *languages):
        source, target = (batch[column].combine_chunks().dictionary_encode() for column in languages)
        size = len(target.dictionary)
        codes = source.indices.to_numpy() * size + target.indices.to_numpy()
        found = {
            (source.dictionary[code // size].as_py(), target.dictionary[code % size].as_py()): (
                codes == code
            ).nonzero()[0]
            for code in np.unique(codes).tolist()
        }
        yield start, batch, found
        start += len(batch)


def file_digest(path: Path) -> str:
    """Return the digest of a file's content."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def encoder_digest(model: PreTrainedModel | None, tokenizer: PreTrainedTokenizerBase | None) -> list[str]:
    """Return the digests of an encoder's weights and of its tokenizer."""
    if model is None or tokenizer is None:
        raise InputError("aligner='encoder' needs model= and tokenizer=")
    from hf_xalign.data.encoding import word_tokenizer
    from hf_xalign.modeling.freezing import model_fingerprint

    parts = json.loads(word_tokenizer(tokenizer).backend_tokenizer.to_str())
    for setting in ("truncation", "padding"):  # left over from the last call of the tokenizer
        parts.pop(setting)
    parts["model_max_length"] = tokenizer.model_max_length
    return [model_fingerprint(model), hashlib.blake2b(json.dumps(parts).encode()).hexdigest()]
