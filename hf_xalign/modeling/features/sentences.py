"""Store an encoder's sentence vectors before it is trained."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from datasets import Dataset
from datasets.fingerprint import Hasher
from transformers import PreTrainedModel

from hf_xalign.cache import map_rows
from hf_xalign.executors import Map
from hf_xalign.modeling.contrast.heads import pool_sentences
from hf_xalign.modeling.freezing import model_fingerprint
from hf_xalign.modeling.word_vectors import hidden_batches, ray_encoders

_BLOCK = 1000  # pairs within which sentences are sorted by length


def add_sentences(
    model: PreTrainedModel,
    dataset: Dataset,
    *,
    layers: list[int],
    pad_token_id: int,
    autocast: torch.dtype | None = None,
    ray: str | None = None,
) -> Dataset:
    """Add the columns `source_sentence` and `target_sentence`, float32 (layers, dim), to a result of `encode_pairs`.

    Each is the mean over all tokens. `layers` are positions in `hidden_states`, `autocast` is the dtype of the forward
    passes, `ray` the address of a Ray cluster that runs them.
    """
    settings = [dataset._fingerprint, model_fingerprint(model), layers, str(autocast)]
    with ray_encoders(model, ray) as cluster:
        return map_rows(
            dataset,
            partial(_sentences, model, layers, pad_token_id, autocast, cluster),
            batched=True,
            batch_size=_BLOCK,
            new_fingerprint=Hasher.hash(["sentences", *settings]),
            desc="Encoding the sentences of pairs",
        )


def _sentences(
    model: PreTrainedModel,
    layers: list[int],
    pad_token_id: int,
    autocast: torch.dtype | None,
    cluster: Map | None,
    rows: dict[str, list],
) -> dict[str, np.ndarray]:
    sentences = [*rows["source_ids"], *rows["target_ids"]]
    vectors = np.empty((len(sentences), len(layers), model.config.hidden_size), dtype=np.float32)
    for numbers, mask, states in hidden_batches(
        model, sentences, pad_token_id, layers, dtype=autocast, cluster=cluster
    ):
        pooled = [pool_sentences(hidden, mask, "mean") for hidden in states]
        vectors[numbers] = torch.stack(pooled, dim=1).float().cpu().numpy()
    source, target = np.split(vectors, 2)
    return {"source_sentence": source, "target_sentence": target}
