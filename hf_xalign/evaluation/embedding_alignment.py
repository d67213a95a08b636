"""Alignment score of input embeddings (ALIGN-MLM; Tang et al. 2022, section 5, after Deshpande et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.languages import language_embedding
from hf_xalign.search.csls import Similarity, as_tensor, index_pairs
from hf_xalign.search.ranking import nearest
from hf_xalign.statistics.significance import interval


class EmbeddingAlignment(NamedTuple):
    """Share of the n source tokens whose nearest candidate is a counterpart, in [0, 1].

    `hits` is bool (n,), whose mean is the share, and `nearest` int64 (n,) the nearest candidate of each source token,
    both on the CPU. The share falls as the number of `candidates` grows.
    """

    share: float
    hits: Tensor
    nearest: Tensor
    candidates: int

    def scores(self, *, bootstrap: int = 1000, seed: int = 0) -> dict[str, float | int]:
        """Return `alignment`, its 95% bootstrap interval over source tokens, unless `bootstrap` is 0, and counts."""
        scores: dict[str, float | int] = {"alignment": self.share}
        if bootstrap:
            low, high = interval(self.hits.numpy(), resamples=bootstrap, seed=seed)
            scores |= {"alignment_low": low, "alignment_high": high}
        return scores | {"sources": len(self.hits), "candidates": self.candidates}


def alignment_of_entries(
    source_vectors: Tensor | ArrayLike,
    target_vectors: Tensor | ArrayLike,
    entries: Tensor | ArrayLike,
    candidates: Tensor | np.ndarray | Sequence[int] | None = None,
    *,
    similarity: Similarity = "cosine",
    k: int = 10,
) -> EmbeddingAlignment:
    """Compute the share of source tokens whose nearest candidate is their counterpart in a token dictionary.

    A source token with several entries may find any of its counterparts. Among equal scores the lowest row is nearest,
    so a counterpart with the same embedding as an earlier candidate is missed. A source token that is also a candidate
    finds itself: if both sides use one embedding matrix, keep sources out of `candidates`.

    Each of the `entries` (e, 2) is a row of `source_vectors` (Vs, D) and a row of `target_vectors` (Vt, D).
    `candidates` are the rows of `target_vectors` to search, by default the counterparts; they must include these.
    `similarity` is "cosine" as published, or "csls" against hubs, with the sources as the neighbourhood. `hits` and
    `nearest` follow the order in which `entries` first name each source token.
    """
    source_vectors, target_vectors = as_tensor(source_vectors), as_tensor(target_vectors)
    pairs = index_pairs(entries, "entries", (len(source_vectors), len(target_vectors)))
    if isinstance(candidates, Tensor):
        candidates = candidates.cpu().numpy()
    pool = np.unique(pairs[:, 1] if candidates is None else candidates)
    golds: dict[int, set[int]] = {}  # in the order of the entries
    for source, gold in pairs.tolist():
        golds.setdefault(source, set()).add(gold)
    if missing := sorted(set(pairs[:, 1].tolist()) - set(pool.tolist())):
        raise InputError(
            f"counterpart {missing[0]} is not among the {len(pool)} candidates. Add it, or remove its entries."
        )
    sources = source_vectors[list(golds)]
    candidate_vectors = target_vectors[torch.from_numpy(pool).to(target_vectors.device)]
    ranked = nearest(sources, candidate_vectors, 1, similarity=similarity, k=k)
    found = torch.from_numpy(pool)[ranked.indices[:, 0].cpu()]
    hits = torch.tensor([row in counterparts for row, counterparts in zip(found.tolist(), golds.values())])
    return EmbeddingAlignment(hits.double().mean().item(), hits, found, len(pool))


def alignment_of_model(
    model: nn.Module,
    entries: Tensor | ArrayLike,
    candidates: Tensor | np.ndarray | Sequence[int] | None = None,
    *,
    languages: tuple[str, str] | None = None,
) -> EmbeddingAlignment:
    """Compute [`alignment_of_entries`] on a model's input embeddings.

    Measures the direction from the first column of the entries to the second: natural to derived, as in the paper. For
    the other direction, pass `entries[:, [1, 0]]` and candidates of that side.

    `candidates` should be the ids of the whole derived vocabulary, because searching only a training dictionary is
    easier. If `languages`, the codes of both columns, are given, each side's language embedding is added to its word
    embeddings, as in ALIGN-MLM's code for XLM and DICT-MLM. The paper compares word embeddings alone.
    """
    words = model.get_input_embeddings().weight.detach()  # type: ignore[operator]
    source = target = words
    if languages is not None:
        source, target = (words + language_embedding(cast(PreTrainedModel, model), code) for code in languages)
    return alignment_of_entries(source, target, entries, candidates)
