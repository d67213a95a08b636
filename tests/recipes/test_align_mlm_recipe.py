"""Pre-training and its grid from files to tables, on a tiny encoder."""

import json

import numpy as np
import pytest
from support.recipe import output_of, pretraining_command, record_of
from transformers import AutoModel, AutoTokenizer

from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.pretraining.entries import TokenEntries
from hf_xalign.evaluation.embedding_alignment import alignment_of_model
from hf_xalign.recipes import align_mlm_grid, finetune
from hf_xalign.recipes.align_mlm import main

DERIVE = ("--derive", "inversion", "transliteration")
RANDOM = ("--model_name_or_path", "new", "--vocabulary", "train", "--vocab_size", "80")
RANDOM += ("--hidden_size", "16", "--attention_heads", "2", "--layers", "2")


def test_a_derived_language(files, tmp_path):
    options = ["--eval_corpus", f"en={files / 'held.txt'}", "--dictionary_share", "0.5", "--seed", "3"]
    options += ["--alpha", "3", "--num_train_epochs", "12"]
    printed = output_of(main, pretraining_command(files, *DERIVE, *options, out=tmp_path))
    record = record_of(tmp_path)
    assert record["languages"] == {"pivot": "en", "others": ["en-x-inv-trans"]}
    assert record["losses"]["after"]["en"] < record["losses"]["before"]["en"]
    before, after = (record["scores"][when]["en-x-inv-trans"]["embedding_alignment"] for when in ("before", "after"))
    assert after > before
    # What is saved is what was trained and scored.
    model, tokenizer = AutoModel.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    entries = TokenEntries.load(tmp_path, vocab_size=len(tokenizer))
    language = DerivedLanguage.load(tmp_path / "derived_language.json")
    assert len(model.get_input_embeddings().weight) == len(tokenizer)
    natural, derived = (tokenizer(" ".join(words)).input_ids for words in (["dog"], language.words(["dog"])))
    assert len(natural) == len(derived) and natural != derived
    vocabulary = tokenizer.get_vocab()
    turned = {piece: language.alphabet.translate(piece) for piece in vocabulary}
    pairs = [(i, vocabulary[turned[p]]) for p, i in vocabulary.items() if turned[p] != p and turned[p] in vocabulary]
    assert {tuple(pair) for pair in entries.ids.tolist()} & set(pairs)
    assert alignment_of_model(model, entries.ids, np.array(pairs)[:, 1]).share > after
    assert "derived language:" in printed


@pytest.mark.parametrize(
    ("objective", "options", "shape"),
    [
        ("mlm", ("--layers", "1"), ("bert", 1)),
        ("xlm", RANDOM, ("roberta", 2)),
        ("dict_mlm", (), ("bert", 2)),
    ],
)
def test_other_objectives_on_some_layers_and_from_random_weights(objective, options, shape, files, tmp_path):
    main(pretraining_command(files, *DERIVE, "--objective", objective, *options, "--max_steps", "2", out=tmp_path))
    record = record_of(tmp_path)
    assert record["settings"]["objective"] == objective and "losses" not in record
    assert (tmp_path / "token_entries.json").exists() == (objective == "dict_mlm")
    model = AutoModel.from_pretrained(tmp_path)
    assert (model.config.model_type, model.config.num_hidden_layers, model.config.hidden_size) == (*shape, 16)
    assert len(model.encoder.layer) == shape[1]


def test_real_languages_and_a_dictionary(files, tmp_path):
    (tmp_path / "test.txt").write_text("a\tä\ne\tß\n")
    options = ["--dictionary", f"de={files / 'en-de.txt'}", "--test_dictionary", f"de={tmp_path / 'test.txt'}"]
    options += ["--dictionary_share", "1", "--max_steps", "2"]
    words = pretraining_command(files, *options, corpus=("en=en.txt", "de=de.txt"), out=tmp_path / "out")
    printed = output_of(main, words)
    # c is the same piece in both; a - ä of the test is known from training.
    assert "3 of the 3 entries with one piece a word, of 4 of words" in printed
    assert "scored   1 entries, among 5 tokens" in printed


def test_grid(files, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    calls = []

    def call(recipe, settings):
        calls.append(recipe)
        assert recipe == "align_mlm.py" or settings["max_length"] == 40
        {"align_mlm.py": main, "finetune.py": finetune.main}[recipe](align_mlm_grid._words(settings))

    monkeypatch.setattr(align_mlm_grid, "_call", call)
    tagged = str(files / "tagged.jsonl")
    options = ["--objectives", "align_mlm", "--transformations", "inversion+transliteration"]
    options += ["--num_train_epochs", "1"]
    options += ["--train_data", tagged, "--test_data", tagged, "--label_column", "tags", "--finetune_epochs", "1"]
    words = pretraining_command(files, *options, "--finetune_max_length", "40", out=tmp_path)
    align_mlm_grid.main(words)
    assert calls == ["align_mlm.py", "finetune.py", "finetune.py"]
    table = (tmp_path / "grid.md").read_text()
    assert "1 of 1 runs are finished" in table and "No correlation: " in table
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    # The labels of the derived text went with their words.
    natural = [json.loads(line) for line in (files / "tagged.jsonl").read_text().splitlines()]
    folder = tmp_path / "inversion+transliteration" / "align_mlm" / "seed-0"
    moved = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    assert [row["tags"] for row in moved] == [row["tags"][::-1] for row in natural]
    calls.clear()
    align_mlm_grid.main(words)
    assert not calls
    assert table in output_of(align_mlm_grid.main, [*words, "--show", "true"])
