"""Exceptions whose messages name the fault and the remedy, and suggestions for mistyped names."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # full disk, quota, largest file
# Writers in C++ and Rust (torch, safetensors, tokenizers) give no error number.
_FULL_TEXT = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|\(os error (28|122|27)\)"
    r"|PytorchStreamWriter failed writing|inline_container\.cc.* unexpected pos"
)
_LONGEST = 2_000  # characters of a message


def find_disk_full(error: BaseException | None) -> BaseException | None:
    """Return the error of a full disk, quota or file-size limit among an error and its causes, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return error
        if not isinstance(error, InputError) and _FULL_TEXT.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


class InputError(ValueError):
    """Bad input. The message names the file, row or field and the remedy; recipes print it without a traceback.

    The message is one printable line, even if it quotes a file or an error of a library: line breaks become spaces,
    other characters that do not print are escaped, and the middle of a very long message is left out.
    """

    def __init__(self, message: object = "") -> None:
        text = " ".join(str(message).splitlines())
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        # Escapes lengthen the text: it is cut after they are made.
        super().__init__(
            text if len(text) <= _LONGEST else f"{text[: _LONGEST * 3 // 4]} ... {text[-_LONGEST // 4 :]}"
        )


class NonFiniteLossError(RuntimeError):
    """The loss or a weight is NaN or infinite. The message names the last good checkpoint."""


@contextmanager
def content_errors(path: str | os.PathLike, fault: str, remedy: str = "") -> Iterator[None]:
    """Turn the errors of reading a malformed file in the block into an InputError that names the file.

    JSON alone can fail by its encoding, its syntax, a number of 5,000 digits, deep nesting, a missing key or a type.
    """
    try:
        yield
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: {fault} ({reason}). {remedy}".strip()) from error


@contextmanager
def explained(what: str, *kinds: type[Exception], advice: str = "") -> Iterator[None]:
    """Turn errors of these `kinds` in the block into an InputError that names what failed, the reason and the advice.

    Without `kinds`, `what` is put before the message of an InputError from the block.
    """
    try:
        yield
    except InputError as error:
        if kinds:
            raise
        raise InputError(f"{what}: {error}") from error
    except kinds as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{what}: {reason}{advice}") from error


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known name that is closest to `name`, or "".

    Example:
        >>> suggestion("--layer", ["--learning_rate", "--layers"])
        "; did you mean '--layers'?"
    """
    # Dashes would make short names alike.
    names = {option.lstrip("-"): option for option in known}
    close = difflib.get_close_matches(name.lstrip("-"), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""
