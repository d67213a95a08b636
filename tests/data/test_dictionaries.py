"""Dictionaries in every published form, the order of their words, and what is none."""

import pytest

from hf_xalign.data.readers.dictionaries import load_dictionary
from hf_xalign.errors import InputError

ENTRIES = [("dog", "pes"), ("dog", "psík"), ("cat", "mačka")]
OF_ROWS = "".join(f"en\tsk\t{en}\t{sk}\n" for en, sk in ENTRIES)
TURNED = "pes\tdog\npsík\tdog\nmačka\tcat\n"
# Files in which the columns, a list or the rows say which word is which; all hold the same entries.
NAMED = {
    "a.jsonl": '{"en": "dog", "sk": ["pes", "psík"]}\n{"en": ["cat"], "sk": "mačka"}\n',
    "c.jsonl": '["dog", "pes"]\n["dog", "psík"]\n["cat", "mačka"]\n',
    "d.json": '[["dog", ["pes", "psík"]], ["cat", "mačka"]]',
    "words.json": '{"dog": ["pes", "psík"], "cat": "mačka"}',
    "columns.json": '{"en": ["dog", "dog", "cat"], "sk": ["pes", "psík", "mačka"]}',
    "rows.json": '[{"id": 1, "sk": "pes; psík", "en": "dog", "score": [0.5]}, {"sk": "mačka", "en": "cat"}]',
    "gatitos.jsonl": '{"sl": "en", "tl": "sk", "src": "dog", "trgs": ["pes", "psík"]}\n'
    '{"sl": "en", "tl": "sk", "src": "cat", "trgs": ["mačka"]}\n',
    "e.tsv": f"source_lang\ttarget_lang\tsource\ttarget\n{OF_ROWS}",
    "f.csv": "słowacki,angielski\npes,dog\npsík,dog\nmačka,cat\n",
    "excel.csv": '\ufeffEnglish;Slovak\r\ndog;pes\r\n"dog";psík\r\ncat;mačka\r\n',
    "i.tsv": "dog\tpes; psík\ncat\tmačka\n",
    "j.csv": "id,sk,en\n1,pes|psík,dog\n2,mačka,cat\n",
    "k.tsv": "/c/en/dog\t/c/sk/pes/n\n/c/en/dog\t/c/sk/psík\n/c/en/cat\t/c/sk/mačka\n",
    "plain.csv": 'dog,pes\ndog,"psík"\ncat,mačka\n',
}
# Files in which names of columns say the order, but no language.
UNNAMED = {
    "b.json": '[{"word": "dog", "translations": ["pes", "psík"]}, {"word": "cat", "translations": ["mačka"]}]',
    "g.tsv": f"Lemma\tEnglish\n{TURNED}",
    "h.csv": "concept,sk\ndog,pes\ndog,psík\ncat,mačka\n",
    "sides.csv": f"source,target\n{TURNED}".replace("\t", ","),
    "turned.csv": "target,source\ndog,pes\ndog,psík\ncat,mačka\n",
    "short.tsv": f"src\ttgt\n{TURNED}",
    "sides.jsonl": '{"source": "pes; psík", "target": "dog"}\n{"source": "mačka", "target": "cat"}\n',
    "en-sk.csv": "source,target\ndog,pes\ndog,psík\ncat,mačka\n",
    "word.tsv": "# Version 1\n\nword\ttranslation\ndog\tpes\ndog\tpsík\ncat\tmačka\n",
}


def write(path, text):
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("name", [*NAMED, *UNNAMED])
def test_every_form_has_the_same_entries(name, tmp_path, caplog):
    path = write(tmp_path / name, {**NAMED, **UNNAMED}[name])
    assert load_dictionary(path, "sk") == ENTRIES
    assert (" is read as en. " in caplog.text) == (name in UNNAMED)


def test_words_with_blanks_marks_and_repeated_translations(tmp_path):
    text = "the\tder\nthe\tdie\n\nhouse Haus\r\ncomputer\tmáy tính\noil\tO\u0308l\n"
    entries = [("the", "der"), ("the", "die"), ("house", "Haus"), ("computer", "máy tính"), ("oil", "Öl")]
    for mark in ("", "\ufeff"):
        assert load_dictionary(write(tmp_path / "en-xx.txt", mark + text)) == entries
    assert load_dictionary(write(tmp_path / "a.csv", 'pes,"ice, water"\n')) == [("pes", "ice, water")]
    # Words that look like names of columns.
    for rows in (
        [("w0", "v0"), ("w1", "v1")],
        [("MP3", "MP3-Datei"), ("cat", "Katze")],
        [("hot_dog", "ein Hund"), ("dog", "Hund")],
    ):
        path = write(tmp_path / "en-de.tsv", "".join(f"{first}\t{second}\n" for first, second in rows))
        assert load_dictionary(path, "de") == rows


