"""Parallel text, its words, and their encoding."""

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.parallel import concatenate, load_parallel, load_sources
from hf_xalign.data.words import split_words

__all__ = ["concatenate", "encode_pairs", "load_parallel", "load_sources", "split_words"]
