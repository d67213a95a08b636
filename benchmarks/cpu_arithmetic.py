"""Time arithmetic on a CPU: products and attention in bfloat16 and float32, Adam's step on moments that have decayed.

    OMP_NUM_THREADS=1 python benchmarks/cpu_arithmetic.py                                       # seconds
    OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/cpu_arithmetic.py   # as a CPU without AMX

The product is that of a layer of an encoder of 768 dimensions with 512 tokens. Attention is that of 2,048 tokens in
sentences of one length with 12 heads of 32, forward and backward, by single operations, by torch's fused kernel, and
by that kernel in float32. Adam's first moment of an embedding row shrinks to 0.9 of itself in every step without the
row's piece. After some 900 steps it is a denormal number, whose rounding keeps it from ever becoming 0. Each time is
the least CPU time of several turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch


def seconds(action: Callable[[], object], turns: int) -> float:
    """Return the least CPU time of the action in so many turns, after one that does not count."""
    taken = []
    for _ in range(turns + 1):
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return min(taken[1:])


def product(dtype: torch.dtype, turns: int) -> float:
    """Time a product in this type."""
    rows, weight = torch.ones(512, 768, dtype=dtype), torch.ones(768, 768, dtype=dtype)
    return seconds(lambda: torch.nn.functional.linear(rows, weight), turns)


def attention(dtype: torch.dtype, kind: str, length: int, turns: int) -> float:
    """Time attention of masked tokens, forward and backward."""
    rows = 2048 // length
    heads = [torch.randn(rows, 12, length, 32, dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = torch.ones(rows, 1, 1, length, dtype=torch.bool)
    mask[::2, ..., length // 2 :] = False

    def step() -> None:
        query, key, value = (states.float() for states in heads) if kind == "fused, float32" else heads
        if kind == "single operations":
            weights = (query @ key.transpose(-1, -2) * 32**-0.5).masked_fill(~mask, torch.finfo(dtype).min)
            found = torch.softmax(weights, -1, dtype=torch.float32).to(dtype) @ value
        else:
            found = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        found.sum().backward()

    return seconds(step, turns)


def adam(rows: int, moment: float, flush: bool, turns: int) -> float:
    """Time Adam's step on (rows, 384) weights without a gradient, whose first moments have this value."""
    torch.set_flush_denormal(flush)
    weight = torch.nn.Parameter(torch.ones(rows, 384))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.step()
    optimizer.state[weight]["exp_avg"].fill_(moment)
    try:
        return seconds(optimizer.step, turns)
    finally:
        torch.set_flush_denormal(False)


def main(argv: list[str] | None = None) -> None:
    """Print a line for each time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000, help="embedding rows")
    parser.add_argument("--turns", type=int, default=8)
    args = parser.parse_args(argv)
    found = torch.cpu.get_capabilities()
    print("instructions:", *[name for name in ("amx_bf16", "avx512_bf16", "bf16", "avx2") if found.get(name)])
    whole = product(torch.float32, args.turns)
    half = product(torch.bfloat16, args.turns)
    print(f"product, float32   {1e3 * whole:9.2f} ms")
    print(f"product, bfloat16  {1e3 * half:9.2f} ms  {half / whole:5.2f} of float32")
    for length in (32, 128):
        whole = attention(torch.float32, "fused", length, args.turns)
        print(f"attention of {length:3} tokens, float32  {1e3 * whole:9.2f} ms, by the fused kernel")
        for kind in ("single operations", "fused", "fused, float32"):
            taken = attention(torch.bfloat16, kind, length, args.turns)
            print(f"attention of {length:3} tokens, bfloat16 {1e3 * taken:9.2f} ms, {kind}: {taken / whole:.2f}")
    ordinary = adam(args.rows, 1e-3, False, args.turns)
    print(f"Adam, ordinary     {1e3 * ordinary:9.2f} ms")
    for name, flush in (("kept", False), ("flushed", True)):
        taken = adam(args.rows, 1e-41, flush, args.turns)
        print(f"Adam, denormals {name:8}{1e3 * taken:4.0f} ms  {taken / ordinary:5.2f} of ordinary")


if __name__ == "__main__":
    main()
