"""Files of the cache: written whole or not at all, by one process at a time."""

import errno
import sys
from subprocess import PIPE, Popen

import pytest
from datasets import Dataset

from hf_xalign.cache import (
    checksum,
    disk_errors,
    hold_folder,
    make_once,
    map_rows,
    open_mark,
    replacing,
    write_mark,
    write_text,
)
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


def test_a_file_is_made_once_and_without_what_a_killed_process_left(tmp_path):
    path = tmp_path / "file"
    (tmp_path / "file.1.partial").touch()
    for text in ("one", "two"):
        make_once(path, lambda text=text: write_text(path, text))
        assert path.read_text() == "one" and not list(tmp_path.glob("*.partial"))


def test_full_disks_are_input_errors(tmp_path):
    message = r"file: cannot be written \(why\): free some space and run again$"
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        with pytest.raises(InputError, match=message), replacing(tmp_path / "file"):
            raise OSError(number, "why")
    with pytest.raises(InputError, match=r"^here: cannot .*: use another$"), disk_errors("here", "use another"):
        raise OSError(errno.ENOSPC, "why")
    with pytest.raises(PermissionError), disk_errors("here"):
        raise PermissionError(errno.EACCES, "why")


def test_rows_are_mapped_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path))
    Dataset.from_dict({"n": [1, 2, 3]}).to_parquet(tmp_path / "n.parquet")
    stored = Dataset.from_parquet(str(tmp_path / "n.parquet"), cache_dir=str(tmp_path))
    calls = []

    def double(rows):
        calls.extend(rows["n"])
        return {"m": [2 * n for n in rows["n"]]}

    for expected in (3, 0):
        calls.clear()
        # A function is known by its content, of which the list is a part.
        assert map_rows(stored, double, new_fingerprint="doubled")["m"][:] == [2, 4, 6]
        assert len(calls) == expected


HOLD = "import sys; from hf_xalign.cache import hold_folder; hold_folder(sys.argv[1]); print('held'); input()"


def held(folder):
    pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, "text": True}
    return Popen([sys.executable, "-c", HOLD, str(folder)], **pipes)


def test_one_run_at_a_time_writes_into_a_folder(tmp_path):
    (tmp_path / "results.json.1.partial").touch()
    holder = held(tmp_path)
    assert holder.stdout.readline() == "held\n" and not list(tmp_path.glob("*.partial"))
    with pytest.raises(InputError, match="another run is writing there now"):
        hold_folder(tmp_path)
    holder.communicate("\n", timeout=60)
    hold_folder(tmp_path)
    hold_folder(tmp_path)  # once more by the same process


def test_a_new_folder_is_locked_from_the_start_and_goes_again_if_it_stays_empty(tmp_path):
    runs = [held(tmp_path / "new" / "run") for _ in range(3)]
    assert sorted(run.stdout.readline() for run in runs) == ["", "", "held\n"]
    said = [run.communicate("\n", timeout=60)[1] for run in runs]
    assert sum("another run is writing there now" in one for one in said) == 2
    assert not (tmp_path / "new").exists()


def test_a_mark_names_the_first_file_that_is_not_as_written(tmp_path):
    mark, file = tmp_path / "complete.json", tmp_path / "a.pt"
    assert open_mark(mark) == (None, None)
    file.write_text("[0.5]")
    write_mark(mark, {"score": 0.5}, [file])
    content = {"score": 0.5, "files": {"a.pt": checksum(file)}}
    assert open_mark(mark) == (content, None)
    file.write_text("[0.7]")
    assert open_mark(mark) == (content, (file, "damaged"))
    file.unlink()
    assert open_mark(mark) == (content, (file, "missing"))
    mark.write_text("{")
    assert open_mark(mark) == (None, (mark, "damaged"))
