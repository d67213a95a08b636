"""Labelled text from every format, and the labels of a task."""

from __future__ import annotations

import gzip

from datasets import ClassLabel, Dataset, Features, List, Value
from support.labelled import write_json, write_lines

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


def test_jsonl_of_words_with_named_columns_and_nfc(tmp_path):
    rows = [{"tokens": ["cafe\u0301", "ist"], "tags": ["NOUN", "VERB"]}, {"tokens": ["ja"], "tags": ["X"]}]
    path = write_lines(tmp_path / "de.jsonl", rows)
    found = read_examples(f"de={path}", "token", label_column="tags")
    assert found.language == "de" and len(found) == 2
    assert found.rows[:] == {"tokens": [["café", "ist"], ["ja"]], "labels": [["NOUN", "VERB"], ["X"]], "line": [1, 2]}
    assert found.label_names == {"NOUN", "VERB", "X"} and found.place(1) == f"{path}, line 2"
    fewer = read_examples(f"de={path}", "token", label_column="tags", max_examples=1)
    assert len(fewer) == 1 and fewer.fingerprint != found.fingerprint


def test_columns_of_conll_and_of_conllu(tmp_path):
    path = tmp_path / "ner.conll.gz"
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nPeter NNP B-NP B-PER"
    path.write_bytes(gzip.compress(text.encode()))
    found = read_examples(f"en={path}", "token").rows
    assert found["tokens"][:] == [["EU", "rejects"], ["Peter"]]
    assert found["labels"][:] == [["B-ORG", "O"], ["B-PER"]] and found["line"][:] == [3, 7]
    assert read_examples(f"en={path}", "token", label_column="2").rows["labels"][1] == ["NNP"]

    path = tmp_path / "es.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    found = read_examples(f"es={path}", "token").rows  # without multiword and empty tokens
    assert found["tokens"][:] == [["Vamos", "nos"], ["mar"]]
    assert found["labels"][:] == [["VERB", "PRON"], ["NOUN"]] and found["line"][:] == [3, 7]
    assert read_examples(f"es={path}", "token", label_column="xpos").rows["labels"][0] == ["v", "p"]


def test_texts_and_pairs_of_texts(tmp_path):
    path = write_lines(tmp_path / "nli.jsonl", [{"text_a": " a ", "text_b": "b", "label": 2}])
    assert read_examples(f"en={path}", "sequence").rows[0] == {"text_a": "a", "text_b": "b", "label": "2", "line": 1}
    path = write_lines(tmp_path / "topic.jsonl", [{"text": "a", "intent": "x"}])
    found = read_examples(f"en={path}", "sequence", label_column="intent")
    assert found.rows.column_names == ["text_a", "label", "line"]
    path = write_lines(tmp_path / "xnli.jsonl", [{"premise": "a", "hypothesis": "b", "label": "neutral"}])
    found = read_examples(f"en={path}", "sequence", text_columns=("premise", "hypothesis"))
    assert (found.rows[0]["text_a"], found.rows[0]["text_b"]) == ("a", "b")
    english = read_examples(f"en={path}", "sequence", text_columns=("premise", "hypothesis"))
    german = read_examples(f"de={path}", "sequence", text_columns=("premise", "hypothesis"))
    assert list(by_language([german, english], ["en"])) == ["de", "en"]


def test_hub_classes_come_as_names(monkeypatch):
    features = Features({"tokens": List(Value("string")), "ner": List(ClassLabel(names=["O", "B-A"]))})
    hub = Dataset.from_dict({"tokens": [["a", "b"]], "ner": [[1, 0]]}, features=features)
    requests = []
    monkeypatch.setattr(readers_module, "load_hub", lambda *given: requests.append(given) or hub)
    found = read_examples("de=owner/name:de", "token", label_column="ner", split="test")
    assert requests == [("owner/name:de", "test", None)]
    assert found.rows["labels"][0] == ["B-A", "O"] and found.place(0) == "owner/name:de, row 1"


def test_label_sets(tmp_path):
    assert LabelSet.of(["I-b", "O", "B-a"]).names == ("O", "B-a", "I-a", "B-b", "I-b")  # ordered and closed
    assert LabelSet.of(["VERB", "NOUN", "X"]).names == ("NOUN", "VERB", "X")
    assert not LabelSet.of(["B-a", "NOUN"]).mark_spans
    assert LabelSet.of({"O", "B-a"}).config()["label2id"] == {"O": 0, "B-a": 1, "I-a": 2}
    path = write_json(tmp_path / "labels.json", {"bio": ["O", "I-b", "B-a"], "intents": ["y", "x"]})
    assert LabelSet.load(f"{path}:bio").names == ("O", "I-b", "B-a", "B-b", "I-a")
    assert LabelSet.load(f"{path}:intents").names == ("y", "x")
    # Labels that the training text has seen.
    path = write_lines(tmp_path / "de.jsonl", [{"tokens": ["a"], "labels": ["I-LOC"]}])
    read_examples(f"de={path}", "token").check_labels(LabelSet.of(["O", "B-LOC"]), "the training text")
