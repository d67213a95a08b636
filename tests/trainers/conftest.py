"""Fixture that keeps training fast: accelerate collects the garbage of the whole process before each run."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="session", autouse=True)
def _imported_modules_are_no_garbage():
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
