"""Promises about the package as a whole: a light import, one way of importing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("hf_xalign", "trainers", "recipes", "model_cards", "tests", "benchmarks")
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]

checkout_only = pytest.mark.skipif(not (ROOT / "setup.cfg").exists(), reason="not a checkout")


@pytest.mark.slow
def test_import_is_light():
    heavy = ("torch", "transformers", "datasets", "numpy", "peft", "evaluate")
    code = f"import sys, hf_xalign; print(hf_xalign.__version__, [m for m in {heavy} if m in sys.modules])"
    # -I: from site-packages or the editable install, not from the current folder
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"\d+\.\d+\S* \[\]\n", out)


@checkout_only
def test_no_file_imports_a_room_by_its_top_level_name():
    """`import trainers` would work from the checkout's root, and make a second copy of every class."""
    wrong = re.compile(r"^\s*(import|from)\s+(trainers|recipes|model_cards)\b", re.MULTILINE)
    assert FILES
    assert [str(path.relative_to(ROOT)) for path in FILES if wrong.search(path.read_text(encoding="utf-8"))] == []
