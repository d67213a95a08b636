"""Files of the cache: written whole or not at all, by one process at a time."""

from __future__ import annotations

import errno
import logging
import threading
import time

import pytest
from filelock import FileLock

from hf_xalign.cache import disk_errors, locked, replacing
from hf_xalign.errors import InputError


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


def test_full_disks_are_input_errors(tmp_path):
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        with (
            pytest.raises(InputError, match=r"file: cannot be written \(why\): free some space and run again$"),
            replacing(tmp_path / "file"),
        ):
            raise OSError(number, "why")
    with pytest.raises(InputError, match=r"^here: cannot .*: use another$"), disk_errors("here", "use another"):
        raise OSError(errno.ENOSPC, "why")
    with pytest.raises(PermissionError), disk_errors("here"):
        raise PermissionError(errno.EACCES, "why")


def test_waiting_for_another_process_is_logged(tmp_path, caplog):
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
