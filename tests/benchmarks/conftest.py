"""The scripts of benchmarks/ as modules."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def script():
    """A script's module by its name; loaded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)

        @cache
        def load(name):
            spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module

        yield load
