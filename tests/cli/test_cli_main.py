"""`hf-xalign`: help without torch, errors in one line, and what each light command writes."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest
import torch
from safetensors.torch import save_file
from support.card import make_record

from hf_xalign.cli import terminal
from hf_xalign.cli.main import COMMANDS, main
from hf_xalign.record import write_record

HEAVY = ("torch", "transformers", "datasets", "peft", "accelerate", "evaluate", "matplotlib")


@pytest.fixture
def run_folder(tmp_path):
    write_record(tmp_path, make_record())
    return tmp_path


def test_help_and_mistakes_import_nothing_heavy(run_folder):
    """Of every command; and so do the commands that only read a record."""
    calls = [["--help"], ["--version"], [], ["fly"], ["card", str(run_folder)], ["report", str(run_folder)]]
    calls += [[name, "--help"] for name in COMMANDS] + [["train", "fao", "-h"], ["train", "fao", "--processes", "x"]]
    code = (
        "import sys\nfrom hf_xalign.cli.main import main\n"
        f"for call in {calls}:\n"
        "    try: status = main(call)\n"
        "    except SystemExit as done: status = done.code\n"
        f"    print('STATUS', status, [m for m in {HEAVY} if m in sys.modules], call)\n"
    )
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    lines = [line for line in out.splitlines() if line.startswith("STATUS")]
    wanted = {"['fly']": 2, "['train', 'fao', '--processes', 'x']": 2}
    assert lines == [f"STATUS {wanted.get(str(call), 0)} [] {call}" for call in calls]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fly"], "no command 'fly'; there are align-words, train"),
        (["inspekt"], "did you mean inspect?"),
        (["--quick"], "unrecognized arguments: --quick (hf-xalign --help"),
        (["inspect", "m", "--sorce", "x"], "--source, --target (hf-xalign inspect --help"),
        (["inspect", "m", "--source", "a", "--target", "b", "--measure", "l2"], "--measure: invalid choice: 'l2'"),
        (["report", "nowhere"], "no such file; name the folder"),
        (["train", "nao"], "invalid choice: 'nao'"),
        (["evaluate", "m", "--links", "a", "--data", "b"], "leave --data out"),
        (["evaluate", "m", "--device", "tpu9"], "--device tpu9: "),
        (["align-words", "de=nowhere.tsv"], "nowhere.tsv: no such file"),
        (["inspect", "no/where", "--source", "a", "--target", "b"], "no/where has no tokenizer"),
    ],
)
def test_bad_input_is_one_line_and_status_2(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and said in error


def test_debug_shows_where(capsys, caplog, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_DEBUG", "")  # which is put back afterwards
    for words in (["--debug", "report", "nowhere"], ["report", "nowhere", "--debug"]):
        assert main(words) == 2
        assert "read_record" in caplog.text and "InputError" in caplog.text
        assert "error: nowhere" in capsys.readouterr().err
        caplog.clear()
    assert main(["report", "nowhere"]) == 2
    assert caplog.text == ""


def test_other_failures_are_one_line_too(run_folder, capsys, monkeypatch):
    def fail(folder, path):
        raise RuntimeError("\n\nthe disk\nis odd")

    monkeypatch.setattr("hf_xalign.report.write_report", fail)
    assert main(["report", str(run_folder)]) == 1
    assert capsys.readouterr().err == "error: RuntimeError: the disk; hf-xalign --debug shows where\n"

    def stop(folder, path):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_xalign.report.write_report", stop)
    assert main(["report", str(run_folder)]) == 130


def test_card_is_written_anew(run_folder, capsys):
    (run_folder / "README.md").write_text("old")
    assert main(["card", str(run_folder), "--repo_id", "me/model"]) == 0
    assert '"me/model"' in (run_folder / "README.md").read_text("utf-8")
    assert capsys.readouterr().out == f"saved: {run_folder / 'README.md'}\n"


def test_push_passes_its_options_on(run_folder, capsys, monkeypatch):
    calls = []

    def push(*args, **kwargs):
        calls.append((args, kwargs))
        return types.SimpleNamespace(commit_url="https://hub/commit/1")

    monkeypatch.setitem(sys.modules, "hf_xalign.hub", types.SimpleNamespace(push=push))
    assert main(["push", str(run_folder), "me/model", "--private", "--revision", "v1"]) == 0
    assert main(["push", str(run_folder), "me/model", "--public", "--base_model", "a/b"]) == 0
    assert main(["push", str(run_folder), "me/model"]) == 0
    assert [args for args, _ in calls] == [(str(run_folder), "me/model")] * 3
    assert [kwargs for _, kwargs in calls] == [
        {"private": True, "revision": "v1", "base_model": None},
        {"private": False, "revision": None, "base_model": "a/b"},
        {"private": None, "revision": None, "base_model": None},
    ]
    assert capsys.readouterr().out == "pushed: https://hub/commit/1\n" * 3


def test_push_of_a_local_base_says_the_way_out(run_folder, capsys):
    save_file({"w": torch.zeros(2)}, run_folder / "model.safetensors")
    (run_folder / "config.json").write_text("{}")
    write_record(run_folder, make_record() | {"base_model": {"name": "/home/me/base", "hub_id": None}})
    assert main(["push", str(run_folder), "me/model"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "base_model is /home/me/base" in error
    assert "hf-xalign push --base_model" in error


def test_compare_is_the_recipe(monkeypatch):
    calls = []
    monkeypatch.setattr("hf_xalign.recipes.compare.main", calls.append)
    assert main(["compare", "a", "b", "--level", "0.01", "--markdown", "t.md"]) == 0
    assert calls == [["a", "b", "--level", "0.01", "--markdown", "t.md"]]


def test_distances_is_the_recipe(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr("hf_xalign.recipes.distances.main", calls.append)
    assert main(["distances", "--stages", "raw=embedded", "--layers", "-1", "4"]) == 0
    assert calls == [["--stages", "raw=embedded", "--layers", "-1", "4"]]
    with pytest.raises(SystemExit):
        main(["distances", "--help"])
    text = capsys.readouterr().out
    assert "hf-xalign distances --stages raw=embedded" in text and "--eval_links" in text and "--dry_run" not in text


def test_columns_are_aligned_in_every_script():
    assert [terminal.width(text) for text in ("abc", "日本", "é", "e\u0301", "খু", "a\u200db")] == [3, 4, 1, 1, 1, 2]
    assert terminal.cut("Donaudampfschiff", 6) == "Donau…"
    assert terminal.cut("日本語です", 6) == "日本…"
    rows = [("language", "score"), ("日本", "1.5"), ("de", "22.25")]
    assert terminal.table(rows, 1).splitlines() == [
        "language  score",
        "---------------",
        "日本        1.5",
        "de        22.25",
    ]
