"""Time exact CSLS retrieval against one bare matrix product of the same size, and measure its memory.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/retrieval.py               # 50,000 x 50,000 x 384, minutes on 2 cores
    OMP_WAIT_POLICY=PASSIVE python benchmarks/retrieval.py --n 10000     # a trial run
    python benchmarks/retrieval.py --vectors words.safetensors           # also real ones: tensors "source", "target"

Aim: at most 3 times the product, both directions together, under 1 GiB above the inputs, equal to a dense float64
reference. The bare product is computed in the bands of the search. It and the search run in turns, and ratios are
taken within each pair, so that a busy machine slows both. CPU seconds are compared beside wall seconds, because they
say more on a machine that others use too. Memory is the peak resident size (Linux).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from hf_xalign.search import csls
from hf_xalign.search.csls import nearest_neighbours

KIB_IN_GIB = 1024**2


def random_vectors(n: int, dim: int) -> tuple[Tensor, Tensor]:
    """Independent normal vectors: no structure, hardly any hubs."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, dim, generator=generator), torch.randn(n, dim, generator=generator)


def hubby_vectors(n: int, dim: int) -> tuple[Tensor, Tensor]:
    """Translations in an anisotropic space: a strong common mean, few large directions, heavy-tailed norms, hubs.

    A tenth of the rows lies close to the mean (hubs: near to everything), and a fifth are exact copies of another row,
    as from a sentence that occurs twice. The target is the source plus noise, shuffled.
    """
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def some(share: float) -> Tensor:
        return torch.randint(n, (int(share * n),), generator=generator)

    words = normal(n, dim) @ (normal(dim, dim) * torch.logspace(0, -1.5, dim)[:, None] / dim**0.5)
    size = words.norm(dim=1).mean()
    words[some(0.1)] *= 0.2
    source = words + 1.5 * size * normal(dim) / dim**0.5
    target = source + 0.5 * size * normal(n, dim) / dim**0.5
    target = target[torch.randperm(n, generator=generator)]
    for side in (source, target):
        side *= torch.exp(0.5 * normal(n, 1))
        side[some(0.2)] = side[some(0.2)]
    return source, target


def vectors_from(path: str, n: int, dim: int) -> tuple[Tensor, Tensor]:
    """The tensors "source" and "target" of a safetensors file, whatever their size."""
    tensors = load_file(path)
    return tensors["source"].float(), tensors["target"].float()


def dense_check(source: Tensor, target: Tensor, k: int = 10) -> tuple[float, float, int]:
    """Compare with dense float64 CSLS.

    Returns:
        Share of answers whose exact score is below the best one by more than float32 rounding (1e-6). The largest such
        difference. How often the most frequent *cosine* neighbour is one, the strength of hubs.
    """
    found = nearest_neighbours(source, target, k=k)
    source, target = (torch.nn.functional.normalize(side.double(), dim=1) for side in (source, target))
    cosine = source @ target.T
    r_source = cosine.topk(min(k, len(target)), dim=1).values.mean(1)
    r_target = cosine.topk(min(k, len(source)), dim=0).values.mean(0)
    score = 2 * cosine - r_source[:, None] - r_target
    loss = torch.cat(
        [
            score.amax(1) - score.gather(1, found.source_to_target[:, None]).squeeze(1),
            score.amax(0) - score.gather(0, found.target_to_source[None]).squeeze(0),
        ]
    )
    hub = int(torch.bincount(cosine.argmax(1)).max())
    return (loss > 1e-6).double().mean().item(), loss.max().item(), hub


def bare_product(source: Tensor, target: Tensor) -> None:
    """One product of all rows with all rows, band by band into one buffer."""
    for _ in csls.bands(source, target, "bare product"):
        pass


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def memory(field: str) -> float:
    """Resident size now ("VmRSS") or its peak ("VmHWM") in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / KIB_IN_GIB


def peak_of(work: Callable[[], object]) -> float:
    """GiB that a call needs above what is resident before it."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = memory("VmRSS")
    work()
    return memory("VmHWM") - before


def main() -> None:
    """Run the benchmark and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50_000, help="vectors on each side")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3, help="paired repeats; medians are reported")
    parser.add_argument("--vectors", help="safetensors file with (n, dim) tensors 'source' and 'target'")
    arguments = parser.parse_args()
    cases = {"random": random_vectors, "hubby": hubby_vectors}
    if arguments.vectors:
        cases["file"] = partial(vectors_from, arguments.vectors)
    print(
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, median of {arguments.repeats} paired repeats"
    )
    print("| vectors | size | product s | CSLS s | ratio | ratio, CPU time | peak GiB | cosine hub | wrong | loss |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind, make in cases.items():
        source, target = make(arguments.n, arguments.dim)
        # A few thousand from each side, evenly spread, are enough for copies and hubs.
        wrong, loss, hub = dense_check(source[:: len(source) // 4000 + 1], target[:: len(target) // 4000 + 1])
        product, search = partial(bare_product, source, target), partial(nearest_neighbours, source, target)
        peak = peak_of(search)
        pairs = [(timed(product), timed(search)) for _ in range(arguments.repeats)]
        wall, cpu = (statistics.median(ours[n] / bare[n] for bare, ours in pairs) for n in (0, 1))
        seconds = [statistics.median(pair[n][0] for pair in pairs) for n in (0, 1)]
        print(
            f"| {kind} | {len(source)} x {len(target)} x {source.shape[1]} | {seconds[0]:.2f} | {seconds[1]:.2f} | "
            f"{wall:.2f} | {cpu:.2f} | {peak:.2f} | {hub} | {wrong:.2%} | {loss:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
