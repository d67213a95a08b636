"""How each method trains: a config and a `Trainer` subclass a method."""

from hf_xalign.errors import NonFiniteLossError
from hf_xalign.trainers.base import AlignmentConfig, AlignmentTrainer
from hf_xalign.trainers.fao import FAOTrainer
from hf_xalign.trainers.fao_config import FAOConfig

__all__ = ["AlignmentConfig", "AlignmentTrainer", "FAOConfig", "FAOTrainer", "NonFiniteLossError"]
