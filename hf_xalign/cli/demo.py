"""`hf-xalign demo`: FAO on the embedded encoder and text."""

from __future__ import annotations

import argparse

from hf_xalign.cli import train

CONFIG = "fao_embedded.yaml"
DESCRIPTION = f"""Align German and Bengali with English by the encoder and the text inside the package (extra `demo`).

No network, account or GPU is needed; it takes about ten minutes on two CPU cores, and ends with the scores before and
after and a model in runs/fao_embedded. It is `hf-xalign train fao --config {CONFIG}`, whose settings it takes too:

    hf-xalign demo --max_train_pairs 500 --output_dir runs/short"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of `train`."""
    train.add_launcher_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Start the recipe and wait for it; its exit status."""
    return train.start("fao", ["--config", CONFIG, *args.passed], args.processes, args.accelerate_config)
