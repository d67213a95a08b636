"""VecMap's self-learning: from a small seed dictionary to a map (Artetxe, Labaka and Agirre 2017, 2018b).

"Learning bilingual word embeddings with (almost) no bilingual data" (ACL 2017) brings the loop, "A robust
self-learning method for fully unsupervised cross-lingual mappings of word embeddings" (ACL 2018, section 3.3) the
stochastic induction, the frequency cutoff, CSLS and both directions.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor
from tqdm.auto import tqdm

from hf_xalign.errors import InputError
from hf_xalign.mapping.checks import check_vectors
from hf_xalign.mapping.induction import Direction, check_cutoff, check_direction, dictionary_of
from hf_xalign.mapping.vecmap import DEFAULT_STEPS, check_steps, take_steps, vecmap
from hf_xalign.modeling.maps import LanguageMap, Step, unit
from hf_xalign.search.csls import Neighbours, plain_float32

logger = logging.getLogger(__name__)

# Rows of the similarity matrix at a time: enough for the product's speed, few enough for the processor's cache.
_ROWS = 512
# Rows of a block whose maximum stands for it when the largest of a column are sought.
_BLOCK = 8
# Similarity matrices of up to this many numbers (256 MiB) stay in memory between the two passes over them.
_KEPT = 2**26


@torch.no_grad()
def self_learning(
    source: Tensor,
    target: Tensor,
    seed_pairs: Tensor,
    *,
    whiten: bool = True,
    reweight: float = 0.5,
    dewhiten: bool = True,
    steps: Sequence[Step] = DEFAULT_STEPS,
    cutoff: int = 20_000,
    k: int = 10,
    direction: Direction = "union",
    keep: float = 0.1,
    patience: int = 50,
    threshold: float = 1e-6,
    max_iterations: int = 2000,
    seed: int = 0,
    layers: tuple[int, ...] = (-1,),
) -> LanguageMap:
    """Learn a map from a small seed dictionary by turns: a rotation from the dictionary, a dictionary by the rotation.

    Each turn draws which similarities take part in the search (a share `keep` of them), which lets the loop leave poor
    solutions. After `patience` turns without progress the share doubles; with all similarities in play and no progress
    it ends, and [`~hf_xalign.mapping.vecmap.vecmap`] makes the map from the last dictionary. Progress is measured on
    the mean, over the words of the directions used, of the best cosine without dropout. (The paper writes a 0 for a
    similarity that is dropped. CSLS lies on both sides of 0, so here a dropped one is out of the search.)

    A turn costs two to three times the product of the two vocabularies, so it grows with the square of `cutoff`: for
    5,000 words of 384 dimensions one to three seconds on one processor core, and some three hundred turns are usual
    (five times `patience` at least). A smaller `cutoff` or `patience` makes a run quicker; 20,000 words are for a GPU.

    Args:
        source: float (words, dim), all vectors of one layer, most frequent word first.
        target: the target language's.
        seed_pairs: int64 (pairs, 2), rows of `source` and `target` that translate each other; some 25 can do.
        whiten: of the last step, as of [`~hf_xalign.mapping.vecmap.vecmap`]; the turns rotate only.
        reweight: the same.
        dewhiten: the same.
        steps: how vectors are normalised before; the means are those of the whole vocabularies.
        cutoff: how many words of each language dictionaries are induced among.
        k: neighbours in CSLS's r.
        direction: see [`~hf_xalign.mapping.induction.induce_dictionary`].
        keep: the share of similarities in the search at first; 1 for no dropout (the loop of 2017).
        patience: turns without progress before the share doubles, or at the end.
        threshold: what counts as progress.
        max_iterations: turns at most; a warning says when it ends the loop.
        seed: of the dropout. The same seed gives the same map; neither the sizes of the work's parts nor the device
            change what is dropped.
        layers: the one layer that the vectors are of.

    Returns:
        The map, see [`~hf_xalign.mapping.vecmap.vecmap`].

    Raises:
        InputError: seed pairs that are none or out of range, fewer words than dimensions with `whiten`, several
            layers, NaN, an option out of range, or no pair left by the dropout.
    """
    checked = check_steps(steps)
    check_direction(direction)
    check_cutoff(cutoff)
    _check_options(keep=keep, threshold=threshold, k=k, patience=patience, max_iterations=max_iterations)
    if len(layers) != 1:
        raise InputError(f"layers={layers}: self-learning is of one layer at a time; name it")
    _check_vectors(source, target, cutoff, whiten)
    target = target.to(source.device)
    pairs = _check_seeds(seed_pairs, len(source), len(target)).to(source.device)

    x, z = (take_steps(side.double(), checked)[0].float() for side in (source, target))
    matched_x, matched_z = x[pairs[:, 0]], z[pairs[:, 1]]
    x, z = x[:cutoff], z[:cutoff]
    generator = torch.Generator().manual_seed(seed)
    schedule = _Schedule(keep, patience, threshold)
    quiet = int(os.environ.get("RANK", "0")) != 0
    with (
        plain_float32(x.device),
        tqdm(total=max_iterations, desc="self-learning", unit="turn", disable=quiet) as bar,
    ):
        while schedule.turns < max_iterations and not schedule.finished:
            onto_x, onto_z = _rotations(matched_x, matched_z)
            dropout = Dropout(len(x), len(z), schedule.keep, generator, x.device) if schedule.keep < 1 else None
            found, objective = _search(unit(x @ onto_x), unit(z @ onto_z), k, direction, dropout)
            pairs = dictionary_of(found, direction)
            if not len(pairs):
                raise InputError(
                    f"self-learning: keep={schedule.keep} leaves no {direction} pair of {len(x)} and {len(z)} words; "
                    "raise keep, or use direction='union'"
                )
            matched_x, matched_z = x[pairs[:, 0]], z[pairs[:, 1]]
            bar.set_postfix(keep=schedule.keep, objective=f"{objective:.5f}", stuck=schedule.stuck, refresh=False)
            bar.update()
            schedule.record(objective)
    logger.info("self-learning: %d turns, mean best cosine %.5f, %d pairs", schedule.turns, objective, len(pairs))
    if not schedule.finished:
        logger.warning(
            "self-learning: stopped after max_iterations=%d turns, not converged (keep=%g)",
            max_iterations,
            schedule.keep,
        )
    return vecmap(
        source[pairs[:, 0]],
        target[pairs[:, 1]],
        whiten=whiten,
        reweight=reweight,
        dewhiten=dewhiten,
        steps=checked,
        source_candidates=source,
        target_candidates=target,
        layers=layers,
    )


class _Schedule:
    """The share of similarities in play: doubled when stuck, and the end when stuck with all of them."""

    def __init__(self, keep: float, patience: int, threshold: float):
        self.keep = keep
        self.patience = patience
        self.threshold = threshold
        self.best = -math.inf
        self.turns = self.stuck = 0
        self.finished = False

    def record(self, objective: float) -> None:
        self.turns += 1
        if objective > self.best + self.threshold:
            self.best, self.stuck = objective, 0
            return
        self.stuck += 1
        if self.stuck >= self.patience:
            self.finished = self.keep == 1
            self.keep, self.stuck = min(1.0, 2 * self.keep), 0


class Dropout:
    """Which entries of a similarity matrix are dropped: each with the same chance, drawn anew for each matrix.

    Entry (i, j) is a hash of one random number of row i and one of column j. So any part of the mask can be made
    alone, alike on every device, and a whole mask of 20,000 x 20,000 is never drawn or held.
    """

    def __init__(self, rows: int, columns: int, keep: float, generator: torch.Generator, device: torch.device):
        self.rows, self.columns = (
            torch.randint(-(2**31), 2**31, (n,), dtype=torch.int32, generator=generator).to(device)
            for n in (rows, columns)
        )
        self.last_kept = max(round(keep * 2**32), 1) - 2**31 - 1

    def __call__(self, rows: slice) -> Tensor:
        """True where an entry is dropped: bool (rows, columns)."""
        # The multiply-and-shift steps of MurmurHash3's 32-bit finaliser (Appleby, public domain) as wrapping int32;
        # its last shift would only touch the low half, which a comparison with a bound need not.
        mixed = self.rows[rows, None] ^ self.columns
        mixed ^= (mixed >> 16) & 0xFFFF
        mixed *= 0x85EBCA6B - 2**32
        mixed ^= (mixed >> 13) & 0x7FFFF
        mixed *= 0xC2B2AE35 - 2**32
        return mixed > self.last_kept


def _check_options(*, keep: float, threshold: float, k: int, patience: int, max_iterations: int) -> None:
    if not 0 < keep <= 1:
        raise InputError(f"keep={keep}: it is the share of similarities that stay, above 0 and at most 1")
    if not 0 <= threshold < math.inf:
        raise InputError(f"threshold={threshold}: progress is a rise by more than 0 or a positive number")
    for name, value in (("k", k), ("patience", patience), ("max_iterations", max_iterations)):
        if value < 1:
            raise InputError(f"{name}={value}: at least 1 is needed")


def _check_vectors(source: Tensor, target: Tensor, cutoff: int, whiten: bool) -> None:
    for name, side in (("source", source), ("target", target)):
        check_vectors(side, f"{name} vectors")
        if side.dim() != 2:
            raise InputError(f"{name} vectors of shape {tuple(side.shape)}: give one layer, (words, dim)")
    words, size = min(len(source), len(target), cutoff), max(source.shape[1], target.shape[1])
    if whiten and words < size:
        raise InputError(
            f"whitening: {words} words are fewer than the {size} dimensions; give more words, or use whiten=False, "
            "the orthogonal variant"
        )


def _check_seeds(pairs: Tensor, source: int, target: int) -> Tensor:
    if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.is_floating_point() or not len(pairs):
        raise InputError(
            f"seed pairs: expected integers of shape (pairs, 2), got {pairs.dtype} of shape {tuple(pairs.shape)}"
        )
    pairs = pairs.long()
    bad = ((pairs < 0) | (pairs >= pairs.new_tensor([source, target]))).any(1).nonzero()
    if len(bad):
        row = int(bad[0, 0])
        raise InputError(
            f"seed pairs: row {row} is {pairs[row].tolist()}, but there are {source} source and {target} target words"
        )
    return pairs


def _rotations(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """U and V of U S V^T = X^T Z, solved in float64, float32."""
    u, _, vh = torch.linalg.svd(x.double().T @ z.double(), full_matrices=False)
    return u.float(), vh.T.float()


def _search(x: Tensor, z: Tensor, k: int, direction: Direction, dropout: Dropout | None) -> tuple[Neighbours, float]:
    """Nearest neighbours by CSLS among the entries that are not dropped, and the objective.

    The search of `hf_xalign.search.csls` sees whole matrices only; this one can leave entries out, and gives the
    best cosines on the way.

    Args:
        x: float32 (rows, dim) of length one.
        z: float32 (columns, dim) of length one.
        k: neighbours in r.
        direction: the directions whose best cosines are in the objective.
        dropout: what is left out, or None.

    Returns:
        Neighbours, -1 where all of a word's entries are dropped, and the mean best cosine.
    """
    parts = [slice(start, start + _ROWS) for start in range(0, len(x), _ROWS)]
    held: list[Tensor] = []
    nearest_x = []
    nearest_z = x.new_empty(0, len(z))
    for part in parts:
        cosine = x[part] @ z.T
        nearest_x.append(cosine.topk(min(k, len(z)), 1).values)
        nearest_z = _largest(torch.cat([nearest_z, _largest(cosine, k)]), k)
        if len(x) * len(z) <= _KEPT:
            held.append(cosine)
    near_x = torch.cat(nearest_x)
    r_x, r_z = near_x.mean(1), nearest_z.mean(0)

    forward, backward = [], torch.full((len(z),), -1, device=x.device)
    record = x.new_full((len(z),), -torch.inf)
    for n, part in enumerate(parts):
        score = held[n] if held else x[part] @ z.T
        # Half of CSLS: the same order.
        score.sub_(r_x[part, None] / 2).sub_(r_z / 2)
        if dropout is not None:
            score.masked_fill_(dropout(part), -torch.inf)
        top, index = score.max(1)
        forward.append(index.where(top > -torch.inf, -1))
        top, index = score.max(0)
        better = top > record
        record = top.where(better, record)
        backward = (index + part.start).where(better, backward)

    best = []
    if direction != "backward":
        best.append(near_x[:, 0])
    if direction != "forward":
        best.append(nearest_z[0])
    objective = sum(float(side.mean(dtype=torch.float64)) for side in best) / len(best)
    return Neighbours(torch.cat(forward), backward), objective


def _largest(values: Tensor, k: int) -> Tensor:
    """The k largest of each column, largest first (all of them where there are fewer).

    They lie in the k blocks of largest maxima, and maxima over an outer dimension are much cheaper than `topk`.
    """
    blocks = len(values) // _BLOCK
    if blocks <= 2 * k:
        return values.topk(min(k, len(values)), 0).values
    whole = values[: blocks * _BLOCK].view(_BLOCK, blocks, -1)
    index = whole.amax(0).topk(k, 0).indices
    candidates = whole.gather(1, index.expand(_BLOCK, -1, -1)).flatten(0, 1)
    return torch.cat([candidates, values[blocks * _BLOCK :]]).topk(k, 0).values
