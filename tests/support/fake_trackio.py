"""Trackio's runs, kept in pytest's temporary folder and read back."""

import os

import pytest


def runs_of(tmp_path_factory):
    """The folder of all runs of this process (it is read once, when Trackio is imported), and how to list a project's.

    Skips the test where Trackio is not installed.
    """
    folder = tmp_path_factory.getbasetemp() / "trackio"
    os.environ.setdefault("TRACKIO_DIR", str(folder))
    trackio = pytest.importorskip("trackio", reason="Trackio is not installed: pip install trackio")
    return folder, trackio.Api().runs
