"""Runs of the five recipes that are killed, or of which a file is damaged."""

import os
import subprocess
import sys

import pytest
from support.faults import METHODS
from support.launch import TESTS

# The operations that are tried here; `python -m support.faults kill FOLDER` tries every one.
EVERY = "6"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "flip"])
@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_equals_one_that_never_stopped(method, fault, tmp_path):
    command = [sys.executable, "-m", "support.faults", fault, str(tmp_path / "runs"), "--only", method]
    environment = {**os.environ, "PYTHONPATH": TESTS, "HF_XALIGN_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [*command, "--every", EVERY], cwd=TESTS, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and "0 wrong" in done.stdout, done.stdout + done.stderr[-2000:]
