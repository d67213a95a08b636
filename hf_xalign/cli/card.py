"""`hf-xalign card`: the model card of a run, anew from its record."""

from __future__ import annotations

import argparse

from hf_xalign.cli.terminal import show

DESCRIPTION = """Write README.md of a run's folder anew from its results.json, after an upgrade or with the name of a
repository in its loading snippet. Nothing is trained or scored, and what was edited in README.md is lost."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and the repository to name."""
    parser.add_argument("folder", help="a folder that a recipe wrote")
    parser.add_argument("--repo_id", metavar="OWNER/NAME", help="the Hub repository named in the loading snippet")


def run(args: argparse.Namespace) -> None:
    """Write the card."""
    from hf_xalign.model_cards import write_card
    from hf_xalign.record import read_record

    show(f"saved: {write_card(args.folder, read_record(args.folder), repo_id=args.repo_id)}")
