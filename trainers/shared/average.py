"""The mean of the weights before and after training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback


def final_weights(share: float) -> str:
    """Return how much of each weight in the average is from before and from after training, as plain text."""
    return f"final weights: {share:g} before + {1 - share:g} after training"


class AverageAtEnd(TrainerCallback):
    """Average the trained weights with those before training, once the best ones are loaded (WiSE-FT, Wortsman 2022).

    Made with the model before training, also in a run that is resumed: the weights of its start are in no checkpoint.
    First among the callbacks, so that the others log and keep the average. `share` is that of the weights before.
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
