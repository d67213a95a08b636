"""The BiLSTM-CRF tagger; importing it registers the model type with transformers."""

from hf_xalign.modeling.tagger.tagger import BiLSTMCRFForTokenClassification

__all__ = ["BiLSTMCRFForTokenClassification"]
