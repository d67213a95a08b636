"""Word alignment by statistics, an encoder, Pharaoh files or a dictionary."""

from hf_xalign.links.align import align_words, choose_layer, link_statistics, predict_links

__all__ = ["align_words", "choose_layer", "link_statistics", "predict_links"]
