"""Labelled text in the formats of published data sets, read without naming a column."""

import json
import logging
import re

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from support.labelled import check

from hf_xalign.tasks import examples, read_examples

SAID = "change my alarm tomorrow to wake me up 30 minutes earlier"
SPANS = [{"start": word.start(), "length": len(word[0])} for word in re.finditer(r"\w+", SAID)]
FACEBOOK = f"alarm/modify_alarm\t16:24:datetime,39:57:datetime\t{SAID}\ten_XX\t"
FACEBOOK += json.dumps({"tokens": re.findall(r"\w+", SAID), "tokenSpans": SPANS})
SNIPS = [{"text": "add "}, {"text": "Sabrina  Salerno", "entity": "artist"}, {"text": " to my "}]
SNIPS += [{"text": "pop", "entity": "playlist"}, {"text": "'s list"}]
XNLI = "language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2\tpairID\n"
MULTINLI = [{"gold_label": label, "sentence1": "a", "sentence2": "b"} for label in ("-", "neutral")]
# {data set: (file, content, language)}, with the words and labels that come of it.
WORDS = {
    "CoNLL-2002, Spanish": ("esp.testa", "Sao B-LOC\nPaulo I-LOC\n( O\n\n", "es", ["Sao Paulo (", "B-LOC I-LOC O"]),
    "CoNLL-2002, Dutch": (
        "ned.train", "-DOCSTART- -DOCSTART- O\nDe Art O\nLenzi N B-PER\n", "nl", ["De Lenzi", "O B-PER"]
    ),
    "CoNLL-2003, IOB1": (
        "eng.train",
        "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nUN NNP I-NP B-ORG\nUN NNP I-NP I-ORG\nin IN I-PP O\n"
        "UK NNP I-NP I-LOC\nLtd NNP I-NP I-ORG\n",
        "en",
        ["EU UN UN in UK Ltd", "B-ORG B-ORG I-ORG O B-LOC B-ORG"],
    ),
    "CoNLL-2003, German": ("deu.testb", "ARD ARD NE I-NC I-ORG\n", "de", ["ARD", "B-ORG"]),
    "pioNER": ("dev.conll03", "Երևան NNP NP B-LOC\n", "hy", ["Երևան", "B-LOC"]),
    "WikiANN": ("train", "fr:R\tB-PER\nfr::\tO\nfr:fr:x\tO\n", "fr", ["R : fr:x", "B-PER O O"]),
    "WikiANN in XTREME": ("dev-fr.tsv", "R\tO\na:b\tB-PER\n\nx\tO\n", "fr", ["R a:b", "O B-PER"]),
    "MultiATIS++": (
        "train_EN.tsv", "id\tutterance\tslot_labels\tintent\n1\tto new york\tO B-city I-city\tatis_flight\n", "en",
        ["to new york", "O B-city I-city"],
    ),
    "Facebook": (
        "train-en.tsv", f"{FACEBOOK}\n", "en",
        [
            SAID,
            "O O O B-datetime O O O O B-datetime I-datetime I-datetime",
        ],
    ),
    "SNIPS": (
        "train_Add.json", json.dumps({"AddToPlaylist": [{"data": SNIPS}]}), "en",
        ["add Sabrina Salerno to my pop's list", "O B-artist I-artist O O B-playlist O"],
    ),
}  # fmt: skip
TEXTS = {
    "XNLI": (
        "xnli.test.tsv", XNLI + 'ar\tneutral\t\ta\tb\t1\nde\tentailment\t\t"Ja\tNein\t1\n', "de-AT",
        {"text_a": '"Ja', "text_b": "Nein", "label": "entailment", "line": 3},
    ),
    "MultiNLI": (
        "multinli.jsonl", "".join(json.dumps(row) + "\n" for row in MULTINLI), "en",
        {"text_a": "a", "text_b": "b", "label": "neutral", "line": 2},
    ),
    "MultiNLI, translated": (
        "multinli.train.de.tsv", "premise\thypo\tlabel\na\tb\tcontradictory\n", "de",
        {"text_a": "a", "text_b": "b", "label": "contradiction", "line": 2},
    ),
    "MultiATIS++": (*WORDS["MultiATIS++"][:3], {"text_a": "to new york", "label": "atis_flight", "line": 2}),
    "Facebook": (
        *WORDS["Facebook"][:3],
        {"text_a": SAID, "label": "alarm/modify_alarm", "line": 1},
    ),
    "SNIPS": (
        *WORDS["SNIPS"][:3],
        {"text_a": "add Sabrina  Salerno to my pop's list", "label": "AddToPlaylist", "line": 1},
    ),
}  # fmt: skip


