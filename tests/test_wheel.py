"""The wheel, built from a copy of the checkout and used outside of it: what is in it, and that it works from there."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.recipe import command, make_files

from hf_xalign.cli import train

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("trainers", "recipes", "model_cards")  # of the package, beside its own folder
BESIDE = ("tests", "benchmarks")  # not of it
CONFIGS = sorted(path.name for path in (ROOT / "recipes" / "configs").glob("*.yaml"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (ROOT / "setup.cfg").exists(), reason="not a checkout")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, by the setuptools that is installed, as there is no network; and the files that it was built from."""
    pytest.importorskip("setuptools", minversion="80", reason="the wheel is built with the setuptools that is here")
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("hf_xalign", *ROOMS, *BESIDE):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder)
    files = {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}
    code = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    (folder / "dist").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=True)
    (path,) = (folder / "dist").iterdir()
    return path, files


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--target", str(site)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, str(wheel[0])]
    subprocess.run(command, capture_output=True, check=True)
    return site


@pytest.fixture
def call(installed, tmp_path):
    """Run Python, or `hf-xalign`, on the installed wheel in an empty folder; what it printed."""
    # A path of one's own comes before site-packages, and so before the package that is installed there.
    environment = {**os.environ, "PYTHONPATH": str(installed), "CUDA_VISIBLE_DEVICES": ""}
    environment["HF_HOME"] = str(tmp_path / "home")  # where nobody has configured accelerate
    (tmp_path / "empty").mkdir()

    def run(*words):
        # -P: the folder of the command is no place to import from.
        done = subprocess.run(
            [sys.executable, "-P", *words], cwd=tmp_path / "empty", env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def test_it_holds_the_package_and_nothing_else(wheel):
    path, files = wheel
    wanted = {file.as_posix() for file in files if file.parts[0] == "hf_xalign"}
    wanted |= {f"hf_xalign/{file.as_posix()}" for file in files if file.parts[0] in ROOMS}
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        information = {name for name in names if re.match(r"hf_xalign-[^/]+\.dist-info/", name)}
        (scripts,) = (name for name in information if name.endswith("/entry_points.txt"))
        assert "hf-xalign = hf_xalign.cli.main:main" in archive.read(scripts).decode()
        licences = {name.partition("/licenses/")[2] for name in information if "/licenses/" in name}
    assert names - information == wanted
    assert licences == {"LICENSE", "hf_xalign/data/chromium_ui/LICENSE"}
    # Of what `wanted` must have found, one of each kind.
    assert {"hf_xalign/py.typed", "hf_xalign/recipes/sweeps/fao.yaml", "hf_xalign/model_cards/template.md"} < names
    assert {f"hf_xalign/recipes/configs/{name}" for name in CONFIGS} < names and len(CONFIGS) > 30
    assert {f"hf_xalign/recipes/tables/{path.name}" for path in (ROOT / "recipes/tables").iterdir()} < names


def test_it_runs_in_an_empty_folder(call, installed, tmp_path):
    hf_xalign = str(installed / "bin" / "hf-xalign")
    help_of_fao = call(hf_xalign, "train", "fao", "--help")
    assert all(name in help_of_fao for name in [path.stem for path in (train.FOLDER / "configs").glob("fao_*.yaml")])
    assert "--freeze_embeddings" in call(hf_xalign, "train", "fao", "--", "--help")
    make_files(tmp_path)
    words = command(tmp_path, "--dry_run", "true", "--bf16", "false")
    assert "dry run" in call(hf_xalign, "train", "fao", "--processes", "1", *words)
    code = (
        "import sys, hf_xalign.metrics\n"
        "from hf_xalign import recipes, trainers, model_cards\n"
        "import hf_xalign.recipes.fao\n"
        "files = [one.__file__ for name, one in sys.modules.items() if name.split('.')[0] == 'hf_xalign']\n"
        f"print('elsewhere:', [file for file in files if not file.startswith({str(installed)!r})])\n"
        "print(hf_xalign.metrics.names())\n"
    )
    found = call("-c", code)
    assert "elsewhere: []\n" in found and "word_retrieval" in found
    assert os.listdir(tmp_path / "empty") == []
