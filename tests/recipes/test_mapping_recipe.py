"""The mapping recipe from the command line to maps, scores and card, on a tiny encoder and files made here."""

from __future__ import annotations

import json

import pytest
import torch
from huggingface_hub import ModelCard
from peft import get_peft_model
from support.recipe import make_files
from support.tiny import make_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification

import hf_xalign
import hf_xalign.modeling.word_vectors
import hf_xalign.recipes.text
from hf_xalign.errors import InputError
from hf_xalign.evaluation.frozen_links import read_links
from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.mapping import Anchors, LanguageMap, SideMap
from hf_xalign.mapping.supervision import Matched
from hf_xalign.modeling import XAlignConfig, set_language
from hf_xalign.recipes.mapping import main
from hf_xalign.recipes.mapping_arguments import MappingArguments
from hf_xalign.recipes.mapping_material import Material, score

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
    with pytest.raises(InputError, match=r"6 dictionary entries in de are fewer than the encoder's 16.*whiten=false"):
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
    assert bool(record["data"].get("dictionary")) == (supervision == "dictionary")
    assert record["paper"]["title"] in (setup / "out" / "README.md").read_text()
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
        (["--refine", "2", "--method", "rcsls"], "refine=2 is of method=procrustes"),
        (["--spectral", "true"], "spectral=True is of method=rcsls: leave it out with method=procrustes"),
        (
            ["--centre", "false", "--method", "vecmap"],
            "centre=False is of method=procrustes or least",
        ),
        (["--whiten", "false"], "whiten=False is of method=vecmap"),
        (["--batch_size", "0"], "batch_size=0: it is at least 1"),
        (["--layers", "-1", "-1"], "each layer once"),
        (["--layers", "7"], r"layers \[7\]: this encoder has layers 0"),
        (["--layers", "2", "-1"], r"layers \[2, -1\]: name each layer once"),
        (["--device", "nonsense"], "device=nonsense: not to be had here"),
        (["--compare_with", "runs/fao"], "compare_with"),
        (["--test_dictionary", "some.txt"], "say the language of the other side"),
        (["--text", "some.txt"], "say the language of the text"),
        (["--text", "de={f}/german.txt"], "text: there is some of de, and anchors are made for"),
        (["--test_dictionary", "de={f}/dict.txt", "--text", "fr={f}/german.txt"], "text: there is some of fr"),
        (["--test_dictionary", "fr={f}/dict.txt"], "test_dictionary: there is one of fr, and train_data has de only"),
        (["--dictionary", "fr={f}/dict.txt"], "dictionary: there is one of fr"),
        (["--model_name_or_path", "{f}/nowhere"], "nowhere is neither a folder here nor"),
        (["--output_dir", "{f}/dict.txt/run"], "dict.txt is no folder that can be written to"),
        (["--output_dir", "{f}/base", "--overwrite_output_dir", "true"], "holds the encoder"),
    ],
)
def test_settings_that_do_not_go_together(setup, monkeypatch, options, message):
    """All of this is known before any words are linked."""
    monkeypatch.setattr(hf_xalign.recipes.text, "align_words", None)
    with pytest.raises(InputError, match=message):
        main(command(setup, *(option.format(f=setup) for option in options)))
    assert not (setup / "out").exists()


@pytest.mark.parametrize(
    "lines, message",
    [
        (None, r"d\.txt: cannot be read"),
        ("the\tdie\nalone\n", r"d\.txt, row 2: 'alone' has not two fields"),
        ("foo\tbar\n", r"d\.txt: none of 1 entries has its words in en and in de in the text"),
        ("die\tthe\nkatze\tcat\nhund\tdog\n", r"d\.txt: of 3 entries 0 have both words in the text, and 3 if turned"),
    ],
)
@pytest.mark.parametrize("name", ["dictionary", "test_dictionary"])
def test_dictionaries_are_checked_before_the_encoder_runs(setup, monkeypatch, name, lines, message):
    monkeypatch.setattr(hf_xalign.modeling.word_vectors, "hidden_batches", None)
    if lines is not None:
        (setup / "d.txt").write_text(lines)
    options = ["--supervision", "dictionary"] if name == "dictionary" else []
    with pytest.raises(InputError, match=message):
        main(command(setup, f"--{name}", f"de={setup / 'd.txt'}", *options))
    assert not (setup / "out").exists()


