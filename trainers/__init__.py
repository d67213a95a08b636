"""One config and one `Trainer` subclass per method; names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hf_xalign.errors import NonFiniteLossError

if TYPE_CHECKING:
    from hf_xalign.trainers.align_mlm import AlignMLMTrainer
    from hf_xalign.trainers.align_mlm_config import AlignMLMConfig
    from hf_xalign.trainers.continual import ContinualTrainer
    from hf_xalign.trainers.continual_config import ContinualConfig
    from hf_xalign.trainers.fao import FAOTrainer
    from hf_xalign.trainers.fao_config import FAOConfig
    from hf_xalign.trainers.mao import MAOTrainer
    from hf_xalign.trainers.mao_config import MAOConfig
    from hf_xalign.trainers.ppa import PPATrainer
    from hf_xalign.trainers.ppa_config import PPAConfig
    from hf_xalign.trainers.shared.base import AlignmentTrainer
    from hf_xalign.trainers.shared.base_config import AlignmentConfig
    from hf_xalign.trainers.shared.word import WordAlignmentTrainer
    from hf_xalign.trainers.shared.word_config import WordAlignmentConfig
    from hf_xalign.trainers.task import TaskTrainer
    from hf_xalign.trainers.task_config import TaskConfig

__all__ = [
    "AlignMLMConfig",
    "AlignMLMTrainer",
    "AlignmentConfig",
    "AlignmentTrainer",
    "ContinualConfig",
    "ContinualTrainer",
    "FAOConfig",
    "FAOTrainer",
    "MAOConfig",
    "MAOTrainer",
    "NonFiniteLossError",
    "PPAConfig",
    "PPATrainer",
    "TaskConfig",
    "TaskTrainer",
    "WordAlignmentConfig",
    "WordAlignmentTrainer",
]
_HOME = {
    "AlignMLM": "align_mlm",
    "Alignment": "shared.base",
    "Continual": "continual",
    "FAO": "fao",
    "MAO": "mao",
    "PPA": "ppa",
    "Task": "task",
    "WordAlignment": "shared.word",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _HOME[name.removesuffix("Trainer").removesuffix("Config")]
    return getattr(import_module(f"{__name__}.{module}{'_config' * name.endswith('Config')}"), name)
