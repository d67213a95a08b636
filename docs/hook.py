"""Build hook: make tables of options, fields, presets, configurations and papers from code and YAML."""

import argparse
import collections
import dataclasses
import importlib
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command, `hf-xalign NAME ...`, or of a recipe, `NAME`."""
    words, found = command.split(), list[argparse.ArgumentParser]()
    module = "hf_xalign.cli.main" if words[0] == "hf-xalign" else f"hf_xalign.recipes.{words[0]}"
    catch = patch.object(argparse.ArgumentParser, "print_help", lambda self, file=None: found.append(self))
    with catch, suppress(SystemExit):
        importlib.import_module(module).main([*words[1:], "--help"])
    return found[0]


def options(command: str) -> str:
    """Return the description of a command and tables of its options, as Markdown."""
    parser = parser_of(command)
    lines = [(parser.description or "").replace("\n    ", "\n\n    ", 1), ""]
    for group in parser._action_groups:
        actions = [one for one in group._group_actions if one.help != argparse.SUPPRESS and one.dest != "help"]
        if str(group.title).startswith("Inherited"):
            names = ", ".join(f"`{action.dest}`" for action in actions)
            lines += [f'??? note "{group.title}"', "", f"    {names}", ""]
        elif actions and group.title != "methods":
            title = str(group.title).capitalize()
            lines += [f"**{title}**", "", "| | default | |", "| --- | --- | --- |", *map(_row, actions), ""]
    return "\n".join(lines)


def _row(action: argparse.Action) -> str:
    name = (action.option_strings or [action.metavar or action.dest])[0]
    default = "" if action.default in (None, "", [], argparse.SUPPRESS) else f"`{action.default}`"
    choices = f" One of {', '.join(f'`{one}`' for one in action.choices)}." if action.choices else ""
    return f"| `{name}` | {default} | {str(action.help).replace('%%', '%').replace('<', '&lt;')}{choices} |"


def configs() -> str:
    """Return a table of the configurations and the first line of each, as Markdown."""
    paths = sorted((ROOT / "recipes" / "configs").glob("*.yaml"))
    heads = (re.match(r"# (.+(?:\n# [^ ].*)*)", path.read_text("utf-8")) for path in paths)
    rows = (
        f"| `{path.stem}` | {' '.join(head[1].split(chr(10) + '# ')) if head else ''} |"
        for path, head in zip(paths, heads, strict=True)
    )
    return "\n".join(("| configuration | what it runs |", "| --- | --- |", *rows))


def presets() -> str:
    """Return every preset of every method with every value, as Markdown; up to four presets in a table."""
    trainers, lines = importlib.import_module("hf_xalign.trainers"), list[str]()
    for method in ("FAO", "MAO", "PPA", "AlignMLM", "Continual", "Task"):
        found = getattr(trainers, f"{method}Config").PRESETS
        lines += [f"## {method}", ""]
        for start in range(0, len(found), 4):
            names = list(found)[start : start + 4]
            lines += [f"| | {' | '.join(f'`{name}`' for name in names)} |", f"| --- |{' --- |' * len(names)}"]
            fields = dict.fromkeys(field for name in names for field in found[name])
            for field in fields:
                cells = [f"`{found[name][field]}`" if field in found[name] else "" for name in names]
                lines.append(f"| `{field}` | {' | '.join(cells)} |")
            lines.append("")
    return "\n".join(lines)


def fields(name: str) -> str:
    """Return a table of a config's own fields, and of others that its presets set, as Markdown."""
    config = getattr(importlib.import_module("hf_xalign.trainers"), name)
    base_config = importlib.import_module("hf_xalign.trainers.base.trainer_config")
    presets = {name: base_config._ORDER | values for name, values in getattr(config, "PRESETS", {}).items()}
    lines = ["| field | type | default | |", "| --- | --- | --- | --- |"]
    for field in sorted(dataclasses.fields(config), key=lambda field: field.name not in config.__annotations__):
        by_preset = any(field.name in values for values in presets.values())
        if field.init and (by_preset or field.name in config.__annotations__):
            make = field.default_factory
            value = field.default if make is dataclasses.MISSING else make()
            if by_preset:
                names: dict[str, list[str]] = collections.defaultdict(list)
                for preset, values in presets.items():
                    names[_value(values.get(field.name, value))].append(f"`{preset}`")
                most = max(names, key=lambda value: len(names[value]))
                rare = [f"`{value}` ({', '.join(own)})" for value, own in names.items() if value != most]
                default = ", ".join([*rare, f"`{most}`" + " (the others)" * bool(rare)])
            elif value is None and "Default: by preset." in field.metadata["help"]:
                default = "by preset"
            else:
                default = f"`{_value(value)}`"
            about = str(field.metadata["help"] if "group" in field.metadata else "As in transformers.")
            about = about.removesuffix(" Default: by preset.").replace("<", "&lt;")
            lines.append(f"| `{field.name}` | {_type(field.type, config)} | {default} | {about} |")
    return "\n".join(lines)


