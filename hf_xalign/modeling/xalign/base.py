"""Know the encoder that an adapter was trained on again, in any dtype and with any head."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from peft import PeftConfig, PeftModel
from torch import nn

logger = logging.getLogger(__name__)

# LoRA's initialisations that leave the encoder's own weights as they are, besides true and false. PEFT gets new ones.
HARMLESS_STARTS = {"gaussian", "eva", "orthogonal", "mica"}
SKETCH = "base_sketch"

_SAMPLE = 1024  # numbers of a matrix that are looked at
_SCALE = 4000  # steps of a sketch's numbers, which are about as large as 1
# Six standard deviations of a sketched number by rounding, in units of the dtype's epsilon.
_ROUNDING = 1.25


def changed_start(config: PeftConfig) -> str | None:
    """Return the initialisation by which an adapter changes the encoder's own weights, if it does."""
    start = getattr(config, "init_lora_weights", True)
    return start if isinstance(start, str) and start.lower() not in HARMLESS_STARTS else None


def sketch_base(model: nn.Module) -> str | None:
    """Return the precision and a number for each matrix of an encoder; None on the meta device.

    A number is a fixed projection of a sample of the matrix, divided by its norm. Retraining by one part in a thousand
    moves it further than storing in float32 does. Pooler, heads and adapters do not count.
    """
    base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    base = getattr(base, base.base_model_prefix, base)
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        own = {name for name, tensor in type(base)(base.config).named_parameters() if tensor.ndim == 2}
    numbers, samples = [], []
    for name, tensor in sorted(base.named_parameters(), key=lambda one: _plain(one[0])):
        if _plain(name) not in own or name.startswith("pooler."):
            continue
        if tensor.is_meta:
            return None
        flat = tensor.detach().reshape(-1)
        samples.append(flat[:: max(1, len(flat) // _SAMPLE)][:_SAMPLE].cpu())
        sample = samples[-1].double().numpy()
        value = np.sqrt(2) * sample @ np.cos(np.arange(1, len(sample) + 1)) / max(np.linalg.norm(sample), 1e-30)
        numbers.append(np.clip(np.rint(_SCALE * value), -(2**15), 2**15 - 1))
    # The coarsest dtype that holds them all: weights that were rounded once stay rounded in another dtype.
    rounded = (
        kind
        for kind in ("bfloat16", "float16")
        if all(torch.equal(s, s.to(getattr(torch, kind)).to(s)) for s in samples)
    )
    return f"{next(rounded, 'float32')}:{np.array(numbers).astype('>i2').tobytes().hex()}"


def warn_of_other_base(sketch: str | None, name: str | None, model: nn.Module) -> None:
    """Warn if an adapter was trained on the encoder `name` with another sketch than `model` has."""
    now = sketch_base(model) if sketch else None
    if sketch and now and not same_base(sketch, now):
        logger.warning(
            "this adapter was trained on %s, and %s has other weights (it was retrained, or is another encoder of the "
            "same size), so the vectors may be worthless: load the adapter on the encoder that it was trained on",
            name or "an encoder without a name",
            getattr(model, "name_or_path", None) or type(model).__name__,
        )


def same_base(sketch: str, other: str) -> bool:
    """Return whether two sketches can be of one encoder, up to the rounding of their dtypes."""
    (dtype, numbers), (dtype2, numbers2) = (one.split(":") for one in (sketch, other))
    if len(numbers) != len(numbers2):
        return False
    epsilon = max(torch.finfo(getattr(torch, kind)).eps for kind in (dtype, dtype2))
    here, there = (np.frombuffer(bytes.fromhex(one), ">i2").astype(float) for one in (numbers, numbers2))
    return bool((np.abs(here - there) <= 2 + _SCALE * _ROUNDING * epsilon).all())


def _plain(name: str) -> str:
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")
