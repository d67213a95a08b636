"""Every published form of parallel text is read right, or ends in one sentence."""

import bz2
import gzip
import io
import json
import lzma
import re

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset

from hf_xalign.data.forms import fault_of_marks
from hf_xalign.data.load import join_languages, load_parallel, sources
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.sides import faults_of_sides
from hf_xalign.errors import InputError

DE, EN = ["Die Katze schläft.", "Es regnet & stürmt."], ["The cat sleeps.", "It rains & storms."]
ROWS = list(zip(DE, EN, strict=True))


def lines(form, rows=ROWS):
    return "".join(form.format(de=de, en=en, n=number) + "\n" for number, (de, en) in enumerate(rows, 1))


def segments(texts):
    inner = "".join(f'<seg id="{n}">{text.replace("&", "&amp;")}</seg>\n' for n, text in enumerate(texts, 1))
    return f'<srcset setid="x"><doc docid="a">{inner}</doc></srcset>'


def both_sides(sources, targets):
    def segs(texts):
        return "".join(f'<seg id="{n}">{text.replace("&", "&amp;")}</seg>' for n, text in enumerate(texts, 1))

    second = f'<ref lang="de" translator="B"><p>{segs(["x", "y"])}</p></ref>'
    inner = f'<src lang="en"><p>{segs(sources)}</p></src><ref lang="de" translator="A"><p>{segs(targets)}</p></ref>'
    return f'<dataset id="wmt22"><doc origlang="en" id="d1">{inner}{second}</doc></dataset>'


def records(texts, order=1):
    return "".join(f'{{"id": {n}, "text": "{text}", "topic": "x"}}\n' for n, text in list(enumerate(texts))[::order])


def utterances(texts):
    rows = ({"id": str(n), "locale": "xx", "partition": "train", "utt": text} for n, text in enumerate(texts))
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def parquet(texts):
    buffer = io.BytesIO()
    Dataset.from_dict({"id": [0, 1], "sentence": texts}).to_parquet(buffer)
    return buffer.getvalue()


def objects():
    texts = [{"deu_Latn": de, "eng_Latn": en} for de, en in ROWS]
    return Dataset.from_dict({"meta": [{"n": 1}, {"n": 2}], "pair": texts})


def treebank(texts, ids=None):
    """Return trees of CoNLL-U whose last word, a full stop, is not parted from the word before.

    With `ids`, comments hold them and the text as it was written, and the words are in capital letters.
    """
    sentences = []
    for number, text in enumerate(texts):
        *words, last = (text.upper() if ids else text).removesuffix(".").split()
        misc = [*((word, "_") for word in words), (last, "SpaceAfter=No"), (".", "_")]
        rows = (f"{n}\t{word}\t_\tX\t_\t_\t0\troot\t_\t{glued}" for n, (word, glued) in enumerate(misc, 1))
        comments = f"# sent_id = {ids[number]}\n# text = {text}\n" if ids else ""
        sentences.append(comments + "\n".join(rows) + "\n")
    return "\n".join(sentences)


def sided_objects():
    sides = ({"src": {"lang": "en", "text": en}, "tgt": {"lang": "de", "text": de}} for de, en in ROWS)
    return "".join(f"{json.dumps(side)}\n" for side in sides)


TALK = '<doc docid="1">\n<url>http://x</url>\n<speaker>x</speaker>\n</doc>\n'
UNIT = '<tu><tuv xml:lang="de"><seg>{}</seg></tuv>{}<tuv xml:lang="en"><seg>{}</seg></tuv></tu>'
ESCAPED = [(de.replace("&", "&amp;"), en.replace("&", "&amp;")) for de, en in ROWS]


