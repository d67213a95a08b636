"""Labelled examples in German and English, of which row i is the same in both."""

from datasets import ClassLabel, Dataset, Features, Value

from support.tiny import SENTENCES

GERMAN = (
    ["wo ist der hund?", "wer?"],
    ["der hund ist im haus", "die große katze"],
    [["haus"], ["katze", "große katze"]],
)
ENGLISH = ["where is the dog?", "who?"], ["in the house is the dog", "the big cat"], [["house", "the house"], ["cat"]]
QA = {"de": GERMAN, "en": ENGLISH}


def nli(lang, n=6):
    side = 0 if lang == "de" else 1
    numbers = list(range(n))
    premises, hypotheses = [SENTENCES[i][side] for i in numbers], [f"{SENTENCES[-i][side]} {i}" for i in numbers]
    columns = {"premise": premises, "hypothesis": hypotheses, "label": [i % 3 for i in numbers], "number": numbers}
    columns["lang"] = [lang] * n
    features = {name: Value("string") for name in columns}
    features |= {"label": ClassLabel(names=["yes", "maybe", "no"]), "number": Value("int64")}
    return Dataset.from_dict(columns, features=Features(features))


def qa(lang):
    """Questions with answers as SQuAD has them, a dict of lists."""
    rows = []
    for k, (question, context, found) in enumerate(zip(*QA[lang], strict=True)):
        answers = {"text": found, "answer_start": [context.index(answer) for answer in found]}
        rows.append({"id": f"q{k}", "question": question, "context": context, "answers": answers})
    return Dataset.from_list(rows)


def change(data, row, **values):
    rows = data.to_list()
    rows[row].update(values)
    return Dataset.from_list(rows, features=data.features)
