"""A short run of every recipe prints nothing that its user need not read."""

import os
import re
import subprocess
import sys

import pytest
from support.recipe import DERIVE, command, on_files, pretraining_command, task_command

from hf_xalign.cli.train import METHODS

# What a library says that nobody can act on.
NOISE = r"Warning|LOAD REPORT|MISSING|UNEXPECTED|pin_memory|were not passed to `accelerate launch`|Traceback"


def words(method, files):
    table = {
        "ppa": lambda: command(files, "--queue_size", "64", "--min_tokens", "2"),
        "mapping": lambda: [*on_files(files), "--device", "cpu"],
        "align_mlm": lambda: pretraining_command(files, *DERIVE),
        "finetune": lambda: task_command(files, "--seeds", "3"),
        "continual": lambda: task_command(files, "--reference", f"{files}/base", "--pairs", f"de={files}/train.jsonl"),
    }
    return table.get(method, lambda: command(files))()


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_recipe_makes_noise(method, files, tmp_path):
    short = ["--max_steps", "3"] if method != "mapping" else []
    options = [*words(method, files), *short, "--output_dir", str(tmp_path)]
    start = "import sys; from hf_xalign.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", start, "train", method, *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert not re.search(NOISE, printed), printed
    states = [path.read_text() for path in tmp_path.rglob("trainer_state.json")]
    assert all('"global_step": 3' in state for state in states)
