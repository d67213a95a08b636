"""Settings whose defaults are those of a published variant, the preset."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from transformers import SchedulerType

from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError
from hf_xalign.record import to_plain
from hf_xalign.trainers.shared.base_config import AlignmentConfig


def by_preset(group: str, help: str) -> Any:
    """A field whose value, where none is given, is the preset's; its type is that of the finished config."""
    return field(default=None, metadata={"help": f"{help} Default: by preset.", "group": group})


def own(default: Any, group: str, help: str) -> Any:
    """A field with a default of its own."""
    return field(default=default, metadata={"help": help, "group": group})


@dataclass
class PresetConfig(AlignmentConfig):
    """Settings of which those left at None take the preset's value.

    A method subclasses it, names its published variants in `PRESETS`, gives `preset` a default, and calls
    `check_preset`, `fill_from_preset` and `check_choices` in its `__post_init__`.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    preset: str = own("", "Objective", "Published variant.")
    learning_rate: float = by_preset("Schedule", "Peak learning rate.")
    num_train_epochs: float = by_preset("Schedule", "Epochs.")
    per_device_train_batch_size: int = by_preset("Schedule", "Sentence pairs a device and micro-batch.")
    lr_scheduler_type: SchedulerType | str = by_preset("Schedule", "Schedule.")
    warmup_steps: float = by_preset("Schedule", "Warm-up steps, below 1 a share of the run.")
    adam_beta1: float = by_preset("Schedule", "Adam's beta1.")
    adam_beta2: float = by_preset("Schedule", "Adam's beta2.")
    adam_epsilon: float = by_preset("Schedule", "Adam's epsilon.")
    weight_decay: float = by_preset("Schedule", "Decoupled weight decay.")
    max_grad_norm: float = by_preset("Schedule", "Clip the gradient to this norm; 0 for none.")

    def check_preset(self) -> None:
        """Refuse a preset that there is not.

        Raises:
            InputError: naming the nearest one.
        """
        if self.preset not in self.PRESETS:
            near = difflib.get_close_matches(self.preset, self.PRESETS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(self.PRESETS)}"
            raise InputError(f"preset={self.preset}: {hint}")

    def fill_from_preset(self) -> None:
        """Give every field at None the preset's value."""
        for name, value in self.PRESETS[self.preset].items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def check_choices(self) -> None:
        """Refuse a value that is none of its field's choices.

        Raises:
            InputError: naming the field and its choices.
        """
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name, None)
            if get_origin(hint) is Literal and value not in get_args(hint):
                raise InputError(f"{name}={value}: choose one of {', '.join(get_args(hint))}")

    def refuse_unused(self, reason: str, *names: str) -> None:
        """Refuse settings that nothing would read, where one has a value of its own.

        Raises:
            InputError: naming the field, with the reason.
        """
        given = self.changed()
        if unused := [name for name in names if name in given]:
            raise InputError(f"{unused[0]}={given[unused[0]]}: {reason}")

    def preset_values(self) -> dict[str, Any]:
        """What the preset sets, as plain JSON."""
        return {name: to_plain(value) for name, value in self.PRESETS[self.preset].items()}

    def changed(self) -> dict[str, Any]:
        """The settings that differ from the preset's and from the defaults, as plain JSON and without credentials."""
        preset = self.preset_values()
        derived = {"do_eval", "dataloader_pin_memory"}  # TrainingArguments sets them by eval_strategy and use_cpu
        found = non_default_fields(self).items()
        return {k: v for k, v in found if k not in derived and (k not in preset or preset[k] != v)}
