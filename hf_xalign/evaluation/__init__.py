"""Vectors and the scores computed from them; nothing else in the library computes a score."""

from hf_xalign.evaluation.drift import vector_drift
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.evaluation.vectors import encode_sentences, encode_words

__all__ = ["encode_sentences", "encode_words", "score_retrieval", "vector_drift", "word_retrieval"]
