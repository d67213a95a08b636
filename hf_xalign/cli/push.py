"""`hf-xalign push`: a run's folder to the Hub."""

from __future__ import annotations

import argparse

from hf_xalign.cli.terminal import show

DESCRIPTION = """Push a run's folder to the Hub in one commit: model, tokenizer, card and record, nothing pickled.
Log in first by `hf auth login`, or set HF_TOKEN; a token is not taken here."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and where it goes."""
    parser.add_argument("folder", help="a folder that a recipe wrote")
    parser.add_argument("repo_id", metavar="OWNER/NAME", help="the repository, made when missing")
    visible = parser.add_mutually_exclusive_group()
    visible.add_argument("--private", action="store_true", default=None, help="make it private, if it is new")
    visible.add_argument("--public", action="store_false", dest="private", help="make it public, if it is new")
    parser.add_argument("--revision", help="branch to push to; main by default")
    parser.add_argument(
        "--base_model", metavar="OWNER/NAME", help="Hub id of the encoder, where the folder knows it by a local path"
    )


def run(args: argparse.Namespace) -> None:
    """Push, and say where it is."""
    from hf_xalign.hub import push

    commit = push(args.folder, args.repo_id, private=args.private, revision=args.revision, base_model=args.base_model)
    show(f"pushed: {commit.commit_url}")