# Name of the form: files and their content. All hold the same two pairs.
FORMS = {
    "tatoeba challenge": {"a.tsv": lines("deu\teng\t{de}\t{en}")},
    "tatoeba challenge, turned": {"a.tsv": lines("eng\tdeu\t{en}\t{de}")},
    "languages after the sentences": {"a.tsv": lines("{de}\t{en}\tde\ten")},
    "tatoeba pairs": {"a.tsv": lines("{n}\t{de}\t7{n}\t{en}")},
    "wikimatrix": {"a.tsv": lines("1.0{n}\t{de}\t{en}")},
    "hunalign": {"a.tsv": lines("{de}\t{en}\t0.{n}")},
    "anki": {"a.tsv": lines("{en}\t{de}\tCC-BY 2.0 (France) Attribution: x #{n}")},
    "anki as it is named there": {"a.txt": lines("{en}\t{de}\tCC-BY 2.0 (France) Attribution: x #{n}")},
    "paracrawl": {"a.tsv": lines("http://a.en/{n}\thttp://a.de/{n}\t{en}\t{de}")},
    "paracrawl, scored": {"a.tsv": lines("http://a.en/{n}\thttp://a.de/{n}\t{en}\t{de}\t0.9")},
    "ccaligned": {"a.tsv": lines("a.com\thttp://a.com/en\t{en}\thttp://a.com/de\t{de}")},
    "jparacrawl": {"a.txt": lines("www.a.com\twww.a.de\t0.7{n}\t{en}\t{de}")},
    "objects that say their languages": {"a.jsonl": sided_objects()},
    "czeng": {"a.tsv": lines("subtitles-b{n}-0\t0.9\t0.8\t0.{n}\t{de}\t{en}")},
    "massive": {f"{side}.jsonl": utterances(texts) for side, texts in (("a", DE), ("b", EN))},
    "ids of other names": {
        name: f"{column}\ttext\n" + "".join(f"q{n}\t{text}\n" for n, text in texts)
        for name, column, texts in (
            ("a.tsv", "index_id", [*enumerate(DE)]),  # of SIB-200
            ("b.tsv", "sentenceId", [*enumerate(EN)][::-1]),
        )
    },
    "rows of both languages": dict.fromkeys(
        ("a.tsv", "b.tsv"), "No.\tLanguage Name\ttext\n" + lines("{n}\tGerman\t{de}\n{n}\tEnglish\t{en}")
    ),
    "verses by their ids": {"a.txt": lines("GEN.1.{n}\t{de}"), "b.txt": "GEN.1.0\tIn.\n" + lines("GEN.1.{n}\t{en}")},
    "numbers of rows": {"a.txt": lines("{n}\t{de}"), "b.txt": lines("7{n}\t{en}")},
    "sentences in numbered tags": {
        "a.de": lines("<s snum={n}> {de} </s>"),
        "a.en": lines('<S snum="{n}"> {en} </S>'),
    },
    "sentences in tags": {"a.de": lines("<s> {de} </s>"), "a.en": lines("<s> {en} </s>")},
    "talks in many languages": {
        "a.jsonl": lines('{{"translations": {{"language": ["de", "en"], "translation": ["{de}", "{en}"]}}}}')
    },
    "languages of a column": {"a.jsonl": lines('{{"text": {{"en": "{en}", "de": "{de}"}}, "meta": 1}}')},
    "languages beside an object": {
        "a.jsonl": lines('{{"en": "{en}", "de": "{de}", "m": {{"src": "x", "tgt": "y"}}}}')
    },
    "the language of a row": {"a.jsonl": lines('{{"language": "German", "text": "{de}", "translation": "{en}"}}')},
    "a language beside columns of languages": {"a.jsonl": lines('{{"lang": "fr", "de": "{de}", "en": "{en}"}}')},
    "blanks before quotation marks": {"a.csv": "id, de, en\n" + lines('{n}, "{de}", "{en}"')},
    "originals": {"a.csv": "orig,trans\n" + lines("{de},{en}")},
    "fast_align": {"a.txt": lines("{de} ||| {en}")},
    "bars and a score": {"a.aligned": lines("{de} ||| {en} ||| -1.{n}")},
    "wmt24++": {"a.jsonl": lines('{{"lp": "en-de_DE", "source": "{en}", "target": "{de}"}}')},
    "names of columns with blanks": {
        "a.csv": "Source Language,Target Language,source,target\n" + lines("en,de,{en},{de}")
    },
    "smol": {"a.jsonl": lines('{{"sl": "en", "tl": "de", "src": "{en}", "trg": "{de}"}}')},
    "wmt's scored translations": {"a.csv": "lp,src,mt,ref\n" + lines("de-en,{de},x,{en}")},
    "a direction for each row": {"a.jsonl": lines('{{"direction": "en>de", "source": "{en}", "target": "{de}"}}')},
    "tanzil": {"a.txt": lines("2|{n}|{de}"), "b.txt": lines("2|{n}|{en}")},
    "bars in a csv": {"a.csv": "de|en\n" + lines("{de}|{en}")},
    "tico-19": {"a.csv": "sourceLang,targetLang,source,target\n" + lines("en,de,{en},{de}")},
    "flores": {"a.jsonl": records(DE), "b.jsonl": records(EN, -1)},
    "two tables whose ids repeat": {"a.jsonl": records(DE).replace(": 1,", ": 0,"), "b.jsonl": records(EN)},
    "ids that repeat": {"a.csv": "id,text\n" + lines("1,{de}"), "b.csv": "id,text\n" + lines("1,{en}")},
    "ids of treebanks": {
        "a.csv": "sent_id,Sentence\n" + lines("{n},{de}"),
        "b.csv": "Sent_ID,text\n" + "".join(lines("{n},{en}").splitlines(True)[::-1]),
    },
    "keys and values": {
        "a.jsonl": lines('{{"key": "m{n}", "value": "{de}"}}'),
        "b.tsv": "ID\tEnglish\n" + lines("m{n}\t{en}"),
    },
    "where a text is from": {f"{lang}.csv": "text,source\n" + lines(f"{{{lang}}},web") for lang in ("de", "en")},
    "flores as csv": {"a.csv": "id,text\n" + lines("{n},{de}"), "b.csv": "id,text\n" + lines("{n},{en}")},
    "one sentence a line": {"a.tsv": lines("{de}"), "b.tsv": lines("{en}")},
    "flores as json": {"a.json": f"[{records(DE).strip().replace(chr(10), ',')}]", "b.jsonl": records(EN)},
    "flores as parquet": {f"{side}.parquet": parquet(texts) for side, texts in (("a", DE), ("b", EN))},
    "treebanks": {f"{side}.conllu": treebank(texts) for side, texts in (("a", DE), ("b", EN))},
    "treebanks in another order": {
        "a.conllu": treebank(DE, ids=["n1", "n2"]),
        "b.conllu": treebank(EN[::-1], ids=["n2", "n1"]),
    },
    "iwslt": {"a.xml": segments(DE), "b.xml": segments(EN)},
    "wmt22": {"a.xml": both_sides(EN, DE)},
    "wmt22 with a system whose language has another name": {
        "a.xml": both_sides(EN, DE).replace("</doc>", '<hyp system="s" language="de"><seg id="1">x</seg></hyp></doc>')
    },
    "short names of columns": {"a.csv": "src_txt,tgt_txt\n" + lines("{de},{en}")},
    "transcribed speech": {
        f"{lang}.jsonl": lines(f'{{{{"id": {{n}}, "raw_transcription": "x", "transcription": "{{{lang}}}"}}}}')
        for lang in ("de", "en")
    },
    "newstest with two references": {
        "a.sgm": segments(DE).replace("<doc", '<doc sysid="A"')
        + segments(["x", "y"]).replace("<doc", '<DOC sysid="B"'),
        "b.sgm": segments(EN),
    },
    "newstest": {"a.sgm": segments(DE), "b.sgm": segments(EN)},
    "smol, several translations": {
        "a.jsonl": f'{{"sl": "en", "tl": "de", "srcs": {json.dumps(EN)}, "trgs": {json.dumps(DE)}}}\n'
    },
    "flores of the hub": {"a.jsonl": lines('{{"sentence_eng_Latn": "{en}", "sentence_deu_Latn": "{de}"}}')},
    "columns of json": {"a.json": json.dumps({"de": DE, "en": EN})},
    "columns of json with keys": {"a.json": json.dumps({"de": dict(zip("xy", DE)), "en": dict(zip("yx", EN[::-1]))})},
    "columns of json with names as keys": {
        "a.json": json.dumps({code: dict(zip(("title", "text"), own)) for code, own in (("de", DE), ("en", EN))})
    },
    "objects of json under numbers": {
        "a.json": json.dumps({n: {"de": de, "en": en} for n, (de, en) in enumerate(ROWS, 1)})
    },
    "objects of json under keys": {
        "a.json": json.dumps({f"greeting {n}": {"de": de, "en": en} for n, (de, en) in enumerate(ROWS)})
    },
    "json in utf-16": {"a.json": json.dumps([{"de": de, "en": en} for de, en in ROWS]).encode("utf-16")},
    "the separator that excel names": {"a.csv": "sep=|\nGerman|English\n" + lines('"{de}"|{en}')},
    "pandas in json": {"a.json": json.dumps({"de": dict(enumerate(DE)), "en": dict(enumerate(EN))})},
    "moses, the pivot first": {"x.de-en.en": lines("{en}"), "x.de-en.de": lines("{de}")},
    "ntrex, the pivot first": {"src.eng.txt": lines("{en}"), "ref.deu.txt": lines("{de}")},
    "ted talks of iwslt": {"t.de": TALK + lines("{de}"), "t.en": TALK + lines("{en}")},
    "languages by name": {
        "a.tmx": "<tmx><header/><body>"
        + lines(UNIT.replace('"de"', '"German"').replace('"en"', '"English"').format("{de}", "", "{en}"), ESCAPED)
        + "</body></tmx>"
    },
    "a tab after each row": {"a.tsv": lines("{de}\t{en}\t")},
    "a tab after each row but the header": {"a.tsv": "de\ten\n" + lines("{de}\t{en}\t")},
    "hunalign, joined sentences": {"a.tsv": lines("<p>\t<p>\t0.1\n{de}\t{en}\t0.{n}").replace("e s", "e ~~~ s")},
    "tanzil with its notice": {side: lines(f"2|{{n}}|{{{side}}}") + "\n#  Quran\n" for side in ("de", "en")},
    "tanzil with its notice, without numbers": {
        side: lines(f"{{{side}}}") + "\n#------\n#\n#  Quran\n" for side in ("de", "en")
    },
    "mteb, the pivot first": {"a.jsonl": lines('{{"sentence1": "{en}", "sentence2": "{de}", "lang": "eng-deu"}}')},
    "wordfast": {"a.txt": lines("20201020~12000{n}\tX\t0\tDE-DE\t{de}\tEN-US\t{en}")},
    "wordfast with its header": {
        "a.txt": "%20201020~120000\t%X\t%TU=2\t%DE-DE\t%Wordfast TM v.5\t%EN-US\t%-\n"
        + lines("20201020~12000{n}\tX\t0\tDE-DE\t{de}\tEN-US\t{en}")
    },
    "notes of anki": {"a.txt": "#separator:tab\n#html:true\n" + lines("{de}\t{en}")},
    "omegat": {"a.txt": "# Glossary in tab-separated format -*- coding: utf-8 -*-\n" + lines("{de}\t{en}")},
    "comments among the rows": {"a.tsv": "# text\nde\ten\n" + lines("# page = {n}\n{de}\t{en}")},
    "an object under another name": {"a.jsonl": lines('{{"pair": {{"en": "{en}", "de": "{de}"}}, "n": {n}}}')},
    "europarl with its tags": {
        side: '<CHAPTER ID=1>\n<SPEAKER ID=1 NAME="X">\n' + lines(f"{{{side}}}\n<P>") for side in ("de", "en")
    },
    "semicolons under a header with commas": {"a.csv": "de;en;note, date, author\n" + lines("{de};{en};x")},
    "ids that are numbers and text": {"a.jsonl": records(DE), "b.tsv": "id\ttext\n1\t" + EN[1] + "\n0\t" + EN[0]},
    "ids of verses": {
        "a.csv": "verse_id,text\n" + lines("GEN {n},{de}"),
        "b.csv": "verse_id,text\n" + "".join(lines("GEN {n},{en}").splitlines(True)[::-1]),
    },
    "languages of one of two objects": {
        "a.jsonl": lines('{{"meta": {{"n": 1}}, "t": {{"en": "{en}", "de": "{de}"}}}}')
    },
    "tables with headers, joined": {"a.tsv": "de\ten\n" + lines("{de}\t{en}\nde\ten")},
    "locales of both sides": {
        "a.jsonl": lines('{{"source_locale": "en-US", "target_locale": "de-DE", "source": "{en}", "target": "{de}"}}')
    },
    "a direction in capitals": {"a.csv": "LP,SRC,TGT\n" + lines("en-de,{en},{de}")},
    "tatoeba pairs with languages": {"a.tsv": lines("{n}\tdeu\t{de}\t7{n}\teng\t{en}")},
    "paracrawl, scored twice": {"a.tsv": lines("http://a.en/{n}\thttp://a.de/{n}\t{en}\t{de}\t0.9\t1")},
    "nllb": {"a.tsv": lines("{de}\t{en}\t1.1\t0.9\t0.8\thttp://a.de\thttp://a.en")},
    "nllb with the names of its sources": {
        "a.tsv": lines("{de}\t{en}\t1.1\t0.9\t0.8\tcrawl-data/x\thttp://a.en\twikipedia\t_")
    },
    "from and to": {"a.jsonl": lines('{{"from": "en", "to": "de", "source": "{en}", "target": "{de}"}}')},
    "from whom to whom": {"a.jsonl": lines('{{"from": "Anna", "to": "Ben", "source": "{de}", "target": "{en}"}}')},
    "languages by name and code": {"a.csv": "English (en),German (deu)\n" + lines("{en},{de}")},
    "words and meanings": {"a.tsv": "word\tmeaning\n" + lines("{de}\t{en}")},
    "tanzil with colons": {side: lines(f"2:{{n}}|{{{side}}}") for side in ("de", "en")},
    "languages beside a text and its translation": {
        "a.jsonl": lines('{{"text": "{en}", "text_lang": "en", "translation": "{de}", "translation_lang": "de"}}')
    },
    "languages of lettered texts": {"a.csv": "language_a,language_b,text_a,text_b\n" + lines("eng,deu,{en},{de}")},
    "styles beside an input and its output": {
        "a.jsonl": lines('{{"input": "{de}", "input_language": "plain", "output": "{en}", "output_language": "old"}}')
    },
    "a direction with a number": {"a.jsonl": lines('{{"languages": "en2de", "source": "{en}", "target": "{de}"}}')},
    "a direction in words": {"a.jsonl": lines('{{"direction": "en to de", "source": "{en}", "target": "{de}"}}')},
    "weblate": {"a.csv": '"source","target","fuzzy"\n' + lines('"{en}","{de}","False"')},
    "rows of two splits": {"a.tsv": "split\tde\ten\n" + lines("train\t{de}\t{en}") + "test\tHund\tdog\n"},
    "splits of two tables": {
        f"{side}.jsonl": lines(f'{{{{"partition": "train", "utt": "{{{side}}}"}}}}')
        + '{"partition": "dev", "utt": "x"}'
        for side in ("de", "en")
    },
    "languages of one table": {
        f"{name}.jsonl": "".join(
            json.dumps({"id": n, "iso_639_3": code, "text": row[k]}) + "\n"
            for k, code in enumerate(("deu", "eng"))
            for n, row in enumerate(ROWS)
        )
        for name in ("a", "b")
    },
    "verses by book": {side: lines(f"1 JHN 3:{{n}} {{{side}}}") for side in ("de", "en")},
    "verses behind bars": {side: lines(f"1 John|3|{{n}}|{{{side}}}") for side in ("de", "en")},
    "ids before tabs in two tables": {
        "a.tsv": lines("doc7-{n}\t{de}"),
        "b.tsv": "doc7-0\tIn.\n" + lines("doc7-{n}\t{en}"),
    },
    "other names of formats": {"a.ndjson.gz": gzip.compress(lines('{{"de": "{de}", "en": "{en}"}}').encode())},
    "paralleltext": {
        "a.txt": "# language_name:\tGerman\n# year:  1912\n" + lines("4000100{n}\t{de}"),
        "b.txt": "# language_name:  English\n40001000\tIn.\n" + lines("4000100{n}\t{en}"),
    },
    "lists of texts": {"a.json": json.dumps(DE), "b.json": json.dumps(EN)},
    "numbers of pandas": {f"{side}.csv": ",text\n" + lines(f"{{n}},{{{side}}}") for side in ("de", "en")},
    "nulls of a database": {"a.tsv": "de\ten\n" + lines("{de}\t{en}") + "Hund\t\\N\n"},
    "one column and its name": {f"{side}.tsv": "text\n" + lines(f"{{{side}}}") for side in ("de", "en")},
    "bars without blanks": {"a.txt": lines("{de}|||{en}")},
    "columns in the text's language": {"a.csv": "Satz;Übersetzung\n" + lines("{de};{en}")},
    "gettext as CSV": {"a.csv": "msgid,msgstr\n" + lines("{en},{de}")},
    "a column in decomposed letters": {"a.csv": "Satz;U\u0308bersetzung\n" + lines("{de};{en}")},
    "verses by numbers of books": {
        f"{side}.csv": "Verse ID,Book Name,Book Number,Chapter,Verse,Text\n"
        + lines(f"{{n}},{side},1,1,{{n}},{{{side}}}")
        for side in ("de", "en")
    },
    "columns in a third language": {"a.tsv": "allemand\tanglais\n" + lines("{de}\t{en}")},
    "columns in two languages": {"a.csv": "n,英文,German\n" + lines("{n},{en},{de}")},
    "languages in Russian": {"a.tsv": "немецкий\tанглийский\n" + lines("{de}\t{en}")},
    "columns in Russian": {"a.tsv": "№\tИсходный текст\tЦелевой текст\n" + lines("{n}\t{de}\t{en}")},
    "columns in Vietnamese": {"a.tsv": "câu\tbản dịch\n" + lines("{de}\t{en}")},
    "languages before the sentences": {"a.tsv": lines("eng\t{en}\tdeu\t{de}")},
    "numbered, languages before the sentences": {"a.tsv": lines("{n}\tdeu\t{de}\teng\t{en}")},
    "macocu": {"a.tsv": "src_url\ttrg_url\tsrc_par\ttrg_par\n" + lines("a\tb\t{de}\t{en}")},
    "xz": {"a.tsv.xz": lzma.compress(lines("{de}\t{en}").encode())},
    "bz2": {"a.tsv.bz2": bz2.compress(lines("{de}\t{en}").encode())},
}


