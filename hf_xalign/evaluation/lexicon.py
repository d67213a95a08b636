"""Bilingual lexicon induction: is a word's translation among its nearest words of the other language?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_xalign.checks import check_lengths, check_range
from hf_xalign.errors import InputError
from hf_xalign.search.csls import Similarity, as_tensor
from hf_xalign.search.ranking import nearest
from hf_xalign.statistics.significance import interval


def lexicon_induction(
    source_vectors: Tensor | ArrayLike,
    target_vectors: Tensor | ArrayLike,
    source_words: Sequence[str],
    target_words: Sequence[str],
    entries: Iterable[Sequence[str]],
    *,
    more: Iterable[Sequence[str]] = (),
    ks: Sequence[int] = (1, 5, 10),
    similarity: Similarity = "csls",
    k: int = 10,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, float | int]:
    """Compute precision at K of translating a test dictionary's source words into the whole target vocabulary.

    A word is correct at K if any of its gold translations is among its K nearest target words. Under CSLS, r(x) is
    taken over all target words and r(y) over all source words, as in MUSE and fastText. Equal scores are ranked in the
    order of `target_words`.

    Published figures treat words outside the vocabularies in two ways; both are returned:

    - `p@K` as in MUSE (`evaluation/word_translation.py`): an entry counts only if both of its words have a vector.
    - `p@K_oov_wrong` as in fastText (`alignment/eval.py`): a source word is wrong if it has no vector, or none of its
      gold translations has one.

    `p@K` rises if a vocabulary loses hard words; `p@K_oov_wrong` falls with the coverage. So compare systems on
    vocabularies of the same text, and report the coverage.

    Args:
        source_vectors: (Ns, D) floats, one row per word, already mapped to the target space.
        target_vectors: (Nt, D) floats.
        source_words: the Ns words, each once.
        target_words: the Nt words, each once; all of them are candidates.
        entries: (source word, target word) pairs; repeat the source word for several translations. Words are matched
            exactly: lower-case the vocabularies for a lower-cased dictionary (MUSE's).
            [`~hf_xalign.data.readers.dictionaries.load_dictionary`] gives (English word, other word).
        more: further entries, such as those learnt from. Their translations of the test's source words are right too.
        ks: values of K.
        similarity: "csls" or "cosine".
        k: neighbourhood size of CSLS.
        bootstrap: resamples of the 95% percentile intervals over source words; 0 for none.
        seed: random seed of the resampling.

    Returns:
        For each K the fractions `p@K` and `p@K_oov_wrong`, with interval bounds `p@K_low`, `p@K_high`,
        `p@K_oov_wrong_low` and `p@K_oov_wrong_high`. `coverage`: share of entries with two vectors. `coverage_words`:
        share of the dictionary's source words that `p@K` counts. Counts: `entries`, `entries_covered`, `test_words`
        (the dictionary's source words), `queries` (those in `p@K`), `source_vocabulary`, `target_vocabulary`.

    Raises:
        InputError: no entry has both words in the vocabularies; an entry is not a pair; the numbers of words and
            vectors differ; a word is repeated; a row has NaN or infinity; or an option is out of range.

    Example:
        >>> entries = [("Hund", "dog"), ("Hund", "hound"), ("Katze", "cat"), ("Uhu", "owl")]
        >>> vectors = {"source_vectors": [[1.0, 0.1], [0.1, 1.0]], "target_vectors": [[0.9, 0.2], [0.2, 0.9]]}
        >>> scores = lexicon_induction(
        ...     **vectors, source_words=["Hund", "Katze"], target_words=["dog", "cat"], entries=entries, ks=(1,)
        ... )
        >>> scores["p@1"], round(scores["p@1_oov_wrong"], 3), scores["coverage"]
        (1.0, 0.667, 0.5)
    """
    check_range(least=1, ks=tuple(ks))
    source, target = as_tensor(source_vectors), as_tensor(target_vectors)
    source_row, target_row = _rows(source_words, len(source), "source"), _rows(target_words, len(target), "target")
    pairs = dict.fromkeys((word, translation) for word, translation in entries)  # without repetitions
    covered = [pair for pair in pairs if pair[0] in source_row and pair[1] in target_row]
    if not covered:
        raise InputError(
            f"lexicon induction: none of {len(pairs)} entries has both words in the vocabularies. Check that entries "
            "are (source word, target word), compute vectors from more text, or lower-case the vocabularies to match "
            "the dictionary."
        )
    test_words = len({word for word, _ in pairs})
    golds: dict[int, set[int]] = defaultdict(set)
    for word, translation in covered:
        golds[source_row[word]].add(target_row[translation])
    for word, translation in more:
        if source_row.get(word) in golds and translation in target_row:
            golds[source_row[word]].add(target_row[translation])
    queries = torch.tensor(list(golds), device=source.device)
    ranked = nearest(source[queries], target, max(ks), similarity=similarity, k=k, neighbourhood=source)
    lists = ranked.indices.tolist()
    scores: dict[str, float | int] = {}
    for depth in ks:
        right = np.array([not gold.isdisjoint(row[:depth]) for gold, row in zip(golds.values(), lists)], dtype=float)
        # fastText counts a source word without a vector as wrong, and MUSE leaves it out.
        everything = np.concatenate([right, np.zeros(test_words - len(right))])
        for name, values in ((f"p@{depth}", right), (f"p@{depth}_oov_wrong", everything)):
            scores[name] = float(values.mean())
            if bootstrap:
                scores[f"{name}_low"], scores[f"{name}_high"] = interval(values, resamples=bootstrap, seed=seed)
    return scores | {
        "coverage": len(covered) / len(pairs),
        "coverage_words": len(golds) / test_words,
        "entries": len(pairs),
        "entries_covered": len(covered),
        "test_words": test_words,
        "queries": len(golds),
        "source_vocabulary": len(source),
        "target_vocabulary": len(target),
    }


def _rows(words: Sequence[str], vectors: int, side: str) -> dict[str, int]:
    check_lengths("row", **{f"{side}_words": words, f"{side}_vectors": range(vectors)})
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        first = rows.setdefault(word, row)
        if first != row:
            raise InputError(
                f"{side} words: {word!r} is in rows {first} and {row}. Keep one, such as the more frequent one."
            )
    return rows
