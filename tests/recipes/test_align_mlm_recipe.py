"""Pre-training from files, on a tiny encoder."""

import numpy as np
import pytest
from support.recipe import DERIVE, output_of, pretraining_command
from transformers import AutoModel, AutoTokenizer

from hf_xalign.data.derived import language
from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.pretraining.rows import TokenEntries
from hf_xalign.evaluation.embedding_alignment import alignment_of_model
from hf_xalign.recipes.align_mlm import main
from hf_xalign.record import read_record

PUBLISHED = ("--pair_halves", "padded", "--long_sentences", "drop", "--alignment_languages", "true")


def test_a_derived_language(files, tmp_path):
    options = ["--eval_corpus", f"en={files / 'held.txt'}", "--dictionary_share", "0.5", "--seed", "3"]
    options += ["--alpha", "3", "--num_train_epochs", "12"]
    printed = output_of(main, pretraining_command(files, *DERIVE, *options, out=tmp_path))
    record = read_record(tmp_path)
    assert record["languages"] == {"pivot": "en", "others": ["en-x-inv-trans"]}
    assert record["losses"]["after"]["en"] < record["losses"]["before"]["en"]
    before, after = (record["scores"][when]["en-x-inv-trans"]["embedding_alignment"] for when in ("before", "after"))
    assert after > before
    # What is saved is what was trained and scored.
    model, tokenizer = AutoModel.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    entries = TokenEntries.load(tmp_path)
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
        ("mlm", ("--derive", "inversion", "--layers", "1"), ("bert", 1)),
        ("xlm", (*DERIVE, *PUBLISHED), ("roberta", 2)),
        ("dict_mlm", (*DERIVE, "--dictionary_seed", "5"), ("roberta", 2)),
    ],
)
def test_other_objectives_on_some_layers_and_from_random_weights(objective, options, shape, files, tmp_path):
    main(pretraining_command(files, "--objective", objective, *options, "--max_steps", "2", out=tmp_path))
    record = read_record(tmp_path)
    assert record["settings"]["objective"] == objective and "losses" not in record
    assert (tmp_path / "token_entries.json").exists() == (objective == "dict_mlm")
    assert objective != "dict_mlm" or TokenEntries.load(tmp_path).seed == 5
    model = AutoModel.from_pretrained(tmp_path)
    assert (model.config.model_type, model.config.num_hidden_layers, model.config.hidden_size) == (*shape, 16)
    assert len(model.encoder.layer) == shape[1]


def test_a_share_of_the_pieces_is_common(files, tmp_path):
    options = ("--objective", "dict_mlm", "--shared", "0.5", "--dictionary_share", "1", "--max_steps", "1")
    printed = output_of(main, pretraining_command(files, *DERIVE, *options, out=tmp_path))
    language, tokenizer = (
        DerivedLanguage.load(tmp_path / "derived_language.json"),
        AutoTokenizer.from_pretrained(tmp_path),
    )
    words = sorted({*(files / "en.txt").read_text().split()})
    natural, derived = (
        {i for ids in tokenizer(text, add_special_tokens=False).input_ids for i in ids}
        for text in (words, [language.spell(word) for word in words])
    )
    # A single boundary mark has no script.
    shared = {*language.shared.pieces}
    assert natural & derived - {tokenizer.convert_tokens_to_ids("▁")} == natural & shared
    entries = TokenEntries.load(tmp_path)
    assert len(entries) == len(shared) or len(entries) == len(shared) - 1
    assert f"shared   {len(shared)} of {len(shared) + len(entries)} pieces are not transliterated" in printed
    assert not shared & {*entries.ids.ravel().tolist()}


def test_characters_beyond_the_alphabet_stay(files, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "LETTERS", range(0x17000, 0x17000 + 10))
    rows = ["αβγδε ζηθικ αβγδε ζηθικ"] * 18 + ["αβγ λδ", "λ"]
    (tmp_path / "el.txt").write_text("\n".join(rows) + "\n")
    command = pretraining_command(files, *DERIVE, "--dry_run", "true", "--target_lang", "el", "--objective", "mlm")
    printed = output_of(main, [*command, "--corpus", f"el={tmp_path / 'el.txt'}"])
    assert "letters  1 characters beyond the 10 most frequent stay in both languages, in 2 rows of el\n" in printed
    assert "of 20 sentences" in printed


def test_a_real_language_and_its_dictionary(files, tmp_path, caplog):
    (tmp_path / "test.txt").write_text("a\tä\ne\tß\n")
    options = ["--dictionary", f"de={files / 'en-de.txt'}", "--test_dictionary", f"de={tmp_path / 'test.txt'}"]
    options += ["--dictionary_share", "1", "--max_steps", "2", "--eval_corpus", f"deu={files / 'de.txt'}"]
    corpus = ("en=en.txt", "de=de.txt")
    printed = output_of(main, pretraining_command(files, *options, corpus=corpus, out=tmp_path / "out"))
    count = len((files / "de.txt").read_text().splitlines())
    assert f"{count} of the {count} held-out rows are in the training text too" in caplog.text
    # c is the same piece in both; a - ä of the tests is known from training, and in both dictionaries.
    assert "3 of the 3 entries with one piece for each word, of 4 in all\n" in printed
    assert "scored   1 entries of de, among 5 tokens" in printed
    assert set(read_record(tmp_path / "out")["scores"]["after"]) == {"de"}
    assert len(TokenEntries.load(tmp_path / "out")) == 3
