"""Check settings, with messages of one form: `name=value`, the allowed values, the remedy.

The metadata of a dataclass field limit its values: `least`, `above`, `most` and `below` for a number, `distinct` for a
list, and `rules` about other fields. A type `Literal` lists the choices. `check` reads all these. Functions check
their arguments by `check_choice`, `check_range` and `check_distinct`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from math import isfinite
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from hf_xalign.errors import InputError, suggestion

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

GIVEN = object()  # any value except None, 0, false and empty ones
_CHANGED = object()  # a value other than the default
_BOUNDS = ("least", "above", "most", "below")  # least and most are allowed values


class SettingError(InputError):
    """Bad value of a setting; `setting` is its name."""

    def __init__(self, message: object = "", setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


@dataclass(frozen=True)
class Rule:
    """Other fields that a field needs or excludes if its value is `when`, or by default if it has been changed."""

    others: Mapping[str, object]
    needed: bool
    when: object
    why: str


def needs(why: str = "", when: object = _CHANGED, **others: object) -> Rule:
    """Return a rule for a field's metadata `rules`: the field needs all these values of other fields.

    A tuple lists several values, and `GIVEN` allows any. A list has a value if it is one of its items.

    Example:
        >>> @dataclass
        ... class Settings:
        ...     method: Literal["plain", "moco"] = "plain"
        ...     queue: int = dataclasses.field(default=8, metadata={"least": 1, "rules": [needs(method="moco")]})
        >>> check(Settings(queue=16))
        Traceback (most recent call last):
        hf_xalign.checks.SettingError: queue=16 needs method=moco: set it, or leave queue out
    """
    return Rule(others, True, when, why)


def excludes(why: str = "", when: object = _CHANGED, **others: object) -> Rule:
    """Return a rule that a field does not go with all these values of others, as in [`needs`]; or with nothing."""
    return Rule(others, False, when, why)


def setting(default: object = dataclasses.MISSING, help: str = "", group: str = "", **checks: object) -> Any:
    """Return a dataclass field with metadata for `check` and the command line."""
    metadata = {name: value for name, value in {"help": help, "group": group, **checks}.items() if value != ""}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check(*objects: DataclassInstance, inherited: Mapping[str, Rule] = MappingProxyType({})) -> None:
    """Raise a SettingError if a field of dataclass instances, or a combination of them, is not allowed.

    Args:
        objects: instances without a common field name. Rules about other fields are not checked. If an instance has a
            method `changed`, it returns the names of fields that differ from their defaults.
        inherited: {field: rule} in addition, for fields of another library's class.
    """
    fields: dict[str, tuple[DataclassInstance, dataclasses.Field]] = {}
    values: dict[str, Any] = {}
    for instance in objects:
        for field in dataclasses.fields(instance):
            fields[field.name] = instance, field
            values[field.name] = getattr(instance, field.name, None)
    changed = cache(partial(_changed, objects))
    for name, (instance, field) in fields.items():
        metadata, value = field.metadata, values[name]
        if value is not None and (choices := metadata.get("choices") or _literals(type(instance)).get(name)):
            for item in value if isinstance(value, list | tuple) else [value]:
                check_choice(choices, **{name: item})
        if bounds := {bound: metadata[bound] for bound in _BOUNDS if bound in metadata}:
            check_range(**bounds, **{name: value})
        if metadata.get("distinct") and value is not None and (value or name in changed()):
            check_distinct(**{name: value})
        for rule in filter(None, (*metadata.get("rules", ()), inherited.get(name))):
            if name in changed() if rule.when is _CHANGED else _holds(value, rule.when):
                _check_rule(rule, name, values)


def _check_rule(rule: Rule, name: str, values: Mapping[str, object]) -> None:
    # A command line is checked a first time before the classes whose import takes seconds are filled.
    if not rule.others.keys() <= values.keys():
        return
    setting, reason = f"{name}={show(values[name])}", f" ({rule.why})" if rule.why else ""
    unmet = [other for other, expected in rule.others.items() if not _holds(values[other], expected)]
    if rule.needed and unmet:
        requirements = " and ".join(_describe(other, rule.others[other]) for other in unmet)
        fault = f" needs {requirements}{reason}: set it, or leave {name} out"
    elif rule.needed or unmet:
        return
    elif rule.others:
        conflicts = " and ".join(f"{other}={show(values[other])}" for other in rule.others)
        fault = f" does not go with {conflicts}{reason}: change one of them"
    else:
        fault = f": {rule.why}"
    raise SettingError(setting + fault, name)


def _holds(value: object, expected: object) -> bool:
    if expected is GIVEN:
        return bool(value)
    if isinstance(expected, tuple):
        return any(_holds(value, choice) for choice in expected)
    return expected in value if isinstance(value, list | tuple) else getattr(value, "value", value) == expected


def _describe(name: str, expected: object) -> str:
    if expected is GIVEN:
        return name
    choices = expected if isinstance(expected, tuple) else (expected,)
    *others, last = (show(choice) for choice in choices if choice is not None)
    return f"{name}={', '.join(others)} or {last}" if others else f"{name}={last}"


def show(value: object) -> str:
    """Return a value as it is written in a configuration file or a command line, at most 200 characters of it."""
    value = getattr(value, "value", value)
    if isinstance(value, list | tuple):
        return " ".join(map(show, value)) or "none"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."


@cache
def _literals(cls: type) -> dict[str, tuple[object, ...]]:
    """Return the choices of the fields whose type is a Literal or a list of one, also with None."""
    choices = {}
    for name, hint in get_type_hints(cls).items():
        members = get_args(hint)
        for inner_hint in (hint, *members, *chain.from_iterable(map(get_args, members))):
            if get_origin(inner_hint) is Literal:
                choices[name] = get_args(inner_hint)
    return choices


def _changed(objects: Iterable[DataclassInstance]) -> set[str]:
    names: set[str] = set()
    for instance in objects:
        if hasattr(instance, "changed"):
            names.update(instance.changed())
        else:
            fields = dataclasses.fields(instance)
            names.update(field.name for field in fields if getattr(instance, field.name, None) != default_of(field))
    return names


def default_of(field: dataclasses.Field) -> Any:
    """Return the default of a field, `dataclasses.MISSING` without one."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def check_choice(choices: Collection[object], **values: object) -> None:
    """Raise a SettingError if a value is not one of the choices.

    Example:
        >>> check_choice(("first", "last"), pooling="lst")
        Traceback (most recent call last):
        hf_xalign.checks.SettingError: pooling=lst: choose one of first, last; did you mean 'last'?
    """
    for name, value in values.items():
        if value not in choices:
            words = list(map(show, choices))
            raise SettingError(
                f"{name}={show(value)}: choose one of {', '.join(words)}{suggestion(str(value), words)}", name
            )


