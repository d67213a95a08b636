"""Tables of bad inputs and their error messages."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hf_xalign.errors import InputError


def assert_refused(
    table: Mapping[str, tuple[Callable[..., Any], str]],
    folder: Path | None = None,
    error: type[Exception] = InputError,
) -> None:
    """Require that every row, (call, regular expression of the message) by name, is refused by that exception.

    With `folder` each call gets an empty folder of its own below it.
    """
    assert table
    wrong = []
    for k, (name, (call, message)) in enumerate(table.items()):
        given = []
        if folder is not None:
            given = [folder / f"row{k}"]
            given[0].mkdir()
        try:
            found = call(*given)
        except error as refusal:
            if not re.search(message, str(refusal)):
                wrong.append(f"{name}: the message is {str(refusal)!r}, expected {message!r}")
        except Exception as other:
            wrong.append(f"{name}: {type(other).__name__}: {other}")
        else:
            wrong.append(f"{name}: accepted, gave {found!r:.200}")
    assert not wrong, f"{len(wrong)} of {len(table)} rows:\n" + "\n".join(wrong)


def calls(
    function: Callable[..., Any], rows: Iterable[tuple[Any, str]], **shared: Any
) -> dict[str, tuple[Callable[..., Any], str]]:
    """Return a table for [`assert_refused`] of (tuple of arguments or dict of options, message); a row overrides."""
    table = {}
    for n, (given, message) in enumerate(rows):
        args, options = ((), given) if isinstance(given, dict) else (given, {})
        table[f"{function.__name__} {n} {message}"] = (partial(function, *args, **shared | options), message)
    return table
