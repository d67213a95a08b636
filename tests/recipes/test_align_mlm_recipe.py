"""Pre-training and its grid from files to tables, on a tiny encoder."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.faults import flip_byte
from support.recipe import output_of, pretraining_command, record_of
from transformers import AutoModel, AutoTokenizer

from hf_xalign.cache import write_mark
from hf_xalign.data.derived import transliteration
from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.pretraining.entries import TokenEntries
from hf_xalign.errors import InputError
from hf_xalign.evaluation.embedding_alignment import alignment_of_model
from hf_xalign.recipes import align_mlm_grid, finetune
from hf_xalign.recipes.align_mlm import main

DERIVE = ("--derive", "inversion", "transliteration")
RANDOM = ("--model_name_or_path", "new", "--vocabulary", "train", "--vocab_size", "80")
PUBLISHED = ("--pair_halves", "padded", "--long_sentences", "drop", "--alignment_languages", "true")
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
        ("xlm", (*RANDOM, *PUBLISHED), ("roberta", 2)),
        ("dict_mlm", ("--dictionary_seed", "5"), ("bert", 2)),
    ],
)
def test_other_objectives_on_some_layers_and_from_random_weights(objective, options, shape, files, tmp_path):
    main(pretraining_command(files, *DERIVE, "--objective", objective, *options, "--max_steps", "2", out=tmp_path))
    record = record_of(tmp_path)
    assert record["settings"]["objective"] == objective and "losses" not in record
    assert (tmp_path / "token_entries.json").exists() == (objective == "dict_mlm")
    assert objective != "dict_mlm" or TokenEntries.load(tmp_path, vocab_size=10**6).seed == 5
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
    entries = TokenEntries.load(tmp_path, vocab_size=len(tokenizer))
    assert len(entries) == len(shared) or len(entries) == len(shared) - 1
    assert f"shared   {len(shared)} of {len(shared) + len(entries)} pieces are not transliterated" in printed
    assert not shared & {*entries.ids.ravel().tolist()}


def test_characters_beyond_the_alphabet_stay_or_go_or_are_refused(files, tmp_path, monkeypatch):
    """10 letters for the characters of Greek text; the rarest is in two of its 20 sentences."""
    monkeypatch.setattr(transliteration, "LETTERS", range(0x17000, 0x17000 + 10))
    rows = ["αβγδε ζηθικ αβγδε ζηθικ"] * 18 + ["αβγ λδ", "λ"]
    (tmp_path / "el.txt").write_text("\n".join(rows) + "\n")
    command = pretraining_command(files, "--derive", "transliteration", *RANDOM, "--dry_run", "true", "--target_lang")
    command += ["el", "--corpus", f"el={tmp_path / 'el.txt'}", "--objective", "mlm", "--on_unknown"]
    kept, left = (output_of(main, [*command, kind]) for kind in ("keep", "drop"))
    said = "letters  1 characters beyond the 10 most frequent: the 2 rows of el with one"
    assert f"{said} keep them in both languages (on_unknown=keep)" in kept and "of 20 sentences" in kept
    assert f"{said} are left out (on_unknown=drop)" in left and "of 18 sentences" in left
    with pytest.raises(InputError, match=r"row 18, text: 'λ' .*not in the alphabet of 10 characters.*on_unknown=keep"):
        main([*command, "error"])


def test_real_languages_and_their_dictionaries(files, tmp_path):
    (tmp_path / "test.txt").write_text("a\tä\ne\tß\n")
    options = ["--dictionary", f"de={files / 'en-de.txt'}", f"fr={tmp_path / 'test.txt'}"]
    options += ["--test_dictionary", f"de={tmp_path / 'test.txt'}", f"fr={files / 'en-de.txt'}"]
    options += ["--dictionary_share", "1", "--max_steps", "2", "--eval_corpus", f"de={files / 'de.txt'}"]
    corpus = ("en=en.txt", "de=de.txt", "fr=held.txt")
    printed = output_of(main, pretraining_command(files, *options, corpus=corpus, out=tmp_path / "out"))
    # c is the same piece in both; a - ä of the tests is known from training, and in both dictionaries.
    assert "3 of the 3 entries with one piece a word, of 4 of words; fr=" in printed
    assert "scored   1 entries of de, among 5 tokens" in printed and "2 entries of fr, among 5 tokens" in printed
    assert set(record_of(tmp_path / "out")["scores"]["after"]) == {"de", "fr"}
    assert len(TokenEntries.load(tmp_path / "out", vocab_size=10**6)) == 4


LABELLED = (
    {"tokens": ["the", "cat", "is", "here", "."], "heads": [2, 4, 4, 0, 4], "labels": ["O", "B-A", "O", "O", "O"]},
    {"tokens": ["the", "dog", "is", "here", "."], "heads": [2, 4, 4, 0, 4], "labels": ["B-B", "I-B", "O", "O", "O"]},
)
TREES = {"upos": ["DET", "NOUN", "VERB", "ADV", "PUNCT"], "deprels": ["det", "nsubj", "cop", "root", "punct"]}
OF_TREES = ("inversion", "syntax+transliteration")


@pytest.fixture(scope="module")
def trees(files, tmp_path_factory):
    """Trees in CoNLL-U, and labelled words and pairs of texts with their trees, in the form of the grid's tasks."""
    folder = tmp_path_factory.mktemp("trees")
    lines = []
    for row in LABELLED * 12:
        words = zip(row["tokens"], TREES["upos"], row["heads"], TREES["deprels"], strict=True)
        lines += [
            f"{n}\t{word}\t_\t{upos}\t_\t_\t{head}\t{rel}\t_\t_" for n, (word, upos, head, rel) in enumerate(words, 1)
        ]
        lines.append("")
    (folder / "en.conllu").write_text("\n".join(lines) + "\n")
    texts = []
    for k, row in enumerate(LABELLED * 4):
        own = TREES | {"heads": row["heads"]}
        parts = {f"{side}_{name}": values for side in ("text_a", "text_b") for name, values in own.items()}
        text = " ".join(row["tokens"])
        texts.append({"premise": text, "hypothesis": text, "label": "yn"[k % 2], **parts})
    for name, rows in {"ner": [row | TREES for row in LABELLED * 4], "pairs": texts, "bare": LABELLED}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def grid_command(files, trees, *options, out, tasks=("pos", "ner", "xnli"), transformations=OF_TREES, **changed):
    given = {
        "pos": {"train_data": str(trees / "en.conllu"), "test_data": str(trees / "en.conllu")},
        "ner": {"train_data": str(trees / "ner.jsonl"), "test_data": str(trees / "ner.jsonl")},
        "xnli": {"task": "sequence"},
    }
    given["xnli"] |= {"train_data": str(trees / "pairs.jsonl"), "test_data": str(trees / "pairs.jsonl")}
    return pretraining_command(
        files, "--max_steps", "2", "--transformations", *transformations, "--order_of", str(trees / "en.conllu"),
        "--tasks", json.dumps({name: given.get(name, {}) | changed.get(name, {}) for name in tasks}),
        *options, corpus=(f"en={trees / 'en.conllu'}",), out=out,
    )  # fmt: skip


