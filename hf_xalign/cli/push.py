"""`hf-xalign push`: push a run's folder to the Hub."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from hf_xalign.data.sources import nearby
from hf_xalign.errors import InputError
from hf_xalign.pretrained import check_model_folder, check_whole

DESCRIPTION = """Push a run's folder to the Hub in one commit: model, tokenizer, card and record, no pickled files.

    hf-xalign push runs/my_bengali me/aligned --dry_run
    hf-xalign push runs/my_bengali me/aligned --private

Log in first with `hf auth login`, or set HF_TOKEN. The command line takes no token. --dry_run needs neither token nor
network."""

_VISIBILITY = {True: "private", False: "public", None: "as visible as your Hub settings say"}


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
    parser.add_argument("--allow_nonfinite", action="store_true", help="push weights that are NaN or infinite too")
    parser.add_argument("--dry_run", action="store_true", help="check everything and list the files; send nothing")


def run(args: argparse.Namespace) -> None:
    """Push the folder and print the commit's address."""
    if "/" not in args.repo_id:
        raise InputError(f"{args.repo_id}: name the owner too, as in your-name/{args.repo_id}")
    if not Path(args.folder).is_dir():
        raise InputError(f"{args.folder}: no such folder{nearby(Path(args.folder), 'name the folder of a run')}")
    check_model_folder(Path(args.folder))
    if not Path(args.folder, "maps").is_dir():  # of a mapping between two encoders
        check_whole(Path(args.folder), finite=not args.allow_nonfinite)
    space: dict[str, bytes] = {}
    if args.space:
        if args.revision not in (None, "main"):
            raise InputError(f"--space: the page shows the branch main, not {args.revision}. Leave one of them out")
        from hf_xalign.explore.space import model_space, push_model_space

        # Errors come before anything is sent.
        space = model_space(args.folder, args.repo_id, base_model=args.base_model)
    if args.dry_run:
        return _list(args, space)

    from hf_xalign.hub import push

    options = {"base_model": args.base_model, "allow_nonfinite": args.allow_nonfinite}
    commit = push(args.folder, args.repo_id, private=args.private, revision=args.revision, **options)
    print(f"pushed: {commit.commit_url}")
    if args.space:
        found = push_model_space(args.folder, commit.repo_url.repo_id, base_model=args.base_model)
        print(f"space: {found.commit_url}")


def _list(args: argparse.Namespace, space: Mapping[str, bytes]) -> None:
    """Print the repository, and every file that a push would send, in the form and size in which it would."""
    from hf_xalign.hub.files import Contents
    from hf_xalign.hub.upload import check_repo_id
    from hf_xalign.tables import table

    check_repo_id(args.repo_id)
    model = Contents(args.folder, base_model=args.base_model, allow_nonfinite=args.allow_nonfinite)
    files = model.read(args.repo_id, args.revision)
    for kind, contents in {"model": files, "Space": space}.items():
        if contents:
            sizes = {
                path: len(content) if isinstance(content, bytes) else content.stat().st_size
                for path, content in contents.items()
            }
            rows = [(path, f"{size:,}") for path, size in {**sizes, "in all": sum(sizes.values())}.items()]
            print(f"{kind} {args.repo_id}, branch {args.revision or 'main'}; if new, {_VISIBILITY[args.private]}")
            print(table([("file", "bytes"), *rows], 1) + "\n")
    print("dry run: nothing was sent. A push also deletes weights and configs of an earlier one that are not listed")
