r"""Reproduce the tables and figures of the papers: run the commands of their rows, with published values next to ours.

    hf-xalign reproduce --list
    hf-xalign reproduce mao.table1 --dry_run
    hf-xalign reproduce mao.table1 --only "mBERT-cased + FAO"
    hf-xalign reproduce mao.table1 --data de=my/german.tsv de_test=my/german.test.tsv

Name a table as `PAPER.TABLE`, or all tables of a paper by its name. Each row is a list of ordinary commands, which
`--dry_run` prints. Finished commands are skipped, so run the same command again to resume. Encoders and many data sets
are read from the Hub, other text from the files of `--data`, which `--dry_run` lists. Prints the paper's table: our
values, with the published ones in parentheses.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from hf_xalign.errors import InputError, suggestion
from hf_xalign.recipes.parts.arguments import option
from hf_xalign.tables import table as text_table

if TYPE_CHECKING:
    from hf_xalign.recipes.parts.tables import Command, Table

# Not the command `hf-xalign`, which need not be on the path of this interpreter.
_MAIN = "import sys; from hf_xalign.cli.main import main; sys.exit(main())"
# The others resume by themselves.
_RESTARTED = ("fao", "mao", "ppa", "mapping", "align_mlm")


@dataclass
class ReproduceArguments:
    """Tables to run, and where."""

    tables: list[str] = option("Tables", "Tables and papers. None: list all.", [], positional=True, metavar="TABLE")
    only: list[str] = option("Tables", "Rows to run, by name. Default: all.", [])
    seeds: list[int] | None = option(
        "Tables", "Seeds of every run. Default: the paper's.", None, least=0, distinct=True
    )
    dry_run: bool = option("Run", "Print the commands and run nothing.", False)
    data: list[str] = option("Run", "NAME=PATH: other places of text that the commands read.", [])
    output_dir: str = option("Run", "Folder of all runs.", "runs/reproduce")


ARGUMENTS = (ReproduceArguments,)


def main(argv: list[str]) -> None:
    """Run the command with its words."""
    from hf_xalign.config import parse

    words = [word for word in argv if word != "--list"]
    (args,) = parse(ARGUMENTS, words, prog="hf-xalign reproduce", description=__doc__)

    from hf_xalign.cache import check_output
    from hf_xalign.recipes.parts.tables import find

    if wrong := [item for item in args.data if "=" not in item]:
        raise InputError(f"data {wrong[0]}: write NAME=PATH")
    tables = find(args.tables, Path(args.output_dir), dict(item.split("=", 1) for item in args.data))
    if "--list" in argv or not args.tables:
        lines = [(one.name, one.content["title"], str(len(one.rows))) for one in tables]
        print(text_table([("table", "content", "rows"), *lines], 1))
        return
    known = list(dict.fromkeys(chain.from_iterable(one.rows for one in tables)))
    if unknown := [row for row in args.only if row not in known]:
        hint = suggestion(unknown[0], known) or f"; the rows are {', '.join(known)}"
        raise InputError(f"only: no row {unknown[0]!r}{hint}")
    check_output(args.output_dir)
    if not args.dry_run:
        check_text(tables, args.only, args.seeds)
    for one in tables:
        rows = [row for row in one.rows if not args.only or row in args.only]
        seeds = args.seeds or one.seeds
        if args.dry_run:
            print("\n".join(describe(one, rows, seeds)))
        elif rows:
            for row in rows:
                for command in one.commands(row, seeds):
                    if not command.finished():
                        print(f"\n## {one.name}, {row}\n{command}", flush=True)
                        call(command)
            print(f"\n{show(one, rows, seeds)}")


def check_text(tables: Sequence[Table], only: Sequence[str], seeds: Sequence[int] | None) -> None:
    """Refuse files of text that the unfinished commands of rows (`only`, or all) read and that are not there."""
    from hf_xalign.data.sources import FILE_SUFFIXES, check_files

    files: dict[str, None] = {}
    for table in tables:
        for row in (row for row in table.rows if not only or row in only):
            for command in table.commands(row, seeds or table.seeds):
                if not command.finished():
                    files |= dict.fromkeys(word for word in command.words if word.endswith(FILE_SUFFIXES))
    try:
        check_files(files)
    except InputError as error:
        raise InputError(f"{error}. Name other places by --data NAME=PATH; --dry_run lists the names") from error


def describe(table: Table, rows: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """Return the commands of rows as lines of a shell script; a command that an earlier row has is not repeated."""
    lines = [f"# {table.name}: {table.content['title']}; seeds {' '.join(map(str, seeds))}"]
    seen: set[Command] = set()
    for row in rows:
        commands = table.commands(row, seeds)
        new = [command for command in commands if command not in seen]
        note = "commands of earlier rows" if commands else table.rows[row].get("config", "no experiment")
        lines += [f"# {row}" if new else f"# {row}: {note}", *map(str, new)]
        seen.update(commands)
    if any(table.commands(row, seeds) for row in rows):
        lines += ["# --data NAME=PATH replaces:"]
        lines += [f"#   {name}={place}" for name, place in table.paper.content["data"].items()]
    return lines


def call(command: Command) -> None:
    """Run a command in a process of its own, and mark its scores as finished."""
    from hf_xalign.cache import write_mark
    from hf_xalign.recipes.parts.tables import MARK

    words = list(command.words)
    if words[1] in _RESTARTED and command.folder.is_dir() and any(command.folder.iterdir()):
        complete = any(command.folder.glob("checkpoint-*/complete.json"))
        words += ["--resume_from_checkpoint" if complete else "--overwrite_output_dir", "true"]
    status = execute(words)
    if status:
        raise InputError(f"`{command}` ended with status {status}; run the same command again to resume")
    write_mark(command.file.parent / MARK, {"command": str(command)}, [command.file])


def execute(words: Sequence[str]) -> int:
    """Run `hf-xalign` with these words in a process of its own, and return its exit status."""
    return subprocess.run([sys.executable, "-c", _MAIN, *words], check=False).returncode


def show(table: Table, rows: Sequence[str], seeds: Sequence[int]) -> str:
    """Return a table in the paper's layout: our value of each cell, and the published one in parentheses."""
    lines = [(table.name, *table.content["columns"])]
    for row in rows:
        ours, published = table.values(row, seeds), table.published(row)
        lines.append((row, *(_cell(ours[column], published[column]) for column in ours)))
    return f"{table.content['title']}: ours (published)\n\n{text_table(lines, len(lines[0]) - 1)}"


def _cell(ours: object, published: object) -> str:
    # Smaller numbers are learning rates, which two decimals would make 0.
    number = isinstance(ours, float) and (ours == 0 or abs(ours) >= 0.005)
    shown = "-" if ours is None else f"{ours:.2f}" if number else str(ours)
    return shown if published in (None, "") else f"{shown} ({published})"
