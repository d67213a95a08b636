"""Labelled text from every format, and what is refused with its file and line."""

from __future__ import annotations

import gzip
import json

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from hf_xalign.errors import InputError
from hf_xalign.tasks import LabelSet, by_language, read_examples
from hf_xalign.tasks import readers as readers_module

CONLLU = (
    "# text = Vámonos al mar\n"
    "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tVamos\tir\tVERB\tv\t_\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\tp\t_\t1\tobj\t_\t_\n"
    "2.1\tvamos\tir\tVERB\tv\t_\t_\t_\t_\t_\n"
    "\n"
    "1\tmar\tmar\tNOUN\tn\t_\t0\troot\t_\t_\n"
)


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_jsonl_of_words_with_named_columns_and_nfc(tmp_path):
    rows = [{"tokens": ["cafe\u0301", "ist"], "tags": ["NOUN", "VERB"]}, {"tokens": ["ja"], "tags": ["X"]}]
    path = write(tmp_path / "de.jsonl", rows)
    found = read_examples(f"de={path}", "token", label_column="tags")
    assert found.language == "de" and len(found) == 2
    assert found.rows[:] == {"tokens": [["café", "ist"], ["ja"]], "labels": [["NOUN", "VERB"], ["X"]], "line": [1, 2]}
    assert found.label_names == {"NOUN", "VERB", "X"} and found.place(1) == f"{path}, line 2"
    fewer = read_examples(f"de={path}", "token", label_column="tags", max_examples=1)
    assert len(fewer) == 1 and fewer.fingerprint != found.fingerprint


def test_conll_columns_with_documents_and_gzip(tmp_path):
    path = tmp_path / "ner.conll.gz"
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nPeter NNP B-NP B-PER"
    path.write_bytes(gzip.compress(text.encode()))
    found = read_examples(f"en={path}", "token")
    assert found.rows["tokens"][:] == [["EU", "rejects"], ["Peter"]]
    assert found.rows["labels"][:] == [["B-ORG", "O"], ["B-PER"]]
    assert found.rows["line"][:] == [3, 7]
    assert read_examples(f"en={path}", "token", label_column="2").rows["labels"][1] == ["NNP"]


def test_conllu_leaves_out_multiword_and_empty_tokens(tmp_path):
    path = tmp_path / "es.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    found = read_examples(f"es={path}", "token")
    assert found.rows["tokens"][:] == [["Vamos", "nos"], ["mar"]]
    assert found.rows["labels"][:] == [["VERB", "PRON"], ["NOUN"]]
    assert found.rows["line"][:] == [3, 7]
    assert read_examples(f"es={path}", "token", label_column="xpos").rows["labels"][0] == ["v", "p"]


def test_texts_and_pairs_of_texts(tmp_path):
    pairs = write(tmp_path / "nli.jsonl", [{"text_a": " a ", "text_b": "b", "label": 2}])
    assert read_examples(f"en={pairs}", "sequence").rows[0] == {"text_a": "a", "text_b": "b", "label": "2", "line": 1}
    one = write(tmp_path / "topic.jsonl", [{"text": "a", "intent": "x"}])
    assert read_examples(f"en={one}", "sequence", label_column="intent").rows.column_names == [
        "text_a",
        "label",
        "line",
    ]
    named = write(tmp_path / "xnli.jsonl", [{"premise": "a", "hypothesis": "b", "label": "neutral"}])
    found = read_examples(f"en={named}", "sequence", text_columns=("premise", "hypothesis"))
    assert (found.rows[0]["text_a"], found.rows[0]["text_b"]) == ("a", "b")


def test_hub_classes_come_as_names(monkeypatch):
    features = Features({"tokens": List(Value("string")), "ner": List(ClassLabel(names=["O", "B-A"]))})
    hub = Dataset.from_dict({"tokens": [["a", "b"]], "ner": [[1, 0]]}, features=features)
    asked = []
    monkeypatch.setattr(readers_module, "load_hub", lambda *given: asked.append(given) or hub)
    found = read_examples("de=owner/name:de", "token", label_column="ner", split="test")
    assert asked == [("owner/name:de", "test", None)]
    assert found.rows["labels"][0] == ["B-A", "O"] and found.place(0) == "owner/name:de, row 1"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a", "b"], "labels": ["O"]}, "line 2: 2 words in 'tokens' but 1 labels in 'labels'"),
        ({"tokens": ["a"]}, "line 2: no column 'labels'; the columns there are tokens"),
        ({"tokens": "a", "labels": ["O"]}, "line 2: column 'tokens' holds str, not a list"),
        ({"tokens": [1], "labels": ["O"]}, "line 2: column 'tokens' holds int, not text"),
        ({"tokens": ["a"], "labels": [None]}, "line 2: column 'labels' has the label null"),
        ({"tokens": [], "labels": []}, "line 2: a sentence without words"),
    ],
)
def test_bad_rows_of_words(tmp_path, row, message):
    path = write(tmp_path / "de.jsonl", [{"tokens": ["a"], "labels": ["O"]}, row])
    with pytest.raises(InputError) as error:
        read_examples(f"de={path}", "token")
    assert str(path) in str(error.value) and message in str(error.value)


