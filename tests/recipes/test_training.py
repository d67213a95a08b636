"""What every recipe writes down of its training: the time, and the energy of the machine's counters."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from hf_xalign import energy
from hf_xalign.recipes.common import training


@pytest.fixture
def counter(tmp_path, monkeypatch):
    """A processor's counter, at 1 kWh."""
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    values = {"name": "package-0", "max_energy_range_uj": 9 * 3600 * 10**9, "energy_uj": 3600 * 10**9}
    for name, value in values.items():
        (zone / name).write_text(f"{value}\n")
    monkeypatch.setattr(energy, "EnergyMeter", partial(energy.EnergyMeter, powercap=tmp_path))
    return zone / "energy_uj"


def test_time_and_energy_of_a_whole_training(counter):
    record = {"times": {"seconds": {}}}
    with training(record, SimpleNamespace(n_gpu=0), resumed=False):
        counter.write_text(f"{3 * 3600 * 10**9}\n")
    assert record["energy"]["kwh"] == pytest.approx(2.0)
    assert record["times"]["seconds"]["training"] >= 0


def test_a_resumed_training_has_no_energy(counter):
    record = {"times": {"seconds": {}}}
    with training(record, SimpleNamespace(n_gpu=0), resumed=True):
        counter.write_text(f"{3 * 3600 * 10**9}\n")
    assert "energy" not in record and "training" in record["times"]["seconds"]


def test_a_training_that_fails_has_its_time(counter):
    record = {"times": {"seconds": {}}}
    with pytest.raises(KeyError), training(record, SimpleNamespace(n_gpu=0), resumed=False):
        raise KeyError
    assert "energy" not in record and "training" in record["times"]["seconds"]
