"""Tables of bad inputs and their error messages."""

import re
from functools import partial

from hf_xalign.errors import InputError


def assert_refused(table, folder=None, error=InputError):
    """Require that every row, (call, regular expression of the message) by name, is refused by that exception.

    With `folder` each call gets an empty folder of its own below it.
    """
    assert table
    wrong = []
    for k, (name, (call, message)) in enumerate(table.items()):
        given = [] if folder is None else [folder / f"row{k}"]
        for own in given:
            own.mkdir()
        try:
            found = f"accepted, gave {call(*given)!r:.200}"
        except error as refusal:
            if re.search(message, str(refusal)):
                continue
            found = f"the message is {str(refusal)!r}, expected {message!r}"
        except Exception as other:
            found = f"{type(other).__name__}: {other}"
        wrong.append(f"{name}: {found}")
    assert not wrong, f"{len(wrong)} of {len(table)} rows:\n" + "\n".join(wrong)


def calls(function, rows, **shared):
    """Return a table for [`assert_refused`] of (tuple of arguments or dict of options, message); a row overrides."""
    table = {}
    for n, (given, message) in enumerate(rows):
        args, options = ((), given) if isinstance(given, dict) else (given, {})
        table[f"{function.__name__} {n} {message}"] = (partial(function, *args, **shared | options), message)
    return table
