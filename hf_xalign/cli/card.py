"""`hf-xalign card`: rewrite the model card of a run from its record."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xalign.checks import setting

DESCRIPTION = """Rewrite README.md of a run's folder from its results.json, after an upgrade or to name a repository
in the loading snippet. Nothing is trained or scored. Manual edits of README.md are lost."""


@dataclass(kw_only=True)
class Arguments:
    """The folder and the repository."""

    folder: str = setting(positional=True, help="folder that a recipe wrote")
    repo_id: str | None = setting(None, metavar="OWNER/NAME", help="Hub repository to name in the loading snippet")


def run(args: Arguments) -> None:
    """Write the card."""
    from hf_xalign.data.sources import check_models
    from hf_xalign.model_cards import write_card
    from hf_xalign.record import read_record

    check_models([args.folder], whole=False)
    print(f"saved: {write_card(args.folder, read_record(args.folder), repo_id=args.repo_id)}")
