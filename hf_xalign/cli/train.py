"""`hf-xalign train METHOD`: `accelerate launch` of the recipe inside the package."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hf_xalign.cli import packaged
from hf_xalign.errors import InputError

DESCRIPTION = """Train by a method, by `accelerate launch` of its recipe, which is inside the package.

    hf-xalign train fao --config fao_embedded.yaml --output_dir runs/mine
    hf-xalign train mao --processes 2 --config my_settings.yaml

Every word that is not listed here goes to the recipe, and so do all words after a `--`. The recipe's --config takes
the name of a configuration inside the package as well as a path."""

# Maps are learnt in one process, and the grid starts processes of its own.
_ONE_PROCESS = ("mapping", "align_mlm_grid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One parser a method: its help is the recipe's own text."""
    methods = parser.add_subparsers(dest="method", metavar="METHOD", required=True, title="methods")
    for name, text in packaged.METHODS.items():
        configs = "".join(f"\n  {config}" for config in packaged.config_names(name))
        own = methods.add_parser(
            name,
            help=text,
            description=packaged.description(name),
            epilog=f"configurations inside the package, for --config:{configs}\n\n"
            f"`hf-xalign train {name} -- --help` lists all settings of the recipe.",
        )
        add_launcher_arguments(own)


def add_launcher_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say how a recipe is started."""
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="processes on this machine, one a GPU; by default those of `accelerate config`, else one for each GPU",
    )
    parser.add_argument(
        "--accelerate_config",
        metavar="FILE",
        help="a file of `accelerate config`, or ddp_2gpu of the package; instead of --processes",
    )


def run(args: argparse.Namespace) -> int:
    """Start the recipe and wait for it; its exit status."""
    return start(args.method, args.passed, args.processes, args.accelerate_config)


def start(method: str, words: Sequence[str], processes: int | None, accelerate_config: str | None) -> int:
    """Start a recipe under accelerate and wait for it.

    Args:
        method: one of `packaged.METHODS`.
        words: the recipe's own command line; a bare name after `--config` is looked up among the packaged ones.
        processes: how many, on this machine; None for accelerate's own configuration, else one for each GPU.
        accelerate_config: a file of `accelerate config`, or the name of a packaged one.

    Returns:
        The recipe's exit status; of several processes that of the first that failed.

    Raises:
        InputError: the numbers or files named cannot be used.
    """
    if processes is not None and processes < 1:
        raise InputError(f"--processes {processes}: at least one is needed")
    if processes is not None and accelerate_config is not None:
        raise InputError("--processes and --accelerate_config both say how many processes run: give one of them")
    alone = method in _ONE_PROCESS
    if alone and (accelerate_config or (processes or 1) > 1):
        raise InputError(f"{method} runs in one process: leave --processes and --accelerate_config out")
    words = find_config(words)
    if "--help" in words or "-h" in words:
        importlib.import_module(f"hf_xalign.recipes.{method}").main(["--help"])
    if accelerate_config is not None:
        options = ["--config_file", packaged.find(accelerate_config, "accelerate", "--accelerate_config")]
    else:
        options = launcher_options(1 if alone else processes)
    return _launch([*options, str(packaged.script(method)), *words])


def find_config(words: Sequence[str]) -> list[str]:
    """The recipe's words, with the path of a packaged configuration in the place of its name."""
    found = list(words)
    for at, word in enumerate(found):
        name, equals, value = word.partition("=")
        if name == "--config" and equals:
            found[at] = f"--config={packaged.find(value, 'configs', '--config')}"
        elif name == "--config" and at + 1 < len(found):
            found[at + 1] = packaged.find(found[at + 1], "configs", "--config")
    return found


def launcher_options(processes: int | None) -> list[str]:
    """Options of `accelerate launch` for so many processes; none where the user's own configuration decides."""
    import torch
    from accelerate.commands.config.config_args import default_config_file

    if processes is None and os.path.isfile(default_config_file):
        return []
    processes = processes or max(1, torch.cuda.device_count())
    options = {
        "--num_processes": str(processes),
        "--num_machines": "1",
        "--mixed_precision": "no",  # the recipe's own fields decide
        "--dynamo_backend": "no",
    }
    # Without `--multi_gpu` accelerate quietly runs one process where there is no GPU.
    several = ["--multi_gpu"] if processes > 1 else []
    return [*several, *(word for option in options.items() for word in option)]


def _launch(words: list[str]) -> int:
    """`accelerate launch`, in this process: as a command of its own it would hide the recipe's exit status."""
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    with _interrupt_left_to_children():
        try:
            launch_command(launch_command_parser().parse_args(words))
        except subprocess.CalledProcessError as error:
            return _status(error.returncode)
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            return _status(failure.exitcode)
        except SignalException as error:
            return 128 + int(error.sigval)
    return 0


def _status(returncode: int) -> int:
    """A shell's exit status; of a process that was killed, and could not say so itself, with a line on it."""
    if returncode >= 0:
        return returncode
    hint = " (out of memory?)" if -returncode == signal.SIGKILL else ""
    sys.stderr.write(f"error: the recipe was stopped by {signal.Signals(-returncode).name}{hint}\n")
    return 128 - returncode


@contextmanager
def _interrupt_left_to_children() -> Iterator[None]:
    """Ctrl-C reaches the recipe too, which says how to go on and exits; here it only has to be outlived."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