def source_of(files, folder):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return ",".join(str(folder / name) for name in files)


@pytest.mark.parametrize("form", FORMS)
def test_published_forms(form, tmp_path):
    pairs = load_parallel(f"de={source_of(FORMS[form], tmp_path)}", on_empty="drop")
    assert list(zip(pairs["source"], pairs["target"], strict=True)) == ROWS
    assert (pairs[0]["source_lang"], pairs[0]["target_lang"]) == ("de", "en")


def test_columns_by_number_and_marks_of_emptiness(tmp_path):
    path = source_of({"a.tsv": lines("x{n}\ty\t{en}\t{de}")}, tmp_path)
    assert load_parallel(f"de={path}", source_column="4", target_column="3")["source"][:] == DE
    files = {"d": "Eins und zwei.\n<range>\n<url>http://x</url>\nDrei.\n", "e": "One.\nTwo.\n<url>x</url>\nThree.\n"}
    assert load_parallel(f"de={source_of(files, tmp_path)}", on_empty="drop")["source"][:] == ["Drei."]
    path = source_of({"t.tsv": "talk\ten\tde\nt\tOne.\t__NULL__\nt\tTwo.\tZwei.\n"}, tmp_path)
    assert load_parallel(f"de={path}", on_empty="drop")["source"][:] == ["Zwei."]
    path = source_of({"t.de": "<title>Eins</title>\n", "t.en": "<title>One</title>\n"}, tmp_path)
    assert load_parallel(f"de={path}")["source"][:] == ["Eins"]
    path = source_of({"ja.tsv": "jpn_Hira\teng\tねこ\tcat\njpn_Hani\teng\t犬\tdog\n"}, tmp_path)
    assert load_parallel(f"ja={path}")["source"][:] == ["ねこ", "犬"]


