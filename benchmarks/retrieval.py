"""How long exact CSLS retrieval takes, against one bare matrix product of the same size, and how much memory it needs.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/retrieval.py                 # 50,000 x 50,000 x 384, minutes on 2 cores
    OMP_WAIT_POLICY=PASSIVE python benchmarks/retrieval.py --n 10000       # a trial run
    python benchmarks/retrieval.py --vectors words.safetensors             # real vectors: tensors "source" and "target"

Aim: at most 3 times the product, both directions together, under 2 GiB above the inputs, equal to a dense float64
reference. The bare product is chunked in the tiles that the search uses, the fastest shape measured on CPU; it and the
search run in turns (paired), so that a busy machine slows both. CPU seconds are printed beside wall seconds, because
they say more on a machine that others use too. Memory is measured in a process of its own for each kind of vectors.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hf_xalign.evaluation import csls
from hf_xalign.evaluation.csls import nearest_neighbours

GIB = 1024**3


def random_vectors(n: int, dim: int) -> tuple[Tensor, Tensor]:
    """Independent normal vectors: no structure, hardly any hubs."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, dim, generator=generator), torch.randn(n, dim, generator=generator)


def hubby_vectors(n: int, dim: int) -> tuple[Tensor, Tensor]:
    """Translations in an anisotropic space: a strong common mean, few large directions, heavy-tailed norms, hubs.

    A tenth of the rows lies close to the mean (the hubs: near to everything), and a fifth repeats another row, as the
    same word in the same sentence does. The target is the source plus noise, in another order.
    """
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    directions = normal(dim, dim) * torch.logspace(0, -1.5, dim)[:, None] / dim**0.5
    words = normal(n, dim) @ directions
    words[torch.rand(n, generator=generator) < 0.1] *= 0.2
    mean = 2 * normal(dim) / dim**0.5 * words.norm(dim=1).mean()
    source = words + mean
    copies = torch.randint(n, (n // 5,), generator=generator)
    source[torch.randint(n, (n // 5,), generator=generator)] = source[copies]
    target = source + 0.02 * normal(n, dim) * words.norm(dim=1).mean() / dim**0.5 * 10
    target = target[torch.randperm(n, generator=generator)]
    return source * torch.exp(0.5 * normal(n, 1)), target * torch.exp(0.5 * normal(n, 1))


def dense_disagreement(source: Tensor, target: Tensor, k: int = 10) -> tuple[float, float]:
    """Compare with dense float64 CSLS: share of different answers, and the largest loss of score of any answer."""
    found = nearest_neighbours(source, target, k=k)
    source, target = (torch.nn.functional.normalize(side.double(), dim=1) for side in (source, target))
    cosine = source @ target.T
    r_source = cosine.topk(min(k, len(target)), dim=1).values.mean(1)
    r_target = cosine.topk(min(k, len(source)), dim=0).values.mean(0)
    score = 2 * cosine - r_source[:, None] - r_target
    different, loss = 0, 0.0
    for scores, answer in ((score, found.source_to_target), (score.T, found.target_to_source)):
        best, index = scores.max(1)
        reached = scores.gather(1, answer[:, None]).squeeze(1)
        loss = max(loss, (best - reached).max().item())
        # Float64 rounding may prefer a later copy of the same vector; the search answers with the first copy.
        different += int(((index != answer) & (best - reached > 1e-12)).sum())
    return different / (len(source) + len(target)), loss


def hubs(found: Tensor, n: int) -> int:
    """How often the most frequent answer is given."""
    return int(torch.bincount(found, minlength=n).max())


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def bare_product(source: Tensor, target: Tensor) -> None:
    """One product of all rows with all rows, tile by tile into one buffer."""
    for _ in csls._tiles(source, target, "bare product"):
        pass


def peak_above_inputs(source: Tensor, target: Tensor) -> float:
    """GiB that one search needs above process and inputs, by the peak resident size in a process of its own."""
    path = Path(f"{__file__}.{time.time_ns()}.safetensors")
    try:
        save_file({"source": source, "target": target}, path)
        run = subprocess.run(
            [sys.executable, __file__, "--measure_memory", str(path)], capture_output=True, text=True, check=True
        )
    finally:
        path.unlink(missing_ok=True)
    return json.loads(run.stdout.splitlines()[-1])


def measure_memory(path: str) -> None:
    """Print the growth of the peak resident size during one search, in GiB."""
    vectors = {name: side.clone() for name, side in load_file(path).items()}
    small = torch.randn(64, 8)
    nearest_neighbours(small, small)  # what torch allocates once (threads, work space of the products) is not ours
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nearest_neighbours(vectors["source"], vectors["target"])
    print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / GIB))


def main() -> None:
    """Run the benchmark and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50_000, help="vectors on each side")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3, help="paired repeats; the median ratio is reported")
    parser.add_argument("--vectors", help="safetensors file with (n, dim) tensors 'source' and 'target'")
    parser.add_argument("--kinds", nargs="+", default=["random", "hubby"], choices=["random", "hubby"])
    parser.add_argument("--measure_memory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_memory:
        measure_memory(arguments.measure_memory)
        return
    makers = {"random": random_vectors, "hubby": hubby_vectors}
    cases = {kind: makers[kind] for kind in arguments.kinds}
    if arguments.vectors:
        cases["file"] = lambda n, dim: (lambda t: (t["source"].float(), t["target"].float()))(
            load_file(arguments.vectors)
        )
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    header = (
        f"{'vectors':8} {'size':>20} {'product':>9} {'CSLS':>9} {'ratio':>6} {'ratio':>6} {'memory':>8} {'top':>6} "
    )
    print(f"{header}{'not as dense':>13}\n{'':8} {'':>20} {'wall s':>9} {'wall s':>9} {'wall':>6} {'CPU':>6} ", end="")
    print(f"{'GiB':>8} {'hub':>6} {'(max. loss)':>13}")
    for kind, make in cases.items():
        source, target = make(arguments.n, arguments.dim)
        # An even sample keeps duplicates and hubs in the dense check.
        sample = [side[:: max(1, len(side) // 3000)] for side in (source, target)]
        different, loss = dense_disagreement(*sample)
        memory = peak_above_inputs(source, target)
        products, searches, found = [], [], []
        for _ in range(arguments.repeats):
            products.append(timed(lambda: bare_product(source, target)))
            searches.append(timed(lambda: found.append(nearest_neighbours(source, target))))
        ratios = [statistics.median(s[n] / p[n] for s, p in zip(searches, products)) for n in (0, 1)]
        seconds = [statistics.median(s[0] for s in times) for times in (products, searches)]
        size = f"{len(source)}x{len(target)}x{source.shape[1]}"
        print(
            f"{kind:8} {size:>20} {seconds[0]:9.2f} {seconds[1]:9.2f} {ratios[0]:6.2f} {ratios[1]:6.2f} {memory:8.2f} "
            f"{hubs(found[0].source_to_target, len(target)):6d} {different:6.2%} {loss:.0e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
