"""Exceptions whose message tells the user what is wrong and what to do."""

from __future__ import annotations

import errno

# Error numbers of an OSError: full disk, quota exceeded, file too large.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class InputError(ValueError):
    """Bad input. The message names the file, row or field and the remedy; recipes print it without a traceback."""


class NonFiniteLossError(RuntimeError):
    """The loss or a weight is NaN or infinite. The message names the last good checkpoint."""
