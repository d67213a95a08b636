"""Tables of the papers: rows, the commands that fill them and published values, from `recipes/tables/PAPER.yaml`.

    title, about           heading and introduction of the page
    seeds                  those of the paper; a table may have its own
    data: {NAME: PATH}     text that commands read
    names: {NAME: TEXT}    variables of all tables
    steps: {NAME: {run: COMMAND of `hf-xalign`, out: FOLDER}}
    tables: {NAME: {title, columns: {NAME: {...}}, rows: {NAME: {published: [...], ...}}}}

`$NAME` in any text is a variable, from the cell (`cells` of a row), the row, the column, the table, `names` or `data`,
or the output folder of another step, which then runs before. Variables with a meaning of their own:

    score     STEP PATH: where the cell's value is, as keys of the step's file joined by `/`; `a=b` selects in a list
    minus     variables of a second value, which is subtracted
    setting   instead of score, the name of a setting of the command of `step`
    mean      true: the mean of the other columns
    sum       true: their sum
    scale     factor of what is shown, 100 by default

`correlate: [TABLE/COLUMN, TABLE/COLUMN]` of a row is Spearman's correlation of two columns over rows and seeds, and
`statistic: p_value` of a column its p-value. A row without any of these has no experiment, and `config` says where its
settings are. A published value of null is a cell that the paper leaves out; a row without `published` is drawn only.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from hf_xalign.cache import read_mark
from hf_xalign.config import imported, parse
from hf_xalign.errors import InputError, suggestion

FOLDER = Path(__file__).resolve().parent.parent / "tables"
# Next to a file of scores: the command that wrote it, and its checksum.
MARK = "reproduce.json"
# Scores of recipes that have a folder for each seed, or no `results.json`.
_FILES = {"finetune": "seed-$seed/scores.json", "continual": "seed-$seed/scores.json", "distances": "distances.json"}


class Command(NamedTuple):
    """Words of a command after `hf-xalign`, its output folder, and the file there that has its scores."""

    words: tuple[str, ...]
    folder: Path
    file: Path

    def __str__(self) -> str:
        return f"hf-xalign {shlex.join(self.words)}"

    def finished(self) -> bool:
        """Return whether the scores are there and whole."""
        if not self.file.is_file():
            return False
        mark = self.file.parent / MARK
        # The command was run by hand.
        if not mark.exists():
            return True
        content = read_mark(mark)
        if content and content["command"] != str(self):
            raise InputError(
                f"{self.file} is of another command: {content['command']}. Give another output_dir, or remove "
                f"{self.folder}"
            )
        return content is not None


@dataclass(frozen=True)
class Paper:
    """The tables of one paper, with an output folder for its commands and other places of its data."""

    name: str
    content: Mapping[str, Any]
    root: Path

    @classmethod
    def read(cls, name: str, root: Path, data: Mapping[str, str]) -> Paper:
        """Read a paper's file; `data` replaces the places of its text."""
        text = (FOLDER / f"{name}.yaml").read_text("utf-8")
        content = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        content["data"] |= {key: data[key] for key in content["data"].keys() & data}
        return cls(name, content, root / name)

    def table(self, name: str) -> Table:
        """Return one of the tables."""
        return Table(self, name, self.content["tables"][name])

    def expand(self, text: str, names: Mapping[str, object], needed: list[Command]) -> str:
        """Replace variables and steps in a text; the commands of these steps are added to `needed`."""

        def value(match: re.Match[str]) -> str:
            if match[1] in names:
                return self.expand(str(names[match[1]]), names, needed)
            commands = self.commands(match[1], names)
            needed.extend(command for command in commands if command not in needed)
            return str(commands[-1].folder)

        return re.sub(r"\$(\w+)", value, text)

    def commands(self, step: str, names: Mapping[str, object]) -> list[Command]:
        """Return the command of a step, after those that it needs."""
        entry, needed = self.content["steps"][step], list[Command]()
        words = shlex.split(self.expand(entry["run"], names, needed))
        folder = self.root / self.expand(entry["out"], names, needed)
        file = folder / self.expand(_FILES.get(words[0], "results.json"), names, needed)
        words = words if words[0] == "distances" else ["train", *words]
        return [*needed, Command((*words, "--output_dir", str(folder)), folder, file)]


