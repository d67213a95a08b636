"""`hf-xalign train`: options of accelerate, packaged configurations, and exit statuses."""

import os
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from accelerate.commands import launch
from accelerate.commands.config import config_args
from support.recipe import command, make_files
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from hf_xalign.cli import train
from hf_xalign.cli.main import COMMANDS, main
from hf_xalign.config import parse
from hf_xalign.errors import InputError
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.trainers import FAOConfig

SCRIPTS = train.FOLDER


@pytest.fixture
def launched(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(launch, "launch_command", calls.append)
    monkeypatch.setattr(train, "_run_here", lambda recipe, line, words: calls.append(Namespace(command=words)))
    unread = vars(train.config) | {"CommandLine": MagicMock()}  # files that are not there
    monkeypatch.setattr(train, "config", SimpleNamespace(**unread))
    monkeypatch.setattr(config_args, "default_config_file", str(tmp_path / "none.yaml"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    return calls


def test_processes_and_configurations(launched, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for gpus, words, processes in [(0, "", 1), (0, "--processes 3", 3), (4, "", 4), (4, "--processes 1", 1)]:
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert not main(["train", "mao", *words.split()])
        args = launched.pop()
        assert hasattr(args, "command") == (processes == 1), (gpus, words)  # one process needs no launcher
        if processes > 1:
            assert (args.num_processes, args.multi_gpu) == (processes, True), (gpus, words)
            assert args.num_cpu_threads_per_process is None  # left to the recipe
    for name in ("own.yaml", "fao_builtin.yaml"):
        Path(name).write_text("num_processes: 3\n")
    monkeypatch.setattr(config_args, "default_config_file", "own.yaml")
    main(["train", "mapping"])
    assert launched.pop().command == [str(SCRIPTS / "mapping.py")]  # one process even so
    ddp = str(train.FOLDER / "accelerate/ddp_2gpu.yaml")
    for words, accelerate in [
        ("", None),
        ("--accelerate_config ddp_2gpu", ddp),
        ("--accelerate_config own.yaml", "own.yaml"),
    ]:
        assert main(["train", "fao", *words.split()]) == 0
        args = launched.pop()
        assert (args.num_processes, args.config_file) == (None, accelerate), words


def test_a_configuration_is_a_file_of_the_user_or_one_of_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fao_infonce_builtin.yaml").write_text("base: fao_builtin\nseed: 7\n")
    for name, seed, objective in (("fao_infonce_builtin", 0, "infonce"), ("fao_infonce_builtin.yaml", 7, "l2")):
        _, args = parse((DataArguments, FAOConfig), ["--config", name, "--use_cpu", "true", "--bf16", "false"])
        assert (args.seed, args.objective) == (seed, objective), name
    Path("own.yaml").write_text("base: fao_buitlin\n")
    with pytest.raises(InputError, match=r"own.yaml:1: base fao_buitlin: no such file here .* did you mean fao_bui"):
        parse((DataArguments, FAOConfig), ["--config", "own.yaml"])


def test_the_status_is_the_recipes_and_an_interrupt_is_left_to_it(launched, monkeypatch, capsys):
    killed = "error: the recipe was stopped by SIGKILL (out of memory?)\n"
    failure = ProcessFailure(local_rank=1, pid=7, exitcode=2, error_file="none")
    before = signal.getsignal(signal.SIGINT)
    for error, status, said in [
        (subprocess.CalledProcessError(130, "fao"), 130, ""),
        (subprocess.CalledProcessError(-signal.SIGKILL, "fao"), 137, killed),
        (ChildFailedError("fao", {1: failure}), 2, ""),
    ]:

        def launch_command(args, error=error):
            os.kill(os.getpid(), signal.SIGINT)
            raise error

        monkeypatch.setattr(launch, "launch_command", launch_command)
        assert (main(["train", "fao", "--processes", "2"]), capsys.readouterr().err) == (status, said)
        assert signal.getsignal(signal.SIGINT) is before


def test_demo_is_fao_on_what_the_package_holds(launched):
    assert not main(["demo", "--max_train_pairs", "10"])
    (args,) = launched
    script, option, config, *rest = args.command
    assert Path(script) == SCRIPTS / "fao.py"
    assert (option, rest) == ("--config", ["--max_train_pairs", "10"])
    data, _ = parse((DataArguments, FAOConfig), [option, config, *rest, "--use_cpu", "true", "--bf16", "false"])
    assert data.model_name_or_path == "builtin" and data.train_data == ["builtin:de", "builtin:bn"]


def test_threads_are_chosen_before_torch_is_imported():
    code = (
        "import os, sys\nfrom hf_xalign.cli import train\n"
        "def chosen(): return [os.environ.get(name) for name in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')]\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch': sys.exit(str(chosen()))\n"
        "sys.meta_path.insert(0, Finder())\ntrain.start('fao', ['--config', 'fao_builtin'], None, None)"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    for given, expected in (({}, ["PASSIVE", "1000"]), ({"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", None])):
        done = subprocess.run([sys.executable, "-P", "-c", code], env=clean | given, capture_output=True, text=True)
        assert done.stderr.splitlines()[-1] == str(expected)


def test_help_of_each_method_is_its_recipes(capsys):
    for method in train.METHODS:
        with pytest.raises(SystemExit):
            main(["train", method, "--help"])
        text = capsys.readouterr().out
        assert f"hf-xalign train {method} --config" in text and "accelerate launch" not in text
        names = [path.stem for path in (SCRIPTS / "configs").glob(f"{method}_*.yaml")]
        assert names and all(name in text for name in names)
        assert (
            "--processes" in text and "--model_name_or_path" in text and ("-- --help" in text) == (method != "mapping")
        )
        with pytest.raises(SystemExit):
            main(["train", method, "--", "--help"])  # of the recipe itself
        text = capsys.readouterr().out
        assert text.startswith(f"usage: hf-xalign train {method} ")
        assert "--output_dir" in text and "--processes" not in text and "--accelerate_config" not in text
        ours, _, inherited = text.partition("\nInherited from transformers.TrainingArguments:\n")
        assert "--output_dir" in ours and bool(inherited) == (method != "mapping") and "hub_token" not in text


def test_every_recipe_has_a_command():
    programs = {path.stem for path in train.FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert programs == {*train.METHODS} and {"compare", "distances", "reproduce"} < set(COMMANDS)
    assert COMMANDS["train"].partition(": ")[2].split(", ") == list(train.METHODS)


@pytest.mark.slow
def test_runs_here_and_under_accelerate(tmp_path):
    make_files(tmp_path)
    hf_xalign = [sys.executable, "-c", "import sys; from hf_xalign.cli.main import main; sys.exit(main())"]
    options = {"cwd": tmp_path, "capture_output": True, "text": True}
    wrong = subprocess.run([*hf_xalign, "train", "fao", "--learning_rate", "much"], **options)
    lines = wrong.stderr.splitlines()
    assert wrong.returncode == 2 and [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert "--learning_rate" in wrong.stderr and "Traceback" not in wrong.stderr
    for processes in ("1", "2"):
        words = command(tmp_path, "--max_steps", "2", "--bf16", "false", out=processes)
        done = subprocess.run([*hf_xalign, "train", "fao", "--processes", processes, *words], **options)
        assert done.returncode == 0, done.stderr
        assert f'"processes": {processes}' in (tmp_path / processes / "results.json").read_text("utf-8")
