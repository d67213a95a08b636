"""What sits on or beside an encoder: pooling, references, checkpoints, and MAO's modules as a PEFT method."""

from hf_xalign.modeling.insertion import with_alignment
from hf_xalign.modeling.merging import merge
from hf_xalign.modeling.tuner import XAlignConfig, set_language

__all__ = ["XAlignConfig", "merge", "set_language", "with_alignment"]
