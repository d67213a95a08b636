from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch
import yaml

import hf_xalign.metrics
from hf_xalign.errors import InputError
from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.evaluation.retrieval import word_retrieval

FOLDER = Path(hf_xalign.metrics.__file__).parent
NAMES = ["alignment_error_rate", "word_retrieval"]


@pytest.fixture(autouse=True)
def _own_module_cache(tmp_path, monkeypatch):
    """`evaluate.load` copies each script into a cache and imports it from there."""
    monkeypatch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(evaluate.config, "HF_EVALUATE_CACHE", str(tmp_path / "evaluate"))
    monkeypatch.setattr(evaluate.loading, "init_dynamic_modules", _init_dynamic_modules(tmp_path / "modules"))
