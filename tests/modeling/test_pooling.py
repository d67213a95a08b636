"""Words pooled in one gather or product against a loop over words and tokens, in float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.numeric import assert_rounding

from hf_xalign.data.batches.pairs import word_token_index
from hf_xalign.modeling.pooling import pool_spans, pool_words

POOLINGS = ("first", "last", "mean")
DIM = 3


@st.composite
def batches(draw):
    """Hidden states (rows, width, 3) and spans (rows, words, 2): overlapping, empty, up to or behind the last."""
    rows, width, words = (draw(st.integers(1, most)) for most in (4, 6, 4))
    hidden = draw(st.lists(st.floats(-1e3, 1e3), min_size=rows * width * DIM, max_size=rows * width * DIM))
    ends = st.lists(st.integers(0, width), min_size=2 * rows * words, max_size=2 * rows * words)
    spans = torch.tensor(draw(ends)).view(rows, words, 2).sort(-1).values
    # An encoder of pairs says (0, 0) for a word that was cut off, and for padding.
    cut = torch.tensor(draw(st.lists(st.booleans(), min_size=rows * words, max_size=rows * words))).view(rows, words)
    return torch.tensor(hidden, dtype=torch.float64).view(rows, width, DIM), spans.masked_fill(cut.unsqueeze(-1), 0)


def slow(hidden, start, end, pooling):
    tokens = [hidden[k].tolist() for k in range(start, end)]
    if pooling == "mean":
        return [math.fsum(column) / len(tokens) for column in zip(*tokens, strict=True)]
    return tokens[0] if pooling == "first" else tokens[-1]


@pytest.mark.parametrize("pooling", POOLINGS)
@given(batch=batches(), junk=st.sampled_from([float("nan"), float("inf"), 0.0]))
def test_words_are_those_of_a_loop(pooling, batch, junk):
    hidden, spans = batch
    width = hidden.shape[1]
    expected, there = torch.zeros(*spans.shape[:2], DIM, dtype=torch.float64), []
    used = torch.zeros(hidden.shape[:2], dtype=torch.bool)
    for row, sentence in enumerate(spans.tolist()):
        for word, (start, end) in enumerate(sentence):
            if end > start:
                expected[row, word] = torch.tensor(slow(hidden[row], start, end, pooling), dtype=torch.float64)
                used[row, start:end] = True
                there.append((row, word))
    # A token of no word may be anything: padding often is no number.
    hidden = torch.where(used.unsqueeze(-1), hidden, junk)
    found = pool_spans(hidden, spans, pooling)
    assert found.dtype == torch.float64
    assert_rounding(found, expected, operations=2 * width + 1, scale=1e3)
    if there:
        rows, words = np.array(there).T
        index = word_token_index(spans[rows, words].numpy(), rows, width, pooling)
        assert_rounding(pool_words(hidden, index), expected[rows, words], operations=2 * width + 1, scale=1e3)
