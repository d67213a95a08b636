"""The mean of the weights before and after training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback


def final_weights(share: float) -> str:
    """Return the shares of the weights before and after training in the average, as plain text."""
    return f"final weights: {share:g} before + {1 - share:g} after training"


class AverageAtEnd(TrainerCallback):
    """Average the trained weights with those before training at the end (WiSE-FT, Wortsman et al. 2022).

    The callback is made with the model before training, also in a resumed run, because checkpoints do not have those
    weights. It is the first callback, so that the others log and save the average. `share` is that of the weights
    before.
    """

    def __init__(self, model: nn.Module, share: float):
        trained = ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
        self._start = {name: weight.detach().to("cpu", copy=True) for name, weight in trained}
        self._share = share

    @torch.no_grad()
    def on_train_end(self, *_: Any, **of_trainer: Any) -> None:
        """Average in place."""
        for name, weight in of_trainer["model"].named_parameters():
            if name in self._start:
                weight.lerp_(self._start[name].to(weight.device), self._share)