def read(folder, name, content, language, kind, **options):
    (folder / name).write_text(content, encoding="utf-8")
    return read_examples(f"{language}={folder / name}", kind, **options)


@pytest.mark.parametrize("name", WORDS)
def test_labelled_words(tmp_path, name):
    *file, expected = WORDS[name]
    row = read(tmp_path, *file, "token").rows[0]
    assert [" ".join(row["tokens"]), " ".join(row["labels"])] == expected


@pytest.mark.parametrize("name", TEXTS)
def test_labelled_texts(tmp_path, name):
    *file, expected = TEXTS[name]
    assert read(tmp_path, *file, "sequence").rows.to_list() == [expected]


def test_columns_of_the_hub_and_of_the_user(tmp_path, monkeypatch):
    names = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-PER"]))})
    wikiann = Dataset.from_dict({"tokens": [["a", "b"]], "ner_tags": [[1, 0]]}, features=names)
    nli = Features({name: Value("string") for name in ("premise", "hypothesis")} | {"label": ClassLabel(names=["x"])})
    xnli = Dataset.from_dict({"premise": ["a"], "hypothesis": ["b"], "label": [0]}, features=nli)
    for found, kind, expected in (
        (wikiann, "token", {"tokens": ["a", "b"], "labels": ["B-PER", "O"], "line": 1}),
        (xnli, "sequence", {"text_a": "a", "text_b": "b", "label": "x", "line": 1}),
    ):
        monkeypatch.setattr(examples, "load_hub", lambda *_, found=found: found)
        assert read_examples("de=owner/name:de", kind).rows.to_list() == [expected]
    named = {"text_columns": ["words"], "label_column": "pos"}
    assert read(tmp_path, "a.csv", "words;pos\nthe cat;DET NOUN\n", "en", "token", **named).rows[0]["labels"] == [
        "DET", "NOUN",
    ]  # fmt: skip


def test_several_files_and_rows_left_out(tmp_path, caplog):
    for intent in ("PlayMusic", "AddToPlaylist"):
        (tmp_path / f"train_{intent}.json").write_text(json.dumps({intent: [{"data": SNIPS}] * 2}))
    found = read_examples(f"en={tmp_path}/train_*.json", "sequence")
    assert found.rows["label"][:] == ["AddToPlaylist"] * 2 + ["PlayMusic"] * 2 and found.rows["line"][:] == [
        1,
        2,
        3,
        4,
    ]
    with caplog.at_level(logging.INFO):
        read(tmp_path, *TEXTS["XNLI"][:3], "sequence", max_examples=1)
        read(tmp_path, *WORDS["CoNLL-2003, IOB1"][:3], "token")
    assert "skipped examples (1 in ar)" in caplog.text and "3 spans began with I-" in caplog.text

    def load(name, content, language, kind, folder):
        return read(folder, name, content, language, kind)

    check(
        [
            ("no examples in it in fr; there are 1 in ar, 1 in de", load, *TEXTS["XNLI"][:2], "fr", "sequence"),
            ("line 1: not the columns intent", load, "a.tsv", FACEBOOK.replace(":datetime,", ","), "en", "token"),
            ("line 1: 'data' is not a list of pieces", load, "a.json", '{"A": [{"data": [1]}]}', "en", "token"),
            ("3 words in 'tokens' but 2", load, "a.tsv", WORDS["MultiATIS++"][1].replace("O ", ""), "en", "token"),
            (r"x_\*\.json: no such file", lambda folder: read_examples(f"en={folder}/x_*.json", "token")),
        ],
        tmp_path,
    )
