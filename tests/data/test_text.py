"""Every source of text gives the same columns, from the cache if read before."""

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
from support.tiny import make_links

from hf_xalign.cache import cache_dir
from hf_xalign.data import load, monolingual
from hf_xalign.data.load import concatenate, hub_commit, load_parallel
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.readers.dictionaries import load_dictionary
from hf_xalign.data.sources import find_source, parse_source
from hf_xalign.data.words import WORDS, lower_word
from hf_xalign.errors import InputError
from hf_xalign.links.files import read_pharaoh
from hf_xalign.mapping.word2vec import read_word2vec
from hf_xalign.tasks.labelled_files import LABELLED
from hf_xalign.tasks.labelled_files import read_rows as read_labelled

PAIRS = [("Die Datei öffnen", "Open the file"), ("Speichern", "Save"), ("Ein\u2028Bruch \x85 hier", "A break here")]
EXPECTED = [(source, target, "de", "en") for source, target in PAIRS]
TEXT = ["eins zwei", "", "drei"]


def rows(dataset):
    assert tuple(dataset.column_names) == COLUMNS
    return [tuple(row.values()) for row in dataset]


def of_file(path):
    return rows(load_parallel(path, source_lang="de"))


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_details_of_content(tmp_path, caplog):
    decomposed = unicodedata.normalize("NFD", "Öffnen কো")
    seg = 'Klick <bpt i="1">&lt;b&gt;</bpt>hier<ept i="1">&lt;/b&gt;</ept>, <hi>jetzt</hi><ph>%s</ph>!'
    named = {"source_column": "x", "target_column": "y"}
    for name, text, options, expected in (
        ("n.jsonl", '{"source": "a", "target": "b", "x": "eins", "y": "one"}\n', named, [("eins", "one")]),
        ("p.tsv", f"\ufeff  {decomposed} \t Open \n", {}, [(unicodedata.normalize("NFC", decomposed), "Open")]),
        ("m.tmx", tmx([("de-AT", "x"), ("de", seg), ("en", "Click!")]), {}, [("Klick hier, jetzt!", "Click!")]),
        ("q.csv", 'y,x\n"one, ""1""\nmore","eins"\n', named, [("eins", 'one, "1"\nmore')]),
        ("e.tsv", "a\tb\n\n\tc\nd\te\n", {"on_empty": "drop"}, [("a", "b"), ("d", "e")]),
        ("t.csv", '"a\t""1"""\tb, c; d\n', {}, [('a\t"1"', "b, c; d")]),
        ("q.tsv", '"a"\tb\nein a\t""c""\n', {}, [('"a"', "b"), ("ein a", '""c""')]),
        (
            "t.jsonl",
            '{"translation": {"de": "a", "en": "b"}}\n{"translation": null}\n',
            {"on_empty": "drop"},
            [("a", "b")],
        ),
    ):
        with caplog.at_level("INFO"):
            loaded = load_parallel(write(tmp_path / name, text), source_lang="de", **options)
        assert rows(loaded) == [(*pair, "de", "en") for pair in expected]
    assert "dropped 2 pairs" in caplog.text
    for text, mark in (
        ('"de"\t"en"\n"a"\t"b"\n"c"\t"d"\n', "in quotation marks"),
        ('"a ""b"""\tc\n', "quoted as in CSV"),
    ):
        path = write(tmp_path / "all.tsv", text)
        with pytest.raises(InputError, match=f"the source is {mark}, .* [Cc]all the file .csv"):
            load_parallel(path, source_lang="de")
        assert len(load_parallel(path, source_lang="de", sides_checked=True))


UNITS = [
    [("en-GB", "a"), ("pt-PT", "b"), ("PT_br", "c")],
    [("en", "d"), ("pt-PT", "e")],
    [("en-US", "f"), ("uz-Cyrl", "ғ"), ("uz", "g"), ("zh-HK", "h"), ("zh-CN", "i")],
]