def test_grid(files, trees, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    calls = []

    def call(recipe, settings):
        """Run it; of the fine-tunings, those of one model on the natural language."""
        calls.append((recipe, settings))
        if recipe == "align_mlm.py":
            return main(align_mlm_grid._words(settings))
        if {"align_mlm", "finetuned-natural"} <= {*Path(settings["output_dir"]).parts}:
            return finetune.main([*align_mlm_grid._words(settings), "--num_train_epochs", "1"])
        folder = Path(settings["output_dir"], "seed-0")
        scores = {item.partition("=")[0]: {"score": 0.5} for item in settings["eval_data"]}
        write_mark(folder / "scores.json", {"languages": scores})

    monkeypatch.setattr(align_mlm_grid, "_call", call)
    study = {"objectives": "align_mlm", "transformations": OF_TREES[1:], "dictionary_share": [0.5, 0.25]}
    options = ("--objectives", "mlm", "align_mlm", "--studies", json.dumps({"dictionary": study}))
    words = grid_command(files, trees, *options, out=tmp_path / "grid")
    printed = output_of(align_mlm_grid.main, [*words, "--dry_run", "true"])
    assert "4 models, 24 fine-tunings" in printed and not list(tmp_path.iterdir())
    align_mlm_grid.main(words)
    pretrained = [(own["objective"], own.get("dictionary_share")) for recipe, own in calls if recipe == "align_mlm.py"]
    # With one vocabulary there is no dictionary, and no ALIGN-MLM. A quarter is the setting of the grid.
    assert pretrained == [("mlm", None), ("mlm", None), ("align_mlm", None), ("align_mlm", 0.5)]
    tuned = [own for recipe, own in calls if recipe == "finetune.py"]
    presets = {(own["task"], own["preset"], own["max_length"]) for own in tuned}
    assert presets == {("token", "align_mlm_tagging", 32), ("sequence", "align_mlm_xnli", 32)} and len(tuned) == 24
    assert not {"learning_rate", "per_device_train_batch_size"}.intersection(*tuned)
    table = (tmp_path / "grid" / "grid.md").read_text()
    assert "| inversion | mlm |  | 0 | 50.0 | 50.0 | 0.0 |" in table and table.count("dictionary_share=0.5") == 1
    assert all(f"{task}: 4 of 4 runs are finished" in table for task in ("pos", "ner", "xnli"))
    assert (tmp_path / "grid" / "alignment-ner.png").read_bytes().startswith(b"\x89PNG")
    # The labels of the derived text went with their words, and spans begin with B again.
    folder = tmp_path / "grid" / "inversion" / "mlm" / "seed-0"
    rows = {
        name: json.loads((folder / name / "test.jsonl").read_text().splitlines()[1]) for name in ("pos", "ner", "xnli")
    }
    assert rows["pos"]["tokens"] == ["here", "is", "dog", "the", "."]
    assert rows["pos"]["labels"] == [*TREES["upos"][3::-1], "PUNCT"]
    assert rows["ner"]["labels"] == ["O", "O", "B-B", "I-B", "O"]
    assert {rows["xnli"][name] for name in ("text_a", "text_b")} == {"here is dog the ."} and rows["xnli"][
        "label"
    ] == "n"
    calls.clear()
    align_mlm_grid.main(words)
    assert not calls
    assert table in output_of(align_mlm_grid.main, [*words, "--show", "true"])
    with pytest.raises(InputError, match=r"seed-0 was made with max_steps=2, not 3: give the same settings"):
        align_mlm_grid.main([*words, "--max_steps", "3"])
    # What was damaged is made again, and nothing else.
    for name, again in {
        "model/derived_language.json": "align_mlm.py",
        "model/model.safetensors": "align_mlm.py",
        "ner/finetuned-derived/seed-0/scores.json": "finetune.py",
    }.items():
        flip_byte(folder / name)
        align_mlm_grid.main(words)
        assert [recipe for recipe, _ in calls] == [again] and (tmp_path / "grid" / "grid.md").read_text() == table
        calls.clear()
    flip_byte(folder / "ner" / "settings.json")
    with pytest.raises(InputError, match=r"ner/settings\.json is damaged.*remove that folder"):
        align_mlm_grid.main(words)


def test_grid_says_what_is_missing_before_it_trains(files, trees, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(align_mlm_grid, "_call", None)
    bare = {"train_data": str(trees / "bare.jsonl"), "test_data": str(trees / "bare.jsonl")}
    for options, changed, message in [
        ((), {"ner": bare}, r"tasks: ner, .*bare\.jsonl, 1: no column upos, deprels\. T_syn needs the tree"),
        ((), {"ner": {"test_data": None}}, "tasks: ner has no test_data: name a file"),
        ((), {"ner": {"label_column": "tags"}}, r"ner\.jsonl, line 1: no column 'tags'"),
        ((), {"ner": {"lerning_rate": 1}}, "unknown option --lerning_rate; did you mean '--learning_rate'"),
        (("--studies", '{"a": {"share": 1}}'), {}, "unknown option --share"),
        (
            ("--studies", '{"a": {"alpha": 1, "shared": 0.5}}'),
            {},
            "studies: a varies alpha, shared: give one setting's values",
        ),
        (("--objectives", "mml"), {}, "invalid choice: 'mml'"),
    ]:
        with pytest.raises(InputError, match=message):
            align_mlm_grid.main(grid_command(files, trees, *options, out=tmp_path / "out", **changed))
    assert not (tmp_path / "out").exists()
