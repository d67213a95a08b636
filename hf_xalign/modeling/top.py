"""The modules that MAO puts on top of a frozen encoder: a linear map, or one transformer layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Rotation(nn.Module):
    """x -> R x with R = exp(S - S^T), S strictly upper triangular: orthogonal whatever the optimizer does to S.

    `torch.nn.utils.parametrizations.orthogonal` would do, but keeps a buffer beside its parameter that every format
    of adapters had to carry.

    Args:
        hidden_size: d.
        identity: start from S = 0, so R = I; else from a random rotation.
    """

    def __init__(self, hidden_size: int, *, identity: bool):
        super().__init__()
        self.skew = nn.Parameter(torch.zeros(hidden_size, hidden_size))
        if not identity:
            nn.init.normal_(self.skew, std=hidden_size**-0.5)

    def matrix(self) -> torch.Tensor:
        """R, float (d, d)."""
        upper = torch.triu(self.skew, diagonal=1)
        return torch.linalg.matrix_exp(upper - upper.T)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Rotate float (..., d)."""
        return vectors @ self.matrix().T


class LinearTop(nn.Module):
    """One d x d map of every vector (MAO section 4), shared by all languages or one for each.

    Args:
        hidden_size: d.
        identity: start as the identity; else as `nn.Linear` starts, the published way.
        bias: add a vector to the product (the published layer has none).
        orthogonal: a rotation, without bias.
        languages: languages with a map of their own; empty for one shared map.
    """

    def __init__(
        self, hidden_size: int, *, identity: bool, bias: bool, orthogonal: bool, languages: Sequence[str] = ()
    ):
        super().__init__()
        # The prefix keeps a language's code (`to` is Tongan) from being the name of a method of modules.
        self.names = [f"map_{language}" for language in languages] or ["shared"]
        self.per_language = bool(languages)
        for name in self.names:
            if orthogonal:
                module: nn.Module = Rotation(hidden_size, identity=identity)
            else:
                module = nn.Linear(hidden_size, hidden_size, bias=bias)
                if identity:
                    nn.init.eye_(module.weight)
                    if bias:
                        nn.init.zeros_(module.bias)
            self.add_module(name, module)

    def forward(
        self, vectors: torch.Tensor, mask: torch.Tensor | None = None, language: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Map vectors.

        Args:
            vectors: float (rows, width, d).
            mask: not looked at: every vector is mapped alone.
            language: with a map for each language int64 (rows,) or (rows, width): 0 for the pivot, which stays as it
                is, k for the k-th language.

        Returns:
            float (rows, width, d).
        """
        if not self.per_language or language is None:
            return self.get_submodule(self.names[0])(vectors)
        owner = language if language.dim() == 2 else language.unsqueeze(-1).expand(vectors.shape[:2])
        owner, flat = owner.reshape(-1), vectors.reshape(-1, vectors.shape[-1])
        mapped = flat
        for k, name in enumerate(self.names, start=1):
            # A map without a row in this batch takes part too: DistributedDataParallel waits for every parameter.
            rows = (owner == k).nonzero().squeeze(-1)
            mapped = mapped.index_copy(0, rows, self.get_submodule(name)(flat[rows]))
        return mapped.view_as(vectors)


class TransformerTop(nn.Module):
    """One transformer layer over the vectors of a sentence (MAO section 4).

    Published: y = T(x) from a random start. With `identity` y = x + g (T(x) - x), with g a vector that starts at
    zero: nothing changes until training moves it.

    Args:
        hidden_size: d.
        num_heads: attention heads; they divide d.
        feedforward_size: width of the feed-forward block.
        dropout: dropout inside the layer.
        context: attend over the sentence; else each vector sees itself only, as in the public copy of MAO's code,
            whose sequences have length 1.
        identity: start as the identity.
    """

    def __init__(
        self, hidden_size: int, *, num_heads: int, feedforward_size: int, dropout: float, context: bool, identity: bool
    ):
        super().__init__()
        self.context = context
        self.layer = nn.TransformerEncoderLayer(hidden_size, num_heads, feedforward_size, dropout, batch_first=True)
        self.gate = nn.Parameter(torch.zeros(hidden_size)) if identity else None

    def forward(
        self, vectors: torch.Tensor, mask: torch.Tensor | None = None, language: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Run the layer.

        Args:
            vectors: float (rows, width, d).
            mask: bool (rows, width), False at padding; None for no padding.
            language: not looked at.

        Returns:
            float (rows, width, d).
        """
        if not self.context:
            mapped = self.layer(vectors.reshape(-1, 1, vectors.shape[-1])).view_as(vectors)
        elif mask is None:
            mapped = self.layer(vectors)
        else:
            # A row without any vector would attend over nothing, which is NaN.
            empty = ~mask.any(dim=1, keepdim=True)
            mapped = self.layer(vectors, src_key_padding_mask=~(mask | empty))
        return mapped if self.gate is None else vectors + self.gate * (mapped - vectors)
