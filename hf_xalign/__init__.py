"""hf_xalign: align the languages of a multilingual encoder.

Names are imported on first use: `import hf_xalign` takes milliseconds and does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hf_xalign._version import __version__

if TYPE_CHECKING:
    from hf_xalign.data import load_parallel
    from hf_xalign.evaluation import encode_sentences, encode_words
    from hf_xalign.links import align_words, predict_links
    from hf_xalign.modeling.loading import load
    from hf_xalign.trainers import (
        AlignMLMConfig,
        AlignMLMTrainer,
        ContinualConfig,
        ContinualTrainer,
        FAOConfig,
        FAOTrainer,
        MAOConfig,
        MAOTrainer,
        PPAConfig,
        PPATrainer,
        TaskConfig,
        TaskTrainer,
    )

# Every other name is in hf_xalign.trainers.
_HOME = {
    "align_words": "hf_xalign.links",
    "load_parallel": "hf_xalign.data",
    "predict_links": "hf_xalign.links",
    "encode_sentences": "hf_xalign.evaluation",
    "encode_words": "hf_xalign.evaluation",
    "load": "hf_xalign.modeling.loading",
}

__all__ = [
    "AlignMLMConfig",
    "AlignMLMTrainer",
    "ContinualConfig",
    "ContinualTrainer",
    "FAOConfig",
    "FAOTrainer",
    "MAOConfig",
    "MAOTrainer",
    "PPAConfig",
    "PPATrainer",
    "TaskConfig",
    "TaskTrainer",
    "__version__",
    "align_words",
    "encode_sentences",
    "encode_words",
    "load",
    "load_parallel",
    "predict_links",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hf_xalign' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME.get(name, "hf_xalign.trainers")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