@pytest.mark.parametrize("form", ["a.tsv", "a.jsonl", "b.jsonl", "a.csv,b.csv"])
def test_a_verse_that_covers_the_next_is_left_out_of_every_table(form, tmp_path):
    verses = [
        ("I 1", "Bat.", "One."),
        ("I 2", "Bi, hiru.", "Two."),
        ("I 3", "<range>", "Three."),
        ("I 4", "Lau.", "4"),
    ]
    rows = [dict(zip(("vref", "eu", "en"), verse)) for verse in verses]
    files = {
        "a.tsv": "vref\teu\ten\n" + "".join("\t".join(verse) + "\n" for verse in verses),
        "a.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "b.jsonl": "".join(json.dumps({"translation": row}) + "\n" for row in rows),
        "a.csv": "vref,text\n" + "".join(f'{row["vref"]},"{row["eu"]}"\n' for row in rows),
        "b.csv": "vref,text\n" + "".join(f"{row['vref']},{row['en']}\n" for row in rows),
    }
    source = source_of({name: files[name] for name in form.split(",")}, tmp_path)
    assert load_parallel(f"eu={source}", on_empty="drop")["target"][:] == ["One.", "4"]


def test_codes_that_mean_something_else_too(tmp_path):
    """A suffix of other tools, a name in another language, a number of a row, and codes that CLDR lacks."""
    for lang, pivot, files in (
        ("ts", "en", {"x.en-ts.ts": "Mbyana.\n", "x.en-ts.en": "A dog.\n"}),
        ("tar", "es", {"x.es-tar.tar": "Mbyana.\n", "x.es-tar.es": "A dog.\n"}),
        ("kri", "en", {"a.tsv": "eng\tkri\nA dog.\tMbyana.\n"}),  # Cree in Polish
        ("oto", "es", {"a.tsv": "es\toto\nA dog.\tMbyana.\n"}),
        ("id", "en", {"a.csv": "id,ind,eng\n1,Mbyana.,A dog.\n"}),
        ("ps", "en", {"a.csv": "pbt,eng\nMbyana.,A dog.\n"}),
    ):
        pairs = load_parallel(f"{lang}={source_of(files, tmp_path)}", target_lang=pivot)
        assert (pairs["source"][:], pairs["target"][:]) == (["Mbyana."], ["A dog."]), lang
    with pytest.raises(InputError, match="by ts2po"):
        load_parallel(f"ts={source_of({'app_ts.ts': '<TS/>', 'app_en.ts': '<TS/>'}, tmp_path)}")
    assert load_monolingual(tmp_path / "x.en-ts.ts", lang="ts")["text"][:] == ["Mbyana."]


def test_ids_of_aligned_rows_that_disagree_are_told(tmp_path, caplog):
    def read(left, right, name="txt"):
        caplog.clear()
        names = {f"{side}.{name}": content for side, content in (("a", left), ("b", right))}
        assert len(load_parallel(f"gl={source_of(names, tmp_path)}")) == 3
        return [record.getMessage() for record in caplog.records if "the ids of" in record.getMessage()]

    numbered = ["".join(f"{n}\tfrase {n}\n" for n in numbers) for numbers in ((1, 2, 4), (1, 3, 4))]
    assert "the ids of 1 rows differ. Check that rows are aligned" in read(*numbered)[0]
    assert not read(numbered[0], numbered[0])
    of_documents = [
        "".join(f'{{"id": {n}, "text": "frase"}}\n' for n in numbers) for numbers in ((1, 1, 2), (2, 1, 1))
    ]
    assert "the ids of 2 rows differ" in read(*of_documents, name="jsonl")[0]


def test_segments_without_a_reference_are_counted(tmp_path, caplog):
    text = both_sides(["The cat sleeps.", "It rains."], ["Maca spi."]).replace('lang="de"', 'lang="sl"')
    assert len(load_parallel(f"sl={source_of({'a.xml': text}, tmp_path)}")) == 1
    assert "1 of 2 segments lack a side" in caplog.text


GERMAN = [f"Der Zug mit der Nummer {number} ist nicht auf dem Weg und das Haus ist leer." for number in range(40)]
ENGLISH = [f"The train with the number {number} is not on its way and this house is empty." for number in range(40)]


@pytest.mark.parametrize(
    ("pairs", "fault"),
    [
        ((GERMAN, GERMAN), "40 of 40 sources are the same as their targets"),
        ((ENGLISH, ENGLISH), "40 of 40 sources are the same as their targets"),
        ((ENGLISH, GERMAN), "the sides are swapped"),
        ((GERMAN, ENGLISH), None),
        ((GERMAN[:12], GERMAN[:12]), None),  # fewer than 200 words
        ((GERMAN, [f"w{n} w{n + 1} w{n + 2} w{n + 3} w{n + 4} w{n + 5}" for n in range(40)]), None),
        ((GERMAN, [f"दाम {n} रुपये है" for n in range(40)]), "40 of 40 targets are in another script"),
        ((GERMAN[:30] + ENGLISH[30:], ENGLISH[:30] + GERMAN[30:]), "10 of 40 sources are in another language"),
        ((GERMAN[:30] + ENGLISH[30:], ENGLISH), "10 of 40 sources are the same"),
        (([f"{n}. Haus" for n in range(40)], ["TODO"] * 12 + ENGLISH[12:]), "the source is numbered"),
        (
            (["Haus " * (n + 1) for n in range(40)], ["TODO"] * 12 + ENGLISH[12:]),
            "'TODO' is the target of 12 different",
        ),
        ((GERMAN, [f"{text} Дом и сад" if n < 6 else text for n, text in enumerate(ENGLISH)]), None),
        ((GERMAN, ["Дом пуст."] * 6 + ENGLISH[6:]), "6 of 40 targets are in another script, such as 'Дом"),
        ((GERMAN[:1] * 40, GERMAN[:1] * 40), None),  # one pair, to try a command
    ],
)
def test_a_side_in_another_language_is_told_by_function_words(pairs, fault, tmp_path):
    path = source_of({"a.tsv": "".join(f"{de}\t{en}\n" for de, en in zip(*pairs, strict=True))}, tmp_path)
    assert len(load_parallel(f"de={path}", sides_checked=True)) == len(pairs[0])
    if fault is None:
        load_parallel(f"de={path}")
    else:
        with pytest.raises(InputError, match=fault):
            load_parallel(f"de={path}")


