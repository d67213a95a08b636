"""Word labels by a tagger on a frozen encoder: rows, kept vectors, loss, best sequences, languages, bad input."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from support.adapters import adapt, make_base
from support.families import save_base
from support.maps import make_rotated
from support.tiny import make_tokenizer
from transformers import AutoModel, BertForTokenClassification

from hf_xalign.data.encoding import tokenize_words
from hf_xalign.errors import InputError
from hf_xalign.tasks import Examples, LabelSet, LanguageInputs, TaggingTask, load_tagger, predict
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig

LABELS = LabelSet.of(["O", "B-a"])
SENTENCES = [["the", "katze", "sees"], ["open", "file"], ["a", "house", "is", "the", "dog"], ["no"]]
SMALL = {"lstm_size": 6, "dropout": 0.0}


def words(language="en", sentences=SENTENCES, names=None):
    names = names or [[("O", "B-a")[len(word) % 2] for word in sentence] for sentence in sentences]
    rows = Dataset.from_dict({"tokens": sentences, "labels": names, "line": list(range(1, len(sentences) + 1))})
    return Examples("file.jsonl", language, rows)


def encoded(task, model, language="en", max_length=32, training=False):
    languages = LanguageInputs.of(model)
    return task.encode(words(language), make_tokenizer(), languages, max_length=max_length, training=training)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A raw encoder, one with a map for each language, and modules for the first."""
    root = tmp_path_factory.mktemp("bases")
    save_base("bert", root / "raw")
    make_rotated(layers=(-2, -1)).save_pretrained(root / "mapped")
    for kind in ("languages", "linear"):
        raw = AutoModel.from_pretrained(root / "raw", add_pooling_layer=False)
        adapt(raw, kind, init="random").save_pretrained(root / kind)
    return root


def make(bases, kind, task, **settings):
    adapter = None if kind in ("raw", "mapped") else str(bases / kind)
    name = str(bases / (kind if adapter is None else "raw"))
    return load_tagger(name, task, adapter=adapter, **{**SMALL, **settings})


def test_a_batch_holds_the_words_that_have_a_token():
    task = TaggingTask(LABELS)
    rows = encoded(task, make_base(), max_length=5)  # two special tokens: three are left
    batch = task.collator(0)(list(rows))
    spans = tokenize_words(make_tokenizer(), SENTENCES, 5).spans
    counts = [int((span[:, 1] > 0).sum()) for span in spans]
    assert batch["label_counts"].tolist() == counts and counts != [len(sentence) for sentence in SENTENCES]
    assert task.count_items(batch) == sum(counts)
    width = max(counts)
    for row, (span, count) in enumerate(zip(spans, counts, strict=True)):
        names = words().rows["labels"][row]
        assert batch["word_spans"][row, :count].tolist() == span[:count].tolist()
        assert batch["labels"][row].tolist() == [LABELS.ids[n] for n in names[:count]] + [-100] * (width - count)
    assert batch["labels"].flatten()[batch["label_positions"]].min() >= 0


@pytest.mark.parametrize("kind", ["raw", "mapped", "languages", "linear"])
def test_kept_vectors_are_those_of_the_encoder(bases, kind):
    """Text of two languages; a sentence's vectors are of its own, whatever it shares a pass with."""
    task = TaggingTask(LABELS)
    tagger = make(bases, kind, task)
    both = [encoded(task, tagger, language) for language in ("en", "de")]
    kept = [row for rows in both for row in task.prepare(tagger, rows, 0)]
    plain = [row for rows in both for row in rows]
    assert len(kept) == 8
    collate = task.collator(0)
    tagger.train()
    for one, other in zip(kept, plain, strict=True):
        with_vectors, with_ids = collate([one]), collate([other])
        assert "input_ids" not in with_vectors
        losses = [task.loss(tagger(**task.training_inputs(batch)), batch) for batch in (with_vectors, with_ids)]
        torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)
    whole = [task.loss(tagger(**task.training_inputs(batch)), batch) for batch in (collate(kept), collate(plain))]
    torch.testing.assert_close(*whole, atol=1e-4, rtol=1e-5)
    vectors = [torch.tensor(row["vectors"]) for row in kept]
    apart = any((a - b).abs().max() > 1e-3 for a, b in zip(vectors[:4], vectors[4:], strict=True))
    assert apart == (kind in ("mapped", "languages"))
    assert TaggingTask(LABELS, keep_vectors=False).prepare(tagger, both[0], 0) is both[0]


