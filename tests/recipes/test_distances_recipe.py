"""The distances recipe: from stages and text to numbers and figures."""

from __future__ import annotations

import json

import pytest
from support.families import save_base
from support.recipe import output_of
from support.tiny import SENTENCES

from hf_xalign.errors import InputError
from hf_xalign.recipes.distances import main


def test_from_stages_to_figures(files, tmp_path):
    pytest.importorskip("matplotlib")
    save_base("bert", tmp_path / "two", seed=1)
    pairs = [f"{german} {k}\t{english} {k}" for k, (german, english, _) in enumerate(SENTENCES * 3)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    text = [f"de={tmp_path / 'pairs.tsv'}"]
    command = [
        "--stages", f"raw={files / 'base'}", f"tuned={tmp_path / 'two'}", "--layers", "1", "-1",
        "--train_data", *text, "--eval_data", *text, "--bins", "5", "--output_dir", str(tmp_path / "out"),
    ]  # fmt: skip
    printed = output_of(main, command)
    grid = json.loads((tmp_path / "out" / "distances.json").read_text())
    assert len(grid["cells"]) == 2 * 1 * 2 * 2
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".png"}
    for cell in grid["cells"]:
        assert f"| {cell['stage']} | de | {cell['layer']} | {cell['measure']} |" in printed
        assert f"{cell['auc']:.4f}" in printed
    with pytest.raises(InputError, match="is there already"):
        main(command)
