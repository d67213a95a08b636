"""A small tagger, the batch that it is fed, and every sequence of tags by enumeration."""

import itertools

import torch

from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification
from support.adapters import SPANS, TEXT, make_base

BIO = ["O", "B-a", "I-a", "B-b", "I-b"]
INPUTS = {**TEXT, "word_spans": SPANS}
LABELS = torch.tensor([[1, 2, 0], [3, 4, -100], [-100, -100, -100]])
COUNTS = (3, 2, 0)


def make_tagger(encoder=None, seed=0, **settings):
    settings = {"layers": (-2, -1), "lstm_size": 6, "dropout": 0.0, **settings}
    encoder = make_base() if encoder is None else encoder
    torch.manual_seed(seed)
    tagger = BiLSTMCRFForTokenClassification.from_encoder(encoder, BIO, **settings)
    with torch.no_grad():
        for parameter in tagger.crf.parameters():
            parameter.normal_()
    return tagger.eval()


def trained(model):
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def is_bio(names):
    return all(
        not name.startswith("I-") or (k > 0 and names[k - 1] in (f"B-{name[2:]}", name))
        for k, name in enumerate(names)
    )


def enumerate_scores(crf, emissions, pairwise, row, length, names=None):
    """Every allowed sequence of a sentence and its score, added up word by word."""
    found = {}
    for tags in itertools.product(range(emissions.shape[-1]), repeat=length):
        if names is not None and not is_bio([names[tag] for tag in tags]):
            continue
        score = emissions.new_zeros(())
        for t, tag in enumerate(tags):
            score = score + emissions[row, t, tag]
            score = score + (crf.start[tag] if t == 0 else crf.transitions[tags[t - 1], tag])
            if t:
                score = score + pairwise[row, t - 1, tags[t - 1], tag]
        found[tags] = score + crf.end[tags[-1]] if tags else score
    return found


@torch.no_grad()
def best_tags(tagger, **inputs):
    """Return the best tags of each sentence, one for each word."""
    return [row[row >= 0].tolist() for row in tagger.eval()(**inputs).tags]