def test_languages_without_what_they_need(setup):
    (setup / "french.tsv").write_text("fr\ten\nle chat\tthe cat\nle chien\tthe dog\n")
    both = ["--train_data", f"de={setup / 'train.jsonl'}", f"fr={setup / 'french.tsv'}"]
    with pytest.raises(InputError, match="dictionary: none for fr, which train_data has"):
        main(with_dictionary(setup, "--supervision", "dictionary", *both))
    with pytest.raises(InputError, match=r"direction=from_pivot .* train_data has de, fr: choose one"):
        main(command(setup, "--direction", "from_pivot", *both))
    with pytest.raises(InputError, match=r"eval_data .*: no linked words in fr"):
        main(command(setup, *both))


def test_what_is_not_used_is_said(setup, capsys):
    (setup / "french.tsv").write_text("fr\ten\nle chat\tthe cat\nle chien\tthe dog\n")
    data = [f"de={setup / 'test.tsv'}", f"fr={setup / 'french.tsv'}"]
    main(with_dictionary(setup, "--eval_data", *data, "--dry_run", "true"))
    printed = capsys.readouterr().out
    assert "unused   dictionary: supervision=parallel" in printed and "unused   eval_data in fr" in printed
    # 24 training pairs and two lines of text.
    assert "anchors  de: of 26 sentences" in printed
    assert "6 of 6 entries of test_dictionary have both words there" in printed and "of dictionary have" not in printed
    main(command(setup, "--test_dictionary", data[0].replace("test.tsv", "dict.txt"), "--train_data", *data,
                 "--eval_data", *data, "--dry_run", "true"))  # fmt: skip
    assert "unscored lexicon induction in fr: no test_dictionary" in capsys.readouterr().out


