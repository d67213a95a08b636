"""Files of the cache: written whole or not at all, by one process at a time."""

from __future__ import annotations

import errno

import pytest

from hf_xalign.cache import disk_errors, replacing
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