@pytest.mark.parametrize(
    ("asked", "expected", "said"),
    [
        ("pt", [("c", "a"), ("e", "d")], ["1 of 2 pairs have pt-PT for pt", "1 of 2 pairs have en-GB for en"]),
        ("uz_Latn", [("g", "f")], ["2 of 3 units are rejected, or lack uz_Latn or en"]),
        ("uzb_Cyrl", [("ғ", "f")], []),
        ("zh-Hant", [("h", "f")], ["1 of 1 pairs have zh-HK for zh-Hant"]),
        ("cmn_Hans", [("i", "f")], []),
        ("uz-Arab", None, ["no unit has both 'uz-Arab' and 'en'. Its languages are PT_br, en, en-GB"]),
    ],
)
def test_translation_memories_give_the_closest_variant_never_another_script(asked, expected, said, tmp_path, caplog):
    path = write(tmp_path / "m.tmx", tmx(*UNITS).replace("<tmx ", '<tmx xmlns="urn:x" '))
    caplog.set_level("INFO", "hf_xalign")
    if expected is None:
        with pytest.raises(InputError, match=said[0]):
            load_parallel(path, source_lang=asked)
        return
    assert [row[:2] for row in rows(load_parallel(path, source_lang=asked))] == expected
    assert all(sentence in caplog.text for sentence in said), caplog.text
    assert caplog.text.count(" pairs have ") == sum(" pairs have " in sentence for sentence in said)


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ('Une ligne<ph type="lb"/>et une autre', "Une ligne et une autre"),
        ("Fin.<ph>&lt;br/&gt;</ph>Début", "Fin. Début"),
        ("mot<bpt i='1'>&lt;i&gt;</bpt>penché<ept i='1'>&lt;/i&gt;</ept> là", "mot penché là"),
        ("<bpt i='1'>&lt;u&gt;</bpt>F<ept i='1'>&lt;/u&gt;</ept>ichier", "Fichier"),
        ("anti<bpt i='1'/>constitution<ept i='1'/>nel", "anticonstitutionnel"),
        ("anti<hi>constitution</hi>nel", "anticonstitutionnel"),
        ("l'<it pos='begin'/>eau<it pos='end'/>, (<ut/>CO<bpt i='1'/>2<ept i='1'/>)", "l'eau, (CO2)"),
        ("粗<bpt i='1'/>体字<ept i='1'/>です", "粗体字です"),
        ("un<x/>deux<g>trois</g>", "un deuxtrois"),
    ],
)
def test_markup_of_translation_memories_parts_words_but_not_within(segment, text, tmp_path):
    path = write(tmp_path / "m.tmx", tmx([("fr", segment), ("en", "x")]))
    assert load_parallel(path, source_lang="fr")["source"] == [text]


def two_sides(path):
    return [row[:2] for row in of_file(path)]


def one_language(path):
    return list(zip(load_monolingual(path)["text"][:], "ab"))


def labelled(path):
    return [(" ".join(row["tokens"]), row["labels"][0]) for _, row in read_labelled(path)]


# Name of the file: how it is read, and two lines whose second begins with U+FEFF.
MARKED = {
    "p.tsv": (two_sides, ["ein Haus\ta", "\ufeffzwei\tb\ufeff"]),
    "p.csv": (two_sides, ["ein Haus;a", '\ufeff"zwei";b']),
    "p.jsonl": (two_sides, ['{"de": "ein Haus", "en": "a"}', '\ufeff{"de": "zw\ufeffei", "en": "b\\ufeff"}']),
    "t.txt": (one_language, ["ein Haus", "\ufeffzwei"]),
    "t.jsonl": (one_language, ['{"text": "ein Haus"}', '{"text": "zwei\\ufeff"}']),
    "d.txt": (load_dictionary, ["ein Haus\ta\t", "\ufeffzwei\tb"]),
    "a.links": (lambda path: [(f"{row[0][0]}", "") for row in read_pharaoh(path)], ["0-0", "\ufeff1-1"]),
    "v.vec": (lambda path: [(word, "") for word in read_word2vec(path).words], ["Haus 1 2", "\ufeffzwei 2 3"]),
    "w.conll": (labelled, ["Haus\ta\n", "\ufeffzwei\tb"]),
}


@pytest.mark.parametrize("name", MARKED)
def test_marks_are_removed_and_lines_end_as_meant_in_every_reader(name, tmp_path):
    read, lines = MARKED[name]
    path = tmp_path / name
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    expected = read(path)
    assert len(expected) == 2 and "\ufeff" not in str(expected), expected
    for end in ("\r\n", "\r"):
        path.write_bytes("\ufeff".encode() + "".join(f"{line}\n" for line in lines).replace("\n", end).encode())
        assert read(path) == expected, repr(end)
    if " H" in lines[0]:
        odd = "" if "json" in name else "\x0b"
        path.write_bytes("".join(f"{line}\n" for line in lines).replace(" H", f" \u2028\x85{odd}H").encode())
        assert [row[1] for row in read(path)] == [row[1] for row in expected]


