"""Code-switched pairs against a loop, and their groups through a real Trainer."""

from __future__ import annotations

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value, concatenate_datasets
from support.tiny import SENTENCES, make_encoder, make_tokenizer
from transformers import BertForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments

from hf_xalign.data.code_switch import GroupCollator, code_switch_pairs, gather_groups
from hf_xalign.errors import InputError

NLI = {"first": "premise", "second": "hypothesis"}
QA = {"first": "question", "second": ("context", "answers")}


def nli(lang, n=6):
    side = 0 if lang == "de" else 1
    rows = [
        {
            "premise": SENTENCES[i][side],
            "hypothesis": f"{SENTENCES[-i][side]} {i}",
            "label": i % 3,
            "number": i,
            "lang": lang,
        }
        for i in range(n)
    ]
    features = Features({name: Value("string") for name in ("premise", "hypothesis", "lang")})
    features |= {"label": ClassLabel(names=["yes", "maybe", "no"]), "number": Value("int64")}
    return Dataset.from_list(rows, features=Features(features))


def qa(lang):
    contexts = {"de": ["der hund ist im haus", "die große katze"], "en": ["in the house is the dog", "the big cat"]}
    questions = {"de": ["wo ist der hund?", "wer?"], "en": ["where is the dog?", "who?"]}
    answers = {"de": [["haus"], ["katze", "große katze"]], "en": [["house", "the house"], ["cat"]]}
    return Dataset.from_list(
        [
            {
                "id": f"q{row}",
                "question": questions[lang][row],
                "context": context,
                "answers": {"text": found, "answer_start": [context.index(answer) for answer in found]},
            }
            for row, (context, found) in enumerate(zip(contexts[lang], answers[lang], strict=True))
        ]
    )


def test_nli_against_a_loop():
    german, english = nli("de"), nli("en")
    wanted = []
    for row, (x, en) in enumerate(zip(german, english, strict=True)):
        wanted.append({**x, "hypothesis": en["hypothesis"], "group": row})
        wanted.append({**x, "premise": en["premise"], "group": row})
    found = code_switch_pairs(german, english, **NLI)
    assert found.to_list() == wanted
    assert found.features["label"] == german.features["label"]
    assert not {(row["premise"], row["hypothesis"]) for row in found} & {
        (row["premise"], row["hypothesis"]) for row in german
    }


@pytest.mark.parametrize("num_proc", [None, 2])
def test_columns_that_go_with_a_text(num_proc):
    german, english = (nli(lang).rename_column("lang", "premise_lang") for lang in ("de", "en"))
    found = code_switch_pairs(
        german, english, first=("premise", "premise_lang"), second="hypothesis", num_proc=num_proc
    )
    assert found["premise_lang"][:] == ["de", "en"] * 6
    assert found["group"][:] == [row for row in range(6) for _ in range(2)]


def test_by_id_in_any_order():
    german, english = nli("de"), nli("en")
    order = [3, 5, 0, 2, 1, 4]
    wanted = code_switch_pairs(german, english, **NLI).to_list()
    assert code_switch_pairs(german, english.select(order), id_column="number", **NLI).to_list() == wanted
    part = code_switch_pairs(german.select([4, 2]), english.select(order), id_column="number", **NLI)
    assert [row["number"] for row in part] == [4, 4, 2, 2]
    assert part[0] == {**wanted[8], "group": 0} and part[3] == {**wanted[5], "group": 1}


def test_answers_go_with_their_context():
    german, english = qa("de"), qa("en")
    found = code_switch_pairs(german, english, id_column="id", **QA)
    assert [row["question"] for row in found] == ["wo ist der hund?", "where is the dog?", "wer?", "who?"]
    for half, row in enumerate(found):
        own = (english, german)[half % 2][half // 2]
        assert (row["context"], row["answers"]) == (own["context"], own["answers"])
        for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True):
            assert row["context"][start : start + len(text)] == text


def test_answers_as_a_list_of_dicts_and_none_at_all():
    def as_list(data):
        rows = [
            {**row, "answers": [{"text": t, "answer_start": s} for t, s in zip(*row["answers"].values(), strict=True)]}
            for row in data
        ]
        rows[0]["answers"] = []
        features = Features({name: Value("string") for name in ("id", "question", "context")})
        features["answers"] = List({"text": Value("string"), "answer_start": Value("int32")})
        return Dataset.from_list(rows, features=features)

    german, english = as_list(qa("de")), as_list(qa("en"))
    found = code_switch_pairs(german, english, **QA)
    assert [len(row["answers"]) for row in found] == [0, 0, 1, 2]
    broken = german.map(lambda row: {"context": "x" + row["context"]})
    with pytest.raises(InputError, match="row 1: the answer 'katze' is not at offset 10"):
        code_switch_pairs(broken, english, **QA)


def change(data, row, **values):
    rows = data.to_list()
    rows[row].update(values)
    return Dataset.from_list(rows, features=data.features)


