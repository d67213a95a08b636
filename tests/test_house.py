"""Rules of the house: rooms on floors, no circle, caps of lines and refusals; examples that run."""

import ast
import configparser
import doctest
import importlib
import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"hf_xalign": "hf_xalign", **{top: f"hf_xalign.{top}" for top in ("trainers", "recipes", "model_cards")}}
MODULES = {
    ".".join((PACKAGES[folder], *path.relative_to(ROOT / folder).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for folder in PACKAGES
    for path in sorted((ROOT / folder).rglob("*.py"))
}
EXAMPLES = [name for name, path in MODULES.items() if ".metrics." not in name and ">>> " in path.read_text("utf-8")]
FLOORS = 7
# {room: most lines, most `raise` statements}. A cap rises only in a commit that removes as much elsewhere.
CAPS = {
    "cli": (1393, 20),
    "core": (2701, 54),
    "data": (6855, 109),
    "evaluation": (1863, 17),
    "explore": (233, 2),
    "hub": (343, 9),
    "links": (1687, 24),
    "mapping": (1243, 16),
    "metrics": (480, 2),
    "model_cards": (536, 0),
    "modeling": (4534, 66),
    "objectives": (1188, 8),
    "prepare": (882, 3),
    "recipes": (2362, 26),
    "report": (424, 2),
    "search": (608, 4),
    "statistics": (706, 8),
    "tasks": (2836, 47),
    "trainers": (6520, 64),
}

pytestmark = pytest.mark.skipif(not (ROOT / "setup.cfg").exists(), reason="not a checkout")


def room(path: Path) -> str:
    """Return the room of a file: a folder of hf_xalign or of the checkout, `core` for the modules of hf_xalign."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] != "hf_xalign" else parts[1] if len(parts) > 2 else "core"


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return found & MODULES.keys() - {"hf_xalign"}


def rooms() -> dict[str, set[str]]:
    """Return the rooms that each room imports; a package's `__init__` only exports, so its imports do not count."""
    below: dict[str, set[str]] = defaultdict(set)
    for path in MODULES.values():
        below[room(path)] |= set()
        if path.name != "__init__.py":
            below[room(path)] |= {room(MODULES[name]) for name in imported(path)} - {room(path)}
    return below


def test_rooms_stand_on_floors_without_a_circle():
    left, floors = rooms(), 0
    assert {"core", "data", "modeling", "trainers", "recipes"} <= left.keys()
    while left:
        floor = {name for name, below in left.items() if not below & left.keys()}
        assert floor, f"these rooms import each other in a circle, or stand on one: {left}"
        left, floors = {name: below for name, below in left.items() if name not in floor}, floors + 1
    assert floors <= FLOORS


def test_every_package_is_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py" and ".metrics." not in name}
    assert packages <= set(setup["options"]["packages"].split()), "a folder that is not listed is in no wheel"


def test_no_room_outgrows_its_cap():
    lines, raises = Counter(), Counter()
    for path in MODULES.values():
        text = path.read_text(encoding="utf-8")
        lines[room(path)] += len(text.splitlines())
        raises[room(path)] += len(re.findall(r"^\s*raise\b", text, re.MULTILINE))
    assert lines.keys() == CAPS.keys()
    over = {name for name, (most, refusals) in CAPS.items() if lines[name] > most or raises[name] > refusals}
    assert {name: (lines[name], raises[name]) for name in over} == {}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a trainer makes its output folder
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # examples leave their files
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert result.attempted and not result.failed


def test_no_file_imports_a_room_by_its_top_level_name():
    """`import trainers` would work from the checkout's root, and make a second copy of every class."""
    wrong = re.compile(r"^\s*(import|from)\s+(trainers|recipes|model_cards)\b", re.MULTILINE)
    files = [*MODULES.values(), *(path for room in ("tests", "benchmarks") for path in (ROOT / room).rglob("*.py"))]
    assert [str(path.relative_to(ROOT)) for path in files if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_every_requirement_is_pinned_for_ci():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = setup["options.extras_require"]
    lines = "\n".join((setup["options"]["install_requires"], extras["dev"], extras["docs"], extras["demo"]))
    names = {line: re.match(r"[\w-]+", line)[0].lower() for line in lines.split("\n") if line}
    pins = re.findall(r"^([\w.-]+)==", (ROOT / ".ci" / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert {"torch>=2.13.0", "ruff>=0.17.6"} <= names.keys()
    pinned = {pin.lower().replace("_", "-") for pin in pins}
    assert [line for line, name in names.items() if name.replace("_", "-") not in pinned] == []
