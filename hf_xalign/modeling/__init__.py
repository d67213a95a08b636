"""Modules around an encoder: pooling, checkpoints, taggers, and MAO's modules as a PEFT method."""

import hf_xalign.modeling.tagger  # noqa: F401 (registers the tagger with transformers)
from hf_xalign.modeling.languages import add_language_embeddings, set_language
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.insertion import merge, with_alignment

__all__ = ["XAlignConfig", "add_language_embeddings", "merge", "set_language", "with_alignment"]
