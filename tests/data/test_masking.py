"""Which tokens are hidden, what stands for them, and that an example's draws are its own."""

from __future__ import annotations

import numpy as np
import pytest
from support.batches import slow_draws, slow_mask

from hf_xalign.data.masking import example_draws, mask_tokens, masking_vocabulary


@pytest.fixture
def vocabulary(tokenizer):
    return masking_vocabulary(tokenizer)


def mask(input_ids, vocabulary, examples, seed=0, epoch=0, **shares):
    maskable = vocabulary.maskable(input_ids)
    return mask_tokens(input_ids, maskable, vocabulary, examples, seed=seed, epoch=epoch, **shares)


def within(count, total, share):
    """Require a count within four standard deviations of its expectation."""
    assert abs(count - total * share) < 4 * (total * share * (1 - share)) ** 0.5


def test_vocabulary(tokenizer, vocabulary):
    assert vocabulary.mask_token_id == 4
    assert vocabulary.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert vocabulary.replacements.tolist() == list(range(5, len(tokenizer)))


def test_shares(vocabulary):
    # One token, so that a random one in its place is seldom the same.
    input_ids = np.full((2000, 100), 7)
    input_ids[:, 0], input_ids[:, 40], input_ids[:, 41], input_ids[:, 80:] = 2, 3, 1, 0
    text = input_ids == 7
    others = len(vocabulary.replacements)
    for probability, mask_share, random_share in ((0.15, 0.8, 0.1), (0.4, 0.5, 0.5), (1.0, 0.2, 0.3)):
        shares = {"probability": probability, "mask_share": mask_share, "random_share": random_share}
        masked, labels = mask(input_ids, vocabulary, np.arange(2000), **shares)
        hidden = labels != -100
        assert not hidden[~text].any() and (labels[hidden] == 7).all()
        assert (masked[~hidden] == input_ids[~hidden]).all()
        tokens, total = masked[hidden], int(hidden.sum())
        if probability < 1:
            within(total, int(text.sum()), probability)
        else:
            assert total == text.sum()
        within((tokens == 4).sum(), total, mask_share)
        within((tokens == 7).sum(), total, 1 - mask_share - random_share + random_share / others)
        drawn = tokens[(tokens != 4) & (tokens != 7)]
        assert set(drawn) == set(vocabulary.replacements) - {7}  # every one of them, and no special token
        counts, expected = np.unique(drawn, return_counts=True)[1], len(drawn) / (others - 1)
        assert abs(counts - expected).max() < 5 * expected**0.5


def test_places_of_a_sentence_are_hidden_alike_and_apart(vocabulary):
    hidden = mask(np.full((8000, 30), 7), vocabulary, np.arange(8000))[1] != -100
    for count in hidden.sum(axis=0):
        within(count, 8000, 0.15)
    within((hidden[:, 1:] & hidden[:, :-1]).sum(), 8000 * 29, 0.15**2)


def test_masks_belong_to_the_example_wherever_its_padding_is(vocabulary):
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, 100, size=size).tolist() for size in rng.integers(3, 25, size=20)]
    examples = rng.permutation(10_000)[:20]
    expected = [slow_mask(row, int(k), seed=3, epoch=2) for row, k in zip(rows, examples)]
    for left in (False, True):
        parts = [slice(-len(row), None) if left else slice(len(row)) for row in rows]
        input_ids = np.zeros((20, 30), dtype=np.int64)
        for k, row in enumerate(rows):
            input_ids[k, parts[k]] = row
        found = mask(input_ids, vocabulary, examples, seed=3, epoch=2)
        assert [tuple(side[k, parts[k]].tolist() for side in found) for k in range(20)] == expected


def test_draws_of_another_seed_epoch_or_stream_differ():
    base = {"seed": 0, "epoch": 0, "stream": 0}
    a = example_draws(np.arange(500), 20, **base)
    for name in base:
        b = example_draws(np.arange(500), 20, **{**base, name: 1})
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / len(a) ** 0.5, name
        assert len(np.union1d(a, b)) == 2 * len(a), name


def test_draws_are_uniform_and_independent_of_the_neighbour():
    draws = example_draws(np.arange(20_000), 5, seed=0, epoch=0).reshape(-1, 5)
    assert draws.min() >= 0 and draws.max() < 1
    for column in draws.T:
        deviation = abs(np.sort(column) - (np.arange(len(column)) + 0.5) / len(column)).max()
        assert deviation < 1.95 / len(column) ** 0.5  # Kolmogorov-Smirnov, p = 0.001
    correlations = np.corrcoef(np.concatenate([draws[:-1], draws[1:]], axis=1).T)
    assert abs(correlations - np.eye(10)).max() < 5 / len(draws) ** 0.5


@pytest.mark.numeric
def test_draws_against_a_loop():
    examples = [(12, 3), (0, 0), (2**40, 2)]
    expected = [x for example, count in examples for x in slow_draws(example, count, seed=7, epoch=5, stream=1)]
    draws = example_draws(np.array([12, 0, 2**40]), np.array([3, 0, 2]), seed=7, epoch=5, stream=1)
    assert draws.tolist() == expected
