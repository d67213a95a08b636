"""Two streams in one batch."""

from __future__ import annotations

import pytest
from datasets import Dataset
from torch.utils.data import DataLoader, SequentialSampler

from hf_xalign.data.sampling import PairSampler
from hf_xalign.data.streams import PairedSampler, PairedStreams
from hf_xalign.errors import InputError


def stream(corpus=7, seed=0, **options):
    return PairSampler([5] * corpus, ["de"] * corpus, step_pairs=2, seed=seed, **options)


def sampler(seed=0, share=0.5, examples=10, corpus=7, task_seed=3):
    task = PairSampler([5] * examples, ["en"] * examples, step_pairs=4, seed=task_seed)
    return PairedSampler(task, stream(corpus, seed), share=share)


def drawn_epoch(paired, epoch):
    paired.set_epoch(epoch)
    return list(paired)


def drawn(paired, epochs=1):
    return [row for epoch in range(epochs) for row in drawn_epoch(paired, epoch)]


def test_task_order_is_that_of_the_task_alone():
    task = PairSampler([5] * 10, ["en"] * 10, step_pairs=4, seed=3)
    for seed in (0, 1):
        assert [row for row, _ in drawn(sampler(seed))] == list(task)


def test_every_window_of_a_batch_has_its_pairs():
    rows = drawn(sampler(share=0.5), epochs=3)
    assert len(rows) == 30
    for start in range(0, 30, 4):
        assert sum(len(pairs) for _, pairs in rows[start : start + 4]) == min(4, 30 - start) // 2


def test_stream_runs_on_over_epochs_and_through_the_whole_corpus():
    pairs = [pair for _, some in drawn(sampler(share=0.7), epochs=3) for pair in some]
    assert len(pairs) == 21
    for start in (0, 7, 14):
        assert sorted(pairs[start : start + 7]) == list(range(7))
    assert pairs[:7] != pairs[7:14]


@pytest.mark.parametrize("examples", [24, 22])
def test_a_steps_pairs_are_of_like_length(examples):
    """Every step has a whole group of the stream's, also after an epoch whose last step lacks examples."""
    lengths = [10 * (k // 4) + k % 4 for k in range(32)]
    groups = PairSampler(lengths, ["de"] * 32, step_pairs=4, seed=1, multiple=4)
    paired = PairedSampler(SequentialSampler(range(examples)), groups, share=0.5, step_examples=8)
    steps = []
    for epoch in range(5):
        rows = drawn_epoch(paired, epoch)
        steps += [[k for _, pairs in rows[start : start + 8] for k in pairs] for start in range(0, len(rows), 8)]
    assert {len(step) for step in steps} <= {3, 4}
    assert all(len({lengths[k] // 10 for k in step}) == 1 for step in steps)
    # Eight groups, then all of them again: none is passed over but for pairs that a short step leaves.
    assert {k // 4 for step in steps[:8] for k in step} == set(range(8))


def test_more_pairs_than_examples():
    assert [len(pairs) for _, pairs in drawn(sampler(share=2.0))] == [2] * 10


def test_seed_of_the_stream_moves_the_pairs_alone():
    one, other = drawn(sampler(0)), drawn(sampler(1))
    assert [row for row, _ in one] == [row for row, _ in other]
    assert [pairs for _, pairs in one] != [pairs for _, pairs in other]


def test_an_epoch_that_is_begun_alone_is_the_same():
    paired = sampler(share=0.7)
    whole = drawn(paired, epochs=3)
    paired.set_epoch(2)
    assert list(paired) == whole[20:]


def test_rows_of_both_streams_come_through_a_dataloader():
    task = Dataset.from_dict({"text": [f"t{k}" for k in range(6)]})
    pairs = Dataset.from_dict({"source": [f"s{k}" for k in range(3)]})
    paired = PairedSampler(SequentialSampler(task), stream(len(pairs)), share=0.5)
    loader = DataLoader(PairedStreams(task, pairs), sampler=paired, batch_size=2, collate_fn=list)
    batches = list(loader)
    assert [[row.task["text"] for row in batch] for batch in batches] == [["t0", "t1"], ["t2", "t3"], ["t4", "t5"]]
    assert sorted(pair["source"] for batch in batches for row in batch for pair in row.pairs) == ["s0", "s1", "s2"]


def test_bad_input():
    task = SequentialSampler(range(3))
    with pytest.raises(InputError, match="share"):
        PairedSampler(task, stream(3), share=-1)
    with pytest.raises(InputError, match="at least one pair"):
        PairedSampler(task, stream(0), share=1)
    with pytest.raises(InputError, match="empty"):
        PairedStreams(Dataset.from_dict({"a": [1]}), Dataset.from_dict({"a": []}))
