"""What sits on or beside an encoder: pooling, references, checkpoints, and MAO's modules as a PEFT method."""

import hf_xalign.modeling.tagger  # noqa: F401 (has transformers know the tagger)
from hf_xalign.modeling.insertion import with_alignment
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.modeling.merging import merge
from hf_xalign.modeling.tuner import XAlignConfig, set_language

__all__ = ["XAlignConfig", "add_language_embeddings", "merge", "set_language", "with_alignment"]
