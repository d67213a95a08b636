"""The entry of `hf-xalign`: finds the command, reads its options, and says what went wrong in one line.

Each command is a module with `DESCRIPTION`, `add_arguments(parser)` and `run(args)`, which may return an exit status.
Only the module of the command that is called is imported, and none of them imports torch or transformers before
`run`, so that help and mistyped options answer at once.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from hf_xalign._version import __version__
from hf_xalign.errors import InputError, NonFiniteLossError

# Name -> module, and what `hf-xalign --help` says of it.
COMMANDS = {
    "align-words": ("align_words", "link the words of sentence pairs that translate each other"),
    "train": ("train", "train by a method: fao, mao, ppa, mapping, align_mlm, align_mlm_grid, finetune, continual"),
    "evaluate": ("evaluate", "score word and sentence retrieval of a model, also against another"),
    "compare": ("compare", "compare fine-tuned systems over languages and seeds"),
    "distances": ("distances", "measure how far linked and random words are apart, at each stage of an encoder"),
    "inspect": ("inspect", "show how similar the words of two sentences are to a model, before and after"),
    "report": ("report", "write an HTML report of a run"),
    "card": ("card", "write the model card of a run anew"),
    "push": ("push", "push a run's folder to the Hub"),
    "demo": ("demo", "align German and Bengali with English by the embedded encoder and text"),
}
# What the words after these are is told by a recipe, not here.
_PASSING = ("train", "compare", "distances", "demo")
# Read by the recipes too, which run in processes of their own.
DEBUG_VARIABLE = "HF_XALIGN_DEBUG"


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Text as it stands, and defaults where there is one that says something."""

    def _get_help_string(self, action: argparse.Action) -> str:
        silent = action.default in (None, argparse.SUPPRESS) or isinstance(action.default, (bool, list))
        return str(action.help) if silent else f"{action.help} (default: %(default)s)"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return "N" if action.type is int else "TEXT"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage before it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print.

        Raises:
            InputError: always.
        """
        raise InputError(f"{message.removeprefix('argument ')} ({self.prog} --help lists what there is)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `hf-xalign`; the exit status.

    Bad input gives one line and 2, any other failure one line and 1, Ctrl-C 130. With `--debug` errors come with their
    traceback.

    Args:
        argv: the words after `hf-xalign`; the command line's when omitted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = False
    try:
        name, words, debug = _command(words)
        module = importlib.import_module(f"hf_xalign.cli.{COMMANDS[name][0]}")
        parser = Parser(prog=f"hf-xalign {name}", description=module.DESCRIPTION)
        module.add_arguments(parser)
        args, words, debug_here = _parse(parser, words, passing=name in _PASSING)
        if debug := debug or debug_here:
            os.environ[DEBUG_VARIABLE] = "1"
        args.passed = words
        _settle_logging()
        return module.run(args) or 0
    except InputError as error:
        return _fail(error, 2, debug)
    except NonFiniteLossError as error:
        return _fail(error, 1, debug)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # Whoever reads the output, `head` say, has seen enough; nothing is left to be flushed at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        message = f"{type(error).__name__}: {reason}; hf-xalign --debug shows where"
        return _fail(error, 1, debug, message)


def _command(words: list[str]) -> tuple[str, list[str], bool]:
    """The command, the words after it, and whether `--debug` stood before it."""
    listing = "\n".join(f"  {name:<13}{text}" for name, (_, text) in COMMANDS.items())
    parser = Parser(
        prog="hf-xalign",
        usage="hf-xalign [--debug] COMMAND ...",
        description=f"Line up the languages of a multilingual encoder.\n\ncommands:\n{listing}",
        epilog="hf-xalign COMMAND --help says more of each.",
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
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
        raise InputError(f"no command {name!r}; {meant}")
    return name, words[at + 1 :], args.debug


def _parse(
    parser: argparse.ArgumentParser, words: list[str], *, passing: bool
) -> tuple[argparse.Namespace, list[str], bool]:
    """The command's options, the words that are a recipe's, and whether `--debug` is among the options."""
    if passing:  # `--debug` is also a setting of a recipe's, so here it is taken before the command only
        at = words.index("--") if "--" in words else len(words)
        args, unknown = parser.parse_known_args(words[:at])
        return args, unknown + words[at + 1 :], False
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    args = parser.parse_args(words)
    return args, [], args.debug


def _fail(error: Exception, status: int, debug: bool, message: str | None = None) -> int:
    """Print what went wrong; with `debug` the traceback too."""
    if debug:
        logging.getLogger(__name__).error("", exc_info=error)
    sys.stderr.write(f"error: {' '.join((message or str(error)).split())}\n")
    return status


def _settle_logging() -> None:
    """The library's own news on standard error, and of transformers no more than errors at every load."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("hf_xalign").setLevel(logging.INFO)
    for name in ("transformers.modeling_utils", "transformers.distributed.tensor_parallel"):
        logging.getLogger(name).setLevel(logging.ERROR)