def test_each_language_of_the_rows_is_checked_by_itself(caplog):
    columns = ("source", "target", "source_lang")
    russian, german = ("Поезд уже ушёл.", "The train has left.", "ru"), list(zip(GERMAN, ENGLISH, ["de"] * 40))
    turned = [(target, source, lang) for source, target, lang in german]
    assert len(load_parallel([dict(zip(columns, row)) for row in [russian, *german]])) == 41
    rows = [dict(zip(columns, row)) for row in [russian, *turned]]
    with pytest.raises(InputError, match=r"'Der Zug mit .*' \(en, the pivot\): the sides are swapped"):
        load_parallel(rows)
    # The way of a trainer, which also takes what `load_parallel` was told to read.
    join_languages(Dataset.from_list(rows), "train_dataset")
    assert "train_dataset: 'The train with" in caplog.text and "the sides are swapped" in caplog.text


def test_text_without_splits_is_the_same_text_in_every_split(tmp_path):
    path = source_of({"a.csv": "de,en\n" + lines("{de},{en}")}, tmp_path)
    train, test = (load_parallel(f"de={path}", split=split) for split in ("train", "test"))
    assert train._fingerprint == test._fingerprint
    path = source_of({"b.csv": "split,de,en\n" + lines("train,{de},{en}") + "test,x,y\n"}, tmp_path)
    train, test = (load_parallel(f"de={path}", split=split) for split in ("train", "test"))
    assert train["source"][:] == DE and test["source"][:] == ["x"] and train._fingerprint != test._fingerprint


def test_a_folder_of_shards_gives_one_split(tmp_path):
    for name, de in (
        ("train-00000-of-00001", DE),
        ("validation-00000-of-00001", ["x"]),
        ("test-00000-of-00001", ["y"]),
    ):
        Dataset.from_dict({"de": de, "en": EN[: len(de)]}).to_parquet(tmp_path / f"{name}.parquet")
    assert load_parallel(f"de={tmp_path}")["source"][:] == DE
    assert load_parallel(f"de={tmp_path}", split="validation")["source"][:] == ["x"]
    with pytest.raises(InputError, match=r"split=tset: choose one of .*did you mean 'test'"):
        load_parallel(f"de={tmp_path}", split="tset")


def test_languages_without_a_list_of_words_are_told(tmp_path):
    """A pivot's side in any language has none of the pivot's words, and the source's list tells swapped sides."""
    icelandic = [f"Lestin númer {number} er ekki á leið sinni því húsið við ána er tómt." for number in range(200)]
    words = [str(number).translate(dict(zip(range(48, 58), "abcdefghij"))) for number in range(2000)]
    for lang, pivot, left, right, fault in (
        ("sv", "en", GERMAN * 5, icelandic, "the target is not in en, because it has hardly any words such as 'and'"),
        ("fr", "is", [f"{text} Já." for text in icelandic], icelandic, "the source is not in fr"),
        ("de", "is", icelandic[:40], GERMAN, r"swapped, because the target \(is\) has more words such as 'auf'"),
        ("de", "is", GERMAN, icelandic[:40], None),
        ("sv", "en", words, [f"{word}en" for word in words], None),  # words, not sentences
    ):
        found = next(faults_of_sides(left[: len(right)], right, lang, pivot), None)
        assert found is None if fault is None else re.search(fault, str(found)), found


def test_albanian_and_ewe_stand_where_the_codes_of_flores_do(tmp_path):
    cells, numbers = ["Macja fle.", "The cat sleeps."], ["1.1", "0.9", "0.8", "http://a.al", "http://a.en"]
    for lang, row in (("sq", cells), ("als_Latn", cells), ("ee", cells[::-1]), ("fr", cells[::-1]), ("de", cells)):
        path = source_of({"a.tsv": "\t".join([*row, *numbers]) + "\n"}, tmp_path)
        assert load_parallel(f"{lang}={path}")["target"][:] == cells[1:], lang
    with pytest.raises(InputError, match="--source_column 1 --target_column 2"):
        load_parallel(f"sq={path}", target_lang="fr")


def test_real_text_in_one_of_a_languages_scripts_is_no_fault():
    rows = [{"ja": f"{number}匹の猫が眠る。", "en": f"{number} cats sleep."} for number in range(20)]  # no katakana
    assert len(load_parallel({"ja": rows})) == 20


def test_a_name_of_another_language_or_of_the_other_order_is_told(tmp_path, caplog):
    def read(source, **files):
        caplog.clear()
        source_of({name.replace("_", "."): content for name, content in files.items()}, tmp_path)
        load_parallel(source.replace("@", str(tmp_path)))
        return [record.getMessage() for record in caplog.records if "its name says" in record.getMessage()]

    pairs = lines("{de}\t{en}")
    said = read("fi=@/src.hun.txt,@/my.eng.txt", src_hun_txt=lines("{de}"), my_eng_txt=lines("{en}"))
    assert said == ["src.hun.txt: read as fi, although its name says hu"]
    assert read("fi=@/x-de-en.tsv", **{"x-de-en_tsv": pairs}) == ["x-de-en.tsv: read as fi, although its name says de"]
    assert not read("hu=@/src.hun.txt,@/my.eng.txt")
    assert not read("de=@/x-de-en.tsv") and not read("fi=@/src.no.tsv", src_no_tsv=pairs)
    read("sw=@/en-sw.txt", **{"en-sw_txt": "dog\tmbwa\n"})
    assert "although the name says otherwise" in caplog.text
    rows = "path\tsentence\ttranslation\nx.mp3\tRice\tMchele\n"
    for name, count in (("covost_v2.en_sw.dev.tsv", 1), ("covost_v2.sw_en.dev.tsv", 0)):
        caplog.clear()
        load_parallel(f"sw={source_of({name: rows}, tmp_path)}")
        assert caplog.text.count("although the file's name says otherwise") == count


def test_names_of_folders_and_in_the_texts_languages_say_which_side_is_which(tmp_path):
    for names in (("fi/dev.txt", "et/dev.txt"), ("soome.txt", "viro.txt"), ("suomi.txt", "eesti.txt")):
        for name, text in zip(names, ("Talo\n", "Maja\n")):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        pairs = load_parallel(f"et={tmp_path / names[0]},{tmp_path / names[1]}", target_lang="fi")
        assert (pairs[0]["source"], pairs[0]["target"]) == ("Maja", "Talo"), names


def test_forms_with_english_first_are_not_known_of_other_languages(tmp_path):
    path = source_of({"a.tsv": "http://a.fi\thttp://a.et\tTalo\tMaja\n"}, tmp_path)
    with pytest.raises(InputError, match="name them by their numbers"):
        load_parallel(f"et={path}", target_lang="fi")


@pytest.mark.parametrize("direction", ["en–sw", "en => sw", "en/sw", "English - Swahili"])
def test_directions_of_rows_in_any_spelling(direction):
    [pair] = load_parallel([{"pair": direction, "source": "Rice", "target": "Mchele"}], source_lang="sw")
    assert pair["source"] == "Mchele"


def test_an_unknown_way_with_empty_sides_is_refused():
    with pytest.raises(InputError, match="on_empty=dorp: choose one of error, drop"):
        load_parallel([{"fi": "Talo", "en": "House"}], on_empty="dorp")


