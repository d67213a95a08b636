"""hf_xalign: align the languages of a multilingual encoder.

Names are imported on first use, so `import hf_xalign` takes milliseconds and does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hf_xalign._version import __version__

if TYPE_CHECKING:
    from hf_xalign.data.load import load_parallel as load_parallel
    from hf_xalign.evaluation import encode_sentences as encode_sentences
    from hf_xalign.evaluation import encode_words as encode_words
    from hf_xalign.links import align_words as align_words
    from hf_xalign.links import predict_links as predict_links
    from hf_xalign.modeling.loading import load as load
    from hf_xalign.statistics.comparison import compare as compare
    from hf_xalign.trainers import AlignMLMConfig as AlignMLMConfig
    from hf_xalign.trainers import AlignMLMTrainer as AlignMLMTrainer
    from hf_xalign.trainers import ContinualConfig as ContinualConfig
    from hf_xalign.trainers import ContinualTrainer as ContinualTrainer
    from hf_xalign.trainers import FAOConfig as FAOConfig
    from hf_xalign.trainers import FAOTrainer as FAOTrainer
    from hf_xalign.trainers import MAOConfig as MAOConfig
    from hf_xalign.trainers import MAOTrainer as MAOTrainer
    from hf_xalign.trainers import MappingConfig as MappingConfig
    from hf_xalign.trainers import MappingTrainer as MappingTrainer
    from hf_xalign.trainers import PPAConfig as PPAConfig
    from hf_xalign.trainers import PPATrainer as PPATrainer
    from hf_xalign.trainers import TaskConfig as TaskConfig
    from hf_xalign.trainers import TaskTrainer as TaskTrainer
    from hf_xalign.trainers import VectorMappingTrainer as VectorMappingTrainer
    from hf_xalign.trainers import train_seeds as train_seeds

# Every other name is in hf_xalign.trainers.
_HOME = {
    "align_words": "hf_xalign.links",
    "compare": "hf_xalign.statistics.comparison",
    "load_parallel": "hf_xalign.data.load",
    "predict_links": "hf_xalign.links",
    "encode_sentences": "hf_xalign.evaluation",
    "encode_words": "hf_xalign.evaluation",
    "load": "hf_xalign.modeling.loading",
}
_METHODS = ("AlignMLM", "Continual", "FAO", "MAO", "Mapping", "PPA", "Task")

__all__ = [
    "__version__",
    "VectorMappingTrainer",
    "train_seeds",
    *_HOME,
    *(f"{method}{part}" for method in _METHODS for part in ("Config", "Trainer")),
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'hf_xalign' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME.get(name, "hf_xalign.trainers")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
