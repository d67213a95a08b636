"""Read and write safetensors files of maps, anchors, momentum encoders and states of sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hf_xalign.cache import check_regular, replacing
from hf_xalign.errors import InputError


def write_tensors(path: str | os.PathLike, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors, which must not share memory, atomically."""
    owned = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as partial:
        # Not save_file, whose error for a full disk has no errno.
        partial.write_bytes(save(owned, metadata))


def read_tensors(
    path: str | os.PathLike, what: str, writer: str, format: str, version: str | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata of a file of [`write_tensors`]; another `format` or `version` raises an InputError."""
    check_regular(path)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot read {what} ({error}).") from error
    if (metadata.get("format"), metadata.get("version")) != (format, version):
        raise InputError(f"{path}: not {what} of this version of the library. Use a file written by {writer}.")
    return tensors, metadata
