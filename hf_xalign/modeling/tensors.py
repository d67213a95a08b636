"""The safetensors files of this room: maps, anchors, and sums of word vectors so far."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hf_xalign.cache import replacing
from hf_xalign.errors import InputError


def write_tensors(path: str | os.PathLike, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors of any device and layout, none of them twice, whole or not at all.

    Raises:
        InputError: the disk is full.
    """
    owned = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as partial:
        # Not save_file, which says a full disk in words alone.
        partial.write_bytes(save(owned, metadata))


def read_tensors(
    path: str | os.PathLike, what: str, writer: str, format: str, version: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of [`write_tensors`] whose metadata say its `format` and `version`.

    Args:
        path: the file.
        what: what it holds, in messages: a plural.
        writer: what writes such files, in messages.
        format: expected in the metadata.
        version: expected in the metadata.

    Returns:
        The tensors, and the metadata.

    Raises:
        InputError: the file is missing, broken, of another kind or of another version.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: no {what} that could be read ({error})") from error
    if metadata.get("format") != format:
        raise InputError(f"{path}: no {what} of this library; they are written by {writer}")
    if metadata.get("version") != version:
        raise InputError(
            f"{path}: {what} in version {metadata.get('version')} of this library's format, and this hf_xalign reads "
            f"version {version}: use the one that wrote them"
        )
    return tensors, metadata
