"""Maps of tiny encoders' vectors, and tiny encoders with maps inside."""

from __future__ import annotations

from dataclasses import replace

import torch

from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.rotated import RotatedModel
from support.adapters import TEXT, make_base

LANGUAGES = ("en", "to")  # `to`, Tongan, is also the name of a method of modules


def make_map(seed=0, layers=(-1,), size=16, centre=True, **settings):
    """A rotation, a far one; centred with an offset. `settings` are further fields of the map."""
    source, target = (
        torch.randn(40, len(layers), size, generator=torch.Generator().manual_seed(2 * seed + k)) for k in range(2)
    )
    return replace(procrustes(source + 1, target - 2, centre=centre, layers=layers), **settings)


def make_maps(layers=(-1,)):
    return {language: make_map(k, layers) for k, language in enumerate(LANGUAGES)}


def make_rotated(family="bert", layers=(-1,), pivot="de"):
    return RotatedModel.from_maps(make_base(family), make_maps(layers), pivot=pivot)


@torch.no_grad()
def run(model, **inputs):
    return model(**{**TEXT, "output_hidden_states": True, **inputs})


def by_hand(one, layer, states):
    return one.of([layer]).apply(states.flatten(0, 1)).view_as(states)
