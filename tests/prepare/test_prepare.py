"""Cleaning of sentence pairs: rules, duplicates, shards, and runs that are killed."""

import itertools
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from support.numeric import assert_rounding

from hf_xalign.cli.main import main
from hf_xalign.data.load import load_parallel
from hf_xalign.errors import InputError
from hf_xalign.prepare import chunks, pipeline, rules
from hf_xalign.prepare.pipeline import prepare
from hf_xalign.prepare.rules import STEPS, Limits, Pair, clean, make_rules

FAST = ["language"]  # lingua loads for seconds
LONG = "the quick brown fox jumps over the lazy dog and then it runs away from all of us"
# (step, source, target) of pairs that only this step removes; a step of None: a pair that stays.
PAIRS = [
    ("empty", "…", "Open file"),
    ("identical", "Open File!", "open file"),
    ("length", "Datei " * 200, "File " * 200),
    ("ratio", "Ja", LONG),
    ("script", "Файл открыть сейчас", "Open the file now"),
    ("numbers", "Seite 17 von 38", "Page 4 of 5"),
    ("urls", "Siehe www.example.org.", "See www.example.com."),
    ("test", "Etwas ganz anderes als das, was dort drüben geschrieben steht", f"Well, {LONG.upper()}!"),
    ("test", "Öffnen", "Held out"),
    (None, "Siehe https://example.org/a.", "See https://example.org/a"),
    (None, "1.000 Dateien, 50 %", "1,000 files, 50 percent"),
    (None, "Ja", "Yes, of course"),
]
NUMBERS = [
    (None, "Drei Dateien in Kapitel IV", "3 files in chapter 4"),
    (None, "第三章有二十五页", "Chapter 3 has 25 pages"),
    (None, "①打开", "1. Open"),
    ("numbers", "Kapitel IV", "Chapter 2019"),
]


def write(path, pairs, lang="de"):
    rows = ({"source": source, "target": target, "source_lang": lang, "target_lang": "en"} for source, target in pairs)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def shards(folder):
    return [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]


def sentences(count, seed=0, words=8):
    draw = random.Random(seed)
    vocabulary = ["".join(draw.choices("abdefgiklmnoprstu", k=draw.randint(3, 9))) for _ in range(2000)]
    return [tuple(" ".join(draw.choices(vocabulary, k=words)) for _ in range(2)) for _ in range(count)]


def lang_of(source):
    return "zh" if "\u4e00" <= source[-1] <= "\u9fff" else "de"


def test_each_rule_removes_its_pairs_and_no_others():
    found = make_rules(Limits(skip=FAST), rules.test_hashes([LONG, "held out"]))
    for step, source, target in [*PAIRS, *NUMBERS]:
        broken = [
            name for name, rule in found.items() if rule(Pair(clean(source), clean(target), lang_of(source), "en"))
        ]
        assert broken[:1] == ([step] if step else []), (source, target, broken)
    assert "test" not in make_rules(Limits(skip=FAST)) and list(found) == [*list(STEPS)[:7], "test"]


def test_invisible_marks_hide_neither_duplicates_nor_test_sentences(tmp_path):
    pairs = [("Der Donau\u00addampfer legt ab", "The steam\u00ader leaves")]
    pairs += [("Die Tante backt", "My aunt bakes"), ("Die Tan&shy;te backt", "My aunt\u2060 bakes")]
    test = write(tmp_path / "test.jsonl", [("Der Donaudampfer legt ab", "The steamer leaves")])
    prepare([write(tmp_path / "a.jsonl", pairs)], tmp_path / "out", Limits(skip=FAST), test_sources=[test])
    assert [table["source"].to_pylist() for table in shards(tmp_path / "out")] == [["Die Tante backt"]]


def test_texts_are_compared_without_case_in_any_language():
    assert rules.bare("QIZIL, İŞIQ") == rules.bare("qızıl işıq")
    assert rules.bare("STRASSE – INSEL") == rules.bare("Straße Insel")


