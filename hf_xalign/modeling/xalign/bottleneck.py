"""Bottleneck adapters inside the encoder's layers."""

from __future__ import annotations

from typing import cast

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from hf_xalign.modeling.xalign.config import XAlignConfig


class Bottleneck(nn.Module):
    """Bottleneck up(relu(down(x))), d -> d / r -> d, without residual (Houlsby et al. 2019; Pfeiffer et al. 2020).

    With `init="identity"` the up-projection starts at zero; otherwise both start from N(0, 0.02), as in AdapterHub.
    """

    def __init__(self, size: int, config: XAlignConfig):
        super().__init__()
        self.down = nn.Linear(size, size // config.reduction_factor)
        self.up = nn.Linear(size // config.reduction_factor, size)
        nn.init.normal_(self.down.weight, std=0.02)
        nn.init.zeros_(self.down.bias)
        nn.init.normal_(self.up.weight, std=0.0 if config.init == "identity" else 0.02)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the adapter's update of float (..., d)."""
        return self.up(torch.relu(self.down(states.to(self.down.weight.dtype)))).to(states.dtype)


class XAlignLayer(nn.Module, BaseTunerLayer):
    """Base class of layers whose modules PEFT enables, saves and deletes by adapter name."""

    def enable_adapters(self, enabled: bool) -> None:
        """Switch all adapters on or off; PEFT's own method would make frozen ones trainable."""
        self._disable_adapters = not enabled

    def _register(self, adapter_name: str, module: nn.Module) -> None:
        """Add `module` as an adapter, on the device and in the dtype of the encoder's weights."""
        device, dtype = self._get_base_layer_device_and_dtype(self.get_base_layer())
        if not any(parameter.is_meta for parameter in module.parameters()):
            module = module.to(device)  # modules on the meta device get saved weights later (`low_cpu_mem_usage`)
        entries = getattr(self, self.adapter_layer_names[0])
        entries[adapter_name] = module.to(dtype).train(self.training)
        self.set_adapter(self.active_adapters)

    def _get_base_layer_device_and_dtype(self, base_layer: nn.Module) -> tuple[torch.device, torch.dtype]:
        like = next(base_layer.parameters())
        return like.device, like.dtype

    def _active(self, entries: nn.ModuleDict) -> list[nn.Module]:
        if self.disable_adapters:
            return []
        return [entries[name] for name in self.active_adapters if name in entries]


class BottleneckLayer(XAlignLayer):
    """Linear layer followed by a bottleneck adapter with residual: h + up(relu(down(h)))."""

    adapter_layer_names = ("xalign_bottleneck",)

    def __init__(self, base_layer: nn.Module):
        super().__init__()
        self.base_layer = base_layer
        self.xalign_bottleneck = nn.ModuleDict()
        self.train(base_layer.training)

    def update_layer(self, adapter_name: str, config: XAlignConfig) -> None:
        """Add an adapter."""
        self._register(adapter_name, Bottleneck(cast(int, config.hidden_size), config))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the layer's output (..., d), adapted."""
        output = self.base_layer(states)
        for adapter in self._active(self.xalign_bottleneck):
            output = output + adapter(output)
        return output


class NormBottleneckLayer(BottleneckLayer):
    """AdapterHub's flow, at the layer norm that ends a layer.

    The input is s = h + a, the outputs of the feed-forward block and of attention. x = LN(s), and the output is
    LN(s + up(relu(down(x)))).
    """

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the norm's output (..., d), adapted."""
        output = self.base_layer(states)
        for adapter in self._active(self.xalign_bottleneck):
            states = states + adapter(output)
            output = self.base_layer(states)
        return output
