"""Parse the command line and a YAML file into the dataclasses of recipes and commands.

A recipe runs as `hf-xalign train fao --config file.yaml --field value`. The YAML file overrides the defaults of the
dataclasses, and the command line overrides the YAML file. A YAML file with `base: other.yaml` overrides the fields of
that file, which is next to it or in the package. Unknown names and values of the wrong type are one-line errors.

The metadata of a field have its text in `--help`: `help`, the heading `group`, a `metavar`. `positional` makes it an
argument without a name and `flag` an option without a value. `bare` is the value of an option given without one.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import itertools
import json
import re
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeGuard, Union, get_args, get_origin, get_type_hints

import yaml

from hf_xalign import checks
from hf_xalign.cache import check_regular
from hf_xalign.errors import InputError, content_errors, explained, suggestion
from hf_xalign.record import is_secret_name, mask_secrets, to_plain

_BOOLEANS = {"yes": True, "true": True, "t": True, "y": True, "1": True} | dict.fromkeys(
    ("no", "false", "f", "n", "0"), False
)
# YAML 1.1 reads `1e-5` as text, because its floats need a dot.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_NO_TOKENS = "is not allowed, because settings are pickled and pushed with the model. Set HF_TOKEN in the environment."


def parse(
    dataclass_types: Sequence[type | str],
    argv: CommandLine | Sequence[str] | None = None,
    **help_texts: str | None,
) -> tuple:
    """Fill dataclasses from `--config file.yaml` and the command line; `--help` prints the help and exits.

    The classes have no field name in common. One instance of each is returned, in order. A class that takes seconds to
    import is given by name, `module:Class`, and imported when the others are filled and checked. `argv` are the
    arguments without the program's name, by default `sys.argv[1:]`, or a line that is open already. `help_texts`
    are argparse's `prog` and `description`, whose line breaks are kept.

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
    line = argv if isinstance(argv, CommandLine) else CommandLine(dataclass_types, argv, **help_texts)
    return line.fill()


class CommandLine:
    """Command line of a recipe: names are checked and the imported classes are filled at once, the others later.

    So a misspelt option and a missing file are reported before the imports that take seconds.

    The arguments are those of [`parse`].
    """

    def __init__(
        self,
        dataclass_types: Sequence[type | str],
        argv: Sequence[str] | None = None,
        **help_texts: str | None,
    ) -> None:
        words = list(sys.argv[1:] if argv is None else argv)
        if {"-h", "--help"} & set(words):
            _Parser(list(map(imported, dataclass_types)), True, **help_texts).print_help()
            raise SystemExit(0)
        if hidden := next((word for word in words if mask_secrets(word) != word), None):
            raise InputError(f"{mask_secrets(hidden)}: an argument {_NO_TOKENS}")
        self._types = dataclass_types
        known: list[type] = []
        names: list[str] = []
        for cls in dataclass_types:
            if isinstance(cls, str):
                names += itertools.filterfalse(is_secret_name, _names(cls))
            else:
                known.append(cls)
                names += [name for name, hint in _hints(cls).items() if not is_secret(name, hint)]
        self._made: dict[type | str, Any] = {}
        # Fields that have their value: the first class takes it, because `label_names` are the names of labels in our
        # arguments, and the keys of labels in a batch in transformers'.
        self._taken: set[str] = set()
        # The options of the other classes, with their values, stay in their order.
        self._options, self._late = _Parser(known, True).parse_options(words)
        for number, word in enumerate(self._late):
            option = word.partition("=")[0]
            if option.removeprefix("--") not in names and (number == 0 or option.startswith("--")):
                raise InputError(_unknown_option(word, names))
        config = self._options.pop("config", None)
        self._entries = _read_config(packaged_file(config, "configs", "--config")) if config else {}
        for key, (_, location) in self._entries.items():
            if key not in names:
                unknown = f"unknown key {key!r}{suggestion(key.replace('-', '_'), names)}"
                fault = f"{key} {_NO_TOKENS}" if is_secret_name(key) else unknown
                raise InputError(f"{location}: {fault}")
        self._make(known)
        if len(known) < len(dataclass_types):
            self.check_files()

    def check_files(self) -> None:
        """Refuse missing files, by the arguments' own methods."""
        for arguments in self._made.values():
            getattr(arguments, "check_files", lambda: None)()

    def fill(self) -> tuple:
        """Import the other classes, and return an instance of each class."""
        late = [cls for cls in self._types if isinstance(cls, str)]
        options, unknown = _Parser(list(map(imported, late)), True).parse_options(self._late)
        if unknown:
            raise InputError(_unknown_option(unknown[0], []))
        self._options |= options
        self._make(late)
        return tuple(self._made[cls] for cls in self._types)

    def _make(self, types: Sequence[type | str]) -> None:
        """Fill classes with the values of the command line, or else of the file; check them with those made before."""
        given: dict[type | str, dict[str, object]] = {cls: {} for cls in types}
        for cls, values in given.items():
            for name, hint in _hints(imported(cls)).items():
                if name in self._taken:
                    continue
                if name in self._options:
                    values[name] = _option_value(name, self._options[name], hint)
                elif name in self._entries:
                    value, location = self._entries[name]
                    values[name] = coerce(value, hint, f"{location}: {name}")
            self._taken |= values.keys()
        try:
            self._made |= {cls: _build(imported(cls), values) for cls, values in given.items()}
            checks.check(*self._made.values())
        except checks.SettingError as error:
            _, location = self._entries.get(error.setting, ("", ""))
            place = f"{location}: " if location and error.setting not in self._options else ""
            raise InputError(place + str(error)) from error