@pytest.mark.parametrize(
    ("language", "text", "stays"),
    [
        ("bn", "ফাইল খুলুন", True),
        ("bn", "open the file", False),
        ("zh-Hant", "打開檔案", True),
        ("ja", "ファイルを開く", True),
        ("bos_Cyrl", "otvori datoteku", False),
        ("bs", "otvori datoteku", True),  # both scripts are in use
        ("az", "فایلی آچ", True),
        ("az-IR", "faylı aç", False),
        ("sd-IN", "फ़ाइल खोलो", True),
        ("sd-IN", "فائل کوليو", False),
        ("crh", "dosyanı aç", True),
        ("hi", "file kholo", False),  # romanised Hindi must be called so
        ("hin_Latn", "file kholo", True),
        ("hi", "पुरानी %(file_name_of_backup)s हटाएँ", True),  # code has no script
        ("ur-Aran", "فائل کھولیں", True),
        ("zh", "https://example.org/help 打开", True),  # an address is in no language
        ("xx", "anything", True),  # of a language that CLDR does not know, nothing is known
    ],
)
def test_scripts(language, text, stays):
    assert make_rules(Limits())["script"](Pair(text, "open the file", language, "en")) is not stays


@pytest.mark.parametrize(
    ("code", "known", "off"),
    [
        ("kaz_Latn", "", "the identifier does not know it in Latn"),
        ("kk", "Cyrl", "the identifier does not know it in Arab/Latn, but checks text in Cyrl"),
        ("my", "", "the identifier does not know it in Mymr"),
        ("zsm_Latn", "Latn", None),
        ("no", "Latn", None),
        ("zz", "", "the identifier does not know it"),
    ],
)
def test_languages_that_the_identifier_cannot_judge(code, known, off):
    pytest.importorskip("lingua")
    assert rules.identified_scripts(code) == {*known.split()}
    assert rules.unjudged(code) == ({"language": off} if off else {}) | (
        {"script": "the script of this language is not known"} if code == "zz" else {}
    )
    assert not rules.unjudged(code, ["language", "script"])


SAME, OTHER = "https://example.org/a/b", "https://example.org/a/c"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"参照{SAME}。", SAME),
        (f"詳細は{SAME}をご覧ください", SAME),
        (f"ดูที่{SAME}ได้เลย", SAME),
        (f"（{SAME}）", SAME),
        (f"'{SAME}'dan", SAME),
        (f"{SAME}এ দেখুন", SAME),
        ("a www.example.hu-ra", "www.example.hu"),
        ("写信给me@example.org吧", "me@example.org"),
        ("https://de.wikipedia.org/wiki/K%C3%B6ln", "https://de.wikipedia.org/wiki/Köln"),
        ("https://ja.wikipedia.org/wiki/%E6%9D%B1%E4%BA%AC", "https://ja.wikipedia.org/wiki/東京"),
        ("(https://en.wikipedia.org/wiki/C_(language))", "https://en.wikipedia.org/wiki/C_(language)"),
        ("chrome://settings/", "chrome://settings"),
        (OTHER, OTHER),
        ("www. a@b http://", ""),
    ],
)
def test_an_address_ends_where_its_characters_end(text, address):
    broken = make_rules(Limits())["urls"]
    assert not broken(Pair(text, address, "xx", "en")) and broken(Pair(text, f"{address} {SAME}x", "xx", "en"))


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("Bitte &quot;hier&quot; f&uuml;r 3&nbsp;&euro;", 'Bitte "hier" für 3 €'),
        (" o\u0308ffnen\u00a0\u2028\tdie\x00Datei\r", "öffnen die Datei"),
        ("Moses &#124; &#91;1&#93; &apos;s", "Moses | [1] 's"),
        ("&amp;amp;#x2019; &amp;lt;b&gt;", "’ <b>"),
        ("L&#39eau &#150; &#0;", "L'eau – \ufffd"),
        ("AT&T, R&D; Q&A; M&M;s &c; ?a=1&copy=2&lt=3 &notit; &#; &#123456789", None),
    ],
)
def test_clean_text_is_nfc_with_single_blanks_and_decoded_entities(text, decoded):
    assert clean(rules.decode_entities(text)) == (decoded or text)
    assert rules.decode_entities(decoded or text) == (decoded or text)


