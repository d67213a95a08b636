"""Precision, recall and alignment error rate of predicted word links (Och & Ney 2003, section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hf_xalign.checks import check_lengths

Links = Iterable[Sequence[int]]


def alignment_error_rate(
    predictions: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> dict[str, float]:
    """Score predicted links A against sure links S and possible links P, counted over all sentence pairs.

        precision = |A ∩ P| / |A|,   recall = |A ∩ S| / |S|,   AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    Each argument holds the links [i, j] of each sentence pair; a repeated link counts once. Sure links are always
    possible; by default no others are, and f1 = 1 - AER. Without predictions, precision is 0. Without any sure link,
    recall is undefined, and a ZeroDivisionError is raised.
    """
    check_lengths("sentence pair", predictions=predictions, sure=sure, possible=possible)
    predicted, must = _flat(predictions), _flat(sure)
    may = must | _flat(possible) if possible is not None else must
    in_sure, in_possible = len(predicted & must), len(predicted & may)
    precision = in_possible / len(predicted) if predicted else 0.0
    recall = in_sure / len(must)
    return {
        "precision": precision,
        "recall": recall,
        "alignment_error_rate": 1 - (in_sure + in_possible) / (len(predicted) + len(must)),
        "f1": 2 * precision * recall / (precision + recall) if in_possible and in_sure else 0.0,
    }


def _flat(rows: Sequence[Links]) -> set[tuple[int, int, int]]:
    """Collect all links as (sentence pair, i, j)."""
    flat: set[tuple[int, int, int]] = set()
    for row, links in enumerate(rows):
        flat.update((row, int(i), int(j)) for i, j in links)
    return flat
