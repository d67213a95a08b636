"""The recipes inside the package: their files, what they say of themselves, their configurations."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from pathlib import Path
from typing import Any

from hf_xalign import recipes
from hf_xalign.errors import InputError

FOLDER = Path(str(recipes.__file__)).parent
_CALL = re.compile(r"(?:(?:accelerate launch|python) )?recipes/(\w+)\.py")
# The methods that `hf-xalign train` knows, and what they are.
METHODS = {
    "fao": "fine-tune the encoder on word links, near to what it was (Cao et al. 2020)",
    "mao": "train a small module on the frozen encoder, on word links",
    "ppa": "align sentences by momentum contrast, and words by TLM (post-pretraining alignment)",
    "mapping": "learn a matrix between word vectors; the encoder is not trained",
    "align_mlm": "pre-train by MLM, XLM, DICT-MLM or ALIGN-MLM",
    "align_mlm_grid": "objectives x derived languages: each pre-trained, fine-tuned and tested on both sides",
    "finetune": "fine-tune for a task in one language, and score it on many",
    "continual": "the same, while linked words of other languages stay aligned",
}


def script(name: str) -> Path:
    """The file of a recipe."""
    return FOLDER / f"{name}.py"


def description(name: str) -> str:
    """What a recipe says of itself, with the commands that run it and other recipes in the place of their files.

    The file is read, not imported: that would take seconds.
    """
    text = ast.get_docstring(ast.parse(script(name).read_text(encoding="utf-8"))) or ""
    commands = {name: f"hf-xalign train {name}" for name in METHODS}
    commands |= {name: f"hf-xalign {name}" for name in ("compare", "distances")}
    return _CALL.sub(lambda call: commands.get(call[1], call[0]), text).replace("recipes/configs/", "")


def option_lines(arguments: type[Any]) -> list[str]:
    """The fields that a recipe's arguments have beside those that it shares with others, as lines of a help text."""
    own = [field for field in dataclasses.fields(arguments) if field.name in arguments.__annotations__]
    width = max(len(field.name) for field in own) + 2
    return [f"  --{field.name:<{width}}{field.metadata['help']}" for field in own]


def config_names(method: str) -> list[str]:
    """The configurations of a method, as `--config` takes them; a grid of runs takes those of its runs."""
    return sorted(path.name for path in (FOLDER / "configs").glob(f"{method.removesuffix('_grid')}_*.yaml"))


def find(name: str, kind: str, option: str) -> str:
    """The path of a YAML file: of the user's own, else of the package's with this name, with or without its suffix.

    Args:
        name: a path, or a bare name.
        kind: `configs` or `accelerate`.
        option: what the name was given as, for the message.

    Raises:
        InputError: there is neither; the closest names are in the message.
    """
    if Path(name).is_file():
        return name
    known = {path.name: path for path in sorted((FOLDER / kind).glob("*.yaml"))}
    wanted = name if name.endswith(".yaml") else f"{name}.yaml"
    if wanted in known:
        return str(known[wanted])
    close = difflib.get_close_matches(wanted, known, n=2, cutoff=0.5)
    meant = f"did you mean {' or '.join(close)}?" if close else f"the package has {', '.join(known)}"
    raise InputError(f"{option} {name}: no such file here or in the package; {meant}")
