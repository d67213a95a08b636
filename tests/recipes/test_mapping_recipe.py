"""The mapping recipe from the command line to maps, scores and card, on a tiny encoder and files made here."""

from __future__ import annotations

import json

import pytest
import torch
from huggingface_hub import ModelCard
from tiny_recipe import make_files

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.mapping import LanguageMap
from hf_xalign.modeling import set_language
from hf_xalign.recipes.mapping import main

ENTRIES = [("the", "die"), ("the", "das"), ("cat", "katze"), ("dog", "hund"), ("house", "haus"), ("open", "öffnen")]


@pytest.fixture
def setup(tmp_path):
    make_files(tmp_path)
    (tmp_path / "dict.txt").write_text("".join(f"{a}\t{b}\n" for a, b in ENTRIES), encoding="utf-8")
    (tmp_path / "german.txt").write_text("die katze schläft\nder hund ist groß\n", encoding="utf-8")
    return tmp_path


def command(folder, *options, out="out"):
    return [
        "--model_name_or_path", str(folder / "base"),
        "--train_data", f"de={folder / 'train.jsonl'}",
        "--eval_data", f"de={folder / 'test.tsv'}",
        "--output_dir", str(folder / out),
        "--device", "cpu",
        *options,
    ]  # fmt: skip


def with_dictionary(folder, *options):
    file = f"de={folder / 'dict.txt'}"
    return command(
        folder, "--dictionary", file, "--test_dictionary", file, "--text", f"de={folder / 'german.txt'}", *options
    )


def record_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_parallel_supervision(setup, capsys):
    main(command(setup))
    folder, record = setup / "out", record_of(setup / "out")
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before.keys() == after.keys() and before != after
    assert record["maps"] == {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
    one = LanguageMap.load(folder / "maps" / "de-en.safetensors")
    assert (one.source_lang, one.target_lang, one.layers) == ("de", "en", (-1,))
    printed = capsys.readouterr().out
    assert "before" in printed and str(folder / "maps") in printed
    # The adapter does to the last layer what the map does.
    model = hf_xalign.load(folder)
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 3]])}
    with torch.no_grad():
        set_language(model, "en")
        plain = model(**inputs).last_hidden_state
        set_language(model, "de")
        mapped = model(**inputs).last_hidden_state
    torch.testing.assert_close(mapped[0], one.apply(plain[0]), atol=1e-5, rtol=1e-5)
    card = ModelCard.load(folder / "README.md")
    assert "hf_xalign.load" in card.text and card.data.library_name == "peft"


def test_fewer_entries_than_dimensions(setup):
    with pytest.raises(InputError, match="whiten=False"):
        main(with_dictionary(setup, "--method", "vecmap", "--supervision", "dictionary"))


@pytest.mark.parametrize("method", ["procrustes", "rcsls", "vecmap"])
@pytest.mark.parametrize("supervision", ["parallel", "dictionary"])
def test_every_method_with_dictionaries(setup, method, supervision):
    options = ["--whiten", "false"] if method == "vecmap" else []
    main(with_dictionary(setup, "--method", method, "--supervision", supervision, *options))
    record = record_of(setup / "out")
    after = record["scores"]["after"]["de"]
    assert 0 < after["bli_coverage"] <= 1
    assert after["bli_p@1"] == pytest.approx((after["bli_p@1_to_pivot"] + after["bli_p@1_from_pivot"]) / 2)
    low, high = record["intervals"]["after"]["de"]["bli_p@1_to_pivot"]
    assert low <= after["bli_p@1_to_pivot"] <= high
    used = record["maps"]["dictionary"]
    assert used == ({} if supervision == "parallel" else {"de": used["de"]})
    card = ModelCard.load(setup / "out" / "README.md").text
    assert "95% intervals" in card and "lexicon induction" in card


def test_a_map_that_no_adapter_can_be(setup, capsys):
    """VecMap divides by lengths: the card then shows how the maps themselves are used, and what it shows runs."""
    main(with_dictionary(setup, "--method", "vecmap", "--whiten", "false"))
    assert "adapter  none: " in capsys.readouterr().out
    folder = setup / "out"
    assert not list(folder.glob("adapter*")) and record_of(folder)["adapter"] is None
    code = ModelCard.load(folder / "README.md").text.split("```python\n")[1].split("```")[0]
    code = code.replace('"path/to/this/folder"', repr(str(folder)))
    code = code.replace('"path/to/the/base/model"', repr(str(setup / "base")))
    found: dict = {}
    exec(compile(code, "card", "exec"), found)
    assert found["vectors"].shape == found["words"].vectors.shape


def test_several_layers_from_the_pivot(setup):
    main(command(setup, "--direction", "from_pivot", "--layers", "-2", "-1"))
    record = record_of(setup / "out")
    assert record["maps"]["files"] == {"de": "maps/en-de.safetensors"}
    assert {"retrieval_mean, layer -2", "retrieval_mean, layer -1"} <= record["scores"]["after"]["de"].keys()
    assert LanguageMap.load(setup / "out" / "maps" / "en-de.safetensors").layers == (-2, -1)
    assert record["adapter"]["languages"] == ["en"] and record["adapter"]["pivot"] == "de"


def test_a_direction_is_the_other_one_turned_round(setup):
    """A rotation is its own inverse's inverse, so both directions are compared in the same way."""
    scores = []
    for direction in ("to_pivot", "from_pivot"):
        main(command(setup, "--direction", direction, "--centre", "false", out=direction))
        scores.append(record_of(setup / direction)["scores"]["after"]["de"])
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_dry_run_writes_nothing(setup, capsys):
    main(command(setup, "--dry_run", "true"))
    assert not (setup / "out").exists()
    assert "nothing was learnt" in capsys.readouterr().out


def test_a_folder_that_holds_a_run_is_kept(setup):
    main(command(setup))
    with pytest.raises(InputError, match="overwrite_output_dir"):
        main(command(setup))
    main(command(setup, "--overwrite_output_dir", "true"))


@pytest.mark.parametrize(
    "options, message",
    [
        (["--supervision", "dictionary"], "name the training dictionaries"),
        (["--method", "self_learning"], "starts from a seed dictionary"),
        (["--refine", "2"], "refine: MUSE's refinement is for"),
        (["--layers", "-1", "-1"], "each layer once"),
        (["--layers", "7"], "7"),
        (["--test_dictionary", "some.txt"], "say the language of the other side"),
        (["--text", "some.txt"], "say its language"),
    ],
)
def test_settings_that_do_not_go_together(setup, options, message):
    with pytest.raises((InputError, ValueError), match=message):
        main(command(setup, *options))


def test_several_processes_are_refused(setup, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one process"):
        main(command(setup))
