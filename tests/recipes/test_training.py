"""What every recipe does the same way: a dry run, the record of training, and how it fails."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.numeric import assert_rounding
from support.recipe import command, on_files, output_of, record_of, task_command
from transformers import AutoModel

from hf_xalign import energy
from hf_xalign.recipes import fao, finetune, mao, mapping, ppa
from hf_xalign.recipes.common import run, training


def test_dry_run_trains_and_writes_nothing(files, tmp_path):
    out = tmp_path / "out"
    sentences = ("--min_tokens", "1", "--max_tokens", "60", "--queue_size", "16")
    dry = {
        "fao": (fao, command(files, "--reference", "cache", out=out), ("links", "minutes", "MB of word vectors")),
        "mao": (mao, command(files, out=out), ("minutes", "MB of word vectors")),
        "ppa": (ppa, command(files, *sentences, out=out), ("nothing was trained",)),
        "mapping": (mapping, [*on_files(files, out), "--device", "cpu"], ("nothing was learnt",)),
        "finetune": (
            finetune,
            task_command(files, "--seeds", "0", "1", out=out),
            ("nothing was trained", "seeds    2: "),
        ),
    }
    for name, (recipe, words, said) in dry.items():
        report = [] if recipe is mapping else ["--report_to", "none"]
        text = output_of(recipe.main, [*words, "--dry_run", "true", *report])
        assert all(part in text for part in said), f"{name}: {text}"
        assert not out.exists(), name


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


@pytest.mark.parametrize("ending", ["whole", "resumed", "failed"])
def test_time_and_energy_of_a_training(counter, ending):
    """The energy is that of a whole training only."""
    record = {"times": {"seconds": {}}}
    try:
        with training(record, SimpleNamespace(n_gpu=0), resumed=ending == "resumed"):
            counter.write_text(f"{3 * 3600 * 10**9}\n")
            if ending == "failed":
                raise KeyError
    except KeyError:
        assert ending == "failed"
    assert record["times"]["seconds"]["training"] >= 0
    assert ("energy" in record) == (ending == "whole")
    if ending == "whole":
        assert_rounding(record["energy"]["kwh"], 2.0, operations=3)


def test_a_full_disk_is_one_line_and_other_errors_are_not_swallowed(capsys):
    def full():
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "some/file")
        finally:
            raise ValueError("I/O operation on closed file")

    with pytest.raises(SystemExit) as stop:
        run(full)
    assert stop.value.code == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: some/file: No space left") and "HF_XALIGN_CACHE" in line

    def broken():
        raise ValueError("something else")

    with pytest.raises(ValueError, match="something else"):
        run(broken)


# MAO's margins are FAO's gains on the same text.
MARGINS = {
    "fao_embedded": (fao, {"de": 0.07, "bn": 0.08}),
    "mao_linear_embedded": (mao, {"de": 0.082, "bn": 0.105}),
}


@pytest.mark.slow
@pytest.mark.parametrize("config", MARGINS)
def test_embedded_encoder_reaches_the_published_margin(config, tmp_path):
    recipe, margins = MARGINS[config]
    path = Path(recipe.__file__).parent / "configs" / f"{config}.yaml"
    recipe.main(["--config", str(path), "--output_dir", str(tmp_path)])
    record = record_of(tmp_path)
    for language, margin in margins.items():
        before, after = (record["scores"][when][language]["retrieval_mean"] for when in ("before", "after"))
        assert after - before >= margin, language
    if recipe is mao:
        assert record["trainable"]["share"] < 0.05
    else:
        assert AutoModel.from_pretrained(tmp_path).dtype == torch.float32
