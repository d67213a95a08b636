"""Word labels by a tagger on a frozen encoder: batches, kept vectors, loss, best sequences, languages."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from support.adapters import adapt, make_base
from support.families import save_base
from support.labelled import ENCODER, LABELS, SENTENCES, words
from support.maps import make_rotated
from support.numeric import assert_rounding
from support.tiny import make_tokenizer
from transformers import AutoModel

from hf_xalign.data.encoding import tokenize_words
from hf_xalign.tasks import LanguageInputs, TaggingTask, load_tagger, predict
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig

FOUR = [*SENTENCES, ["no"]]
# The encoder and a map over 16 numbers; an LSTM over at most 5 words of 3 x 16 numbers and a state of 6; a classifier
# over 12; and for each word the best or the sum of 3 labels.
TAGGER = ENCODER + 16 + 5 * (3 * 16 + 6 + 8) + 12 + 5 * (3 + 4)


def encode(task, model, language="en", max_length=32):
    languages = LanguageInputs.of(model)
    rows = words(FOUR, language, kinds=2)
    return task.encode(rows, make_tokenizer(), languages, max_length=max_length, training=False)


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
    return load_tagger(name, task, adapter=adapter, **{"lstm_size": 6, "dropout": 0.0, **settings})


def loss_of(task, tagger, batch):
    return task.loss(tagger(**task.training_inputs(batch)), batch)


def test_a_batch_holds_the_words_that_have_a_token():
    task = TaggingTask(LABELS)
    batch = task.collate(list(encode(task, make_base(), max_length=5)), 0)  # two special tokens: three are left
    spans = tokenize_words(make_tokenizer(), FOUR, 5).spans
    counts = [int((span[:, 1] > 0).sum()) for span in spans]
    assert batch["label_counts"].tolist() == counts and counts != [len(sentence) for sentence in FOUR]
    assert task.count_items(batch) == sum(counts)
    for row, (span, count) in enumerate(zip(spans, counts, strict=True)):
        ids = [LABELS.ids[name] for name in words(FOUR, kinds=2).rows["labels"][row][:count]]
        assert batch["word_spans"][row, :count].tolist() == span[:count].tolist()
        assert batch["labels"][row].tolist() == ids + [-100] * (max(counts) - count)
    assert batch["labels"].flatten()[batch["label_positions"]].min() >= 0


@pytest.mark.numeric
@pytest.mark.parametrize("kind", ["raw", "mapped", "languages", "linear"])
def test_kept_vectors_are_those_of_the_encoder(bases, kind):
    """Text of two languages; a sentence's vectors are its own, whatever it shares a pass with."""
    task = TaggingTask(LABELS)
    tagger = make(bases, kind, task).train()
    both = [encode(task, tagger, language) for language in ("en", "de")]
    kept = [row for rows in both for row in task.prepare(tagger, rows, 0)]
    plain = [row for rows in both for row in rows]
    assert len(kept) == 8
    collate = partial(task.collate, pad_token_id=0)
    for one, other in [*(([a], [b]) for a, b in zip(kept, plain, strict=True)), (kept, plain)]:
        with_vectors = collate(one)
        assert "input_ids" not in with_vectors
        found, expected = (loss_of(task, tagger, batch) for batch in (with_vectors, collate(other)))
        assert_rounding(found, expected, TAGGER + len(one))
    vectors = [torch.tensor(row["vectors"]) for row in kept]
    apart = any((a - b).abs().max() > 1e-3 for a, b in zip(vectors[:4], vectors[4:], strict=True))
    assert apart == (kind in ("mapped", "languages"))
    assert TaggingTask(LABELS, keep_vectors=False).prepare(tagger, both[0], 0) is both[0]


@pytest.mark.numeric
def test_loss_is_the_likelihood_and_predictions_the_best_sequences(bases):
    task = TaggingTask(LABELS, bio=True)
    tagger = make(bases, "raw", task).double().eval()
    with torch.no_grad():
        for parameter in tagger.crf.parameters():
            parameter.normal_()
        tagger.classifier.weight.mul_(5)
    rows = encode(task, tagger)
    expected, alone = [], 0.0
    for row in rows:
        batch = task.collate([row], 0)
        inputs = task.inputs(batch)
        assert "labels" not in inputs
        expected += tagger.decode(**inputs)
        alone += tagger(**inputs, labels=batch["labels"], num_items_in_batch=1).loss.item()
    assert_rounding(loss_of(task, tagger, task.collate(list(rows), 0)), alone, TAGGER + len(rows))
    found = predict(tagger, task, rows, 0, batch_size=3)
    assert [prediction.tolist() for prediction in found] == expected
    names = [[LABELS.names[tag] for tag in tags] for tags in expected]
    assert all(before != "O" for own in names for before, name in zip(["O", *own], own) if name == "I-a")
    scores = task.score(words(FOUR, kinds=2), rows, found)
    assert scores.totals().keys() == {"accuracy", "span_f1", "token_f1"}


def test_what_is_read_and_what_is_trained(bases):
    task = TaggingTask(LABELS)
    layers = {kind: list(make(bases, kind, task).config.layers) for kind in ("raw", "mapped", "linear")}
    assert layers == {"raw": [-3, -2, -1], "mapped": [1, 2], "linear": [-1]}  # of two layers and the embeddings
    one, other = (make(bases, "linear", task, layers=[-2, -1], seed=3) for _ in range(2))
    assert list(one.config.layers) == [-2, -1]
    trained = {name.split(".")[0] for name, p in one.named_parameters() if p.requires_grad}
    assert trained == {"lstm", "classifier", "pairs", "crf"}
    assert torch.equal(one.classifier.weight, other.classifier.weight)


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
    text = words(FOUR, kinds=2)
    sets = {"train_dataset": [text], "eval_dataset": {"en": text}, "processing_class": make_tokenizer()}
    trainer = TaskTrainer(tagger, args, task=task, **sets)
    trainer.train()
    assert len(calls) == 1  # once for all of the training text
    assert trainer.score()["en"].totals()["accuracy"] == 1.0
    assert all(torch.equal(before[name], value) for name, value in tagger.backbone.state_dict().items())
