"""`hf-xalign`: help without torch, one-line errors, and the light commands."""

import subprocess
import sys
from unittest import mock

import pytest
from accelerate.commands import launch
from support.card import make_record

from hf_xalign.cli.main import COMMANDS, main
from hf_xalign.record import write_record

HEAVY = ("torch", "transformers", "datasets", "peft", "accelerate", "evaluate", "matplotlib")
# A command line, and a part of the error.
MISTAKES = [
    ("fly", "unknown command 'fly'; the commands are prepare, align-words, extend-vocabulary, train"),
    ("--quick", "unrecognized arguments: --quick (hf-xalign --help"),
    ("push --private", "folder, OWNER/NAME (hf-xalign push --help"),
    ("evaluate runs/no", "runs/no: no such folder, nor a folder runs"),
    ("export builtin out --int8", "int8=true needs onnx=true: set it"),
    ("push nowhere me/x", "nowhere: no such folder; name the folder of a run"),
    ("report nowhere", "No such file or directory. Give the folder"),
    ("evaluate m --links a --data b", "links=a does not go with data=b"),
    ("explore m --links a --target_lang sk", "links=a does not go with target_lang=sk (the file is the whole text)"),
    ("demo --processes x", '--processes: expected a whole number, got "x"'),
    ("train fao --config fao_embeded", "--config fao_embeded: no such file here or in the package; did you mean fao"),
    ("evaluate m --target_lang hi", "without --data the text is builtin:de builtin:bn, whose pivot is English"),
    ("train fao --processes 2 --accelerate_config ddp_2gpu", "2 does not go with accelerate_config=ddp_2gpu"),
    ("evaluate m --batch-sise 3", "unrecognized arguments: --batch_sise 3; did you mean '--batch_size'?"),
    ("train fao --learning-rte 1e-3", "unknown option --learning_rte; did you mean '--learning_rate'?"),
]


@pytest.fixture
def run_folder(tmp_path):
    write_record(tmp_path, make_record())
    return tmp_path


def test_help_and_mistakes_import_nothing_heavy(run_folder):
    calls = [["--help"], ["--version"], [], ["fly"], ["card", str(run_folder)], ["report", str(run_folder)]]
    calls += [[name, "--help"] for name in COMMANDS] + [["train", "fao", "-h"], ["train", "fao", "--processes", "x"]]
    calls += [
        ["train", "fao", "--learning-rte", "1"],
        ["train", "fao", "--config", "fao_builtin", "--train_data", "de=no.tsv"],
    ]
    calls += [["evaluate", "runs/no"], ["evaluate", "builtin", "--data", "de=no.tsv"], ["push", "no", "me/x"]]
    calls += [["export", "runs/no", "o"], ["extend-vocabulary", "builtin", "de=no.tsv", "--output", "o"]]
    code = (
        "import sys\nfrom hf_xalign.cli.main import main\n"
        f"for call in {calls}:\n"
        "    try: status = main(call)\n"
        "    except SystemExit as done: status = done.code\n"
        f"    print('STATUS', status, [m for m in {HEAVY} if m in sys.modules], call)\n"
    )
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    lines = [line for line in out.splitlines() if line.startswith("STATUS")]
    wrong = (["fly"], ["train", "fao", "--processes", "x"], *calls[-7:])
    assert lines == [f"STATUS {2 * (call in wrong)} [] {call}" for call in calls]
    assert all(f"usage: hf-xalign {name} " in out for name in COMMANDS)


def test_mistakes_are_one_line_and_status_2(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "launch_command", None)  # nothing starts
    wrong = []
    for words, said in MISTAKES:
        status, error = main(words.split()), capsys.readouterr().err
        if status != 2 or not error.startswith("error: ") or error.count("\n") != 1 or said not in error:
            wrong.append(f"{words}: status {status}, {error}")
    assert not wrong, "\n".join(wrong)


def test_debug_shows_the_traceback(capsys, caplog, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_DEBUG", "")  # restored afterwards
    for words in (["--debug", "report", "nowhere"], ["report", "nowhere", "--debug"]):
        assert main(words) == 2
        assert "read_record" in caplog.text and "InputError" in caplog.text
        assert "error: nowhere" in capsys.readouterr().err
        caplog.clear()
    assert main(["report", "nowhere"]) == 2
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RuntimeError("\n\nthe disk\nis odd"), 1, "error: RuntimeError: the disk. Run with hf-xalign --debug for"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_other_failures_are_one_line_too(error, status, said, run_folder, capsys, monkeypatch):
    monkeypatch.setattr("hf_xalign.report.write_report", mock.Mock(side_effect=error))
    assert main(["report", str(run_folder)]) == status
    found = capsys.readouterr().err
    assert found.startswith(said) and found.count("\n") == 1


def test_card_is_rewritten(run_folder, capsys):
    (run_folder / "README.md").write_text("old")
    assert main(["card", str(run_folder), "--repo_id", "me/model"]) == 0
    assert '"me/model"' in (run_folder / "README.md").read_text("utf-8")
    assert capsys.readouterr().out == f"saved: {run_folder / 'README.md'}\n"
