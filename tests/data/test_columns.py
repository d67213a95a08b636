"""Columns are known by their names, whichever comes first, and a first row of text is no header."""

import json

import pytest
from datasets import Dataset
from support.refusals import assert_refused
from support.tiny import make_links

from hf_xalign.data.forms import find_columns, looks_like_header
from hf_xalign.data.load import load_parallel, stream_parallel

SENTENCES = ["Merhaba dünya, nasılsın?", "Hello world, how are you?"]


@pytest.mark.parametrize(
    ("names", "source_lang", "source", "target"),
    [
        ("EN,TR", "tr", "TR", "EN"),
        ("eng_Latn,tur_Latn", "tr", "tur_Latn", "eng_Latn"),
        ("tr-TR,en-US,en-GB", "tur", "tr-TR", "en-US"),
        ("id,Turkish,ENGLISH", "tr", "Turkish", "ENGLISH"),
        ("Türkçe,İngilizce", "tr", "Türkçe", "İngilizce"),
        ("English text,Swahili text", "swa", "Swahili text", "English text"),
        ("en_sentence,sentence_sw", "sw", "sentence_sw", "en_sentence"),
        ("text1_en,source_sw", "sw", "source_sw", "text1_en"),
        ("English,translation (Korean)", "ko", "translation (Korean)", "English"),
        ("english,non_english", "ko", "non_english", "english"),
        ("English,Portuguese (Brazil),Portuguese (Portugal)", "pt-PT", "Portuguese (Portugal)", "English"),
        ("Chinese (Simplified),zh_TW,en", "zh-Hant", "zh_TW", "en"),
        ("pt,pt_BR,en", "pt-BR", "pt_BR", "en"),
        ("in English,in Welsh", "cy", "in Welsh", "in English"),
        ("auf Deutsch,auf Englisch", "de", "auf Deutsch", "auf Englisch"),
        ("Language: Basque,English version", "eu", "Language: Basque", "English version"),
        ("in,en", "id", "in", "en"),
        ("pt,pt_BR,en", "pt", "pt", "en"),
        ("pt,pt_BR,en", "por", "pt", "en"),
        ("srcText,tgtText", "fa", "srcText", "tgtText"),
        ("trg,src,score", "fa", "src", "trg"),
        ("source_lang,target_lang,Source,Target", "fa", "Source", "Target"),
        ("translation,English", "fa", "translation", "English"),
        ("en,xx", "fa", "xx", "en"),
        ("en,xx,src", "fa", None, None),
        ("sentence,translation", "fa", "sentence", "translation"),
        ("id,English,Indonesian", "id", "Indonesian", "English"),
        ("id,en", "id", "id", "en"),
        ("id,sentence,en", "id", "sentence", "en"),
        ("source,target,id", None, "source", "target"),
        ("source_fr,target_es", "fa", None, None),
        ("en,text_tr,sentence_tr", "tr", None, None),
        ("Serbian (Cyrillic),English", "sr-Latn", None, None),
        ("zh,en", "zh-TW", None, None),
        ("tr,tr", "tr", None, None),
    ],
)
def test_columns_are_found_by_languages_and_by_sides(names, source_lang, source, target):
    for order in (1, -1):
        found = find_columns(tuple(names.split(",")[::order]), source_lang, "en")
        assert (found and found[:3]) == (None if source is None else (source, target, True))


TEXT = [
    ("Aç", "Open"),
    ("İngilizce", "English"),
    ("Almanca", "German"),
    ("İngilizce (ABD)", "English (United States)"),
    ("Kaynak", "Source"),
    ("Dil", "Language"),
    ("Text", "text"),
    ("a", "b"),
    ("1", "2"),
    ("Ad", "No"),
    ("at", "Horse"),
    ("ok", "yes"),
]
HEADERS = ["French,Spanish", "fr,en", "FR,ES", "es-ES,es-MX", "text,label", "premise,hypothesis", "src_col,other_col"]
HEADERS += ["English,foreign", "en,foreign", "Chinese,English"]


def test_text_is_no_header_and_a_header_is_no_text():
    asked = ("tr", "en")
    for cells in TEXT:
        assert find_columns(cells, *asked) is None and not looks_like_header(cells, SENTENCES, *asked), cells
    for header in HEADERS:
        cells = header.split(",")
        assert find_columns(tuple(cells), *asked) is None and looks_like_header(cells, SENTENCES, *asked), cells
    # In a list of words a row of two codes is one of words.
    assert looks_like_header(["at", "as"], SENTENCES, *asked) is False, "no code of a language in use"
    assert looks_like_header(["am", "on"], ["ev", "house"], *asked) is False
    assert looks_like_header(["an", "to"], SENTENCES, *asked) and not looks_like_header(
        ["an", "to"], ["ev", "house"], *asked
    )


