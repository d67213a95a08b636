"""Rows gathered from two gloo processes, of which one has more than the other, and the gradient that each gets.

Run as a script, `test_distributed.py RANK FOLDER`, it is one of the two processes.
"""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from hf_xalign.distributed import gather_rows, process_count, whole_loss


def worker(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    assert process_count() == 2
    rows = torch.arange(3 - rank).float().unsqueeze(1).requires_grad_() * 1.0 + 10 * rank
    gathered = gather_rows(rows)
    assert gathered.flatten().tolist() == [0, 1, 2, 10, 11] and gather_rows(torch.tensor([rank])).tolist() == [0, 1]
    loss = (gathered * torch.arange(1.0, 6.0).unsqueeze(1)).sum()
    own = torch.tensor([[1.0], [2], [3]] if rank == 0 else [[4.0], [5]])
    for scale, found in ((1, loss), (2, whole_loss(loss))):  # DDP's mean over processes takes the 2 out again
        assert found == loss
        (gradient,) = torch.autograd.grad(found, rows, retain_graph=True)
        assert torch.equal(gradient, scale * own)
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_gather_the_rows_of_both(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    commands = [[sys.executable, __file__, str(rank), str(tmp_path)] for rank in (0, 1)]
    running = [subprocess.Popen(c, env=environment, stderr=subprocess.PIPE, text=True) for c in commands]
    try:
        for process in running:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in running:  # the other one waits for a process that failed
            process.kill()


def test_one_process_gathers_nothing():
    rows = torch.ones(2, 3, requires_grad=True)
    assert gather_rows(rows) is rows and process_count() == 1
    whole = whole_loss(rows.sum())
    whole.backward()
    assert whole == 6 and torch.equal(rows.grad, torch.ones(2, 3))


if __name__ == "__main__":
    worker(int(sys.argv[1]), sys.argv[2])