def test_marks_of_columns_are_removed_too(tmp_path, monkeypatch):
    columns = {"de": ["a\ufeffb"], "en": ["\ufeffc"], "text": ["d\ufeff"], "words": [["\ufeffe", "f"]]}
    Dataset.from_dict(columns).to_parquet(tmp_path / "p.parquet")
    assert of_file(tmp_path / "p.parquet")[0][:2] == ("ab", "c")
    put_on_hub(monkeypatch, Dataset.from_dict(columns))
    for source in (tmp_path / "p.parquet", "owner/name"):
        assert load_monolingual(source)["text"][:] == ["d"]
        assert load_monolingual(source, text_column="words", words=True)["words"][:] == [["e", "f"]]


def test_builtin_text_is_normalised_and_its_test_is_apart():
    for language, split, count in (("de", "train", 1994), ("bn", "train", 2000), ("de", "test", 500)):
        loaded = load_parallel(f"builtin:{language}", split=split)
        assert len(loaded) == count
        assert set(loaded["source_lang"]) == {language} and set(loaded["target_lang"]) == {"en"}
        assert all(text and unicodedata.is_normalized("NFC", text) for text in loaded["source"])
    seen, unseen = (load_parallel(["builtin:de", "builtin:bn"], split=split)["target"] for split in ("train", "test"))
    assert not set(seen) & set(unseen)


def test_sources_concatenate_and_max_pairs_counts_for_each(tmp_path):
    assert parse_source("de=owner/name:de-en") == ("owner/name:de-en", "de")
    assert parse_source("data/key=value/file.jsonl") == ("data/key=value/file.jsonl", None)
    path = write(tmp_path / "own.jsonl", '{"source": "a", "target": "b", "source_lang": "es"}\n')
    loaded = load_parallel(["builtin:de", str(path), "bn=builtin:bn"], max_pairs=2)
    assert loaded["source_lang"] == ["de", "de", "es", "bn", "bn"]
    assert len(concatenate([loaded, loaded])) == 10
    columns = {"source_column": "source", "target_column": "target"}  # files have columns, built-in text has none
    assert len(load_parallel(["builtin:de", str(path)], max_pairs=2, **columns)) == 3


def test_a_changed_file_is_read_again_and_the_same_content_is_not(tmp_path, monkeypatch):
    path = write(tmp_path / "p.tsv", "eins\tone\n")
    first = load_parallel(path, source_lang="de")
    before = path.stat()
    write(path, "zwei\ttwo\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: only the content differs
    second = load_parallel(path, source_lang="de")
    assert first["source"] == ["eins"] and second["source"] == ["zwei"]

    monkeypatch.setattr(load.arrow.cache, "replacing", lambda *_: pytest.fail("read again"))
    again = load_parallel(write(tmp_path / "copy.tsv", "eins\tone\n"), source_lang="de")
    assert again["source"] == ["eins"] and again._fingerprint == first._fingerprint
    assert again.cache_files[0]["filename"].startswith(str(cache_dir("parallel")))


def test_shards_keep_their_words_and_links(tmp_path, caplog):
    linked = make_links(20).add_column("origin", ["x"] * 20)
    linked = linked.map(lambda row, k: {"links": [] if k % 5 == 3 else row["links"]}, with_indices=True)
    for k in range(2):
        linked.select(range(k * 10, k * 10 + 10)).to_parquet(tmp_path / f"part-{k}.parquet", batch_size=3)
    kept = [row for k, row in enumerate(make_links(20)) if k % 5 != 3]
    with caplog.at_level("INFO"):
        assert load_parallel(tmp_path).to_list() == kept
    assert "dropped 0 pairs with an empty side and 2 without links" in caplog.text
    assert load_parallel(tmp_path, keep_unlinked=True).to_list() == linked.remove_columns("origin").to_list()
    assert load_parallel(tmp_path, source_lang="de", max_pairs=9).to_list() == kept[:9]
    assert load_parallel(tmp_path / "part-1.parquet").to_list() == kept[8:]
    text = load_parallel(
        tmp_path, source_lang="de", source_column="target", target_column="source", sides_checked=True
    )
    assert tuple(text.column_names) == (*COLUMNS, *WORDS) and text["target_words"][:] == linked["source_words"][:]


LAO = [("ເປີດໄຟລ໌", "Open the file", ["ເປີດ", "ໄຟລ໌"], None), ("ບັນທຶກ", "New York", ["ບັນທຶກ"], ["New York"])]
LAO_ROWS = [dict(zip(("source", "target", *WORDS), row)) for row in LAO]


@pytest.mark.parametrize("form", ["jsonl", "arrow", "hub", "columns"])
def test_given_words_are_kept_in_every_form(form, tmp_path, monkeypatch):
    data, path, named = Dataset.from_list(LAO_ROWS), tmp_path / f"lo.{form}", {}
    match form:
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in LAO_ROWS), "utf-8")
        case "arrow":
            data.save_to_disk(path)
        case "hub":
            path = "owner/lao"
            put_on_hub(monkeypatch, data)
        case "columns":
            path, named = tmp_path / "lo.parquet", {"source_column": "lao", "target_column": "english"}
            data.rename_columns({"source": "lao", "target": "english"}).to_parquet(path)
    found = load_parallel(path, source_lang="lo", **named)
    assert [tuple(row[name] for name in ("source", "target", *WORDS)) for row in found] == LAO
    assert len(load_parallel(path, source_lang="lo", max_pairs=1, **named)) == 1
    # With text that has no words.
    both = concatenate([load_parallel(write(tmp_path / "de.tsv", "Datei\tFile\n"), source_lang="de"), found])
    assert both["source_words"][:] == [None, *(row[2] for row in LAO)]


