"""Labelled text and questions from every format, labels, and sets with two languages."""

import gzip
import logging
from dataclasses import replace
from functools import partial

import pandas
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from support.labelled import GERMAN, check, pairs, squad, squad_rows, write_json, write_lines
from support.refusals import assert_refused

from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.span_labels import bio_names, span_parts
from hf_xalign.errors import InputError
from hf_xalign.tasks import Examples, LabelSet, by_language, labelled_files, read_examples
from hf_xalign.tasks.crossing import code_switch, cross_lingual, mix_languages, read_crossed
from hf_xalign.tasks.squad import read_questions

CONLLU = (
    "# text = Vámonos al mar\n"
    "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tVamos\tir\tVERB\tv\t_\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\tp\t_\t1\tobj\t_\t_\n"
    "2.1\tvamos\tir\tVERB\tv\t_\t_\t_\t_\t_\n"
    "\n"
    "1\tmar\tmar\tNOUN\tn\t_\t0\troot\t_\t_\n"
)


def read(path, kind="token", language="de", **options):
    return read_examples(f"{language}={path}", kind, **options)


def columns(found, *names):
    return [found.rows[name][:] for name in names]


def test_jsonl_of_words_with_named_columns_and_nfc(tmp_path):
    rows = [{"tokens": ["cafe\u0301", "ist"], "tags": ["NOUN", "VERB"]}, {"tokens": ["ja"], "tags": ["X"]}]
    path = write_lines(tmp_path / "de.jsonl", rows)
    found, fewer = (read(path, label_column="tags", max_examples=count) for count in (None, 1))
    assert columns(found, "tokens", "labels") == [[["café", "ist"], ["ja"]], [["NOUN", "VERB"], ["X"]]]
    assert found.label_names == {"NOUN", "VERB", "X"} and found.place(1) == f"{path}, line 2"
    assert found.language == "de" and len(fewer) == 1 and fewer.fingerprint != found.fingerprint


