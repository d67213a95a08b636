"""Every source gives the same four columns, and every bad input an error that names file and row."""

from __future__ import annotations

import gzip
import json
import os
import random
import unicodedata
from functools import partial

import datasets
import pytest
from datasets import Dataset, Features, Translation
from support.dataset_builder import COMMIT, put_on_hub

from hf_xalign.cache import cache_dir
from hf_xalign.data import parallel
from hf_xalign.data.parallel import COLUMNS, concatenate, hub_commit, load_parallel, load_sources, parse_source
from hf_xalign.errors import InputError

PAIRS = [("Die Datei öffnen", "Open the file"), ("Speichern", "Save"), ("Ein\u2028Bruch \x85 hier", "A break here")]


def rows(dataset):
    assert tuple(dataset.column_names) == COLUMNS
    return [tuple(row.values()) for row in dataset]


EXPECTED = [(source, target, "de", "en") for source, target in PAIRS]


def write(path, text):
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def tmx(units):
    body = "".join(
        "<tu>" + "".join(f'<tuv xml:lang="{lang}"><seg>{seg}</seg></tuv>' for lang, seg in unit) + "</tu>"
        for unit in units
    )
    start = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    return f'{start}<tmx version="1.4"><header srclang="de"/><body>{body}</body></tmx>'


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", ["lines", "tsv", "tsv-header", "jsonl", "jsonl-codes", "jsonl-translation", "tmx"])
def test_files_of_every_kind_give_the_same_rows(tmp_path, kind, suffix):
    if kind == "lines":
        path = [
            write(tmp_path / f"text.de{suffix}", "".join(f"{s}\r\n" for s, _ in PAIRS)),
            write(tmp_path / f"text.en{suffix}", "\n".join(t for _, t in PAIRS)),
        ]
    elif kind == "tsv":
        path = write(tmp_path / f"pairs.tsv{suffix}", "".join(f"{s}\t{t}\n" for s, t in PAIRS))
    elif kind == "tsv-header":
        path = write(tmp_path / f"pairs.tsv{suffix}", "id\ten\tde\n" + "".join(f"7\t{t}\t{s}\n" for s, t in PAIRS))
    elif kind == "tmx":
        units = [[("EN-gb", t), ("de-DE", s), ("fr", "x")] for s, t in PAIRS[:2]] + [[("fr", "x"), ("en", "y")]]
        text = tmx([*units, [("en", PAIRS[2][1]), ("de", PAIRS[2][0])]])
        path = write(tmp_path / f"memory.tmx{suffix}", text)
    else:
        record = {
            "jsonl": lambda s, t: {"source": s, "target": t, "source_lang": "de", "target_lang": "en"},
            "jsonl-codes": lambda s, t: {"source": "wiki", "target": "x", "de": s, "en": t},
            "jsonl-translation": lambda s, t: {"id": 1, "translation": {"en": t, "de": s}},
        }[kind]
        path = write(tmp_path / f"p.jsonl{suffix}", "".join(json.dumps(record(*pair)) + "\n" for pair in PAIRS))
    assert rows(load_parallel(path, source_lang="de")) == EXPECTED
    if kind == "lines":
        assert rows(load_sources([f"de={path[0]},{path[1]}"])) == EXPECTED


@pytest.mark.parametrize("columns", [("source", "target"), ("de", "en"), ("links", "rechts")])
def test_parquet(tmp_path, columns):
    path = tmp_path / "pairs.parquet"
    left, right = columns
    table = Dataset.from_dict({"n": [1, 2, 3], right: [t for _, t in PAIRS], left: [s for s, _ in PAIRS]})
    table.to_parquet(path, batch_size=2)  # two row groups
    named = {"source_column": "links", "target_column": "rechts"} if left == "links" else {}
    assert rows(load_parallel(path, source_lang="de", **named)) == EXPECTED


