"""Evaluation links, which are made once in a fixed way and kept in a file."""

from __future__ import annotations

import json
from pathlib import Path

from datasets import Dataset
from pyarrow import ArrowException

from hf_xalign.cache import map_rows, replacing
from hf_xalign.data.load import as_parallel, note_sources
from hf_xalign.data.parallel import LINKED, check_columns, distinct_pairs, only_language
from hf_xalign.data.readers.files import TABLES, file_format, read_jsonl
from hf_xalign.data.sides import warn_of_pairs
from hf_xalign.errors import InputError, explained
from hf_xalign.links.align import align_words
from hf_xalign.links.symmetrization import LinkFilters
from hf_xalign.record import EVAL_LINKS

ALL_LINKS = "all_links"
FITTED = 100_000  # pairs per language pair to fit on; a million would take ten minutes and a gigabyte


def make_evaluation_links(test: Dataset, train: Dataset | None = None) -> Dataset:
    """Link test text for the headline score, with fast_align fitted on `test` and `train`.

    It is fitted on at most 100,000 lower-cased pairs per language pair, in five iterations; links are intersected and
    1-to-1. In `links`, both words have a letter and differ; `all_links` also has links of identical words, numbers and
    punctuation. Pairs without a link are kept, because their words are candidates of the all-occurrences pool. Pairs
    that repeat a sentence are left out, because one of two equal words would always count as wrong.
    """
    linked = distinct_pairs(align_words(test, keep_unlinked=True, extra_data=train, sample_size=FITTED))
    linked = map_rows(linked, _choose_links, desc="Choosing evaluation links")
    if not any(linked["links"][:]):
        advice = "Check that source and target translate each other, and add more text"
        raise InputError(f"no links between different words are left in {len(test)} sentence pairs. {advice}.")
    return linked


def _choose_links(batch: dict[str, list]) -> dict[str, list]:
    chosen = LinkFilters(one_to_one=False, drop_identical=True, require_letter=True)
    rows = zip(batch["links"], batch["source_words"], batch["target_words"])
    return {ALL_LINKS: batch["links"], "links": [chosen(*row) for row in rows]}


def keep_links(dataset: Dataset, folder: Path) -> dict[str, str]:
    """Write the evaluation links of a run into its folder, as JSON Lines; return `{"evaluation links": file}`."""
    path = folder / EVAL_LINKS
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        for row in dataset.select_columns([name for name in (*LINKED, ALL_LINKS) if name in dataset.column_names]):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return {"evaluation links": str(path)}


def read_links(path: str | Path) -> Dataset:
    """Read the pairs of a file of [`keep_links`] that repeat no sentence; an InputError names the first bad row."""
    # As `align-words` writes them: JSON Lines, or a shard.
    read = TABLES.get(file_format(Path(path)), read_jsonl)
    with explained(f"{path}: a column holds values of several kinds", ArrowException):
        rows = Dataset.from_list([record for _, record in read(Path(path)) if record])
    check_columns(rows, LINKED, str(path), "Make the evaluation links again.")
    only_language(rows, "target_lang", str(path))
    pairs = distinct_pairs(as_parallel(rows, str(path)))
    warn_of_pairs(pairs, str(path))
    pairs = pairs.select_columns([column for column in (*LINKED, ALL_LINKS) if column in pairs.column_names])
    return note_sources(pairs, [{"source": str(path), "hub_id": None, "pairs": len(pairs)}])