SAID = ["Pes spi.", "Dež pada."]


@pytest.mark.parametrize(
    ("names", "read"),
    [
        ("en,sl_mt,sl_post_edited", SAID),
        ("en_clean,sl_mt,sl_human", SAID),
        ("en,sl_mt,sl_pe", "columns are: 'en', 'sl_mt', 'sl_pe'"),
        ("en,sl_AT,sl_IT", "columns are: 'en', 'sl_AT', 'sl_IT'"),
        ("en,sl_IT,sl_SI", SAID),
    ],
)
def test_no_machine_translation_or_region_is_taken_for_another(names, read, tmp_path):
    rows = zip(EN, ["Pes spati.", "Deževati."], SAID)
    path = source_of({"a.csv": f"{names}\n" + "".join(",".join(row) + "\n" for row in rows)}, tmp_path)
    if isinstance(read, str):
        with pytest.raises(InputError, match=read):
            load_parallel(f"sl={path}")
    else:
        assert load_parallel(f"sl={path}")["source"][:] == read


def test_rows_of_one_script_are_read_of_a_table_that_names_it(tmp_path, caplog):
    rows = [("0", "srp", "Cyrl", "Пас спава."), ("1", "srp", "Cyrl", "Пада киша.")]
    rows += [("0", "srp", "Latn", "Pas spava."), ("1", "srp", "Latn", "Pada kiša.")]
    table = "id,iso_639_3,iso_15924,text\n"
    files = {
        "a.csv": table + lines_of(rows),
        "b.csv": table + lines_of([(n, "eng", "Latn", EN[int(n)]) for n in "01"]),
    }
    for code, first in (("sr", "Пас спава."), ("sr-Latn", "Pas spava.")):
        pairs = load_parallel(f"{code}={source_of(files, tmp_path)}")
        assert (pairs["source"][0], pairs["target"][:]) == (first, EN)
    assert "left out: 2 in srp_Latn" in caplog.text and "left out: 2 in srp_Cyrl" in caplog.text


def lines_of(rows):
    return "".join(",".join(row) + "\n" for row in rows)


def test_a_column_that_may_reject_rows_is_told(tmp_path, caplog):
    rows = [{"en": en, "lv": "Suns guļ.", "Approved": en == EN[0]} for en in EN]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        assert len(load_parallel(f"lv={tmp_path / name}")) == 2
        assert f"{name}: the column 'Approved' is not read. If it rejects rows, remove them" in caplog.text


def test_rejected_units_are_left_out(tmp_path):
    units = (UNIT.format(de, f'<prop type="x-ConfirmationLevel">{level}</prop>', en)
             for (de, en), level in zip(ESCAPED, ("RejectedTranslation", "Translated")))  # fmt: skip
    path = source_of({"a.tmx": f"<tmx><header/><body>{''.join(units)}</body></tmx>"}, tmp_path)
    assert load_parallel(f"de={path}")["source"][:] == DE[1:]


def test_verses_are_joined_by_book_chapter_and_verse(tmp_path, caplog):
    rows = ((1, 1, "Am Anfang"), (1, 3, "Es werde Licht"), (2, 1, "So wurden vollendet"))
    german = "".join(f"Gen,{chapter},{verse},{text}\n" for chapter, verse, text in rows)
    english = [{"Book": "Gen", "Chapter": 1, "Verse": verse, "Text": text} for verse, text in enumerate("abc", 1)]
    files = {"a.csv": f"b,c,v,t\n{german}", "a.jsonl": "".join(f"{json.dumps(row)}\n" for row in english)}
    pairs = load_parallel(f"de={source_of(files, tmp_path)}")
    assert list(zip(pairs["source"], pairs["target"])) == [("Am Anfang", "a"), ("Es werde Licht", "c")]
    assert "2 ids occur in one file only" in caplog.text


def test_a_table_of_one_column_without_a_name_is_refused(tmp_path):
    path = source_of({"a.csv": "Talo\nKoira\n", "b.csv": "house\ndog\n"}, tmp_path)
    with pytest.raises(InputError, match="not one column of text; the columns are: Talo"):
        load_parallel(f"fi={path}")


def test_pairs_that_are_rated_are_told(tmp_path, caplog):
    for name, text in (("a.tsv", "sentence1\tsentence2\tlabel\nTalo\tA car\t0\n"), ("b.tsv", "a\tb\nTalo\tA car\n")):
        load_parallel(f"fi={source_of({name: text}, tmp_path)}")
    assert caplog.text.count("which sentences differ") == caplog.text.count("if 'label' rates the pairs") == 1
    mlqe = "index\toriginal\ttranslation\tmean\tz_mean\n1\tTalo\tA car\t12\t-1.2\n"
    load_parallel(f"fi={source_of({'c.tsv': mlqe}, tmp_path)}")
    assert caplog.text.count("if 'z_mean' rates the pairs") == 1


@pytest.mark.parametrize("refs", [{"refA": "b", "gpt": "x"}, {"refA": {"ref": "b", "id": 1}}, [{"text": "b"}]])
def test_references_in_objects(refs, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"src": "a", "refs": refs}))
    assert load_parallel(f"de={tmp_path / 'a.jsonl'}")["target"][:] == ["b"]
    assert load_parallel([{"src": "a", "refs": refs}], source_lang="de")["target"][:] == ["b"]


def test_a_unit_inside_a_unit_is_left_out_and_what_a_reader_says_is_said_again_from_the_cache(tmp_path, caplog):
    units = UNIT.format("a", "", "b") + UNIT.format("c", UNIT.format("d", "", "e"), "f")
    for name in ("a.tmx", "a.tmx", "b.tmx"):
        path = source_of({name: f"<tmx><header/><body>{units}</body></tmx>"}, tmp_path)
        assert load_parallel(f"de={path}")["source"][:] == ["a"]
        assert caplog.text.count(f"{name}: 2 units inside one another are left out") == 1
        caplog.clear()
    rows = '{"text": "Es regnet.", "lang": "de"}\n{"text": "It rains.", "lang": "en"}\n'
    (tmp_path / "a.jsonl").write_text(rows)
    for _ in range(2):
        load_monolingual(tmp_path / "a.jsonl", lang="de")
        assert "rows in other languages than de are left out: 1 in en" in caplog.text
        caplog.clear()


def numbered(form):
    return "".join(form.format(chr(97 + n)) + "\n" for n in range(25))


