"""Vocabularies of two languages, and induced dictionaries by slow loops."""

from __future__ import annotations

import numpy as np
import torch

from hf_xalign.mapping.induction import dictionary_of
from hf_xalign.modeling.maps import unit
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


def induce_dictionary(source, target, *, direction="union", cutoff=20_000, **options):
    return dictionary_of(nearest_neighbours(source[:cutoff], target[:cutoff], **options), direction)


def share_found(found, source, target, partner):
    pairs = induce_dictionary(found.project(source), found.project(target, "target"), direction="forward")
    return (pairs[:, 1] == partner).double().mean().item()


def loop_scores(source, target, k, use_csls=True):
    x, z = (unit(side.double()).numpy() for side in (source, target))
    cosine = np.array([[float(np.dot(a, b)) for b in z] for a in x])
    if not use_csls:
        return cosine
    r_x = [np.mean(sorted(row)[-k:]) for row in cosine]
    r_z = [np.mean(sorted(column)[-k:]) for column in cosine.T]
    return np.array(
        [[2 * cosine[i, j] - r_x[i] - r_z[j] for j in range(len(z))] for i in range(len(x))],
    )


def loop_pairs(scores, direction):
    """Every direction by its definition; a score of -inf is no candidate."""
    rows, columns = scores.shape
    forward = [(i, max(range(columns), key=lambda j: scores[i, j])) for i in range(rows)]
    backward = [(max(range(rows), key=lambda i: scores[i, j]), j) for j in range(columns)]
    forward, backward = ([p for p in side if scores[p] > -np.inf] for side in (forward, backward))
    return {
        "forward": forward,
        "backward": backward,
        "union": forward + backward,
        "mutual": [p for p in forward if p in backward],
    }[direction]
