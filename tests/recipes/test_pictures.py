"""What a recipe leaves next to its model, pictures and the energy; and the recipe that draws distances."""

import json
import sys

import pytest
import torch
from support.families import save_base
from support.numeric import assert_rounding
from support.recipe import command, output_of
from transformers import AutoModel, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.evaluation.distances import grid_of, word_distances
from hf_xalign.evaluation.scores import text_vectors
from hf_xalign.hub.files import Contents
from hf_xalign.links.frozen import read_links
from hf_xalign.recipes import distances, fao
from hf_xalign.record import read_record
from hf_xalign.trainers.base import scoring, word

DISTANCES = ["distances_cosine_layer-1.png", "distances_l2_layer-1.png"]
# Two layers of four matmuls over 16, two over at most 32, a softmax over 20 tokens and two norms over 16; then a norm.
ENCODER = 2 * (4 * 16 + 2 * 32 + 20 + 4 * 16) + 2 * 16


def drawn(folder):
    return sorted(path.name for path in folder.glob("*.png"))


def test_a_run_leaves_pictures(fao_run, mao_run, ppa_run, files):
    folder = fao_run.folder
    assert drawn(folder) == drawn(mao_run.folder) == DISTANCES and drawn(ppa_run.folder) == []
    # The numbers next to the pictures are those of the two encoders on the text that the run was scored on.
    grid, links = json.loads((folder / "distances.json").read_text()), read_links(folder / "eval_links.jsonl")
    measured = {
        stage: word_distances(AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name), links, pairs=2000)
        for stage, name in {"before": files / "base", "after": folder}.items()
    }
    expected = grid_of(measured, grid["stages"], pooling="mean")["cells"]
    for cell, own in zip(grid["cells"], expected, strict=True):
        for kind in ("linked", "random"):
            assert_rounding(cell[kind]["mean"], own[kind]["mean"], ENCODER, scale=8.0, dtype=torch.float32)
    record, card = read_record(folder), (folder / "README.md").read_text()
    assert all(f"]({name})" in card for name in DISTANCES)
    assert record["saved_to"]["pictures"] == ", ".join(str(folder / name) for name in DISTANCES[::-1])
    pushed = Contents(folder, base_model="someone/base").read("someone/model")
    assert set(DISTANCES) <= set(pushed)


def test_without_matplotlib_a_run_says_how_to_get_pictures(files, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it fails
    for name in ("distances_l2_layer-1.png", "distances.json", "other.png"):
        (tmp_path / name).write_text("of an earlier run")
    options = ("--eval_strategy", "steps", "--eval_steps", "1", "--max_steps", "1", "--report_to", "none")
    output_of(fao.main, command(files, *options, out=tmp_path))
    assert caplog.text.count('pip install "hf_xalign[plots]"') == 1
    assert drawn(tmp_path) == ["other.png"] and not (tmp_path / "distances.json").exists()
    assert "![" not in (tmp_path / "README.md").read_text() and "pictures" not in read_record(tmp_path)["saved_to"]


def test_no_score_is_computed_twice(files, tmp_path, monkeypatch):
    scored = []
    monkeypatch.setattr(word, "text_vectors", lambda *a, **kw: scored.append(kw["desc"]) or text_vectors(*a, **kw))
    monkeypatch.setattr(scoring, "score_retrieval", None)  # of a step in between
    options = ("--eval_strategy", "steps", "--eval_steps", "2", "--max_steps", "2", "--report_to", "none")
    printed = output_of(fao.main, command(files, *options, out=tmp_path))
    assert scored == ["Scoring before", "Scoring after"] and "before" in printed.partition("training ")[0]
    table = printed[printed.rindex("language  metric") :]
    assert max(map(len, table.replace(str(tmp_path), "runs/fao_joint_builtin").splitlines())) <= 80


def test_from_stages_to_figures(files, tmp_path):
    pytest.importorskip("matplotlib")
    save_base("bert", tmp_path / "two", seed=1)
    text = [f"de={files / 'pairs.tsv'}"]
    words = [
        "--stages", f"raw={files / 'base'}", f"tuned={tmp_path / 'two'}", "--layers", "1", "-1",
        "--train_data", *text, "--eval_data", *text, "--output_dir", str(tmp_path / "out"),
    ]  # fmt: skip
    printed = output_of(distances.main, words)
    grid = json.loads((tmp_path / "out" / "distances.json").read_text())
    assert len(grid["cells"]) == 2 * 1 * 2 * 2
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".png"}
    for cell in grid["cells"]:
        assert f"{cell['stage']}de{cell['layer']}{cell['measure']}" in "".join(printed.split())
    with pytest.raises(InputError, match="exists"):
        distances.main(words)
