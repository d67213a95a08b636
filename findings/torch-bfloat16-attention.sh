#!/bin/sh
# torch 2.13.0: on a CPU, training attention in bfloat16 takes several times as long as converting to float32 and back.
# Products are faster in bfloat16 (0.13 of float32's time with Intel's AMX, 0.44 on AMD's Zen 4), so a mixed-precision
# run chooses it. The fused kernel's forward pass keeps up; its backward pass for sentences of 32 tokens does not.
# Here: `PACKED_ATTENTION` computes attention in float32 under autocast on a CPU.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy
OMP_NUM_THREADS=1 "$folder/venv/bin/python" - <<'PYTHON'
import time

import torch

torch.manual_seed(0)
mask = torch.ones(64, 1, 1, 32, dtype=torch.bool)
mask[::2, ..., 16:] = False
heads = [torch.randn(64, 12, 32, 32, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


def seconds(convert, backward):
    taken = []
    for _ in range(9):
        start = time.process_time()
        given = [states.float() for states in heads] if convert else heads
        attended = torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=mask).to(torch.bfloat16)
        if backward:
            attended.sum().backward()
        taken.append(time.process_time() - start)
    return min(taken)


ratios = {name: seconds(False, back) / seconds(True, back) for name, back in (("forward", False), ("both", True))}
print(" ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items()))
# Seen: forward 0.8 both 3.5
assert ratios["both"] > 2
PYTHON
