"""Every source of text gives the same columns, from the cache where its content was read before."""

import errno
import gzip
import json
import os
import random
import unicodedata

import datasets
import pytest
from datasets import Dataset, Features, Translation
from support.dataset_builder import COMMIT, put_on_hub
from support.text import tmx

from hf_xalign.cache import cache_dir
from hf_xalign.data import parallel
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.parallel import COLUMNS, concatenate, hub_commit, load_parallel, load_sources, parse_source

PAIRS = [("Die Datei öffnen", "Open the file"), ("Speichern", "Save"), ("Ein\u2028Bruch \x85 hier", "A break here")]
EXPECTED = [(source, target, "de", "en") for source, target in PAIRS]
TEXT = ["eins zwei", "", "drei"]


def rows(dataset):
    assert tuple(dataset.column_names) == COLUMNS
    return [tuple(row.values()) for row in dataset]


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def files(folder, suffix):
    """Yield a source of the same three pairs in every format that can be compressed."""

    def records(make):
        return "".join(json.dumps(make(*pair)) + "\n" for pair in PAIRS)

    units = [[("EN-gb", t), ("de-DE", s), ("fr", "x")] for s, t in PAIRS[:2]] + [[("fr", "x"), ("en", "y")]]
    sides = (("".join(f"{s}\r\n" for s, _ in PAIRS), "t.de"), ("\n".join(t for _, t in PAIRS), "t.en"))
    yield [write(folder / f"{name}{suffix}", text) for text, name in sides]
    for name, text in {
        "plain.tsv": "".join(f"{s}\t{t}\n" for s, t in PAIRS),
        "header.tsv": "id\ten\tde\n" + "".join(f"7\t{t}\t{s}\n" for s, t in PAIRS),
        "m.tmx": tmx(*units, [("en", PAIRS[2][1]), ("de", PAIRS[2][0])]),
        "p.jsonl": records(lambda s, t: {"source": s, "target": t, "source_lang": "de", "target_lang": "en"}),
        "codes.jsonl": records(lambda s, t: {"source": "wiki", "target": "x", "de": s, "en": t}),
        "translation.jsonl": records(lambda s, t: {"id": 1, "translation": {"en": t, "de": s}}),
    }.items():
        yield write(folder / f"{name}{suffix}", text)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_of_every_kind_give_the_same_rows(tmp_path, suffix):
    for path in files(tmp_path, suffix):
        assert rows(load_parallel(path, source_lang="de")) == EXPECTED, path
    assert rows(load_sources([f"de={tmp_path}/t.de{suffix},{tmp_path}/t.en{suffix}"])) == EXPECTED


def test_parquet(tmp_path):
    path = tmp_path / "pairs.parquet"
    sides = [s for s, _ in PAIRS], [t for _, t in PAIRS]
    for left, right in (("source", "target"), ("de", "en"), ("links", "rechts")):
        table = Dataset.from_dict({"n": [1, 2, 3], right: sides[1], left: sides[0]})
        table.to_parquet(path, batch_size=2)  # two row groups
        named = {"source_column": "links", "target_column": "rechts"} if left == "links" else {}
        assert rows(load_parallel(path, source_lang="de", **named)) == EXPECTED
    Dataset.from_list([{"translation": {"de": s, "en": t}} for s, t in PAIRS]).to_parquet(path)
    assert rows(load_parallel(path, source_lang="de")) == EXPECTED


def test_details_of_content(tmp_path, caplog):
    """Named columns win over the usual ones, text is composed and stripped, TMX loses markup, empty pairs can go."""
    decomposed = unicodedata.normalize("NFD", "Öffnen কো")
    seg = 'Klick <bpt i="1">&lt;b&gt;</bpt>hier<ept i="1">&lt;/b&gt;</ept>, <hi>jetzt</hi><ph>%s</ph>!'
    named = {"source_column": "x", "target_column": "y"}
    for name, text, options, expected in (
        ("n.jsonl", '{"source": "a", "target": "b", "x": "eins", "y": "one"}\n', named, [("eins", "one")]),
        ("p.tsv", f"\ufeff  {decomposed} \t Open \n", {}, [(unicodedata.normalize("NFC", decomposed), "Open")]),
        ("m.tmx", tmx([("de-AT", "x"), ("de", seg), ("en", "Click!")]), {}, [("Klick hier, jetzt!", "Click!")]),
        ("e.tsv", "a\tb\n\n\tc\nd\te\n", {"on_empty": "drop"}, [("a", "b"), ("d", "e")]),
    ):
        with caplog.at_level("INFO"):
            loaded = load_parallel(write(tmp_path / name, text), source_lang="de", **options)
        assert rows(loaded) == [(*pair, "de", "en") for pair in expected]
    assert "dropped 2 pairs" in caplog.text


