"""Model cards: a README.md made from a run's record, one template, and a part of it for each method."""

from __future__ import annotations

from hf_xalign.model_cards.body import interval_rows
from hf_xalign.model_cards.card import render_card, write_card

__all__ = ["interval_rows", "render_card", "write_card"]