def _value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)


def _type(annotation: Any, config: type) -> str:
    """Return a type as Markdown, a choice by its values."""
    if isinstance(annotation, str):
        modules = [vars(sys.modules[base.__module__]) for base in reversed(config.__mro__)]
        annotation = eval(annotation, dict(collections.ChainMap(*modules)))
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{_value(choice)}`" for choice in get_args(annotation))
    name = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    return f"`{re.sub(r'[a-z_]+[.]', '', name)}`"


def refused() -> str:
    """Return a table of transformers' settings that the trainers do not support, as Markdown."""
    table = importlib.import_module("hf_xalign.trainers.base.trainer_config")
    rows = [f"| `{name}` | {reason.removesuffix(' Remove it.')} |" for name, reason in table.REFUSED.items()]
    return "\n".join(("| setting or argument | why |", "| --- | --- |", *rows))


def reproduced(paper: str) -> str:
    """Return a paper's tables with published values and the commands of the first seed, as Markdown."""
    tables = importlib.import_module("hf_xalign.recipes.parts.tables").find([paper], Path("runs/reproduce"))
    recipe = importlib.import_module("hf_xalign.recipes.reproduce")
    content = tables[0].paper.content
    lines = [f"## {content['title']}", "", content["about"].strip(), ""]
    for one in tables:
        lines += [f"### {one.content['title']}", "", "```bash", f"hf-xalign reproduce {one.name}", "```", ""]
        columns, places = list(one.content["columns"]), ["in"] * any("config" in row for row in one.rows.values())
        lines += [f"| row | {' | '.join([*columns, *places])} |", f"| --- |{' --- |' * len([*columns, *places])}"]
        for name, row in one.rows.items():
            values = ["-" if value is None else str(value) for value in one.published(name).values()]
            config = [f"`{row['config']}`" if "config" in row else ""] * len(places)
            lines.append(f"| {name} | {' | '.join([*values, *config])} |")
        if commands := [line for line in recipe.describe(one, list(one.rows), one.seeds[:1]) if line]:
            indented = [f"    {line}" for line in ("```bash", *commands, "```")]
            lines += ["", f'??? note "Commands of seed {one.seeds[0]}"', "", *indented, ""]
    return "\n".join(lines)


def on_page_markdown(markdown: str, **kwargs: object) -> str:
    """Replace `<!-- options: COMMAND -->`, `<!-- fields: CONFIG -->`, `<!-- reproduce: PAPER -->` and three lists."""
    markdown = re.sub(r"^<!-- fields: (.+) -->$", lambda found: fields(found[1]), markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^<!-- reproduce: (.+) -->$", lambda found: reproduced(found[1]), markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^<!-- options: (.+) -->$", lambda found: options(found[1]), markdown, flags=re.MULTILINE)
    markdown = markdown.replace("<!-- configs -->", configs())
    markdown = markdown.replace("<!-- presets -->", presets() if "<!-- presets -->" in markdown else "")
    sweep = (ROOT / "recipes" / "sweeps" / "fao.yaml").read_text("utf-8")
    markdown = markdown.replace("<!-- sweep -->", f'```yaml title="sweep.yaml"\n{sweep}```')
    return markdown.replace("<!-- refused -->", refused() if "<!-- refused -->" in markdown else "")