def test_parquet_with_translation_dict(tmp_path):
    path = tmp_path / "pairs.parquet"
    Dataset.from_list([{"translation": {"de": s, "en": t}} for s, t in PAIRS]).to_parquet(path)
    assert rows(load_parallel(path, source_lang="de")) == EXPECTED


def test_named_columns_win_over_the_usual_ones(tmp_path):
    path = write(tmp_path / "p.jsonl", '{"source": "a", "target": "b", "x": "eins", "y": "one"}\n')
    loaded = load_parallel(path, source_lang="de", source_column="x", target_column="y")
    assert rows(loaded) == [("eins", "one", "de", "en")]
    with pytest.raises(InputError, match="go together"):
        load_parallel(path, source_lang="de", source_column="x")


def test_text_is_composed_and_stripped(tmp_path):
    decomposed = unicodedata.normalize("NFD", "Öffnen কো")
    path = write(tmp_path / "p.tsv", f"\ufeff  {decomposed} \t Open \n")
    assert rows(load_parallel(path, source_lang="de")) == [
        (unicodedata.normalize("NFC", decomposed), "Open", "de", "en")
    ]


def test_tmx_keeps_text_and_leaves_out_markup(tmp_path):
    seg = 'Klick <bpt i="1">&lt;b&gt;</bpt>hier<ept i="1">&lt;/b&gt;</ept>, <hi>jetzt</hi><ph>%s</ph>!'
    path = write(tmp_path / "m.tmx", tmx([[("de-AT", "x"), ("de", seg), ("en", "Click here, now!")]]))
    assert rows(load_parallel(path, source_lang="de")) == [("Klick hier, jetzt!", "Click here, now!", "de", "en")]


@pytest.mark.parametrize("language, split, count", [("de", "train", 1994), ("bn", "train", 2000), ("de", "test", 500)])
def test_embedded(language, split, count):
    loaded = load_parallel(f"embedded:{language}", split=split)
    assert len(loaded) == count
    assert set(loaded["source_lang"]) == {language} and set(loaded["target_lang"]) == {"en"}
    assert all(loaded["source"]) and all(unicodedata.is_normalized("NFC", text) for text in loaded["source"])


def test_embedded_test_sentences_are_not_trained_on():
    seen = set(load_sources(["embedded:de", "embedded:bn"])["target"])
    assert not seen & set(load_sources(["embedded:de", "embedded:bn"], split="test")["target"])


def test_sources_concatenate_and_max_pairs_counts_for_each(tmp_path):
    path = write(tmp_path / "own.jsonl", '{"source": "a", "target": "b", "source_lang": "es"}\n')
    loaded = load_sources(["embedded:de", str(path), "bn=embedded:bn"], max_pairs=2)
    assert loaded["source_lang"] == ["de", "de", "es", "bn", "bn"]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("embedded:de", ("embedded:de", "de")),
        ("de=path/to/file.jsonl", ("path/to/file.jsonl", "de")),
        ("pt-BR=a.pt,a.en", ("a.pt,a.en", "pt-BR")),
        ("de=owner/name:de-en", ("owner/name:de-en", "de")),
        ("data/key=value/file.jsonl", ("data/key=value/file.jsonl", None)),
    ],
)
def test_parse_source(text, expected):
    assert parse_source(text) == expected


