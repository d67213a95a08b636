"""What a recipe leaves beside its model: pictures that the card shows, and the energy."""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
import pytest
from support.fake_wandb import offline
from support.recipe import command, make_files
from transformers import AutoModel, AutoTokenizer

from hf_xalign import energy
from hf_xalign.evaluation.distances import grid_of, word_distances
from hf_xalign.evaluation.frozen_links import read_links
from hf_xalign.hub_files import Contents, list_files
from hf_xalign.recipes import fao, mao, pictures, ppa
from hf_xalign.record import read_record
from hf_xalign.report import render_report
from hf_xalign.trainers import FAOTrainer, tracking

EVERY_STEP = ("--eval_strategy", "steps", "--eval_steps", "1")
DISTANCES = ["distances_cosine_layer-1.png", "distances_l2_layer-1.png"]


@pytest.fixture
def setup(tmp_path):
    return make_files(tmp_path)


def drawn(folder):
    return sorted(path.name for path in folder.glob("*.png"))


def measured(source, folder):
    """Cells of the distances of an encoder on the text that the run in `folder` was scored on."""
    model, tokenizer = AutoModel.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    return word_distances(model, tokenizer, read_links(folder / "eval_links.jsonl"), pairs=2000)


def check_grid(folder, before, after):
    """That the numbers beside the pictures are those of these two encoders."""
    grid = json.loads((folder / "distances.json").read_text())
    expected = grid_of(
        {"before": measured(before, folder), "after": measured(after, folder)}, grid["stages"], pooling="mean"
    )
    assert list(grid["stages"]) == ["before", "after"] and len(grid["cells"]) == len(expected["cells"]) == 4
    for cell, other in zip(grid["cells"], expected["cells"]):
        assert [cell[name] for name in ("stage", "measure")] == [other[name] for name in ("stage", "measure")]
        for kind in ("linked", "random"):
            assert cell[kind]["mean"] == pytest.approx(other[kind]["mean"], abs=1e-5)
    means = {(cell["stage"], cell["measure"]): cell["linked"]["mean"] for cell in grid["cells"]}
    assert abs(means["before", "l2"] - means["after", "l2"]) > 1e-3


def test_a_run_leaves_pictures_and_its_energy(setup, monkeypatch):
    zone = setup / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    for name, value in (("name", "package-0"), ("max_energy_range_uj", "262143"), ("energy_uj", "262000")):
        (zone / name).write_text(f"{value}\n")
    train = FAOTrainer.train

    def counted(self, *args, **kwargs):
        result = train(self, *args, **kwargs)
        (zone / "energy_uj").write_text("36000\n")
        return result

    monkeypatch.setattr(FAOTrainer, "train", counted)
    monkeypatch.setattr(energy, "EnergyMeter", partial(energy.EnergyMeter, powercap=setup / "powercap"))
    fao.main(command(setup, *EVERY_STEP, "--report_to", "none"))
    folder = setup / "out"
    assert drawn(folder) == ["curve.png", *DISTANCES]
    check_grid(folder, setup / "base", folder)
    record, card = read_record(folder), (folder / "README.md").read_text()
    assert "![Retrieval during training](curve.png)" in card
    assert all(f"]({name})" in card for name in DISTANCES)
    assert record["saved_to"]["pictures"] == ", ".join(str(folder / name) for name in ("curve.png", *DISTANCES[::-1]))
    assert record["energy"]["kwh"] == pytest.approx((262143 - 262000 + 36000) / 3.6e12)
    assert "- energy: 1e-08 kWh (while training: CPU packages by RAPL;" in card
    assert {"curve.png", *DISTANCES} <= set(list_files(folder))
    pushed = Contents(folder, base_model="someone/base").read("someone/model")
    assert b"](curve.png)" in pushed["README.md"] and {"curve.png", *DISTANCES} <= set(pushed)
    assert "before, de: l2, layer -1" in render_report(folder)


def test_without_matplotlib_a_run_says_how_to_get_pictures(setup, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it fails
    monkeypatch.setattr(tracking, "word_distances", None)  # nor is anything measured for them
    (setup / "out").mkdir()
    for name in ("curve.png", DISTANCES[0], "distances.json", "other.png"):
        (setup / "out" / name).write_text("of an earlier run")
    fao.main(command(setup, *EVERY_STEP, "--report_to", "none"))
    printed = capsys.readouterr().out
    assert printed.count('pip install "hf_xalign[plots]"') == 1
    assert drawn(setup / "out") == ["other.png"] and not (setup / "out" / "distances.json").exists()
    card = (setup / "out" / "README.md").read_text()
    assert "![" not in card and "- energy" not in card
    assert "pictures" not in read_record(setup / "out")["saved_to"]


def test_before_is_the_untouched_encoder_where_a_module_starts_at_random(setup):
    mao.main(command(setup, "--objective", "infonce", "--report_to", "none"))
    assert drawn(setup / "out") == DISTANCES  # nothing was evaluated on the way
    grid = json.loads((setup / "out" / "distances.json").read_text())
    [cell] = [c for c in grid["cells"] if (c["stage"], c["measure"]) == ("before", "l2")]
    base = measured(setup / "base", setup / "out")["de"][-1]["l2"]
    assert cell["linked"]["mean"] == pytest.approx(base.linked.mean(), abs=1e-5)
    assert cell["random"]["mean"] == pytest.approx(base.random.mean(), abs=1e-5)


def test_sentences_have_a_curve_only(setup):
    options = ("--min_tokens", "1", "--max_tokens", "60", "--queue_size", "16", "--report_to", "none")
    ppa.main(command(setup, *options, *EVERY_STEP))
    assert drawn(setup / "out") == ["curve.png"]


def test_what_is_tracked_is_not_measured_again(setup, monkeypatch):
    wandb = pytest.importorskip("wandb")
    found = []

    def counted(*args, **kwargs):
        found.append(word_distances(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(tracking, "word_distances", counted)
    with offline(setup):
        fao.main(command(setup, "--report_to", "wandb"))
        wandb.finish()
    assert len(found) == 2
    check_grid(setup / "out", setup / "base", setup / "out")


def test_curves_are_scores_that_have_both_directions():
    log = [
        {"step": 0, "eval_retrieval": 0.2, "eval_de_retrieval_mean": 0.2, "eval_de_retrieval_mean_to_pivot": 0.1},
        {"step": 5, "loss": 1.0},
        {"step": 5, "eval_de_retrieval_mean": 0.3, "eval_de_retrieval_mean_to_pivot": 0.2, "eval_runtime": 1.0},
        {"step": 5, "eval_de_retrieval_mean": 0.4, "eval_de_retrieval_mean_to_pivot": 0.2},
        {"step": 5, "eval_bn_retrieval_mean": 0.1, "eval_bn_retrieval_mean_to_pivot": 0.1},
    ]
    assert pictures.score_curves(log) == {"de_retrieval_mean": {0: 0.2, 5: 0.4}, "bn_retrieval_mean": {5: 0.1}}


def test_curves_are_in_percent(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, path: kept.append(figure) or path)
    assert pictures.draw_curves({"de": {0: 0.25, 10: 0.5}, "bn": {0: 0.1}}, tmp_path / "x.png") == tmp_path / "x.png"
    lines = kept[0].axes[0].lines
    assert np.array_equal(lines[0].get_xydata(), [[0, 25], [10, 50]])
    assert [line.get_label() for line in lines] == ["de", "bn"]
