"""Maps between the word vectors of two languages, learnt without training the encoder."""

from hf_xalign.mapping.anchors import Anchors, make_anchors
from hf_xalign.mapping.procrustes import least_squares, procrustes
from hf_xalign.mapping.rcsls import rcsls
from hf_xalign.mapping.supervision import dictionary_vectors, linked_vectors
from hf_xalign.mapping.vecmap import vecmap
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec
from hf_xalign.modeling.maps import LanguageMap, SideMap
from hf_xalign.modeling.xalign.linear import map_adapter

__all__ = [
    "Anchors",
    "LanguageMap",
    "SideMap",
    "dictionary_vectors",
    "least_squares",
    "linked_vectors",
    "make_anchors",
    "map_adapter",
    "procrustes",
    "rcsls",
    "read_word2vec",
    "vecmap",
    "write_word2vec",
]