# Content of a .conll file, its sentences, and the comments in it.
LINES = {
    "an id before each sentence": (
        "# id 7f\tdomain=bn\nঢাকা _ _ B-LOC\n\n# id 8 domain=bn\nনদী _ _ O\n", [["ঢাকা"], ["নদী"]], 2
    ),
    "keys and values": ("# newdoc id = d1\n# text = O\nOui B-X\n\n#sent_id=2\nNon O\n", [["Oui"], ["Non"]], 3),
    "as many columns": ("# newdoc\nx O\n# note\ny B-Z\n", [["x", "y"]], 2),
    "a block of comments": ("# licence CC0\n# x\n\ny O\n# O\n", [["y", "#"]], 2),
    "a real word": ("# O\nx B-Z\n\n# B-Q\n#tag O\ny O\n# I-Z\n", [["#", "x"], ["#", "#tag", "y", "#"]], 0),
    "a label of its own": ("# newdoc\nUN NNP S-ORG\n# # O\n", [["UN", "#"]], 1),
    "a word of three columns": ("# see that\n# 1 O\nx _ O\n# _ O\ny _ B-X\n", [["#", "x", "#", "y"]], 1),
    "a tag of its own": ("# Satz 1\nPlatz\tNOUN\n#\tSYM\n1\tNUM\n", [["Platz", "#", "1"]], 1),
    "tabs": ("Buenos Aires\tB-LOC\nes \tO\t\n", [["Buenos Aires", "es"]], 0),
    "other blanks": ("10\u00a0000 \u202f5\u3000x O\nу B-X O\n", [["10\u00a0000", "у"]], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_comments_and_blanks_of_conll(tmp_path, name, caplog):
    content, expected, comments = LINES[name]
    path = tmp_path / "a.conll"
    path.write_text(content, encoding="utf-8")
    with caplog.at_level(logging.INFO):
        assert read(path).rows["tokens"][:] == expected
    assert (f"skipped {comments} comments, such as line 1: #" in caplog.text) == bool(comments)


@pytest.mark.parametrize("name", ["es.conll", "es.tsv", "es", "es.conllu"])
def test_conllu_is_known_by_its_columns(tmp_path, name):
    """It is read without multiword and empty tokens."""
    path = tmp_path / name
    path.write_text(CONLLU, encoding="utf-8")
    assert columns(read(path), "tokens", "labels", "line") == [
        [["Vamos", "nos"], ["mar"]], [["VERB", "PRON"], ["NOUN"]], [3, 7]
    ]  # fmt: skip
    assert columns(read(path, text_columns=["3"], label_column="5"), "tokens") == [[["ir", "nosotros"], ["mar"]]]
    if name == "es.conllu":
        assert read(path, label_column="xpos").rows["labels"][0] == ["v", "p"]


def test_withheld_words_and_missing_labels(tmp_path, caplog):
    rows = [("पानी _ है", "NOUN X _"), ("_ __ ।", "NOUN VERB PUNCT"), ("_", "X")]
    lines = [{"tokens": words.split(), "labels": labels.split()} for words, labels in rows]
    with caplog.at_level(logging.INFO):
        found = read(write_lines(tmp_path / "hi.jsonl", lines))
    assert columns(found, "tokens", "line") == [[["पानी", "_", "है"]], [1]] and found.label_names == {"NOUN", "X"}
    for said in ("2 with withheld words (_)", "1 of 3 words have no label"):
        assert caplog.text.count(said) == 1, said
    texts = write_lines(tmp_path / "t.jsonl", [{"text": "a", "label": "_"}, {"text": "b", "label": "x"}])
    assert read(texts, "sequence").rows["label"][:] == ["x"]


# Labels of two sentences in a scheme, and what the log says of them. All mark the same spans.
BIO = "B-PER I-PER I-PER O B-ORG", "B-ORG B-ORG I-ORG O B-PER"
SCHEMES = {
    "BIO": (*BIO, ""),
    "IOB1": ("I-PER I-PER I-PER O I-ORG", "I-ORG B-ORG I-ORG O I-PER", "'I-PER' becomes 'B-PER'"),
    "IOE2": ("I-PER I-PER E-PER O E-ORG", "E-ORG I-ORG E-ORG O E-PER", "5 spans labelled in IOE"),
    "IOE1": ("I-PER I-PER I-PER O I-ORG", "E-ORG I-ORG I-ORG O I-PER", "5 spans labelled in IOE"),
    "BIOES": ("B-PER I-PER E-PER O S-ORG", "S-ORG B-ORG E-ORG O S-PER", "'E-PER' becomes 'I-PER'"),
    "BILOU": ("B-PER I-PER L-PER O U-ORG", "U-ORG B-ORG L-ORG O U-PER", "5 spans labelled in BILOU"),
    "BMEWO": ("B-PER M-PER E-PER O W-ORG", "W-ORG B-ORG E-ORG O W-PER", "5 spans labelled in BMEWO"),
    "BIOS": ("B-PER I-PER I-PER O S-ORG", "S-ORG B-ORG I-ORG O S-PER", "5 spans labelled in BIOES"),
    "underscores": ("B_PER I_PER E_PER O S_ORG", "S_ORG B_ORG E_ORG O S_PER", "'B_PER' becomes 'B-PER'"),
    "other marks": ("B:PER I:PER E:PER O S:ORG", "S:ORG B:ORG E:ORG O S:PER", "'B:PER' becomes 'B-PER'"),
    "at the end": ("PER-B PER-I PER-I O ORG-B", "ORG-B ORG-B ORG-I O PER-B", "'PER-B' becomes 'B-PER'"),
    "small letters": ("b-PER i-PER i-PER o b-ORG", "b-ORG b-ORG i-ORG o b-PER", "'b-PER' becomes 'B-PER'"),
    "dashes": ("B–PER I–PER I–PER O B–ORG", "B–ORG B–ORG I–ORG O B–PER", "'B–PER' becomes 'B-PER'"),
    "nothing between": ("BPER IPER IPER O BORG", "BORG BORG IORG O BPER", "'BPER' becomes 'B-PER'"),
    "_ for O": ("B-PER I-PER I-PER _ B-ORG", "B-ORG B-ORG I-ORG _ B-PER", "'_' becomes 'O'"),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_spans_of_every_scheme(tmp_path, name, caplog, monkeypatch):
    *sentences, said = SCHEMES[name]
    labels = [sentence.split() for sentence in sentences]
    expected = [sentence.split() for sentence in BIO]
    path = tmp_path / "a.conll"
    path.write_text("\n\n".join("\n".join(f"neno {label}" for label in own) for own in labels), encoding="utf-8")
    with caplog.at_level(logging.INFO):
        assert read(path).rows["labels"][:] == expected
    assert caplog.text.count(said) == 1 if said else not caplog.records
    names = sorted({label for own in labels for label in own})
    features = Features({"tokens": List(Value("string")), "labels": List(ClassLabel(names=names))})
    rows = {"tokens": [["neno"] * 5] * 2, "labels": [[names.index(label) for label in own] for own in labels]}
    hub = Dataset.from_dict(rows, features=features)
    monkeypatch.setattr(labelled_files, "load_hub", lambda *_: hub)
    assert read("owner/name").rows["labels"][:] == expected
    assert Examples("x", "sw", hub.add_column("line", [1, 2])).rows["labels"][:] == expected
    assert LabelSet.of(names) == LabelSet.of({label for own in expected for label in own})
    assert set(LabelSet.load(str(write_json(tmp_path / "labels.json", names))).names) == set(LabelSet.of(names).names)


def test_labelled_rows_given_in_python():
    def given(language="de", **columns):
        return partial(lambda: Examples("x", language, Dataset.from_dict(columns)))

    tagged, text = (
        {"tokens": [["ein", "Haus"], ["rot"]], "labels": [["D", "N"], ["A"]]},
        {"text_a": ["a"], "label": ["x"]},
    )
    table = {
        "2 words, 1 labels: one for each word of x, row 0": {**tagged, "labels": [["D"], ["A"]]},
        "x: the column labels holds .*int64>, not lists of labels": {**tagged, "labels": [[0, 1], [2]]},
        "x: the language is 'German!'": {**text, "language": "German!"},
    }
    assert_refused({message: (given(**columns), message) for message, columns in table.items()})
    assert given(**tagged)().place(1) == "x, line 1"
    # Columns that no task of words reads may hold anything.
    assert len(given(**tagged, label=[0, 1])()) == 2
    for rows in ([{"text_a": "a", "label": "X"}], pandas.DataFrame({"text_a": ["a"], "label": ["X"]})):
        assert Examples("x", "de", rows).rows[0] == {"text_a": "a", "label": "X"}
    with pytest.raises(InputError, match=r"x \(list\) is not a datasets.Dataset"):
        Examples("x", "de", ["a"])


def test_labels_that_may_be_no_spans():
    plain = [
        ["BE", "IN", "O"],
        ["BPER", "O"],
        ["S_noun", "M_x"],
        ["S", "O", "V"],
        ["NOUN", "B"],
        ["B-a", "NOUN"],
        ["O"],
        ["n-s---fn-", "u--------"],
    ]
    assert not any(span_parts(names) for names in plain)
    assert bio_names(["B", "M", "E", "S"]) == {"B": "B-SPAN", "M": "I-SPAN", "E": "I-SPAN", "S": "B-SPAN"}


def test_label_sets(tmp_path):
    assert LabelSet.of(["I-b", "O", "B-a"]).names == ("O", "B-a", "I-a", "B-b", "I-b")  # ordered and closed
    assert LabelSet.of(["VERB", "NOUN", "X"]).names == ("NOUN", "VERB", "X")
    assert not LabelSet.of(["B-a", "NOUN"]).mark_spans
    assert LabelSet.of({"O", "B-a"}).config()["label2id"] == {"O": 0, "B-a": 1, "I-a": 2}
    path = write_json(tmp_path / "labels.json", ["O", "I-b", "B-a"])
    assert LabelSet.load(str(path)).names == ("O", "I-b", "B-a", "B-b", "I-a")


# ---- Questions ----


def columns_of(examples):
    """Everything but what depends on the format."""
    return examples.rows.remove_columns("line").to_list()


def test_every_format_has_the_same_questions(tmp_path, monkeypatch):
    content = squad([GERMAN, "x " + GERMAN])
    rows = squad_rows(content)
    nested = read_questions(f"de={write_json(tmp_path / 'a.json', content)}")
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    lines = write_lines(tmp_path / "a.jsonl", rows)
    # Answers as a list of dicts, as newer `datasets` writes them.
    as_list = [row | {"answers": [{k: v[0] for k, v in row["answers"].items()}]} for row in rows]
    listed = write_lines(tmp_path / "b.jsonl", as_list)
    tables = [write_json(tmp_path / "rows.json", rows), write_lines(tmp_path / "lines.json", rows)]
    tables += [write_json(tmp_path / "articles.json", content["data"]), tmp_path / "rows.csv", tmp_path / "rows.tsv"]
    write_lines(tmp_path / "articles.jsonl", content["data"])
    for path, separator in zip(tables[3:], ",\t"):  # `datasets` writes a dict as Python prints it
        pandas.DataFrame(rows).to_csv(path, sep=separator, index=False)
    monkeypatch.setattr(labelled_files, "load_hub", lambda *_: Dataset.from_list(rows))
    assert nested.rows["id"][:] == ["c0q0", "c0q1", "c1q0", "c1q1"]
    assert nested.rows[3]["answers"] == {"text": ["Dresden"], "answer_start": [("x " + GERMAN).index("Dresden")]}
    assert nested.rows[3]["question_lang"] == nested.rows[3]["context_lang"] == nested.language == "de"
    files = [packed, lines, listed, *tables, tmp_path / "articles.jsonl"]
    for item in (*(f"de={path}" for path in files), "de=google/xquad:xquad.de"):
        assert columns_of(read_questions(item)) == columns_of(nested), item
    assert nested.place(2) == f"{tmp_path / 'a.json'}, row 1"
    fewer = read_questions(f"de={lines}", max_examples=3)
    assert fewer.place(2) == f"{lines}, line 3" and fewer.rows["id"][:] == ["c0q0", "c0q1", "c1q0"]


def test_answers_without_a_place_must_occur_once(tmp_path):
    context, answer = "Siinä on 15 kissaa ja 5 koiraa, ja 15 lasta.", {"text": ["5"], "answer_start": [22]}
    row = {"question_id": 7, "context": context, "question": "Montako koiraa?"}
    mrqa = {"qid": 7, "question": row["question"], "answers": ["5"]}
    mrqa["detected_answers"] = [{"text": "5", "char_spans": [[22, 22]], "token_spans": [[7, 7]]}]
    rows = [{**row, "answers": value} for value in (["5"], {"text": ["5"]}, [{"text": "5", "start": 22}], "['5']")]
    rows += [{**row, "answer": "5"}, {**row, "answer_text": "5"}, {"id": "c", "context": context, "qas": [mrqa]}]
    for number, line in enumerate(rows):
        path = write_lines(tmp_path / "a.jsonl", [{"header": {"dataset": "x"}}, line])
        found = read_questions(f"fi={path}").rows[0]
        assert (found["id"], found["answers"]) == ("7", answer), number
    for value, times in (("15", 2), ("lintua", 0)):
        path = write_lines(tmp_path / "a.jsonl", [{**row, "answers": [value]}])
        with pytest.raises(InputError, match=f"the answer '{value}' has no answer_start, and occurs {times} times"):
            read_questions(f"fi={path}")


def test_a_labelled_text_in_another_language_is_told(tmp_path, caplog):
    rows = [{"text": f"This is the day {n}, and they are with you from that time.", "label": "x"} for n in range(30)]
    read(write_lines(tmp_path / "a.jsonl", rows), "sequence", "zu")
    assert "a.jsonl: the text may not be in zu" in caplog.text


def test_question_is_normalised_and_context_is_not(tmp_path):
    content = squad(["  Cafe\u0301 Noir"], ["  Cafe\u0301? "], ["Noir"])
    row = read_questions(f"fr={write_json(tmp_path / 'a.json', content)}").rows[0]
    assert row["question"] == "Café?" and row["context"] == "  Cafe\u0301 Noir"


def test_languages_of_mlqa_are_in_its_names(tmp_path, monkeypatch):
    path = write_json(tmp_path / "test-context-de-question-en.json", squad())
    for item in (f"de={path}", str(path), f"en={path}"):
        found = read_questions(item)
        assert found.language == "en+de", item
        assert set(found.rows["context_lang"]) == {"de"} and set(found.rows["question_lang"]) == {"en"}, item
    monkeypatch.setattr(labelled_files, "load_hub", lambda *_: Dataset.from_list(squad_rows(squad())))
    assert read_questions("facebook/mlqa:mlqa.de.de").language == "de"
    assert read_questions("facebook/mlqa:mlqa.de.hi").rows[0]["question_lang"] == "hi"


def tydi():
    content = squad(questions=["a?", "b?", "c?"], answers=["Rhein", "Elbe", "Köln"])
    for k, question in enumerate(content["data"][0]["paragraphs"][0]["qas"]):
        question["id"] = ("swahili-123-0", "telugu--45-1", "swahili-7-2")[k]
    return content


def test_tydi_says_the_language_in_the_id(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        found = read_questions(f"sw={write_json(tmp_path / 'tydi.json', tydi())}")
    assert found.rows["id"][:] == ["swahili-123-0", "swahili-7-2"] and found.language == "sw"
    assert "skipped questions in other languages (1 in te)" in caplog.text
    assert len(read_questions(f"swh={tmp_path / 'tydi.json'}")) == 2  # another code of Swahili


# ---- Two languages ----


def test_questions_of_one_language_on_contexts_of_the_other(tmp_path):
    content = squad(["The Rhine flows through Cologne."], ["What flows?", "Where to?"], ["The Rhine", "Cologne"])
    content["data"][0]["paragraphs"][0]["qas"].reverse()
    german = read_questions(f"de={write_json(tmp_path / 'de.json', squad())}")
    english = read_questions(f"en={write_json(tmp_path / 'en.json', content)}")
    found = cross_lingual(questions=english, contexts=german)
    assert found.language == "en+de" and found.rows.column_names == german.rows.column_names
    for row, own in zip(found.rows, german.rows, strict=True):
        [question] = (one["question"] for one in english.rows if one["id"] == own["id"])
        assert row == {**own, "question": question, "question_lang": "en"}
    assert found.fingerprint not in (german.fingerprint, english.fingerprint)
    assert cross_lingual(german, english).fingerprint != found.fingerprint
    named = read_crossed(f"en+de={tmp_path / 'en.json'},{tmp_path / 'de.json'}")
    assert named.rows.to_list() == found.rows.to_list() and named.language == found.language
    assert read_crossed(f"de={tmp_path / 'de.json'}").fingerprint == german.fingerprint


def many(language, count=200):
    rows = []
    for n in range(count):
        text = {"id": str(n), "question": f"{language} q {n}", "context": f"{language} c {n}", "line": n}
        answers = {"text": [str(n)], "answer_start": [5]}
        rows.append({**text, "answers": answers, "question_lang": language, "context_lang": language})
    return Examples(language, language, Dataset.from_list(rows))


def test_mixed_questions(tmp_path):
    mixed = mix_languages(many("de"), many("en", 300), seed=3)
    sides = mixed.rows["english"][:]
    for n, (row, side) in enumerate(zip(mixed.rows, sides, strict=True)):
        other = {"question": "context", "context": "question"}[side]
        assert (row["id"], row[side][:2], row[other][:2]) == (str(n), "en", "de")
        assert (row[f"{side}_lang"], row[f"{other}_lang"]) == ("en", "de")
        answers = row["answers"]
        assert row["context"][answers["answer_start"][0] :] == answers["text"][0] == str(n)
    # A fair coin: 5 standard deviations are 35 of 200.
    assert 65 < sides.count("question") < 135
    assert mix_languages(many("de"), many("en"), seed=4).rows["english"][:] != sides
    assert mix_languages(many("de", 50), many("en"), seed=3).rows["english"][:] == sides[:50]
    path = tmp_path / "mixed.jsonl"
    mixed.rows.to_json(path)
    again = read_questions(f"de={path}")
    assert columns_of(again) == mixed.rows.remove_columns(["line", "english"]).to_list()
    assert again.language == "de"


def test_mixed_pairs_of_texts(tmp_path):
    for n, row in enumerate(mix_languages(pairs("de"), pairs("en"), seed=0).rows):
        other = {"text_a": "text_b", "text_b": "text_a"}[row["english"]]
        assert row[row["english"]] == f"en {row['english'][-1]} {n}" and row[other] == f"de {other[-1]} {n}"
    files = [write_lines(tmp_path / f"{code}.jsonl", pairs(code).rows.to_list()) for code in ("de", "en")]
    named = read_crossed(f"de+en={files[0]},{files[1]}", sequence)
    wanted = mix_languages(pairs("de"), pairs("en"), seed=0).rows.to_list()
    assert named.language == "de+en" and named.rows.remove_columns("line").to_list() == wanted


def test_code_switched_examples():
    for german, english, sides in (
        (pairs("de"), pairs("en"), ("text_a", "text_b")),
        (many("de", 40), many("en"), ("question", "context")),
    ):
        found = code_switch(german, english)
        assert (len(found), found.group_size, found.language) == (80, 2, "de")
        for n, row in enumerate(found.rows):
            assert [row[side][:2] for side in sides] == [["de", "en"], ["en", "de"]][n % 2]
            assert all(row[side].endswith(f" {n // 2}") for side in sides)
        assert found.fingerprint != german.fingerprint


def test_sets_that_are_not_parallel_are_refused():
    german = many("de", 4)

    def changed(examples, row, **values):
        rows = examples.rows.to_list()
        rows[row] |= values
        return replace(examples, rows=Dataset.from_list(rows))

    check(
        [
            ("id not in the English set", code_switch, german, many("en", 3)),
            ("4 translated examples, 5 English examples", code_switch, pairs("de", count=4), pairs("en", count=5)),
            (
                "row 1: label is .* here and other in the",
                code_switch,
                pairs("de"),
                changed(pairs("en"), 1, label="other"),
            ),
        ]
    )


# ---- Bad inputs: rows of (message, function, *arguments) ----


def load(reader, name, content, folder, before="de=", asked_for=None):
    path = folder / name
    if isinstance(content, str | bytes):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    else:
        (write_lines if name.endswith(".jsonl") else write_json)(path, content)
    return reader(f"{before}{folder / (asked_for or name)}")


token, sequence = partial(read_examples, kind="token"), partial(read_examples, kind="sequence")


def sets(codes, folder):
    path = write_lines(folder / "a.jsonl", [{"text": "a", "label": "x"}])
    return by_language([sequence(f"{code}={path}") for code in codes])


MIXED = ["a B-X\nb E-X\n\n" + more for more in ("a L-X\n", "a O\nb X\n")]


def test_labelled_text(tmp_path):
    unseen = [{"tokens": ["a"], "labels": ["I-LOC"]}, {"tokens": ["b", "c"], "labels": ["O", "B-PER"]}]
    named = r"de\.jsonl, line 2 \(word 2, 'c'\): the label 'B-PER' is not among the 3 labels \(O, B-LOC, I-LOC\)"
    misspelt = partial(load, asked_for="de.conlu")
    check(
        [
            (r"line 2: 1 columns, but the sentence's first word \(line 1\) has 2", load, token, "a.conll", "a O\nb\n"),
            ("the labels mix schemes, with the parts B, E, L", load, token, "a.bio", MIXED[0]),
            ("line 4, word 2: the label 'X' marks no span, but others do, .*'B-X'", load, token, "a.bio", MIXED[1]),
            (r"de\.conlu: no such file; did you mean .*de\.conllu", misspelt, token, "de.conllu", "1\ta\n"),
            (r"line 1: column 'label' holds 0\.5", load, sequence, "a.jsonl", [{"text": "a", "label": 0.5}]),
            ("de has two evaluation sets", sets, ("de", "en", "de")),
            (named, load, lambda item: token(item).check_labels(LabelSet.of(["O", "B-LOC"]), "x"), "de.jsonl", unseen),
        ],
        tmp_path,
    )


def changed(change, folder):
    """Change (content, second paragraph, its first question) of a file, and read it."""
    content = squad([GERMAN, "x " + GERMAN])
    paragraph = content["data"][0]["paragraphs"][1]
    change(content, paragraph, paragraph["qas"][0])
    return load(read_questions, "a.json", content, folder)


def test_layout_of_questions(tmp_path):
    second = r"a\.json, row 1, paragraphs\[1\]"
    asked, pairs = rf"{second}.qas\[0\]", "'answers' are not pairs of text and answer_start"
    elsewhere = rf"{asked} \(id 'c1q0'\): the answer '.*' is not at its answer_start, character"
    changes = [
        (pairs, lambda c, p, q: q.update(answers="{'text': array(['x'], dtype=object), 'answer_start': array([1])}")),
        (rf"{asked}: .*row 1, paragraphs\[0\].qas\[1\] has the id 'c0q1' too", lambda c, p, q: q.update(id="c0q1")),
        (f"{asked}.* the question has no answer", lambda c, p, q: q.update(answers=[], is_impossible=True)),
        (
            f"{asked}.* the question has no answer",
            lambda c, p, q: q.update(answers=[{"text": "", "answer_start": -1}]),
        ),
        (elsewhere, lambda c, p, q: q["answers"][0].update(answer_start=-1)),
        (f"{elsewhere} 3 .*, but at 2", lambda c, p, q: q["answers"][0].update(answer_start=3)),
    ]
    check([(message, changed, change) for message, change in changes], tmp_path)


def test_files_and_languages_of_questions(tmp_path):
    codes = zip(squad_rows(squad()), ("de", "en"), strict=True)
    mixed = [{**row, "question_lang": "de", "context_lang": code} for row, code in codes]
    unnamed, finnish, spanish = (partial(load, before=before) for before in ("", "fi=", "es="))
    mlqa = "test-context-de-question-en.json"

    mix = partial(mix_languages, seed=0)
    check(
        [
            ("the language is unknown", unnamed, read_questions, "a.json", squad()),
            ("several languages. Name one for the set", unnamed, read_questions, "mixed.jsonl", mixed),
            ("no question is in fi; there are 2 in sw, 1 in te", finnish, read_questions, "tydi.json", tydi()),
            (r"the languages are en\+de .question\+context., not es", spanish, read_questions, mlqa, squad()),
            ("row 0: label is x here and y in the English", lambda _: mix(pairs("de"), pairs("en", "y"))),
        ],
        tmp_path,
    )


def test_texts_of_published_forms_and_texts_without_a_label(tmp_path, caplog, monkeypatch):
    xsid, nli = tmp_path / "da.conll", tmp_path / "da.jsonl"
    xsid.write_text("# text: i Odense\n# intent: find\n1\ti\tfind\tO\n2\tOdense\tfind\tB-place\n", encoding="utf-8")
    assert columns(read(xsid, "sequence"), "text_a", "label") == [["i Odense"], ["find"]]
    rows = [{"text": "ja", "label": label} for label in ("yes", "-", -1, "-100", "N/A", None)]
    write_lines(nli, [*rows, {"text": "ja", "label": "no", "answer": "reject"}])
    assert columns(read(nli, "sequence"), "label") == [["yes"]]
    assert "5 of 7 texts have no label" in caplog.text
    write_lines(nli, [{"text": "ja", "answer": answer} for answer in ("accept", "reject")])
    assert columns(read(nli, "sequence", label_column="answer"), "label") == [["accept", "reject"]]
    write_lines(nli, [{"text": "ja", "label": label} for label in (-1, "0", "1", -100)])
    assert columns(read(nli, "sequence", label_names=["-1", "0", "1"]), "label") == [["-1", "0", "1"]]
    features = Features({"text": Value("string"), "label": ClassLabel(names=["-1", "0", "1"])})
    hub = Dataset.from_dict({"text": ["ja", "nej"], "label": [0, 2]}, features=features)
    monkeypatch.setattr(labelled_files, "load_hub", lambda *_: hub)
    assert columns(read("owner/name", "sequence"), "label") == [["-1", "1"]]


@pytest.mark.parametrize("name", ["a.txt", "a.train", "a.valid", "a"])
def test_lines_of_fasttext_are_labels_and_texts(name, tmp_path):
    path = tmp_path / name
    path.write_text("__label__good Oso ona\n__label__bad , Oso txarra\n\n__label__good\tBai\n")
    found = read(path, "sequence", "eu")
    assert columns(found, "text_a", "label") == [["Oso ona", "Oso txarra", "Bai"], ["good", "bad", "good"]]
    path.write_text("__label__good Oso ona\n__label__bad __label__good Oso txarra\n")
    with pytest.raises(InputError, match="line 2: '__label__bad __label__good Oso txarra' is not one"):
        read(path, "sequence", "eu")


def test_folders_that_datasets_and_the_hub_have(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    sets = DatasetDict(
        {
            split: Dataset.from_dict({"text": texts, "label": [1, 0][: len(texts)]}, features=features)
            for split, texts in (("train", ["ona", "txarra"]), ("test", ["bai"]))
        }
    )
    sets.save_to_disk(tmp_path / "saved")
    for split, rows in sets.items():
        rows.to_parquet(tmp_path / "shards" / f"{split}-00000-of-00001.parquet")
    for folder in ("saved", "shards"):
        assert columns(read(tmp_path / folder, "sequence"), "label") == [["good", "bad"]]
        assert columns(read(tmp_path / folder, "sequence", split="test"), "text_a", "label") == [["bai"], ["good"]]
    assert load_monolingual(tmp_path / "saved" / "train")["text"][:] == ["ona", "txarra"]
    with pytest.raises(InputError, match="split=dev: choose one of train, test"):
        read(tmp_path / "saved", "sequence", split="dev")
    with pytest.raises(InputError, match="name its folder, if"):
        read(next((tmp_path / "saved" / "train").glob("*.arrow")), "sequence")


def test_class_labels_of_minus_100_are_not_trained_or_scored():
    features = Features({"tokens": List(Value("string")), "labels": List(ClassLabel(names=["O", "B-X"]))})
    rows = Dataset.from_dict({"tokens": [["a", "b"]], "labels": [[1, -100]]}, features=features)
    assert Examples("x", "de", rows).rows["labels"][:] == [["B-X", "_"]]


TAGGED = "1\tMačka\tNOUN\t{0}\n2\tspí\tVERB\t{1}\n\n1\tPrší\tVERB\t{2}\n2\t!\tPUNCT\t{2}\n"
TAGS_OF_TWO = [["NOUN", "VERB"], ["VERB", "PUNCT"]]


def test_parts_of_speech_are_not_the_name_of_their_annotator(tmp_path, caplog):
    path = tmp_path / "a.conll"
    path.write_text(TAGGED.format("jana", "jana", "peter"))
    assert read(path, language="sk").rows["labels"][:] == TAGS_OF_TWO
    path.write_text("\n".join(line[2:] for line in TAGGED.format("jana", "jana", "peter").split("\n")))
    assert read(path, language="sk").rows["labels"][:] == TAGS_OF_TWO
    path.write_text(TAGGED.format("jana", "jana", "peter").replace("!\tPUNCT", "a\tNOUN"))  # as many tags as names
    assert read(path, language="sk").label_names == {"NOUN", "VERB"}
    path.write_text(TAGGED.format("jana", "peter", "peter"))  # they took turns, which no column shows
    assert read(path, language="sk", label_column="3").rows["labels"][:] == TAGS_OF_TWO
    assert "its last column, read as labels, holds jana, peter. Or give --label_column 3" in caplog.text


WORD_ROWS = [("d1", 0, "Anna", "B-per"), ("d1", 0, "lacht", "O"), ("d2", 0, "Er", "O"), ("d2", 0, "geht", "O")]


def test_a_word_a_row_in_every_table(tmp_path):
    table = pandas.DataFrame(WORD_ROWS, columns=["doc_id", "sentence_id", "token", "ner"])
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        found = read(tmp_path / name)
        assert columns(found, "tokens", "labels") == [
            [["Anna", "lacht"], ["Er", "geht"]],
            [["B-per", "O"], ["O", "O"]],
        ]
    table.iloc[[0, 2, 1, 3]].to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputError, match="the sentence 'd1 0' goes on in row 4, apart from its other rows"):
        read(tmp_path / "a.csv")


def test_names_of_columns_in_the_plural_hold_words_or_lists(tmp_path):
    table = pandas.DataFrame(WORD_ROWS, columns=["doc_id", "sent_no", "words", "labels"]).drop(columns="doc_id")
    table["sent_no"] = [0, 0, 1, 1]
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    lists = table.groupby("sent_no", as_index=False).agg(list)
    lists.to_csv(tmp_path / "lists.csv", index=False)
    lists.to_json(tmp_path / "lists.jsonl", orient="records", lines=True)
    for name in ("a.csv", "a.jsonl", "lists.csv", "lists.jsonl"):
        found = read(tmp_path / name)
        assert columns(found, "tokens", "labels") == [
            [["Anna", "lacht"], ["Er", "geht"]],
            [["B-per", "O"], ["O", "O"]],
        ]
    (tmp_path / "a.ann").write_text("T1\tper 0 4\tAnna\n")
    with pytest.raises(InputError, match="its spans have character offsets"):
        read(tmp_path / "a.ann")


def test_names_in_the_column_misc(tmp_path):
    word = "{0}\t{1}\t_\tX\t_\tCase=Nom\t0\troot\t_\t{2}\n".format
    path = tmp_path / "a.conllu"
    path.write_text(word(1, "Anna", "NE=B-PER|SpaceAfter=No") + word(2, "lacht", "_"))
    assert read(path).rows["labels"][:] == [["X", "X"]]
    assert read(path, label_column="NE").rows["labels"][:] == [["B-PER", "O"]]
    assert read(path, label_column="case").rows["labels"][:] == [["Nom", "Nom"]]
    with pytest.raises(InputError, match="no word has a label"):
        read(path, label_column="NER")


# Name of the form: its first lines, and the line of a word.
WORD_LINES = {
    "lemmas last": ("", "{0}\t{1}\t{0}\n"),
    "numbers first, lemmas last": ("", "{n}\t{0}\t{1}\t{0}\n"),
    "contractions": ("", "{n}-9\tzz\t_\n{n}\t{0}\t{1}\n"),
    "a header": ("pos\tword\n", "{1}\t{0}\n"),
    "a header and a blank line": ("FORM\tUPOS\tMISC\n\n", "{0}\t{1}\tx\n"),
    "CoNLL-U Plus": ("# global.columns = ID FORM UPOS PARSEME:MWE\n", "{n}\t{0}\t{1}\t*\n"),
}


@pytest.mark.parametrize("form", WORD_LINES)
def test_columns_of_words_and_tags(form, tmp_path, caplog):
    head, line = WORD_LINES[form]
    sentences = [[("Péter", "N"), ("megy", "V")], [("Ma", "R"), ("esik", "V")]]
    text = "\n".join("".join(line.format(*row, n=n) for n, row in enumerate(rows, 1)) for rows in sentences)
    (tmp_path / "a.conll").write_text(head + text)
    found = read(tmp_path / "a.conll", language="hu")
    assert found.rows["tokens"][:] == [["Péter", "megy"], ["Ma", "esik"]]
    assert found.rows["labels"][:] == [["N", "V"], ["R", "V"]]
    assert ("the last has lemmas" in caplog.text) == ("lemmas" in form)


def test_offsets_are_no_words_and_two_columns_of_spans_are_told(tmp_path, caplog):
    path = tmp_path / "a.conll"
    path.write_text("0\t5\tPéter\tB-PER\n6\t10\tmegy\tO\n\n0\t2\tMa\tO\n3\t7\tesik\tO\n")
    with pytest.raises(InputError, match="no column 'tokens'"):
        read(path)
    assert read(path, text_columns=["3"]).rows["tokens"][:] == [["Péter", "megy"], ["Ma", "esik"]]
    # Gold and predicted, outer and inner spans, names and parts of speech; phrases before names are no fault.
    for first, last, other, read_labels in (
        ("B-PER", "B-PER", "O", ["B-PER", "O"]),
        ("B-ORG", "B-LOC", "O", ["B-ORG", "O"]),
        ("B-LOC", "PROPN", "VERB", ["B-LOC", "O"]),
        ("B-NP", "B-NP", "O", ["B-NP", "O"]),
        ("B-NP", "B-PER", "O", ["B-PER", "O"]),
    ):
        caplog.clear()
        path.write_text(f"Péter {first} {last}\nmegy O {other}\n\nMa O {other}\nesik O {other}\n")
        assert read(path).rows["labels"][0] == read_labels
        told = "the labels are in column 2, because the last has others" in caplog.text
        assert told == (read_labels[0] == first)


def test_scores_as_classes_are_told_once(tmp_path, caplog):
    path = tmp_path / "a.tsv"
    path.write_text("sentence1\tsentence2\tlabel\nGoed\tBest\t0.5\nGoed\tFout\t0.1\nGoed\tGoed\t4.5\n")
    assert read(path, "sequence", "nl").label_names == {"0.5", "0.1", "4.5"}
    assert caplog.text.count("the label '0.1' is a class of its own") == caplog.text.count("of its own") == 1
    path.write_text("text\tlabel\nGoed\tja\nFout\tnee\nTotaal\t2\nBest\t3\n")
    read(path, "sequence", "nl")
    assert "the label '2' is a class of its own, next to 2, 3, ja, nee" in caplog.text
    caplog.clear()
    path.write_text("text\tlabel\n" + "".join(f"Film {n}\t{n % 2}\n" for n in range(32)) + "Totaal\t32\n")
    read(path, "sequence", "nl")
    assert caplog.text.count("a class of its own") == caplog.text.count("the label '32' is a class of its own") == 1
