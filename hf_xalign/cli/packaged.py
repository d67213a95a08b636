"""Recipes inside the package: their files, help texts and configurations."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hf_xalign import recipes

FOLDER = Path(str(recipes.__file__)).parent
METHODS = {  # {method: line of `hf-xalign train --help`}
    "fao": "fine-tune the encoder on word links, with a regularizer (Cao et al. 2020)",
    "mao": "train a small module on top of the frozen encoder, on word links",
    "ppa": "align sentences by momentum contrast, and words by TLM (post-pretraining alignment)",
    "mapping": "learn a matrix between word vectors, without training the encoder",
    "align_mlm": "pre-train by MLM, XLM, DICT-MLM or ALIGN-MLM",
    "finetune": "fine-tune for a task in one language, and score it on many",
    "continual": "fine-tune for a task while linked words of other languages stay aligned",
}


def script(name: str) -> Path:
    """Return the file of a recipe."""
    return FOLDER / f"{name}.py"


def option_lines(arguments: type[Any]) -> str:
    """Return the help text of the fields that a recipe's arguments do not inherit."""
    own = [field for field in dataclasses.fields(arguments) if field.name in arguments.__annotations__]
    width = max(len(field.name) for field in own) + 2
    return "\n".join(["options:", *(f"  --{field.name:<{width}}{field.metadata['help']}" for field in own)])


def config_names(method: str) -> list[str]:
    """Return the names of a method's configurations."""
    return sorted(path.stem for path in (FOLDER / "configs").glob(f"{method}_*.yaml"))
