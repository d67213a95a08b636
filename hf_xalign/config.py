"""Parse a YAML file and the command line into dataclasses.

A recipe runs as `hf-xalign train fao --config file.yaml --field value`. The YAML file overrides the defaults of the
dataclasses, and the command line overrides the YAML file. `base: other.yaml` names a file whose fields it takes and
overrides: one next to the file, or one of the package. Unknown names and values of the wrong type are one-line errors.

A field sets its heading in `--help` by `metadata={"help": ..., "group": "Objective"}`.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import difflib
import importlib.util
import inspect
import json
import re
import sys
from argparse import SUPPRESS, Action, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml
from transformers import HfArgumentParser

from hf_xalign import checks
from hf_xalign.cache import check_regular
from hf_xalign.errors import InputError, suggestion
from hf_xalign.record import is_secret_name, mask_secrets, to_plain

_UNSET = object()
# YAML 1.1 reads `1e-5` as text, because its floats need a dot.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_NO_TOKENS = "is refused, because settings are pickled and pushed with the model: set HF_TOKEN in the environment"
# Values that `TrainingArguments.__post_init__` gives to its defaults (transformers 5.23). Building an instance to
# compare with would reset accelerate's state in the middle of a run.
_RESOLVED_DEFAULTS: dict[str, Any] = {
    "output_dir": "trainer_output",
    "activation_checkpointing": False,
    "gradient_checkpointing": False,
    "disable_tqdm": False,
    "report_to": [],
    "debug": [],
}


def parse(
    dataclass_types: Sequence[type[Any] | str],
    argv: Sequence[str] | None = None,
    *,
    description: str | None = None,
    prog: str | None = None,
) -> tuple[Any, ...]:
    """Fill dataclasses from `--config file.yaml` and the command line; `--help` prints the help and exits.

    The classes have no field name in common; one instance of each is returned, in order. A class that takes
    seconds to import is given by name, `module:Class`, and [`check`] looks for mistakes before. `argv` are the
    arguments without the program's name, `sys.argv[1:]` by default. The line breaks of `description` stay.

    Example:
        >>> @dataclasses.dataclass
        ... class Options:
        ...     rate: float = 0.5
        ...     layers: list[int] | None = None
        >>> parse([Options], ["--rate", "1e-5", "--layers", "-1", "8"])
        (Options(rate=1e-05, layers=[-1, 8]),)
        >>> parse([Options], ["--rte", "1"])
        Traceback (most recent call last):
        hf_xalign.errors.InputError: unknown option --rte; did you mean '--rate'?
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if any(isinstance(cls, str) for cls in dataclass_types):
        check(dataclass_types, words)
    types = [_imported(cls) if isinstance(cls, str) else cls for cls in dataclass_types]
    return _fill(types, words, _Parser(types, description=description, prog=prog))


def check(dataclass_types: Sequence[type[Any] | str], argv: Sequence[str]) -> None:
    """Check all names, and all of the classes that are imported: what can be known of a command line in a second.

    Raises:
        InputError: an unknown option or key; a value of the wrong type, or that an imported class refuses; a
            file that its `check_files` does not find.
    """
    if {"-h", "--help"} & set(argv):
        return
    types = [cls for cls in dataclass_types if not isinstance(cls, str)]
    later = [name for cls in dataclass_types if isinstance(cls, str) for name in _names(cls)]
    for arguments in _fill(types, argv, _Parser(types), later):
        if hasattr(arguments, "check_files"):
            arguments.check_files()


def _fill(types: Sequence[type[Any]], words: Sequence[str], parser: _Parser, later: Sequence[str] = ()) -> tuple:
    """Return an instance of each class; options and keys of the names in `later` are left for later."""
    hints = {name: hint for cls in types for name, hint in _hints(cls).items()}
    known = [name for name in hints if not is_secret(name, hints[name])]
    known += [name for name in later if not is_secret_name(name)]
    if hidden := next((word for word in words if mask_secrets(word) != word), None):
        raise InputError(f"{mask_secrets(hidden)}: an argument {_NO_TOKENS}")
    options, extra = parser.parse_options(words)
    if later:  # the rest are values
        names = {word: word.lstrip("-").partition("=")[0].replace("-", "_") for word in extra if word.startswith("--")}
        extra = [word for word, name in names.items() if not {name, name.removeprefix("no_")} & set(later)]
    if extra:
        raise InputError(_unknown_option(extra[0], known))
    config_file = options.pop("config", None)
    read = _read_config(packaged_file(config_file, "configs", "--config")) if config_file else {}
    given: dict[str, Any] = {}
    for key, (value, place) in read.items():
        if key not in known and is_secret_name(key):
            raise InputError(f"{place}: {key} {_NO_TOKENS}")
        if key not in known:
            raise InputError(f"{place}: unknown key {key!r}{suggestion(key.replace('-', '_'), known)}")
        if key in hints:
            given[key] = coerce(value, hints[key], f"{place}: {key}")
    for name, value in options.items():
        given[name] = coerce(value, hints[name], f"--{name}")
    places = {name: f"{place}: " for name, (_, place) in read.items() if name not in options}
    try:
        made = tuple(_build(cls, {k: v for k, v in given.items() if k in _hints(cls)}) for cls in types)
        checks.check(*made)
    except checks.SettingError as error:
        raise InputError(places.get(error.setting, "") + str(error)) from error
    return made


