"""Training objectives: a loss is a list of terms. Each term has its formula in a function of the same module.

The notation is that of the papers: f(i, s) is the tuned encoder's vector of word i of sentence s, f0 the encoder
before alignment, and (i, j) in a(s, t) a word link.
"""

from hf_xalign.objectives.lexicon import DictionaryCosine
from hf_xalign.objectives.masked import MaskedTokens
from hf_xalign.objectives.momentum import MomentumContrast
from hf_xalign.objectives.pivot import KeepMidpoints, KeepPivot, KeepSimilarities
from hf_xalign.objectives.sentences import ProjectedContrast, SentenceContrast, SentenceTeacher
from hf_xalign.objectives.term import Objective, Term, Vectors
from hf_xalign.objectives.words import WordContrast, WordDistance

__all__ = [
    "DictionaryCosine",
    "KeepMidpoints",
    "KeepPivot",
    "KeepSimilarities",
    "MaskedTokens",
    "MomentumContrast",
    "Objective",
    "ProjectedContrast",
    "SentenceContrast",
    "SentenceTeacher",
    "Term",
    "Vectors",
    "WordContrast",
    "WordDistance",
]
