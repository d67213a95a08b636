"""Modules around an encoder: pooling, checkpoints, taggers, and MAO's modules as a PEFT method."""

import hf_xalign.modeling.tagger.tagger  # noqa: F401 (registers the tagger with transformers)
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.modeling.languages import set_language
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.insertion import with_alignment
from hf_xalign.modeling.xalign.merging import merge

__all__ = ["XAlignConfig", "add_language_embeddings", "merge", "set_language", "with_alignment"]
