"""The whole card of every method and kind; `UPDATE_GOLDEN=1` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hf_xalign.model_cards import render_card

# Fixtures of conftest.py, and the golden file's name where it is another.
KINDS = {"record": "fao", "mao": "mao", "languages": "mao_languages", "mapping": "mapping",
         "map_adapter": "mapping_adapter", "ppa": "ppa", "align_mlm": "align_mlm",
         "finetune": "finetune", "continual": "continual", "tagger": "tagger", "questions": "questions"}  # fmt: skip


@pytest.mark.parametrize(("kind", "file"), KINDS.items())
def test_golden(request, kind, file):
    card = render_card(request.getfixturevalue(kind))
    golden = Path(__file__).with_name(f"golden_{file}.md")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(card, encoding="utf-8")
    assert card == golden.read_text(encoding="utf-8")
    assert "\n\n\n" not in card and "None" not in card and card.count("\n\n## ") == card.count("\n## ")
    assert all(line == line.rstrip() for line in card.splitlines())
