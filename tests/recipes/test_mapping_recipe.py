"""The mapping recipe from the command line to maps, scores and card, on a tiny encoder and files made here."""

import shutil
from dataclasses import replace

import pytest
import torch
from huggingface_hub import ModelCard
from peft import get_peft_model
from support.families import save_base
from support.launch import slow
from support.numeric import assert_rounding
from support.recipe import on_files, output_of, task_command
from support.tiny import make_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import HeldOutWords, held_out_words, read_protocols, score_retrieval
from hf_xalign.hub.files import Contents
from hf_xalign.links.frozen import read_links
from hf_xalign.mapping import Anchors, LanguageMap, SideMap, read_word2vec, write_word2vec
from hf_xalign.modeling import XAlignConfig, set_language
from hf_xalign.modeling.word_vectors import extract_word_vectors
from hf_xalign.recipes import finetune
from hf_xalign.recipes.mapping import main
from hf_xalign.record import read_record
from hf_xalign.score import Score
from hf_xalign.trainers import MappingConfig, VectorMappingTrainer

OVER = ("--overwrite_output_dir", "true")


def run(files, folder, *options):
    printed = output_of(main, [*on_files(files, folder), "--device", "cpu", *options])
    return read_record(folder), printed


def dictionaries(files):
    file = f"de={files / 'dict.txt'}"
    return ("--dictionary", file, "--test_dictionary", file, "--text", f"de={files / 'german.txt'}")


