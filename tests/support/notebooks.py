"""Run the notebooks of examples/, in place as a script: `python tests/support/notebooks.py examples/*.ipynb`."""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

# Progress bars differ from run to run, and hold nothing to read afterwards.
QUIET = {"TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"}
# Threads that spin only a little while they wait: several times as fast on a busy machine.
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def execute(path, folder, timeout=None):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=timeout, record_timing=False, resources={"metadata": {"path": folder}})
    client.execute(env={**os.environ, **QUIET, **PASSIVE})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata = {name: notebook.metadata[name] for name in ("kernelspec", "language_info")}
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main(paths):
    for path in map(Path, paths):
        with TemporaryDirectory() as folder:
            notebook = execute(path, folder)
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
