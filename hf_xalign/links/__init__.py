"""Word alignment by statistics, an encoder, Pharaoh files or a dictionary; names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_xalign.links.align import align_shards, align_words
    from hf_xalign.links.counts import link_statistics
    from hf_xalign.links.linking import Linking
    from hf_xalign.links.neural import choose_layer, predict_links

__all__ = ["Linking", "align_shards", "align_words", "choose_layer", "link_statistics", "predict_links"]
_HOME = {"Linking": "linking", "link_statistics": "counts", "choose_layer": "neural", "predict_links": "neural"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'align')}"), name)
