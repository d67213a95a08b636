"""Recognise the encoder that an adapter was trained on, in any dtype and with any head."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from peft import PeftConfig, PeftModel
from torch import nn

logger = logging.getLogger(__name__)

# Initialisations of LoRA that do not change the encoder's weights, in addition to true and false. PEFT adds new ones.
HARMLESS_STARTS = {"gaussian", "eva", "orthogonal", "mica"}
SKETCH = "base_sketch"
_SAMPLE = 1024  # values that are sampled from a matrix
_SCALE = 4000  # quantisation of a sketch's numbers, which are of the order of 1
_ROUNDING = 1.25  # six standard deviations of a number's rounding error, in units of the dtype's epsilon


def changed_start(config: PeftConfig) -> str | None:
    """Return an adapter's initialisation if it changes the encoder's own weights, else None."""
    start = getattr(config, "init_lora_weights", True)
    return start if isinstance(start, str) and start.lower() not in HARMLESS_STARTS else None


def sketch_base(model: nn.Module) -> str | None:
    """Return a string with the dtype and a number for each matrix of an encoder; None on the meta device.

    The number is a fixed projection of a sample of the matrix, divided by the sample's norm. Retraining by one part in
    a thousand changes it more than storing in float32 does. Pooler, heads and adapters are ignored.
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
    # The coarsest dtype that represents all samples, because weights that were rounded once stay rounded.
    rounded = (
        kind
        for kind in ("bfloat16", "float16")
        if all(torch.equal(s, s.to(getattr(torch, kind)).to(s)) for s in samples)
    )
    return f"{next(rounded, 'float32')}:{np.array(numbers).astype('>i2').tobytes().hex()}"


def warn_of_other_base(sketch: str | None, name: str | None, model: nn.Module) -> None:
    """Warn if the encoder that an adapter was trained on, called `name`, has another sketch than `model`."""
    now = sketch_base(model) if sketch else None
    if sketch and now and not same_base(sketch, now):
        logger.warning(
            "this adapter was trained on %s, but %s has other weights (it was retrained, or is another encoder of the "
            "same size), so the vectors may be worthless. Load the adapter on the encoder that it was trained on",
            name or "an encoder without a name",
            getattr(model, "name_or_path", None) or type(model).__name__,
        )


def same_base(sketch: str, other: str) -> bool:
    """Return whether two sketches can be of the same encoder, up to the rounding of their dtypes."""
    (dtype, numbers), (dtype2, numbers2) = (one.split(":") for one in (sketch, other))
    if len(numbers) != len(numbers2):
        return False
    epsilon = max(torch.finfo(getattr(torch, kind)).eps for kind in (dtype, dtype2))
    here, there = (np.frombuffer(bytes.fromhex(one), ">i2").astype(float) for one in (numbers, numbers2))
    return bool((np.abs(here - there) <= 2 + _SCALE * _ROUNDING * epsilon).all())


def _plain(name: str) -> str:
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")
