"""Bottleneck adapters inside the encoder's layers, and where in each family they go."""

from __future__ import annotations

import re
from typing import Literal

import torch
from torch import nn

Flow = Literal["pfeiffer", "adapterhub", "houlsby"]

# Where a layer's feed-forward block and its attention end, and the norm after the feed-forward block: BERT, RoBERTa,
# ELECTRA and DeBERTa; DistilBERT; ALBERT; ModernBERT (which norms before the block, so it has no such norm).
_FEEDFORWARD = r"layer\.\d+\.output\.dense|layer\.\d+\.ffn\.lin2|albert_layers\.\d+\.ffn_output|layers\.\d+\.mlp\.Wo"
_ATTENTION = (
    r"layer\.\d+\.attention\.output\.dense|layer\.\d+\.attention\.out_lin|albert_layers\.\d+\.attention\.dense"
    r"|layers\.\d+\.attn\.Wo"
)
_NORM = r"layer\.\d+\.output\.LayerNorm|layer\.\d+\.output_layer_norm|albert_layers\.\d+\.full_layer_layer_norm"

PLACES: dict[Flow, re.Pattern[str]] = {
    "pfeiffer": re.compile(rf"(?:.*\.)?(?:{_FEEDFORWARD})"),
    "adapterhub": re.compile(rf"(?:.*\.)?(?:{_NORM})"),
    "houlsby": re.compile(rf"(?:.*\.)?(?:{_FEEDFORWARD}|{_ATTENTION})"),
}


class Bottleneck(nn.Module):
    """up(relu(down(x))), d -> d / r -> d (Houlsby et al. 2019; Pfeiffer et al. 2020); the caller adds the residual.

    Args:
        hidden_size: d.
        reduction_factor: r.
        identity: start from a zero up-projection, so that nothing changes; else from N(0, 0.02), as AdapterHub does.
    """

    def __init__(self, hidden_size: int, *, reduction_factor: int, identity: bool):
        super().__init__()
        self.down = nn.Linear(hidden_size, hidden_size // reduction_factor)
        self.up = nn.Linear(hidden_size // reduction_factor, hidden_size)
        nn.init.normal_(self.down.weight, std=0.02)
        nn.init.zeros_(self.down.bias)
        nn.init.normal_(self.up.weight, std=0.0 if identity else 0.02)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """What the adapter adds to float (..., d)."""
        return self.up(torch.relu(self.down(states.to(self.down.weight.dtype)))).to(states.dtype)
