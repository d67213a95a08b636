"""Runs on tiny models that are killed at the n-th operation on a file, and resumed.

    PYTHONPATH=tests python tests/faults/test_faults.py FOLDER METHOD EVERY

kills the run of a method at every EVERY-th operation, prints how many went wrong, and fails if one did. One process
does each run once itself, which fills every cache that a process has, and forks a child for every other, so that a run
takes about a second of CPU time.
"""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest import mock

import pytest
from support.launch import TESTS

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
METHODS = ("fao", "mao", "ppa", "align_mlm", "continual", "finetune", "mapping", "prepare", "align_words")


class Faults:
    """Audit hook of a child: counts the operations that change files in `folder`, and is killed before the n-th.

    A native writer is killed with half of its file written.

    Args:
        folder: where operations count.
        at: number of the operation that fails, from 1; None only counts.
    """

    def __init__(self, folder, at=None):
        self.folder, self.at = str(folder), at
        self.operations = []

    def __call__(self, event, arguments):
        if event == "open" and arguments[2] & WRITING:
            self.change("open", arguments[0])
        elif event == "os.mkdir" and not os.path.isdir(arguments[0]):
            self.change("mkdir", arguments[0])
        elif event == "os.remove" and os.path.exists(arguments[0]):
            self.change("remove", arguments[0])
        elif event in ("os.rename", "os.rmdir", "os.truncate"):
            self.change(event.removeprefix("os."), arguments[0])

    def change(self, event, path):
        """Count an operation; fail it if it is the one."""
        if not f"{path}/".startswith(f"{self.folder}/"):
            return False
        self.operations.append(f"{event} {str(path).removeprefix(self.folder)}")
        if self.at is None or len(self.operations) < self.at:
            return False
        if event != "write":
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def native(self, write, position):
        """Wrap a writer in C++ or Rust, which no audit event tells of; `position` is that of its path."""

        def wrapped(*arguments, **options):
            path = options.get("filename", arguments[position] if len(arguments) > position else None)
            failing = isinstance(path, (str, os.PathLike)) and self.change("write", path)
            result = write(*arguments, **options)
            if failing:
                os.truncate(path, os.path.getsize(path) // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped


def forked(main, words, folder, at=None):
    """Run `main(words)` in a child; return its exit status (-9 if killed), its operations and what it printed."""
    log = Path(f"{folder}.log")
    report = Path(f"{folder}.operations.json")
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            status = _child(main, words, Faults(folder, at), log, report)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    operations = json.loads(report.read_text()) if status != -signal.SIGKILL else []
    return status, operations, log.read_text(errors="replace")


def _child(main, words, faults, log, report):
    import pyarrow.parquet
    import safetensors.torch
    import torch

    from hf_xalign.recipes.parts.command import run

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.addaudithook(faults)
    with (
        mock.patch.object(safetensors.torch, "serialize_file", faults.native(safetensors.torch.serialize_file, 1)),
        mock.patch.object(torch, "save", faults.native(torch.save, 1)),
        mock.patch.object(pyarrow.parquet, "ParquetWriter", faults.native(pyarrow.parquet.ParquetWriter, 0)),
        mock.patch.object(pyarrow.ipc, "new_file", faults.native(pyarrow.ipc.new_file, 0)),
        mock.patch("matplotlib.figure.Figure.savefig", _draw),  # drawing takes a third of a run
    ):
        try:
            run(lambda: main(words))
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
            status = 1
    report.write_text(json.dumps(faults.operations))
    return status


def _draw(_, path, **options):
    Path(path).write_bytes(b"picture")


# ---- The runs ----


def recipes(files):
    """Return main function, arguments and what resumes it, of a short run of each method."""
    from support.recipe import DERIVE, command, on_files, pretraining_command, task_command

    from hf_xalign.cli.main import main as command_line
    from hf_xalign.recipes import align_mlm, continual, fao, finetune, mao, mapping, ppa

    short = ["--max_steps", "2", "--save_steps", "1", "--save_strategy", "steps", "--report_to", "none"]
    plain = command(files, *short)
    resume = ["--resume_from_checkpoint", "true"]
    pairs = ["--pairs", f"de={files / 'test.tsv'}", "--reference", str(files / "base"), "--max_length", "32"]
    task = task_command(files, "--seeds", "0", "--save_models", "true", *short, evaluation=("de=en.jsonl",))
    texts = pretraining_command(files, *DERIVE, "--dictionary_share", "1", *short)
    return {
        "fao": (fao.main, plain, resume),
        "mao": (mao.main, [*plain, "--objective", "infonce"], resume),
        "ppa": (ppa.main, [*plain, "--min_tokens", "1", "--max_tokens", "60", "--queue_size", "16"], resume),
        "align_mlm": (align_mlm.main, texts, resume),
        "continual": (continual.main, [*task, *pairs], []),
        "finetune": (finetune.main, task, []),
        "mapping": (mapping.main, [*on_files(files), "--device", "cpu"], ["--overwrite_output_dir", "true"]),
        "prepare": (
            lambda words: sys.exit(command_line(["prepare", "--workers", "1", *words])),
            [f"de={files / 'train.jsonl'}", "--skip", "language", "--shard_pairs", "9", "--output", "out"],
            [],
        ),
        "align_words": (
            lambda words: sys.exit(command_line(["align-words", str(files / "all.parquet"), *words[1:]])),
            ["--output", "out", "--shards", "3", "--workers", "1"],
            [],
        ),
    }


def prepare(folder):
    from datasets import Dataset
    from support.recipe import make_files
    from support.tiny import SENTENCES

    files = folder / "files"
    files.mkdir(parents=True)
    make_files(files)
    english = [text for _, text, _ in SENTENCES]
    (files / "en.txt").write_text("".join(f"{text} .\n" for text in english * 6))
    rows = [
        {"tokens": text.split(), "labels": ["B-A" if word == "the" else "O" for word in text.split()]}
        for text in english
    ]
    (files / "en.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [{"source": s, "target": t, "source_lang": "de", "target_lang": "en"} for s, t, _ in SENTENCES]
    Dataset.from_list(pairs * 4).to_parquet(files / "all.parquet")
    return files


def placed(words, folder):
    words = list(words)
    words[words.index("--output" if "--output" in words else "--output_dir") + 1] = str(folder)
    return words


def result_of(folder):
    """Return the weights' bytes and the scores that a run left."""
    inner = Path(folder) / "seed-0"
    folder = inner if inner.exists() else Path(folder)
    files = [*folder.glob("*.safetensors"), *folder.glob("maps/*.safetensors")]
    weights = {path.name: path.read_bytes() for path in sorted(files)}
    if shards := sorted(folder.glob("*.parquet")):
        return {path.name: path.read_bytes() for path in shards}
    record = json.loads((folder / "results.json").read_text())
    return weights, record["scores"]["after"], record.get("drift"), record.get("task", {}).get("scores")


def again(main, words, resume, folder):
    """Resume a run, or start it again where it was cut off before its first checkpoint."""
    status, _, log = forked(main, [*words, *resume], folder)
    if status == 2 and "no complete checkpoint" in log:
        status, _, log = forked(main, [*words, "--overwrite_output_dir", "true"], folder)
    if status == 2 and "holds a finished result" in log:  # only the work folder was left
        return 0, log
    return status, log


def warm(main, words, folder):
    """Do a run in this process, for its children to find modules imported and caches full."""
    with open(f"{folder}.log", "w") as log, redirect_stdout(log), redirect_stderr(log), suppress(SystemExit):
        main(placed(words, folder))
    gc.collect()
    gc.freeze()  # children do not copy what they only count


def attack(method, main, words, resume, folder, every):
    """Kill a run at every so many operations; return how many there were, and a line for each that went wrong."""
    folder = Path(folder) / "kill"
    folder.mkdir()
    warm(main, words, folder / "warm")
    status, operations, log = forked(main, placed(words, folder / "whole"), folder / "whole")
    assert status == 0, log
    whole = result_of(folder / "whole")
    wrong = []
    for at in range(1, len(operations) + 1, every):
        run = folder / str(at)
        status, _, log = forked(main, placed(words, run), run, at)
        said = operations[at - 1]
        if status != -signal.SIGKILL:
            wrong.append(f"{method} {at} {said}: not killed ({status})")
        status, log = again(main, placed(words, run), resume, run)
        if status != 0:
            wrong.append(f"{method} {at} {said}: cannot be resumed: {log.strip().splitlines()[-1:]}")
        elif result_of(run) != whole:
            wrong.append(f"{method} {at} {said}: resumed to another result")
        shutil.rmtree(run, ignore_errors=True)
    return len(range(1, len(operations) + 1, every)), wrong


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_equals_one_that_never_stopped(method, tmp_path):
    every = "6"  # of the operations
    changes = {"PYTHONPATH": TESTS, "HF_XALIGN_CACHE": str(tmp_path / "cache"), "TOKENIZERS_PARALLELISM": "false"}
    changes["OMP_NUM_THREADS"] = "1"  # threads of OpenMP do not outlive a fork, and are waited for
    command = [sys.executable, __file__, str(tmp_path / "runs"), method, every]
    done = subprocess.run(command, cwd=TESTS, env=os.environ | changes, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "0 wrong" in done.stdout, done.stdout + done.stderr[-2000:]


if __name__ == "__main__":
    place, killed, step = sys.argv[1:]
    count, wrong = attack(killed, *recipes(prepare(Path(place)))[killed], place, int(step))
    print(f"{killed}: {count} faults, {len(wrong)} wrong", *wrong, sep="\n")
    sys.exit(bool(wrong))
