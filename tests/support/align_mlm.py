"""A small run of ALIGN-MLM, and its rows and dictionary."""

import math

import numpy as np
import torch
from datasets import Dataset

from hf_xalign.data.pretraining.rows import TokenEntries, encode_pretraining
from hf_xalign.modeling import add_language_embeddings
from hf_xalign.trainers import AlignMLMConfig, AlignMLMTrainer
from support.launch import SMALL as QUIET
from support.ppa import make_pairs
from support.tiny import SENTENCES, make_encoder, make_tokenizer

OBJECTIVES = ("mlm", "xlm", "dict_mlm", "align_mlm")
SMALL = {**QUIET, "mlm_probability": 0.3}


def make_rows(count=16, pairs=False, block_size=24, **options):
    text = [SENTENCES[k % len(SENTENCES)] for k in range(4 * count)]
    corpora = {
        "en": Dataset.from_dict({"text": [f"{english} {k}" for k, (_, english, _) in enumerate(text)]}),
        "de": Dataset.from_dict({"text": [f"{german} {k}" for k, (german, _, _) in enumerate(text)]}),
    }
    rows, _ = encode_pretraining(
        corpora,
        make_tokenizer(),
        make_encoder().config,
        block_size=block_size,
        pairs=make_pairs(16).remove_columns("source_lang").add_column("source_lang", ["de"] * 16) if pairs else None,
        **options,
    )
    return rows.select(np.linspace(0, len(rows) - 1, count, dtype=int))


def make_entries(seed=0):
    """A dictionary of tokens that the rows have, some of them in two entries."""
    ids = np.array([[10, 40], [12, 41], [12, 42], [97, 98], [20, 60], [22, 61], [24, 40]])
    return TokenEntries.from_counterparts(ids, share=6 / 7, seed=seed, languages=("en", "de"))


def make(folder, model=None, data=None, entries=None, callbacks=None, objective="align_mlm", **settings):
    args = AlignMLMConfig(output_dir=str(folder), objective=objective, **{**SMALL, **settings})
    model = make_encoder() if model is None else model
    if args.has_language_embeddings:
        add_language_embeddings(model, ["en", "de", "nl"])
    if args.needs_entries and entries is None:
        entries = make_entries()
    return AlignMLMTrainer(
        model,
        args,
        train_dataset=make_rows(pairs=objective == "xlm") if data is None else data,
        entries=entries,
        eval_dataset=make_rows(6, pairs=objective == "xlm"),
        test_entries={"de": np.array([[10, 40], [12, 41], [50, 51]])},
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def token_loss(model, state, table, label):
    """-log p(label) by the head that BERT has."""
    head = model.alignment_head["words"]
    x = head.dense.weight @ state + head.dense.bias
    x = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    centered = x - x.mean()
    x = centered / torch.sqrt((centered * centered).mean() + 1e-12) * head.norm.weight + head.norm.bias
    scores = table @ x + head.bias
    return torch.logsumexp(scores, 0) - scores[label]
