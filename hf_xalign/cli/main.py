"""Entry point of `hf-xalign`.

Each command has a module with `DESCRIPTION`, `add_arguments(parser)` and `run(args)`, which may return an exit status.
`main` imports only the module of the command, and no module imports torch or transformers before `run`: help and
mistyped options answer at once.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import os
import re
import sys
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from hf_xalign._version import __version__
from hf_xalign.errors import InputError, NonFiniteLossError, suggestion

# {name: line of `hf-xalign --help`}
COMMANDS = {
    "prepare": "clean noisy sentence pairs",
    "align-words": "align the words of sentence pairs",
    "extend-vocabulary": "add pieces for words that an encoder's tokenizer cannot write, or splits badly",
    "train": "train by a method: fao, mao, ppa, mapping, align_mlm, finetune, continual",
    "evaluate": "score word and sentence retrieval of a model, and compare it with its base",
    "compare": "compare fine-tuned systems over languages and seeds",
    "distances": "measure distances of linked and random words, at each stage of an encoder",
    "reproduce": "run the tables and figures of the papers, published values next to ours",
    "inspect": "show how similar the words of two sentences are to a model",
    "explore": "open a page to look at a run: links, neighbours of words, search, a map",
    "report": "write an HTML report of a run",
    "card": "rewrite the model card of a run",
    "export": "write an encoder for sentence-transformers or ONNX Runtime",
    "push": "push a run's folder to the Hub",
    "demo": "align German and Bengali with English, using the embedded encoder and text",
}
# Modules of several commands.
_HOME = dict.fromkeys(("compare", "distances", "reproduce"), "recipe")
# Commands that pass unknown words on to a recipe.
_PASSING = ("train", "compare", "distances", "reproduce", "demo")
# The recipes, which run in their own processes, read it too.
DEBUG_VARIABLE = "HF_XALIGN_DEBUG"


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of texts, and shows informative defaults."""

    def _get_help_string(self, action: argparse.Action) -> str:
        silent = action.default in (None, argparse.SUPPRESS) or isinstance(action.default, (bool, list))
        return str(action.help) if silent else f"{action.help} (default: %(default)s)"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return "N" if action.type is int else "TEXT"


class Parser(argparse.ArgumentParser):
    """Parser with one-line errors, without the usage."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise an `InputError` instead of printing."""
        raise InputError(f"{message.removeprefix('argument ')} ({self.prog} --help lists all options)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `hf-xalign` and return its exit status.

    Every error is one line: status 2 for bad input, 130 for Ctrl-C, 1 for other errors. `--debug` adds the traceback.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug, parser = False, None
    try:
        name, words, debug = _command(words)
        module = importlib.import_module(f"hf_xalign.cli.{_HOME.get(name, name.replace('-', '_'))}")
        parser = Parser(prog=f"hf-xalign {name}", description=getattr(module, "DESCRIPTION", None))
        module.add_arguments(parser)
        args, words, debug_here = _parse(parser, words, passing=name in _PASSING)
        if debug := debug or debug_here:
            os.environ[DEBUG_VARIABLE] = "1"
        args.passed = words
        _configure_logging()
        return module.run(args) or 0
    except (InputError, NonFiniteLossError) as error:
        message = _typed(str(error), _options(parser) if parser else ())
        return _fail(error, 2 if isinstance(error, InputError) else 1, debug, message)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader (`head`, say) has closed the pipe: nothing may be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        message = f"{type(error).__name__}: {reason}. Run with hf-xalign --debug for the traceback"
        return _fail(error, 1, debug, message)


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a parser, and of those below it."""
    below = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {*parser._option_string_actions}.union(*(_options(one) for found in below for one in found.values()))


def _command(words: list[str]) -> tuple[str, list[str], bool]:
    """Return the command, the words after it, and whether `--debug` came before it."""
    listing = "\n".join(f"  {name:<19}{text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="hf-xalign",
        usage="hf-xalign [--debug] COMMAND ...",
        description=f"Align the languages of a multilingual encoder.\n\ncommands:\n{listing}",
        epilog="Run hf-xalign COMMAND --help for the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"hf-xalign {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    at = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
    args = parser.parse_args(words[:at])
    if at == len(words):
        parser.print_help()
        raise SystemExit(0)
    name = words[at]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the commands are {', '.join(COMMANDS)}"
        raise InputError(f"unknown command {name!r}; {hint}")
    return name, words[at + 1 :], args.debug


def _parse(
    parser: argparse.ArgumentParser, words: list[str], *, passing: bool
) -> tuple[argparse.Namespace, list[str], bool]:
    """Return the command's options, the words for its recipe, and whether `--debug` is among the options."""
    if passing:  # recipes have a setting `--debug`: here the flag counts only before the command
        at = words.index("--") if "--" in words else len(words)
        args, unknown = parser.parse_known_args(words[:at])
        return args, unknown + words[at + 1 :], False
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    args, unknown = parser.parse_known_args(words)
    if unknown:
        name = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in action.option_strings or [f"--{action.dest}"]]
        hint = suggestion(name.replace("-", "_").replace("__", "--", 1), known)
        for action in parser._actions:
            if not action.option_strings and hint.endswith(f"'--{action.dest}'?"):
                hint = f"; write {action.metavar} alone, without an option's name"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return args, [], args.debug


def _typed(message: str, options: Collection[str]) -> str:
    """Spell settings as options of the command: `on_empty='drop'` becomes `--on_empty drop`."""

    def spell(found: re.Match[str]) -> str:
        name, value = found.groups()
        if f"--{name}" not in options or not (value or "_" in name):
            return found[0]
        return f"--{name} {value.strip(chr(39))}" if value else f"--{name}"

    # A name after a file's is a field in it.
    return re.sub(r"(?<![\w/.-])(?<!\.json: )(?<!\.md: )([a-z]+(?:_[a-z]+)*)\b(?:=('[^']*'|[\w.]+))?", spell, message)


def _fail(error: Exception, status: int, debug: bool, message: str | None = None) -> int:
    """Print an error, with its traceback if `debug`, and return the status."""
    if debug:
        logging.getLogger(__name__).error("", exc_info=error)
    sys.stderr.write(f"error: {' '.join((message or str(error)).split())}\n")
    return status


def _configure_logging() -> None:
    """Log the library's progress to standard error."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("hf_xalign").setLevel(logging.INFO)
