"""MUSE's refinement of a map."""

from __future__ import annotations

import logging

import pytest
import torch
from support.numeric import assert_rounding
from support.vocabularies import languages, mutual_pairs, share_found

from hf_xalign.mapping import refinement
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.refinement import refine
from hf_xalign.mapping.vecmap import vecmap


def noisy(words=300, wrong=0.8):
    """The target word of each source word; a share of the pairs is wrong."""
    rows = torch.arange(words)
    count = int(wrong * words)
    rows[:count] = rows[torch.randperm(count, generator=torch.Generator().manual_seed(3))]
    return rows


def same_rotation(found, x, z):
    """`found` is the rotation of these pairs: solved in float64, with the condition number of their product."""
    wanted = procrustes(x, z).source.weight
    assert x.dtype == torch.float64
    condition = torch.linalg.cond(z.T @ x).item()
    assert_rounding(found.source.weight, wanted, operations=2 * len(x) + 4 * 20**2, scale=condition)


def test_it_improves_a_noisy_map():
    source, target, partner = languages(noise=0.5)
    rows = noisy()
    for start in (
        procrustes(source, target[rows]),
        procrustes(source, target[rows], centre=True),
        vecmap(source, target[rows], whiten=False),
    ):
        found = refine(source, target, start, iterations=8)
        before, after = (share_found(each, source, target, partner) for each in (start, found))
        assert before < 0.7 and after > 0.97, (before, after)
        assert found.method == f"{start.method}, refined"
        assert (found.source.steps, found.layers) == (start.source.steps, start.layers)


@pytest.mark.numeric
def test_each_turn_is_procrustes_on_mutual_neighbours_and_the_best_is_returned(monkeypatch):
    source, target = (side.double() for side in languages(noise=0.5)[:2])
    start = procrustes(source, target[noisy()], centre=True)
    found = refine(source, target, start, iterations=1, cutoff=150)
    pairs = mutual_pairs(start.project(source)[:150], target[:150])
    x, z = source[pairs[:, 0]] - start.source.means[0][0], target[pairs[:, 1]] - start.source.offset[0]
    same_rotation(found, x, z)

    start = procrustes(source, target[noisy()])
    monkeypatch.setattr(refinement, "_mean_cosine", lambda *_: 0.0)
    assert refine(source, target, start, iterations=2) is start, "no turn is better than the map given"
    scores = [0.5, 0.7, 0.9, 0.6]  # of the map given and of three turns
    monkeypatch.setattr(refinement, "_mean_cosine", lambda *_: scores.pop(0))
    best, current = refine(source, target, start, iterations=3), start
    for _ in range(2):
        pairs = mutual_pairs(current.project(source), target)
        x, z = source[pairs[:, 0]], target[pairs[:, 1]]
        current = procrustes(x, z)
    same_rotation(best, x, z)


def test_few_mutual_pairs_are_warned_about(caplog):
    source, target, _ = languages()
    with caplog.at_level(logging.WARNING):
        refine(source, target, procrustes(source, target), cutoff=10)
    assert "mutual pairs do not fix a rotation of 20 dimensions" in caplog.text
