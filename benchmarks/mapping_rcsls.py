"""Time RCSLS against a plain NumPy version of the published algorithm, and compare the losses.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/mapping_rcsls.py                  # 20,000 x 384, 5,000 pairs, minutes
    OMP_WAIT_POLICY=PASSIVE python benchmarks/mapping_rcsls.py --candidates 4000 --pairs 1000    # a trial run
    OMP_WAIT_POLICY=PASSIVE python benchmarks/mapping_rcsls.py --vectors x.safetensors    # "source" and "target"

Aim: a quarter of the time of the published algorithm in its own precision, float64, with the same final loss to 1e-4
(both losses are computed again, exactly, from the maps). NumPy in float32 is timed beside it. All run in turns, and
ratios are taken within each turn, so that a busy machine slows all; CPU seconds are compared too, because they say
more on a machine that others use. Memory is the peak resident size above the inputs (Linux).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from hf_xalign.mapping.rcsls import rcsls
from hf_xalign.modeling.maps import unit

KIB_IN_GIB = 1024**2
K = 10


def translations(count: int, dim: int, decay: float = 0.4) -> tuple[Tensor, Tensor]:
    """Words in two spaces that look like an encoder's: a common mean (cosines around 0.7) and main directions.

    The standard deviation of direction i is i^-decay. The target is the source plus noise of half its size, rotated. A
    decay of 0.4 leaves as much variance behind the first 128 directions as word vectors of multilingual-e5-small do.
    """
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    spread = torch.arange(1, dim + 1) ** -decay
    axes, rotation = (torch.linalg.qr(normal(dim, dim))[0] for _ in range(2))
    words = (normal(count, dim) * spread) @ axes.T
    mean = normal(dim)
    mean *= 1.5 * words.norm(dim=1).mean() / mean.norm()
    noise = 0.5 * (normal(count, dim) * spread) @ axes.T
    return unit(words + mean), unit((words + noise + mean) @ rotation.T)


def published(vectors: Sequence[np.ndarray], epochs: int, rate: float) -> np.ndarray:
    """RCSLS as the paper has it, with all scores at once, and with steps that are really taken back."""
    x, y, x_pool, y_pool = vectors

    def loss_and_gradient(weight: np.ndarray) -> tuple[float, np.ndarray]:
        mapped = x @ weight.T
        loss, gradient = -2 * np.sum(mapped * y), -2 * y.T @ x
        scores = mapped @ y_pool.T
        nearest = np.argpartition(scores, -K, axis=1)[:, -K:]
        loss += np.take_along_axis(scores, nearest, 1).sum() / K
        gradient += y_pool[nearest].sum(1).T @ x / K
        scores = y @ (x_pool @ weight.T).T
        nearest = np.argpartition(scores, -K, axis=1)[:, -K:]
        loss += np.take_along_axis(scores, nearest, 1).sum() / K
        gradient += y.T @ x_pool[nearest].sum(1) / K
        return loss / len(x), gradient / len(x)

    u, _, vh = np.linalg.svd(y.T @ x)
    weight = u @ vh
    loss, gradient = loss_and_gradient(weight)
    for _ in range(epochs):
        moved = weight - rate * gradient
        after, slope = loss_and_gradient(moved)
        if after <= loss:
            weight, loss, gradient = moved, after, slope
        else:
            rate /= 2
    return weight


def exact_loss(weight: Tensor, x: Tensor, y: Tensor, x_pool: Tensor, y_pool: Tensor) -> float:
    """The loss in float64 by its formula."""
    weight, x, y, x_pool, y_pool = (part.double() for part in (weight, x, y, x_pool, y_pool))
    total = torch.zeros((), dtype=torch.float64)
    for a, b in zip(x.split(500), y.split(500)):
        mapped = a @ weight.T
        total += (mapped @ y_pool.T).topk(K).values.mean(1).sum() - 2 * (mapped * b).sum()
        total += (b @ (x_pool @ weight.T).T).topk(K).values.mean(1).sum()
    return float(total / len(x))


def memory(field: str) -> float:
    """Resident size now ("VmRSS") or its peak ("VmHWM") in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / KIB_IN_GIB


def timed(work: Callable[[], Tensor]) -> tuple[dict[str, float], Tensor]:
    """Wall and CPU seconds of one call and the GiB it needs above what is resident before it; its result."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    result = work()
    seconds = {"s": time.perf_counter() - wall, "CPU s": time.process_time() - cpu}
    return {**seconds, "GiB": memory("VmHWM") - before}, result


def measure(
    candidates: int = 20_000,
    dim: int = 384,
    pairs: int = 5_000,
    epochs: int = 10,
    repeats: int = 3,
    *,
    decay: float = 0.4,
    learning_rate: float = 1.0,
    vectors: str | None = None,
) -> dict[str, float]:
    """Run all in turns.

    Returns:
        For `ours`, `numpy64`, `numpy32`: median wall and CPU seconds, GiB, and the final loss; the median ratios of
        both to ours; and the difference of the losses of ours and numpy64.
    """
    if vectors is None:
        x_pool, y_pool = translations(candidates, dim, decay)
    else:
        tensors = load_file(vectors)
        x_pool, y_pool = (unit(tensors[side].float()[:candidates]) for side in ("source", "target"))
    data = (x_pool[:pairs], y_pool[:pairs], x_pool, y_pool)
    wide, narrow = ([part.numpy().astype(dtype) for part in data] for dtype in (np.float64, np.float32))
    runs: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: rcsls(
            data[0],
            data[1],
            source_candidates=x_pool,
            target_candidates=y_pool,
            k=K,
            epochs=epochs,
            learning_rate=learning_rate,
        ).source.weight[0],
        "numpy64": lambda: torch.from_numpy(published(wide, epochs, learning_rate)),
        "numpy32": lambda: torch.from_numpy(published(narrow, epochs, learning_rate)),
    }
    turns = [{name: timed(run) for name, run in runs.items()} for _ in range(repeats)]
    found = {}
    for name in runs:
        for unit_of in ("s", "CPU s", "GiB"):
            found[f"{name} {unit_of}"] = statistics.median(turn[name][0][unit_of] for turn in turns)
        found[f"{name} loss"] = exact_loss(turns[0][name][1], *data)
    for name in ("numpy64", "numpy32"):
        for unit_of in ("s", "CPU s"):
            ratios = [turn[name][0][unit_of] / turn["ours"][0][unit_of] for turn in turns]
            found[f"{name} / ours, {unit_of}"] = statistics.median(ratios)
    found["loss difference"] = abs(found["ours loss"] - found["numpy64 loss"])
    return found


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=20_000, help="vectors on each side")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--pairs", type=int, default=5_000, help="the first vectors of both sides are translations")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3, help="turns; medians are reported")
    parser.add_argument("--decay", type=float, default=0.4, help="0: no main directions; 1: very few")
    parser.add_argument("--learning-rate", type=float, default=1.0)
    parser.add_argument("--vectors", help="safetensors file with tensors 'source' and 'target', float (n, dim)")
    found = measure(**vars(parser.parse_args()))
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, numpy {np.__version__}")
    for name, figure in found.items():
        print(f"{name:22} {figure:.6g}")


if __name__ == "__main__":
    main()
