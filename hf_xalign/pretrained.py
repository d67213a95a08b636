"""The one door to `from_pretrained` of transformers, through which no code of a repository runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hf_xalign.errors import InputError


def from_pretrained(auto_class: Any, name_or_path: str | os.PathLike, **options: Any) -> Any:
    """Call `auto_class.from_pretrained` without remote code; its errors are those of transformers.

    Without `trust_remote_code=False`, transformers asks on the terminal, and a "y" runs code of the folder. Its report
    of unused weights is hidden: a checkpoint's heads are no part of an encoder.
    """
    with ExitStack() as stack:
        for name in ("transformers.modeling_utils", "transformers.distributed.tensor_parallel"):
            stack.enter_context(_errors_alone(logging.getLogger(name)))
        return auto_class.from_pretrained(name_or_path, trust_remote_code=False, **options)


@contextmanager
def _errors_alone(logger: logging.Logger) -> Iterator[None]:
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
        return from_pretrained(AutoTokenizer, name_or_path, revision=revision or "main")
    except (OSError, ValueError, TransportError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name_or_path} has no tokenizer that can be loaded, or is no model at all ({reason})"
        ) from error
