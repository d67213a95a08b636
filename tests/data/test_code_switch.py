"""Code-switched pairs against a loop, and their groups."""

from datasets import concatenate_datasets
from support.batches import assert_batch
from support.examples import nli, qa
from support.tiny import make_tokenizer
from transformers import DataCollatorWithPadding

from hf_xalign.data.code_switching import GroupCollator, code_switch_pairs, gather_groups

NLI = {"first": "premise", "second": "hypothesis"}
QA = {"first": "question", "second": ("context", "answers")}


def tokenized(n=6):
    tokenizer = make_tokenizer()
    halves = code_switch_pairs(nli("de", n), nli("en", n), **NLI)
    left_out = ["premise", "hypothesis", "lang", "number"]
    return halves.map(lambda row: tokenizer(row["premise"], row["hypothesis"]), batched=True, remove_columns=left_out)


def test_nli_against_a_loop():
    german, english = nli("de"), nli("en")
    wanted = []
    for row, (x, en) in enumerate(zip(german, english, strict=True)):
        wanted += [{**x, "hypothesis": en["hypothesis"], "group": row}, {**x, "premise": en["premise"], "group": row}]
    found = code_switch_pairs(german, english, **NLI)
    assert found.to_list() == wanted
    assert code_switch_pairs(german, english.select([3, 5, 0, 2, 1, 4]), id_column="number", **NLI).to_list() == wanted
    assert found.features["label"] == german.features["label"]


def test_answers_go_with_their_context():
    german, english = qa("de"), qa("en")
    found = code_switch_pairs(german, english, id_column="id", **QA)
    assert found["question"][:] == ["wo ist der hund?", "where is the dog?", "wer?", "who?"]
    for half, row in enumerate(found):
        own = (english, german)[half % 2][half // 2]
        assert (row["context"], row["answers"]) == (own["context"], own["answers"])
    lists = code_switch_pairs(qa("de", as_list=True), qa("en", as_list=True), **QA)
    assert [len(row["answers"]) for row in lists] == [0, 0, 1, 2]


def test_groups_of_any_size_become_rows():
    tokenizer = make_tokenizer()

    def features(batch):
        cut = {"truncation": "only_second", "max_length": 18, "stride": 2, "return_overflowing_tokens": True}
        found = tokenizer(batch["question"], batch["context"], **cut)
        rows = found.pop("overflow_to_sample_mapping")
        return {**found, "group": [batch["group"][row] for row in rows]}

    halves = code_switch_pairs(qa("de"), qa("en"), **QA)
    flat = halves.map(features, batched=True, remove_columns=halves.column_names)
    wanted = [[row["input_ids"] for row in flat if row["group"] == group] for group in (0, 1)]
    assert len(wanted[0]) > 2 and len(wanted[0]) != len(wanted[1])
    gathered = gather_groups(flat)
    assert gathered["input_ids"][:] == wanted
    mixed = concatenate_datasets([flat, flat.select([0]).map(lambda row: {"group": 77})])
    assert gather_groups(mixed)["input_ids"][:] == [*wanted, [wanted[0][0]]]
    assert gather_groups(tokenized().select([0, 1, 5]))["label"][:] == [[0, 0], [2]]


def test_the_collator_takes_groups_apart():
    data = tokenized()
    collate = DataCollatorWithPadding(make_tokenizer())
    gathered = gather_groups(data)
    rows = data.remove_columns("group").select([8, 9, 2, 3]).to_list()
    wanted = dict(collate(rows))
    for given in (*([one[4], one[1]] for one in (gathered, gathered.with_format("torch"))), rows):
        assert_batch(dict(GroupCollator(collate)(given)), wanted)
