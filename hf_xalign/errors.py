"""The exceptions whose message alone tells the user what is wrong and what to do."""

from __future__ import annotations

import errno

# Of an OSError: the disk, the quota or the largest size of a file is reached.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class InputError(ValueError):
    """Bad input: the message names the file, row or field and the way out; recipes print it without a traceback."""


class NonFiniteLossError(RuntimeError):
    """The loss or a weight is NaN or infinite; the message names the last good checkpoint."""