def test_loss_is_the_likelihood_and_predictions_the_best_sequences(bases):
    task = TaggingTask(LABELS, bio=True)
    tagger = make(bases, "raw", task)
    with torch.no_grad():
        for parameter in tagger.crf.parameters():
            parameter.normal_()
        tagger.classifier.weight.mul_(5)
    rows = encoded(task, tagger)
    tagger.eval()
    expected, alone = [], 0.0
    for row in rows:
        batch = task.collator(0)([row])
        inputs, _ = task.split(batch)
        assert "labels" not in inputs
        [tags] = tagger.decode(**inputs)
        expected.append(tags)
        alone += tagger(**inputs, labels=batch["labels"], reduction="sum").loss.item()
    batch = task.collator(0)(list(rows))
    loss = task.loss(tagger(**task.training_inputs(batch)), batch)
    assert loss.item() == pytest.approx(alone, rel=1e-5)
    found = predict(tagger, task, rows, 0, batch_size=3)
    assert [prediction.tolist() for prediction in found] == expected
    names = [[LABELS.names[tag] for tag in tags] for tags in expected]
    assert all(before != "O" for own in names for before, name in zip(["O", *own], own) if name == "I-a")
    assert task.score(words(), rows, found).totals().keys() == {"accuracy", "span_f1", "token_f1"}


def test_what_is_read_and_what_is_trained(bases):
    task = TaggingTask(LABELS)
    layers = {kind: list(make(bases, kind, task).config.layers) for kind in ("raw", "mapped", "linear")}
    assert layers == {"raw": [-3, -2, -1], "mapped": [1, 2], "linear": [-1]}  # of two layers and the embeddings
    tagger = make(bases, "linear", task, layers=[-2, -1], seed=3)
    assert list(tagger.config.layers) == [-2, -1]
    trained = {name.split(".")[0] for name, p in tagger.named_parameters() if p.requires_grad}
    assert trained == {"lstm", "classifier", "pairs", "crf"}
    again = make(bases, "linear", task, layers=[-2, -1], seed=3)
    assert torch.equal(tagger.classifier.weight, again.classifier.weight)


def test_it_learns_from_kept_vectors_and_leaves_the_encoder(bases, tmp_path):
    task = TaggingTask(LABELS, bio=True)
    tagger = make(bases, "linear", task)
    before = {name: value.clone() for name, value in tagger.backbone.state_dict().items()}
    calls = []
    tagger.backbone.register_forward_hook(lambda *_: calls.append(1))
    args = TaskConfig(
        output_dir=str(tmp_path), head="tagger", use_cpu=True, report_to="none", disable_tqdm=True,
        learning_rate=1e-2, num_train_epochs=30, per_device_train_batch_size=2,
    )  # fmt: skip
    assert args.preset == "rotate" and args.weight_decay == 0
    trainer = TaskTrainer(
        tagger,
        args,
        task=task,
        train_dataset=[words()],
        eval_dataset={"en": words()},
        processing_class=make_tokenizer(),
    )
    trainer.train()
    assert len(calls) == 1  # once for all of the training text
    assert trainer.score()["en"].totals()["accuracy"] == 1.0
    assert all(torch.equal(before[name], value) for name, value in tagger.backbone.state_dict().items())


def test_bad_input(bases, tmp_path):
    task = TaggingTask(LABELS, bio=True)
    strange = words(sentences=[["the", "cat"], ["a", "dog"]], names=[["O", "O"], ["O", "I-a"]])
    languages = LanguageInputs()
    given = {"max_length": 32, "training": True}
    with pytest.raises(InputError, match=r"file\.jsonl, line 2: word 2 is I-a after O.*tagger_bio=false"):
        task.encode(strange, make_tokenizer(), languages, **given)
    assert len(task.encode(strange, make_tokenizer(), languages, max_length=32, training=False)) == 2
    assert len(TaggingTask(LABELS).encode(strange, make_tokenizer(), languages, **given)) == 2
    with pytest.raises(InputError, match="has maps already: leave adapter="):
        load_tagger(str(bases / "mapped"), task, adapter=str(bases / "linear"))
    BertForTokenClassification(make_base().config).save_pretrained(tmp_path / "task")
    with pytest.raises(InputError, match="has a task head: a tagger goes on the encoder alone"):
        load_tagger(str(tmp_path / "task"), task)
    tagger = make(bases, "raw", task)
    linear = TaskConfig(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    assert linear.preset == "ours"
    with pytest.raises(InputError, match="head=linear with a BiLSTMCRFForTokenClassification"):
        TaskTrainer(tagger, linear, task=task, train_dataset=[words()], processing_class=make_tokenizer())
    with pytest.raises(InputError, match="head=crf: choose one of linear, tagger"):
        TaskConfig(output_dir=str(tmp_path), head="crf", use_cpu=True)