# Name: files and the start of the message.
REFUSED = {
    "ids of which no two agree": ({"a.txt": lines("de-{n}\t{de}"), "b.txt": lines("en-{n}\t{en}")}, "no id occurs in"),
    "tatoeba's sentences": ({"a.txt": lines("1{n}\tdeu\t{de}"), "b.txt": lines("2{n}\teng\t{en}")}, "several columns"),
    "tatoeba's sentences as CSV": (dict.fromkeys(("a.csv", "b.csv"), lines("1{n}\tdeu\t{de}")), "are: 11, deu, Die"),
    "a machine's translations": ({"a.csv": "src,mt\n" + lines("{de},{en}")}, "the columns are: 'src', 'mt'"),
    "cards": ({"a.csv": "Front,Back\n" + lines("{de},{en}")}, "the columns are: 'Front', 'Back'"),
    "two columns beside plain text": ({"a.txt": lines("{de}\tweb"), "b.txt": lines("{en}")}, "several columns"),
    "keys of a program": ({"de.yml": lines("k{n}: {de}"), "en.yml": lines("k{n}: {en}")}, "keys beside its texts"),
    "a glossary": ({"a.tbx": "<martif/>"}, "by tbx2tmx"),
    "rows in several languages": (
        {"a.jsonl": '{"lang": "de", "text": "a", "en": "b"}\n{"lang": "fr", "text": "c", "en": "d"}\n'},
        "row 2: source_lang is 'fr' in the row",
    ),
    "subwords": ({"a.de": "die Kat@@ ze\n", "a.en": "the cat\n"}, "the source is cut into subwords, which '@@ '"),
    "numbers of columns": ({"a.csv": "0,1\n" + lines("{de},{en}")}, "the columns are: '0', '1'"),
    "lines of XML": (
        {f"{side}.osis": lines('<verse osisID="Gen.1.{n}">x {n}</verse>') for side in ("a", "b")},
        "full of markup, as '<verse' shows",
    ),
    "markers of Bibles": ({"a.usfm": "\\v 1 x\n", "b.usfm": "\\v 1 y\n"}, "has markers around its verses"),
    "sides in an object that names no language": (
        {"a.jsonl": '{"t": "x", "m": {"src": "web", "tgt": "y"}}'},
        "'t', 'm'",
    ),
    "half of two schemes": (
        {"a.tsv": "en\txx\tsrc\n" + lines("{en}\t{de}\tpackage")},
        "columns are: 'en', 'xx', 'src'",
    ),
    "two columns that capitals tell apart": (
        {"a.jsonl": lines('{{"source": "{de}", "Source": "x", "target": "{en}"}}')},
        "the columns are: 'source', 'Source', 'target'",
    ),
    "unknown form": ({"a.tsv": lines("x{n}\ty\t{en}\t{de}")}, "--source_column 1 --target_column 2"),
    "gettext": ({"a.po": "x\n"}, "po2tmx"),
    "xliff": ({"a.xlf": "<xliff/>\n"}, "by xliff2po and po2csv"),
    "subtitles": ({"a.de.srt": "1\n", "a.en.srt": "1\n"}, "is not plain text: its lines are cues"),
    "an arrow file": ({"a.arrow": "ARROW1"}, "write it by to_parquet"),
    "binary data": ({"a.tsv": bytes([80, 75, 3, 0, *range(65, 90)])}, "UTF-16 or binary data, not UTF-8"),
    "a compiled catalogue": ({"a.mo": bytes([222, 18, 4, 149, 0])}, "by msgunfmt of gettext"),
    "another compression": ({"a.tsv.lz4": "x"}, "decompress it by: lz4 -d"),
    "a pickle": ({"a.pkl": "x"}, "reading a pickle can run code"),
    "an archive": ({"a.zip": "x"}, "unpack it"),
    "cp1252": ({"a.tsv": "“ä”\tb\n".encode("cp1252")}, "iconv -f cp1252"),
    "splits in one file": (
        {"a.json": '{"train": [{"de": "a"}], "test": [{"de": "b"}]}'},
        "several splits, train, test",
    ),
    "arrays": ({"a.jsonl": '["a", "b"]\n'}, "the columns are: '1', '2'"),
    "texts without columns": ({"a.jsonl": '"a"\n'}, "orient='records'"),
    "no rows": ({"a.json": '{"a": {"b": [1]}}'}, "holds no list of rows"),
    "lists of two lengths": ({"a.jsonl": '{"srcs": ["a"], "trgs": ["b", "c"]}\n'}, "different lengths"),
    "two memories": ({"a.tmx": "x\n", "b.tmx": "x\n"}, "is not plain text"),
    "swapped": (
        {"a.tsv": "The cat and the dog.\tDie Katze.\nYou are here.\tHier.\n"},
        "swapped.*--sides_checked true",
    ),
    "few strings": (
        {"a.tsv": "".join(f"x{n % 2}\tsentence {n}\n" for n in range(200))},
        "most sources are one of a few strings",
    ),
    "few strings in a small file": (
        {"a.tsv": "".join(f"x{n % 2}\tsentence {n}\n" for n in range(20))},
        "'x[01]' is the source of 10",
    ),
    "numbers of rows": (
        {"a.tsv": "".join(f"{n}\tsentence {n}\n" for n in range(20))},
        "counts or numbers of rows",
    ),
    "another script in a small file": (
        {"a.jsonl": "".join(f'{{"source": "数{n} は", "target": "数{n} の"}}\n' for n in range(20))},
        "20 of 20 sources are in another script",
    ),
    "ids before sentences": (
        {"a.tsv": "".join(f"utt_{n:03}\tsentence {n}\n" for n in range(30))},
        "the source is ids or names of files, as 'utt_000' shows",
    ),
    "ids of Kaldi": (
        {side: "".join(f"spk{n}-u1 {side} {chr(97 + n)}\n" for n in range(25)) for side in ("de", "en")},
        "the source is numbered or bulleted, as 'spk0-u1 ' shows",
    ),
    "one file twice": (
        {"a.tsv": "".join(f"Satz {n} ruht\tSatz {n} ruht\n" for n in range(30))},
        "30 of 30 sources are the same as their targets",
    ),
    "a table in another language": (
        dict.fromkeys(("a.jsonl", "b.jsonl"), '{"language": "isl", "text": "x"}\n'),
        "no row is in de; there are 1 in isl",
    ),
    "a row for each language": ({"a.csv": "id,lang,text\n1,de,a\n1,en,b\n"}, "for each side: de=FILE,FILE"),
    "texts under keys": (dict.fromkeys(("de.json", "en.json"), '{"a": {"b": "x"}, "c": "y"}'), "by json2po"),
    "ids of rows": ({"a.txt": "de_1\tx\nde_2\ty\n", "b.txt": "en_1\tx\nen_2\ty\n"}, "Remove those of aligned lines"),
    "rows without the split": ({"a.csv": "split,de,en\ndev,a,b\ntest,c,d\n"}, "split=train: choose one of dev, test"),
    "bullets": ({"a.de": "Hund\nKatze\n", "a.en": "- dog\n- cat\n"}, "the target is numbered or bulleted, as '- '"),
    "tokens of models": (
        {"a.de": numbered("[CLS] Satz {} [SEP]"), "a.en": numbered("sentence {}")},
        r"the source is marked, because nearly each line begins with '\[CLS\]'",
    ),
    "prompts": (
        {"a.de": numbered("Satz {}"), "a.en": numbered("translate German to English: number {}")},
        "the target is marked, because nearly each line begins with 'translate German to English:'",
    ),
    "languages behind sentences": (
        {"a.de": numbered("Satz {} de_DE"), "a.en": numbered("number {}")},
        "nearly each line ends with 'de_DE'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_says_what_to_do(name, tmp_path):
    files, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        load_parallel(f"de={source_of(files, tmp_path)}")


# Text as tools leave it, and what the message says of it.
MARKED = {
    "▁the ▁cat": "cut into subwords, which '▁' marks",
    "die</w> kat ze</w>": "cut into subwords, which 'e</w>'",
    "die Kat ##ze": "cut into subwords, which '##z'",
    '{"text": "Katze"}': "lines of JSON",
    "sch\\u00f6n": "escaped, as '\\\\u00f6' shows. Decode it as JSON",
    "sch=C3=B6n": "encoded as quoted-printable",
    "E @-@ Mail": "tokenized",
    "dog -LRB- x -RRB-": "tokenized",
    "sch\ufffdn": "decoded with losses",
    "\ufe8e\ufedf\ufeb4\ufefc\ufee1": "in presentation forms of Arabic",
    "die Katze (spk1-utt_01)": "numbered at the ends of lines",
    "['Es', 'regnet']": "lists as Python prints them",
    "Es regnet.\\nEs stürmt.": "broken by escaped line ends",
    "00:00:01,000 --> 00:00:02,000": "marked with times",
    "[00:01] Katze": "marked with times",
    "Wie geht &apos;s ?": "escaped, as '&apos;' shows",
    "Wald&nbsp;&#8211;": "escaped, as '&nbsp;' shows. Apply Python's html.unescape",
    "Das/DT ist/VBZ 1/CD": "tagged",
    "die|der|ART Katzen|Katze|N": "tagged",
    "die|ART Katze|NN": "tagged",
    "^the/the<det>$ ^cat/cat<n>$": "tagged",
    "\\tx die Katze": "full of markup",
    "{\\i1}Hallo": "full of markup",
    'the judges|lemma="judge" ruled': "full of markup",
    '(src)="1">Hallo': "full of markup",
    ">>eng<< die Katze": "marked with languages",
    "schÃ¶ne GrÃ¼ÃŸe": "decoded as another encoding than its own, as 'Ã¶' shows. Restore it by: ftfy",
    "“Rain.”": "in quotation marks",
    "(1) Hund": "numbered or bulleted",
    "dog,": "followed by separators, as ',' shows",
    "[Anna](PER) ist da": "full of markup",
    "das **Haus** dort": "full of markup",
    "der [[Hund|Rüde]]": "full of markup",
    "die \\emph{Katze}": "full of markup",
    "Das ĠHaus Ġsteht": "cut into subwords",
    "Ja. (12)": "numbered at the ends",
    "Anna: Guten Tag": "marked with speakers",
    "<PER>Anna</PER> ist da": "full of tags",
    "der_art hund_nn bellt_v": "tagged",
    "(S (NP Der Hund))": "parsed",
    "(b / bellen-01 :ARG0 h)": "parsed",
    "Der%20Hund%20bellt": "escaped as an address",
    "RGVyIEh1bmQgYmVsbHQ=": "encoded as base64",
    "D e r H u n d": "cut into letters",
    "犬《いぬ》が吠える": "annotated with readings",
    "םולש םלוע": "in visual order",
    "ျမန္မာ": "in the encoding of Zawgyi",
    "sch&ouml;n": "escaped",
    "* Hund": "numbered or bulleted",
    "> Hund": "numbered or bulleted",
    "1204 Der Hund": "numbered or bulleted",
    "dog 1. Hund 2. Rüde": "numbered inside one text",
    "Klick <BR> hier": "full of markup",
    "Klick {1>hier<1}": "full of markup",
    '<g id="1">Klick</g>': "full of markup",
    "[b]Hund[/b] und Katze": "full of markup",
    'er sagte \\"ja\\"': "escaped",
    "sch?n und gr?n": "decoded with losses",
    "m³a³o": "decoded with losses",
    "#NAME?": "an error of a spreadsheet",
    "Hund_x000D_": "an error of a spreadsheet",
    "nan": "empty cells",
    "der <unk> bellt": "decoded with unknown tokens",
    "ｱｲｳｴｵ": "in halfwidth characters",
}


@pytest.mark.parametrize("text", MARKED)
def test_marks_of_tools(text):
    assert str(fault_of_marks([text, text])).startswith(MARKED[text])


@pytest.mark.parametrize("by", [-1, 1])
def test_rows_that_are_moved_are_told_by_numbers(by, tmp_path):
    german = [f"Im Jahr {1900 + 7 * n} stand das Haus allein." for n in range(30)]
    english = [f"The house stood alone in {1900 + 7 * n}." for n in range(30)]
    left, right = (german[1:], english[:-1]) if by > 0 else (german[:-1], english[1:])
    for rows, told in ((zip(german, english), False), (zip(left, right), True), (zip(left[:3], right[:3]), False)):
        found = " ".join(faults_of_sides(*zip(*rows), "de", "en"))
        assert ("that both sides have are in different rows" in found) == told


def test_templates_quotations_and_tags_of_some_lines_are_text():
    assert fault_of_marks(["Bai, noski", "Ez, inoiz"]) is None
    names = ["Ġużeppi", "„Ja“, sagte er.", "Titel: eins", "- nein", "a/b", "x_y", "<b>fett</b>", "בית", "12 Hunde"]
    template = [f"The developer argued with the {chr(97 + n)}" for n in range(25)]
    assert fault_of_marks([*names, *template]) is fault_of_marks(template) is fault_of_marks(['"Ja."']) is None


def test_rows_in_memory_are_read_by_the_rules_of_files(tmp_path):
    table = Dataset.from_dict({"de": DE, "en": EN})
    for data in (table, table.to_pandas(), table.to_list(), {"de": table}, [table, table.to_list()][:1]):
        pairs = load_parallel(data)
        assert pairs[0] == {"source": DE[0], "target": EN[0], "source_lang": "de", "target_lang": "en"}
    assert load_parallel(pyarrow.table({"de": DE, "en": EN}))["source"][:] == DE
    for names in (("source", "target"), ("de", "en")):
        frame = pandas.DataFrame({names[0]: [DE[0], float("nan")], names[1]: EN})
        assert load_parallel({"de": frame}, on_empty="drop")["source"][:] == DE[:1]
        with pytest.raises(InputError, match="row 1: empty source side"):
            load_parallel({"de": frame})
    assert load_parallel({"de": DE, "en": EN}, source_lang="de")["target"][:] == EN  # columns, not languages
    facts = pyarrow.array([[("n", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int32()))
    pyarrow.parquet.write_table(objects().data.table.append_column("facts", facts), tmp_path / "a.parquet")
    for source in (objects(), objects().to_list(), str(tmp_path / "a.parquet")):
        pairs = load_parallel(source, source_lang="de")
        assert pairs["source"][:] == DE and pairs["target"][:] == EN
    several = [
        {"translation": {"language": ["en", "de", "de"], "translation": [en, de, de.upper()]}} for de, en in ROWS
    ]
    assert load_parallel(Dataset.from_list(several), source_lang="de")["source"][1] == DE[0].upper()
    with pytest.raises(InputError, match="holds 'train'"):
        load_parallel({"train": pandas.DataFrame({"de": DE, "en": EN})}, source_lang="de")
    with pytest.raises(InputError, match="give pairs of texts as"):
        load_parallel(ROWS, source_lang="de")
    for source in ({"de": (DE, EN)}, {"de": [(DE, EN)]}):
        assert load_parallel(source)["target"][:] == EN
    for sides in ((DE, EN), (tuple(DE), tuple(EN))):
        assert load_parallel(sides, source_lang="de")["source"][:] == DE
    with pytest.raises(pyarrow.ArrowInvalid, match="expected length 2 but got length 1"):
        load_parallel((DE, EN[:1]), source_lang="de")
    parts = Dataset.from_dict({"split": ["test", "train"], "de": DE, "en": EN})
    assert load_parallel(parts, source_lang="de", split="test")["source"][:] == DE[:1]
    both = load_parallel(["builtin:de", table.to_list()], max_pairs=1)
    assert [entry["pairs"] for entry in sources(both.select([0]))] == [1, 1]
    for said in (
        {"lp": ["en-de"] * 2},
        {"sl": ["en"] * 2, "tl": ["de"] * 2},
        {"source_lang": ["en"] * 2, "target_lang": ["de"] * 2},
    ):
        pairs = load_parallel(Dataset.from_dict({"source": EN, "target": DE, **said}))
        assert pairs[0] == {"source": DE[0], "target": EN[0], "source_lang": "de", "target_lang": "en"}
    with pytest.raises(InputError, match="no source_lang"):
        load_parallel(Dataset.from_dict({"source": DE, "target": EN}))
