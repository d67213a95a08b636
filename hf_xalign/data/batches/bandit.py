"""Bandit that gives more of the training to languages that gain more from it."""

from __future__ import annotations

from typing import Any

import numpy as np


class LanguageBandit:
    """Share of each language in the windows of an epoch, by discounted UCB (Garivier and Moulines 2008).

    A window has 50 slots, a step's number of pairs each. Half of them are even. Each other slot goes to the language
    with the largest sum of its mean gain, relative to the largest of all languages, and of sqrt(2 log(1 + N) / n). The
    gain is the relative drop of the language's loss since the window before. n is the number of windows that its slots
    in all windows would fill, and N is that of all languages. Counts and gains lose a tenth with each window.

    `slots` has one list for each window: the first two are even, and window w + 2 is decided when window w was
    trained. So a decision does not depend on how far batches are made ahead, and a resumed run repeats it.

    Example:
        >>> bandit = LanguageBandit(2)
        >>> for loss in (1.0, 0.8, 0.6):  # the first language learns, the second does not
        ...     bandit.learn(np.array([loss, 1.0]), np.array([1.0, 1.0]))
        >>> bandit.slots
        [[25, 25], [25, 25], [25, 25], [38, 12], [38, 12]]
    """

    SLOTS = 50
    DISCOUNT = 0.9

    def __init__(self, languages: int):
        even = [self.SLOTS // languages + (code < self.SLOTS % languages) for code in range(languages)]
        self.slots = [even, list(even)]
        self._counts, self._gains, self._losses = np.zeros((3, languages))

    def learn(self, losses: np.ndarray, counts: np.ndarray) -> None:
        """Take the sum of each language's losses in the next window and their number, float (languages,)."""
        seen = counts > 0
        means = np.where(seen, losses / np.where(seen, counts, 1), self._losses)
        known = seen & (self._losses > 0)
        gains = np.where(known, 1 - means / np.where(known, self._losses, 1), 0)
        trained = np.array(self.slots[-2]) / self.SLOTS * seen
        self._losses = means
        self._counts = self.DISCOUNT * self._counts + trained
        self._gains = self.DISCOUNT * self._gains + trained * gains
        self.slots.append(self._decide())

    def _decide(self) -> list[int]:
        means = self._gains / np.maximum(self._counts, 1e-12)
        means /= max(np.abs(means).max(), 1e-12)
        counts = self._counts + np.array(self.slots[-1]) / self.SLOTS
        slots = np.full(len(counts), self.SLOTS // (2 * len(counts)))
        counts += slots / self.SLOTS
        for _ in range(self.SLOTS - int(slots.sum())):
            bonus = np.sqrt(2 * np.log1p(counts.sum()) / np.maximum(counts, 1e-12))
            chosen = int(np.argmax(means + bonus))
            slots[chosen] += 1
            counts[chosen] += 1 / self.SLOTS
        return slots.tolist()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        return {"slots": self.slots, **{name: getattr(self, f"_{name}").tolist() for name in _NUMBERS}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state of [`state_dict`]."""
        self.slots = state["slots"]
        for name in _NUMBERS:
            setattr(self, f"_{name}", np.array(state[name]))


_NUMBERS = ("counts", "gains", "losses")
