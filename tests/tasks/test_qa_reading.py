"""Questions out of every format, sets with two languages, and what is refused."""

from __future__ import annotations

import copy
import gzip
import json
import logging

import pytest
from datasets import Dataset

from hf_xalign.errors import InputError
from hf_xalign.tasks import qa_records, readers
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.qa_crossing import cross_lingual, mix_languages
from hf_xalign.tasks.qa_reading import read_questions

GERMAN = "Der Rhein fließt durch Köln. Die Elbe fließt durch Dresden."


def answer(context, text):
    return {"text": text, "answer_start": context.index(text)}


def squad(
    contexts=(GERMAN,), questions=("Was fließt durch Köln?", "Wo ist die Elbe?"), texts=("Der Rhein", "Dresden")
):
    """A file of SQuAD's layout: every context has every question."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {"id": f"c{c}q{q}", "question": question, "answers": [answer(context, text)]}
                for q, (question, text) in enumerate(zip(questions, texts, strict=True))
            ],
        }
        for c, context in enumerate(contexts)
    ]
    return {"version": "1.1", "data": [{"title": "Flüsse", "paragraphs": paragraphs}]}


def english():
    return squad(
        ["The Rhine flows through Cologne. The Elbe flows through Dresden."],
        ["What flows through Cologne?", "Where is the Elbe?"],
        ["The Rhine", "Dresden"],
    )


def write(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def flat(content):
    """The rows of SQuAD's columns, as the Hub has them."""
    rows = []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = {name: [one[name] for one in question["answers"]] for name in ("text", "answer_start")}
                rows.append({**question, "context": paragraph["context"], "title": "t", "answers": answers})
    return rows


def columns_of(examples):
    """Everything but what depends on the format."""
    return examples.rows.remove_columns("line").to_list()


def test_every_format_has_the_same_questions(tmp_path, monkeypatch):
    nested = read_questions(f"de={write(tmp_path / 'a.json', squad([GERMAN, 'x ' + GERMAN]))}")
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    lines = tmp_path / "a.jsonl"
    rows = flat(squad([GERMAN, "x " + GERMAN]))
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    listed = tmp_path / "b.jsonl"  # answers as a list of dicts, as newer `datasets` writes them
    as_list = [
        {**row, "answers": [dict(zip(row["answers"], one)) for one in zip(*row["answers"].values())]} for row in rows
    ]
    listed.write_text("".join(json.dumps(row) + "\n" for row in as_list), encoding="utf-8")
    monkeypatch.setattr(readers, "load_hub", lambda name, split, revision: Dataset.from_list(rows))
    assert nested.rows["id"][:] == ["c0q0", "c0q1", "c1q0", "c1q1"]
    assert nested.rows[3]["answers"] == {"text": ["Dresden"], "answer_start": [("x " + GERMAN).index("Dresden")]}
    assert nested.rows[3]["question_lang"] == nested.rows[3]["context_lang"] == nested.language == "de"
    for item in (f"de={packed}", f"de={lines}", f"de={listed}", "de=google/xquad:xquad.de"):
        assert columns_of(read_questions(item)) == columns_of(nested)
    assert nested.place(2) == f"{tmp_path / 'a.json'}, question 3"
    assert read_questions(f"de={lines}").place(2) == f"{lines}, line 3"
    assert read_questions(f"de={lines}", max_examples=3).rows["id"][:] == ["c0q0", "c0q1", "c1q0"]


def test_question_is_normalised_and_context_is_not(tmp_path):
    context = "  Cafe\u0301 Noir"
    path = write(tmp_path / "a.json", squad([context], ["  Cafe\u0301? "], ["Noir"]))
    row = read_questions(f"fr={path}").rows[0]
    assert row["question"] == "Café?"
    assert row["context"] == context and context[row["answers"]["answer_start"][0] :] == "Noir"


def test_languages_of_mlqa_are_in_its_names(tmp_path, monkeypatch):
    path = write(tmp_path / "test-context-de-question-en.json", squad())
    for item in (f"de={path}", str(path), f"en={path}"):
        found = read_questions(item)
        assert found.language == "en+de"
        assert set(found.rows["context_lang"]) == {"de"} and set(found.rows["question_lang"]) == {"en"}
    with pytest.raises(InputError, match="contexts are in de and questions in en, but es was asked for"):
        read_questions(f"es={path}")
    monkeypatch.setattr(readers, "load_hub", lambda name, split, revision: Dataset.from_list(flat(squad())))
    assert read_questions("facebook/mlqa:mlqa.de.de").language == "de"
    assert read_questions("facebook/mlqa:mlqa.de.hi").rows[0]["question_lang"] == "hi"
    assert read_questions(f"de={write(tmp_path / 'a.json', squad())}", question_lang="en").language == "en+de"


