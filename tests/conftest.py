"""Offline, single-purpose settings for every test, and fixtures over `tiny`."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("WANDB_MODE", "offline")

import pytest
from tiny import make_encoder, make_links, make_tokenizer


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep every file that the library caches (links, pivot vectors) inside pytest's temporary folder."""
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path_factory.getbasetemp() / "xalign-cache"))


@pytest.fixture
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def encoder():
    return make_encoder()


@pytest.fixture
def aligned():
    return make_links()
