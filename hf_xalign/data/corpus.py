"""Text of a training run: read from several sources, each with its entry in the record, compared, and drawn."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow.compute
from datasets import Dataset

from hf_xalign.data.arrow import count_languages, scan_columns
from hf_xalign.data.parallel import describe_pair

logger = logging.getLogger(__name__)


def warn_of_mixed_texts(train: Dataset, test: Dataset) -> None:
    """Warn of held-out pairs that are trained on too, and of languages that only one of the texts has."""
    held_out = pyarrow.concat_arrays(list(_texts(test)))
    shared = (text.filter(pyarrow.compute.is_in(text, value_set=held_out)) for text in _texts(train))
    in_both = pyarrow.concat_arrays(list(shared))
    if count := pyarrow.compute.is_in(held_out, value_set=in_both).true_count:
        logger.warning(
            "%s of the %s held-out pairs are in the training text too, so that the scores say less about new text",
            f"{count:,}",
            f"{len(test):,}",
        )
    trained, counts = sorted(count_languages(train)), count_languages(test)
    for language in sorted(counts.keys() - set(trained)):
        trained_codes = ", ".join(trained)
        logger.warning(
            "%s held-out pairs are in %s: no training pair is, only %s", counts[language], language, trained_codes
        )
    if unscored := sorted(set(trained) - counts.keys()):
        logger.warning("no held-out pair is in %s, so it has no scores: give some by eval_data", ", ".join(unscored))


def _texts(pairs: Dataset) -> Iterator[Any]:
    for batch in scan_columns(pairs, "source", "target"):
        sides = (batch[name].combine_chunks() for name in ("source", "target"))
        yield pyarrow.compute.binary_join_element_wise(*sides, "\t")


def first_pairs(pairs: Dataset) -> list[str]:
    """Describe the first pair of each source language, one line each, and which side is the pivot."""
    first_rows: dict[str, int] = {}
    start = 0
    for batch in scan_columns(pairs, "source_lang"):
        codes = batch["source_lang"].combine_chunks()
        for code in codes.unique().to_pylist():
            first_rows.setdefault(code, start + codes.index(code).as_py())
        start += len(codes)
    return [f"first    {describe_pair(pairs[row])}" for _, row in sorted(first_rows.items())]


def draw_pairs(
    text: Dataset,
    usable: np.ndarray,
    sources: Sequence[dict[str, Any]],
    max_pairs: int | None,
    seed: int,
    draw: Literal["first", "seed"] = "seed",
) -> Dataset:
    """Select the pairs that the filters kept, bool (rows,), or of each source the first of them or a seeded draw.

    A larger draw holds a smaller one of the same seed. The sources' entries get `draw` and the numbers of pairs drawn.
    """
    if max_pairs is None and usable.all():
        return text  # its indices would need more memory than all else
    chosen, start = [], 0
    for number, entry in enumerate(sources):
        rows = start + np.flatnonzero(usable[start : start + entry["pairs"]])
        start += entry["pairs"]
        if max_pairs is not None:
            drawn = rows if draw == "first" else np.random.default_rng([seed, number]).permutation(rows)
            rows = np.sort(drawn[:max_pairs])
            if len(rows) < max_pairs:
                logger.warning(
                    "%s: all %s pairs are used: %s were asked for", entry["source"], f"{len(rows):,}", f"{max_pairs:,}"
                )
            entry |= {"pairs": len(rows), "draw": draw}
        chosen.append(rows)
    return text.select(np.concatenate(chosen))