def test_parallel_supervision(mapping_run, files):
    folder, record = mapping_run.folder, mapping_run.record
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before.keys() == after.keys() and before != after
    assert record["maps"] == {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
    one = LanguageMap.load(folder / "maps" / "de-en.safetensors")
    assert str(folder / "maps") in mapping_run.printed
    # The adapter does to the last layer what the map does: a product over 16 numbers, and offsets before and after it.
    model, inputs = hf_xalign.load(folder), {"input_ids": torch.tensor([[2, 5, 6, 3]])}
    with torch.no_grad():
        plain, mapped = (
            model(**inputs).last_hidden_state for language in ("en", "de") if set_language(model, language) is None
        )
    assert not torch.allclose(mapped, plain)
    assert_rounding(mapped[0], one.project(plain[0]), operations=4 * 16, scale=plain.norm(dim=-1).max().item())
    # Scores are those of score_retrieval, of the encoder and of the adapter.
    links, tokenizer = read_links(folder / "eval_links.jsonl"), make_tokenizer()
    base = hf_xalign.load(files / "base")
    assert record["scores"]["before"] == score_retrieval(base, tokenizer, links, poolings=("mean",))
    found = score_retrieval(hf_xalign.load(folder), tokenizer, links, poolings=("mean",))["de"]
    assert after.keys() == found.keys()
    for name, value in found.items():
        assert_rounding(after[name], value, operations=4)  # a mean of two shares


@pytest.mark.parametrize(
    ("method", "supervision", "options"),
    [
        ("procrustes", "dictionary", ()),
        ("rcsls", "parallel", ()),
        ("rcsls", "parallel", ("--center", "false", "--spectral", "true")),
    ],
)
def test_methods_with_dictionaries(files, tmp_path, method, supervision, options):
    words = ("--method", method, "--supervision", supervision, *options)
    record, printed = run(files, tmp_path, *dictionaries(files), *words)
    after = record["scores"]["after"]["de"]
    assert 0 < after["bli_coverage"] <= 1
    assert_rounding(after["bli_p@1"], (after["bli_p@1_to_pivot"] + after["bli_p@1_from_pivot"]) / 2, operations=2)
    assert bool(record["data"].get("dictionary")) == (supervision == "dictionary")
    entries = len((files / "dict.txt").read_text().splitlines())
    assert (f"not new  {entries} of {entries} test entries in de" in printed) == (supervision == "dictionary")
    used = record["maps"]["dictionary"]
    assert used == ({} if supervision == "parallel" else {"de": used["de"]})
    card = ModelCard.load(tmp_path / "README.md").text
    assert "95% intervals" in card and "lexicon induction" in card
    # Where lengths are divided by, no adapter can be the map.
    alone = method == "rcsls" and not options
    assert ("model    none: " in printed) == alone
    assert (record["adapter"] is None) == alone == (not list(tmp_path.glob("adapter*")))


ROTATED = ("--direction", "from_pivot", "--layers", "-2", "-1")


@pytest.mark.parametrize(
    ("supervision", "center"),
    [pytest.param("parallel", "true", marks=pytest.mark.slow), ("dictionary", "false")],
)
def test_rotate_in_two_commands(files, tmp_path, supervision, center):
    maps = tmp_path / "maps"
    options = ("--supervision", supervision, "--center", center, "--dictionary", f"de={files / 'dict.txt'}")
    record, printed = run(files, maps, *ROTATED, *options)
    assert record["maps"]["files"] == {"de": "maps/en-de.safetensors"} and record["adapter"]["pivot"] == "de"
    assert f"adapter: {maps}" in " ".join(printed.split())
    assert (
        "their layers, [-2, -1]" in (card := (maps / "README.md").read_text()) and 'set_language(model, "en")' in card
    )
    one, base = LanguageMap.load(maps / "maps/en-de.safetensors"), hf_xalign.load(files / "base")
    assert one.layers == (-2, -1) and bool(one.source.means) == (center == "true")
    links, expected = read_links(maps / "eval_links.jsonl"), {}
    for layer in one.layers:
        found = score_retrieval(base, make_tokenizer(), links, poolings=("mean",), layer=layer)["de"]
        expected |= {f"{name}, layer {layer}": value for name, value in found.items()}
    assert record["scores"]["before"] == {"de": expected}
    assert record["scores"]["after"]["de"].keys() == expected.keys()
    words = ["--head", "tagger", "--tagger_lstm_size", "8", "--save_models", "true", "--model_name_or_path", str(maps)]
    finetune.main(task_command(files, *words, evaluation=("de=de.jsonl", "en=en.jsonl"), out=tmp_path / "tagger"))
    model = hf_xalign.load(tmp_path / "tagger" / "seed-42").double()
    assert model.peft_config["default"].languages == ["en"] and model.peft_config["default"].pivot == "de"
    model = model.backbone
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 3]]), "output_hidden_states": True}
    with torch.no_grad():
        plain = base.double()(**inputs).hidden_states
        mapped, unmapped = (model(**inputs, language=code).hidden_states for code in ("en", "de"))
    weight, offset = (part.double() for part in one.affine())
    for k, layer in enumerate((1, 2)):
        assert torch.equal(unmapped[layer], plain[layer])
        for state, found in zip(plain[layer][0], mapped[layer][0], strict=True):
            by_loop = [sum(w * e for w, e in zip(row, state)) + b for row, b in zip(weight[k], offset[k])]
            assert (found - torch.stack(by_loop)).abs().max() < 1e-12 * (1 + state.norm())
    assert torch.equal(mapped[0], plain[0])


def test_maps_and_layers_of_the_tagger_that_do_not_fit(files, mapping_run, tmp_path):
    adapter = str(mapping_run.folder)  # of the last layer
    run(files, tmp_path / "both", "--layers", "-2", "-1")
    run(files, tmp_path / "one", *ROTATED[:2], "--layers", "1")
    both, base = str(tmp_path / "both"), str(files / "base")
    rows = [
        ((base, "--adapter", adapter, "--tagger_layers", "-2", "-1"), r"changes only the layers \[2\] of 2, so"),
        ((both, "--tagger_layers", "0", "-1"), r"changes only the layers \[1, 2\].* --layers 0 -1"),
        ((both, "--adapter", adapter), "is an adapter. Give its encoder"),
        ((str(tmp_path / "one"), "--head", "linear"), r"maps of layers \[1\], but not of the last layer"),
    ]
    for k, ((model, *options), message) in enumerate(rows):
        words = ["--model_name_or_path", model, "--head", "tagger", *options]
        with pytest.raises(InputError, match=message):
            finetune.main(task_command(files, *words, evaluation=("de=de.jsonl",), out=tmp_path / f"out{k}"))
        assert not (tmp_path / f"out{k}").exists()


