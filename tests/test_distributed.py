"""Two gloo processes train as one with the joint batch: gathered rows, contrasts, queue, averages, cached gradients.

Run as a script, `test_distributed.py RANK FOLDER`, it is one of the two processes.
"""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from support.numeric import assert_rounding
from support.tiny import make_encoder
from torch import nn

from hf_xalign.distributed import gather_rows, process_count, whole_loss
from hf_xalign.losses import moco_infonce, sentence_infonce
from hf_xalign.modeling.contrast.cached_gradient import cached_backward
from hf_xalign.modeling.contrast.heads import SentenceHead
from hf_xalign.modeling.contrast.momentum import KeyQueue, MomentumEncoder

STEPS, PAIRS = 4, 5
# Operations on the longest path of a step: two layers and a head forward and backward, each of products of 16 and 32,
# scores, softmax and norms; then sums over the step's sentences.
OPERATIONS = STEPS * 3 * 2 * (5 * 16 + 3 * 32 + 2 * 48)


class Sentences(nn.Module):
    def __init__(self, normalize):
        super().__init__()
        self.encoder = make_encoder()
        self.head = SentenceHead(16, 6, normalize=normalize)
        self.double()

    def forward(self, ids):
        return self.head(self.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0])


def train(method, rank, processes):
    """Five pairs a step: both micro-batches are dealt to the processes in unequal parts, (2, 1) and (1, 1)."""
    module = Sentences("before" if method == "moco" else "after")
    model = nn.parallel.DistributedDataParallel(module) if processes > 1 else module
    momentum, queue = MomentumEncoder(module.encoder, module.head).double(), KeyQueue(7, 6).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(STEPS):
        ids = torch.randint(5, 160, (2, PAIRS, 6), generator=generator)
        pairs = torch.arange(PAIRS) + 3 * step % 8
        first = [slice(0, 3)] if processes == 1 else [slice(0, 2), slice(2, 3)]
        second = [slice(3, 5)] if processes == 1 else [slice(3, 4), slice(4, 5)]
        parts = [first[rank], second[rank]]
        optimizer.zero_grad()
        if method == "moco":
            total, keys, numbers = torch.zeros((), dtype=torch.float64), [], []
            for part in parts:
                own = momentum.encode(ids[1, part], torch.ones_like(ids[1, part]))
                queue_keys, queue_pairs = queue.keys, queue.pairs
                numbered = {"pairs": pairs[part], "queue_pairs": queue_pairs}
                loss = moco_infonce(model(ids[0, part]), own, queue_keys, temperature=0.1, **numbered)
                # A sum over this process's pairs: DDP's mean over processes takes their number out again.
                (loss.sum() * processes / PAIRS).backward()
                total += loss.detach().sum() / PAIRS
                keys.append(gather_rows(own))
                numbers.append(gather_rows(pairs[part]))
            losses.append(gather_rows(total.reshape(1)).sum().item())
            optimizer.step()
            momentum.update(module.encoder, module.head, 0.9)
            queue.enqueue(torch.cat(keys), torch.cat(numbers))
        else:

            def contrast(vectors):
                source, target = (torch.cat(side) for side in (vectors[::2], vectors[1::2]))
                source, target = gather_rows(source), gather_rows(target)
                return whole_loss(sentence_infonce(source, target, temperature=0.1).mean())

            chunks = [ids[side, part] for part in parts for side in (0, 1)]
            quiet = {"no_sync": model.no_sync} if processes > 1 else {}
            losses.append(cached_backward(model, chunks, contrast, **quiet).item())
            optimizer.step()
    return {
        "losses": torch.tensor(losses),
        "query": nn.utils.parameters_to_vector(module.parameters()).detach(),
        "average": nn.utils.parameters_to_vector(momentum.parameters()),
        **queue.state_dict(),
    }


def worker(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    assert process_count() == 2
    rows = torch.arange(3 - rank).float().unsqueeze(1).requires_grad_() * 1.0 + 10 * rank
    gathered = gather_rows(rows)
    assert gathered.flatten().tolist() == [0, 1, 2, 10, 11] and gather_rows(torch.tensor([rank])).tolist() == [0, 1]
    (own,) = torch.autograd.grad((gathered * torch.arange(1.0, 6.0).unsqueeze(1)).sum(), rows)
    assert own.flatten().tolist() == ([1, 2, 3] if rank == 0 else [4, 5])
    torch.save({method: train(method, rank, 2) for method in ("moco", "in batch")}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
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
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    for method in ("moco", "in batch"):
        expected = train(method, 0, 1)
        assert all(torch.equal(value, found[1][method][name]) for name, value in found[0][method].items())
        for name, value in expected.items():
            # The temperature of 0.1 magnifies.
            assert_rounding(found[0][method][name], value, OPERATIONS, 10 * max(1.0, value.abs().max().item()))
        assert expected["losses"][-1] > 0.1


def test_one_process_gathers_nothing():
    rows = torch.ones(2, 3, requires_grad=True)
    assert gather_rows(rows) is rows and process_count() == 1
    loss = rows.sum()
    whole = whole_loss(loss)
    whole.backward()
    assert whole == loss and torch.equal(rows.grad, torch.ones(2, 3))


if __name__ == "__main__":
    worker(int(sys.argv[1]), sys.argv[2])
