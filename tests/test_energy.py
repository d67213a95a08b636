"""Energy by counters that are files, and an NVML, made here."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
import torch
from support.numeric import assert_rounding

from hf_xalign import energy
from hf_xalign.energy import EnergyMeter

RANGE = 1_000_000


def zone(root, number, name, value, range_=RANGE):
    """A zone of RAPL; its counter's file."""
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_}\n")
    (folder / "energy_uj").write_text(f"{value}\n")
    return folder / "energy_uj"


class FakeNVMLError(Exception):
    """As pynvml's."""


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs that torch sees the other way round; their millijoules by uuid."""
    counters = {"GPU-a": 5000, "GPU-b": 70}

    def read(handle):
        if counters[handle] is None:
            raise FakeNVMLError("not supported")
        return counters[handle]

    module = ModuleType("pynvml")
    module.NVMLError = FakeNVMLError
    module.nvmlInit = lambda: None
    module.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    module.nvmlDeviceGetTotalEnergyConsumption = read
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda n: SimpleNamespace(uuid="ba"[n]))
    return counters


def test_packages_and_memory_are_summed_and_their_parts_are_not(tmp_path):
    package, other = zone(tmp_path, "0", "package-0", 100), zone(tmp_path, "1", "package-1", 500)
    core, memory = zone(tmp_path, "0:0", "core", 10), zone(tmp_path, "0:1", "dram", 7)
    whole = zone(tmp_path, "2", "psys", 1)
    with EnergyMeter(powercap=tmp_path) as meter:
        for counter, value in ((package, 1100), (other, 700), (core, 900), (memory, 37), (whole, 5000)):
            counter.write_text(str(value))
    found = meter.result()
    assert_rounding(found["kwh"], (1000 + 200 + 30) / 3.6e12, 2)
    assert found["measured"] == (
        "while training: CPU packages and memory by RAPL; other programs on the machine included"
    )


def test_a_counter_that_starts_again_and_again(tmp_path, monkeypatch):
    """It is read in between, too: its two ends would not tell."""
    monkeypatch.setattr(energy, "_SECONDS", 0.005)
    counter = zone(tmp_path, "0", "package-0", 0)
    with EnergyMeter(powercap=tmp_path) as meter:
        for turn in range(1, 7):
            counter.with_name("next").write_text(str(turn * 600_000 % RANGE))
            counter.with_name("next").replace(counter)
            deadline = time.monotonic() + 30
            while meter._kinds[0].used < turn * 600_000 and time.monotonic() < deadline:
                time.sleep(0.005)
    assert_rounding(meter.result()["kwh"], 6 * 600_000 / 3.6e12, 2)


def test_nothing_where_an_end_cannot_be_read(tmp_path):
    for broken in ("no folder", "no zone", "first reading", "last reading"):
        folder = tmp_path / broken
        if broken != "no folder":
            zone(folder, "0", "uncore" if broken == "no zone" else "package-0", 5)
            other = zone(folder, "1", "psys" if broken == "no zone" else "package-1", 5)
        if broken == "first reading":
            other.unlink()
        with EnergyMeter(powercap=folder) as meter:
            if broken == "last reading":
                other.unlink()
        assert meter.result() is None, broken


def test_gpus_are_those_that_torch_sees_and_are_added_to_processors(gpus, tmp_path):
    with EnergyMeter(gpus=1, powercap=tmp_path / "none") as meter:
        gpus.update({"GPU-a": 9000, "GPU-b": 75})
    assert_rounding(meter.result()["kwh"], 5000 / 3.6e12, 2)
    assert meter.result()["measured"].startswith("while training: 1 GPU by NVML, without the CPU;")
    counter = zone(tmp_path, "0", "package-0", 0)
    with EnergyMeter(gpus=2, powercap=tmp_path) as meter:
        counter.write_text("1234")
        gpus.update({"GPU-a": 9001, "GPU-b": 77})
    assert_rounding(meter.result()["kwh"], (1234 + 1000 + 2000) / 3.6e12, 2)
    assert meter.result()["measured"].startswith("while training: CPU packages by RAPL, 2 GPUs by NVML;")


def test_a_gpu_that_cannot_be_read_or_was_reset_is_left_out(gpus, tmp_path):
    counter = zone(tmp_path, "0", "package-0", 0)
    for after in (None, 69):
        gpus["GPU-b"] = 70
        counter.write_text("0")
        with EnergyMeter(gpus=1, powercap=tmp_path) as meter:
            counter.write_text("1000")
            gpus["GPU-b"] = after
        found = meter.result()
        assert_rounding(found["kwh"], 1000 / 3.6e12, 2)
        assert "CPU packages by RAPL, without the GPU;" in found["measured"], after


def test_nothing_without_nvml(gpus, tmp_path, monkeypatch):
    for why in ("no counter", "no package"):
        if why == "no counter":
            gpus["GPU-b"] = None
        else:
            monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it fails
        with EnergyMeter(gpus=1, powercap=tmp_path) as meter:
            pass
        assert meter.result() is None, why