def imported(cls: type | str) -> type:
    """Return a class, imported if it is given by name, `module:Class`."""
    if not isinstance(cls, str):
        return cls
    module, _, name = cls.partition(":")
    return getattr(importlib.import_module(module), name)


def parse_command(cls: type, words: Sequence[str], *, prog: str, description: str) -> Any:
    """Return the options of a command of `hf-xalign`."""
    command, others = parse_known(cls, words, prog=prog, description=description)
    if others:
        hint = suggestion(others[0].partition("=")[0], [f"--{field.name}" for field in dataclasses.fields(cls)])
        raise InputError(f"unrecognized arguments: {' '.join(others)}{hint} ({prog} --help lists all options)")
    return command


def parse_known(cls: type, words: Sequence[str], **help_texts: str) -> tuple[Any, list[str]]:
    """Return the options of a command, and the words that are no options of it, in their order."""
    options, others = _Parser([cls], False, **help_texts).parse_options(words)
    hints = _hints(cls)
    command = cls(**{name: _option_value(name, words, hints[name]) for name, words in options.items()})
    checks.check(command)
    return command, others


def list_options(dataclass_types: Sequence[type]) -> str:
    """Return the part of a recipe's `--help` that lists the options of these classes."""
    text = _Parser(dataclass_types, True, add_help=False).format_help().partition("\n\n")[2]
    return text.removeprefix("options:\n").rstrip()


def _names(name: str) -> list[str]:
    """Return the fields of a dataclass, `module:Class`, read from its source and that of its bases."""
    module, _, cls = name.partition(":")
    package, *inner = module.split(".")
    # To find a module, Python imports its package, which takes seconds if that is transformers.
    spec = importlib.util.find_spec(module if package == "hf_xalign" else package)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin)
    if package != "hf_xalign":
        source = source.parent.joinpath(*inner).with_suffix(".py")
    # Importing a class of settings takes seven seconds, too long for a message about a mistyped option.
    body = ast.parse(source.read_text(encoding="utf-8")).body
    homes = {}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                homes[alias.name] = str(node.module)
    definition = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == cls)
    names = []
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith("ClassVar"):
            names.append(ast.unparse(node.target))
    for base in definition.bases:
        if isinstance(base, ast.Name):
            names += _names(f"{homes.get(base.id, module)}:{base.id}")
    return names


# Values that `TrainingArguments.__post_init__` gives to its defaults (transformers 5.23). Building an instance to
# compare with would reset accelerate's state in the middle of a run.
_RESOLVED_DEFAULTS: dict[str, object] = {
    "output_dir": "trainer_output",
    "activation_checkpointing": False,
    "gradient_checkpointing": False,
    "disable_tqdm": False,
    "report_to": [],
    "debug": [],
}


def non_default_fields(config: Any) -> dict[str, Any]:
    """Return the fields that differ from their default, as plain JSON without credentials.

    Fields without a default are always included. Fields whose default `TrainingArguments` itself replaces
    (`report_to`, `debug`, ...) are not.
    """
    training = any(_inherited(owner) for owner in type(config).__mro__)
    settings = {}
    for field in dataclasses.fields(config):
        if not field.init or is_secret_name(field.name) or field.name == "local_rank":  # of the process
            continue
        value, default = getattr(config, field.name), checks.default_of(field)
        if training and default in (None, "", "none") and value != default:
            default = _RESOLVED_DEFAULTS.get(field.name, default)
            if field.name == "accelerator_config":
                default = type(value)()
        if default is dataclasses.MISSING or to_plain(value) != to_plain(default):
            settings[field.name] = to_plain(value, field.name)
    return settings


