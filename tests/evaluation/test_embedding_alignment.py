"""The alignment of input embeddings against brute force, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.nearest import scores, vectors

from hf_xalign.evaluation.embedding_alignment import alignment_of_entries, alignment_of_model, embedding_alignment

pytestmark = pytest.mark.numeric


def planted(seed=0, rows=70, dim=8, noise=0.6):
    sources = vectors(seed, rows, dim)
    return sources, sources + noise * vectors(seed + 50, rows, dim)


def hits_of(sources, candidates, golds):
    """The hits, and whom each source finds; `golds` is a set for each source."""
    found = scores(sources, candidates, "cosine").argmax(1).tolist()
    return [near in gold for near, gold in zip(found, golds, strict=True)], found


def test_golds_in_every_form():
    sources, candidates = planted()
    order = torch.randperm(70, generator=torch.Generator().manual_seed(1))
    hits, found = hits_of(sources, candidates[order], [{int(n)} for n in order.argsort()])
    result = embedding_alignment(sources, candidates[order], order.argsort())
    assert result.hits.tolist() == hits and result.nearest.tolist() == found and result.candidates == 70
    assert result.share == np.mean(hits) and 0.1 < result.share < 0.9
    table = torch.full((70, 3), -1)
    table[:, 1] = torch.arange(70)
    table[1::3, 0] = torch.tensor(hits_of(sources, candidates, [()] * 70)[1])[1::3]
    table[2::3, 2] = torch.arange(70)[2::3].flip(0)
    golds = [[n for n in row if n >= 0] for row in table.tolist()]
    several, _ = hits_of(sources, candidates, golds)
    assert embedding_alignment(sources, candidates, table).hits.tolist() == several
    assert embedding_alignment(sources, candidates, golds).hits.tolist() == several
    assert sum(several) > sum(hits) and not all(several)
    given = result.scores(bootstrap=200)
    assert given["alignment_low"] < given["alignment"] == result.share < given["alignment_high"]
    assert (given["sources"], given["candidates"]) == (70, 70)
    assert set(result.scores(bootstrap=0)) == {"alignment", "sources", "candidates"}


def test_identical_shuffled_unrelated_and_equal_embeddings():
    x, other, gold = vectors(3, 300, dim=32), vectors(4, 300, dim=32), torch.arange(300)
    assert embedding_alignment(x, 3 * x, gold).share == 1
    assert embedding_alignment(x, x, gold.roll(1)).share == 0
    assert embedding_alignment(x, other, gold).share < 0.03
    candidates = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    assert embedding_alignment(candidates, candidates, gold[:3]).hits.tolist() == [True, False, True]
    assert embedding_alignment(torch.ones(50, 4), torch.ones(50, 4), gold[:50]).share == 1 / 50


def test_csls_finds_behind_a_hub():
    sources = torch.randn(60, 64, generator=torch.Generator().manual_seed(5)) + 1.0
    noise = torch.randn(60, 64, generator=torch.Generator().manual_seed(6))
    candidates = torch.cat([sources + 1.5 * noise, sources.mean(0, keepdim=True)])
    plain, fair = (
        embedding_alignment(sources, candidates, torch.arange(60), similarity=kind).share
        for kind in ("cosine", "csls")
    )
    assert fair > plain + 0.1


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


def test_one_way_only():
    source, target = torch.tensor([[1.0, 0.0], [0.9, 0.5]]), torch.tensor([[1.0, 0.1], [0.2, 1.0]])
    entries = np.array([[0, 0], [1, 1]])
    assert alignment_of_entries(source, target, entries).hits.tolist() == [True, False]
    assert alignment_of_entries(target, source, entries[:, [1, 0]]).hits.tolist() == [True, True]