def test_bad_columns_and_files(tmp_path):
    path = tmp_path / "ner.conll"
    path.write_text("a O\nb\n")
    with pytest.raises(InputError, match="line 2: 1 columns, and the sentence's first word has 2"):
        read_examples(f"de={path}", "token")
    path.write_text("a\nb\n")
    with pytest.raises(InputError, match="line 1: one column"):
        read_examples(f"de={path}", "token")
    path.write_bytes(b"a O\n\xff O\n")
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        read_examples(f"de={path}", "token")
    path.write_text("\n\n")
    with pytest.raises(InputError, match="no examples in it"):
        read_examples(f"de={path}", "token")
    universal = tmp_path / "de.conllu"
    universal.write_text("1\ta\n")
    with pytest.raises(InputError, match="line 1: 2 tab-separated columns; CoNLL-U has 10"):
        read_examples(f"de={universal}", "token")
    with pytest.raises(InputError, match="which language"):
        read_examples(str(universal), "token")
    with pytest.raises(InputError, match=r"de\.conlu: no such file; did you mean .*de\.conllu"):
        read_examples(f"de={tmp_path}/de.conlu", "token")
    (tmp_path / "de.csv").write_text("a,b\n")
    with pytest.raises(InputError, match="labelled text is read from"):
        read_examples(f"de={tmp_path}/de.csv", "token")


def test_bad_rows_of_texts(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text_a": "a", "text_b": " ", "label": "x"}])
    with pytest.raises(InputError, match="line 1: column 'text_b' is empty"):
        read_examples(f"de={path}", "sequence")
    path = write(tmp_path / "b.jsonl", [{"text": "a", "label": 0.5}])
    with pytest.raises(InputError, match=r"line 1: column 'label' has the label 0\.5"):
        read_examples(f"de={path}", "sequence")


def test_languages_that_are_missing_or_twice(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "a", "label": "x"}])
    sets = [read_examples(f"{code}={path}", "sequence") for code in ("de", "en", "de")]
    assert list(by_language(sets[:2], ["en"])) == ["de", "en"]
    with pytest.raises(InputError, match="no evaluation text in bn, hi; there is text in de, en"):
        by_language(sets[:2], ["de", "bn", "hi"])
    with pytest.raises(InputError, match="de is evaluated on"):
        by_language(sets)


def test_unseen_labels_are_named_with_their_place(tmp_path):
    train = LabelSet.of(["O", "B-LOC"])
    rows = [{"tokens": ["a"], "labels": ["I-LOC"]}, {"tokens": ["b", "c"], "labels": ["O", "B-PER"]}]
    path = write(tmp_path / "de.jsonl", rows)
    with pytest.raises(InputError) as error:
        read_examples(f"de={path}", "token").check_labels(train, "the training text")
    assert f"{path}, line 2 (word 2, 'c'): label 'B-PER' is none of the 3 labels (O, B-LOC, I-LOC)" in str(error.value)
    read_examples(f"de={path}", "token", max_examples=1).check_labels(train, "the training text")


# ---- Label sets ----


def test_labels_are_ordered_and_closed():
    assert LabelSet.of(["I-b", "O", "B-a"]).names == ("O", "B-a", "I-a", "B-b", "I-b")
    assert LabelSet.of(["VERB", "NOUN", "X"]).names == ("NOUN", "VERB", "X")
    assert not LabelSet.of(["B-a", "NOUN"]).mark_spans
    assert LabelSet.of({"O", "B-a"}).config()["label2id"] == {"O": 0, "B-a": 1, "I-a": 2}
    with pytest.raises(InputError, match="1 different labels"):
        LabelSet.of(["X"])


def test_label_files(tmp_path):
    path = tmp_path / "labels.json"
    path.write_text(json.dumps({"bio": ["O", "I-b", "B-a"], "intents": ["y", "x"]}))
    assert LabelSet.load(f"{path}:bio").names == ("O", "I-b", "B-a", "B-b", "I-a")
    assert LabelSet.load(f"{path}:intents").names == ("y", "x")
    with pytest.raises(InputError, match=r"holds bio, intents; name one of them, as in .*labels\.json:bio"):
        LabelSet.load(str(path))
    for content, message in [(["a", "b", "a"], "'a' is in it twice"), ([1, 2], "each a string"), ("a", "a list")]:
        path.write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            LabelSet.load(str(path))
    with pytest.raises(InputError, match="No such file"):
        LabelSet.load(str(tmp_path / "other.json"))
