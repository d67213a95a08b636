"""Offline, single-threaded settings for every test, and fixtures of tiny models and corpora."""

import gc
import os
from types import SimpleNamespace

# Before torch is imported. One thread a worker: two workers of two threads on two cores wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_MODE", "offline")

import pytest
import torch
from hypothesis import settings
from support.tiny import make_encoder, make_links, make_tokenizer

# The same examples in every run, and no run without an end. Nothing is written into the checkout.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=100, database=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def _garbage_is_collected_by_python_alone():
    """Leave out accelerate's collections around each training run, which take as long as a short run."""
    gc.freeze()  # the imported libraries are no garbage
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accelerate.utils.memory.gc", SimpleNamespace(collect=lambda: 0))
        yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep every file that the library caches (links, pivot vectors) inside pytest's temporary folder."""
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path_factory.getbasetemp() / "xalign-cache"))


@pytest.fixture(autouse=True)
def _denormal_numbers_again():
    """Undo what a recipe sets for its whole process, which the next test must not see."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def encoder():
    return make_encoder()


@pytest.fixture(scope="session")
def aligned():
    return make_links()
