"""Exceptions whose message tells the user what is wrong and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

# Error numbers of an OSError: full disk, quota exceeded, file too large.
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Writers in C++ and Rust (torch, safetensors, tokenizers) give no error number.
_FULL_TEXT = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|\(os error (28|122|27)\)"
    r"|PytorchStreamWriter failed writing|inline_container\.cc.* unexpected pos"
)


def find_disk_full(error: BaseException | None) -> BaseException | None:
    """Return the error of a full disk, quota or file-size limit among an error and its causes, or None."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
            return cause
        if not isinstance(cause, InputError) and _FULL_TEXT.search(str(cause)):
            return cause
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class InputError(ValueError):
    """Bad input. The message names the file, row or field and the remedy; recipes print it without a traceback."""


class NonFiniteLossError(RuntimeError):
    """The loss or a weight is NaN or infinite. The message names the last good checkpoint."""