@dataclass(frozen=True)
class Table:
    """One table or figure."""

    paper: Paper
    key: str
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name on the command line, such as `mao.table1`."""
        return f"{self.paper.name}.{self.key}"

    @property
    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """The rows by name."""
        return self.content["rows"]

    @property
    def systems(self) -> list[str]:
        """The rows that are not correlations of other rows."""
        return [row for row, cells in self.rows.items() if "correlate" not in cells]

    @property
    def seeds(self) -> list[int]:
        """The paper's seeds."""
        return self.content.get("seeds", self.paper.content.get("seeds", [0]))

    def names(self, row: str, column: str) -> dict[str, Any]:
        """Return the variables of a cell."""
        row_content = self.rows[row]
        paper = self.paper.content
        levels = (paper["data"], paper.get("names", {}), self.content, self.content["columns"][column], row_content)
        names: dict[str, Any] = {}
        for level in (*levels, row_content.get("cells", {}).get(column, {})):
            names |= {name: value for name, value in level.items() if name not in ("rows", "columns", "cells")}
        return names

    def published(self, row: str) -> dict[str, object]:
        """Return the published values of a row by column: None where the paper has no cell, `""` where it draws."""
        columns = self.content["columns"]
        return dict(zip(columns, self.rows[row].get("published", [""] * len(columns)), strict=True))

    def parts(self, row: str, column: str, seed: int) -> list[tuple[list[Command], str]]:
        """Return the commands and the path of a cell's score, then of the one that is subtracted."""
        names = self.names(row, column) | {"seed": seed}
        if (
            not names.get("score")
            or {"mean", "sum", "setting", "correlate"} & names.keys()
            or self.published(row)[column] is None
        ):
            return []
        terms = []
        for variant in (names, names | names["minus"]) if names.get("minus") else (names,):
            step, _, path = self.paper.expand(names["score"], variant, []).partition(" ")
            terms.append((self.paper.commands(step, variant), path))
        return terms

    def commands(self, row: str, seeds: Sequence[int]) -> list[Command]:
        """Return the commands that a row needs, in their order, each once."""
        every: list[Command] = []
        if "correlate" in self.rows[row]:
            for table, _ in self.correlated(row):
                for system in table.systems:
                    every += table.commands(system, seeds)
        for column in self.content["columns"]:
            for seed in seeds:
                for commands, _ in self.parts(row, column, seed):
                    every += commands
        return list(dict.fromkeys(every))

    def values(self, row: str, seeds: Sequence[int]) -> dict[str, Any]:
        """Return our values of a row by column, means over seeds; None where a run is unfinished or there is none."""
        values: dict[str, Any] = {}
        published = self.published(row)
        for column in self.content["columns"]:
            names = self.names(row, column)
            if published[column] is None:
                values[column] = None
            elif "correlate" in names:
                values[column] = self.correlation(row, seeds, names.get("statistic", "rho"))
            elif names.get("mean") or names.get("sum"):
                others = list(values.values())
                share = len(others) if names.get("mean") else 1
                values[column] = sum(others) / share if others and None not in others else None
            elif "setting" in names and "step" in names:
                values[column] = setting(self.paper.commands(names["step"], names | {"seed": 0})[-1], names["setting"])
            else:
                of_seeds = [_difference(self.parts(row, column, seed)) for seed in seeds]
                scores = [score for score in of_seeds if score is not None]
                complete = scores and len(scores) == len(of_seeds)
                values[column] = sum(scores) / len(scores) * names.get("scale", 100) if complete else None
        return values

    def correlated(self, row: str) -> list[tuple[Table, str]]:
        """Return the two tables and columns of a row that correlates them."""
        places = [place.partition("/") for place in self.rows[row]["correlate"]]
        return [(self.paper.table(table), column) for table, _, column in places]

    def correlation(self, row: str, seeds: Sequence[int], statistic: str) -> float | str | None:
        """Return `rho`, with the paper's sign, or the `p_value` of a correlation; None before all runs have ended."""
        from hf_xalign.evaluation.transfer import spearman

        sides = []
        for table, column in self.correlated(row):
            runs = itertools.product(table.systems, seeds)
            sides.append([table.values(system, [seed])[column] for system, seed in runs])
        x, y = sides
        if None in (*x, *y):
            return None
        try:
            result = spearman(x, y)
        except InputError as error:
            # Of fewer than three runs, or where one side is constant. The table says so in the cell.
            return f"undefined: {error}"
        return -result.rho if statistic == "rho" else result.p_value


def papers() -> list[str]:
    """Return the names of the papers."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(names: Sequence[str], root: Path, data: Mapping[str, str] | None = None) -> list[Table]:
    """Return tables by name (`mao.table1`), or all of a paper (`mao`), or all without names."""
    known: dict[str, Table] = {}
    for paper in papers():
        read = Paper.read(paper, root, data or {})
        known |= {f"{paper}.{key}": read.table(key) for key in read.content["tables"]}
    tables: dict[str, Table] = {}
    for name in names or papers():
        matching = {full: table for full, table in known.items() if name in (full, full.partition(".")[0])}
        if not matching:
            close = suggestion(name, [*known, *papers()]) or "; `hf-xalign reproduce --list` has all"
            raise InputError(f"no table or figure {name!r}{close}")
        tables |= matching
    texts = sorted(set().union(*(table.paper.content["data"] for table in tables.values())))
    if unknown := [name for name in data or {} if name not in texts]:
        raise InputError(f"data: these tables read no {unknown[0]!r}, only {', '.join(texts)}")
    return list(tables.values())


@cache
def settings(command: Command) -> tuple[object, ...]:
    """Return the settings of a command as its recipe reads them, without looking for files."""
    train = command.words[0] == "train"
    recipe = importlib.import_module(f"hf_xalign.recipes.{command.words[train]}")
    types = [imported(word) for word in recipe.ARGUMENTS]
    words = command.words[1 + train :]
    return parse(types, [str(FOLDER.parent / "configs" / word) if word.endswith(".yaml") else word for word in words])


def setting(command: Command, name: str) -> object:
    """Return a setting of a command."""
    return next(getattr(part, name) for part in settings(command) if hasattr(part, name))


def _difference(terms: Sequence[tuple[list[Command], str]]) -> float | None:
    """Return the first score less the second, if there is one; None if a run is unfinished."""
    if not terms or not all(commands[-1].finished() for commands, _ in terms):
        return None
    first, *rest = (_read(commands[-1].file, path) for commands, path in terms)
    return first - sum(rest)


def _read(file: Path, path: str) -> float:
    value = json.loads(file.read_text("utf-8"))
    try:
        for key in path.split("/"):
            if isinstance(value, list):
                name, _, wanted = key.partition("=")
                value = [entry for entry in value if str(entry[name]) == wanted]
                value = value[0] if len(value) == 1 else value
            else:
                value = value[key]
        return float(value)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} has no {path}, so other settings wrote it: remove {file.parent}") from error