def test_names_of_files_and_splits_are_told(tmp_path, caplog):
    caplog.set_level("INFO", "hf_xalign")
    load_dictionary(write(tmp_path / "en-pl.0-5000.txt", "kot cat\n"), "pol")
    [said] = caplog.messages
    assert said.endswith("the first entry: 'kot' (en) = 'cat' (pol)")
    load_dictionary(write(tmp_path / "pl-en.0-5000.txt", "kot cat\n"), "pol")
    assert "pl-en.0-5000.txt: its first words are read as en" in caplog.text
    path = write(tmp_path / "a.csv", "en,lt,split\ndog,šuo,train\ncat,katė,test\n")
    assert len(load_dictionary(path, "lt")) == 2 and "the entries of all splits are read" in caplog.text


FUNCTION_WORDS = {
    "en": "the and are with this",
    "de": "der und das ist nicht",
    "cs": "ten je se na to",
    "ru": "и не что это для",
}


@pytest.mark.parametrize(("lang", "pivot"), [("de", "en"), ("cs", "en"), ("de", "cs"), ("ru", "cs")])
def test_a_dictionary_in_the_other_order_is_told_by_its_words(lang, pivot, tmp_path, caplog):
    entries = list(zip(FUNCTION_WORDS[pivot].split(), FUNCTION_WORDS[lang].split(), strict=True))
    for step, count in ((1, 0), (-1, 1)):
        text = "".join(" ".join(words[::step]) + "\n" for words in entries)
        assert load_dictionary(write(tmp_path / "a.txt", text), lang, pivot) == entries
        assert caplog.text.count(f"its words show that {pivot} is second") == count


TWO_FIELDS = r"row [01]: '.*' does not have two fields\. Write the pivot's word"
NO_LANGUAGE = "does not say which word is en"
REFUSED = {
    "scores.txt": ("house nhà 0.5\n", TWO_FIELDS),
    "panlex.tsv": ("eng-000\thouse\tvie-000\tnhà\t9\n", TWO_FIELDS),
    "codes.tsv": ("house\teng-000\tnhà\tvie-000\nice\teng-000\tđá\tvie-000\n", TWO_FIELDS),
    "kaikki.jsonl": ('{"word": "nhà", "lang_code": "sk", "senses": [{"glosses": ["house"]}]}', TWO_FIELDS),
    "wiktextract.jsonl": (
        '{"word": "pes", "translations": [{"code": "vi", "word": "nhà"}]}',
        TWO_FIELDS,
    ),
    "alone.txt": ("a\tb\nalone\n", "alone.txt, row 2"),
    "empty.txt": ("a\tb\na\t \n", "empty.txt, row 2"),
    "adverbs.tsv": ("Englanniksi\tSlovakiksi\npes\tdog\n", f"'Englanniksi Slovakiksi' {NO_LANGUAGE}"),
    "prepositions.tsv": ("en eslovaco\ten inglés\npes\tdog\n", f"'en eslovaco en inglés' {NO_LANGUAGE}"),
    "senses.tsv": ("bank\t1. banka 2. breh\ndog\tpes\n", "its entries are numbered inside one text"),
    "names.jsonl": ('{"a": "house", "b": "nhà"}', f"'a b' {NO_LANGUAGE}"),
    "title.tsv": ("name\ttitle\npes\tdog\n", f"row 1: 'name title' {NO_LANGUAGE}"),
    "wn-slk.tab": ("# Slovak\tslk\n02084071-n\tslk:lemma\tpes\n", "is of a wordnet in one language, as '02084071-n'"),
    "northeuralex.tsv": (
        "Language_ID\tConcept_ID\tWord_Form\tIPA\nslk\tHund::N\tpes\tx\neng\tHund::N\tdog\tx\n",
        "is a list of words with a row for each language, as 'Language_ID Concept_ID'",
    ),
    "printed.csv": ("en,sk\ndog,\"['pes', 'psík']\"\n", "its entries are lists as Python prints them"),
    "czech.jsonl": ('{"sl": "en", "tl": "cs", "src": "dog", "trg": "pes"}\n', "but 'sk' was asked for"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_dictionary_is_refused(name, tmp_path):
    text, said = REFUSED[name]
    with pytest.raises(InputError, match=said):
        load_dictionary(write(tmp_path / name, text), "sk")


def test_a_pivoted_list_of_words_is_read_as_the_message_says(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"Concept_ID": "Hund::N", "eng": ["dog"], "slk": ["pes", "psík"]}\n')
    assert load_dictionary(path, "sk") == ENTRIES[:2]
