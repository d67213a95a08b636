"""Exceptions whose messages name the fault and the remedy, and suggestions for mistyped names."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from json import JSONDecodeError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Writers in C++ and Rust (torch, safetensors, tokenizers) give no error number.
_FULL_TEXT = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|\(os error (28|122|27)\)"
    r"|PytorchStreamWriter failed writing|inline_container\.cc.* unexpected pos"
)
_LONGEST = 2_000  # characters of a message


def find_disk_full(error: BaseException | None) -> BaseException | None:
    """Return the error of a full disk, quota or file-size limit among an error and its causes, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return error
        if not isinstance(error, InputError) and _FULL_TEXT.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


class InputError(ValueError):
    """Bad input. The message names the file, row or field and the remedy; recipes print it without a traceback.

    The message is one printable line, even if it quotes a file or an error of a library: line breaks become spaces,
    other characters that do not print are escaped, and the middle of a very long message is left out.
    """

    def __init__(self, message: object = "") -> None:
        text = " ".join(str(message).splitlines())
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)  # which lengthens it
        super().__init__(
            text if len(text) <= _LONGEST else f"{text[: _LONGEST * 3 // 4]} ... {text[-_LONGEST // 4 :]}"
        )


class NonFiniteLossError(RuntimeError):
    """The loss or a weight is NaN or infinite. The message names the last good checkpoint."""


@contextmanager
def content_errors(path: str | os.PathLike, fault: str, remedy: str = "") -> Iterator[None]:
    """Turn the errors of reading a malformed file in the block into an InputError that names the file.

    JSON alone can fail by its encoding, its syntax, a number of 5,000 digits, deep nesting, a missing key or a type.
    """
    try:
        yield
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        match error:
            case JSONDecodeError():
                reason = f"at line {error.lineno}, column {error.colno}"
            case UnicodeDecodeError():
                reason = f"byte {error.start} is not {error.encoding.upper()}"
            case RecursionError():
                reason = "nested too deeply"
            case ValueError():
                reason = str(error)
            case _:
                reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: {fault} ({reason}). {remedy}".strip()) from error


@contextmanager
def explained(what: str, *kinds: type[Exception], advice: str = "") -> Iterator[None]:
    """Turn errors of these `kinds` in the block into an InputError that names what failed, the reason and the advice.

    Without `kinds`, `what` is put before the message of an InputError from the block.
    """
    try:
        yield
    except InputError as error:
        if kinds:
            raise
        raise InputError(f"{what}: {error}") from error
    except kinds as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{what}: {reason}{advice}") from error


# {our names: names in other tools}. The first of our names that a command has is suggested.
_HABITS = {
    "learning_rate": "lr lr_rate learn_rate rate",
    "per_device_train_batch_size batch_size": "batch_size bs batch batchsize train_batch_size",
    "per_device_eval_batch_size batch_size": "eval_batch_size test_batch_size per_gpu_eval_batch_size",
    "num_train_epochs": "epochs epoch n_epochs num_epochs nb_epochs max_epochs train_epochs",
    "max_steps": "steps num_steps total_steps train_steps num_train_steps max_train_steps training_steps",
    "max_length max_tokens block_size": "max_length max_len max_seq_length max_seq_len seq_length sequence_length",
    "max_train_pairs max_pairs": "max_train_samples max_samples num_samples limit n_pairs num_pairs",
    "model_name_or_path model": "model model_name model_path model_id base_model pretrained_model encoder checkpoint",
    "processing_class": "tokenizer",
    "train_data data sources input": "data dataset dataset_name train train_file train_data_file train_dataset "
    "data_path data_file corpus training_data input",
    "eval_data data": "eval eval_file eval_dataset valid_data validation_file dev_file test_file test_data",
    "output_dir output": "output out out_dir outdir output_path output_file save_dir save_path o",
    "fp16": "fp half",
    "bf16": "mixed_precision precision amp use_amp",
    "warmup_steps": "warmup num_warmup_steps warmup_ratio warmup_proportion",
    "device use_cpu": "device gpu gpu_id cuda no_cuda cpu",
    "workers processes dataloader_num_workers": "num_workers workers n_jobs jobs num_proc",
    "gradient_accumulation_steps": "grad_accum grad_acc grad_accum_steps grad_acc_steps accumulation_steps "
    "gradient_accumulation accumulate_grad_batches accum",
    "max_grad_norm": "grad_clip clip clip_grad grad_norm clip_norm gradient_clip_val max_norm",
    "lr_scheduler_type": "scheduler lr_scheduler lr_schedule schedule scheduler_type",
    "optim": "optimizer opt optimizer",
    "weight_decay": "wd decay l2",
    "adam_epsilon": "eps epsilon adam_eps",
    "seed": "random_seed random_state rng",
    "logging_steps": "log_steps log_every log_interval logging_interval log_every_n_steps",
    "eval_strategy": "evaluation_strategy evaluate_during_training do_evaluation",
    "eval_steps": "eval_every eval_interval evaluate_every val_check_interval",
    "save_steps": "save_every save_interval checkpoint_every",
    "save_total_limit": "keep_checkpoints max_checkpoints keep_last",
    "resume_from_checkpoint": "resume resume_from continue_training",
    "overwrite_output_dir": "overwrite force",
    "early_stopping_patience": "patience early_stopping early_stop",
    "report_to": "wandb tracker tracking use_wandb tensorboard",
    "run_name": "experiment exp_name name",
    "hub_model_id": "hub_id repo repo_id repo_name",
    "gradient_checkpointing": "checkpointing grad_checkpointing gradient_checkpoint",
    "preset": "variant method_preset",
}
_MEANT = {name: fields.split() for fields, names in _HABITS.items() for name in names.split()}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for a known name that other tools call `name` or that is close to it, or "".

    Options are given with their dashes.

    Example:
        >>> suggestion("--lr", ["--learning_rate", "--layers"])
        "; did you mean '--learning_rate'?"
    """
    known = list(known)
    bare = name.lstrip("-")
    dashes = name.removesuffix(bare)
    meant = (dashes + field for field in _MEANT.get(bare.lower().replace("-", "_"), ()))
    close = [field for field in meant if field in known] or difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
