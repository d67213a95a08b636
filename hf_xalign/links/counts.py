"""Numbers of sentence pairs and links of word-aligned text, by language pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Dataset

from hf_xalign.data.arrow import scan_columns

LANGUAGES = ["source_lang", "target_lang"]

Pair = tuple[str, str]
"""Source and target language."""


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
    counts = count_links(scan_columns(linked, "links", *LANGUAGES))
    total = counts if before is None else count_links(scan_columns(before, *LANGUAGES))
    return {
        "-".join(pair): LinkStatistics(*counts[pair], None if before is None else total[pair][0] - counts[pair][0])
        for pair in total
    }


def count_links(tables: Iterable[pyarrow.Table | pyarrow.RecordBatch]) -> dict[Pair, tuple[int, int]]:
    """Return the numbers of sentence pairs and of links (if there is a column `links`) by language pair, sorted."""
    by_pair: dict[Pair, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for table in tables:
        links = pyarrow.nulls(len(table), pyarrow.int32())
        if "links" in table.schema.names:
            links = pyarrow.compute.list_value_length(table["links"])
        grouped = pyarrow.table([table["source_lang"], table["target_lang"], links], [*LANGUAGES, "links"])
        for row in grouped.group_by(LANGUAGES).aggregate([([], "count_all"), ("links", "sum")]).to_pylist():
            pair = row["source_lang"], row["target_lang"]
            pairs, count = by_pair[pair]
            # The sum of nulls alone is null.
            by_pair[pair] = pairs + row["count_all"], count + (row["links_sum"] or 0)
    return defaultdict(lambda: (0, 0), sorted(by_pair.items()))


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
