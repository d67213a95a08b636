"""The feature cache when its making is cut short: killed, out of disk, or wanted by two at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import time

import numpy as np
import pytest
import torch
import xxhash
from support.families import PASS
from support.features import LINKED, cache, counted, many
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_tokenizer

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling.features import cache as feature_cache
from hf_xalign.modeling.features import plan as feature_plan


def counting():
    """An encoder, and the sentences of each of its forward passes."""
    model = make_encoder()
    return model, counted(model)


def compute(folder, model=None, batch_size=8):
    return cache(folder, model=model, links=many(), batch_size=batch_size)[0]


def marked(folder):
    """Sentences up to the end of the last block."""
    return json.loads((folder / "blocks.json").read_text())[-1][0]


def sentence_ends():
    """Bytes of the file before each sentence: one layer of 16 numbers a word."""
    plan = feature_plan.plan_features(encode_pairs(many(), make_tokenizer()), LINKED, "words")
    return (plan.row_offsets * 64).tolist()


def flip(path, at):
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


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
    assert {path.name for path in (tmp_path / "full").glob("vec*")} == {"vectors.part"}
    assert 4 <= len(batches) < 15  # some are computed ahead of those that are written
    assert marked(tmp_path / "full") == 16
    monkeypatch.setattr(feature_cache, "_sync", sync)
    batches.clear()
    vectors = compute(tmp_path / "full", model)
    assert len(batches) == 15 - 2 and vectors.path.read_bytes() == whole.path.read_bytes()
    assert {path.name for path in (tmp_path / "full").glob("vec*")} == {"vectors.bin"}


@pytest.mark.parametrize(
    ("left", "done", "block"),
    [
        ("whole", 6, 16_384),  # all that was marked
        ("cut", 3, 16),  # the file is shorter than the mark says: the last whole block that is there
        ("flipped", 3, 16),
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
    if left == "cut":
        os.truncate(part, sentence_ends()[38] + 1)
    elif left == "none":
        part.unlink()
    elif left == "unmarked":
        (tmp_path / "part" / "blocks.json").write_text("[[24")
    elif left == "flipped":
        flip(part, sentence_ends()[30])
    batches.clear()
    vectors = compute(tmp_path / "part", model)
    assert len(batches) == 15 - done and vectors.path.read_bytes() == whole.path.read_bytes()


@pytest.mark.parametrize("at", [0, 1500, -1])
def test_a_damaged_cache_is_made_again_from_the_damaged_block(at, tmp_path, monkeypatch, caplog, whole):
    monkeypatch.setattr(feature_cache, "_MARK_EVERY", 5)
    content = compute(tmp_path / "again").path.read_bytes()
    flip(tmp_path / "again" / "vectors.bin", at)
    model, batches = counting()
    assert compute(tmp_path / "again", model).path.read_bytes() == content == whole.path.read_bytes()
    assert len(batches) == (5 if at == -1 else 15) and "vectors.bin is damaged" in caplog.text
    (tmp_path / "again" / "cache.json").write_text("{")
    assert compute(tmp_path / "again", model).path.read_bytes() == content


@pytest.mark.numeric
def test_resuming_with_another_batch_size(tmp_path, whole):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "cache.json").write_bytes((tmp_path / "whole" / "cache.json").read_bytes())
    (tmp_path / "part" / "vectors.part").write_bytes(whole.path.read_bytes())
    blocks = [[40, xxhash.xxh3_64(whole.path.read_bytes()[: sentence_ends()[40]]).hexdigest()]]
    (tmp_path / "part" / "blocks.json").write_text(json.dumps(blocks))
    model, batches = counting()
    vectors = compute(tmp_path / "part", model, batch_size=25)
    assert sorted(batches) == [5, 25, 25, 25]  # threads take them, and end in any order
    rows = np.arange(whole.shape[0])
    assert_rounding(vectors.read(rows), whole.read(rows), PASS)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "file size limit"])
def test_a_process_that_ends_in_the_middle_is_gone_on_from(end, tmp_path, monkeypatch, one_thread, whole):
    monkeypatch.setattr(feature_cache, "_MARK_EVERY", 3 if end == "killed" else 1)
    model, batches = counting()
    part = tmp_path / "part"

    def work():
        def kill(module, args):
            if len(batches) == 8:
                os.kill(os.getpid(), signal.SIGKILL)

        if end == "killed":
            model.register_forward_pre_hook(kill)
            compute(part, model)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
        with pytest.raises(InputError, match=rf"{tmp_path}.*File too large.*to resume"):
            compute(part)

    process = forked(work)
    process.join()
    assert process.exitcode == (-signal.SIGKILL if end == "killed" else 0)
    done = marked(part)
    assert 8 <= done < 120 and not (part / "vectors.bin").exists()
    vectors = compute(part, model)
    assert sum(batches) == 120 - done and vectors.path.read_bytes() == whole.path.read_bytes()


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
