"""One config and one `Trainer` subclass per method."""

from hf_xalign.errors import NonFiniteLossError
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
