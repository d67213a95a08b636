"""Word links of shards: what they are, and runs that are killed, broken or spread over workers."""

import errno
import json
import os
import random
import sys
import unicodedata

import numpy as np
import pyarrow.parquet
import pytest
from datasets import Dataset, concatenate_datasets
from support.refusals import assert_refused
from support.text import bitext
from support.tiny import make_encoder, make_tokenizer

from hf_xalign.cli.main import main
from hf_xalign.data.load import load_parallel
from hf_xalign.errors import InputError
from hf_xalign.links import align as engine
from hf_xalign.links import align_shards, align_words, choose_layer
from hf_xalign.links.statistical import (
    STATISTICAL_ALIGNERS,
    StatisticalLinker,
    fit,
    load_model,
    save_model,
)

WORDS = ["cat", "dog", "hut", "tree", "sees", "likes", "big", "small", "red", "blue", "the", "a", "runs", "eats"]
FAST = {"shards": 4, "fit_pairs": 90}


@pytest.fixture(scope="module")
def corpus():
    draw, rows = random.Random(0), []
    for number in range(300):
        words = draw.sample(WORDS, draw.randint(3, 6))
        rows.append((" ".join(word[::-1] + "e\u0301"[: number % 3] for word in words).title(), " ".join(words)))
    return bitext(*rows, langs=["de", "bn", "de"]).add_column("number", list(range(300)))


