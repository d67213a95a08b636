"""Offline, single-threaded settings for every test, and fixtures of tiny models and corpora."""

import gc
import os
import zlib

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
from transformers import PreTrainedModel

# The same examples in every run, and no run without an end. Nothing is written into the checkout.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=100, database=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def _imported_modules_are_no_garbage():
    """Keep the imported libraries out of the garbage collection that accelerate does before each training run."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _perturbed_weights():
    """Move each weight of each new model by up to 1e-6, if `HF_XALIGN_PERTURB` is set to a seed.

    This stands for the CPUs that nobody here has: a test that fails then rests on rounding. The noise of a weight
    depends on the seed, its name and its shape alone, so that models made alike stay alike.
    """
    if "HF_XALIGN_PERTURB" not in os.environ:
        yield
        return
    post_init = PreTrainedModel.post_init

    def perturbed(self):
        post_init(self)
        for name, weight in self.named_parameters():
            if weight.is_floating_point() and not weight.is_meta:
                key = f"{os.environ['HF_XALIGN_PERTURB']} {name} {tuple(weight.shape)}"
                generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
                noise = torch.rand(weight.shape, generator=generator, dtype=torch.float64) * 2 - 1
                weight.data.add_(1e-6 * noise.to(weight.dtype))

    PreTrainedModel.post_init = perturbed
    yield
    PreTrainedModel.post_init = post_init


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