def test_a_run_in_the_place_of_another(mapping_run, files, tmp_path, monkeypatch):
    shutil.copytree(mapping_run.folder, tmp_path / "out")
    folder = tmp_path / "out"

    def cut_off(*args):
        raise KeyboardInterrupt

    for name in ("write_card", "write_record"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(f"hf_xalign.trainers.base.run.{name}", cut_off)
            run(files, folder, *OVER)
        assert not (folder / "results.json").exists() and (folder / "maps").exists()
        with pytest.raises(InputError, match=r"holds another run \(.*maps/de-en\.safetensors\).*overwrite_output_dir"):
            run(files, folder)
    assert (folder / "adapter_config.json").exists()
    run(files, folder, "--method", "vecmap", "--direction", "from_pivot", *OVER)
    assert not list(folder.glob("adapter*"))
    assert [path.name for path in (folder / "maps").iterdir()] == ["en-de.safetensors"]


def test_what_is_not_used_is_said(files, tmp_path, caplog):
    data = [f"de={files / 'test.tsv'}", f"fr={files / 'french.tsv'}"]
    dry = ("--dry_run", "true", "--eval_data", *data)
    printed = output_of(main, [*on_files(files, tmp_path / "out"), *dictionaries(files), *dry])
    assert "unused   eval_data in fr" in printed
    assert "anchors  de: of 26 sentences" in printed  # 24 training pairs and two lines of text


def test_an_encoder_for_each_side_and_anchors_of_text_alone(files, tmp_path):
    save_base("distilbert", files / "english")
    lines = ["the cat and the dog sleep", "open the house"]
    (files / "english.txt").write_text("\n".join(lines))
    text = [f"de={files / 'german.txt'}", f"en={files / 'english.txt'}"]
    options = ("--supervision", "dictionary", "--target_model", str(files / "english"), "--protocol", "mao")
    alone = (*dictionaries(files)[:4], "--anchor_pairs", "false", "--text")
    record, printed = run(files, tmp_path / "two", *options, *alone, *text)
    assert "have an encoder each" in printed and record["adapter"] is None
    assert "anchors  de: of 2 sentences" in printed and "anchors  en: of 2 sentences" in printed
    after = record["scores"]["after"]["de"]
    assert {"retrieval_mean_to_pivot, mao", "bli_p@1_to_pivot, mao", "pool_bli, mao"} <= after.keys()
    links = read_links(tmp_path / "two/eval_links.jsonl")
    pair = {"source": hf_xalign.load(files / "base"), "target": hf_xalign.load(files / "english")}
    sides = held_out_words({side: (one, make_tokenizer()) for side, one in pair.items()}, links, read_protocols([]))
    for side, model in pair.items():
        own = extract_word_vectors(model, make_tokenizer(), links[f"{side}_words"][:])
        first = own.vectors[links[0]["links"][0][side == "target"]]
        assert_rounding(getattr(sides, side)[0], first, operations=64, scale=8.0)
    scores = sides.score(Score("retrieval", "mean"))
    assert record["scores"]["before"]["de"]["retrieval_mean"] == scores["retrieval_mean"]
    with pytest.raises(InputError, match="text in en: there are no words in its 0 rows"):
        run(files, tmp_path / "no", *options, *alone, text[0])


def test_on_an_adapter(files, tmp_path):
    base, mao = AutoModel.from_pretrained(files / "base", add_pooling_layer=False), tmp_path / "mao"
    get_peft_model(base, XAlignConfig(init="random", languages=["de"], pivot="en")).save_pretrained(mao)
    make_tokenizer().save_pretrained(mao)
    record, printed = run(files, tmp_path / "out", "--model_name_or_path", str(mao))
    assert "model    none: " in printed and record["adapter"] is None and record["maps"]["files"]
    links = read_links(tmp_path / "out" / "eval_links.jsonl")
    assert record["scores"]["before"]["de"] == score_retrieval(hf_xalign.load(mao), make_tokenizer(), links)["de"]
    french = [word for name in ("train", "eval") for word in (f"--{name}_data", f"fr={files / 'french.tsv'}")]
    with pytest.raises(InputError, match=r"language=fr: .* has maps for de, en"):
        run(files, tmp_path / "other", "--model_name_or_path", str(mao), *french)


def test_on_a_task_model_the_encoder_is_mapped(mapping_run, files, tmp_path):
    task = tmp_path / "task"
    AutoModelForSequenceClassification.from_pretrained(files / "base").save_pretrained(task)
    make_tokenizer().save_pretrained(task)
    record, _ = run(files, tmp_path / "out", "--model_name_or_path", str(task))
    assert record["scores"] == mapping_run.record["scores"]
    assert hf_xalign.load(tmp_path / "out").active_peft_config.languages == ["de"]


def test_directions_of_lexicon_induction():
    """`Hund` has two translations, of which one lies with `Katze`; German is turned by 90 degrees against English."""
    english = Anchors(["dog", "hound", "cat"], torch.tensor([[[1.0, 0.1]], [[0.2, 1.0]], [[0.0, 1.0]]]), torch.ones(3))
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    german = Anchors(["hund", "katze"], torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]) @ turn, torch.ones(2))
    linked = {"source": german.words, "target": ["dog", "cat"]}
    words = HeldOutWords(
        german.vectors,
        english.vectors[[0, 2]],
        linked,
        torch.zeros(2, 2, dtype=torch.bool),
        torch.zeros(2, dtype=torch.int64),
        1,
        torch.ones(2, dtype=torch.bool),
    )
    # As dictionaries of other makes are: not in lower case.
    test = [("dog", "Hund"), ("Hound", "Hund"), ("bitch", "Hund")]
    german, english = replace(german, lang="de"), replace(english, lang="en")
    lexicons = {"dictionary": {"de": [("cat", "katze")]}, "test_dictionary": {"de": test}}
    trainer = VectorMappingTrainer(german, english, MappingConfig(device="cpu"), **lexicons)
    trainer.held_out, trainer.known = {"de": words}, {}
    to_pivot = LanguageMap(SideMap(turn[None]), source_lang="de", target_lang="en")
    from_pivot = LanguageMap(SideMap(turn.T[None]), source_lang="en", target_lang="de")
    for direction, own in {"to_pivot": to_pivot, "from_pivot": from_pivot}.items():
        trainer.args, trainer.protocols = MappingConfig(direction=direction), read_protocols([])
        scores, intervals = trainer.score({"de": own})
        found = scores["de"]
        assert (found["bli_p@1_to_pivot"], found["bli_p@1_from_pivot"], found["bli_p@1"]) == (1.0, 0.5, 0.75)
        assert found["bli_p@1_oov_wrong_to_pivot"] == 1.0
        assert_rounding([found["bli_p@1_oov_wrong_from_pivot"], found["bli_coverage"]], [1 / 3, 2 / 3], operations=2)
        assert found["pool_bli"] == 2.5 and found["retrieval_mean"] == 1.0
        assert intervals["de"]["bli_p@1_from_pivot"][0] == 0.0
        # By cosine, both are published: the hub `cat` is not held against `hound`.
        trainer.protocols = read_protocols(["mao"])
        both = trainer.score({"de": own})[0]["de"]
        assert both.items() > found.items() and both["bli_p@1_to_pivot, mao"] == 1.0
        trainer.protocols = read_protocols([])
        raw, _ = trainer.score()
        assert raw["de"]["bli_p@1"] < 0.75 and raw["de"]["retrieval_mean"] < 1.0