def test_given_words_that_are_not_those_of_the_text(tmp_path, caplog):
    pair = {"source": "စာရင်း ဖွင့်ပါ", "target": "open the list"}

    def load(words, suffix="jsonl"):
        text = json.dumps({**pair, **words}) if suffix == "jsonl" else "source\ttarget\tsource_words\na\tb\ta\n"
        return load_parallel(write(tmp_path / f"my.{suffix}", text), source_lang="my")

    with pytest.raises(InputError, match=r"row 1: source_words.*is not a list of words"):
        load({"source_words": "စာရင်း ဖွင့်ပါ"})
    with pytest.raises(InputError, match=r"row 2: source_words: 'a' is not a list of words"):
        load({}, "tsv")
    # Invisible characters do not count, nor does a normal form; links without both sides' words are not read.
    found = load({"source_words": ["စာ\u200bရင်း", "ဖွင့်", "ပါ"], "target_words": None, "links": [[0, 2]]})
    assert found["source_words"][0] == ["စာ\u200bရင်း", "ဖွင့်", "ပါ"] and "links are not read" in caplog.text


@pytest.mark.parametrize(
    ("word", "lang", "lower"),
    [
        *((word, lang, "ışıq iki") for word in ("IŞIQ İKİ", "Işıq I\u0307ki") for lang in ("az", "aze-Latn", "az_AZ")),
        *(("ISIM İ", lang, "ısım i") for lang in ("tr-TR", "tur_Latn", "crh", "kk-Latn", "TR")),
        *(("ISIM", lang, "isim") for lang in ("kk", "az-Cyrl", "de", "tg-Latn", None)),
        ("ĮVYKIS", "lt", "įvykis"),
        ("ΟΔΟΣ", "el", "οδος"),
        ("STRASSE A\u0308", "de", "strasse ä"),
    ],
)
def test_lower_case_is_that_of_the_language(word, lang, lower):
    assert lower_word(word, lang) == lower


def test_more_rows_than_one_batch_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "_BATCH", 7)
    numbers = [str(random.Random(0).random()) for _ in range(3)] + [str(i) for i in range(97)]
    path = write(tmp_path / "p.tsv", "".join(f"s {n}\tt {n}\n" for n in numbers))
    assert of_file(path) == [(f"s {n}", f"t {n}", "de", "en") for n in numbers]


