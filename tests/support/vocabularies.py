"""Vocabularies of two languages."""

import torch

from hf_xalign.search.csls import nearest_neighbours


def vectors(seed, words, size):
    return torch.randn(words, size, generator=torch.Generator().manual_seed(seed))


def rotation(seed, size):
    return torch.linalg.qr(vectors(seed, size, size).double()).Q.float()


def languages(words=300, size=20, noise=0.35, order=False):
    """Two vocabularies, a rotation, an offset and noise apart; word i's translation is partner[i]."""
    source = vectors(0, words, size) + 0.5
    partner = torch.arange(words)
    if order:
        partner = torch.randperm(words, generator=torch.Generator().manual_seed(9))
    target = torch.empty_like(source)
    target[partner] = source @ rotation(1, size).T + noise * vectors(2, words, size) + 0.3
    return source, target, partner


def mutual_pairs(source, target):
    here, there = nearest_neighbours(source, target)
    return torch.tensor([(i, j) for i, j in enumerate(here.tolist()) if there[j] == i])


def share_found(found, source, target, partner):
    here, _ = nearest_neighbours(found.project(source), found.project(target, "target"))
    return (here == partner).double().mean().item()