@pytest.mark.parametrize(
    ("german", "english", "options", "message"),
    [
        (nli("de"), nli("en", 5), NLI, "6 translated and 5 English"),
        (nli("de"), nli("en", 5), {**NLI, "id_column": "number"}, "row 5: number 5 is not in the English"),
        (
            nli("de"),
            change(nli("en"), 4, number=1),
            {**NLI, "id_column": "number"},
            "number 1 stands twice .* 1 and 4",
        ),
        (nli("de"), nli("en"), {**NLI, "id_column": "pair"}, "translated set has no column pair"),
        (nli("de"), nli("en").remove_columns("hypothesis"), NLI, "English set has no column hypothesis"),
        (nli("de"), change(nli("en"), 3, label=2), NLI, "row 3: label is 0, and 2 in the English"),
        (change(nli("de"), 2, premise=None), nli("en"), NLI, "row 2: the premise is none"),
        (nli("de"), change(nli("en"), 2, hypothesis=None), NLI, "row 2: the English hypothesis is none"),
        (nli("de"), nli("en"), {"first": "premise", "second": "premise"}, "each once"),
        (nli("de"), nli("en"), {"first": "premise", "second": ()}, "at least one"),
        (nli("de"), nli("en"), {"first": "label", "second": "premise"}, "column label is no text"),
        (nli("de").rename_column("number", "group"), nli("en"), NLI, "a column group already"),
        (qa("de"), qa("en"), {"first": "question", "second": "context"}, "answers has offsets into one of the texts"),
        (qa("de"), qa("en").remove_columns("answers").add_column("answers", ["a", "b"]), QA, "column answers is"),
        (
            change(qa("de"), 1, context="der hund"),
            qa("en"),
            QA,
            "row 1: the answer 'katze' is not at offset 10 of the c",
        ),
        (
            qa("de"),
            change(qa("en"), 0, context="a house"),
            QA,
            "row 0: the answer 'house' is not at offset 7 of the En",
        ),
        (qa("de"), change(qa("en"), 1, answers={"text": ["t"], "answer_start": [-3]}), QA, "row 1: the answer 't'"),
    ],
)
def test_bad_input(german, english, options, message):
    with pytest.raises(InputError, match=message):
        code_switch_pairs(german, english, **options)


def tokenized(n=6):
    tokenizer = make_tokenizer()
    halves = code_switch_pairs(nli("de", n), nli("en", n), **NLI)
    return halves.map(
        lambda batch: tokenizer(batch["premise"], batch["hypothesis"]),
        batched=True,
        remove_columns=["premise", "hypothesis", "lang", "number"],
    )


@pytest.mark.parametrize("num_proc", [None, 2])
def test_groups_of_any_size_become_rows(num_proc):
    tokenizer = make_tokenizer()

    def features(batch):
        found = tokenizer(
            batch["question"],
            batch["context"],
            truncation="only_second",
            max_length=18,
            stride=2,
            return_overflowing_tokens=True,
        )
        rows = found.pop("overflow_to_sample_mapping")
        return {**found, "group": [batch["group"][row] for row in rows]}

    halves = code_switch_pairs(qa("de"), qa("en"), **QA)
    flat = halves.map(features, batched=True, remove_columns=halves.column_names)
    gathered = gather_groups(flat, num_proc=num_proc)
    wanted = [[row["input_ids"] for row in flat if row["group"] == group] for group in (0, 1)]
    assert gathered["input_ids"][:] == wanted
    assert len(wanted[0]) > 2 and len(wanted[0]) != len(wanted[1])
    assert gathered.column_names == [name for name in flat.column_names if name != "group"]
    assert gather_groups(flat, columns=["input_ids"]).column_names == ["input_ids"]
    english = flat.select([0]).map(lambda row: {"group": 77})
    mixed = concatenate_datasets([flat, english])
    assert gather_groups(mixed)["input_ids"][:] == [*wanted, [wanted[0][0]]]


def test_groups_that_stand_apart_are_refused():
    data = tokenized()
    with pytest.raises(InputError, match=r"rows of group 1 stand apart \(at rows 2 and 5\)"):
        gather_groups(data.select([0, 1, 2, 4, 5, 3]))
    with pytest.raises(InputError, match="no column group"):
        gather_groups(data.remove_columns("group"))
    assert len(gather_groups(data.select([]))) == 0
    assert gather_groups(data.select([0, 1, 5]))["label"][:] == [[0, 0], [2]]


def test_the_collator_takes_groups_apart():
    data, tokenizer = tokenized(), make_tokenizer()
    collate = DataCollatorWithPadding(tokenizer)
    gathered = gather_groups(data)
    rows = [{**data[k]} for k in (8, 9, 2, 3)]
    for row in rows:
        del row["group"]
    wanted = collate(rows)
    for one in (gathered, gathered.with_format("torch")):
        batch = GroupCollator(collate)([one[4], one[1]])
        assert set(batch) == set(wanted) and all(torch.equal(batch[name], wanted[name]) for name in wanted)
    plain = GroupCollator(collate)(rows)
    assert all(torch.equal(plain[name], wanted[name]) for name in wanted)


def test_halves_are_in_one_batch_of_a_trainer(tmp_path):
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    config = make_encoder().config
    config.num_labels = 3
    data = tokenized(7)
    numbers = {tuple(row["input_ids"]): row["group"] for row in data}
    assert len(numbers) == 14
    seen = []

    class Recorded(Trainer):
        def training_step(self, model, inputs, *args, **kwargs):
            texts = [tuple(row[row != 0].tolist()) for row in inputs["input_ids"]]
            seen.append([numbers[text] for text in texts])
            return super().training_step(model, inputs, *args, **kwargs)

    args = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    evaluation = data.remove_columns("group").select(range(4))
    trainer = Recorded(
        BertForSequenceClassification(config),
        args,
        train_dataset=gather_groups(data),
        eval_dataset=evaluation,
        data_collator=GroupCollator(DataCollatorWithPadding(tokenizer)),
    )
    trainer.train()
    assert all(batch[::2] == batch[1::2] for batch in seen)
    assert [sorted(g for batch in epoch for g in batch[::2]) for epoch in (seen[:4], seen[4:])] == [list(range(7))] * 2
    assert seen[0] != [0, 0, 1, 1]
    assert trainer.evaluate()["eval_loss"] > 0
