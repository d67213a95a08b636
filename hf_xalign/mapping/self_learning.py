"""VecMap's self-learning from a small seed dictionary (Artetxe, Labaka and Agirre 2017, 2018b).

The loop follows the first paper (ACL 2017), the rest "A robust self-learning method" (ACL 2018, section 3.3).
"""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor

from hf_xalign.environment import progress
from hf_xalign.mapping.vecmap import DEFAULT_STEPS, enough_words, step_means, take_steps, vecmap
from hf_xalign.modeling.maps import LanguageMap, unit
from hf_xalign.search.csls import Neighbours, index_pairs, largest, plain_float32

logger = logging.getLogger(__name__)

# Rows of the similarity matrix at a time: a fast product, and few enough for the processor's cache.
_ROWS = 512
_K = 10  # neighbours in the mean r of CSLS
_PROGRESS = 1e-6  # smallest rise of the objective that counts as progress
# Largest similarity matrix (256 MiB) that stays in memory between the two passes.
_KEPT = 2**26


@torch.no_grad()
def self_learning(
    source: Tensor,
    target: Tensor,
    seed_pairs: Tensor,
    *,
    whiten: bool = True,
    cutoff: int = 20_000,
    keep: float = 0.1,
    patience: int = 50,
    max_iterations: int = 2000,
    seed: int = 0,
    layers: tuple[int, ...] = (-1,),
) -> LanguageMap:
    """Learn a map from a small seed dictionary, by alternately learning a rotation and finding pairs with it.

    Each iteration searches a random share `keep` of the similarities, which helps to leave poor solutions. After
    `patience` iterations without progress the share doubles. The loop ends when searching all similarities brings no
    progress, and [`~hf_xalign.mapping.vecmap.vecmap`] learns the map from the last dictionary. Progress is a rise of
    the mean best cosine without dropout, over the words of both languages. (The paper sets dropped similarities to 0.
    CSLS can be negative, so here dropped entries are excluded from the search.)

    Args:
        source: float (words, dim), source vectors of one layer, most frequent word first.
        target: float (words, dim), target vectors of one layer, most frequent word first.
        seed_pairs: int64 (pairs, 2), rows of `source` and `target` that translate each other; about 25 can be enough.
        whiten: whiten in the last step, see [`~hf_xalign.mapping.vecmap.vecmap`]; the loop only rotates.
        cutoff: number of words of each language in the search.
        keep: initial share of similarities in the search; 1 means no dropout (the loop of 2017).
        patience: iterations without progress before the share doubles or the loop ends.
        max_iterations: maximum number of iterations; the log warns if it ends the loop.
        seed: seed of the dropout, which drops the same entries on every device.
        layers: layer number of the vectors.

    Raises:
        InputError: there are no seed pairs, a pair is out of range, or `whiten` has fewer words than dimensions.

    Example:
        >>> import torch
        >>> source = torch.randn(100, 16, generator=torch.Generator().manual_seed(0))
        >>> seeds = torch.arange(40).repeat(2, 1).T
        >>> found = self_learning(source, -source, seeds, patience=1)
        >>> found.project(source).allclose(found.project(-source, "target"), atol=1e-4)
        True
    """
    if whiten:
        enough_words(min(len(source), len(target), cutoff), max(source.shape[1], target.shape[1]), "words")
    target = target.to(source.device)
    pairs = torch.from_numpy(index_pairs(seed_pairs, "seed pairs", (len(source), len(target)))).to(source.device)

    sides = []
    for side, rows in ((source, pairs[:, 0]), (target, pairs[:, 1])):
        means = step_means(side, DEFAULT_STEPS)
        sides.append([take_steps(v.double(), DEFAULT_STEPS, means).float() for v in (side[:cutoff], side[rows])])
    (x, matched_x), (z, matched_z) = sides
    generator = torch.Generator().manual_seed(seed)
    best, turns, stuck, finished = -math.inf, 0, 0, False
    with plain_float32(x.device), progress(total=max_iterations, desc="self-learning", unit="turn") as bar:
        while turns < max_iterations and not finished:
            # U and V of U S V^T = X^T Z, solved in float64.
            onto_x, _, onto_z = torch.linalg.svd(matched_x.double().T @ matched_z.double(), full_matrices=False)
            dropout = Dropout(len(x), len(z), keep, generator, x.device) if keep < 1 else None
            (nearest_z, nearest_x), objective = _search(unit(x @ onto_x.float()), unit(z @ onto_z.T.float()), dropout)
            # A pair found both ways stands twice, as VecMap weights it (ACL 2018, section 3.3).
            forward = torch.stack([torch.arange(len(nearest_z), device=nearest_z.device), nearest_z], 1)
            backward = torch.stack([nearest_x, torch.arange(len(nearest_x), device=nearest_x.device)], 1)
            pairs = torch.cat([forward[nearest_z >= 0], backward[nearest_x >= 0]])
            matched_x, matched_z = x[pairs[:, 0]], z[pairs[:, 1]]
            bar.set_postfix(keep=keep, objective=f"{objective:.5f}", stuck=stuck, refresh=False)
            bar.update()
            turns += 1
            if objective > best + _PROGRESS:
                best, stuck = objective, 0
                continue
            stuck += 1
            if stuck >= patience:
                finished = keep == 1
                keep, stuck = min(1.0, 2 * keep), 0
    logger.info("self-learning: %d iterations, mean best cosine %.5f, %d pairs", turns, objective, len(pairs))
    if not finished:
        logger.warning("self-learning: stopped after %d iterations, not converged (keep=%g)", turns, keep)
    return vecmap(
        source[pairs[:, 0]],
        target[pairs[:, 1]],
        whiten=whiten,
        source_candidates=source,
        target_candidates=target,
        layers=layers,
    )


