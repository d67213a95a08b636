"""Bandit that draws more pairs of the languages whose loss falls fastest."""

from __future__ import annotations

from typing import Any

import numpy as np


class LanguageBandit:
    """Choose each language's share of a window of steps, by discounted UCB (Garivier and Moulines 2008).

    A window has 50 slots; a slot is one optimizer step's number of pairs. Half of the slots are divided equally. Each
    other slot goes to the language with the largest mean gain + sqrt(2 log(1 + N) / n). The gain of a window is the
    relative drop of the language's loss since the window before; mean gains are divided by the largest one. n is the
    number of slots that the language has had, in windows, and N the sum over all languages. Each window discounts
    counts and gains by 0.9.

    `slots` has one list for each window, with the slots of each language. The first two windows are divided equally;
    window w + 2 is decided after window w was trained. So a decision does not depend on how many batches the
    dataloader prefetches, and a resumed run repeats it.

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
        """Record one trained window and decide the next: summed `losses` and `counts` of pairs, float (languages,)."""
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
        """Return the state in JSON types."""
        return {"slots": self.slots, **{name: getattr(self, f"_{name}").tolist() for name in _NUMBERS}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.slots = state["slots"]
        for name in _NUMBERS:
            setattr(self, f"_{name}", np.array(state[name]))


_NUMBERS = ("counts", "gains", "losses")