def test_the_record_says_which_steps_are_off(tmp_path, caplog):
    pytest.importorskip("lingua")
    pairs = [("3 &#46; fayl&#305; a&ccedil;", "Open file 3"), ("Qovluq", "Folder")]
    source = write(tmp_path / "a.jsonl", pairs, lang="az-Cyrl")
    record = prepare([source], tmp_path / "out", Limits(skip=["numbers", "script"]), test_sources=[])
    assert record["off"] == {"language": {"az-Cyrl": "the identifier does not know it in Cyrl"}}
    assert "'language' is off for az-Cyrl (2 pairs)" in caplog.text
    [table] = shards(tmp_path / "out")
    assert table["source"].to_pylist() == ["3 . faylı aç", "Qovluq"]


def test_one_language_under_two_codes_is_one_language(tmp_path):
    files = [
        f"{code}={write(tmp_path / f'{code}.jsonl', [('&#65;pfel', 'Apple')], code)}" for code in ("deu", "de_DE")
    ]
    test = write(tmp_path / "test.jsonl", [("&#66;irne", "Pear")])
    more = write(tmp_path / "more.jsonl", [("Birne", "A pear")])
    record = prepare([*files, more], tmp_path / "out", Limits(skip=FAST), test_sources=[test])
    assert (record["removed"]["de-en"]["duplicate"], record["removed"]["de-en"]["test"]) == (1, 1)


def test_a_wrong_script_is_said(tmp_path, caplog):
    source = write(tmp_path / "a.jsonl", [("Otvori", "Open"), ("Отвори", "Open it"), ("Sačuvaj", "Save")], "mk")
    assert prepare([source], tmp_path / "out", Limits(skip=FAST))["pairs"]["kept"] == 1
    assert "step 'script' removed 2 of 3 pairs of mk-en. Is the language right?" in caplog.text


ENGLISH = "Save the document before you close the window"


def test_the_identifier_takes_long_texts_only():
    pytest.importorskip("lingua")
    rule = make_rules(Limits())["language"]
    spanish, german = "Guarda el documento antes de cerrar la ventana", "Speichern Sie das Dokument vor dem Schließen"
    assert rule(Pair(spanish, ENGLISH, "de", "en")) and not rule(Pair(german, ENGLISH, "de", "en"))
    assert not rule(Pair("Guardar", "Save", "de", "en")) and not rule(Pair(spanish, ENGLISH, "qx", "en"))
    address = "https://example.org/the-document-before-you-close-the-window"
    assert not rule(Pair(f"Siehe {address}", ENGLISH, "deu", "eng_Latn")) and rule(
        Pair(spanish, ENGLISH, "deu", "eng")
    )


# Text in a language or one that it is confused with, and whether it stays; each loads models for a second.
CONFUSED = [
    ("uk", "Натисніть кнопку, щоб зберегти зміни у файлі.", True),
    ("nb", "Klicka på knappen för att spara ändringarna", False),
    ("mr", "फाइल उघडताना त्रुटी आली आहे", True),
    *(
        pytest.param(*row, marks=pytest.mark.slow)
        for row in (
            ("uk", "Нажмите кнопку, чтобы сохранить изменения в файле.", False),
            ("nb", "Trykk på knappen for å lagre endringene i dokumentet", True),
            ("nb", "Malmö er en by i Sverige som ligger ved sundet", True),
            ("mr", "फ़ाइल को खोलने में त्रुटि हुई है और इसे सहेजा नहीं जा सकता", False),
            ("hi", "ब्राउज़र में JavaScript, Bluetooth और WebGL चालू करें", True),
            ("fa", "پروندهٔ JavaScript را در Firefox و Chromium باز کنید", True),
            ("mk", "Отворете ја датотеката со LibreOffice Writer", True),
            ("bg", "Нажмите кнопку, чтобы сохранить изменения", False),
            ("mk", "Бутонът запазва промените във файла", False),
            ("sr", "Sačuvajte dokument pre zatvaranja prozora", True),
            ("sr", "Сохраните документ перед закрытием окна", False),
        )
    ),
]


@pytest.mark.parametrize(("language", "text", "stays"), CONFUSED)
def test_the_identifier_tells_languages_from_those_they_are_confused_with(language, text, stays):
    pytest.importorskip("lingua")
    assert make_rules(Limits())["language"](Pair(text, ENGLISH, language, "en")) is not stays


