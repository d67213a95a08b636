"""The energy that a machine uses meanwhile, by its own counters: RAPL of the processors, NVML of NVIDIA's GPUs.

RAPL (https://docs.kernel.org/power/powercap/powercap.html) is readable by root only on most systems; NVML needs the
package nvidia-ml-py. Both count whatever runs on the machine.
"""

# Not codecarbon: it guesses where there is no counter, asks the network where the machine stands, and is heavy; nor
# pyJoules, which reads the counters at both ends only, between which they start again many times.

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

logger = logging.getLogger(__name__)

_POWERCAP = Path("/sys/class/powercap")
# The smallest counters hold 65 kJ: of two readings this far apart no processor makes them start again twice.
_SECONDS = 30.0
_MICROJOULES_A_KWH = 3.6e12


class EnergyMeter:
    """Adds up, within a `with` block, what the counters of this machine count.

    A kind of counters of which one cannot be read, be it in the end, is left out.

    Args:
        gpus: how many of the visible GPUs are in use, the first ones.
        powercap: the folder of the kernel's counters.
    """

    def __init__(self, *, gpus: int = 0, powercap: Path = _POWERCAP):
        self._gpus = gpus
        self._powercap = powercap
        self._kinds: list[_Counters] = []
        self._stop = threading.Event()
        # Also while a step of training takes minutes, which a callback would wait for.
        self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)

    def __enter__(self) -> EnergyMeter:
        found = [_rapl(self._powercap), _nvml(self._gpus) if self._gpus else None]
        self._kinds = [kind for kind in found if kind is not None]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    def result(self) -> dict[str, Any] | None:
        """`{kwh, measured}` of the block, as a record has them under `energy`; None where nothing could be read."""
        if not self._kinds:
            return None
        parts = [kind.what for kind in self._kinds]
        devices = {kind.device for kind in self._kinds}
        parts += [f"without the {name}" for name in ("CPU", "GPU")[: 1 + bool(self._gpus)] if name not in devices]
        return {
            "kwh": sum(kind.used for kind in self._kinds) / _MICROJOULES_A_KWH,
            "measured": f"while training: {', '.join(parts)}; other programs on the machine included",
        }

    def _watch(self) -> None:
        while not self._stop.wait(_SECONDS):
            self._read()

    def _read(self) -> None:
        for kind in list(self._kinds):
            if not kind.advance():
                self._kinds.remove(kind)


class _Counters:
    """Counters that are read together.

    Attributes:
        what: they count.
        device: the kind of device that they are of, "CPU" or "GPU".
        used: microjoules since the first reading, of all.

    Args:
        what: likewise.
        device: likewise.
        read: gives their microjoules, int (counters,).
        ranges: after how many microjoules each starts again at 0; None for one that never does.
        errors: what `read` raises where a counter cannot be read.
    """

    def __init__(
        self,
        what: str,
        device: str,
        read: Callable[[], list[int]],
        ranges: Sequence[int | None],
        errors: tuple[type[Exception], ...],
    ):
        self.what = what
        self.device = device
        self.used = 0
        self._read = read
        self._ranges = ranges
        self._errors = errors
        self._last = read()

    def advance(self) -> bool:
        """Add what was used since the last reading; False where that is not known."""
        try:
            now = self._read()
        except self._errors as error:
            logger.warning("no energy of the %s in the record: %s", self.device, error)
            return False
        for before, after, span in zip(self._last, now, self._ranges):
            if after < before and span is None:
                logger.warning("no energy of the %s in the record: its counter was set back", self.device)
                return False
            self.used += after - before + (span or 0) * (after < before)
        self._last = now
        return True


def _rapl(powercap: Path) -> _Counters | None:
    """The processors' packages, and their memory where it has a counter of its own."""
    errors = (OSError, ValueError)
    try:
        names = {path: (path / "name").read_text().strip() for path in sorted(powercap.glob("intel-rapl:*"))}
        # Cores are part of their package, and packages of `psys`.
        zones = [path for path, name in names.items() if name.startswith("package") or name == "dram"]
        if not zones:
            return None
        ranges = [int((path / "max_energy_range_uj").read_text()) for path in zones]
        what = "CPU packages" + (" and memory" if "dram" in names.values() else "") + " by RAPL"
        return _Counters(
            what, "CPU", lambda: [int((path / "energy_uj").read_text()) for path in zones], ranges, errors
        )
    except errors as error:
        logger.info("no energy of the CPU in the record: %s", error)
        return None


def _nvml(gpus: int) -> _Counters | None:
    """The first of the visible GPUs."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        logger.info("no energy of the GPU in the record: it needs the package nvidia-ml-py")
        return None
    try:
        pynvml.nvmlInit()
        # Not by their numbers, which CUDA_VISIBLE_DEVICES changes for torch only.
        uuids = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(gpus)]
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        return _Counters(
            f"{gpus} GPU{'s' * (gpus > 1)} by NVML",
            "GPU",
            lambda: [1000 * pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles],
            [None] * gpus,
            (pynvml.NVMLError,),
        )
    except pynvml.NVMLError as error:
        logger.info("no energy of the GPU in the record: %s", error)
        return None
