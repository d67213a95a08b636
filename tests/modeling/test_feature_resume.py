"""The feature cache when its making is cut short: killed, out of disk, or wanted by two at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import torch
from support.families import PASS
from support.features import LINKED, cache, counted, many
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_tokenizer

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling.features import cache as feature_cache
from hf_xalign.modeling.features import plan as feature_plan


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def counting():
    """An encoder, and the sentences of each of its forward passes."""
    model = make_encoder()
    return model, counted(model)


def compute(folder, model=None, batch_size=8):
    return cache(folder, model=model, links=many(), batch_size=batch_size)[0]


@pytest.fixture
def whole(tmp_path):
    return compute(tmp_path / "whole")


def forked(action):
    """A process of its own that runs `action`; one thread, as torch needs after a fork."""

    def work():
        torch.set_num_threads(1)
        action()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


@pytest.fixture
def one_thread():
    """Numbers of this process that are those of `forked` ones to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_disk_that_fills_up_leaves_what_can_be_resumed(tmp_path, monkeypatch, whole):
    monkeypatch.setattr(feature_cache, "_MARK_EVERY", 2)
    model, batches = counting()
    sync, calls = feature_cache._sync, []

    def full(file):
        calls.append(file.name)
        if len(calls) == 6:  # 2 small files first, then vectors and mark in turn
            raise OSError(28, "No space left on device")
        sync(file)

    monkeypatch.setattr(feature_cache, "_sync", full)
    with pytest.raises(InputError, match=r"No space left on device.*to resume.*XALIGN_CACHE"):
        compute(tmp_path / "full", model.train())
    assert model.training
    assert names(tmp_path / "full") == ["cache.json", "lock", "progress.json", "vectors.part"]
    assert 4 <= len(batches) < 15  # some are computed ahead of those that are written
    assert json.loads((tmp_path / "full" / "progress.json").read_text()) == {"sentences": 16}
    monkeypatch.setattr(feature_cache, "_sync", sync)
    batches.clear()
    vectors = compute(tmp_path / "full", model)
    assert len(batches) == 15 - 2 and vectors.path.read_bytes() == whole.path.read_bytes()
    assert names(tmp_path / "full") == ["cache.json", "lock", "vectors.bin"]


@pytest.mark.parametrize(
    ("left", "done", "block"),
    [
        ("whole", 6, 16_384),  # all that was marked
        ("cut", 4, 16),  # the file is shorter than the mark says: the last whole batch that is there
        ("none", 0, 16),
        ("unmarked", 0, 16_384),
    ],
)
def test_resuming_trusts_mark_and_file_alike(left, done, block, tmp_path, monkeypatch, whole):
    monkeypatch.setattr(feature_cache, "_MARK_EVERY", 3)
    monkeypatch.setattr(feature_cache, "_BLOCK", block)
    model, batches = counting()

    def stop(module, args):
        if len(batches) == 8:
            raise KeyboardInterrupt

    hook = model.register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        compute(tmp_path / "part", model)
    hook.remove()
    part = tmp_path / "part" / "vectors.part"
    sentence_rows = feature_plan.plan_features(encode_pairs(many(), make_tokenizer()), LINKED, "words").row_offsets
    if left == "cut":
        os.truncate(part, int(sentence_rows[38]) * 64 + 1)
    elif left == "none":
        part.unlink()
    elif left == "unmarked":
        (tmp_path / "part" / "progress.json").unlink()
    batches.clear()
    vectors = compute(tmp_path / "part", model)
    assert len(batches) == 15 - done and vectors.path.read_bytes() == whole.path.read_bytes()


@pytest.mark.numeric
def test_resuming_with_another_batch_size(tmp_path, whole):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "cache.json").write_bytes((tmp_path / "whole" / "cache.json").read_bytes())
    (tmp_path / "part" / "vectors.part").write_bytes(whole.path.read_bytes())
    (tmp_path / "part" / "progress.json").write_text('{"sentences": 40}')
    model, batches = counting()
    vectors = compute(tmp_path / "part", model, batch_size=25)
    assert sorted(batches) == [20, 25, 25, 25]  # threads take them, and end in any order
    rows = np.arange(whole.shape[0])
    assert_rounding(vectors.read(rows), whole.read(rows), PASS)


@pytest.mark.slow
def test_a_killed_process_is_gone_on_from(tmp_path, monkeypatch, one_thread, whole):
    monkeypatch.setattr(feature_cache, "_MARK_EVERY", 3)
    model, batches = counting()

    def work():
        def kill(module, args):
            if len(batches) == 8:
                os.kill(os.getpid(), signal.SIGKILL)

        model.register_forward_pre_hook(kill)
        compute(tmp_path / "part", model)

    process = forked(work)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "part" / "vectors.bin").exists()
    vectors = compute(tmp_path / "part", model)
    assert len(batches) == 15 - 6 and vectors.path.read_bytes() == whole.path.read_bytes()


@pytest.mark.slow
def test_of_two_processes_one_computes(tmp_path):
    started = multiprocessing.get_context("fork").Barrier(2)
    model, batches = counting()
    model.register_forward_pre_hook(lambda *_: time.sleep(0.05))

    def work():
        started.wait()
        vectors = compute(tmp_path / "both", model)
        assert vectors.read(np.arange(vectors.shape[0])).isfinite().all()
        (tmp_path / f"{os.getpid()}.forwards").write_text(str(len(batches)))

    processes = [forked(work) for _ in range(2)]
    for process in processes:
        process.join()
    assert sorted(int(path.read_text()) for path in tmp_path.glob("*.forwards")) == [0, 15]
