"""Dataclasses with a field of every type that the settings' parser knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

from transformers import TrainingArguments


class Norm(Enum):
    L2 = "l2"
    SQUARED = "squared"


@dataclass
class Data:
    model_name: str = field(metadata={"help": "At 100% a Hub id."})
    train_data: list[str] = field(default_factory=lambda: ["embedded:de"])
    weights: dict[str, float] | None = None
    cls_token: bool = False


@dataclass
class Small:
    preset: str | None = field(default=None, metadata={"help": "A published variant."})
    rate: float = field(default=0.5, metadata={"help": "Step size.", "group": "Objective"})
    pooling: Literal["first", "last", "mean"] = field(default="first", metadata={"group": "Objective"})
    layers: list[int] | None = None
    steps: int = 3
    dropout: bool = True
    norm: Norm = Norm.SQUARED
    folder: Path | None = None
    hub_token: str | None = None


@dataclass
class Training(TrainingArguments):
    preset: str | None = field(default="mao", metadata={"help": "A published variant."})
    temperature: float = field(default=0.1, metadata={"help": "Of InfoNCE.", "group": "Objective"})
    learning_rate: float = 2e-5
    logging_steps: float = 10