def check_range(
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    **values: object,
) -> None:
    """Raise a SettingError if a number is out of bounds, NaN or infinite; None passes.

    Example:
        >>> check_range(above=0, most=1, share=0)
        Traceback (most recent call last):
        hf_xalign.checks.SettingError: share=0: must be above 0 and at most 1
    """
    for name, value in values.items():
        for number in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(number, int | float):
                continue
            inside = (least is None or number >= least) and (above is None or number > above)
            inside &= (most is None or number <= most) and (below is None or number < below)
            if not inside or not isfinite(number):
                bounds = {"at least": least, "above": above, "at most": most, "below": below}
                limits = [f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None]
                limits += ["finite"] if isinstance(number, float) and number == float("inf") else []
                raise SettingError(f"{name}={show(value)}: must be {' and '.join(limits)}", name)


def check_distinct(**lists: Sequence[object]) -> None:
    """Raise a SettingError if a list is empty or has an item twice."""
    for name, items in lists.items():
        if not len(items) or len(set(items)) < len(items):
            raise SettingError(f"{name}={show(list(items))}: name at least one, and each once", name)


def check_lengths(each: str, **columns: Sized | None) -> None:
    """Raise an InputError if columns have different lengths; `each` names the unit of an entry in the message."""
    sizes = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise InputError(f"{counts}: one for each {each} is needed")


def require(module: str, what: str, extra: str = "") -> ModuleType:
    """Import an optional package, or raise an InputError that tells how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = f'"hf_xalign[{extra}]"' if extra else module
        name = module.partition(".")[0]
        raise InputError(f"{what} needs {name}: run pip install {package}") from error
