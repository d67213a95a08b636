"""Where derived files (the embedded encoder, word links, word vectors) are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """A folder below the user's cache, created when missing.

    The root is `$HF_XALIGN_CACHE`, else `$XDG_CACHE_HOME/hf_xalign`, else `~/.cache/hf_xalign`.
    """
    root = os.environ.get("HF_XALIGN_CACHE")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hf_xalign"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