def is_secret(name: str, hint: object) -> bool:
    """Return whether a field is for a credential, by its name and a type that allows text."""
    return is_secret_name(name) and (hint is str or str in get_args(hint))


def coerce(value: object, hint: object, where: str) -> Any:
    """Convert a YAML value to a type hint, or raise an `InputError` that begins with `where`.

    Floats accept an int, and lists accept a single item.
    """
    try:
        return _convert(value, hint)
    except _MismatchError:
        as_json = json.dumps(value, ensure_ascii=False, default=str)
        expected = _describe(hint).removesuffix(" or null" if where.startswith("--") else "")
        message, choices = f"{where}: expected {expected}, got {as_json}", _choices(hint)
        wrong = [item for item in value if item not in choices] if isinstance(value, list) and choices else [value]
        if wrong and isinstance(wrong[0], str):
            message += suggestion(wrong[0], choices)
        elif value is not None and not isinstance(value, dict) and (choices or str in _members(hint)):
            message += " (quote text that YAML reads as another type: yes, no, on, off, numbers, dates)"
        raise InputError(message) from None


class _MismatchError(Exception): ...


def _convert(value: object, hint: object) -> Any:
    origin, members = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        # `SchedulerType | str` means the enum: keep the text, but check it against the enum.
        enums = [m for m in members if _is_enum(m)]
        if enums and isinstance(value, str):
            return _convert(value, enums[0]).value
        # The value's own type is first, so that 1 stays whole where a type allows both numbers.
        for member in sorted(members, key=lambda m: m is not type(value)):
            with contextlib.suppress(_MismatchError):
                return _convert(value, member)
    elif origin is Literal:
        for choice in members:
            if choice == value and type(choice) is type(value):
                return choice
    elif origin is list and value is not None and not isinstance(value, dict):
        items = value if isinstance(value, list) else [value]
        return [_convert(item, members[0] if members else Any) for item in items]
    elif origin is dict and isinstance(value, dict):
        keys, values = members or (Any, Any)
        return {_convert(k, keys): _convert(v, values) for k, v in value.items()}
    elif origin in (int, float) and not isinstance(value, bool):
        number = float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value
        if isinstance(number, (int, float)) and (origin is float or number == number // 1):
            return origin(number)
    elif _is_enum(origin):
        if value in [member.value for member in origin]:
            return origin(value)
    elif origin is Path and isinstance(value, str):
        return Path(value)
    elif origin is Any or (origin is not int and isinstance(origin, type) and isinstance(value, origin)):
        return value
    raise _MismatchError


def _is_enum(hint: object) -> TypeGuard[type[Enum]]:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _members(hint: object) -> tuple[object, ...]:
    """Return the alternatives of a union, and the item types of its lists."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = list(alternatives)
    for alternative in alternatives:
        if get_origin(alternative) is list:
            members += _members(*get_args(alternative))
    return tuple(members)


def _choices(hint: object) -> list[str]:
    """Return the words that the Literals and Enums of a hint allow."""
    words: list[str] = []
    for member in _members(hint):
        if get_origin(member) is Literal:
            words += map(str, get_args(member))
        elif _is_enum(member):
            words += [str(choice.value) for choice in member]
    return words


def _describe(hint: object) -> str:
    if _choices(hint):
        return "one of " + ", ".join(_choices(hint))
    origin, members = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_describe, members))
    if origin is list and members:
        return f"a list [{_describe(members[0])}, ...]"
    words: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    words |= {NoneType: "null", dict: "a mapping", list: "a list"}
    return words.get(origin, getattr(origin, "__name__", str(origin)))


def packaged_file(name: str, kind: str, option: str) -> Path:
    """Return the user's YAML file of this path, or the one of this name, with or without `.yaml`, in the package.

    `kind` is the folder of the package's recipes, `configs` or `accelerate`; `option` names the file in an error.
    """
    if (path := Path(name)).exists():
        return path
    recipes = importlib.util.find_spec("hf_xalign.recipes")
    folder = Path(str(recipes.origin)).parent / kind if recipes else Path(kind)
    files_by_name = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if (wanted := name.removesuffix(".yaml")) in files_by_name:
        return files_by_name[wanted]
    close = difflib.get_close_matches(wanted, files_by_name, n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"the package has {', '.join(files_by_name)}"
    raise InputError(f"{option} {name}: no such file here or in the package; {hint}")


def _read_config(path: Path) -> dict[str, tuple[object, str]]:
    """Return the fields of a YAML file and, below them, of its `base`."""
    fields = _read_yaml(path)
    if "base" not in fields:
        return fields
    name, location = fields.pop("base")
    base = path.parent / coerce(name, str, f"{location}: base")
    if not base.exists():
        base = packaged_file(str(name), "configs", f"{location}: base")
    return _read_config(base) | fields


def _read_yaml(path: Path) -> dict[str, tuple[object, str]]:
    """Return {key: (value, "file:line")} of the top level of a YAML file."""
    check_regular(path)
    with explained(f"--config {path}", OSError), content_errors(path, "not valid YAML"):
        text = path.read_text(encoding="utf-8")
        fields: dict[str, tuple[object, str]] = {}
        try:
            # In this block too, because it refuses characters that YAML does not allow.
            loader = yaml.SafeLoader(text)
            root = loader.get_single_node()
            if root is not None and not isinstance(root, yaml.MappingNode):
                raise InputError(f"{path}:{root.start_mark.line + 1}: expected lines of the form 'field: value'")
            for key_node, value_node in root.value if root else ():
                key, location = str(key_node.value), f"{path}:{key_node.start_mark.line + 1}"
                if key in fields:
                    raise InputError(f"{location}: {key} is given twice, first at {fields[key][1]}")
                fields[key] = (loader.construct_object(value_node, deep=True), location)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else "?"
            problem = " ".join(str(getattr(error, "problem", error)).split())
            raise InputError(f"{path}:{line}: not valid YAML: {problem}") from error
        return fields


def _build(cls: type, values: Mapping[str, object]) -> object:
    for field in dataclasses.fields(cls):
        if field.init and field.name not in values and checks.default_of(field) is dataclasses.MISSING:
            raise InputError(f"--{field.name} is missing: pass it, or set '{field.name}:' in the --config file")
    with explained(cls.__name__, ValueError):  # from __post_init__
        return cls(**values)


def _unknown_option(option: str, names: Sequence[str]) -> str:
    name = option.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {option!r}: write --field before each value"
    if is_secret_name(name):
        return f"{name} {_NO_TOKENS}"
    close = suggestion("--" + name.lstrip("-").replace("-", "_"), [f"--{field}" for field in (*names, "config")])
    return f"unknown option {name}{close or ' (--help lists all)'}"


@functools.cache
def _hints(cls: type) -> dict[str, object]:
    """Return {field: type hint} of the constructor's fields; `choices` in the metadata become a Literal."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if choices := field.metadata.get("choices"):
            none = (None,) if NoneType in get_args(hints[field.name]) else ()
            hints[field.name] = Union[(Literal[tuple(choices)], *none)]
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _owner(cls: type, name: str) -> type:
    """Return the first class of the MRO that defines or overrides the field."""
    return next(owner for owner in cls.__mro__ if name in inspect.get_annotations(owner))


def _inherited(owner: type) -> bool:
    return owner.__module__.partition(".")[0] == "transformers"


class _Parser(ArgumentParser):
    """Parser with an option for each field: own fields by heading, then the fields inherited from transformers."""

    def __init__(self, types: Sequence[type], recipe: bool, **kwargs: Any) -> None:
        if recipe:
            kwargs["usage"] = "%(prog)s [--config FILE] [--field value ...]"
        super().__init__(formatter_class=_HelpFormatter, allow_abbrev=False, **kwargs)
        self._recipe = recipe
        if recipe:
            text = "YAML file of 'field: value' lines, or name of one in the package; options override it"
            self.add_argument("--config", metavar="FILE", help=text)
        declared, inherited = [], []
        for cls in types:
            fields, hints = {f.name: f for f in dataclasses.fields(cls)}, _hints(cls)
            # Subclasses first, each in its own order.
            for name in dict.fromkeys(itertools.chain(*map(inspect.get_annotations, cls.__mro__))):
                if name not in hints or is_secret(name, hints[name]):
                    continue
                owner = _owner(cls, name)
                if _inherited(owner):
                    inherited.append((f"Inherited from transformers.{owner.__name__}", cls, fields[name]))
                else:
                    heading = cls.__name__ if recipe else ""
                    declared.append((fields[name].metadata.get("group", heading), cls, fields[name]))
        groups: dict[str, Callable[..., object]] = {"": self.add_argument}
        taken = {field.name for _, _, field in declared}
        for heading, cls, field in declared + [entry for entry in inherited if entry[2].name not in taken]:
            if heading not in groups:
                groups[heading] = self.add_argument_group(heading).add_argument
            self._add_field(groups[heading], cls, field)

    def _add_field(self, add: Callable[..., object], cls: type, field: dataclasses.Field) -> None:
        # A field that only overrides a default keeps the inherited help text.
        bases = (vars(base).get("__dataclass_fields__", {}).get(field.name) for base in cls.__mro__)
        text = next((b.metadata["help"] for b in bases if b is not None and "help" in b.metadata), "")
        # argparse formats a help text by %. Those of transformers are escaped already.
        if not _inherited(_owner(cls, field.name)):
            text = text.replace("%", "%%")
        name, hint, default, metadata = field.name, _hints(cls)[field.name], checks.default_of(field), field.metadata
        options: dict[str, Any] = {"help": text, "default": None if default is dataclasses.MISSING else default}
        if default is dataclasses.MISSING and self._recipe:
            options["help"] = f"{text} (required)".strip()
        options |= _argparse_options(hint)
        options |= {"metavar": metadata["metavar"]} if "metavar" in metadata else {}
        if metadata.get("positional"):
            nargs = "*" if default == [] else options.get("nargs")
            add(name, help=text, nargs=nargs, metavar=metadata.get("metavar", name))
            return
        if metadata.get("flag"):
            options = {"help": text, "default": default, "action": "store_true"}
        elif "bare" in metadata:
            options |= {"nargs": "?", "const": metadata["bare"]}
        elif hint is bool or (hint == bool | None and default is not None):
            options |= {"nargs": "?", "const": True}
        # The YAML file may set what is required; `_build` checks.
        add(f"--{name}", required=default is dataclasses.MISSING and not self._recipe, **options)

    def parse_options(self, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the given options, and the unknown words."""
        # Without this, argparse would fill in the defaults, which the file may override.
        unset = Namespace(**{a.dest: None for a in self._actions if a.dest != "help" and a.option_strings})
        namespace, extra = self.parse_known_args(list(map(_with_underscores, argv)), unset)
        return {name: value for name, value in vars(namespace).items() if value is not None}, extra

    def error(self, message: str) -> NoReturn:
        """Raise an `InputError` instead of printing the usage, which has hundreds of lines."""
        hint = "" if self._recipe else f" ({self.prog} --help lists all options)"
        raise InputError(message.removeprefix("argument ") + hint)


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Formatter that keeps line breaks, and shows defaults, and types instead of option names in capitals."""

    def _get_help_string(self, action: Action) -> str:
        silent = action.default in (None, "", [], SUPPRESS) or action.nargs == 0
        return action.help or "" if silent else f"{action.help or ''} (default: %(default)s)"


def _argparse_options(hint: object) -> dict[str, Any]:
    """Return argparse's number of words for a type, and what `--help` shows for a value; `coerce` reads the words."""
    members = [m for m in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)) if m is not NoneType]
    if len(members) > 1 and (str not in members or bool in members):
        return {"metavar": "YAML"}
    member = next((m for m in members if _is_enum(m)), str if str in members else members[0])
    options: dict[str, Any] = {}
    if get_origin(member) is list:
        [item] = get_args(member)
        if item in (str, int, float) or _choices(member):
            options, member = {"nargs": "+"}, item
        elif item == list[str]:
            return {"nargs": "+", "action": "append", "metavar": "TEXT"}
    metavars = {int: "N", float: "X", str: "TEXT", bool: "true|false", Path: "PATH"}
    choices = _choices(member)
    return options | {"metavar": "{" + ",".join(choices) + "}" if choices else metavars.get(member, "YAML")}


def _option_value(name: str, words: object, hint: object) -> object:
    return coerce(_from_words(words, hint, f"--{name}"), hint, f"--{name}")


def _from_words(words: object, hint: object, where: str) -> object:
    """Return the value that words of the command line stand for: text where the type allows it, else as in YAML."""
    if isinstance(words, list):
        return [_from_words(word, hint, where) for word in words]
    members = _members(hint)
    if not isinstance(words, str) or (str in members and bool not in members) or Path in members or _choices(hint):
        return words
    # YAML would read 010 as 8, and 1e-5 as text.
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if kind in members:
                return kind(words)
    if bool in members and words.lower() in _BOOLEANS:
        return _BOOLEANS[words.lower()]
    try:
        return yaml.safe_load(words)
    except yaml.YAMLError as error:
        raise InputError(f"{where}: not valid YAML: {words!r}") from error


def _with_underscores(word: str) -> str:
    """Return `--a_b=c` for `--a-b=c`, which works though `--help` does not list it."""
    name, equals, value = word.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if word.startswith("--") else word
