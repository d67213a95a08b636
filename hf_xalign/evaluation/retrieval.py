"""Word retrieval (Cao et al. 2020): does a linked word find its partner among the other language's words?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_xalign.checks import check_choice, check_lengths
from hf_xalign.errors import InputError
from hf_xalign.score import Score
from hf_xalign.search.csls import Similarity, as_tensor, index_pairs, nearest_neighbours
from hf_xalign.statistics.examples import ExampleScores


def word_retrieval(
    source_vectors: Tensor | ArrayLike,
    target_vectors: Tensor | ArrayLike,
    links: Tensor | ArrayLike,
    *,
    source_words: Sequence[str] | None = None,
    target_words: Sequence[str] | None = None,
    k: int = 10,
    similarity: Similarity = "csls",
    pool: str = "linked",
    legacy: bool = False,
    device: str | torch.device | None = None,
) -> dict[str, float | int]:
    """Compute the share of linked word occurrences whose nearest neighbour is exactly the linked occurrence.

    The score falls as the pool of candidates grows, so compare scores over equal pools only. Special tokens such as
    [CLS] count if they are passed as additional rows and links.

    Args:
        source_vectors: (Ns, D) floats, one row per word occurrence of the source side.
        target_vectors: (Nt, D) floats, one row per word occurrence of the target side.
        links: (L, 2) integers, 1-to-1: row of `source_vectors`, row of `target_vectors`.
        source_words: the Ns words, for type-level scores; requires `target_words`.
        target_words: the Nt words.
        k: neighbourhood size of CSLS.
        similarity: "csls" or "cosine".
        pool: candidates and neighbourhoods: "linked" words or "all" occurrences. Queries are always the linked words.
        legacy: use the published scripts' variant of CSLS, see [`~hf_xalign.search.csls.nearest_neighbours`].
        device: torch device of the search; by default that of the source vectors.

    Returns:
        Fractions in [0, 1]: `source_to_target`, `target_to_source` and their `mean`; with words also
        `type_source_to_target`, `type_target_to_source` and `type_mean`, where any occurrence of the linked word
        counts. Counts: `source_pool`, `target_pool` (candidates on each side) and `queries` (links).

    Raises:
        InputError: there are no links, a link is out of range or not 1-to-1, the numbers of words and vectors differ,
            an option is unknown, or `nearest_neighbours` raises.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.2]])
        >>> target = torch.tensor([[0.1, 0.9], [0.8, 0.1], [-1.0, 0.0]])
        >>> word_retrieval(source, target, [[0, 1], [1, 0], [2, 2]], k=1)["mean"]
        1.0
    """
    check_choice(("linked", "all"), pool=pool)
    source, target = as_tensor(source_vectors), as_tensor(target_vectors)
    gold = check_links(links, len(source), len(target))
    check_lengths("source row", source_words=source_words, source_vectors=source)
    check_lengths("target row", target_words=target_words, target_vectors=target)
    words = tuple(side for side in (source_words, target_words) if side is not None)
    if pool == "linked":
        source, target = source[gold[:, 0].to(source.device)], target[gold[:, 1].to(target.device)]
        if words:
            words = tuple(list(map(side.__getitem__, rows)) for side, rows in zip(words, gold.T.tolist()))
        gold = torch.arange(len(gold))[:, None].expand(-1, 2)
    hits, types = word_hits(source, target, gold, words, k=k, similarity=similarity, legacy=legacy, device=device)
    scores = directions("", *hits.T)
    if types is not None:
        scores |= directions("type_", *types.T)
    return scores | {"source_pool": len(source), "target_pool": len(target), "queries": len(gold)}


def word_hits(
    source: Tensor, target: Tensor, gold: Tensor, words: Sequence[Sequence[str]] = (), **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Return which links find the linked occurrence, and which any occurrence of its word, bool (links, 2) each.

    The columns are the directions: whether the source word finds its target word, and the target word its source word.
    The second result is None without `words` of both sides. `options` are those of `nearest_neighbours`.
    """
    neighbours = nearest_neighbours(source, target, **options)
    exact, types = [], []
    for side, nearest in enumerate(neighbours):
        found, wanted = nearest.cpu()[gold[:, side]], gold[:, 1 - side]
        exact.append(found == wanted)
        if words:
            texts = words[1 - side]
            types.append(torch.tensor([texts[a] == texts[b] for a, b in zip(found.tolist(), wanted.tolist())]))
    return torch.stack(exact, dim=1), torch.stack(types, dim=1) if words else None


