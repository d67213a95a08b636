"""Maps of tiny encoders' vectors, and tiny encoders with maps on their layers."""

from dataclasses import replace

import torch

from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.modeling.xalign.linear import map_adapter
from support.adapters import TEXT, make_base

LANGUAGES = ("en", "to")  # `to`, Tongan, is also the name of a method of modules


def make_map(seed=0, layers=(-1,), size=16, center=True, dtype=torch.float32, **settings):
    """A rotation, a far one; centered with an offset. `settings` are further fields of the map."""
    source, target = (
        torch.randn(40, len(layers), size, generator=torch.Generator().manual_seed(2 * seed + k)).to(dtype)
        for k in range(2)
    )
    return replace(procrustes(source + 1, target - 2, center=center, layers=layers), **settings)


def make_maps(layers=(-1,), dtype=torch.float32):
    return {language: make_map(k, layers, dtype=dtype, target_lang="de") for k, language in enumerate(LANGUAGES)}


def make_rotated(family="bert", layers=(-1,), dtype=torch.float32):
    return map_adapter(make_base(family).to(dtype), make_maps(layers, dtype)).eval()


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def conditioned(*shape, seed=0, condition=2.0):
    """Matrices (..., rows, columns) whose singular values run evenly from 1 to `condition`; 1 gives rotations."""
    u, _, vh = torch.linalg.svd(normal(*shape, seed=seed), full_matrices=False)
    return u * torch.linspace(1, condition, min(shape[-2:]), dtype=torch.float64) @ vh


@torch.no_grad()
def run(model, **inputs):
    return model(**{**TEXT, "output_hidden_states": True, **inputs})


def by_hand(one, layer, states):
    return one.of([layer]).project(states.flatten(0, 1)).view_as(states)
