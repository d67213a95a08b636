"""VecMap's self-learning with its dropout of similarities, and MUSE's refinement of a map."""

import logging
from importlib import import_module

import numpy as np
import pytest
import torch
from support import nearest
from support.maps import languages
from support.nearest import vectors
from support.numeric import assert_rounding, tolerance

from hf_xalign.mapping import refinement
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.refinement import refine
from hf_xalign.mapping.self_learning import Dropout, _search
from hf_xalign.mapping.vecmap import vecmap
from hf_xalign.modeling.maps import unit
from hf_xalign.search.csls import nearest_neighbours

# The package has the function under the name of its module.
self_learning = import_module("hf_xalign.mapping.self_learning")
learn = self_learning.self_learning

# A CSLS score in float32 on at most 6 dimensions: two lengths, a product, the mean of at most 5 neighbours, a sum.
SCORE = tolerance(2 * (2 * 6) + 2 * 6 + 5 + 2, 4.0, torch.float32)


def share_found(found, source, target, partner):
    here, _ = nearest_neighbours(found.project(source), found.project(target, "target"))
    return (here == partner).double().mean().item()


def mask(keep, rows=300, columns=400, seed=0):
    return Dropout(rows, columns, keep, torch.Generator().manual_seed(seed), torch.device("cpu"))


def test_the_share_kept():
    for keep in (0.1, 0.2, 0.5, 0.8):
        kept = (~mask(keep)(slice(None))).double()
        # Five standard deviations of a binomial.
        bound = 5 * (keep * (1 - keep)) ** 0.5
        assert abs(kept.mean() - keep) < bound / 120_000**0.5
        assert (kept.mean(1) - keep).abs().max() < bound / 400**0.5
        assert (kept.mean(0) - keep).abs().max() < bound / 300**0.5
    sign = (~mask(0.5)(slice(None))).double() * 2 - 1
    # Between rows, between columns, and around rectangles, which row-and-column hashes could get wrong.
    rectangles = sign[1:, 1:] * sign[:-1, :-1] * sign[1:, :-1] * sign[:-1, 1:]
    for product in (sign[1:] * sign[:-1], sign[:, 1:] * sign[:, :-1], rectangles):
        assert abs(product.mean()) < 5 / product.numel() ** 0.5


def test_any_part_is_part_of_the_whole_and_each_draw_is_another():
    drawn = mask(0.3)
    for size in (1, 7, 256):
        parts = [drawn(slice(start, start + size)) for start in range(0, 300, size)]
        assert torch.equal(torch.cat(parts), drawn(slice(None)))
    generator = torch.Generator().manual_seed(4)
    one, two = (Dropout(30, 40, 0.5, generator, torch.device("cpu"))(slice(None)) for _ in range(2))
    assert not torch.equal(one, two)
    assert torch.equal(one, mask(0.5, 30, 40, seed=4)(slice(None)))


@pytest.mark.numeric
@pytest.mark.parametrize("keep", [None, 0.3, 0.02])
def test_search_against_brute_force_whatever_the_parts_of_the_work(keep, monkeypatch):
    x, z = unit(vectors(7, 40, 6) + 0.3), unit(vectors(8, 30, 6))
    dropout = keep and Dropout(40, 30, keep, torch.Generator().manual_seed(1), x.device)
    cosine, scores = nearest.scores(x, z, "cosine"), nearest.scores(x, z)
    mean_best = np.mean([cosine.max(axis).mean() for axis in (1, 0)])  # whatever is dropped
    assert all(np.diff(np.sort(side)[:, -2:]).min() > 2 * SCORE for side in (scores, scores.T)), "a near tie"
    if dropout:
        scores[dropout(slice(None)).numpy()] = -np.inf
    dense = [(scores.max(axis) > -np.inf).tolist() for axis in (1, 0)]
    assert all(map(all, dense)) == (keep != 0.02), "the smallest share leaves words with nothing"
    for kept in (0, 2**26):
        for rows in (7, 16, 256):
            monkeypatch.setattr(self_learning, "_ROWS", rows)
            monkeypatch.setattr(self_learning, "_KEPT", kept)
            found, objective = _search(x, z, dropout)
            assert_rounding(objective, mean_best, operations=2 * (2 * 6) + 2 * 6, scale=1.0, dtype=torch.float32)
            for side, index, axis in zip(dense, found, (1, 0)):
                best = scores.argmax(axis).tolist()
                assert index.tolist() == [n if any_left else -1 for n, any_left in zip(best, side)], (kept, rows)


