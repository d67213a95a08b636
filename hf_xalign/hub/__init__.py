"""Push models to the Hugging Face Hub and load them.

    from hf_xalign import hub

    hub.push("runs/german", "me/german")
    model = hub.load("me/german")

A push is a single commit: it succeeds or leaves the repository unchanged. Large files that were uploaded before a push
failed are not uploaded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hf_xalign.hub.upload import push

if TYPE_CHECKING:
    from hf_xalign.modeling.loading import load

__all__ = ["load", "push"]


def __getattr__(name: str) -> object:
    """Import `load`, and torch with it, on first use, because checks before a push need neither."""
    if name != "load":
        raise AttributeError(f"module 'hf_xalign.hub' has no attribute {name!r}")
    from hf_xalign.modeling.loading import load

    return load
