"""`hf-xalign push`: push a run's folder to the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hf_xalign.checks import excludes, setting
from hf_xalign.data.sources import nearby
from hf_xalign.errors import InputError

DESCRIPTION = """Push a run's model, tokenizer, card and record to the Hub in one commit, without pickled files.

    hf-xalign push runs/my_bengali me/aligned --dry_run
    hf-xalign push runs/my_bengali me/aligned --private

Log in first with `hf auth login`, or set HF_TOKEN; there is no option for the token. --dry_run needs neither token nor
network."""
_VISIBILITY = {True: "private", False: "public", None: "private or public by your Hub settings"}


@dataclass(kw_only=True)
class Arguments:
    """The folder and the options of the repository."""

    folder: str = setting(positional=True, help="folder that a recipe wrote")
    repo_id: str = setting(positional=True, metavar="OWNER/NAME", help="Hub repository, created if it is missing")
    private: bool = setting(False, flag=True, help="make a new repository private", rules=[excludes(public=True)])
    public: bool = setting(False, flag=True, help="make a new repository public")
    revision: str | None = setting(None, help="branch to push to (default: main)")
    base_model: str | None = setting(
        None, metavar="OWNER/NAME", help="Hub id of the encoder, if the folder has its local path"
    )
    dry_run: bool = setting(False, flag=True, help="check everything and list the files, but send nothing")

    @property
    def visible(self) -> bool | None:
        """Return True for a private repository, False for a public one, None for the default of the account."""
        return True if self.private else False if self.public else None


def run(args: Arguments) -> None:
    """Push the folder and print the commit's address."""
    if "/" not in args.repo_id:
        raise InputError(f"{args.repo_id}: give the owner too, as in your-name/{args.repo_id}")
    if not Path(args.folder).is_dir():
        raise InputError(f"{args.folder}: no such folder{nearby(Path(args.folder), 'name the folder of a run')}")
    if args.dry_run:
        return _list(args)

    from hf_xalign.hub import push

    commit = push(args.folder, args.repo_id, private=args.visible, revision=args.revision, base_model=args.base_model)
    print(f"pushed: {commit.commit_url}")


def _list(args: Arguments) -> None:
    from hf_xalign.hub.files import Contents
    from hf_xalign.hub.upload import check_repo_id
    from hf_xalign.tables import table

    check_repo_id(args.repo_id)
    model = Contents(args.folder, base_model=args.base_model)
    sizes = {}
    for path, content in model.read(args.repo_id, args.revision).items():
        sizes[path] = len(content) if isinstance(content, bytes) else content.stat().st_size
    rows = [(path, f"{size:,}") for path, size in {**sizes, "in all": sum(sizes.values())}.items()]
    print(f"model {args.repo_id}, branch {args.revision or 'main'}; if new, {_VISIBILITY[args.visible]}")
    print(table([("file", "bytes"), *rows], 1) + "\n")
    print("dry run: nothing was sent. A push also deletes weights and configs of earlier pushes that are not listed.")
