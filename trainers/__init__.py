"""One config and one `Trainer` subclass per method; names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

from hf_xalign.errors import NonFiniteLossError

if TYPE_CHECKING:
    from hf_xalign.trainers.align_mlm import AlignMLMTrainer as AlignMLMTrainer
    from hf_xalign.trainers.align_mlm_config import AlignMLMConfig as AlignMLMConfig
    from hf_xalign.trainers.base.seeds import train_seeds as train_seeds
    from hf_xalign.trainers.base.trainer import AlignmentTrainer as AlignmentTrainer
    from hf_xalign.trainers.base.trainer_config import AlignmentConfig as AlignmentConfig
    from hf_xalign.trainers.base.word import WordAlignmentTrainer as WordAlignmentTrainer
    from hf_xalign.trainers.base.word_config import WordAlignmentConfig as WordAlignmentConfig
    from hf_xalign.trainers.continual import ContinualTrainer as ContinualTrainer
    from hf_xalign.trainers.continual_config import ContinualConfig as ContinualConfig
    from hf_xalign.trainers.fao import FAOTrainer as FAOTrainer
    from hf_xalign.trainers.fao_config import FAOConfig as FAOConfig
    from hf_xalign.trainers.mao import MAOTrainer as MAOTrainer
    from hf_xalign.trainers.mao_config import MAOConfig as MAOConfig
    from hf_xalign.trainers.mapping.trainer import MappingTrainer as MappingTrainer
    from hf_xalign.trainers.mapping.trainer_config import MappingConfig as MappingConfig
    from hf_xalign.trainers.mapping.vectors import VectorMappingTrainer as VectorMappingTrainer
    from hf_xalign.trainers.ppa import PPATrainer as PPATrainer
    from hf_xalign.trainers.ppa_config import PPAConfig as PPAConfig
    from hf_xalign.trainers.task import TaskTrainer as TaskTrainer
    from hf_xalign.trainers.task_config import TaskConfig as TaskConfig

_HOME = {
    "AlignMLM": "align_mlm",
    "Alignment": "base.trainer",
    "Continual": "continual",
    "FAO": "fao",
    "MAO": "mao",
    "Mapping": "mapping.trainer",
    "PPA": "ppa",
    "Task": "task",
    "WordAlignment": "base.word",
}
# Names that are not those of a method's config and trainer.
_OTHERS = {"VectorMappingTrainer": "mapping.vectors", "train_seeds": "base.seeds"}
__all__ = [
    "NonFiniteLossError",
    *_OTHERS,
    *(f"{method}{part}" for method in _HOME for part in ("Config", "Trainer")),
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _OTHERS:
        return getattr(import_module(f"{__name__}.{_OTHERS[name]}"), name)
    module = _HOME[name.removesuffix("Trainer").removesuffix("Config")]
    return getattr(import_module(f"{__name__}.{module}{'_config' * name.endswith('Config')}"), name)
