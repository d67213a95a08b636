"""`hf-xalign push`: push a run's folder to the Hub."""

from __future__ import annotations

import argparse

DESCRIPTION = """Push a run's folder to the Hub in one commit: model, tokenizer, card and record, no pickled files.
Log in first with `hf auth login`, or set HF_TOKEN. The command line takes no token."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder and the options of the repository."""
    parser.add_argument("folder", help="folder that a recipe wrote")
    parser.add_argument("repo_id", metavar="OWNER/NAME", help="Hub repository, created if missing")
    visible = parser.add_mutually_exclusive_group()
    visible.add_argument("--private", action="store_true", default=None, help="make a new repository private")
    visible.add_argument("--public", action="store_false", dest="private", help="make a new repository public")
    parser.add_argument("--revision", help="branch to push to (default: main)")
    parser.add_argument(
        "--base_model", metavar="OWNER/NAME", help="Hub id of the encoder, if the folder names it by a local path"
    )


def run(args: argparse.Namespace) -> None:
    """Push the folder and print the commit's address."""
    from hf_xalign.hub import push

    commit = push(args.folder, args.repo_id, private=args.private, revision=args.revision, base_model=args.base_model)
    print(f"pushed: {commit.commit_url}")
