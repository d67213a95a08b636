"""Parallel text, its words, and their encoding; names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_xalign.data.encoding import encode_pairs
    from hf_xalign.data.load import concatenate, load_parallel
    from hf_xalign.data.words import split_words

__all__ = ["concatenate", "encode_pairs", "load_parallel", "split_words"]
_HOME = {"encode_pairs": "encoding", "split_words": "words"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'load')}"), name)
