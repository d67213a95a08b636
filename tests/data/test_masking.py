"""Which tokens are hidden, what stands for them, and that an example's draws are its own."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiny import make_tokenizer

from hf_xalign.data.masking import example_draws, mask_tokens, masking_vocabulary
from hf_xalign.errors import InputError


@pytest.fixture
def vocabulary(tokenizer):
    return masking_vocabulary(tokenizer)


def _mask(input_ids, vocabulary, examples, seed=0, epoch=0, **shares):
    maskable = vocabulary.maskable(input_ids)
    return mask_tokens(input_ids, maskable, vocabulary, examples, seed=seed, epoch=epoch, **shares)


def _within(count, total, share):
    assert abs(count - total * share) < 4 * (total * share * (1 - share)) ** 0.5


def test_vocabulary(tokenizer, vocabulary):
    assert vocabulary.mask_token_id == 4
    assert vocabulary.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert vocabulary.replacements.tolist() == list(range(5, len(tokenizer)))


@pytest.mark.parametrize("shares", [(0.15, 0.8, 0.1), (0.4, 0.5, 0.5), (1.0, 0.2, 0.3)])
def test_shares(vocabulary, shares):
    probability, mask_share, random_share = shares
    # One token, so that a random one in its place is the same by chance in one of many cases only.
    input_ids = np.full((2000, 100), 7)
    input_ids[:, 0], input_ids[:, 40], input_ids[:, 41], input_ids[:, 80:] = 2, 3, 1, 0
    masked, labels = _mask(
        input_ids,
        vocabulary,
        np.arange(2000),
        probability=probability,
        mask_share=mask_share,
        random_share=random_share,
    )
    hidden = labels != -100
    text = input_ids == 7
    assert not hidden[~text].any()
    assert (masked[~hidden] == input_ids[~hidden]).all()
    assert (labels[hidden] == 7).all()
    tokens, total = masked[hidden], int(hidden.sum())
    if probability < 1:
        _within(total, int(text.sum()), probability)
    else:
        assert total == text.sum()
    _within((tokens == 4).sum(), total, mask_share)
    kept = 1 - mask_share - random_share
    same = kept + random_share / len(vocabulary.replacements)
    _within((tokens == 7).sum(), total, same)
    drawn = tokens[(tokens != 4) & (tokens != 7)]
    assert set(drawn) == set(vocabulary.replacements) - {7}  # every one of them, and no special token
    counts = np.bincount(drawn, minlength=len(vocabulary.replacements) + 5)[vocabulary.replacements]
    expected = len(drawn) / (len(vocabulary.replacements) - 1)
    assert abs(counts[counts > 0] - expected).max() < 5 * expected**0.5


def test_every_place_of_a_sentence_alike(vocabulary):
    _, labels = _mask(np.full((8000, 30), 7), vocabulary, np.arange(8000))
    by_place = (labels != -100).sum(axis=0)
    for count in by_place:
        _within(count, 8000, 0.15)
    # No two neighbours are hidden together more often than by chance.
    hidden = labels != -100
    _within((hidden[:, 1:] & hidden[:, :-1]).sum(), 8000 * 29, 0.15**2)


def test_masks_belong_to_the_example(vocabulary):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 25, size=40)
    examples = rng.permutation(10_000)[:40]
    input_ids = np.zeros((40, 30), dtype=np.int64)
    for row, length in enumerate(lengths):
        input_ids[row, :length] = rng.integers(5, 100, size=length)
    masked, labels = _mask(input_ids, vocabulary, examples, seed=3, epoch=2)
    order = rng.permutation(40)
    for rows in np.array_split(order, 7):
        width = lengths[rows].max()
        left = np.stack([np.roll(input_ids[row, :width], width - lengths[row]) for row in rows])
        part, part_labels = _mask(input_ids[rows, :width], vocabulary, examples[rows], seed=3, epoch=2)
        assert (part == masked[rows, :width]).all() and (part_labels == labels[rows, :width]).all()
        part, _ = _mask(left, vocabulary, examples[rows], seed=3, epoch=2)  # padding on the left
        for k, row in enumerate(rows):
            assert (part[k, width - lengths[row] :] == masked[row, : lengths[row]]).all()


@pytest.mark.parametrize("changed", [{"seed": 1}, {"epoch": 1}, {"stream": 1}])
def test_draws_differ(changed):
    base = {"seed": 0, "epoch": 0, "stream": 0}
    a = example_draws(np.arange(500), 20, **base)
    b = example_draws(np.arange(500), 20, **{**base, **changed})
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / len(a) ** 0.5
    assert len(np.union1d(a, b)) == 2 * len(a)


def test_draws_are_uniform_and_independent_of_the_neighbour():
    draws = example_draws(np.arange(20_000), 5, seed=0, epoch=0).reshape(-1, 5)
    assert draws.min() >= 0 and draws.max() < 1
    for column in draws.T:
        deviation = abs(np.sort(column) - (np.arange(len(column)) + 0.5) / len(column)).max()
        assert deviation < 1.95 / len(column) ** 0.5  # Kolmogorov-Smirnov, p = 0.001
    correlations = np.corrcoef(np.concatenate([draws[:-1], draws[1:]], axis=1).T)
    assert abs(correlations - np.eye(10)).max() < 5 / len(draws) ** 0.5


def test_draws_against_a_loop():
    """SplitMix64 as its authors write it, a number at a time."""
    bits = (1 << 64) - 1

    def mixed(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & bits
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & bits
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    expected = []
    for example, count in [(12, 3), (0, 0), (2**40, 2)]:
        state = 0
        for part in (7, 5, 1, example):
            state = mixed((state + golden + part) & bits)
        for _ in range(count):
            state = (state + golden) & bits
            expected.append((mixed(state) >> 11) / 2**53)
    draws = example_draws(np.array([12, 0, 2**40]), np.array([3, 0, 2]), seed=7, epoch=5, stream=1)
    assert draws.tolist() == expected


def test_no_mask_token():
    tokenizer = make_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(InputError, match=r"no mask token.*add_special_tokens.*switch the TLM/MLM term off"):
        masking_vocabulary(tokenizer)


@pytest.mark.parametrize("shares", [(0, 0.8, 0.1), (1.1, 0.8, 0.1), (0.15, 0.8, 0.3), (0.15, -0.1, 0.1)])
def test_bad_shares(vocabulary, shares):
    names = ("probability", "mask_share", "random_share")
    with pytest.raises(InputError, match="masking probability"):
        _mask(np.full((1, 5), 7), vocabulary, np.arange(1), **dict(zip(names, shares, strict=True)))
