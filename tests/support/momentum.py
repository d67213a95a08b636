"""A momentum encoder with its queue, as a few steps of training leave them."""

import torch

from hf_xalign.modeling.contrast import KeyQueue, MomentumEncoder, SentenceHead
from support.tiny import make_encoder

SIZE, M = 6, 0.9


def make_query(normalize="before", seed=0, **options):
    encoder = make_encoder(seed, **options)
    return encoder, SentenceHead(16, SIZE, normalize=normalize)


def sentences(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 160, (rows, 9), generator=generator)
    mask = (torch.arange(9) < torch.randint(3, 10, (rows, 1), generator=generator)).long()
    return ids * mask, mask


def move(*modules, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad):
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def trained_momentum(frozen=True, slots=5, steps=3, layers=2):
    encoder, head = make_query(layers=layers)
    encoder.embeddings.requires_grad_(not frozen)
    momentum, queue = MomentumEncoder(encoder, head), KeyQueue(slots, SIZE)
    for step in range(steps):
        move(encoder, head, seed=step)
        momentum.update(encoder, head, M)
        queue.enqueue(momentum.encode(*sentences(3, step)), torch.arange(3) + 3 * step)
    return momentum, queue
