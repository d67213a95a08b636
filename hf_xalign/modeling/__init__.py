"""What sits on or beside an encoder: pooling, references, checkpoints, and MAO's modules as a PEFT method."""

import hf_xalign.modeling.tagger.tagger  # noqa: F401 (has transformers know the tagger)
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.insertion import with_alignment
from hf_xalign.modeling.xalign.merging import merge
from hf_xalign.modeling.xalign.tuner import set_language

__all__ = ["XAlignConfig", "add_language_embeddings", "merge", "set_language", "with_alignment"]
