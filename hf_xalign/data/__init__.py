"""Parallel text, word links, and the batches made from them."""

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.parallel import concatenate, load_parallel, load_sources
from hf_xalign.data.word_alignment import align_words, link_statistics, predict_links
from hf_xalign.data.words import split_words

__all__ = [
    "align_words",
    "concatenate",
    "encode_pairs",
    "link_statistics",
    "load_parallel",
    "load_sources",
    "predict_links",
    "split_words",
]
