"""Exact comparison of batches, and the draws behind masks as slow loops."""

import torch

BITS = (1 << 64) - 1


def assert_batch(found, expected):
    """Require the same names, types, shapes and values; `expected` holds tensors or nested lists."""
    assert list(found) == list(expected)
    for name, values in expected.items():
        wanted = torch.tensor(values, dtype=torch.int64 if values == [] else None) if type(values) is list else values
        assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape), name
        assert found[name].tolist() == wanted.tolist(), name


def _mixed(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


def slow_draws(example, count, *, seed=0, epoch=0, stream=0):
    """Return SplitMix64's numbers as its authors write it, one at a time."""
    state, draws = 0, []
    for part in (seed, epoch, stream, example):
        state = _mixed((state + 0x9E3779B97F4A7C15 + part) & BITS)
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & BITS
        draws.append((_mixed(state) >> 11) / 2**53)
    return draws


def slow_mask(tokens, example, *, seed=0, epoch=0, vocabulary=111, probability=0.15):
    """Return (masked, labels) of one row of the tiny tokenizer, whose first five tokens are special."""
    masked, labels = list(tokens), [-100] * len(tokens)
    places = [k for k, token in enumerate(tokens) if token > 4]
    draws = iter(slow_draws(example, 2 * len(places), seed=seed, epoch=epoch))
    for k, choice, pick in zip(places, draws, draws, strict=True):
        if choice < probability:
            labels[k] = tokens[k]
        if choice < probability * 0.8:
            masked[k] = 4
        elif choice < probability * 0.9:
            masked[k] = 5 + int(pick * (vocabulary - 5))
    return masked, labels