def test_tydi_says_the_language_in_the_id(tmp_path, caplog):
    content = squad(questions=["a?", "b?", "c?"], texts=["Rhein", "Elbe", "Köln"])
    names = ["swahili-123-0", "telugu--45-1", "swahili-7-2"]
    for question, name in zip(content["data"][0]["paragraphs"][0]["qas"], names, strict=True):
        question["id"] = name
    path = write(tmp_path / "tydi.json", content)
    with caplog.at_level(logging.INFO):
        found = read_questions(f"sw={path}")
    assert found.rows["id"][:] == [names[0], names[2]] and found.language == "sw"
    assert "left out (1 in te)" in caplog.text
    with pytest.raises(InputError, match="no question is in fi; there are 2 in sw, 1 in te"):
        read_questions(f"fi={path}")
    with pytest.raises(InputError, match="several languages; name the set"):
        read_questions(str(path))


def broken(change):
    content = copy.deepcopy(squad([GERMAN, "x " + GERMAN]))
    change(content, content["data"][0]["paragraphs"][1], content["data"][0]["paragraphs"][1]["qas"][0])
    return content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, p, q: c.pop("data"), r"a.json: no 'data', there is 'version'"),
        (lambda c, p, q: c["data"][0].pop("paragraphs"), r"data\[0\]: no 'paragraphs', there is 'title'"),
        (lambda c, p, q: p.pop("qas"), r"data\[0\].paragraphs\[1\]: no 'qas'"),
        (lambda c, p, q: p.pop("context"), r"data\[0\].paragraphs\[1\]: no 'context'"),
        (lambda c, p, q: q.pop("answers"), r"data\[0\].paragraphs\[1\].qas\[0\]: no 'answers'"),
        (lambda c, p, q: q.pop("id"), r"qas\[0\]: no 'id'"),
        (lambda c, p, q: q["answers"][0].pop("answer_start"), r"id 'c1q0'\), answers\[0\]: no 'answer_start'"),
        (lambda c, p, q: p.update(qas={}), r"paragraphs\[1\]: 'qas' is an object, not a list"),
        (lambda c, p, q: c["data"].append([]), r"data\[1\]: a list, not an object with paragraphs"),
        (lambda c, p, q: q.update(answers="x"), "'answers' is text, not a list"),
        (lambda c, p, q: q["answers"][0].update(answer_start="3"), r"answers\[0\]: 'text' is text and .* text; they"),
        (lambda c, p, q: q.update(question=None), "'question' is null, not text"),
        (lambda c, p, q: p.update(context=" \n"), r"qas\[0\]: 'context' is empty"),
        (lambda c, p, q: q.update(question="\ud83d?"), "half of a surrogate pair at character 0"),
        (
            lambda c, p, q: q.update(id="c0q1"),
            r"paragraphs\[1\].qas\[0\]: id 'c0q1' stands at .*paragraphs\[0\].qas\[1",
        ),
        (lambda c, p, q: c.update(data=[]), "a.json: no questions in it"),
    ],
)
def test_bad_layout_is_named_with_its_place(tmp_path, change, message):
    path = write(tmp_path / "a.json", broken(change))
    with pytest.raises(InputError, match=message):
        read_questions(f"de={path}")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c, p, q: q.update(answers=[], is_impossible=True), "without an answer"),
        (lambda c, p, q: q["answers"][0].update(answer_start=0), "with an answer that is not at its answer_start"),
        (lambda c, p, q: q["answers"][0].update(answer_start=-1), "with an answer that is not at its answer_start"),
        (lambda c, p, q: q["answers"].append({"text": "", "answer_start": 0}), "with an answer that is not at its"),
    ],
)
def test_unusable_questions_are_refused_or_dropped(tmp_path, caplog, change, problem):
    path = write(tmp_path / "a.json", broken(change))
    with pytest.raises(InputError, match=f"of 4 questions there are 1 {problem}.*qas.0., id 'c1q0'.*on_unusable=drop"):
        read_questions(f"de={path}")
    assert read_questions(f"de={path}", on_unusable="drop").rows["id"][:] == ["c0q0", "c0q1", "c1q1"]
    assert f"1 {problem}" in caplog.text


def test_bad_files(tmp_path):
    with pytest.raises(InputError, match=r"no such file; did you mean .*a\.json"):
        write(tmp_path / "a.json", squad())
        read_questions(f"de={tmp_path / 'aa.json'}")
    (tmp_path / "b.json").write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(InputError, match=r"b\.json, line 2: not JSON .* called \.jsonl"):
        read_questions(f"de={tmp_path / 'b.json'}")
    (tmp_path / "c.json.gz").write_bytes(b"x")
    with pytest.raises(InputError, match="damaged gzip"):
        read_questions(f"de={tmp_path / 'c.json.gz'}")
    (tmp_path / "d.jsonl").write_text('{"id": 1, "question": "a", "context": "b"}\n')
    with pytest.raises(InputError, match=r"d\.jsonl, line 1: no 'answers', there is 'id', 'question', 'context'"):
        read_questions(f"de={tmp_path / 'd.jsonl'}")
    with pytest.raises(InputError, match="its language is not said"):
        read_questions(str(tmp_path / "a.json"))
    assert set(qa_records.KEYS) == {"id", "question", "context", "answers"}


