"""A small tagger, and the batch that it is fed."""

import torch

from hf_xalign.modeling.tagger.tagger import BiLSTMCRFForTokenClassification
from support.adapters import SPANS, TEXT, make_base

BIO = ["O", "B-a", "I-a", "B-b", "I-b"]
INPUTS = {**TEXT, "word_spans": SPANS}
LABELS = torch.tensor([[1, 2, 0], [3, 4, -100], [-100, -100, -100]])
COUNTS = (3, 2, 0)


def make_tagger(encoder=None, seed=0, perturb=True, **settings):
    settings = {"layers": (-2, -1), "lstm_size": 6, "dropout": 0.0, **settings}
    encoder = make_base() if encoder is None else encoder
    torch.manual_seed(seed)
    tagger = BiLSTMCRFForTokenClassification.from_encoder(encoder, BIO, **settings)
    if perturb:
        with torch.no_grad():
            for parameter in tagger.crf.parameters():
                parameter.normal_()
    return tagger.eval()


def trained(model):
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