def test_datasets_of_the_hub(monkeypatch):
    features = Features({"id": datasets.Value("int64"), "translation": Translation(languages=["de", "en"])})
    records = [{"id": i, "translation": {"de": s, "en": t}} for i, (s, t) in enumerate(PAIRS)]
    calls = put_on_hub(monkeypatch, Dataset.from_list(records, features=features))
    loaded = load_parallel("owner/name:de-en", source_lang="de", split="validation", revision="abc")
    assert rows(loaded) == EXPECTED
    assert calls == [("owner/name", "de-en", "abc", "validation")]
    assert hub_commit(loaded) == COMMIT
    load_parallel("owner/name:de-en", source_lang="de", revision=load.PARQUET)  # the configuration is a folder
    assert calls[-1] == ("owner/name", "de-en", load.PARQUET, "train")
    assert hub_commit(load_parallel("builtin:de", split="test")) is None

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
    for form in ("1\t{}\n2\t{}\n3\t{}\n", "<url>http://x</url>\n{}\n{}\n{}\n</doc>\n"):  # Leipzig, WikiExtractor
        found = load_monolingual(write(tmp_path / "marked.txt", form.format(*TEXT)))
        assert list(filter(None, found["text"])) == list(filter(None, TEXT))
    full = list(filter(None, TEXT))
    rows = {"a.tsv": "id\ttext\n" + "".join(f"1\t{line}\n" for line in full), "a.json": json.dumps({"text": full})}
    for name, text in rows.items():
        assert load_monolingual(write(tmp_path / name, text))["text"][:] == full
    path = write(tmp_path / "a.jsonl", '{"Satz": "eins", "n": 1}\n')
    assert load_monolingual(path, text_column="satz")["text"][:] == ["eins"]


def test_text_of_one_language_with_null_in_capitals_and_under_other_names(tmp_path, monkeypatch):
    data = Dataset.from_dict({"TEXT": ["Voda je.", None, "Strom."]})
    data.to_parquet(tmp_path / "a.parquet")
    put_on_hub(monkeypatch, data)
    for source in (tmp_path / "a.parquet", "owner/name"):
        assert load_monolingual(source, lang="cs")["text"][:] == ["Voda je.", "", "Strom."]
    for name in ("news.2019.cs.shuffled.deduped.gz", "Europarl.cs-en.cs", "wiki.cs.gz"):
        assert load_monolingual(write(tmp_path / name, "Voda je.\n"), lang="cs")["text"][:] == ["Voda je."]
    for name in ("a.iob2", "a.vec", "a.ts"):
        with pytest.raises(InputError, match=r"text is read from \.txt"):
            load_monolingual(write(tmp_path / name, "Voda je.\n"))


def test_text_of_one_language_leaves_out_other_languages_and_splits(tmp_path, caplog):
    rows = "text,lang,split\nLuka dela,sl,train\nMarta works,en,train\nAna poje,slv,test\n"
    assert load_monolingual(write(tmp_path / "a.csv", rows), lang="sl")["text"][:] == ["Luka dela"]
    assert "rows in other languages than sl are left out: 1 in en" in caplog.text
    path = write(tmp_path / "a.csv", rows)
    with pytest.raises(InputError, match="no row is in lt; there are 1 in sl, 1 in en"):
        load_monolingual(path, lang="lt")
    caplog.clear()
    load_monolingual(write(tmp_path / "news.gl.txt", "Boa tarde.\n"), lang="sl")
    assert "news.gl.txt: read as sl, although its name says gl" in caplog.text


