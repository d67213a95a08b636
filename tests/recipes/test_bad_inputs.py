"""What the recipes refuse, before any compute and before anything is written."""

import logging
import subprocess
import sys
from dataclasses import fields
from functools import partial
from importlib import import_module
from unittest.mock import Mock

import pytest
from support.recipe import command, on_files, pretraining_command, task_command
from support.refusals import assert_refused

import hf_xalign.cache
import hf_xalign.modeling.word_vectors
import hf_xalign.recipes.parts.parallel
from hf_xalign.cache import leave_folder
from hf_xalign.cli.train import METHODS
from hf_xalign.config import _names, imported
from hf_xalign.recipes import align_mlm, distances, fao, finetune, mao, mapping, ppa
from hf_xalign.recipes.parts import command as ending
from hf_xalign.recipes.parts.command import run


def table(main, words, rows):
    def call(options):
        return lambda folder: main(words(*options, out=folder / "out"))

    return {f"{' '.join(options)} ({message})": (call(options), message) for options, message in rows}


@pytest.fixture
def refused(tmp_path):
    yield partial(assert_refused, folder=tmp_path)
    for folder in list(hf_xalign.cache.held):  # as when the process ends
        leave_folder(folder, [folder])
    assert list(tmp_path.glob("row*")) and not list(tmp_path.glob("row*/out"))


