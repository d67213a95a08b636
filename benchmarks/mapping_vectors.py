"""Time maps of word vectors against the published procedures of fastText (RCSLS) and VecMap, and compare P@1.

A trial run, one of minutes, one of fastText's size, and that with a part of the reference:

    python benchmarks/mapping_vectors.py --words 5000 --dim 100 --pairs 1000
    python benchmarks/mapping_vectors.py --words 20000
    python benchmarks/mapping_vectors.py --words 200000 --methods rcsls
    python benchmarks/mapping_vectors.py --words 200000 --methods rcsls --extrapolate


Aim: a tenth of the time of fastText's RCSLS at 200,000 x 300, at equal P@1.

The references are written from the papers' formulas in NumPy, with the sizes, precision (float64), memory order and
steps of the published scripts. They compare with the whole vocabulary in every step. The script of RCSLS takes 11
steps for 10 epochs, so ours gets 11 epochs. CSLS is scored by the mean similarity of every target word to its 10
nearest of all source words. The references work on blocks of rows, so that they need less memory than the scripts,
which hold all scores of the pairs at once, and no more time. Reading and writing files is left out on both sides.

Learning and scoring are timed apart. Both get the same vectors, pairs and test pairs. With `--extrapolate` the
reference takes one gradient and scores a twentieth of the target words; its times are scaled, and it has no P@1.
Peak memory is that of this process with both systems, so take it of a run with `--only ours`.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_xalign.mapping import LanguageMap, rcsls, vecmap
from hf_xalign.modeling.maps import unit
from hf_xalign.search.ranking import nearest

K = 10
METHODS = ("rcsls", "vecmap")
# Scores of the references in memory at once: 512 MiB in float64.
_CHUNK = 2**26
# An extrapolated reference scores one target word of so many.
_PART = 20

# Seconds and P@1 of one system.
Row = dict[str, list[float]]


def translations(words: int, dim: int, noise: float) -> tuple[Tensor, Tensor]:
    """Make two vocabularies in which the words at the same place are translations, float32 (words, dim), unit.

    Words gather in topics of about a hundred, and direction i has the standard deviation i^-0.3. The target is the
    source plus noise of its own, turned.
    """
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    spread = torch.arange(1, dim + 1) ** -0.3
    topics = normal(max(20, words // 100), dim) * spread
    mean = 0.5 * normal(dim) * spread
    source = topics[torch.randint(len(topics), (words,), generator=generator)] + normal(words, dim).mul_(0.9 * spread)
    turn = torch.linalg.qr(normal(dim, dim))[0]
    target = unit((normal(words, dim).mul_(noise * spread).add_(source).add_(mean)) @ turn.T)
    return unit(source.add_(mean)), target


def fasttext_rcsls(
    x: np.ndarray, y: np.ndarray, x_all: np.ndarray, y_all: np.ndarray, epochs: int, rate: float
) -> np.ndarray:
    """RCSLS (Joulin et al. 2018) by subgradient steps over all pairs and the whole vocabularies; W (out, in)."""

    def nearest_terms(
        asked: np.ndarray, candidates: np.ndarray, vectors: np.ndarray, turned: bool
    ) -> tuple[float, np.ndarray]:
        """Return the sum of the mean scores of the k nearest candidates, and the mean of their vectors by row."""
        total, means = 0.0, np.empty((len(asked), vectors.shape[1]))
        step = max(1, _CHUNK // len(candidates))
        for start in range(0, len(asked), step):
            rows = asked[start : start + step]
            scores = (candidates @ rows.T).T if turned else rows @ candidates.T
            near = np.argpartition(scores, -K, axis=1)[:, -K:]
            total += np.take_along_axis(scores, near, 1).sum() / K
            means[start : start + step] = vectors[near].mean(1)
        return total, means

    u, _, vh = np.linalg.svd(y.T @ x)
    weight, last = u @ vh, np.inf
    for _ in range(epochs + 1):
        if rate < 1e-4:
            break
        mapped = x @ weight.T
        forward, a = nearest_terms(mapped, y_all, y_all, turned=False)
        backward, b = nearest_terms(y, x_all @ weight.T, x_all, turned=True)
        loss = (-2 * (mapped * y).sum() + forward + backward) / len(x)
        # The script steps before it compares losses, and what it means to undo is the matrix it has changed in place.
        weight = weight - rate * ((a - 2 * y).T @ x + y.T @ b) / len(x)
        if loss > last:
            rate /= 2
        last = min(loss, last)
    return weight


def vecmap_supervised(x: np.ndarray, y: np.ndarray, x_all: np.ndarray, y_all: np.ndarray) -> tuple[np.ndarray, ...]:
    """Map vocabularies by VecMap's multi-step framework (Artetxe et al. 2018); both mapped, (words, dim)."""

    def normal(all_words: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        whole = all_words / np.linalg.norm(all_words, axis=1, keepdims=True)
        mean = whole.mean(0)
        both = []
        for side in (whole, pairs / np.linalg.norm(pairs, axis=1, keepdims=True)):
            side = side - mean
            both.append(side / np.linalg.norm(side, axis=1, keepdims=True))
        return both[0], both[1]

    (x_all, x), (y_all, y) = normal(x_all, x), normal(y_all, y)
    whitening = []
    for side in (x, y):
        _, s, vh = np.linalg.svd(side, full_matrices=False)
        whitening.append(((vh.T / s) @ vh, (vh.T * s) @ vh))
    (white_x, color_x), (white_y, color_y) = whitening
    u, s, vh = np.linalg.svd(white_x @ (x.T @ y) @ white_y)
    root = np.sqrt(s)
    return (
        x_all @ (white_x @ u * root @ (u.T @ color_x @ u)),
        y_all @ (white_y @ vh.T * root @ (vh @ color_y @ vh.T)),
    )


def reference_precisions(
    x_all: np.ndarray, y_all: np.ndarray, queries: np.ndarray, few: int | None = None
) -> tuple[float, float]:
    """P@1 of the queries by CSLS and by cosine, over the whole vocabularies, as fastText's script computes them.

    With `few`, only so many target words get their mean similarity, for its time.
    """
    x_all, y_all = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x_all, y_all))
    crowding = np.zeros(len(y_all))
    step = max(1, _CHUNK // len(x_all))
    for start in range(0, few or len(y_all), step):
        scores = y_all[start : start + step] @ x_all.T
        crowding[start : start + step] = np.partition(scores, -K, axis=1)[:, -K:].mean(1)
    csls, cosine = 0, 0
    for start in range(0, len(queries), step):
        rows = queries[start : start + step]
        scores = x_all[rows] @ y_all.T
        cosine += int((scores.argmax(1) == rows).sum())
        csls += int(((2 * scores - crowding).argmax(1) == rows).sum())
    return csls / len(queries), cosine / len(queries)


def our_precisions(x_all: Tensor, y_all: Tensor, queries: Tensor) -> tuple[float, float]:
    """P@1 of the queries by CSLS and by cosine."""
    found = []
    for similarity in ("csls", "cosine"):
        best = nearest(x_all[queries], y_all, 1, similarity=similarity, k=K, neighbourhood=x_all)
        found.append(float((best.indices[:, 0] == queries).double().mean()))
    return found[0], found[1]


def timed(work: Callable[[], Any]) -> tuple[list[float], Any]:
    """Return the wall and CPU seconds of a call, and its result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return [time.perf_counter() - wall, time.process_time() - cpu], result


def project(one: LanguageMap, x_all: Tensor, y_all: Tensor) -> tuple[Tensor, Tensor]:
    """Map both vocabularies, some rows at a time."""
    sides = (("source", x_all), ("target", y_all))
    both = [torch.cat([one.project(part, side) for part in words.split(4096)]) for side, words in sides]
    return both[0], both[1]


def run_ours(method: str, vectors: list[Tensor], train: Tensor, test: Tensor, epochs: int, rate: float) -> Row:
    """Learn and score with hf_xalign."""

    def learn() -> tuple[Tensor, Tensor]:
        x_all, y_all = vectors
        options = {"source_candidates": x_all, "target_candidates": y_all}
        if method == "rcsls":
            # The script steps once more than it is asked for.
            one = rcsls(x_all[train], y_all[train], epochs=epochs + 1, learning_rate=rate, **options)
        else:
            one = vecmap(x_all[train], y_all[train], **options)
        return project(one, x_all, y_all)

    learning, mapped = timed(learn)
    scoring, precisions = timed(lambda: our_precisions(*mapped, test))
    return {"learn": learning, "score": scoring, "p@1": list(precisions)}


def run_reference(
    method: str, vectors: list[Tensor], train: Tensor, test: Tensor, epochs: int, rate: float, *, extrapolate: bool
) -> Row:
    """Learn and score with the reference; `extrapolate` does a part and scales its time."""
    x_all, y_all = (side.double().numpy() for side in vectors)

    def learn() -> tuple[np.ndarray, np.ndarray]:
        x, y = x_all[train], y_all[train]
        if method == "rcsls":
            weight = fasttext_rcsls(x, y, x_all, y_all, 0 if extrapolate else epochs, rate)
            return x_all @ weight.T, y_all
        return vecmap_supervised(x, y, x_all, y_all)

    learning, mapped = timed(learn)
    few = len(x_all) // _PART if extrapolate else None
    scoring, precisions = timed(lambda: reference_precisions(*mapped, test.numpy(), few))
    if extrapolate:
        learning = [seconds * (epochs + 1 if method == "rcsls" else 1) for seconds in learning]
        scoring = [seconds * _PART for seconds in scoring]
        precisions = (float("nan"), float("nan"))
    return {"learn": learning, "score": scoring, "p@1": list(precisions)}


def measure(
    words: int = 20_000,
    dim: int = 300,
    pairs: int = 5_000,
    queries: int = 1_500,
    epochs: int = 10,
    *,
    noise: float = 3.0,
    learning_rate: float = 1.0,
    methods: tuple[str, ...] = METHODS,
    extrapolate: bool = False,
    only: str | None = None,
) -> dict[str, Row]:
    """Run every method, ours and its reference.

    Returns:
        For `rcsls` and `vecmap`, and `rcsls (NumPy)` and `vecmap (NumPy)`: `learn` and `score`, wall and CPU seconds
        each, and `p@1`, by CSLS and by cosine. Training and test pairs are drawn from the whole vocabulary.
    """
    vectors = list(translations(words, dim, noise))
    order = torch.randperm(words, generator=torch.Generator().manual_seed(1))
    given = (vectors, order[:pairs], order[pairs : pairs + queries], epochs, learning_rate)
    found = {}
    for method in methods:
        if only != "reference":
            found[method] = run_ours(method, *given)
        if only != "ours":
            found[f"{method} (NumPy)"] = run_reference(method, *given, extrapolate=extrapolate)
    return found


def main() -> None:
    """Run the benchmark and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=20_000, help="vectors on each side")
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=5_000, help="pairs to learn from")
    parser.add_argument("--queries", type=int, default=1_500, help="test pairs")
    parser.add_argument("--epochs", type=int, default=10, help="of RCSLS; the script's default")
    parser.add_argument("--learning-rate", type=float, default=1.0, help="of RCSLS; the script's default")
    parser.add_argument("--noise", type=float, default=3.0, help="what a translation's vector has of its own")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--extrapolate", action="store_true", help="run a part of the references, and scale its time")
    parser.add_argument("--only", choices=("ours", "reference"))
    arguments = parser.parse_args()
    found = measure(**vars(arguments))
    print(f"{arguments.words:,} x {arguments.dim}, {arguments.pairs} pairs, {torch.get_num_threads()} threads, "
          f"torch {torch.__version__}, numpy {np.__version__}; peak "
          f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")  # fmt: skip
    print(
        "| system | learn, s | score, s | both, s | CPU s | P@1, CSLS | P@1, cosine |\n|---|---|---|---|---|---|---|"
    )
    for name, own in found.items():
        wall, cpu = (own["learn"][n] + own["score"][n] for n in range(2))
        shares = " | ".join(f"{100 * value:.1f}" for value in own["p@1"])
        print(f"| {name} | {own['learn'][0]:.1f} | {own['score'][0]:.1f} | {wall:.1f} | {cpu:.1f} | {shares} |")
    for method in METHODS:
        own, other = found.get(method), found.get(f"{method} (NumPy)")
        if own and other:
            ratios = [other[part][n] / own[part][n] for part in ("learn", "score") for n in range(2)]
            print("{}: NumPy / ours: learn {:.1f} (CPU {:.1f}), score {:.1f} (CPU {:.1f})".format(method, *ratios))


if __name__ == "__main__":
    main()
