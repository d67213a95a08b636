"""Scores of word and sentence vectors: retrieval, lexicon induction, distances, drift."""

from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.probes import probe_encoder
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.evaluation.sentences import sentence_retrieval
from hf_xalign.evaluation.vectors import encode_sentences, encode_words, vector_drift

__all__ = [
    "encode_sentences",
    "encode_words",
    "lexicon_induction",
    "probe_encoder",
    "score_retrieval",
    "sentence_retrieval",
    "vector_drift",
    "word_retrieval",
]
