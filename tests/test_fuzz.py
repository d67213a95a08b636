"""Every reader answers every file with a result or with one line that names the file, in bounded time and memory."""

import os
import time

import pytest
from hypothesis import HealthCheck, given, seed, settings
from support.fuzz import CASES, READERS, check, contents, keep

from hf_xalign.errors import InputError

_FOUND = sorted((path.parent.name, path.name) for path in CASES.glob("*/*"))
_FUZZ = settings(max_examples=100, database=None, suppress_health_check=list(HealthCheck), print_blob=False)


@pytest.mark.parametrize(("reader", "case"), _FOUND, ids=map("/".join, _FOUND))
def test_a_case(reader, case, tmp_path):
    check(READERS[reader], (CASES / reader / case).read_bytes(), tmp_path / "case")


@pytest.mark.parametrize("name", READERS)
def test_what_is_damaged_is_whole_before(name, tmp_path):
    reader = READERS[name]
    for content in reader.seeds:
        messages = check(reader, content, tmp_path / "whole")
        assert len(messages) < len(reader.reads), messages


@pytest.mark.parametrize("name", READERS)
def test_some_damaged_files_of_the_fuzz_below(name, tmp_path):
    reader, messages = READERS[name], []

    def read(content):
        messages.extend(check(reader, content, tmp_path / "case"))

    settings(_FUZZ, max_examples=25)(given(contents(reader))(read))()
    assert messages or reader.of_no_line is None


def test_messages_are_one_printable_line_of_limited_length():
    error = InputError("a.tsv: a\r\nb\u2028c\x1b[2J\ud800 \u202eה é 漢")
    assert str(error) == r"a.tsv: a b c\x1b[2J\ud800 \u202eה é 漢"
    long = str(InputError(f"start {'x' * 10**6} end"))
    assert long.startswith("start") and long.endswith("end") and len(long) < 2100


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name, tmp_path):
    """Take part of `FUZZ_SECONDS`, a minute by default, from the numbers of `FUZZ_SEED` on."""
    reader = READERS[name]
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "60")) / len(READERS)
    number = int(os.environ.get("FUZZ_SEED", "0"))

    crashed = CASES / name / f"crashed.{reader.name}"  # stays there if Python itself ends
    crashed.parent.mkdir(parents=True, exist_ok=True)

    def read(content):
        crashed.write_bytes(content)
        try:
            check(reader, content, tmp_path / "case")
        except BaseException as error:
            error.add_note(f"kept in {keep(name, reader, content, error)}")
            raise
        finally:
            crashed.unlink()

    while time.monotonic() < end:
        seed(number)(_FUZZ(given(contents(reader))(read)))()
        number += 1