# ---- Two languages ----


@pytest.fixture
def sets(tmp_path):
    reordered = english()
    reordered["data"][0]["paragraphs"][0]["qas"].reverse()
    return (
        read_questions(f"de={write(tmp_path / 'de.json', squad())}"),
        read_questions(f"en={write(tmp_path / 'en.json', reordered)}"),
    )


def test_questions_of_one_language_on_contexts_of_the_other(sets):
    german, english_set = sets
    found = cross_lingual(questions=english_set, contexts=german)
    assert found.language == "en+de" and found.rows.column_names == german.rows.column_names
    for row, own in zip(found.rows, german.rows, strict=True):
        asked = next(one for one in english_set.rows if one["id"] == own["id"])
        assert row == {**own, "question": asked["question"], "question_lang": "en"}
    assert found.fingerprint not in (german.fingerprint, english_set.fingerprint)
    assert cross_lingual(german, english_set).fingerprint != found.fingerprint


def test_missing_ids_are_refused(sets):
    german, english_set = sets
    one = Examples("one.json", "de", german.rows.select([0]))
    with pytest.raises(InputError, match=r"1 of the 2 ids of .*en\.json are not in one\.json, the first is 'c0q1'"):
        cross_lingual(english_set, one)
    with pytest.raises(InputError, match=r"1 of the 2 ids of .*en\.json are not in one\.json"):
        cross_lingual(one, english_set)


def many(language, count=200):
    rows = [
        {
            "id": str(n),
            "question": f"{language} q {n}",
            "context": f"{language} c {n}",
            "answers": {"text": [str(n)], "answer_start": [5]},
            "question_lang": language,
            "context_lang": language,
            "line": n,
        }
        for n in range(count)
    ]
    return Examples(language, language, Dataset.from_list(rows))


def test_mixed_questions(tmp_path):
    mixed = mix_languages(many("de"), many("en", 300), seed=3)
    sides = mixed.rows["english"][:]
    for n, (row, side) in enumerate(zip(mixed.rows, sides, strict=True)):
        other = {"question": "context", "context": "question"}[side]
        assert (row["id"], row[side][:2], row[other][:2]) == (str(n), "en", "de")
        assert (row[f"{side}_lang"], row[f"{other}_lang"]) == ("en", "de")
        assert row["context"][row["answers"]["answer_start"][0] :] == row["answers"]["text"][0]
    # A fair coin: 5 standard deviations are 35 of 200.
    assert 65 < sides.count("question") < 135
    assert mixed.language == "de"
    assert mix_languages(many("de"), many("en"), seed=3).rows["english"][:] == sides
    assert mix_languages(many("de"), many("en"), seed=4).rows["english"][:] != sides
    assert mix_languages(many("de", 50), many("en"), seed=3).rows["english"][:] == sides[:50]
    path = tmp_path / "mixed.jsonl"
    mixed.rows.to_json(path)
    again = read_questions(f"de={path}")
    assert columns_of(again) == mixed.rows.remove_columns(["line", "english"]).to_list()
    assert again.language == "de"
    with pytest.raises(InputError, match="several languages; name the set"):
        read_questions(str(path))


def test_mixed_pairs_of_texts():
    def pairs(language, label="x", count=40):
        rows = [{"text_a": f"{language} a {n}", "text_b": f"{language} b {n}", "label": label} for n in range(count)]
        return Examples(f"{language}.jsonl", language, Dataset.from_list(rows))

    mixed = mix_languages(pairs("de"), pairs("en"), seed=0)
    for n, row in enumerate(mixed.rows):
        other = {"text_a": "text_b", "text_b": "text_a"}[row["english"]]
        assert row[row["english"]] == f"en {row['english'][-1]} {n}" and row[other] == f"de {other[-1]} {n}"
    assert len(set(mixed.rows["english"])) == 2
    with pytest.raises(InputError, match=r"de\.jsonl with en\.jsonl: row 0: label is x, and y in the English"):
        mix_languages(pairs("de"), pairs("en", "y"), seed=0)
    with pytest.raises(InputError, match="40 translated and 39 English examples"):
        mix_languages(pairs("de"), pairs("en", count=39), seed=0)
    words = Examples("pos", "de", Dataset.from_list([{"tokens": ["a"], "labels": ["X"]}]))
    with pytest.raises(InputError, match="are no pairs"):
        mix_languages(words, words, seed=0)
