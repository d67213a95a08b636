"""Entry point of `hf-xalign`.

Each command has a module with `DESCRIPTION`, the dataclass `Arguments` of its options, and `run(args)`, which may
return an exit status. A command that passes words on to a recipe has `main(name, words)` instead, and some commands
are recipes themselves. `main` imports only the module of the command, and no module imports torch or transformers
before it runs, so that help and mistyped options answer at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence

from hf_xalign._version import __version__
from hf_xalign.errors import InputError, NonFiniteLossError, suggestion

COMMANDS = {  # {name: line of `hf-xalign --help`}
    "prepare": "clean noisy sentence pairs",
    "align-words": "align the words of sentence pairs",
    "extend-vocabulary": "add pieces for words that an encoder's tokenizer cannot write, or splits badly",
    "train": "train by a method: fao, mao, ppa, mapping, align_mlm, finetune, continual",
    "evaluate": "score word and sentence retrieval of a model, and compare it with its base",
    "compare": "compare fine-tuned systems over languages and seeds",
    "distances": "measure distances of linked and random words, at each stage of an encoder",
    "reproduce": "run the tables and figures of the papers, published values next to ours",
    "explore": "open a page to look at a run: similarities of words, nearest words, search for sentences",
    "report": "write an HTML report of a run",
    "card": "rewrite the model card of a run",
    "export": "write an encoder for sentence-transformers or ONNX Runtime",
    "push": "push a run's folder to the Hub",
    "demo": "align German and Bengali with English, using the built-in encoder and text",
}
_HELP = """usage: hf-xalign [--debug] COMMAND ...

Align the languages of a multilingual encoder.

commands:
{commands}

options:
  -h, --help  show this help message and exit
  --version   show program's version number and exit
  --debug     show the traceback of an error

Run hf-xalign COMMAND --help for the options of a command."""
# Commands that are recipes, which parse their own command line.
_RECIPES = ("compare", "distances", "reproduce")
_PASSING = ("train", "demo")  # commands that pass unknown words on to a recipe
DEBUG_VARIABLE = "HF_XALIGN_DEBUG"  # read by recipes in their own processes


def main(argv: Sequence[str] | None = None) -> int:
    """Run `hf-xalign` and return its exit status.

    Every error is one line: status 2 for bad input, 130 for Ctrl-C, 1 for other errors. `--debug` adds the traceback.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = False
    try:
        name, words, debug = _command(words)
        # Recipes have a setting `--debug`, so for them the flag counts only before the command.
        if debug := debug or (name not in _RECIPES + _PASSING and "--debug" in words):
            os.environ[DEBUG_VARIABLE] = "1"
        room = "recipes" if name in _RECIPES else "cli"
        file = "train" if name in _PASSING else name.replace("-", "_")
        module = importlib.import_module(f"hf_xalign.{room}.{file}")
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
        logging.getLogger("hf_xalign").setLevel(logging.INFO)
        if name in _RECIPES:
            return module.main([word for word in words if word != "--"]) or 0
        if name in _PASSING:
            return module.main(name, words)
        from hf_xalign.cache import disk_errors
        from hf_xalign.config import parse_command

        words = [word for word in words if word != "--debug"]
        args = parse_command(module.Arguments, words, prog=f"hf-xalign {name}", description=module.DESCRIPTION)
        with disk_errors(getattr(args, "output", None) or getattr(args, "folder", None)):
            return module.run(args) or 0
    except (InputError, NonFiniteLossError) as error:
        return _fail(error, 2 if isinstance(error, InputError) else 1, debug)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # A reader such as `head` has closed the pipe, so nothing may be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        message = f"{type(error).__name__}: {reason}. Run with hf-xalign --debug for the traceback"
        return _fail(error, 1, debug, message)


def _command(words: list[str]) -> tuple[str, list[str], bool]:
    """Return the command, the words after it, and whether `--debug` came before it."""
    start = next((start for start, word in enumerate(words) if not word.startswith("-")), len(words))
    if unknown := set(words[:start]) - {"-h", "--help", "--version", "--debug"}:
        raise InputError(f"unrecognized arguments: {' '.join(unknown)} (hf-xalign --help lists all options)")
    if "--version" in words[:start]:
        print(f"hf-xalign {__version__}")
        raise SystemExit(0)
    if start == len(words) or {"-h", "--help"} & set(words[:start]):
        print(_HELP.format(commands="\n".join(f"  {name:<19}{text}" for name, text in COMMANDS.items())))
        raise SystemExit(0)
    name = words[start]
    if name not in COMMANDS:
        raise InputError(
            f"unknown command {name!r}" + (suggestion(name, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}")
        )
    return name, words[start + 1 :], "--debug" in words[:start]


def _fail(error: Exception, status: int, debug: bool, message: str | None = None) -> int:
    if debug:
        logging.getLogger(__name__).error("", exc_info=error)
    sys.stderr.write(f"error: {' '.join((message or str(error)).split())}\n")
    return status