def test_embedded_text_is_normalised_and_its_test_is_apart():
    for language, split, count in (("de", "train", 1994), ("bn", "train", 2000), ("de", "test", 500)):
        loaded = load_parallel(f"embedded:{language}", split=split)
        assert len(loaded) == count
        assert set(loaded["source_lang"]) == {language} and set(loaded["target_lang"]) == {"en"}
        assert all(text and unicodedata.is_normalized("NFC", text) for text in loaded["source"])
    seen, unseen = (load_sources(["embedded:de", "embedded:bn"], split=split)["target"] for split in ("train", "test"))
    assert not set(seen) & set(unseen)


def test_sources_concatenate_and_max_pairs_counts_for_each(tmp_path):
    assert parse_source("de=owner/name:de-en") == ("owner/name:de-en", "de")
    assert parse_source("data/key=value/file.jsonl") == ("data/key=value/file.jsonl", None)
    path = write(tmp_path / "own.jsonl", '{"source": "a", "target": "b", "source_lang": "es"}\n')
    loaded = load_sources(["embedded:de", str(path), "bn=embedded:bn"], max_pairs=2)
    assert loaded["source_lang"] == ["de", "de", "es", "bn", "bn"]
    assert len(concatenate([loaded, loaded])) == 10


def test_a_changed_file_is_read_again_and_the_same_content_is_not(tmp_path, monkeypatch):
    path = write(tmp_path / "p.tsv", "eins\tone\n")
    first = load_parallel(path, source_lang="de")
    before = path.stat()
    write(path, "zwei\ttwo\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: only the content differs
    second = load_parallel(path, source_lang="de")
    assert first["source"] == ["eins"] and second["source"] == ["zwei"]

    monkeypatch.setattr(parallel, "_write", lambda *_: pytest.fail("read again"))
    again = load_parallel(write(tmp_path / "copy.tsv", "eins\tone\n"), source_lang="de")
    assert again["source"] == ["eins"] and again._fingerprint == first._fingerprint
    assert again.cache_files[0]["filename"].startswith(str(cache_dir("parallel")))


def test_more_rows_than_one_batch_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "_PAIRS_A_BATCH", 7)
    numbers = [str(random.Random(0).random()) for _ in range(3)] + [str(i) for i in range(97)]
    path = write(tmp_path / "p.tsv", "".join(f"s{n}\tt{n}\n" for n in numbers))
    assert rows(load_parallel(path, source_lang="de")) == [(f"s{n}", f"t{n}", "de", "en") for n in numbers]


def test_datasets_of_the_hub(monkeypatch):
    features = Features({"id": datasets.Value("int64"), "translation": Translation(languages=["de", "en"])})
    records = [{"id": i, "translation": {"de": s, "en": t}} for i, (s, t) in enumerate(PAIRS)]
    calls = put_on_hub(monkeypatch, Dataset.from_list(records, features=features))
    loaded = load_parallel("owner/name:de-en", source_lang="de", split="validation", revision="abc")
    assert rows(loaded) == EXPECTED
    assert calls == [("owner/name", "de-en", "abc", "validation")]
    assert hub_commit(loaded) == COMMIT
    assert hub_commit(load_parallel("embedded:de", split="test")) is None

    columns = {"german": [s for s, _ in PAIRS], "english": [t for _, t in PAIRS], "audio": [[0]] * 3}
    put_on_hub(monkeypatch, Dataset.from_dict(columns))
    named = {"source_column": "german", "target_column": "english"}
    assert rows(load_parallel("owner/name", source_lang="de", max_pairs=2, **named)) == EXPECTED[:2]

    calls = put_on_hub(monkeypatch, Dataset.from_dict({"text": TEXT, "url": TEXT}))
    found = load_monolingual("owner/wiki:20251101.de", max_sentences=2)
    assert found["text"][:] == TEXT[:2]
    assert calls == [("owner/wiki", "20251101.de", None, "train")]
    assert hub_commit(found) == COMMIT


def test_text_of_one_language_in_every_format(tmp_path):
    lines = "".join(line + "\n" for line in TEXT)
    records = "".join(json.dumps({"id": 1, "text": line}) + "\n" for line in TEXT)
    texts = {"text.txt": lines, "text.txt.gz": lines, "text.jsonl": records, "text.jsonl.gz": records}
    paths = [*(write(tmp_path / name, text) for name, text in texts.items()), tmp_path / "text.parquet"]
    Dataset.from_dict({"text": TEXT, "id": [1] * 3}).to_parquet(paths[-1])
    for path in paths:
        found = load_monolingual(path)
        assert found.column_names == ["text"] and found["text"][:] == TEXT
        assert load_monolingual(str(path), max_sentences=2)["text"][:] == TEXT[:2]
    path = write(tmp_path / "a.jsonl", '{"satz": "eins", "n": 1}\n')
    assert load_monolingual(path, text_column="satz")["text"][:] == ["eins"]


def test_a_full_disk_is_not_a_damaged_file(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "eins\n")
    full, wrapped = OSError(errno.ENOSPC, "No space left"), datasets.exceptions.DatasetGenerationError("failed")
    wrapped.__cause__ = full
    for error in (full, wrapped):

        def load_dataset(*args, error=error, **options):
            raise error

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        with pytest.raises(type(error)) as found:
            load_monolingual(path)
        assert found.value is error
