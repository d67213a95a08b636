"""Files of the cache: written whole or not at all, by one process at a time."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from filelock import FileLock

from hf_xalign.cache import locked, replacing


def test_replacing(tmp_path):
    path = tmp_path / "new" / "file"
    with replacing(str(path)) as partial:
        partial.write_text("one")
        assert partial.parent == path.parent and not path.exists()
    assert path.read_text() == "one" and list(path.parent.iterdir()) == [path]
    with pytest.raises(KeyError), replacing(path) as partial:
        partial.write_text("two")
        raise KeyError
    assert path.read_text() == "one" and list(path.parent.iterdir()) == [path]


def test_waiting_for_another_is_said(tmp_path, caplog):
    held, done = threading.Event(), []

    def hold():
        with FileLock(tmp_path / "lock"):
            held.set()
            while "waiting for it" not in caplog.text:
                time.sleep(0.01)
            done.append(True)

    other = threading.Thread(target=hold)
    with caplog.at_level(logging.INFO):
        other.start()
        held.wait()
        with locked(tmp_path):
            assert done
        other.join()
        assert "another process is writing this cache; waiting" in caplog.text
        caplog.clear()
        with locked(tmp_path):
            assert not caplog.text