def test_a_changed_file_is_read_again_and_the_same_content_is_not(tmp_path, monkeypatch):
    path = write(tmp_path / "p.tsv", "eins\tone\n")
    first = load_parallel(path, source_lang="de")
    before = path.stat()
    write(path, "zwei\ttwo\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: only the content differs
    second = load_parallel(path, source_lang="de")
    assert first["source"] == ["eins"] and second["source"] == ["zwei"]
    assert first._fingerprint != second._fingerprint

    monkeypatch.setattr(parallel, "_write", lambda *_: pytest.fail("read again"))
    again = load_parallel(write(tmp_path / "copy.tsv", "eins\tone\n"), source_lang="de")
    assert again["source"] == ["eins"] and again._fingerprint == first._fingerprint


def test_the_table_lies_in_the_cache_memory_mapped_and_arguments_matter(tmp_path):
    path = write(tmp_path / "p.tsv", "eins\tone\nzwei\ttwo\n")
    whole, part = load_parallel(path, source_lang="de"), load_parallel(path, source_lang="de", max_pairs=1)
    assert (len(whole), len(part)) == (2, 1)
    tables = {loaded.cache_files[0]["filename"] for loaded in (whole, part)}
    assert len(tables) == 2 and all(table.startswith(str(cache_dir("parallel"))) for table in tables)
    assert load_parallel(path, source_lang="nl")["source_lang"] == ["nl", "nl"]
    assert not [name for name in cache_dir("parallel").iterdir() if name.name.startswith(".")]


def test_more_rows_than_one_batch_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "_PAIRS_A_BATCH", 7)
    numbers = [str(random.Random(0).random()) for _ in range(3)] + [str(i) for i in range(97)]
    path = write(tmp_path / "p.tsv", "".join(f"s{n}\tt{n}\n" for n in numbers))
    loaded = load_parallel(path, source_lang="de")
    assert loaded["source"] == [f"s{n}" for n in numbers] and loaded["target"] == [f"t{n}" for n in numbers]