def test_nothing_is_written_before_all_is_done(setup, monkeypatch):
    """And `results.json` last; a run that is cut off while it is written is not taken for a result."""

    def cut_off(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_xalign.recipes.mapping_material.learn", cut_off)
    with pytest.raises(KeyboardInterrupt):
        main(command(setup))
    assert not (setup / "out").exists()
    monkeypatch.undo()
    for name in ("write_card", "write_record"):
        monkeypatch.setattr(f"hf_xalign.recipes.mapping_report.{name}", cut_off)
        with pytest.raises(KeyboardInterrupt):
            main(command(setup, "--method", "vecmap", "--overwrite_output_dir", "true"))
        assert not (setup / "out" / "results.json").exists() and (setup / "out" / "maps").exists()
        monkeypatch.undo()
        with pytest.raises(InputError, match=r"holds another run \(maps/de-en\.safetensors\).*overwrite_output_dir"):
            main(command(setup))


def test_overwriting_leaves_nothing_of_the_other_run(setup):
    main(command(setup))
    assert (setup / "out" / "adapter_config.json").exists()
    main(command(setup, "--method", "vecmap", "--direction", "from_pivot", "--overwrite_output_dir", "true"))
    assert not list((setup / "out").glob("adapter*"))
    assert [path.name for path in (setup / "out" / "maps").iterdir()] == ["en-de.safetensors"]


@pytest.mark.parametrize("languages", [None, ["de"]], ids=["shared", "languages"])
def test_on_an_adapter(setup, capsys, languages):
    config = XAlignConfig(init="random", languages=languages, pivot="en" if languages else None)
    base = AutoModel.from_pretrained(setup / "base", add_pooling_layer=False)
    get_peft_model(base, config).save_pretrained(setup / "mao")
    make_tokenizer().save_pretrained(setup / "mao")
    main(command(setup, "--model_name_or_path", str(setup / "mao")))
    assert "adapter  none: " in capsys.readouterr().out
    record = record_of(setup / "out")
    assert record["adapter"] is None and record["maps"]["files"]
    links = read_links(setup / "out" / "eval_links.jsonl")
    expected = score_retrieval(hf_xalign.load(setup / "mao"), make_tokenizer(), links)["de"]
    assert record["scores"]["before"]["de"] == expected
    if languages:
        (setup / "french.tsv").write_text("fr\ten\nle chat\tthe cat\n")
        with pytest.raises(InputError, match="language='fr': this module has maps for de, en"):
            main(command(setup, "--model_name_or_path", str(setup / "mao"),
                         "--train_data", f"fr={setup / 'french.tsv'}", out="other"))  # fmt: skip


def test_on_a_task_model_the_encoder_is_mapped(setup):
    AutoModelForSequenceClassification.from_pretrained(setup / "base").save_pretrained(setup / "task")
    make_tokenizer().save_pretrained(setup / "task")
    for name in ("base", "task"):
        main(command(setup, "--model_name_or_path", str(setup / name), out=f"of_{name}"))
    assert record_of(setup / "of_base")["scores"] == record_of(setup / "of_task")["scores"]
    assert hf_xalign.load(setup / "of_task").active_peft_config.languages == ["de"]


@pytest.mark.parametrize("pooling, layer", [("mean", -1), ("last", 1)])
def test_retrieval_is_that_of_score_retrieval(setup, pooling, layer):
    main(command(setup, "--pooling", pooling, "--layers", str(layer)))
    record, links = record_of(setup / "out"), read_links(setup / "out" / "eval_links.jsonl")
    base, tokenizer = hf_xalign.load(setup / "base"), make_tokenizer()
    options = {"poolings": (pooling,), "layer": layer}
    assert record["scores"]["before"] == score_retrieval(base, tokenizer, links, **options)
    if layer == -1:
        found = score_retrieval(hf_xalign.load(setup / "out"), tokenizer, links, **options)["de"]
        assert record["scores"]["after"]["de"] == pytest.approx(found, abs=1e-6)


def test_links_that_are_not_one_to_one(setup):
    row = {"source": "die katze", "target": "the cat", "source_lang": "de", "target_lang": "en"}
    row |= {"source_words": ["die", "katze"], "target_words": ["the", "cat"], "links": [[0, 0], [1, 0]]}
    (setup / "links.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=r"links\.jsonl, row 1: target word 0 has two links"):
        main(command(setup, "--eval_links", str(setup / "links.jsonl")))


@pytest.mark.parametrize("direction", ["to_pivot", "from_pivot"])
def test_directions_of_lexicon_induction(direction):
    """`Hund` has two translations, of which one lies with `Katze`; German is turned by 90 degrees against English."""
    english = Anchors(["dog", "hound", "cat"], torch.tensor([[[1.0, 0.1]], [[0.2, 1.0]], [[0.0, 1.0]]]), torch.ones(3))
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    german = Anchors(["hund", "katze"], torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]) @ turn, torch.ones(2))
    words = Matched(german.vectors, english.vectors[[0, 2]], german.words, ["dog", "cat"])
    # As dictionaries of other makes are: not in lower case.
    test = [("dog", "Hund"), ("Hound", "Hund"), ("bitch", "Hund")]
    material = Material(None, None, "en", {}, {"de": words}, {"de": german, "en": english}, {}, {"de": test})
    to_pivot = LanguageMap(SideMap(turn[None]), source_lang="de", target_lang="en")
    one = to_pivot if direction == "to_pivot" else to_pivot.inverse()
    args = MappingArguments(direction=direction)
    scores, intervals = score(material, args, {"de": one})
    found = scores["de"]
    assert (found["bli_p@1_to_pivot"], found["bli_p@1_from_pivot"], found["bli_p@1"]) == (1.0, 0.5, 0.75)
    assert found["bli_p@1_oov_wrong_to_pivot"] == 1.0
    assert found["bli_p@1_oov_wrong_from_pivot"] == pytest.approx(1 / 3)
    assert found["bli_coverage"] == pytest.approx(2 / 3) and found["pool_bli"] == 2.5
    assert found["retrieval_mean"] == 1.0
    assert intervals["de"]["bli_p@1_from_pivot"][0] == 0.0
    raw, _ = score(material, args)
    assert raw["de"]["bli_p@1"] < 0.75 and raw["de"]["retrieval_mean"] < 1.0


def test_several_processes_are_refused(setup, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one process"):
        main(command(setup))
