"""Pre-training and its grid from files to tables, on a tiny encoder."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.families import save_base
from support.tiny import SENTENCES
from transformers import AutoModel, AutoTokenizer

from hf_xalign.data.derived import DerivedLanguage
from hf_xalign.data.entries import TokenEntries
from hf_xalign.errors import InputError
from hf_xalign.evaluation.embedding_alignment import alignment_of_model
from hf_xalign.recipes import align_mlm_grid, finetune
from hf_xalign.recipes.align_mlm import main

ENGLISH = [english for _, english, _ in SENTENCES]
GERMAN = [german for german, _, _ in SENTENCES]


@pytest.fixture
def files(tmp_path):
    save_base("bert", tmp_path / "base")
    (tmp_path / "en.txt").write_text("\n".join(f"{text} ." for text in ENGLISH * 6))
    (tmp_path / "de.txt").write_text("\n".join(GERMAN * 6))
    (tmp_path / "held.txt").write_text("\n".join(f"{text} ." for text in ENGLISH * 3))
    rows = [{"tokens": text.split(), "tags": ["DET" if w == "the" else "X" for w in text.split()]} for text in ENGLISH]
    (tmp_path / "tagged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 2))
    return tmp_path


def command(files, *options, corpus=("en=en.txt",)):
    return [
        "--model_name_or_path", str(files / "base"),
        "--corpus", *(f"{item.split('=')[0]}={files / item.split('=')[1]}" for item in corpus),
        "--block_size", "32", "--output_dir", str(files / "out"),
        "--use_cpu", "true", "--report_to", "none", "--disable_tqdm", "true", "--save_strategy", "no",
        "--num_train_epochs", "3", "--learning_rate", "2e-3", "--per_device_train_batch_size", "8",
        *options,
    ]  # fmt: skip


DERIVE = ["--derive", "inversion", "transliteration"]


def test_a_derived_language(files, capsys):
    held_out = ["--eval_corpus", f"en={files / 'held.txt'}", "--dictionary_share", "0.5", "--seed", "3"]
    main(command(files, *DERIVE, *held_out, "--alpha", "3", "--num_train_epochs", "12"))
    out = files / "out"
    record = json.loads((out / "results.json").read_text())
    assert record["languages"] == {"pivot": "en", "others": ["en-x-inv-trans"]}
    assert record["losses"]["after"]["en"] < record["losses"]["before"]["en"]
    before, after = (record["scores"][when]["en-x-inv-trans"]["embedding_alignment"] for when in ("before", "after"))
    assert after > before
    # What is saved is what was trained and scored.
    model, tokenizer = AutoModel.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    entries = TokenEntries.load(out, vocab_size=len(tokenizer))
    language = DerivedLanguage.load(out / "derived_language.json")
    assert len(model.get_input_embeddings().weight) == len(tokenizer)
    natural, derived = (tokenizer(" ".join(words)).input_ids for words in (["dog"], language.words(["dog"])))
    assert len(natural) == len(derived) and natural != derived
    assert language.words(["the", "dog", "."])[2] == language.spell(".")
    vocabulary = tokenizer.get_vocab()
    copies = [
        (i, vocabulary[c])
        for p, i in vocabulary.items()
        if (c := language.alphabet.translate(p)) != p and c in vocabulary
    ]
    pairs = np.array([pair for pair in copies if pair[0] != pair[1]])
    assert {tuple(pair) for pair in entries.ids.tolist()} & {tuple(pair) for pair in pairs.tolist()}
    assert alignment_of_model(model, entries.ids, pairs[:, 1]).share > after
    printed = capsys.readouterr().out
    assert "loss on held-out text, en-x-inv-trans:" in printed and "derived language:" in printed
    card = (out / "README.md").read_text()
    assert (
        "alignment of word embeddings only" in card and "en-x-inv-trans" not in card.split("---")[1].split("tags")[0]
    )


@pytest.mark.parametrize("objective", ["mlm", "xlm", "dict_mlm"])
def test_other_objectives(objective, files):
    main(command(files, *DERIVE, "--objective", objective))
    record = json.loads((files / "out" / "results.json").read_text())
    assert record["settings"]["objective"] == objective and "losses" not in record
    assert (files / "out" / "token_entries.json").exists() == (objective == "dict_mlm")


def test_real_languages_and_a_dictionary(files, capsys):
    (files / "en-de.txt").write_text("a\tä\nb\tö\nc\tc\nd\tü\n")
    (files / "test.txt").write_text("a\tä\ne\tß\n")
    options = ["--dictionary", f"de={files / 'en-de.txt'}", "--test_dictionary", f"de={files / 'test.txt'}"]
    main(command(files, *options, "--dictionary_share", "1", corpus=["en=en.txt", "de=de.txt"]))
    printed = capsys.readouterr().out
    # c is the same piece in both; a - ä of the test is known from training.
    assert "3 of the 3 entries with one piece a word, of 4 of words" in printed
    assert "scored   1 entries, among 5 tokens" in printed
    with pytest.raises(InputError, match="all its entries are in"):
        options[-1] = options[1]
        main(command(files, *options, "--overwrite_output_dir", "true", corpus=["en=en.txt", "de=de.txt"]))


def test_from_random_weights(files):
    new = ["--model_name_or_path", "new", "--vocabulary", "train", "--vocab_size", "80"]
    size = ["--hidden_size", "16", "--attention_heads", "2", "--layers", "2"]
    main(command(files, *DERIVE, *new, *size))
    config = AutoModel.from_pretrained(files / "out").config
    assert (config.model_type, config.num_hidden_layers, config.hidden_size) == ("roberta", 2, 16)


def test_first_layers_alone(files):
    main(command(files, *DERIVE, "--layers", "1"))
    model = AutoModel.from_pretrained(files / "out")
    assert model.config.num_hidden_layers == 1 and len(model.encoder.layer) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "needs a dictionary"),
        (["--derive", "syntax", "transliteration"], "order_of goes with derive syntax"),
        ([*DERIVE, "--dictionary", "de=x.txt"], "a derived language brings its own"),
        (["--objective", "xlm"], "objective=xlm needs sentence pairs"),
        ([*DERIVE, "--parallel", "de=x.tsv"], "parallel is for objective=xlm"),
        ([*DERIVE, "--vocabulary", "train"], "have embeddings and new ones would not"),
        ([*DERIVE, "--model_name_or_path", "new"], "--vocabulary train"),
        ([*DERIVE, "--layers", "9"], "layers=9"),
        ([*DERIVE, "--eval_corpus", "fr=x.txt"], "x.txt"),
        ([*DERIVE, "--vocabulary", "cut"], "WordPiece pieces are made of one another"),
    ],
)
def test_bad_input_is_named_before_any_compute(options, message, files):
    with pytest.raises(InputError, match=message):
        main(command(files, *options))
    assert not (files / "out").exists()


def test_grid(files, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    calls = []

    def call(recipe, settings):
        calls.append(recipe)
        assert recipe == "align_mlm.py" or settings["max_length"] == 40
        {"align_mlm.py": main, "finetune.py": finetune.main}[recipe](align_mlm_grid._words(settings))

    monkeypatch.setattr(align_mlm_grid, "_call", call)
    tagged = str(files / "tagged.jsonl")
    grid = ["--objectives", "mlm", "align_mlm", "--transformations", "transliteration", "inversion+transliteration"]
    labelled = ["--train_data", tagged, "--test_data", tagged, "--label_column", "tags", "--finetune_epochs", "1"]
    labelled += ["--finetune_max_length", "40"]
    align_mlm_grid.main(command(files, *grid, *labelled))
    assert calls.count("align_mlm.py") == 4 and calls.count("finetune.py") == 8
    table = (files / "out" / "grid.md").read_text()
    assert "4 of 4 runs are finished" in table and "Spearman's rho" in table
    assert (files / "out" / "alignment.png").read_bytes().startswith(b"\x89PNG")
    rows = [line.split("|") for line in table.splitlines() if "inversion+trans" in line]
    for row in rows:
        supervised, zero_shot, delta = (float(cell) for cell in row[4:7])
        assert delta == pytest.approx(supervised - zero_shot, abs=0.11)
    # The labels of the derived text went with their words.
    natural = [json.loads(line) for line in (files / "tagged.jsonl").read_text().splitlines()]
    folder = files / "out" / "inversion+transliteration" / "mlm" / "seed-42"
    moved = [json.loads(line) for line in (folder.parent / "seed-0" / "test.jsonl").read_text().splitlines()]
    assert [row["tags"] for row in moved] == [row["tags"][::-1] for row in natural]
    calls.clear()
    align_mlm_grid.main(command(files, *grid, *labelled))
    assert not calls
    align_mlm_grid.main(command(files, *grid, "--show", "true"))
    assert table in capsys.readouterr().out
    with pytest.raises(InputError, match="inversion shares all words"):
        align_mlm_grid.main(command(files, *labelled, "--transformations", "inversion"))
