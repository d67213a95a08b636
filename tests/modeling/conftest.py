"""Arithmetic in float64 for the tests that compare with a slow reference."""

import pytest
import torch


@pytest.fixture
def float64():
    """Make new models and tensors float64, as transformers builds them in the default type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
