"""Model cards: render a README.md from a run's record with one template and a part for each method."""

from __future__ import annotations

from hf_xalign.model_cards.card import render_card, write_card

__all__ = ["render_card", "write_card"]
