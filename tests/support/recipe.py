"""A base encoder and parallel text in files, and the command line of a recipe on them."""

from __future__ import annotations

import json

from support.families import save_base
from support.tiny import SENTENCES


def make_files(folder):
    """A base encoder, and parallel text of one's own in a JSONL and a TSV file, in `folder`, which is returned."""
    save_base("bert", folder / "base")
    rows = [{"de": s, "en": t} for s, t, _ in SENTENCES * 3]
    (folder / "train.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    (folder / "test.tsv").write_text("de\ten\n" + "".join(f"{s}\t{t}\n" for s, t, _ in SENTENCES))
    return folder


def command(folder, *options, out="out"):
    """Arguments of a recipe on the files of [`make_files`]."""
    return [
        "--model_name_or_path", str(folder / "base"),
        "--train_data", f"de={folder / 'train.jsonl'}",
        "--eval_data", f"de={folder / 'test.tsv'}",
        "--output_dir", str(folder / out),
        "--use_cpu", "true",
        "--learning_rate", "1e-2",
        "--per_device_train_batch_size", "8",
        "--disable_tqdm", "true",
        *options,
    ]  # fmt: skip