def test_text_of_one_language_in_forms_of_the_web_and_of_subtitles(tmp_path, caplog):
    sentences = [f"Treni namba {n}{n} inaondoka" for n in range(30)]
    forms = {  # how a line is written: what the error says
        "{}\n\n00:01.000 --> 00:02.000\n": "marked with times",  # WebVTT
        "Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{}\n": "marked with times",  # SubStation
        "{} ||| The train leaves\n": "in two columns",
        "treni O\nnamba B-NUM\n\n": "tagged",
        "treni 1204\n": "counts",
        "7\n": "counts",
        "3,{}\n": "numbered",
        "WARC/1.0\nContent-Length: 9\n{}\n": "heads of its pages",
        "__label__sw {}\n": "marked with languages",
        "1. {}\n\n\n": "numbered",  # most lines are empty
        "  17  {}\n": "numbered",  # of `cat -n`
        "NULL {}\n": "begun with NULL",  # of GIZA++
        "treni\nnamba\ninaondoka.\n.\n": "one word a line",
    }
    for form, fault in forms.items():
        path = write(tmp_path / "a.txt", "".join(map(form.format, sentences[:9])))
        with pytest.raises(InputError, match=f"the text is .*{fault}"):
            load_monolingual(path)
    verses = write(tmp_path / "b.txt", "\n".join([*sentences[:2], "<range>", sentences[3]]) + "\n")
    assert load_monolingual(verses)["text"][:] == [*sentences[:2], "", sentences[3]]
    hplt = [{"text": "a", "lang": ["swh_Latn", "eng_Latn"]}, {"text": "b", "lang": ["eng_Latn", "swh_Latn"]}]
    fineweb = [{"text": "a", "language": "srp", "language_script": "Cyrl"}]
    fineweb.append({**fineweb[0], "text": "b", "language_script": "Latn"})
    glot = [{"text": "a", "lang_script": "ful_Latn"}, {"text": "b", "lang_script": "ful_Adlm"}]
    oscar = [{"text": t, "metadata": {"identification": {"label": code}}} for t, code in (("a", "hy"), ("b", "ru"))]
    nested = [{"text": t, "meta": {"language": code, "n": 1}} for t, code in (("a", "Armenian"), ("b", "ka"))]
    for lang, rows in (("sw", hplt), ("sr", fineweb), ("ff", glot), ("hy", oscar), ("hy", nested)):
        path = write(tmp_path / "c.jsonl", "".join(map("{}\n".format, map(json.dumps, rows))))
        caplog.clear()
        assert load_monolingual(path, lang=lang)["text"][:] == ["a"], lang
        assert "rows in other languages" in caplog.text


def test_a_text_in_another_language_is_told(tmp_path, caplog):
    german = "".join(f"Das ist der Satz {n}, und die Katze schläft nicht mit dem Hund.\n" for n in range(40))
    english = "".join(f"This is the sentence {n}, and the cats are not with that dog.\n" for n in range(40))
    for lang, text, said in (
        ("de", english, "may not be in de: 40 of 40 are in another language"),
        ("lt", english, "may not be in lt: 40 of 40"),
        ("en", german, "may not be in en: 40 of 40"),
        ("de", german, ""),
        ("lt", german, ""),  # without a list of words
        ("sw", "".join(f"यह वाक्य {n} है\n" for n in range(40)), "may not be in sw: 40 of 40"),
        ("sr", "".join(f"ovo je rečenica {n}\n" for n in range(40)), ""),  # in its other script
    ):
        caplog.clear()
        load_monolingual(write(tmp_path / "a.txt", text), lang=lang)
        assert caplog.text.count("the text may not be") == bool(said) and said in caplog.text, lang


def test_a_source_is_looked_for_in_one_way_whatever_its_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b.tsv", "b_1.json", "b_2.json", "c.de", "c.en"):
        (tmp_path / name).write_text("")
    (tmp_path / "me").mkdir()
    Dataset.from_dict({"text": ["a"]}).save_to_disk("saved")
    rows = {
        "builtin:de": ("package", None, "package"),
        "a,b.tsv": ("file", "file", "file"),  # a comma in a name that is there
        "c.de, c.en": ("aligned", None, None),
        "b_*.json": (None, None, "pattern"),
        "me": ("folder", None, "folder"),
        "saved": ("hub", "hub", "hub"),
        "me/data": ("hub", "hub", "hub"),
        "me/data:de": ("hub", "hub", "hub"),
        "me/data.jsonl.gz": (None, None, None),
        "me/data.TXT": ("hub", None, None),  # a suffix of other text
    }
    for source, wanted in rows.items():
        for kind, scheme in zip((load.PAIRS, monolingual.TEXT, LABELLED), wanted, strict=True):
            if scheme is None:
                with pytest.raises(InputError, match=r"no such file|is a folder"):
                    find_source(source, kind)
            else:
                assert find_source(source, kind, "test")[0] == scheme, (source, kind)
    assert [path.name for path in find_source("b_*.json", LABELLED)[1]] == ["b_1.json", "b_2.json"]


def test_words_of_a_treebank_come_with_its_trees(tmp_path):
    path = tmp_path / "fr.conllu"
    rows = "".join(f"{n}\t{word}\t_\tX\t_\t_\t0\troot\t_\t_\n\n" for n, word in ((1, "un"), (1, "deux")))
    path.write_text(rows)
    found = load_monolingual(path, words=True, max_sentences=1)
    assert found.column_names == ["words", "upos", "heads", "deprels"] and found["words"][:] == [["un"]]
