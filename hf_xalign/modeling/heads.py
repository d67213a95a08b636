"""Small trained modules that an objective needs beside the encoder."""

from __future__ import annotations

import torch
from torch import nn


class ProjectionHead(nn.Module):
    """W2 ReLU(W1 x), d -> d -> size, no biases: the projection that word-level InfoNCE compares vectors in.

    Wu and Dredze (2020); size 128 there.
    """

    def __init__(self, hidden_size: int, size: int):
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.out = nn.Linear(hidden_size, size, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project float (..., hidden_size) to (..., size)."""
        return self.out(torch.relu(self.hidden(vectors)))