def test_recipes_that_train(files, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a checkout has a folder called runs once a recipe has run in it
    words = partial(command, files)
    # A bad row is found before an encoder is even looked for, and a missing folder before the rows are read.
    early = [("--train_data", f"de={files}/holes.tsv", "--model_name_or_path", name) for name in ("no/x", "runs/x")]
    early = [(early[0], "holes.tsv.*3.*empty"), (early[1], "runs/x: no such folder, nor a folder runs")]
    local = ("--push_to_hub", "true", "--hub_model_id", "me/aligned")
    refused(table(fao.main, words, [(local, r"push_to_hub: the base model is .*base, which is not on the Hub")]))
    for recipe in (fao, mao, ppa, mapping):
        (tmp_path / recipe.__name__).mkdir()
        on_text = partial(maps, files) if recipe is mapping else words
        assert_refused(table(recipe.main, on_text, early), tmp_path / recipe.__name__)
    twice = ["--output_dir", str(tmp_path / "d"), "--stages", "a=x", "a=y"]
    assert_refused({"stages": (partial(distances.main, twice), "give each stage once")})


def test_what_ctrl_c_advises(files, tmp_path, capsys, monkeypatch):
    held = {}
    for module in (hf_xalign.cache, ending):
        monkeypatch.setattr(module, "held", held)
    for place, advice in (
        ("hf_xalign.recipes.parts.parallel.load_word_corpus", "no checkpoint was written before it"),
        ("hf_xalign.trainers.FAOTrainer.training_step", "no checkpoint was written before it"),
        (
            "hf_xalign.trainers.base.run.vector_drift",
            "add --resume_from_checkpoint true to resume from the last complete checkpoint",
        ),
    ):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as stop:
            patch.setattr(place, Mock(side_effect=KeyboardInterrupt))
            options = ("--save_steps", "1", "--max_steps", "1", "--report_to", "none")
            run(lambda options=options: fao.main(command(files, *options, out=tmp_path / "out")))
        assert stop.value.code == 130
        assert f"interrupted; {advice}" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")  # of two processes, the main one alone speaks
    with pytest.raises(SystemExit):
        run(Mock(side_effect=KeyboardInterrupt))
    logging.getLogger("hf_xalign").setLevel(logging.INFO)  # which that process does not log
    assert not capsys.readouterr().err


EARLY = """
import sys
from importlib import import_module
from hf_xalign.cli import train
from hf_xalign.errors import InputError

for method in train.METHODS:
    files = "--corpus" if method.startswith("align_mlm") else "--train_data"
    for words in (["--outptu_dir", "x"], [files, "de=/nowhere/pairs.tsv"], ["--config", sys.argv[1]]):
        for main in (import_module(f"hf_xalign.recipes.{method}").main, lambda own: train.start(method, own, 1, None)):
            try:
                main(words)
            except InputError as error:
                print(error)
assert not {"torch", "datasets"} & set(sys.modules)
"""


def test_names_and_files_are_checked_before_torch_is_imported(tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("outptu_dir: x\n")
    words = [sys.executable, "-P", "-c", EARLY, str(config)]
    done = subprocess.run(words, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert done.returncode == 0 and len(said) == 6 * len(METHODS), done.stderr
    table = zip(said[::6], said[1::6], said[2::6], said[3::6], said[4::6], said[5::6], strict=True)
    for option, cli_option, file, cli_file, key, cli_key in table:
        assert option == cli_option and option.endswith("did you mean '--output_dir'?"), option
        assert file == cli_file and "/nowhere/pairs.tsv: no such file" in file, file
        assert key == cli_key and f"{config}:1: unknown key 'outptu_dir'; did you mean" in key, key


@pytest.mark.parametrize("method", METHODS)
def test_names_read_from_source_are_those_of_the_class(method):
    for name in import_module(f"hf_xalign.recipes.{method}").ARGUMENTS:
        if isinstance(name, str):
            assert set(_names(name)) == {field.name for field in fields(imported(name)) if field.init}


def test_finetuning(files, refused, tmp_path):
    texts = {"train": ("en=texts.jsonl",), "evaluation": ("en=texts.jsonl",)}
    pairs = ("--task", "sequence", "--text_columns", "premise", "hypothesis")
    alone = (*pairs, "--code_switch", f"en={files / 'texts.jsonl'}")
    said = "train_data has no other language to switch"
    refused(table(finetune.main, partial(task_command, files, **texts), [(alone, said)]))
    missing = partial(finetune.main, ["--use_cpu", "true", "--output_dir", str(tmp_path / "out")])
    assert_refused({"no data": (missing, "--train_data is missing")})


def test_pretraining(files, refused):
    known = files / "en-de.txt"
    rows = [
        (("--derive", "syntax", "transliteration"), "derive=syntax transliteration needs order_of"),
        (("--derive", "inversion"), "objective=align_mlm needs a dictionary"),
        (("--dictionary", f"de={known}"), "dictionary of de: corpus has none of that language"),
        (("--dictionary", f"eng={known}"), "dictionary of en: that is the pivot"),
        (("--corpus", f"en={files / 'en.txt'}", f"eng={files / 'de.txt'}"), "corpus: en is named twice"),
        (
            ("--corpus", f"fr={files / 'en.txt'}", f"deu={files / 'de.txt'}", "--dictionary", f"de={known}"),
            "target_lang of en: corpus has none of that language",
        ),
        (("--objective", "xlm"), "objective=xlm needs sentence pairs"),
    ]
    both = partial(pretraining_command, files, corpus=("en=en.txt", "de=de.txt"))
    same = ("--dictionary", f"de={known}", "--test_dictionary", f"de={known}", "--dictionary_share", "1")
    known_again = table(align_mlm.main, both, [(same, "all its entries are in")])
    refused(table(align_mlm.main, partial(pretraining_command, files), rows) | known_again)


def maps(files, *options, out):
    return [*on_files(files, out), "--device", "cpu", *options]


def test_settings_of_mapping_that_do_not_go_together(files, refused, monkeypatch):
    monkeypatch.setattr(hf_xalign.links.linking, "align_words", None)
    rows = [
        ("--supervision dictionary", "supervision=dictionary needs dictionary:"),
        ("--test_dictionary fr={f}/dict.txt", "test_dictionary: there is nothing to map in fr, only in de"),
        ("--output_dir {f}/dict.txt/run", "dict.txt/run: the output cannot be written there"),
        ("--output_dir {f}/base --overwrite_output_dir true", "holds the encoder"),
    ]
    rows = [([word.format(f=files) for word in options.split()], message) for options, message in rows]
    refused(table(mapping.main, partial(maps, files), rows))


def test_data_of_mapping_before_the_encoder_runs(files, mapping_run, refused, tmp_path, monkeypatch):
    monkeypatch.setattr(hf_xalign.modeling.word_vectors, "hidden_batches", None)
    known = f"de={files / 'dict.txt'}"
    both = ("--train_data", f"de={files / 'train.jsonl'}", f"fr={files / 'french.tsv'}")
    learnt = ("--dictionary", known, "--supervision", "dictionary")
    rows = [
        ((*learnt, *both), "dictionary: none for fr"),
        (("--direction", "from_pivot", *both), r"direction=from_pivot .* train_data has de, fr. Keep one"),
        (both, r"eval_data .*: no linked words in fr"),
        ((*learnt, "--method", "vecmap"), r"6 dictionary entries in de are fewer than the encoder's 16.*whiten=false"),
        (("--output_dir", mapping_run.folder), "overwrite_output_dir"),
    ]
    (tmp_path / "other.txt").write_text("foo\tbar\n")
    none = r"other\.txt: no entry of 1 is in the text for the anchors in de and in en"
    rows.append((("--test_dictionary", f"de={tmp_path}/other.txt"), none))
    refused(table(mapping.main, partial(maps, files), [(list(map(str, own)), message) for own, message in rows]))
