"""Feature caches of tiny encoders."""

import numpy as np
from datasets import Dataset

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.modeling.features import cache_features
from support.tiny import make_encoder, make_links, make_tokenizer

LINKED = {"source": "linked", "target": "linked"}
ALL = {"source": "all", "target": "all"}


def pairs(n=24):
    """Pairs of which every sentence occurs three times; one is English beside English, the last has other links."""
    links = make_links(n)
    row = {**links[0], "source_lang": "en", "source_words": ["no", "house"], "links": [[1, 2]]}
    return Dataset.from_list([*links, row, {**links[0], "links": [[3, 4], [1, 1]]}])


def many(n=60):
    """Pairs of distinct sentences of several lengths, so that there are batches enough to be cut short between."""
    words = ["the", "cat", "dog", "house", "open", "file", "da", "kat", "hund", "haus"]
    rng = np.random.default_rng(0)
    rows = []
    for k in range(n):
        source, target = ([words[i] for i in rng.integers(10, size=3 + k % 7)] for _ in range(2))
        rows.append({"source_words": source, "target_words": target, "source_lang": "de", "links": [[0, 1], [2, 0]]})
    return Dataset.from_list(rows)


def cache(folder, model=None, links=None, needed=LINKED, pooling="mean", layers=(2,), max_length=None, **settings):
    encoded = encode_pairs(links or pairs(), make_tokenizer(), max_length=max_length)
    start = cache_features(
        model or make_encoder(),
        encoded,
        needed=needed,
        layers=list(layers),
        pooling=pooling,
        pad_token_id=0,
        folder=folder,
        **settings,
    )
    return start.words, start.dataset


def counted(model):
    """The sentences of each forward pass of `model`, filled as it runs."""
    batches = []
    model.register_forward_pre_hook(lambda *given: batches.append(len(given[-1]["input_ids"])), with_kwargs=True)
    return batches
