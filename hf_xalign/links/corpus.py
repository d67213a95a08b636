"""Word-align the pairs of a training run, and draw from those with links."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow.compute
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import map_rows
from hf_xalign.data.corpus import draw_pairs
from hf_xalign.data.mapped import scan_columns
from hf_xalign.data.words import split_pairs
from hf_xalign.errors import InputError
from hf_xalign.links.align import LinkStatistics, align_words, link_statistics
from hf_xalign.links.symmetrization import Symmetrization

logger = logging.getLogger(__name__)


def link_and_draw(
    pairs: Dataset,
    sources: Sequence[dict[str, Any]],
    aligner: str = "fast_align",
    symmetrization: Symmetrization = "intersection",
    one_to_one: bool = True,
    drop_identical: bool = False,
    *,
    links: bool = True,
    subwords: PreTrainedTokenizerBase | None = None,
    max_pairs: int | None = None,
    draw: Literal["first", "seed"] = "seed",
    seed: int = 0,
    extra_data: Dataset | None = None,
    encoder: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
) -> tuple[Dataset, dict[str, dict[str, Any]], str]:
    """Word-align pairs, unless they have links, and keep those with links, or draw from these.

    Aligners are fitted on all pairs, also where only some are drawn.

    Args:
        pairs: sentence pairs of [`~hf_xalign.data.corpus.load_parts`].
        sources: its entries, which get the numbers of pairs drawn.
        aligner: as in [`align_words`], and so are the next three and `extra_data`.
        symmetrization: of a statistical aligner or the encoder.
        one_to_one: drop all links of a word that has several.
        drop_identical: drop links of identical words.
        links: False for a loss that reads none: all pairs stay, without links.
        subwords: tokenizer whose tokens are linked, not words.
        max_pairs: largest number of pairs of each source.
        draw: take the `first` of them, or a draw by `seed`.
        seed: seed of the draw and of the aligner.
        extra_data: more text to fit aligners on.
        encoder: model and tokenizer of the aligner `encoder`.

    Returns:
        The pairs, with links; the record's numbers of their links, of [`link_entries`]; and what linked them.

    Raises:
        InputError: as [`align_words`], or for subwords of pairs that have words.
    """
    if encoder and max_pairs is not None:
        # The encoder links each pair alone, and slowly: it sees a tenth more pairs than are wanted, not all.
        most = max_pairs * 11 // 10 + 100
        if any(entry["pairs"] > most for entry in sources):
            pairs = draw_pairs(pairs, np.ones(len(pairs), dtype=bool), sources, most, seed, draw)
    if subwords is not None:
        if "source_words" in pairs.column_names:
            raise InputError(
                "subword_links=true links tokens, and train_data has words of its own. Name text without words."
            )
        pairs, extra_data = (
            part and map_rows(part, _subwords, fn_kwargs={"tokenizer": subwords}, desc="Splitting subwords")
            for part in (pairs, extra_data)
        )
    if "links" in pairs.column_names:
        linked, by = pairs, "given" if links else "none"
        if links and drop_identical:
            logger.warning("drop_identical=true: train_data has links of its own, which all stay")
    elif links:
        by = aligner.partition(":")[0]
        rules = (aligner, symmetrization, one_to_one, drop_identical)
        model, tokenizer = encoder or (None, None)
        linked = align_words(
            pairs, *rules, keep_unlinked=True, extra_data=extra_data, seed=seed, model=model, tokenizer=tokenizer
        )
    else:
        linked, by = split_pairs(pairs), "none"
    usable = has_links(linked) if links else np.ones(len(pairs), dtype=bool)
    chosen = draw_pairs(linked, usable, sources, max_pairs, seed, draw)
    # A pass over millions of pairs takes seconds.
    dropped = {} if usable.all() else link_statistics(linked.select(np.flatnonzero(usable)), linked)
    return chosen, link_entries(link_statistics(chosen), dropped), by


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
