"""A base encoder and parallel text in files, the command line of a recipe on them, and what a recipe leaves."""

import contextlib
import io
import json

from support.families import save_base
from support.tiny import SENTENCES


def make_files(folder):
    save_base("bert", folder / "base")
    rows = [{"de": s, "en": t} for s, t, _ in SENTENCES * 3]
    (folder / "train.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    (folder / "test.tsv").write_text("de\ten\n" + "".join(f"{s}\t{t}\n" for s, t, _ in SENTENCES))
    return folder


QUIET = ("--use_cpu", "true", "--disable_tqdm", "true")


def on_files(folder, out="out"):
    """Arguments that name the files of [`make_files`]; `out` is a folder below `folder`, or an absolute path."""
    return [
        "--model_name_or_path", str(folder / "base"),
        "--train_data", f"de={folder / 'train.jsonl'}",
        "--eval_data", f"de={folder / 'test.tsv'}",
        "--output_dir", str(folder / out),
    ]  # fmt: skip


def command(folder, *options, out="out"):
    return [
        *on_files(folder, out), *QUIET, "--learning_rate", "1e-2", "--per_device_train_batch_size", "8", *options
    ]  # fmt: skip


# A derived language, and an encoder with a vocabulary that can be transliterated.
DERIVE = (
    *("--derive", "inversion", "transliteration", "--model_name_or_path", "new", "--vocabulary", "train"),
    *("--vocab_size", "80", "--hidden_size", "16", "--attention_heads", "2", "--layers", "2"),
)


def pretraining_command(folder, *options, out="out", corpus=("en=en.txt",)):
    return [
        "--model_name_or_path", str(folder / "base"),
        "--corpus", *_placed(folder, corpus),
        "--block_size", "32", "--output_dir", str(folder / out),
        *QUIET, "--report_to", "none", "--save_strategy", "no",
        "--num_train_epochs", "3", "--learning_rate", "2e-3", "--per_device_train_batch_size", "8",
        *options,
    ]  # fmt: skip


def task_command(folder, *options, out="out", train=("en=en.jsonl",), evaluation=("de=de.jsonl", "hi=hi.conll")):
    return [
        "--model_name_or_path", str(folder / "base"),
        "--train_data", *_placed(folder, train),
        "--eval_data", *_placed(folder, evaluation),
        "--output_dir", str(folder / out),
        *QUIET, "--report_to", "none", "--num_train_epochs", "1", "--learning_rate", "1e-2", *options,
    ]  # fmt: skip


def _placed(folder, items):
    named = (item.partition("=") for item in items)
    return [f"{language}={folder / name}" for language, _, name in named]


def output_of(main, words) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(words)
    return out.getvalue()
