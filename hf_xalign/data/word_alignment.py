"""Word links for parallel text: by a statistical aligner, a file, a dictionary, or an encoder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, Features, List, Value, concatenate_datasets
from filelock import FileLock
from tqdm.auto import tqdm

from hf_xalign.cache import cache_dir
from hf_xalign.data.dictionary import DictionaryLinker, load_dictionary
from hf_xalign.data.pharaoh import PharaohReader
from hf_xalign.data.statistical_alignment import STATISTICAL_ALIGNERS, StatisticalLinker
from hf_xalign.data.symmetrization import LinkFilters, Symmetrization, heuristic
from hf_xalign.data.words import batch_words, splitter_version
from hf_xalign.errors import InputError

if TYPE_CHECKING:
    # At run time where they are used: hf_xalign.modeling brings torch and peft, which no other aligner needs.
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_xalign.data.neural_alignment import LinkMethod

logger = logging.getLogger(__name__)

_VERSION = 1  # raise it when the same call may give other links: cached ones are then made anew
_COLUMNS = ("source", "target", "source_lang", "target_lang")

Pair = tuple[str, str]
"""Source and target language."""
Linker = Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], Sequence[Sequence[Sequence[int]]]]
"""Takes the words of consecutive sentence pairs and gives their links."""


def align_words(
    dataset: Dataset,
    aligner: str = "fast_align",
    symmetrization: Symmetrization = "intersection",
    one_to_one: bool = True,
    drop_identical: bool = False,
    *,
    require_letter: bool = False,
    keep_unlinked: bool = False,
    lowercase: bool = True,
    extra_data: Dataset | None = None,
    sample_size: int = 1_000_000,
    seed: int = 0,
    deterministic: bool = True,
    files: Mapping[str, str | Path] | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    layer: int | None = None,
    method: LinkMethod = "argmax",
    batch_size: int = 64,
) -> Dataset:
    """Split parallel text into words and link those that translate each other.

    Words are the columns `source_words` and `target_words` where the dataset has both, else those of [`split_words`];
    with a Pharaoh file, whose maker saw words between blanks, they are these. Each language pair gets a statistical
    aligner of its own, fitted on a sample; then all rows are linked in batches. The result is memory-mapped from the
    user's cache, and the same call on the same data only opens it again.

    Args:
        dataset: columns `source`, `target`, `source_lang`, `target_lang`; any others are kept.
        aligner: `fast_align`, `hmm`, `ibm1` to `ibm4` or `eflomal` (statistical); `pharaoh:PATH` (existing links, one
            line a row of the dataset); `dictionary:PATH` (MUSE format, unambiguous matches only); `encoder` (word
            vectors of `model`). A PATH may hold `{lang}`, which stands for the source language: a file a language.
        symmetrization: `intersection`, `union`, `grow-diag` or `grow-diag-final-and`, of the two directions that the
            statistical aligners and the encoder have.
        one_to_one: a word with two links loses all its links.
        drop_identical: drop links between identical strings, after `one_to_one`.
        require_letter: drop links of words without a letter, last.
        keep_unlinked: keep pairs that have no link; they are dropped otherwise.
        lowercase: statistical aligners and dictionaries see lower-cased words. The columns keep their case.
        extra_data: more parallel text to fit statistical aligners on, not to link.
        sample_size: sentence pairs of a language pair that its statistical aligner is fitted on at most.
        seed: of the sample, and of eflomal.
        deterministic: fit statistical aligners on one core, so that the links are the same in every run.
        files: instead of a PATH with `{lang}`: source language -> file, with aligner `pharaoh` or `dictionary`.
        model: the encoder of aligner `encoder`.
        tokenizer: its fast tokenizer.
        layer: position in `hidden_states`; default two thirds of the depth.
        method: of the encoder, see [`encoder_links`].
        batch_size: sentences a forward pass of the encoder.

    Returns:
        The linked pairs in their order, with `source_words`, `target_words` and `links` (lists of [i, j]).

    Raises:
        InputError: a column, file, model or segmenter is missing; an option or a file is malformed; no link is left.
    """
    heuristic(symmetrization)
    kind, paths = _parse_aligner(aligner, files)
    _check_columns(dataset, "the dataset")
    if extra_data is not None:
        _check_columns(extra_data, "extra_data")
    if not len(dataset):
        raise InputError("the dataset has no rows, so there is nothing to link")
    if kind == "encoder" and (model is None or tokenizer is None):
        raise InputError("aligner='encoder' needs model= and tokenizer=")
    filters = LinkFilters(one_to_one, drop_identical, require_letter)
    encoder: dict[str, Any] = {"layer": layer, "method": method, "batch_size": batch_size}
    by_pair = _rows_by_pair(dataset)
    groups = _groups(by_pair, kind, paths)
    lowercase = lowercase and kind != "encoder"

    def make_linker(pair: Pair, rows: np.ndarray) -> Linker:
        """The linker of one group of rows."""
        if kind == "encoder":
            from hf_xalign.data.neural_alignment import encoder_links

            return partial(encoder_links, model, tokenizer, symmetrization=symmetrization, **encoder)
        if kind == "pharaoh":
            return PharaohReader(paths[pair[0]], len(rows))
        if kind == "dictionary":
            entries = load_dictionary(paths[pair[0]])
            return DictionaryLinker([(t.lower(), s.lower()) for t, s in entries] if lowercase else entries)
        sample = _sample(dataset, rows, extra_data, pair, sample_size, seed)
        return StatisticalLinker(
            kind,
            _read_words(sample, lowercase, f"reading {'-'.join(pair)}"),
            symmetrization=symmetrization,
            seed=seed,
            deterministic=deterministic,
            desc=f"{kind} {'-'.join(pair)}",
        )
    ...
