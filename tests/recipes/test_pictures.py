"""What a recipe leaves next to its model, pictures and the energy; and the recipe that draws distances."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from support.fake_wandb import offline
from support.families import save_base
from support.numeric import assert_rounding
from support.recipe import command, output_of
from support.tiny import SENTENCES
from transformers import AutoModel, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.evaluation.distances import grid_of, word_distances
from hf_xalign.evaluation.frozen_links import read_links
from hf_xalign.hub_files import Contents, list_files
from hf_xalign.recipes import distances, fao, pictures
from hf_xalign.record import read_record
from hf_xalign.report import render_report
from hf_xalign.trainers import tracking

DISTANCES = ["distances_cosine_layer-1.png", "distances_l2_layer-1.png"]
# Two layers of four matmuls over 16, two over at most 32, a softmax over 20 tokens and two norms over 16; then a norm.
ENCODER = 2 * (4 * 16 + 2 * 32 + 20 + 4 * 16) + 2 * 16


def drawn(folder):
    return sorted(path.name for path in folder.glob("*.png"))


def check_grid(folder, base, after):
    """The numbers next to the pictures are those of these two encoders on the text that the run was scored on."""
    grid, links = json.loads((folder / "distances.json").read_text()), read_links(folder / "eval_links.jsonl")
    measured = {
        stage: word_distances(AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name), links, pairs=2000)
        for stage, name in {"before": base, "after": after}.items()
        if name is not None
    }
    expected = grid_of(measured, {stage: grid["stages"][stage] for stage in measured}, pooling="mean")["cells"]
    assert list(grid["stages"]) == ["before", "after"] and len(grid["cells"]) == 4
    found = {(cell["stage"], cell["measure"]): cell for cell in grid["cells"]}
    assert len(expected) == 2 * len(measured)
    for cell in expected:
        for kind in ("linked", "random"):
            mean = found[cell["stage"], cell["measure"]][kind]["mean"]
            assert_rounding(mean, cell[kind]["mean"], ENCODER, scale=8.0, dtype=torch.float32)
    assert abs(found["before", "l2"]["linked"]["mean"] - found["after", "l2"]["linked"]["mean"]) > 1e-3


@pytest.mark.numeric
def test_a_run_leaves_pictures_and_its_energy(fao_run, files):
    folder = fao_run.folder
    assert drawn(folder) == ["curve.png", *DISTANCES]
    check_grid(folder, files / "base", folder)
    record, card = read_record(folder), (folder / "README.md").read_text()
    assert "![Retrieval during training](curve.png)" in card
    assert all(f"]({name})" in card for name in DISTANCES)
    assert record["saved_to"]["pictures"] == ", ".join(str(folder / name) for name in ("curve.png", *DISTANCES[::-1]))
    # The counter went from 262,000 to 262,143 microjoules, and from 0 to 36,000.
    assert_rounding(record["energy"]["kwh"], (262143 - 262000 + 36000) / 3.6e12, operations=4)
    assert "- energy: 1e-08 kWh (while training: CPU packages by RAPL;" in card
    assert {"curve.png", *DISTANCES} <= set(list_files(folder))
    pushed = Contents(folder, base_model="someone/base").read("someone/model")
    assert b"](curve.png)" in pushed["README.md"] and {"curve.png", *DISTANCES} <= set(pushed)
    assert "before, de: l2, layer -1" in render_report(folder)


@pytest.mark.numeric
def test_before_is_the_untouched_encoder_where_a_module_starts_at_random(mao_run, files):
    assert drawn(mao_run.folder) == DISTANCES  # nothing was evaluated on the way
    check_grid(mao_run.folder, files / "base", None)


def test_sentences_have_a_curve_only(ppa_run):
    assert drawn(ppa_run.folder) == ["curve.png"]


def test_without_matplotlib_a_run_says_how_to_get_pictures(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it fails
    monkeypatch.setattr(tracking, "word_distances", None)  # nothing is measured for pictures either
    for name in ("curve.png", DISTANCES[0], "distances.json", "other.png"):
        (tmp_path / name).write_text("of an earlier run")
    options = ("--eval_strategy", "steps", "--eval_steps", "1", "--max_steps", "1", "--report_to", "none")
    text = output_of(fao.main, command(files, *options, out=tmp_path))
    assert text.count('pip install "hf_xalign[plots]"') == 1
    assert drawn(tmp_path) == ["other.png"] and not (tmp_path / "distances.json").exists()
    card = (tmp_path / "README.md").read_text()
    assert "![" not in card and "- energy" not in card
    assert "pictures" not in read_record(tmp_path)["saved_to"]


@pytest.mark.slow  # W&B starts a process
def test_what_is_tracked_is_not_measured_again(files, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    found = []

    def counted(*args, **kwargs):
        found.append(word_distances(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(tracking, "word_distances", counted)
    with offline(tmp_path):
        fao.main(command(files, "--report_to", "wandb", out=tmp_path / "out"))
        wandb.finish()
    assert len(found) == 2
    check_grid(tmp_path / "out", files / "base", tmp_path / "out")


def test_curves_are_scores_in_percent_that_have_both_directions(tmp_path, monkeypatch):
    log = [
        {"step": 0, "eval_retrieval": 0.2, "eval_de_retrieval_mean": 0.25, "eval_de_retrieval_mean_to_pivot": 0.1},
        {"step": 5, "loss": 1.0},
        {"step": 5, "eval_de_retrieval_mean": 0.3, "eval_de_retrieval_mean_to_pivot": 0.2, "eval_runtime": 1.0},
        {"step": 5, "eval_de_retrieval_mean": 0.5, "eval_de_retrieval_mean_to_pivot": 0.2},
        {"step": 5, "eval_bn_retrieval_mean": 0.1, "eval_bn_retrieval_mean_to_pivot": 0.1},
    ]
    curves = pictures.score_curves(log)
    assert curves == {"de_retrieval_mean": {0: 0.25, 5: 0.5}, "bn_retrieval_mean": {5: 0.1}}
    kept = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, path: kept.append(figure) or path)
    assert pictures.draw_curves(curves, tmp_path / "x.png") == tmp_path / "x.png"
    lines = kept[0].axes[0].lines
    assert np.array_equal(lines[0].get_xydata(), [[0, 25], [5, 50]])
    assert [line.get_label() for line in lines] == list(curves)


def test_from_stages_to_figures(files, tmp_path):
    pytest.importorskip("matplotlib")
    save_base("bert", tmp_path / "two", seed=1)
    pairs = [f"{german} {k}\t{english} {k}" for k, (german, english, _) in enumerate(SENTENCES * 3)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    text = [f"de={tmp_path / 'pairs.tsv'}"]
    words = [
        "--stages", f"raw={files / 'base'}", f"tuned={tmp_path / 'two'}", "--layers", "1", "-1",
        "--train_data", *text, "--eval_data", *text, "--bins", "5", "--output_dir", str(tmp_path / "out"),
    ]  # fmt: skip
    printed = output_of(distances.main, words)
    grid = json.loads((tmp_path / "out" / "distances.json").read_text())
    assert len(grid["cells"]) == 2 * 1 * 2 * 2
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".png"}
    for cell in grid["cells"]:
        assert f"| {cell['stage']} | de | {cell['layer']} | {cell['measure']} |" in printed
        assert f"{cell['auc']:.4f}" in printed
    with pytest.raises(InputError, match="is there already"):
        distances.main(words)