class Dropout:
    """Random mask over a similarity matrix, in which every entry is dropped with equal probability."""

    # Entry (i, j) is a hash of a random number of row i and one of column j. So any block of the mask can be computed
    # alone, with the same bits on every device, and a whole mask of 20,000 x 20,000 is never in memory.

    def __init__(self, rows: int, columns: int, keep: float, generator: torch.Generator, device: torch.device):
        self.rows = torch.randint(-(2**31), 2**31, (rows,), dtype=torch.int32, generator=generator).to(device)
        self.columns = torch.randint(-(2**31), 2**31, (columns,), dtype=torch.int32, generator=generator).to(device)
        self.last_kept = max(round(keep * 2**32), 1) - 2**31 - 1

    def __call__(self, rows: slice) -> Tensor:
        """Return bool (rows, columns), True for dropped entries."""
        # The steps of MurmurHash3's 32-bit finalizer (Appleby, public domain) as wrapping int32, without the last
        # shift, which changes only the low half and hardly matters to a comparison with a bound.
        mixed = self.rows[rows, None] ^ self.columns
        mixed ^= (mixed >> 16) & 0xFFFF
        mixed *= 0x85EBCA6B - 2**32
        mixed ^= (mixed >> 13) & 0x7FFFF
        mixed *= 0xC2B2AE35 - 2**32
        return mixed > self.last_kept


def _search(x: Tensor, z: Tensor, dropout: Dropout | None) -> tuple[Neighbours, float]:
    """Return the CSLS neighbours of unit vectors among entries that are not dropped (-1: none), and the objective."""
    slices = [slice(start, start + _ROWS) for start in range(0, len(x), _ROWS)]
    held: list[Tensor] = []
    nearest_x = []
    nearest_z = x.new_empty(0, len(z))
    for rows in slices:
        cosine = x[rows] @ z.T
        nearest_x.append(cosine.topk(min(_K, len(z)), 1).values)
        nearest_z = largest(torch.cat([nearest_z, largest(cosine, _K, 0)]), _K, 0)
        if len(x) * len(z) <= _KEPT:
            held.append(cosine)
    near_x = torch.cat(nearest_x)
    r_x, r_z = near_x.mean(1), nearest_z.mean(0)

    forward, backward = [], torch.full((len(z),), -1, device=x.device)
    record = x.new_full((len(z),), -torch.inf)
    for n, rows in enumerate(slices):
        score = held[n] if held else x[rows] @ z.T
        # Half of CSLS has the order of CSLS.
        score.sub_(r_x[rows, None] / 2).sub_(r_z / 2)
        if dropout is not None:
            score.masked_fill_(dropout(rows), -torch.inf)
        top, index = score.max(1)
        forward.append(index.where(top > -torch.inf, -1))
        top, index = score.max(0)
        better = top > record
        record = top.where(better, record)
        backward = (index + rows.start).where(better, backward)

    objective = sum(float(side.mean(dtype=torch.float64)) for side in (near_x[:, 0], nearest_z[0])) / 2
    return Neighbours(torch.cat(forward), backward), objective