def test_duplicates_against_all_pairs():
    base = [Pair(*pair, "de", "en") for pair in sentences(200, words=14)]
    draw = random.Random(1)
    pairs = [*base]
    for pair in draw.sample(base, 40):
        words = pair.source.split()
        words[draw.randrange(14)] = "anders"
        pairs += [pair, pair._replace(source=" ".join(words).upper() + "!")]
    draw.shuffle(pairs)
    parts = [chunks.hashes(pairs[start : start + 64], near=True) for start in range(0, len(pairs), 64)]
    found = chunks.find_duplicates(parts, pairs.__getitem__, near=0.7)

    def grams(pair):
        texts = ("".join(c for c in side.casefold() if c.isalpha() or c == " ") for side in pair[:2])
        return {(side, text[i : i + 5]) for side, text in enumerate(texts) for i in range(len(text) - 4)}

    sets, wanted = [grams(pair) for pair in pairs], np.zeros(len(pairs), int)
    for later, earlier in itertools.combinations(range(len(pairs))[::-1], 2):
        if pairs[later] == pairs[earlier]:
            wanted[later] = chunks.EXACT
        elif not wanted[later] and len(sets[later] & sets[earlier]) >= 0.7 * len(sets[later] | sets[earlier]):
            wanted[later] = chunks.NEAR
    assert found.tolist() == wanted.tolist() and set(wanted) == {0, 1, 2}
    exact = [part[:, :1] for part in parts]
    assert (chunks.find_duplicates(exact, pairs.__getitem__) == (wanted == chunks.EXACT)).all()


