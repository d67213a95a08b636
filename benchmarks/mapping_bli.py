"""Time the ranking of a target vocabulary against scikit-learn, faiss and NumPy, and compare the lists.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/mapping_bli.py                    # 1,500 queries, 50,000 words x 384
    OMP_WAIT_POLICY=PASSIVE python benchmarks/mapping_bli.py --targets 10000    # a trial run

Every contender gets raw float32 rows of an encoder and returns the ten best target words of each query. Normalization
and index building are part of its time. Cosine
is compared with scikit-learn (`pip install scikit-learn`), by its cosine search and by its Euclidean search over unit
rows, which gives the same order. It is also compared with the exact inner-product index of faiss (`pip install
faiss-cpu`). Missing packages are skipped. By CSLS,
with the queries as the neighbourhood, there is the whole matrix in NumPy. All run in turns, and the ratios to ours are
taken within each round, so that a busy machine slows all of them; CPU seconds say more there than wall seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from hf_xalign.search.ranking import nearest

N = 10

Ranking = Callable[[np.ndarray, np.ndarray], np.ndarray]


def vocabulary(targets: int, queries: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, target words, and the target row that each query translates to: an anisotropic space with hubs."""
    generator = np.random.default_rng(0)
    words = generator.standard_normal((targets, dim)) * np.logspace(0, -1.5, dim)
    words[generator.integers(targets, size=targets // 10)] *= 0.2
    words += 0.5 * generator.standard_normal(dim) * np.abs(words).mean()
    gold = generator.permutation(targets)[:queries]
    asked = words[gold] + 2.0 * words.std() * generator.standard_normal((queries, dim))
    return asked.astype(np.float32), words.astype(np.float32), gold


def ours(similarity: str) -> Ranking:
    """The library's ranking."""

    def rank(asked: np.ndarray, words: np.ndarray) -> np.ndarray:
        return nearest(torch.from_numpy(asked), torch.from_numpy(words), N, similarity=similarity).indices.numpy()

    return rank


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their norm."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def sklearn_cosine(asked: np.ndarray, words: np.ndarray) -> np.ndarray:
    """scikit-learn's brute force by cosine."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=N, algorithm="brute", metric="cosine").fit(words)
    return index.kneighbors(asked, return_distance=False)


def sklearn_euclidean(asked: np.ndarray, words: np.ndarray) -> np.ndarray:
    """scikit-learn's brute force by Euclidean distance of unit rows."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=N, algorithm="brute", metric="euclidean").fit(unit(words))
    return index.kneighbors(unit(asked), return_distance=False)


def faiss_flat(asked: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The exact index of faiss by inner product of unit rows."""
    import faiss

    index = faiss.IndexFlatIP(words.shape[1])
    index.add(unit(words))
    return index.search(unit(asked), N)[1]


def numpy_csls(asked: np.ndarray, words: np.ndarray, k: int = 10) -> np.ndarray:
    """CSLS by its formula over the whole matrix; r(x) is left out, because it changes no list."""
    cosine = unit(asked) @ unit(words).T
    score = 2 * cosine - np.partition(cosine, -k, axis=0)[-k:].mean(0)
    return np.argpartition(score, -N, axis=1)[:, -N:]


def contenders() -> dict[str, tuple[Ranking, str]]:
    """Return {contender: (function, name of our search to compare with)}."""
    found = {name: (ours(name), name) for name in ("cosine", "csls")}
    if importlib.util.find_spec("sklearn"):
        found["scikit-learn, cosine"] = sklearn_cosine, "cosine"
        found["scikit-learn, Euclidean"] = sklearn_euclidean, "cosine"
    if importlib.util.find_spec("faiss"):
        found["faiss"] = faiss_flat, "cosine"
    found["NumPy, CSLS"] = numpy_csls, "csls"
    return found


def measure(targets: int = 50_000, queries: int = 1_500, dim: int = 384, repeats: int = 3) -> dict[str, dict]:
    """Run every contender `repeats` times, in turns.

    Returns:
        For each contender `against` ("cosine" or "csls", ours), `seconds` (median), `wall_ratio` and `cpu_ratio` (its
        seconds over ours in the same round, median: above 1 where ours is quicker), `same` (share of queries whose ten
        best, as a set, are ours) and `right` (share of queries with the right word among the ten).
    """
    asked, words, gold = vocabulary(targets, queries, dim)
    runs = contenders()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    lists: dict[str, np.ndarray] = {}
    for turn in range(repeats + 1):
        for name, (rank, _) in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            lists[name] = rank(asked, words)
            if turn:  # the first pays for imports and threads
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    found = {}
    for name, (_, against) in runs.items():
        ratios = [
            [theirs[n] / own[n] for theirs, own in zip(times[name], times[against], strict=True)] for n in range(2)
        ]
        found[name] = {
            "against": against,
            "seconds": statistics.median(wall for wall, _ in times[name]),
            "wall_ratio": statistics.median(ratios[0]),
            "cpu_ratio": statistics.median(ratios[1]),
            "same": float(np.all(np.sort(lists[name], 1) == np.sort(lists[against], 1), axis=1).mean()),
            "right": float((lists[name] == gold[:, None]).any(1).mean()),
        }
    return found


def main() -> None:
    """Run the benchmark and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=50_000, help="words of the target vocabulary")
    parser.add_argument("--queries", type=int, default=1_500, help="test words")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3, help="rounds; medians are reported")
    arguments = parser.parse_args()
    found = measure(**vars(arguments))
    print(
        f"{arguments.queries} queries x {arguments.targets} words x {arguments.dim}, {torch.get_num_threads()} "
        f"threads, torch {torch.__version__}, median of {arguments.repeats} rounds"
    )
    print("| who | s | s / ours | CPU s / ours | same ten best | right word in ten |")
    print("|---|---|---|---|---|---|")
    for name, row in found.items():
        who = f"ours, {name}" if name == row["against"] else name
        print(
            f"| {who} | {row['seconds']:.2f} | {row['wall_ratio']:.2f} | {row['cpu_ratio']:.2f} | "
            f"{row['same']:.2%} | {row['right']:.2%} |"
        )


if __name__ == "__main__":
    main()
