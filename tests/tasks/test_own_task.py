"""A task of one's own, the class of docs/develop/add-task.md: fine-tuned, scored, compared and put into the card."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.card import execute
from support.families import save_base
from support.recipe import output_of, task_command

from hf_xalign.errors import InputError
from hf_xalign.recipes.finetune import main
from hf_xalign.record import read_record
from hf_xalign.statistics.comparison import compare
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks import find_task

PAGE = Path(__file__).parents[2] / "docs/develop/add-task.md"
ROWS = [("the cat", "the cat is open", 0.75), ("the dog", "das haus", 0.25), ("a file", "a file", 1.0)]


def test_one_class_is_trained_scored_compared_and_put_into_the_card(tmp_path, monkeypatch):
    [block] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "similarity.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    save_base("bert", tmp_path / "base")
    lines = [json.dumps({"text_a": one, "text_b": two, "label": str(value)}) for one, two, value in ROWS]
    for language in ("en", "de"):
        (tmp_path / f"{language}.jsonl").write_text("\n".join(lines))
    for out, rate in (("one", "1e-2"), ("two", "1e-3")):
        options = ("--task", "similarity:Similarity", "--save_models", "true", "--seeds", "0", "--learning_rate", rate)
        printed = output_of(main, task_command(tmp_path, *options, out=out, evaluation=("de=de.jsonl",)))
        assert "closeness" in printed
    folder = tmp_path / "one" / "seed-0"
    found = json.loads((folder / "scores.json").read_text())
    assert (found["task"], found["metric"]) == ("similarity", "closeness")
    examples = ExampleScores.load(folder / "examples" / "de.json")
    assert (
        found["languages"]["de"]["score"]
        == examples.score()
        == read_record(folder)["scores"]["after"]["de"]["closeness"]
    )
    card = (folder / "README.md").read_text("utf-8")
    assert (
        "A model for scoring how alike two texts are" in card
        and "`closeness` is 1 minus the mean absolute error" in card
    )
    alike = execute(card.replace("path/to/this/folder", str(folder)))["alike"]
    assert np.isfinite(alike)
    [difference] = compare([tmp_path / "one", tmp_path / "two"], quiet=True).differences
    assert difference.examples == len(ROWS)


def test_a_task_that_does_not_exist():
    for name, message in (("tokens", "did you mean 'token'"), ("absent:Task", "No module named 'absent'")):
        with pytest.raises(InputError, match=message):
            find_task(name)
