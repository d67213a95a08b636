"""Initialize the embeddings of new pieces of a tokenizer."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
import torch
from datasets import Dataset
from scipy.sparse import csr_array
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import check_bare


def extend_embeddings(
    model: PreTrainedModel, start: int, tokenizer: PreTrainedTokenizerBase, linked: Dataset
) -> dict[str, int]:
    """Add an embedding for each piece with an id of `start` or more to an encoder, in place.

    The new embedding is the mean embedding of the pivot tokens that are linked to words with this piece, weighted by
    the number of links. (WECHSEL, Minixhofer et al. 2022, weights by the similarity of static word vectors.) A piece
    without links gets the mean of all linked pieces.

    `start` is the number of tokens before [`~hf_xalign.data.pretraining.vocabulary.add_pieces`], and `linked` are
    word-aligned pairs whose source words have the pieces. Returns the numbers of `linked` and `not linked` pieces.
    """
    check_bare(model, "a larger vocabulary")
    weights: dict[tuple[int, int], float] = defaultdict(float)
    for row in encode_pairs(linked, tokenizer):
        for i, j in row["links"]:
            pieces = row["source_ids"][row["source_starts"][i] : row["source_ends"][i]]
            pivots = row["target_ids"][row["target_starts"][j] : row["target_ends"][j]]
            for piece, pivot in product(pieces, pivots):
                if piece >= start:
                    weights[piece - start, pivot] += 1 / len(pivots)
    pivot_weights = {pair: weight for pair, weight in weights.items() if pair[1] < start}
    if not pivot_weights:
        raise InputError("no word with a new piece has a link to a pivot word. Take more text or another aligner.")
    # New rows need no start of transformers', because they are written below.
    table = model.resize_token_embeddings(max(len(tokenizer), model.config.vocab_size), mean_resizing=False).weight
    rows, columns = np.array(list(pivot_weights)).T
    used, columns = np.unique(columns, return_inverse=True)
    matrix = csr_array((list(pivot_weights.values()), (rows, columns)), shape=(len(tokenizer) - start, len(used)))
    total = np.asarray(matrix.sum(axis=1))
    has_links = total > 0
    old = table[torch.from_numpy(used)].detach().double().cpu().numpy()
    vectors = (matrix @ old) / np.where(has_links, total, 1)[:, None]
    vectors[~has_links] = vectors[has_links].mean(axis=0)
    with torch.no_grad():
        table[start : len(tokenizer)] = torch.from_numpy(vectors).to(table)
    return {"linked": int(has_links.sum()), "not linked": int((~has_links).sum())}
