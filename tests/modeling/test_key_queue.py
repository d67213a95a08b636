"""The queue of keys: a ring that loses nothing, against a list written slot by slot."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.numeric import assert_rounding

from hf_xalign.modeling.contrast.momentum import EMPTY, RANDOM, KeyQueue

SIZES = [3, 3, 1, 4, 7, 2]  # into 7 slots: no size but the fifth divides it


def batches(sizes, dim=5):
    generator = torch.Generator().manual_seed(1)
    first = 0
    for size in sizes:
        yield torch.randn(size, dim, generator=generator), torch.arange(first, first + size) * 11
        first += size


def test_contents_are_those_of_a_ring_written_slot_by_slot():
    queue, parts = KeyQueue(7, 5), KeyQueue(7, 5)
    keys, pairs, pointer, written = [[0.0] * 5 for _ in range(7)], [EMPTY] * 7, 0, 0
    for new, numbers in batches(SIZES):
        queue.enqueue(new, numbers)
        for row, (key, number) in enumerate(zip(new.tolist(), numbers.tolist(), strict=True)):
            parts.enqueue(new[row : row + 1], numbers[row : row + 1])
            keys[pointer], pairs[pointer] = key, number
            pointer = 0 if pointer == 6 else pointer + 1
            written += 1
        for found in (queue, parts):
            assert torch.equal(found.keys, torch.tensor(keys)) and found.pairs.tolist() == pairs
            assert (found.pointer.item(), found.filled.item()) == (pointer, min(written, 7))
    assert sorted(pairs) == [11 * n for n in range(13, 20)]  # the last seven of twenty


def test_everything_comes_back_from_a_file_bit_for_bit(tmp_path):
    queue, other = KeyQueue(7, 5, start="random", seed=3), KeyQueue(7, 5)
    steps = list(batches(SIZES))
    for step in steps[:3]:
        queue.enqueue(*step)
    save_file(queue.state_dict(), tmp_path / "queue.safetensors")
    other.load_state_dict(load_file(tmp_path / "queue.safetensors"))
    for step in steps[3:]:
        queue.enqueue(*step)
        other.enqueue(*step)
    assert set(queue.state_dict()) == {"keys", "pairs", "pointer", "filled"}
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in queue.state_dict().items())


@pytest.mark.numeric
def test_a_random_start_is_the_seeds_and_of_length_one():
    state = torch.get_rng_state()
    queue = KeyQueue(20, 300, start="random", seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(queue.keys, KeyQueue(20, 300, start="random", seed=3).keys)
    assert not torch.equal(queue.keys, KeyQueue(20, 300, start="random", seed=4).keys)
    assert_rounding(queue.keys.norm(dim=1), torch.ones(20), operations=2 * 300)
    assert queue.pairs.tolist() == [RANDOM] * 20 and queue.filled == 0