def test_the_largest_of_each_column():
    for rows in (1, 3, 50, 163, 200, 203):
        values = vectors(9, rows, 30)
        values[: rows // 2] = values[rows - rows // 2 :]  # every value twice
        wanted = values.sort(0, descending=True).values[:10]
        assert torch.equal(self_learning._largest(values, 10), wanted)


def seeds(partner, count=25):
    return torch.stack([torch.arange(count), partner[:count]], 1)


@pytest.mark.parametrize("whiten", [True, False])
def test_a_planted_rotation_from_a_few_seeds(whiten):
    source, target, partner = languages(noise=0.7, order=True)
    given = source[:22], target[partner[:22]]
    alone = vecmap(*given, whiten=False, source_candidates=source, target_candidates=target)
    found = learn(source, target, seeds(partner, 22), whiten=whiten, patience=10)
    assert share_found(alone, source, target, partner) < 0.9
    assert share_found(found, source, target, partner) > 0.97


@pytest.mark.numeric
def test_the_last_step_is_vecmap_on_the_induced_dictionary():
    source, target, partner = (side.double() for side in languages(noise=0.0))
    options = {"patience": 2, "cutoff": 200}
    # Without noise the dictionary is the truth; a union holds every pair twice.
    twice = torch.arange(200).repeat(2)
    wanted = vecmap(source[twice], target[twice], source_candidates=source, target_candidates=target)
    expected = wanted.project(source) @ wanted.project(target, "target").T
    normal = wanted.source.normalize(source[:200].unsqueeze(1))[:, 0]
    condition = 2 * torch.linalg.cond(normal).item() ** 2
    found = learn(source, target, seeds(partner.long(), 20), **options)
    assert found.method == wanted.method
    ours = found.project(source) @ found.project(target, "target").T
    assert_rounding(ours, expected, operations=2 * 400 + 4 * 20**2, scale=condition * expected.abs().max().item())


def test_deterministic_under_autocast_too_and_the_seed_matters(caplog):
    source, target, partner = languages(noise=1.0)
    options = {"patience": 3, "max_iterations": 12}
    wanted, again = (learn(source, target, seeds(partner, 20), **options).source.weight for _ in range(2))
    assert torch.equal(wanted, again)
    assert "12 turns, not converged (keep=" in caplog.text
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(learn(source, target, seeds(partner, 20), **options).source.weight, wanted)
    other = learn(source, target, seeds(partner, 20), seed=1, **options).source.weight
    assert (other - wanted).abs().max() > 1e-2


def test_the_share_doubles_when_stuck_and_the_loop_ends_with_all(monkeypatch):
    seen = []
    # The objective rises with the first three turns, by less than the threshold in the fourth, and then never.
    rises = [0.1, 0.2, 0.3, 0.3 + 5e-7]

    def search(x, z, dropout):
        neighbours, _ = _search(x, z, dropout)
        seen.append(2**32 if dropout is None else dropout.last_kept + 2**31 + 1)
        return neighbours, rises.pop(0) if rises else 0.3

    monkeypatch.setattr(self_learning, "_search", search)
    source, target, partner = languages()
    learn(source, target, seeds(partner), patience=5)
    shares = [0.1] * 8 + [0.2] * 5 + [0.4] * 5 + [0.8] * 5 + [1.0] * 5
    assert seen == [round(share * 2**32) for share in shares]


@pytest.mark.gpu
def test_gpu_equals_cpu():
    source, target, partner = languages()
    found = learn(source.cuda(), target.cuda(), seeds(partner), patience=5)
    assert found.source.weight.is_cuda
    assert share_found(found, source.cuda(), target.cuda(), partner.cuda()) > 0.97


def noisy(words=300, wrong=0.8):
    """The target word of each source word; a share of the pairs is wrong."""
    rows = torch.arange(words)
    count = int(wrong * words)
    rows[:count] = rows[torch.randperm(count, generator=torch.Generator().manual_seed(3))]
    return rows


def mutual(mapped, target):
    """Rows of the mutual nearest neighbours of both sides."""
    here, there = nearest_neighbours(mapped, target)
    rows = torch.arange(len(here))[there[here] == torch.arange(len(here))]
    return rows, here[rows]


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
    here, there = mutual(start.project(source)[:150], target[:150])
    same_rotation(found, source[here] - start.source.means[0][0], target[there] - start.source.offset[0])

    start = procrustes(source, target[noisy()])
    monkeypatch.setattr(refinement, "_mean_cosine", lambda *_: 0.0)
    assert refine(source, target, start, iterations=2) is start, "no turn is better than the map given"
    scores = [0.5, 0.7, 0.9, 0.6]  # of the map given and of three turns
    monkeypatch.setattr(refinement, "_mean_cosine", lambda *_: scores.pop(0))
    best, current = refine(source, target, start, iterations=3), start
    for _ in range(2):
        here, there = mutual(current.project(source), target)
        current = procrustes(source[here], target[there])
    same_rotation(best, source[here], target[there])


def test_few_mutual_pairs_are_warned_about(caplog):
    source, target, _ = languages()
    with caplog.at_level(logging.WARNING):
        refine(source, target, procrustes(source, target), cutoff=10)
    assert "mutual pairs do not fix a rotation of 20 dimensions" in caplog.text