def flatten_rows(
    source_vectors: Sequence[Tensor | ArrayLike],
    target_vectors: Sequence[Tensor | ArrayLike],
    links: Sequence[ArrayLike],
    source_words: Sequence[Sequence[str]] | None = None,
    target_words: Sequence[Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Flatten columns with one row per sentence pair into the arguments of [`word_retrieval`].

    In each row, vectors are (words, D) floats and links (links, 2) word indices within the pair. Any may be empty.
    """
    words = {"source_words": source_words, "target_words": target_words}
    sides = {
        "source": [as_tensor(vectors).float() for vectors in source_vectors],
        "target": [as_tensor(vectors).float() for vectors in target_vectors],
    }
    check_lengths(
        "sentence pair", source_vectors=sides["source"], target_vectors=sides["target"], links=links, **words
    )
    flat_links: list[np.ndarray] = [np.zeros((0, 2), dtype=np.int64)]
    start, end = 0, 0
    for row, pairs in enumerate(links):
        for side, vectors in sides.items():
            if (side_words := words[f"{side}_words"]) is not None:
                of_words = {f"{side}_vectors": vectors[row], f"{side}_words": side_words[row]}
                check_lengths(f"word of row {row}", **of_words)
        sizes = len(sides["source"][row]), len(sides["target"][row])
        if np.size(pairs):
            flat_links.append(index_pairs(pairs, f"row {row}, links", sizes) + np.array([start, end]))
        start, end = start + sizes[0], end + sizes[1]
    return {
        # A sentence without words has no dimensions.
        **{f"{side}_vectors": torch.cat(list(filter(len, vectors))) for side, vectors in sides.items()},
        "links": torch.from_numpy(np.concatenate(flat_links)),
        **{name: None if column is None else list(chain.from_iterable(column)) for name, column in words.items()},
    }


def check_links(links: Tensor | ArrayLike, source_rows: int, target_rows: int) -> Tensor:
    """Return links as int64 (links, 2); no link, one out of range, or two of one word raise an InputError."""
    gold = torch.from_numpy(index_pairs(links, "links", (source_rows, target_rows)))
    for column, side in zip(gold.T, ("source", "target")):
        _, group, count = column.unique(return_inverse=True, return_counts=True)
        for n in (count[group] > 1).nonzero().flatten().tolist():
            raise InputError(
                f"link {n} ({'-'.join(map(str, gold[n].tolist()))}): the {side} word has {int(count[group][n])} "
                "links, but word retrieval needs 1-to-1 links (align_words with one_to_one=True)"
            )
    return gold


def directions(prefix: str, forward: Tensor, backward: Tensor) -> dict[str, float | int]:
    """Return the share of hits of both directions, bool (queries,), and their mean."""
    # The distance of linked words contracts the space and favours one direction, so both are reported.
    to_target, to_source = forward.double().mean().item(), backward.double().mean().item()
    # Over both at once, so that the mean equals the score of the example scores to the last digit.
    mean = torch.cat([forward, backward]).double().mean().item()
    return {f"{prefix}source_to_target": to_target, f"{prefix}target_to_source": to_source, f"{prefix}mean": mean}


def shares(score: Score, hits: Tensor) -> dict[str, float]:
    """Return the shares of hits, bool (queries, 2): on average, to the pivot and from it, by the scores' names."""
    means = directions("", *hits.T)
    keys = ("mean", "source_to_target", "target_to_source")
    return {directed.name: means[key] for directed, key in zip(score.directions(), keys, strict=True)}


def check_pool(size: int, what: str) -> None:
    """Raise an InputError for a pool of one candidate, which every query would find, or of none."""
    if size <= 1:
        raise InputError(f"retrieval has a pool of {size} ({what}), too few to score. Look at the columns read.")


def sentence_examples(hits: Tensor, sentences: Tensor, count: int) -> ExampleScores:
    """Return the example scores of retrieval, one for each of `count` sentences; their total is the mean score.

    Words of one sentence are not independent, so tests and intervals draw whole sentences. A sentence without a query
    keeps its place with counts of 0. `hits` bool (queries, 2) are those of both directions, `sentences` int64
    (queries,) the sentence of each query.

    Example:
        >>> hits = torch.tensor([[True, True], [False, True], [False, False]])
        >>> sentence_examples(hits, torch.tensor([0, 0, 2]), 3).score()
        0.5
    """
    rows = sentences.cpu().numpy()
    queries = 2 * np.bincount(rows, minlength=count)
    right = np.bincount(rows, weights=hits.sum(1).cpu().numpy(), minlength=count).astype(np.int64)
    return ExampleScores.from_counts(right, queries, queries)
