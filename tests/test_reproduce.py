"""Every command of docs/reproduce.md, run unchanged on tiny models and text that stand at the page's paths and ids."""

import re
import shlex
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from support.ground import run, stand

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/reproduce.md").read_text("utf-8")
PAPERS = dict(re.findall(r"^## ([\w-]+) \(.+?\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
COMMAND = re.compile(r"`((?:accelerate launch |python )(?:recipes|benchmarks)/\w+\.py [^`]+|hf-xalign [^`]+)`")


def output_dir(words):
    """Return the output folder of a recipe's command: its option, or the name of its configuration."""
    given = dict(pairwise(words))
    return given.get("--output_dir") or f"runs/{Path(given['--config']).stem}"


def test_no_two_commands_of_the_page_write_into_one_folder():
    folders = Counter(
        output_dir(shlex.split(command))
        for command in COMMAND.findall(PAGE)
        if "recipes/" in command and not re.search("compare.py|align_mlm_grid.py|--dry_run", command)
    )
    assert [folder for folder, count in folders.items() if count > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_every_command_runs_to_its_end(paper, tmp_path, monkeypatch):
    stand(tmp_path, monkeypatch)
    commands = COMMAND.findall(PAPERS[paper])
    assert commands
    # What stands above the table is about its runs.
    for command in sorted(commands, key=lambda command: command.startswith("hf-xalign")):
        run(shlex.split(command), monkeypatch)