def _imported(name: str) -> type[Any]:
    module, _, cls = name.partition(":")
    return getattr(importlib.import_module(module), cls)


def _names(name: str) -> list[str]:
    """Return the fields of a dataclass, `module:Class`, read from its source and that of its bases."""
    module, _, cls = name.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    homes = {one.name: str(part.module) for part in body if isinstance(part, ast.ImportFrom) for one in part.names}
    found = next(part for part in body if isinstance(part, ast.ClassDef) and part.name == cls)
    fields = [part for part in found.body if isinstance(part, ast.AnnAssign)]
    own = [ast.unparse(part.target) for part in fields if not ast.unparse(part.annotation).startswith("ClassVar")]
    bases = (base.id for base in found.bases if isinstance(base, ast.Name))
    return [*own, *(field for base in bases for field in _names(f"{homes.get(base, module)}:{base}"))]


def non_default_fields(config: Any) -> dict[str, Any]:
    """Return the fields that differ from their default, as plain JSON without credentials.

    Fields without a default are always included. Defaults that `TrainingArguments` itself replaces (`report_to`,
    `debug`, ...) are not.
    """
    training = any(_inherited(owner) for owner in type(config).__mro__)
    found = {}
    for field in dataclasses.fields(config):
        if not field.init or is_secret_name(field.name) or field.name == "local_rank":  # of the process
            continue
        value, default = getattr(config, field.name), _default(field)
        if training and default in (None, "", "none") and value != default:
            default = _RESOLVED_DEFAULTS.get(field.name, default)
            if field.name == "accelerator_config":
                default = type(value)()
        if default is _UNSET or to_plain(value) != to_plain(default):
            found[field.name] = to_plain(value, field.name)
    return found


def is_secret(name: str, hint: Any) -> bool:
    """Return whether a field holds a credential: its name says so, and its type allows text."""
    return is_secret_name(name) and (hint is str or str in get_args(hint))


def coerce(value: Any, hint: Any, where: str) -> Any:
    """Convert a YAML value to a type hint, or raise an `InputError` that begins with `where`.

    Floats accept an int, and lists accept a single item.
    """
    try:
        return _convert(value, hint)
    except _MismatchError:
        shown = json.dumps(value, ensure_ascii=False, default=str)
        message, choices = f"{where}: expected {_describe(hint)}, got {shown}", _choices(hint)
        if isinstance(value, str):
            message += suggestion(value, choices)
        elif value is not None and not isinstance(value, dict) and (choices or str in _members(hint)):
            message += " (quote text that YAML reads as another type: yes, no, on, off, numbers, dates)"
        raise InputError(message) from None


class _MismatchError(Exception): ...


