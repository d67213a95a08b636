"""`hf-xalign push`: push a run's folder to the Hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_xalign.data.sources import nearby
from hf_xalign.errors import InputError

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
    parser.add_argument(
        "--space",
        action="store_true",
        help="also push a Space of the same name: the page of hf-xalign explore, with the run's held-out text",
    )


def run(args: argparse.Namespace) -> None:
    """Push the folder and print the commit's address."""
    if "/" not in args.repo_id:
        raise InputError(f"{args.repo_id}: name the owner too, as in your-name/{args.repo_id}")
    if not Path(args.folder).is_dir():
        raise InputError(f"{args.folder}: no such folder{nearby(Path(args.folder), 'name the folder of a run')}")
    from hf_xalign.hub import push

    if args.space:
        if args.revision not in (None, "main"):
            raise InputError(f"--space: the page shows the branch main, not {args.revision}. Leave one of them out")
        from hf_xalign.explore.space import model_space, push_model_space

        model_space(args.folder, args.repo_id, base_model=args.base_model)  # errors before anything is sent
    commit = push(args.folder, args.repo_id, private=args.private, revision=args.revision, base_model=args.base_model)
    print(f"pushed: {commit.commit_url}")
    if args.space:
        found = push_model_space(args.folder, commit.repo_url.repo_id, base_model=args.base_model)
        print(f"space: {found.commit_url}")
