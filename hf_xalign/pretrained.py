"""The one door to models: safetensors alone, no code of a repository, no file outside the folder.

Everything else that can be wrong with a model's folder is said by transformers, PEFT and tokenizers when they load it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_xalign.builtin import find_folder
from hf_xalign.cache import read_json
from hf_xalign.errors import InputError

# What a module saved with a task model names as its base. A folder's path would be another machine's, and the base on
# the Hub would be loaded in place of the fine-tuned model. This is neither, and the error that prints it explains it.
BASE_IN_FOLDER = "(the model in this folder: download it, or load it by hf_xalign.load)"


def check_model_folder(folder: str | os.PathLike) -> None:
    """Refuse a model's folder with a symbolic link or an index of weights that leads out of it. Imports no torch."""
    folder = Path(folder)
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        if path.is_symlink() and not _is_inside(path, folder):
            raise InputError(f"{path} is a link that leaves the folder. Remove it, or put the file in its place.")
    for index in folder.glob("*.safetensors.index.json"):
        for name in read_json(index).get("weight_map", {}).values():
            # Path(folder, name).name is the name itself only for a file directly in the folder.
            if name == ".." or Path(folder, name).name != name:
                raise InputError(f"{index}: weight_map names {name}, which is not a file of this folder.")


def _is_inside(path: Path, folder: Path) -> bool:
    root = folder.resolve()
    # The Hub's cache has links from a model's snapshot to its blobs.
    if root.parent.name == "snapshots" and root.parent.parent.name.startswith("models--"):
        root = root.parent.parent
    return path.resolve().is_relative_to(root)


def check_whole(folder: Path) -> None:
    """Refuse a folder without a config or without safetensors, before data is read."""
    stem = "model" if (folder / "config.json").exists() else "adapter_model"
    if stem == "adapter_model" and not (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} holds no model: it has no config.json and no adapter_config.json.")
    if not any((folder / f"{stem}.safetensors{ending}").exists() for ending in ("", ".index.json")):
        raise InputError(
            f"{folder} has no {stem}.safetensors, the only kind of weights that is read (others are pickles, which "
            "run code). Load it with its own library once, and save it with save_pretrained."
        )


def adapter_base(folder: str) -> str | None:
    """Return the encoder that an adapter in a folder was made on, or None for any other folder or name."""
    config = Path(folder, "adapter_config.json")
    if not config.is_file() or Path(folder, "config.json").exists():
        return None
    base = read_json(config).get("base_model_name_or_path")
    # The folder of a built-in encoder differs between machines.
    builtin = None if base is None or Path(base).is_dir() else find_folder(base)
    return builtin.name if builtin else base


def check_finite(path: Path) -> None:
    """Refuse a safetensors file with a number that is NaN or infinite; hold one tensor at a time."""
    from safetensors import safe_open

    with plain_errors(str(path)), safe_open(path, "pt") as weights:
        for name in weights.keys():  # noqa: SIM118 (not a dict)
            tensor = weights.get_tensor(name)
            # torch has no isfinite for numbers of 8 bits, in which no encoder here is saved.
            if tensor.is_floating_point() and tensor.itemsize > 1 and not tensor.isfinite().all():
                raise InputError(nonfinite(path, name))


def nonfinite(where: str | os.PathLike, name: str) -> str:
    """Return what a refusal of NaN or infinite weights says."""
    return f"{where}: {name} holds NaN or infinite numbers, so the model computes none. Take an earlier checkpoint."


def from_pretrained(auto_class: Any, name_or_path: str | os.PathLike, **options: Any) -> Any:
    """Call `auto_class.from_pretrained` without remote code.

    Without `trust_remote_code=False`, transformers asks on the terminal, and a "y" runs code of the folder. Its report
    of unused weights is hidden: a checkpoint's heads are no part of an encoder.

    Raises:
        InputError: config or weights of the wrong form.
        OSError, ValueError: other errors of transformers.
    """
    with (
        _errors_alone("modeling_utils"),
        _errors_alone("distributed.tensor_parallel"),
        plain_errors(str(name_or_path)),
    ):
        return auto_class.from_pretrained(name_or_path, trust_remote_code=False, **options)


# What libraries raise on files of the wrong form. Errors of the connection and of the disk speak for themselves.
_WRONG_FORM = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError)


@contextmanager
def plain_errors(name: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of libraries on files of the wrong form, and those of `kinds`, into an InputError with the name."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        error_class = type(error)
        # tokenizers raises bare exceptions; safetensors and typed configs have errors of their own kind.
        own = error_class is Exception or "Validation" in error_class.__name__ or "Safetensor" in error_class.__name__
        if not (own or isinstance(error, (*_WRONG_FORM, *kinds))) or "OutOfMemory" in error_class.__name__:
            raise
        raise InputError(
            f"{name}: its files make no model that can be loaded. Compare its config with the weights, or save the "
            "model again. --debug shows what the library says."
        ) from error


@contextmanager
def _errors_alone(module: str) -> Iterator[None]:
    logger = logging.getLogger(f"transformers.{module}")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_tokenizer(name_or_path: str | os.PathLike, *, revision: str | None = None) -> Any:
    """Load a tokenizer from a folder or the Hub."""
    from transformers import AutoTokenizer

    from hf_xalign.network import TransportError

    try:
        tokenizer = from_pretrained(AutoTokenizer, name_or_path, revision=revision or "main")
    except InputError:
        raise
    except (OSError, ValueError, TransportError) as error:
        reason = "" if Path(name_or_path).is_dir() else f", or is no model at all ({str(error).splitlines()[0]})"
        raise InputError(
            f"{name_or_path} has no tokenizer that can be loaded{reason}. Name another, or save the tokenizer again."
        ) from error
    # Without files, transformers makes one of the model's kind that knows no word.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise InputError(f"{name_or_path} has no tokenizer's files: save the model's tokenizer in the same folder")
    return tokenizer