BAD = {
    "empty-tsv-side": ("p.tsv", "a\tb\n \tc\n", r"p\.tsv, row 2: empty source side.*on_empty='drop'"),
    "empty-tsv-target": ("p.tsv", "a\tb\nc\t\n", r"p\.tsv, row 2: empty target side"),
    "empty-tsv-line": ("p.tsv", "a\tb\n\nc\td\n", r"p\.tsv, row 2: empty line"),
    "null": ("p.jsonl", '{"source": "a", "target": null}\n', r"p\.jsonl, row 1: empty target side"),
    "empty-file": ("p.tsv", "", r"p\.tsv: no sentence pairs"),
    "tsv-columns": ("p.tsv", "a\tb\na\tb\tc\n", r"p\.tsv, row 2: 3 tab-separated columns, expected 2"),
    "tsv-header": ("p.tsv", "de\ten\tid\na\tb\n", r"p\.tsv, row 2: 2 tab-separated columns, expected 3"),
    "not-json": ("p.jsonl", '{"source": "a", "target": "b"}\n{"source"\n', r"p\.jsonl, row 2: not JSON \(.*column"),
    "not-object": ("p.jsonl", "[1]\n", r"p\.jsonl, row 1: list, not a JSON object"),
    "surrogate": ("p.jsonl", '{"source": "\\ud800", "target": "b"}\n', r"p\.jsonl, row 1: .*surrogate"),
    "not-text": ("p.jsonl", '{"source": 3, "target": "b"}\n', r"p\.jsonl, row 1: column 'source' holds int"),
    "missing-column": (
        "p.jsonl",
        '{"de": "a", "en": "b"}\n{"de": "a", "fr": "b"}\n',
        r"p\.jsonl, row 2: no columns 'de' and 'en' or 'source' and 'target'; the columns there are: 'de', 'fr'",
    ),
    "other-language": (
        "p.jsonl",
        '{"source": "a", "target": "b", "source_lang": "bn"}\n',
        r"p\.jsonl, row 1: source_lang is 'bn' in the row, but 'de' was asked for",
    ),
    "not-utf8": ("p.tsv", b"\xc3\xb6\tb\nc\tgr\xfc\xdf\n", r"p\.tsv, row 2: not UTF-8 at byte 9"),
    "damaged-gzip": ("p.tsv.gz", None, r"p\.tsv\.gz: damaged gzip data"),
    "no-languages": ("m.tmx", tmx([[("fr", "a"), ("en", "b")]]), r"m\.tmx: no unit has both 'de' and 'en'.*en, fr"),
    "tmx-empty": (
        "m.tmx",
        tmx([[("de", "a"), ("en", "b")], [("de", ""), ("en", "b")]]),
        r"m\.tmx, row 2: empty source",
    ),
    "bad-xml": ("m.tmx", tmx([[("de", "a"), ("en", "b")]])[:-20], r"m\.tmx: not well-formed XML \(.*line 3"),
    "bomb": (
        "m.tmx",
        '<!DOCTYPE tmx [<!ENTITY a "aaaa">]><tmx><body>&a;</body></tmx>',
        r"m\.tmx: declares XML entities",
    ),
    "not-parquet": ("p.parquet", "a\tb\n", r"p\.parquet: cannot be read as Parquet"),
    "suffix": ("p.docx", "a", r"p\.docx: cannot tell its format.*\.tsv, \.jsonl, \.parquet, \.tmx.*a\.de,a\.en"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_content_names_file_and_row(tmp_path, case):
    name, text, message = BAD[case]
    path = tmp_path / name
    if text is None:
        path.write_bytes(gzip.compress(b"a\tb\n" * 9999)[:60])
    else:
        write(path, text)
    with pytest.raises(InputError, match=message):
        load_parallel(path, source_lang="de")
    assert not list(cache_dir("parallel").glob(".*")), "an unfinished table was left behind"


@pytest.mark.parametrize("shorter", [0, 1])
def test_line_counts_must_agree(tmp_path, shorter):
    texts = ["a\nb\nc\nd\n", "a\nb\nc\nd\n"]
    texts[shorter] = "a\nb\n"
    paths = write(tmp_path / "t.de", texts[0]), write(tmp_path / "t.en", texts[1])
    counts = ("2", "4") if shorter == 0 else ("4", "2")
    with pytest.raises(InputError, match=rf"t\.de has {counts[0]} lines but .*t\.en has {counts[1]}: row 3"):
        load_parallel(paths, source_lang="de")


def test_errors_in_line_aligned_files_name_the_right_one(tmp_path):
    source, target = write(tmp_path / "t.de", "a\nb\n"), write(tmp_path / "t.en", "a\n\n")
    with pytest.raises(InputError, match=r"t\.en, row 2: empty target side"):
        load_parallel((source, target), source_lang="de")
    write(target, b"a\n\xff\n")
    with pytest.raises(InputError, match=r"t\.en, row 2: not UTF-8 at byte 2 "):
        load_parallel((source, target), source_lang="de")


def test_empty_pairs_can_be_dropped_and_are_counted(tmp_path, caplog):
    path = write(tmp_path / "p.tsv", "a\tb\n\n\tc\nd\te\n")
    with caplog.at_level("INFO"):
        loaded = load_parallel(path, source_lang="de", on_empty="drop")
    assert loaded["source"] == ["a", "d"] and "dropped 2 pairs" in caplog.text


def test_missing_columns_of_parquet_are_listed(tmp_path):
    path = tmp_path / "p.parquet"
    Dataset.from_dict({"id": [1], "deutsch": ["a"], "englisch": ["b"]}).to_parquet(path)
    with pytest.raises(InputError, match=r"p\.parquet: no columns 'de' and 'en'.*'id', 'deutsch', 'englisch'"):
        load_parallel(path, source_lang="de")


def test_missing_column_of_a_tsv_header_is_listed(tmp_path):
    path = write(tmp_path / "p.tsv", "id\ttext\n1\ta\n")
    with pytest.raises(InputError, match=r"p\.tsv, row 1 \(the header\): no columns 'x' and 'y'.*'id', 'text'"):
        load_parallel(path, source_lang="de", source_column="x", target_column="y")


def test_unknown_language_says_how_to_write_it(tmp_path):
    path = write(tmp_path / "p.jsonl", '{"source": "a", "target": "b"}\n')
    with pytest.raises(InputError, match=r"p\.jsonl, row 1: .*source_lang.*de=PATH"):
        load_sources([str(path)])
    with pytest.raises(InputError, match=r"de=.*m\.tmx"):
        load_sources([str(write(tmp_path / "m.tmx", tmx([])))])


def test_missing_files_suggest_their_neighbours(tmp_path):
    write(tmp_path / "corpus.jsonl", "{}")
    with pytest.raises(InputError, match=r"corpsu\.jsonl: no such file; did you mean .*corpus\.jsonl\?"):
        load_parallel(tmp_path / "corpsu.jsonl", source_lang="de")
    with pytest.raises(InputError, match=r"nor a folder"):
        load_parallel(tmp_path / "nowhere" / "corpus.jsonl", source_lang="de")
    with pytest.raises(InputError, match="is a folder"):
        load_parallel(tmp_path, source_lang="de")
    with pytest.raises(InputError, match="3 files are named"):
        load_parallel("a,b,c", source_lang="de")


def test_embedded_names_what_there_is():
    with pytest.raises(InputError, match="embedded:bn, embedded:de"):
        load_parallel("embedded:fr")
    with pytest.raises(InputError, match=r"no split 'dev'.*test, train"):
        load_parallel("embedded:de", split="dev")
    with pytest.raises(InputError, match="'de' in the row, but 'bn' was asked for"):
        load_sources(["bn=embedded:de"])
    with pytest.raises(InputError, match="embedded:de"):
        load_sources([])


def test_unreachable_hub_is_one_line_that_names_the_way_out(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"Hub cannot be reached.*embedded:de") as caught:
        load_parallel("owner/name:de-en", source_lang="de")
    assert "\n" not in str(caught.value)


@pytest.fixture
def hub(monkeypatch):
    """Puts a dataset on a Hub that records how it was asked for."""
    return partial(put_on_hub, monkeypatch)


def test_hub_dataset_with_translation_dict(hub):
    features = Features({"id": datasets.Value("int64"), "translation": Translation(languages=["de", "en"])})
    records = [{"id": i, "translation": {"de": s, "en": t}} for i, (s, t) in enumerate(PAIRS)]
    calls = hub(Dataset.from_list(records, features=features))
    loaded = load_parallel("owner/name:de-en", source_lang="de", split="validation", revision="abc")
    assert rows(loaded) == EXPECTED
    assert calls == [("owner/name", "de-en", "abc", "validation")]
    assert hub_commit(loaded) == COMMIT
    assert hub_commit(load_parallel("embedded:de", split="test")) is None


def test_hub_dataset_with_two_columns(hub):
    hub(Dataset.from_dict({"german": [s for s, _ in PAIRS], "english": [t for _, t in PAIRS], "audio": [[0]] * 3}))
    named = {"source_column": "german", "target_column": "english"}
    assert rows(load_parallel("owner/name", source_lang="de", max_pairs=2, **named)) == EXPECTED[:2]
    with pytest.raises(InputError, match=r"owner/name: no columns 'de' and 'en'.*'german', 'english', 'audio'"):
        load_parallel("owner/name", source_lang="de")


def test_hub_errors_are_input_errors(hub):
    hub(datasets.exceptions.DatasetNotFoundError("gone"))
    with pytest.raises(InputError, match="owner/name: no such file, and no such dataset"):
        load_parallel("owner/name", source_lang="de")
    hub(ValueError('Unknown split "dev". Should be one of [train].'))
    with pytest.raises(InputError, match=r'owner/name: Unknown split "dev"'):
        load_parallel("owner/name", source_lang="de")


def test_concatenate_checks_columns():
    plain = load_parallel("embedded:de", split="test", max_pairs=3)
    assert len(concatenate([plain, plain])) == 6
    with pytest.raises(InputError, match="dataset 2 of 2 has the columns"):
        concatenate([plain, plain.add_column("links", [[]] * 3)])
    with pytest.raises(InputError, match=r"dataset 1 of 1 lacks the columns \['target_lang'\]"):
        concatenate([plain.remove_columns("target_lang")])
    with pytest.raises(InputError, match="no datasets"):
        concatenate([])