@pytest.fixture
def source(corpus, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    corpus.select(range(170)).to_parquet(folder / "a.parquet", batch_size=50)
    corpus.select(range(170, 300)).to_parquet(folder / "b.parquet")
    return folder


def read(folder):
    files = sorted(folder.glob("*.parquet"))
    assert [file.name for file in files] == [f"part-{n:05d}-of-{len(files):05d}.parquet" for n in range(len(files))]
    return concatenate_datasets([Dataset.from_parquet(str(file)) for file in files])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def split(corpus):
    return [[text.split() for text in corpus[side]] for side in ("source", "target")]


def normal(corpus):
    return corpus.map(lambda row: {"source": unicodedata.normalize("NFC", row["source"])})


@pytest.mark.parametrize("aligner", ["fast_align", "hmm", "dictionary"])
def test_shards_have_the_links_of_the_whole_text(corpus, source, tmp_path, aligner):
    if aligner == "dictionary":
        path = tmp_path / "en.txt"
        path.write_text("".join(f"{word}\t{word[::-1]}\n" for word in WORDS), "utf-8")
        aligner = f"dictionary:{path}"
    options = {"aligner": aligner, "symmetrization": "union", "one_to_one": False, "drop_identical": True}
    record = align_shards([source], tmp_path / "out", **options, **FAST)
    found = read(tmp_path / "out")
    wanted = align_words(normal(corpus), **options, keep_unlinked=True, sample_size=90)
    assert found.column_names == wanted.column_names
    for name in found.column_names:
        assert found[name][:] == wanted[name][:]
    assert [shard["pairs"] for shard in record["shards"]] == [75] * 4
    assert {name: own["pairs"] for name, own in record["languages"].items()} == {"bn-en": 100, "de-en": 200}
    assert sum(own["links"] for own in record["languages"].values()) == sum(map(len, found["links"])) > 300
    assert len(contents(tmp_path / "out")) == 5
    assert load_parallel(tmp_path / "out", sides_checked=True)["links"][:] == list(filter(None, wanted["links"]))
    # Words that are there are kept: linked again, nothing changes.
    align_shards([tmp_path / "out"], tmp_path / "again", **options, **FAST)
    again, out = contents(tmp_path / "again"), contents(tmp_path / "out")
    assert again.pop("align-words.json") != out.pop("align-words.json") and again == out


@pytest.mark.parametrize("aligner", STATISTICAL_ALIGNERS)
def test_a_saved_model_links_like_the_fitted_one(corpus, tmp_path, aligner):
    sides = split(corpus)
    fitted = fit(aligner, zip(*sides))
    for name, model in enumerate(fitted):
        (tmp_path / str(name)).mkdir()
        save_model(model, tmp_path / str(name))
    loaded = [load_model(aligner, tmp_path / str(name)) for name in range(2)]
    assert StatisticalLinker(*loaded, "grow-diag")(*sides) == StatisticalLinker(*fitted, "grow-diag")(*sides)
    assert loaded[0].num_sentence_pairs == 0
    with pytest.raises(InputError, match="cannot be read as a model"):
        load_model(aligner, tmp_path)


def test_the_encoder_links_shards(corpus, source, tmp_path):
    model, tokenizer = make_encoder(), make_tokenizer()
    tokenizer.add_tokens("é")
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    align_shards([source], tmp_path / "out", "encoder", model=str(tmp_path / "model"), shards=3)
    words = [read(tmp_path / "out")[f"{side}_words"][:] for side in ("source", "target")]
    drawn = np.sort(np.random.default_rng(0).choice(300, 256, replace=False))
    layer = choose_layer(model, tokenizer, *([side[row] for row in drawn] for side in words), method="argmax")
    options = {"model": model, "tokenizer": tokenizer, "layer": layer, "keep_unlinked": True}
    wanted = align_words(normal(corpus), "encoder", **options)
    agree = [x == y for x, y in zip(read(tmp_path / "out")["links"], wanted["links"])]
    assert sum(agree) > 0.98 * len(agree)  # a batch's padding moves the last digits of a cosine


def test_a_failed_shard_is_named_and_made_by_the_next_run(source, tmp_path, monkeypatch):
    align_shards([source], tmp_path / "whole", **FAST)
    done, link, out = [], engine._link_shard, tmp_path / "out"

    def broken(job, files, folder, number, shards):
        if number == 2:
            raise OSError(errno.EIO, "Input/output error")
        return counting(job, files, folder, number, shards)

    def counting(job, files, folder, number, shards):
        done.append(number)
        return link(job, files, folder, number, shards)

    monkeypatch.setattr(engine, "_link_shard", broken)
    with pytest.raises(InputError, match=r"part-00002-of-00004.parquet \(1 of 4 failed\): OSError.*again to resume"):
        align_shards([source], out, **FAST)
    assert done == [0, 1, 3] and len(list(out.glob("*.parquet"))) == 3
    (out / "part-00001-of-00004.parquet").write_bytes(b"damaged")
    monkeypatch.setattr(engine, "_link_shard", counting)
    monkeypatch.setattr(engine.statistical, "fit", None)
    align_shards([source], out, **FAST)
    assert done == [0, 1, 3, 1, 2] and contents(out) == contents(tmp_path / "whole")


def interrupted(monkeypatch, source, out, **options):
    with monkeypatch.context() as patch:
        patch.setattr(engine, "write_json", lambda path, value: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            align_shards([source], out, **FAST | options)


def test_other_text_of_the_same_size_and_time_is_noticed(corpus, tmp_path, monkeypatch):
    source = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(corpus.data.table, source, compression="none")
    interrupted(monkeypatch, source, tmp_path / "out")
    before = source.stat()
    source.write_bytes(source.read_bytes().replace(b"hut", b"hat"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    align_shards([source], tmp_path / "out", **FAST)
    align_shards([source], tmp_path / "whole", **FAST)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not any("hut" in words for words in read(tmp_path / "out")["target_words"])


def test_other_settings_start_over(source, tmp_path, monkeypatch):
    interrupted(monkeypatch, source, tmp_path / "out", shards=5)
    align_shards([source], tmp_path / "out", **FAST)
    assert len(read(tmp_path / "out")) == 300


def test_command(source, tmp_path, capsys):
    words = ["align-words", *(f"{source}/{name}.parquet" for name in "ab"), str(tmp_path / "out"), "--workers", "1"]
    assert main([*words, "--shards", "2", "--fit_pairs", "50", "--several"]) == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["bn-en", "100"] in lines and ["de-en", "200"] in lines and ["2", "shards:"] in lines
    settings = json.loads((tmp_path / "out" / "align-words.json").read_text("utf-8"))["settings"]
    assert settings["fit_pairs"] == 50 and settings["one_to_one"] is False and len(read(tmp_path / "out")) == 300
    assert main(words) == 2 and "holds a finished result" in capsys.readouterr().err
    assert main(["align-words", "builtin:de", "--shards", "3"]) == 2
    assert "--shards is an option for shards" in capsys.readouterr().err


def test_a_language_has_one_code_in_shards_and_rows_of_all_splits_are_told(corpus, tmp_path, caplog):
    spelled = {"de": ("deu", "de", "de_Latn"), "bn": ("ben", "bn", "ben")}
    codes = [spelled[code][number % 3] for number, code in enumerate(corpus["source_lang"])]
    splits = ["train", "test"] * 150
    for name, languages in (("own", corpus["source_lang"][:]), ("other", codes)):
        text = corpus.remove_columns("source_lang").add_column("source_lang", languages).add_column("split", splits)
        text.to_parquet(tmp_path / f"{name}.parquet")
        record = align_shards([tmp_path / f"{name}.parquet"], tmp_path / name, **FAST)
        assert [*record["languages"]] == ["bn-en", "de-en"]
    own, other = (read(tmp_path / name) for name in ("own", "other"))
    assert own["links"][:] == other["links"][:] and {*other["source_lang"]} == {"de", "bn"}
    load_parallel(tmp_path / "own", sides_checked=True)
    assert "own: the rows of all splits are read. Link each split by itself" in caplog.text


def test_a_folder_of_splits_gives_the_training_text(corpus, tmp_path):
    for split, rows in (("train", range(20)), ("test", range(20, 50))):
        corpus.select(rows).to_parquet(tmp_path / "in" / f"{split}-00000-of-00001.parquet")
    record = align_shards([tmp_path / "in"], tmp_path / "out", **FAST)
    assert record["sources"] == ["train-00000-of-00001.parquet"] and len(read(tmp_path / "out")) == 20


def test_bad_input(source, corpus, tmp_path, monkeypatch):
    def given(change, **options):
        def call(folder):
            data = change(corpus.select(range(20)))
            corpus.select(range(20)).to_parquet(folder / "a.parquet")
            data.to_parquet(folder / "b.parquet")
            return align_shards([folder], folder / "out", shards=1, **options)

        return call

    def file(content, name="a.parquet"):
        def call(folder):
            (folder / name).write_bytes(content)
            return align_shards([folder / name], folder / "out")

        return call

    monkeypatch.setitem(sys.modules, "ray", None)
    whole = (source / "b.parquet").read_bytes()
    dictionary = tmp_path / "en.txt"
    dictionary.write_text("cat\tneko\n", "utf-8")
    assert_refused(
        {
            "cut": (file(whole[:-100]), "a.parquet: cannot be read as Parquet"),
            "in place": (lambda folder: align_shards([source], source), "already holds Parquet files"),
            "pharaoh": (lambda folder: align_shards([source], folder, "pharaoh:x"), "pharaoh reads"),
            "links": (given(lambda data: data, aligner=f"dictionary:{dictionary}"), "links are left in 40 sentence"),
            "ray": (lambda folder: align_shards([source], folder, ray="local"), r"pip install .hf_xalign\[ray\]"),
        },
        tmp_path,
    )


def test_two_workers_change_no_byte(source, tmp_path):
    """tests/faults kills the command at its operations on files."""
    for workers in (1, 2):
        align_shards([source], tmp_path / str(workers), **FAST, workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.slow
def test_ray_changes_no_byte(source, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    align_shards([source], tmp_path / "local", **FAST)
    align_shards([source], tmp_path / "ray", **FAST, workers=2, ray="local")
    assert contents(tmp_path / "local") == contents(tmp_path / "ray")
    with pytest.raises(InputError, match="no Ray cluster answers at auto"):
        align_shards([source], tmp_path / "nowhere", ray="auto")
