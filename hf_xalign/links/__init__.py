"""Word alignment by statistics, an encoder, Pharaoh files or a dictionary."""

from hf_xalign.links.align import align_words, choose_layer, link_statistics, predict_links
from hf_xalign.links.sharded import align_shards

__all__ = ["align_shards", "align_words", "choose_layer", "link_statistics", "predict_links"]
