"""Model cards: a README.md made from a run's record and one template."""

from __future__ import annotations

from hf_xalign.model_cards.card import interval_rows, render_card, write_card

__all__ = ["interval_rows", "render_card", "write_card"]
