"""Every room is imported by its name inside hf_xalign."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("hf_xalign", "trainers", "recipes", "model_cards", "tests", "benchmarks")
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]

checkout_only = pytest.mark.skipif(not (ROOT / "setup.cfg").exists(), reason="not a checkout")


@checkout_only
def test_no_file_imports_a_room_by_its_top_level_name():
    """`import trainers` would work from the checkout's root, and make a second copy of every class."""
    wrong = re.compile(r"^\s*(import|from)\s+(trainers|recipes|model_cards)\b", re.MULTILINE)
    assert FILES
    assert [str(path.relative_to(ROOT)) for path in FILES if wrong.search(path.read_text(encoding="utf-8"))] == []
