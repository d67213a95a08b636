"""Spans out of logits, against a loop over every span of every window."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.tasks.qa_answers import best_answers, window_spans

QUESTIONS = np.array([0, 0, 0, 1, 3, 3, 4])  # question 2 has no window
TOKENS, LONGEST = 12, 4


def material(seed, ties=False):
    """Logits and characters of windows that overlap: window w begins 5 tokens after the one before it."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, len(QUESTIONS), TOKENS, generator=generator)
    if ties:
        logits = logits.round()
    opens = torch.full((len(QUESTIONS), TOKENS), -1)
    closes = opens.clone()
    for w, question in enumerate(QUESTIONS):
        shift = 5 * int((QUESTIONS[:w] == question).sum())
        for token in range(3, TOKENS - 1):
            # Every fourth token of a context is the second one of a character.
            n = token - 3 + shift
            if n % 4 != 3:
                opens[w, token] = 10 * n
            if n % 4 != 2:
                closes[w, token] = 10 * n + 7
    opens[6], closes[6] = -1, -1  # a window without text
    return logits[0], logits[1], opens, closes


def loop(start, end, opens, closes, n_best, longest):
    """The best spans of each question, (score, start, end), by looking at all."""
    found = []
    for question in range(5):
        spans: dict[tuple[int, int], float] = {}
        for w in np.flatnonzero(question == QUESTIONS):
            for i in range(TOKENS):
                for j in range(i, min(i + longest, TOKENS)):
                    if opens[w, i] >= 0 and closes[w, j] >= 0:
                        span = int(opens[w, i]), int(closes[w, j])
                        score = float(start[w, i] + end[w, j])
                        spans[span] = max(score, spans.get(span, -np.inf))
        order = sorted(spans, key=lambda span: (-spans[span], *span))[:n_best]
        found.append([(spans[span], *span) for span in order])
    return found


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n_best", [1, 3, 200])
@pytest.mark.parametrize("longest", [1, LONGEST, 99])
def test_spans_are_those_of_a_loop(n_best, longest, ties):
    given = material(7, ties)
    spans = window_spans(*given, n_best=n_best, max_answer_tokens=longest)
    found = best_answers(QUESTIONS, *(part.numpy() for part in spans), count=5, n_best=n_best)
    for question, expected in enumerate(loop(*given, n_best, longest)):
        got = list(zip(*(part[question] for part in (found.scores, found.starts, found.ends)), strict=True))
        there = [one for one in got if one[0] > -np.inf]
        assert [one[1:] for one in there] == [one[1:] for one in expected]
        np.testing.assert_allclose([one[0] for one in there], [one[0] for one in expected], rtol=1e-6)
        assert all(one == (-np.inf, -1, -1) for one in got[len(there) :])


def test_overlapping_windows_do_share_spans():
    """What makes the comparison above one of distinct spans."""
    _, _, opens, closes = material(7)
    first, second = ({(int(a), int(b)) for a in opens[w] for b in closes[w] if 0 <= a < b} for w in (0, 1))
    assert first & second


def test_order_of_windows_and_batches_does_not_matter():
    given = material(3)
    whole = window_spans(*given, n_best=3)
    order = torch.tensor([4, 0, 6, 2, 5, 1, 3])
    parts = [window_spans(*(column[rows] for column in given), n_best=3) for rows in order.split(3)]
    shuffled = [torch.cat(columns).numpy() for columns in zip(*parts, strict=True)]
    one = best_answers(QUESTIONS, *(part.numpy() for part in whole), count=5, n_best=3)
    other = best_answers(QUESTIONS[order.numpy()], *shuffled, count=5, n_best=3)
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_texts():
    given = material(5)
    spans = window_spans(*given)
    found = best_answers(QUESTIONS, *(part.numpy() for part in spans), count=5)
    contexts = ["".join(chr(0x4E00 + n) for n in range(400))] * 5
    texts = found.texts(contexts)
    assert texts[2] == texts[4] == ""
    for question in (0, 1, 3):
        _, start, end = loop(*given, 1, 30)[question][0]
        assert texts[question] == contexts[question][start:end] != ""


def test_bad_input():
    given = material(1)
    with pytest.raises(InputError, match="max_answer_tokens=0"):
        window_spans(*given, max_answer_tokens=0)
    given[0][2, 5] = torch.nan
    spans = [part.numpy() for part in window_spans(*given)]
    with pytest.raises(InputError, match="scores of window 2 are NaN"):
        best_answers(QUESTIONS, *spans, count=5)
    with pytest.raises(InputError, match="for 6 windows"):
        best_answers(QUESTIONS[:6], *spans, count=5)
