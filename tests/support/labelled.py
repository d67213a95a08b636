"""Labelled words, texts and questions, in memory and as files."""

import json
from functools import partial

from datasets import Dataset
from tokenizers import normalizers

from hf_xalign.tasks import Examples, LabelSet
from hf_xalign.tasks.squad import COLUMNS
from support.refusals import assert_refused
from support.tiny import make_tokenizer

LABELS = LabelSet.of(["O", "B-a"])  # and I-a, which goes with B-a
SENTENCES = [["the", "katze", "sees"], ["open", "file"], ["a", "house", "is", "the", "dog"]]
CONTEXT = "the cat sees the dog . a  small   house is open, and nobody opens file 27 ! the dog's name is katze ."
GERMAN = "Der Rhein fließt durch Köln. Die Elbe fließt durch Dresden."
# Rounding operations on the longest path through a tiny encoder: 2 layers of 6 matrix products (4 over 16 numbers, one
# over 32, one over a head's 8), a softmax and a sum over at most 32 tokens, and 2 norms over 16 numbers.
ENCODER = 2 * (4 * 16 + 32 + 8 + 2 * 32 + 2 * 2 * 16)


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_json(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def words(sentences=SENTENCES, language="en", kinds=3, names=None):
    names = names or [[LABELS.names[len(word) % kinds] for word in sentence] for sentence in sentences]
    rows = Dataset.from_dict({"tokens": sentences, "labels": names, "line": list(range(1, len(sentences) + 1))})
    return Examples("file.jsonl", language, rows)


def texts(language="en", pair=True):
    sides = {"text_a": ["the cat", "a dog is open"], **({"text_b": ["open file the", "no"]} if pair else {})}
    return Examples("t.jsonl", language, Dataset.from_dict({**sides, "label": ["y", "x"], "line": [1, 2]}))


def pairs(language, label="x", count=40):
    rows = [{"text_a": f"{language} a {n}", "text_b": f"{language} b {n}", "label": label} for n in range(count)]
    return Examples(f"{language}.jsonl", language, Dataset.from_list(rows))


def blind():
    tokenizer = make_tokenizer()
    rules = [normalizers.BertNormalizer(), normalizers.Replace("\u200b", "")]
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(rules)
    return tokenizer


def segmented():
    """A tokenizer that numbers the two texts of a pair 0 and 1."""
    tokenizer = make_tokenizer(pair="[CLS] $A [SEP] $B:1 [SEP]:1")
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


def asked(rows, question_lang="en", context_lang="en"):
    columns = {name: [] for name in COLUMNS}
    for number, (question, context, answer) in enumerate(rows):
        answers = {"text": [answer, "cat"], "answer_start": [context.index(answer), 4]}
        own = (str(number), question, context, answers, question_lang, context_lang, number + 1)
        for name, value in zip(COLUMNS, own, strict=True):
            columns[name].append(value)
    return Examples("qa.json", context_lang, Dataset.from_dict(columns, features=COLUMNS), "question")


def squad(contexts=(GERMAN,), questions=("Was fließt in Köln?", "Wo ist die Elbe?"), answers=("Der Rhein", "Dresden")):
    paragraphs = []
    for c, context in enumerate(contexts):
        found = [{"text": text, "answer_start": context.index(text)} for text in answers]
        rows = enumerate(zip(questions, found, strict=True))
        asked_here = [{"id": f"c{c}q{q}", "question": question, "answers": [own]} for q, (question, own) in rows]
        paragraphs.append({"context": context, "qas": asked_here})
    return {"version": "1.1", "data": [{"title": "Flüsse", "paragraphs": paragraphs}]}


def squad_rows(content):
    rows = []
    for paragraph in content["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            answers = {name: [one[name] for one in question["answers"]] for name in ("text", "answer_start")}
            rows.append({**question, "context": paragraph["context"], "title": "t", "answers": answers})
    return rows


def slow_spans(labels):
    """A span begins at a word whose label is B, or I after another kind or O; it goes on over I of its kind."""
    found = []
    for start, label in enumerate(labels):
        before = labels[start - 1] if start else "O"
        if label == "O" or (label[0] == "I" and before[2:] == label[2:] and before != "O"):
            continue
        end = start + 1
        while end < len(labels) and labels[end] == f"I-{label[2:]}":
            end += 1
        found.append((start, end, label[2:]))
    return found


def check(rows, folder=None):
    """Check that each row of (message, function, *arguments) is refused."""
    table = {f"{k}, {message}": (partial(call, *given), message) for k, (message, call, *given) in enumerate(rows)}
    assert_refused(table, folder)