FILES = {
    "a.tsv": "English\tTurkish\n{1}\t{0}\n",
    "b.csv": '"Turkish";"EN"\n"{0}";"{1}"\n',
    "c.tsv": "\n#eng\ttur\n{1}\t{0}\n",
    "e.json": '[{{"translation": {{"tur_Latn": "{0}", "eng_Latn": "{1}"}}, "tr": "wiki"}}]',
    "f.jsonl": '{{"source": "{0}", "target": "{1}", "source_lang": "tur", "target_lang": "en-US"}}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_both_sides_come_from_the_named_columns_and_the_log_says_which(name, tmp_path, caplog):
    path = tmp_path / name
    path.write_text(FILES[name].format(*SENTENCES), encoding="utf-8")
    caplog.set_level("INFO", "hf_xalign")
    expected = {"source": SENTENCES[0], "target": SENTENCES[1], "source_lang": "tr", "target_lang": "en"}
    assert load_parallel(path, source_lang="tr").to_list() == [expected]
    assert f"'{SENTENCES[0]}' (tr) = '{SENTENCES[1]}' (en, the pivot)" in caplog.text
    assert ("is a header" in caplog.text) == (path.suffix in (".tsv", ".csv"))
    assert caplog.text.count("is the source (tr)") == (name != "f.jsonl")
    assert list(stream_parallel(str(path), source_lang="tr")) == [tuple(expected.values())]


def test_streamed_markup_is_told_and_escapes_are_not(tmp_path, caplog):
    (tmp_path / "cy.txt").write_text("<v n='1'>Bara &amp; caws</v>\n", encoding="utf-8")
    (tmp_path / "en.txt").write_text("Bread &amp; cheese\n", encoding="utf-8")
    assert len(list(stream_parallel(f"{tmp_path}/cy.txt,{tmp_path}/en.txt", source_lang="cy"))) == 1
    assert "the source is full of markup, as '<v' shows" in caplog.text and "the target is" not in caplog.text


def test_parquet_columns_and_the_languages_of_rows(tmp_path, caplog):
    columns = {"ENG": ["one"], "Turkish text": ["bir"], "url": ["x"]}
    Dataset.from_dict(columns).to_parquet(tmp_path / "a.parquet")
    assert load_parallel(tmp_path / "a.parquet", source_lang="tr")["source"] == ["bir"]
    Dataset.from_dict({"sentence1": ["bir"], "sentence2": ["one"]}).to_parquet(tmp_path / "b.parquet")
    assert load_parallel(tmp_path / "b.parquet", source_lang="tr")["target"] == ["one"]
    assert "'sentence2' the target (en, the pivot), by their order" in caplog.text
    linked = make_links(4)
    linked.to_parquet(tmp_path / "c.parquet")
    assert load_parallel(tmp_path / "c.parquet", source_lang="deu_Latn", target_lang="eng")[0] == {
        **linked[0],
        "source_lang": "de",
        "target_lang": "en",
    }
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"Ukrainian": "один", "English": "one", "source_lang": "uk"}))
    row = {"source": "один", "target": "one", "source_lang": "uk", "target_lang": "en"}
    assert load_parallel(path)[0] == row
    assert list(stream_parallel(str(path), source_lang="ukr")) == [tuple(row.values())]
    assert load_parallel({"pt_BR": [{"pt": "comboio", "pt-BR": "trem", "en": "train"}]})["source"] == ["trem"]


def test_headers_that_are_not_understood_and_swapped_sides_are_refused(tmp_path):
    def load(text, lang="tr", **options):
        def call(folder):
            (folder / "p.csv").write_text(text, encoding="utf-8")
            return load_parallel(folder / "p.csv", source_lang=lang, **options)

        return call

    typed = r"source_column and target_column \(--source_column and --target_column on the command line\)"
    rows = f"{SENTENCES[0].replace(',', '')},{SENTENCES[1].replace(',', '')}\n"
    table = {
        "others": (load("French,Italian\n" + rows), rf"row 1 .*'tr' and 'en'.*'French', 'Italian'\. Name .*{typed}"),
        "own": (load("w,x\n" + rows, source_column="a", target_column="x"), "no columns 'a' and 'x'.*'w', 'x'"),
        "script": (
            load("anchor,positive\nhello there,नमस्ते\n", "hi"),
            r"'hello there' \(hi\).*swapped.*name both columns",
        ),
        "row": (load("source,target,source_lang\na,b,sr-Cyrl\n", "sr-Latn"), "'sr' in the row, but 'sr-Latn'"),
    }
    assert_refused(table, tmp_path)
