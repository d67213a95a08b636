"""The alignment of input embeddings against brute force, and by hand."""

import numpy as np
import pytest
import torch
from support.nearest import scores, vectors

from hf_xalign.evaluation.embedding_alignment import alignment_of_entries, alignment_of_model

pytestmark = pytest.mark.numeric


def planted(seed=0, rows=70, dim=8, noise=0.6):
    sources = vectors(seed, rows, dim)
    return sources, sources + noise * vectors(seed + 50, rows, dim)


def hits_of(sources, candidates, golds):
    """The hits, and whom each source finds; `golds` is a set for each source."""
    found = scores(sources, candidates, "cosine").argmax(1).tolist()
    return [near in gold for near, gold in zip(found, golds, strict=True)], found


def share(sources, candidates, golds, **options):
    return alignment_of_entries(sources, candidates, list(enumerate(golds)), range(len(candidates)), **options).share


def test_one_and_several_counterparts():
    sources, candidates = planted()
    order = torch.randperm(70, generator=torch.Generator().manual_seed(1)).tolist()
    hits, found = hits_of(sources, candidates, [{n} for n in order])
    result = alignment_of_entries(sources, candidates, list(enumerate(order)))
    assert result.hits.tolist() == hits and result.nearest.tolist() == found and result.candidates == 70
    found = hits_of(sources, candidates, [()] * 70)[1]
    golds = [{n, *found[n : n + 1]} if n % 3 == 0 else {n} for n in range(70)]  # a third have their nearest as well
    several, _ = hits_of(sources, candidates, golds)
    result = alignment_of_entries(sources, candidates, [(n, gold) for n, own in enumerate(golds) for gold in own])
    assert result.hits.tolist() == several and result.share == np.mean(several) and 0.1 < result.share < 0.99
    given = result.scores(bootstrap=200)
    assert given["alignment_low"] < given["alignment"] == result.share < given["alignment_high"]
    assert (given["sources"], given["candidates"]) == (70, 70)
    assert set(result.scores(bootstrap=0)) == {"alignment", "sources", "candidates"}


def test_identical_shuffled_and_equal_embeddings():
    x, gold = vectors(3, 300, dim=32), list(range(300))
    assert share(x, 3 * x, gold) == 1
    assert share(x, x, gold[1:] + gold[:1]) == 0
    assert share(torch.ones(50, 4), torch.ones(50, 4), gold[:50]) == 1 / 50, "the first of equal candidates"


def test_csls_finds_behind_a_hub():
    sources = torch.randn(60, 64, generator=torch.Generator().manual_seed(5)) + 1.0
    noise = torch.randn(60, 64, generator=torch.Generator().manual_seed(6))
    candidates = torch.cat([sources + 1.5 * noise, sources.mean(0, keepdim=True)])
    assert share(sources, candidates, range(60), similarity="csls") > share(sources, candidates, range(60)) + 0.1


def test_of_a_model_keeps_the_order_of_the_entries(encoder):
    embeddings = encoder.get_input_embeddings().weight.detach()
    entries = torch.tensor([[9, 50], [3, 51], [9, 52], [7, 50], [3, 53]])
    with torch.no_grad():
        embeddings[51] = 2 * embeddings[3]
        embeddings[52] = embeddings[9]
        embeddings[90] = embeddings[7]
    found = alignment_of_model(encoder, entries)
    pool = [50, 51, 52, 53]
    hits, near = hits_of(embeddings[[9, 3, 7]], embeddings[pool], [{0, 2}, {1, 3}, {0}])
    assert found.hits.tolist() == hits and found.nearest.tolist() == [pool[n] for n in near]
    assert found.hits[:2].all() and found.candidates == 4 and found.share == np.mean(hits)
    wider = alignment_of_model(encoder, entries, candidates=[53, 90, 52, 51, 50, 90])
    assert wider.nearest.tolist()[2] == 90 and not wider.hits[2] and wider.candidates == 5