def _convert(value: Any, hint: Any) -> Any:
    """Convert `value` to `hint` or raise `_MismatchError`."""
    kind, members = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        # `SchedulerType | str` means the enum: keep the text, but check it against the enum.
        enums = [m for m in members if _is_enum(m)]
        if enums and isinstance(value, str):
            return _convert(value, enums[0]).value
        for member in sorted(members, key=lambda m: m is not type(value)):
            with contextlib.suppress(_MismatchError):
                return _convert(value, member)
    elif kind is Literal:
        for choice in members:
            if choice == value and type(choice) is type(value):
                return choice
    elif kind is list and value is not None and not isinstance(value, dict):
        items = value if isinstance(value, list) else [value]
        return [_convert(item, members[0] if members else Any) for item in items]
    elif kind is dict and isinstance(value, dict):
        keys, values = members or (Any, Any)
        return {_convert(k, keys): _convert(v, values) for k, v in value.items()}
    elif kind in (int, float) and not isinstance(value, bool):
        number = float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value
        if isinstance(number, (int, float)) and (kind is float or number == number // 1):
            return kind(number)
    elif _is_enum(kind):
        if value in [member.value for member in kind]:
            return kind(value)
    elif kind is Any or (kind is NoneType and value is None):
        return value
    elif kind is Path and isinstance(value, str):
        return Path(value)
    elif kind not in (int, float, list, dict) and isinstance(kind, type) and isinstance(value, kind):
        return value
    raise _MismatchError


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, and the item types of its lists."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return (*alternatives, *(m for a in alternatives if get_origin(a) is list for m in get_args(a)))


def _choices(hint: Any) -> list[str]:
    """Return the words that the Literals and Enums of a hint allow."""
    members = _members(hint)
    literals = [str(choice) for m in members if get_origin(m) is Literal for choice in get_args(m)]
    return literals + [str(choice.value) for m in members if _is_enum(m) for choice in m]


def _describe(hint: Any) -> str:
    """Describe a type hint in words."""
    if _choices(hint):
        return "one of " + ", ".join(_choices(hint))
    kind, members = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(map(_describe, members))
    if kind is list and members:
        return f"a list [{_describe(members[0])}, ...]"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
    return (words | {dict: "a mapping", list: "a list"}).get(kind, getattr(kind, "__name__", str(kind)))


def packaged_file(name: str, kind: str, option: str) -> Path:
    """Return the path of a YAML file: the user's, else the one of this name in a folder of the package's recipes.

    Args:
        name: path, or name with or without `.yaml`.
        kind: folder, `configs` or `accelerate`.
        option: option or line that names the file, for the error.

    Raises:
        InputError: there is no such file in either place.
    """
    if (path := Path(name)).exists():
        return path
    recipes = importlib.util.find_spec("hf_xalign.recipes")
    folder = Path(str(recipes.origin)).parent / kind if recipes else Path(kind)
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if (wanted := name.removesuffix(".yaml")) in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"the package has {', '.join(known)}"
    raise InputError(f"{option} {name}: no such file here or in the package; {hint}")


def _read_config(path: Path, above: tuple[Path, ...] = ()) -> dict[str, tuple[Any, str]]:
    """Return the fields of a YAML file and, below them, of its `base`."""
    found = _read_yaml(path)
    if "base" not in found:
        return found
    name, place = found.pop("base")
    base = path.parent / coerce(name, str, f"{place}: base")
    if not base.exists():
        base = packaged_file(name, "configs", f"{place}: base")
    if base.resolve() in (above := (*above, path.resolve())):
        raise InputError(f"{place}: base: {base} has this file as its own base")
    return _read_config(base, above) | found


def _read_yaml(path: Path) -> dict[str, tuple[Any, str]]:
    """Return {key: (value, "file:line")} of the top level of a YAML file."""
    check_regular(path)
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        if root is None:
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise InputError(f"{path}:{root.start_mark.line + 1}: expected lines of the form 'field: value'")
        found: dict[str, tuple[Any, str]] = {}
        for key_node, value_node in root.value:
            key, where = str(key_node.value), f"{path}:{key_node.start_mark.line + 1}"
            if key in found:
                raise InputError(f"{where}: {key} is given twice, first at {found[key][1]}")
            found[key] = (loader.construct_object(value_node, deep=True), where)
        return found
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise InputError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # a control character, an impossible date, a number of 5,000 digits
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not valid YAML: {str(error).splitlines()[0]}") from error
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror or error}") from error


def _build(cls: type[Any], given: Mapping[str, Any]) -> Any:
    for field in dataclasses.fields(cls):
        if field.init and field.name not in given and _default(field) is _UNSET:
            raise InputError(f"--{field.name} is missing: pass it, or set '{field.name}:' in the --config file")
    try:
        return cls(**given)
    except ValueError as error:  # from __post_init__
        if isinstance(error, InputError):
            raise
        raise InputError(f"{cls.__name__}: {' '.join(str(error).split())}") from error


def _unknown_option(option: str, known: Sequence[str]) -> str:
    name = option.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {option!r}: write --field before each value"
    if is_secret_name(name):
        return f"{name} {_NO_TOKENS}"
    close = suggestion("--" + name.lstrip("-").replace("-", "_"), [f"--{field}" for field in (*known, "config")])
    return f"unknown option {name}{close or ' (--help lists all)'}"


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Return {field: type hint} of the constructor's fields; `choices` in the metadata become a Literal."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if choices := field.metadata.get("choices"):
            none = (None,) if NoneType in get_args(hints[field.name]) else ()
            hints[field.name] = Union[(Literal[tuple(choices)], *none)]
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _UNSET if field.default is dataclasses.MISSING else field.default