def test_command_writes_shards_that_load_parallel_reads(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a1.jsonl", [pair[1:] for pair in PAIRS] + sentences(50))
    write(tmp_path / "a2.jsonl", sentences(50)[:10] + sentences(30, seed=1))
    write(tmp_path / "b.jsonl", sentences(5, seed=2), lang="fr")
    test = write(tmp_path / "test.jsonl", [("Etwas", LONG), ("Anderes", "Held out")])
    words = ["prepare", "a?.jsonl", "b.jsonl", "--output", "out", "--skip", *FAST, "--shard_pairs", "40"]
    monkeypatch.setattr(chunks, "CHUNK", 16)
    monkeypatch.setattr(pipeline, "CHUNK", 16)
    assert main([*words, "--test_data", f"de={test}", "--workers", "1"]) == 0
    assert "88 of 107 pairs are left, in 3 shards: out" in capsys.readouterr().out
    record = json.loads((tmp_path / "out" / "prepare.json").read_text("utf-8"))
    wanted = {step: sum(one[0] == step for one in PAIRS) for step in STEPS} | {"duplicate": 10}
    assert record["removed"] == {"de-en": wanted, "fr-en": dict.fromkeys(STEPS, 0)}
    assert [shard["pairs"] for shard in record["shards"]] == [40, 40, 8] and record["limits"]["skip"] == [
        *FAST,
        "margin",
    ]
    tables = shards(tmp_path / "out")
    assert tables[0].column_names[4:] == ["origin", "length_ratio", "margin"]
    assert tables[0]["source"].to_pylist()[:3] == [pair[1] for pair in PAIRS[-3:]]
    assert set(tables[2]["origin"].to_pylist()) == {"a2.jsonl", "b.jsonl"}
    assert load_parallel(tmp_path / "out")["source"][:] == [
        row for table in tables for row in table["source"].to_pylist()
    ]
    with pytest.raises(InputError, match="a folder without"):
        load_parallel(tmp_path)
    shutil.copytree(tmp_path / "out", tmp_path / "unfinished")
    (tmp_path / "unfinished" / ".work").mkdir()
    with pytest.raises(InputError, match=r"has not finished\. Run it again"):
        load_parallel(tmp_path / "unfinished")
    one = next(pair for step, *pair in PAIRS if step == "script")
    assert one[0] in [pair[0] for pair in record["examples"]["script"]]
    assert all(len(pairs) <= 5 for pairs in record["examples"].values())
    assert main([*words, "--workers", "1"]) == 2 and "holds a finished result" in capsys.readouterr().err


def test_margin_is_the_ratio_to_the_neighbours(tmp_path, monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(2, 20, 8)).astype(np.float32)
    vectors[1] += vectors[0]
    pairs = sentences(20)
    place = {text: vector for side in (0, 1) for text, vector in zip(list(zip(*pairs))[side], vectors[side])}
    monkeypatch.setattr(
        "hf_xalign.evaluation.vectors.encode_sentences",
        lambda model, tokenizer, texts, **options: torch.tensor(np.stack([place[text] for text in texts]))[:, None],
    )
    source = write(tmp_path / "a.jsonl", pairs)
    prepare([source], tmp_path / "out", Limits(skip=FAST, min_margin=1.0), encoder=(None, None))
    cosine = np.array([[x @ y / np.linalg.norm(x) / np.linalg.norm(y) for y in vectors[1]] for x in vectors[0]])
    wanted = {}
    for row, pair in enumerate(pairs):
        around = sorted(cosine[row])[-4:] + sorted(cosine[:, row])[-4:]
        wanted[pair] = 8 * cosine[row, row] / sum(around)
    [table] = shards(tmp_path / "out")
    found = dict(zip(zip(table["source"].to_pylist(), table["target"].to_pylist()), table["margin"].to_pylist()))
    wanted = {pair: margin for pair, margin in wanted.items() if margin >= 1}
    assert found.keys() == wanted.keys() and 0 < len(found) < 20
    # Two norms and a product over 8 dimensions, a mean over 8 neighbours.
    assert_rounding(list(found.values()), [wanted[pair] for pair in found], 4 * 8 + 10, dtype=torch.float32)


def test_two_workers_change_no_byte(tmp_path, monkeypatch):
    """tests/faults kills the command at its operations on files."""
    monkeypatch.setattr(chunks, "CHUNK", 20)
    monkeypatch.setattr(pipeline, "CHUNK", 20)
    source = write(tmp_path / "a.jsonl", sentences(300) + sentences(30))
    for workers in (1, 2):
        prepare([source], tmp_path / str(workers), Limits(skip=FAST), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


EXACT = Limits(skip=[*FAST, "near_duplicate"])


def cut_short(*given, **options):
    """Prepare text up to the shards."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(pipeline, "write_shards", lambda *args: 1 / 0)
        prepare(*given, **options)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_other_text_of_the_same_size_and_time_is_judged_again(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 25)
    monkeypatch.setattr(pipeline, "CHUNK", 25)
    path = Path(write(tmp_path / "a.jsonl", sentences(38)))
    cut_short([str(path)], tmp_path / "out", EXACT)
    *_, word = path.read_text("utf-8").splitlines()[30].split('"target": "')[1].split('"')[0].split()
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(word.encode(), b"z" * len(word)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    judged, judge = [], chunks._judge
    monkeypatch.setattr(chunks, "_judge", lambda chunk, *rest: judged.append(chunk.number) or judge(chunk, *rest))
    prepare([str(path)], tmp_path / "out", EXACT)
    assert path.stat().st_size == stat.st_size and judged == [1]
    prepare([str(path)], tmp_path / "fresh", EXACT)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_test_text_of_the_same_number_is_read_again(tmp_path):
    source, test = write(tmp_path / "a.jsonl", sentences(9)), tmp_path / "test.jsonl"
    for held_out in sentences(9)[:2]:
        write(test, [held_out])
        cut_short([source], tmp_path / "out", Limits(skip=FAST), test_sources=[str(test)])
    prepare([source], tmp_path / "out", Limits(skip=FAST), test_sources=[str(test)])
    [table] = shards(tmp_path / "out")
    assert table["source"].to_pylist() == [pair[0] for pair in sentences(9)[:1] + sentences(9)[2:]]


def test_a_result_without_pairs_leaves_no_folder(tmp_path):
    source = write(tmp_path / "a.jsonl", sentences(9))
    with pytest.raises(InputError, match="no pair is left: 'length' removed 9 of 9"):
        prepare([source], tmp_path / "new" / "out", Limits(skip=[*FAST, "numbers"], max_words=1))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_step_without_its_library_is_skipped_with_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(pipeline, "_PACKAGES", dict.fromkeys(pipeline._PACKAGES, "no-such-package"))
    record = prepare([write(tmp_path / "a.jsonl", sentences(9))], tmp_path / "out")
    assert record["limits"]["skip"] == ["language", "near_duplicate", "margin"]
    assert "it needs no-such-package" in caplog.text