# ---- Files of word vectors ----


def vector_files(folder, words=60, size=6):
    """Write vectors of two languages, the second those of the first turned, and a dictionary of all words."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(words, size, generator=generator)
    turn, _ = torch.linalg.qr(torch.randn(size, size, generator=generator))
    y = x @ turn.T
    for name, rows, letter in (("cc.de.6.vec.gz", x, "w"), ("en.bin", y, "v")):
        names = [f"{letter}{k}" for k in range(words)]
        if name.endswith(".bin"):
            content = b"".join(f"{word} ".encode() + row.numpy().tobytes() for word, row in zip(names, rows))
            (folder / name).write_bytes(f"{words} {size}\n".encode() + content)
        else:
            write_word2vec(Anchors(names, rows.unsqueeze(1), torch.zeros(words)), folder / name)
    (folder / "de-en.txt").write_text("".join(f"w{k} v{k}\n" for k in range(words)))
    (folder / "en-de.txt").write_text("".join(f"v{k}\tw{k}\n" for k in range(0, words, 4)))
    return ["--source_vectors", str(folder / "cc.de.6.vec.gz"), "--target_vectors", f"en={folder / 'en.bin'}",
            "--dictionary", str(folder / "de-en.txt"), "--output_dir", str(folder / "out")]  # fmt: skip


@pytest.mark.parametrize("method", ["procrustes", "vecmap", *slow(["least_squares", "rcsls"])])
def test_word_vectors_that_are_turned_are_turned_back(tmp_path, method):
    command = [*vector_files(tmp_path, words=120), "--method", method, "--vectors_format", "vec"]
    printed = output_of(main, [*command, "--direction", "from_pivot" if method == "vecmap" else "to_pivot"])
    record = read_record(tmp_path / "out")
    after = record["scores"]["after"]["de"]
    assert after["bli_p@1"] == after["bli_p@1, cosine"] == after["bli_coverage"] == 1.0
    assert "de first" in printed
    counts = record["maps"]["dictionary"]["de"]
    assert 0 < after["pool_bli"] - counts["used"] < 60 and counts["used"] == counts["entries"]  # the rest is held out
    one, other = (read_word2vec(tmp_path / "out/vectors" / f"{code}.vec") for code in ("de", "en"))
    assert torch.cosine_similarity(one.vectors, other.vectors, dim=-1).min() > 0.99
    # The map takes the files' own vectors where the run wrote them.
    [file] = (tmp_path / "out/maps").iterdir()
    back, raw = LanguageMap.load(file), read_word2vec(tmp_path / "cc.de.6.vec.gz").vectors
    side = "target" if method == "vecmap" else "source"
    assert torch.cosine_similarity(back.project(raw, side), one.vectors, dim=-1).min() > 0.999
    card = (tmp_path / "out/README.md").read_text()
    assert "word vectors `cc.de.6.vec.gz` and `en.bin`" in card and "read_word2vec" in card and "encoder" not in card


def test_word_vectors_with_a_test_dictionary(tmp_path, caplog):
    # The codes `deu` and `de` are one language.
    command = [*vector_files(tmp_path), "--test_dictionary", f"deu={tmp_path / 'en-de.txt'}", "--max_vectors", "50"]
    printed = output_of(main, command)
    assert "although its name says" not in caplog.text
    record = read_record(tmp_path / "out")
    after = record["scores"]["after"]["de"]
    assert "15 entries, 13 with both words there, not " in printed and "held out 15 source words" in printed
    assert after["pool_bli"] == 50 and after["bli_coverage"] == 13 / 15 and after["bli_p@1"] == 1.0
    assert record["maps"]["dictionary"]["de"] == {"entries": 45, "used": 37}
    assert Anchors.load(tmp_path / "out/vectors/de.safetensors").words == [f"w{k}" for k in range(50)]
    pushed = Contents(tmp_path / "out").read("me/map")  # no model must be pushed before it
    assert any(name.startswith("maps/") for name in pushed)
    # Its own code of the card runs.
    code = (tmp_path / "out/README.md").read_text().partition("```python\n")[2].partition("```")[0]
    exec(code.replace("path/to/this/folder", str(tmp_path / "out")), {})
    output_of(main, [*command, *OVER, "--vectors_format", "vec.gz"])
    assert sorted(path.name for path in (tmp_path / "out/vectors").iterdir()) == ["de.vec.gz", "en.vec.gz"]


def test_a_dictionary_with_the_name_of_another_language_is_told(tmp_path, caplog):
    command = vector_files(tmp_path)
    (tmp_path / "de-en.txt").rename(tmp_path / "gl-en.txt")
    (tmp_path / "cc.de.6.vec.gz").rename(tmp_path / "cc.sl.6.vec.gz")
    command[1] = f"de={tmp_path / 'cc.sl.6.vec.gz'}"
    output_of(main, [word.replace("de-en.txt", "gl-en.txt") for word in command])
    assert "cc.sl.6.vec.gz: read as de, although its name says sl" in caplog.text
    assert "gl-en.txt: read as de, although its name says gl" in caplog.text


def test_vectors_are_not_written_over(tmp_path):
    command = vector_files(tmp_path)
    file = tmp_path / "deep/vectors/cc.de.6.vec.gz"
    file.parent.mkdir(parents=True)
    shutil.copy(tmp_path / file.name, file)
    with pytest.raises(InputError, match="where this run writes"):
        main([*command[:-1], str(tmp_path / "deep"), "--source_vectors", str(file)])


def test_a_learnt_translation_of_a_pivot_word_is_right_too(tmp_path):
    # Each pivot word has two translations of nearly its vector; the test has the second of some.
    pivot = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    english = Anchors([f"p{k}" for k in range(40)], pivot[:, None], torch.ones(40), lang="en")
    german = torch.cat([pivot, pivot + 1e-3 * pivot.roll(1)])[:, None].roll(1, -1)
    german = Anchors([f"{name}{k}" for name in "st" for k in range(40)], german, torch.ones(80), lang="de")
    entries = [(f"p{k}", f"{name}{k}") for name in "st" for k in range(40)]
    for test in (None, entries[-9:]):  # by the fixed split, and a dictionary of one's own
        vectors = (replace(part, vectors=part.vectors.clone()) for part in (german, english))
        args = MappingConfig(str(tmp_path), center=False, device="cpu", overwrite_output_dir=True)
        lexicons = {"dictionary": {"de": entries}, "test_dictionary": {"de": test} if test else None}
        trainer = VectorMappingTrainer(*vectors, args, **lexicons)
        trainer.train()
        scores = trainer.record["scores"]["after"]["de"]
        assert scores["bli_p@1_to_pivot"] == scores["bli_p@1_from_pivot"] == scores["bli_p@1"] == 1.0
        with pytest.raises(InputError, match="the vectors are mapped: make a new trainer"):
            trainer.train()


def test_a_test_word_in_another_case_is_not_learnt_from(tmp_path):
    words = torch.eye(3).unsqueeze(1)
    german, english = (
        Anchors(names, words.clone(), torch.ones(3), lang=lang)
        for names, lang in ((["haus", "US", "us"], "de"), (["house", "America", "we"], "en"))
    )
    args = MappingConfig(str(tmp_path), center=False, device="cpu")
    entries = [("house", "haus"), ("America", "US"), ("we", "us")]
    trainer = VectorMappingTrainer(
        german,
        english,
        args,
        dictionary={"de": entries},
        test_dictionary={"de": [("house", "Haus"), ("America", "US")]},
    )
    assert trainer.dictionary == {"de": [("we", "us")]}
