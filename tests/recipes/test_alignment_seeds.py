"""Alignment under several seeds: each as a run of its own, resumed by seed, and compared in one call."""

import json
import shutil
from functools import cache

import pytest
import torch
from safetensors.torch import load_file
from support.launch import slow
from support.recipe import command, on_files, output_of

from hf_xalign.cli.main import main as cli
from hf_xalign.errors import InputError
from hf_xalign.recipes import fao, mao, mapping, ppa
from hf_xalign.record import read_record
from hf_xalign.statistics.comparison import load_system
from hf_xalign.trainers.base import run as runs

OPTIONS = {
    fao: ("--max_steps", "3", "--teacher_weight", "1"),
    mao: ("--max_steps", "3"),
    ppa: ("--max_steps", "3", "--queue_size", "16", "--min_tokens", "2"),
}
SEEDS = ("--seeds", "1", "2")


def align(recipe, files, folder, *options):
    own = ("--save_steps", "1", "--report_to", "none", *OPTIONS[recipe], *options)
    return output_of(recipe.main, command(files, *own, out=folder))


@pytest.fixture(scope="module")
def run_of(files, tmp_path_factory):
    """Return what a recipe prints under the seeds 1 and 2, and its folder, which no test changes."""
    folder = tmp_path_factory.mktemp("seeds")
    return cache(lambda recipe: (align(recipe, files, folder / recipe.__name__, *SEEDS), folder / recipe.__name__))


def weights(folder):
    return load_file(next(folder.glob("*model.safetensors")))


@pytest.mark.parametrize("recipe", [fao, *slow([mao, ppa])])
def test_a_seed_is_the_run_of_that_seed(files, run_of, tmp_path, recipe):
    printed, folder = run_of(recipe)
    table = printed.rpartition("\n\n")[0].rpartition("\n\n")[2]
    assert table.splitlines()[-1].startswith(("seeds 1, 2; in percent", "WARNING"))
    align(recipe, files, tmp_path, "--seed", "2")
    one, seed = read_record(tmp_path), read_record(folder / "seed-2")
    assert one["scores"] == seed["scores"] and one["drift"] == seed["drift"] and seed["seed"] == 2
    there, here = weights(tmp_path), weights(folder / "seed-2")
    assert there.keys() == here.keys() and all(torch.equal(there[name], here[name]) for name in there)
    other = weights(folder / "seed-1")
    assert any(not torch.equal(here[name], other[name]) for name in here)
    # Every kept score is the record's.
    system = load_system(folder)
    records = [read_record(folder / f"seed-{number}")["scores"] for number in (1, 2)]
    assert system.scores("de").tolist() == [found["after"]["de"][system.metric] for found in records]
    assert system.metric == ("sentence_cls" if recipe is ppa else "retrieval_mean")  # of the curve
    for kept in (folder / "scores").glob("*/*"):
        stage, metric = kept.name, kept.parent.name
        wanted = [found[stage]["de"][metric] for found in records]
        assert load_system(kept).scores("de").tolist() == wanted
    names = {kept.name for kept in (folder / "scores").iterdir()}
    assert names >= {system.metric, "sentence_mean" if recipe is ppa else "retrieval_last_all"}
    assert "retrieval_words" in names or recipe is not mao


def test_seeds_are_not_repeated_and_an_interrupted_one_is_resumed(files, run_of, tmp_path, monkeypatch, capsys):
    given, kept = tmp_path / "cut", runs.write_scores

    def killed(folder, scores, how, **more):
        if how["seed"] == 2:
            raise KeyboardInterrupt
        return kept(folder, scores, how=how, **more)

    monkeypatch.setattr(runs, "write_scores", killed)
    with pytest.raises(KeyboardInterrupt):
        align(fao, files, given, *SEEDS)
    monkeypatch.undo()
    shutil.rmtree(given / "seed-2" / "checkpoint-3")
    assert f"seed 1   finished before: {given / 'seed-1'}" in align(fao, files, given, *SEEDS)
    wanted, found = weights(run_of(fao)[1] / "seed-2"), weights(given / "seed-2")
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    state = json.loads((given / "seed-2" / "checkpoint-3" / "trainer_state.json").read_text())
    assert state["global_step"] == 3 and (given / "seed-2" / "checkpoint-2").exists()
    before = {path: path.stat().st_mtime_ns for path in given.rglob("*.json")}
    align(fao, files, given, "--seeds", "2", "1")
    assert {path: path.stat().st_mtime_ns for path in given.rglob("*.json")} == before
    for options, message in (
        (("--learning_rate", "1e-3"), "learning_rate is 0.01 there and 0.001 here"),
        (("--seed", "7"), "drawn_by is 42 there and 7 here"),
        (("--max_train_pairs", "9"), "max_train_pairs is null there and 9 here"),
        (("--resume_from_checkpoint", "true"), "seeds resume by themselves"),
        (("--push_to_hub", "true", "--hub_model_id", "a/b"), "every seed would (write|go) to the same place"),
    ):
        with pytest.raises(InputError, match=message):
            align(fao, files, given, "--seeds", "1", *options)
    assert cli(["evaluate", str(given)]) == 2
    assert "has several models. Name one of them, such as" in capsys.readouterr().err


def test_one_call_compares_the_methods(files, run_of, tmp_path, capsys):
    mapping.main([*on_files(files, tmp_path / "map"), *SEEDS])
    folders = [run_of(fao)[1], tmp_path / "map"]
    record = read_record(tmp_path / "map" / "seed-2")
    assert load_system(tmp_path / "map").scores("de")[1] == record["scores"]["after"]["de"]["retrieval_mean"]
    mapping.main([*on_files(files, tmp_path / "map"), "--seeds", "2", "3"])
    assert "seed 2   finished before" in capsys.readouterr().out
    before = folders[0] / "scores" / "retrieval_mean" / "before"
    markdown = tmp_path / "table.md"
    argv = ["compare", *map(str, (before, *folders)), *SEEDS, "--markdown", str(markdown)]
    assert cli(argv) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["before", *(folder.name for folder in folders)]
    assert "word retrieval, retrieval_mean; mean ± standard deviation over seeds 1 2" in out
    assert markdown.read_text("utf-8").count("| before |") == 1