def _owner(cls: type[Any], name: str) -> type[Any]:
    """Return the first class of the MRO that defines or overrides the field."""
    return next(owner for owner in cls.__mro__ if name in inspect.get_annotations(owner))


def _inherited(owner: type[Any]) -> bool:
    return owner.__module__.partition(".")[0] == "transformers"


class _Parser(HfArgumentParser):
    """Parser with one option per field: own fields first, by heading, then those inherited from transformers."""

    def __init__(self, types: Sequence[type[Any]], **kwargs: Any) -> None:
        usage = "%(prog)s [--config FILE] [--field value ...]"
        super().__init__((), usage=usage, formatter_class=_HelpFormatter, allow_abbrev=False, **kwargs)
        text = "YAML file of 'field: value' lines, or name of one in the package; options override it"
        self.add_argument("--config", metavar="FILE", help=text)
        ours, inherited = [], []
        for cls in types:
            fields, hints = {f.name: f for f in dataclasses.fields(cls)}, _hints(cls)
            # Subclasses first, each in its own order.
            for name in dict.fromkeys(name for owner in cls.__mro__ for name in inspect.get_annotations(owner)):
                if name not in hints or is_secret(name, hints[name]):
                    continue
                owner = _owner(cls, name)
                if _inherited(owner):
                    inherited.append((f"Inherited from transformers.{owner.__name__}", cls, fields[name]))
                else:
                    ours.append((fields[name].metadata.get("group", cls.__name__), cls, fields[name]))
        groups: dict[str, Any] = {}
        for heading, cls, field in ours + inherited:
            if heading not in groups:
                groups[heading] = self.add_argument_group(heading)
            self._add_field(groups[heading], cls, field)
        for action in self._actions:
            action.required = False  # the YAML file may set it; `_build` checks
            # `--a-b` (for `--a_b`) and `--no_x` (for `--x false`) work, but `--help` does not list them.
            action.option_strings = [o for o in action.option_strings if "-" not in o.lstrip("-")]
            if action.option_strings[0].startswith("--no_"):
                action.help = SUPPRESS

    def _add_field(self, group: Any, cls: type[Any], field: dataclasses.Field[Any]) -> None:
        # A field that only overrides a default keeps the inherited help text.
        bases = (vars(base).get("__dataclass_fields__", {}).get(field.name) for base in cls.__mro__)
        text = next((b.metadata["help"] for b in bases if b is not None and "help" in b.metadata), "")
        if not _inherited(_owner(cls, field.name)):
            text = text.replace("%", "%%")
        if _default(field) is _UNSET:
            text = f"{text} (required)".strip()
        hint = _hints(cls)[field.name]
        field = copy.copy(field)  # transformers changes the type of the field it gets
        metadata = {k: v for k, v in field.metadata.items() if k in ("aliases", "choices")}
        field.metadata = {**metadata, "help": text}  # type: ignore[assignment]
        if _typed_by_argparse(hint):
            field.type = hint
            self._parse_dataclass_field(group, field)
        else:
            default = None if _default(field) is _UNSET else _default(field)
            group.add_argument(f"--{field.name}", type=_yaml_text, metavar="YAML", default=default, help=text)

    def parse_options(self, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the given options, and the words that no option takes."""
        unset = Namespace(**{action.dest: _UNSET for action in self._actions if action.dest != "help"})
        namespace, extra = self.parse_known_args(argv, unset)
        return {name: value for name, value in vars(namespace).items() if value is not _UNSET}, extra

    def error(self, message: str) -> NoReturn:
        """Raise an `InputError` instead of printing the usage, which has hundreds of lines."""
        raise InputError(message.removeprefix("argument "))


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Shows defaults, and types instead of option names in capitals."""

    def _get_help_string(self, action: Action) -> str:
        shown = action.default not in (None, "", []) and action.dest != "help"
        return f"{action.help or ''} (default: %(default)s)" if shown else action.help or ""

    def _get_default_metavar_for_optional(self, action: Action) -> str:
        name = getattr(action.type, "__name__", "text")
        return {"int": "N", "float": "X", "str": "TEXT", "string_to_bool": "true|false"}.get(name, name.upper())


def _typed_by_argparse(hint: Any) -> bool:
    """Return whether transformers' parser knows the type; other types are read as YAML and checked by `coerce`."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = [m for m in alternatives if m is not NoneType]
    if str in members:
        return bool not in members
    kind = get_origin(members[0]) or members[0]
    if kind is list:
        return get_args(members[0]) in ((str,), (int,), (float,))
    return len(members) == 1 and kind not in (dict, Any)


def _yaml_text(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ArgumentTypeError(f"not valid YAML: {text!r}") from error
