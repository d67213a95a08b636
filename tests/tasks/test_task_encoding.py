"""Labelled text to batches and back: first subwords, truncation, languages, and models and taggers that read them."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from support.adapters import adapt, make_base
from support.families import CONFIGS, save_base
from support.labelled import ENCODER, LABELS, SENTENCES, blind, check, segmented, texts, words
from support.maps import make_rotated
from support.numeric import assert_rounding
from support.tagger import best_tags
from support.tiny import make_tokenizer
from transformers import AutoModel

from hf_xalign.data.encoding import tokenize_words
from hf_xalign.modeling.maps import LanguageMap, SideMap
from hf_xalign.modeling.xalign.linear import map_adapter
from hf_xalign.tasks import (
    LabelSet,
    LanguageInputs,
    SequenceTask,
    TaggingTask,
    TokenTask,
    load_tagger,
    load_task_model,
    predict,
)
from hf_xalign.tasks.scoring import count_spans

TOKENS, TEXTS, TAGS = TokenTask(LABELS), SequenceTask(LabelSet.of(["x", "y"])), TaggingTask(LABELS)
BIO = TaggingTask(LABELS, bio=True)
FOUR = [*SENTENCES, ["no"]]
MAPPED = ENCODER + 16 + 16  # with a map and a head, each over 16 numbers
# The encoder and a map over 16 numbers; an LSTM over at most 5 words of 3 x 16 numbers and a state of 6; a classifier
# over 12; and for each word the best or the sum of 3 labels.
TAGGER = ENCODER + 16 + 5 * (3 * 16 + 6 + 8) + 12 + 5 * (3 + 4)


def encode(task, examples, languages=None, tokenizer=None, **options):
    options = {"max_length": 32, "training": False, **options}
    return task.encode(examples, tokenizer or make_tokenizer(), languages or LanguageInputs(), **options)


def test_words_without_a_label_are_left_out():
    examples = words([["the", "dog", "sees"], ["a", "cat"]], names=[["B-a", "_", "O"], ["_", "_"]])
    tagger = BIO.collate(list(encode(BIO, examples)), 0)
    assert tagger["labels"].tolist() == [[1, -100, 0], [-100] * 3] and tagger["label_positions"].tolist() == [0, 2]
    for batch in (tagger, TOKENS.collate(list(encode(TOKENS, examples)), 0)):
        assert batch["label_counts"].tolist() == [2, 0]
    assert batch["labels"].tolist() == [1, 0] and batch["label_positions"].tolist() == [1, 3]


def test_truncation_is_counted_and_dropped_words_can_be_unknown_ones(caplog):
    long = words([["the", "dog", "zzzz", "cat"], ["the"]])
    for training, what in ((True, "ignored"), (False, "counted as wrong")):
        encoded = encode(TOKENS, long, max_length=6, training=training)
        # [CLS] the dog z z, and [SEP]: the third word is cut in part, the fourth as a whole.
        assert encoded["first"][:] == [[1, 2, -1, -1], [1]]
        assert f"file.jsonl: 2 words cut off ({what}) by max_length=6" in caplog.text
        batch = TOKENS.collate(list(encoded), 0)
        assert batch["label_counts"].tolist() == [2, 1] and len(batch["labels"]) == 3
    assert max(encode(TEXTS, texts(), max_length=6)["length"][:]) == 6
    assert "t.jsonl: 2 examples cut off" in caplog.text
    [row] = encode(TOKENS, words([["cat", "\u200b\x00", "open"]]), tokenizer=blind())
    ids = [row["input_ids"][place] for place in row["first"]]
    assert ids == make_tokenizer().convert_tokens_to_ids(["cat", "[UNK]", "open"])


def test_segments_and_language_embeddings_are_token_types():
    told = LanguageInputs(segments=True)
    plain, rows = (encode(TEXTS, texts(), languages, segmented()) for languages in (None, told))
    expected = segmented()(["the cat", "a dog is open"], ["open file the", "no"])
    assert rows["input_ids"][:] == plain["input_ids"][:] == expected["input_ids"]
    assert rows["token_type_ids"][:] == expected["token_type_ids"] and 1 in rows["token_type_ids"][0]
    batch = TEXTS.collate(list(rows), 0)
    assert batch["labels"].tolist() == [1, 0] and batch["token_type_ids"].shape == batch["input_ids"].shape
    for one in (plain, encode(TEXTS, texts(pair=False), told, segmented())):
        assert "token_type_ids" not in one.column_names
    model = make_base()
    model.config.language_ids = {"en": 0, "de": 1}
    languages = LanguageInputs.of(model)
    rows = [row for code in ("de", "en") for row in encode(TOKENS, words(language=code), languages)]
    batch = TOKENS.collate(rows, 0)
    assert batch["token_type_ids"].tolist() == [[k] * batch["input_ids"].shape[1] for k in (1, 1, 1, 0, 0, 0)]


# ---- Models ----


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    root = tmp_path_factory.mktemp("bases")
    save_base("bert", root / "raw")
    make_rotated(layers=(-2, -1)).save_pretrained(root / "mapped")
    for kind in ("languages", "linear"):
        adapt(raw(root), kind, init="random").save_pretrained(root / kind)
    return root


def raw(bases):
    return AutoModel.from_pretrained(bases / "raw", add_pooling_layer=False).eval()


@pytest.mark.parametrize("task", [TOKENS, TEXTS], ids=["token", "sequence"])
def test_every_family_predicts_alike_in_any_batch(task, tmp_path):
    for family in sorted(CONFIGS):
        save_base(family, tmp_path / family)
        model = load_task_model(str(tmp_path / family), task, seed=3)
        own, kept = model.base_model.state_dict(), AutoModel.from_pretrained(tmp_path / family).state_dict()
        assert all(torch.equal(own[name], kept[name]) for name in own if "pooler" not in name), family
        assert model.config.id2label == dict(enumerate(task.labels.names)), family
        encoded = encode(task, words() if task is TOKENS else texts())
        together, alone = (predict(model, task, encoded, 0, batch_size=size) for size in (8, 1))
        assert all((one == other).all() for one, other in zip(together, alone, strict=True)), family
        logits = model(torch.tensor([encoded[0]["input_ids"]])).logits[0]
        expected = logits[encoded[0]["first"]].argmax(-1) if task is TOKENS else logits.argmax(-1)
        assert together[0].tolist() == expected.tolist(), family


def test_weights_of_a_new_head_and_of_a_saved_one(bases, tmp_path):
    base = str(bases / "raw")

    def head(seed, name=base):
        torch.rand(3)
        return load_task_model(name, TOKENS, seed=seed).classifier.weight

    assert torch.equal(head(1), head(1)) and not torch.equal(head(1), head(2))  # of the seed alone
    pooler = load_file(f"{base}/model.safetensors")["bert.pooler.dense.weight"]
    assert torch.equal(load_task_model(base, TEXTS).bert.pooler.dense.weight, pooler)
    load_task_model(base, TOKENS, seed=5).save_pretrained(tmp_path)
    assert torch.equal(head(6, str(tmp_path)), head(5))


@torch.no_grad()
def test_maps_of_layers_are_an_align_matrix(bases, tmp_path):
    weight = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0))
    maps = {"de": LanguageMap(SideMap(weight, torch.ones(2, 16)), layers=(-2, -1), source_lang="de", target_lang="en")}
    rotated = map_adapter(raw(bases), maps).eval()
    rotated.save_pretrained(tmp_path)
    model = load_task_model(str(bases / "raw"), TOKENS, adapter=str(tmp_path)).eval()
    trained = {("xalign" in name, p.requires_grad) for name, p in model.named_parameters()}
    assert trained == {(False, True), (True, False)}
    model, rotated = model.double(), rotated.double()
    ids = torch.tensor([[2, 60, 61, 3]])
    for code in ("de", "en"):
        number = torch.tensor([LanguageInputs.of(model).maps[code]])
        expected = model.classifier(rotated(ids, language=code).last_hidden_state)
        assert_rounding(model(ids, language=number).logits, expected, MAPPED)


# ---- Taggers ----


def make(bases, kind, task=TAGS, **settings):
    adapter = None if kind == "raw" else str(bases / kind)
    return load_tagger(str(bases / "raw"), task, adapter=adapter, **{"lstm_size": 6, "dropout": 0.0, **settings})


def tagged(task, tagger, language="en", **options):
    return encode(task, words(FOUR, language, kinds=2), LanguageInputs.of(tagger), **options)


def test_a_batch_holds_the_words_that_have_a_token(bases):
    batch = TAGS.collate(list(tagged(TAGS, raw(bases), max_length=5)), 0)  # two special tokens: three are left
    spans = tokenize_words(make_tokenizer(), FOUR, 5).spans
    counts = [int((span[:, 1] > 0).sum()) for span in spans]
    assert batch["label_counts"].tolist() == counts and counts != [len(sentence) for sentence in FOUR]
    assert TAGS.count_items(batch) == sum(counts)
    for row, (span, count) in enumerate(zip(spans, counts, strict=True)):
        ids = [len(word) % 2 for word in FOUR[row][:count]]
        assert batch["word_spans"][row, :count].tolist() == span[:count].tolist()
        assert batch["labels"][row].tolist() == ids + [-100] * (max(counts) - count)
    assert batch["labels"].flatten()[batch["label_positions"]].min() >= 0


@pytest.mark.parametrize("kind", ["raw", "mapped", "linear"])
def test_kept_vectors_are_those_of_the_encoder(bases, kind):
    tagger = make(bases, kind).train()
    both = [tagged(TAGS, tagger, language) for language in ("en", "de")]
    kept = [row for rows in both for row in TAGS.prepare(tagger, rows, 0)]
    plain = [row for rows in both for row in rows]
    assert len(kept) == 8
    for one, other in [*(([a], [b]) for a, b in zip(kept, plain, strict=True)), (kept, plain)]:
        batches = TAGS.collate(one, 0), TAGS.collate(other, 0)
        assert "input_ids" not in batches[0]
        losses = [TAGS.loss(tagger(**TAGS.training_inputs(batch)), batch) for batch in batches]
        assert_rounding(*losses, TAGGER + len(one))
    vectors = [torch.tensor(row["vectors"]) for row in kept]
    apart = any((a - b).abs().max() > 1e-3 for a, b in zip(vectors[:4], vectors[4:], strict=True))
    assert apart == (kind == "mapped")


@torch.no_grad()
def test_predictions_are_the_best_sequences(bases):
    tagger = make(bases, "raw", BIO).eval()
    for parameter in tagger.crf.parameters():
        parameter.normal_()
    rows = tagged(BIO, tagger)
    expected = [best_tags(tagger, **BIO.inputs(BIO.collate([row], 0)))[0] for row in rows]
    assert [found.tolist() for found in predict(tagger, BIO, rows, 0, batch_size=3)] == expected


def test_what_is_read_and_what_is_trained(bases):
    layers = {kind: list(make(bases, kind).config.layers) for kind in ("raw", "mapped", "linear")}
    assert layers == {"raw": [-3, -2, -1], "mapped": [-2, -1], "linear": [-1]}  # of two layers and the embeddings
    one, other = (make(bases, "mapped", layers=[-2, -1], seed=3) for _ in range(2))
    assert list(one.config.layers) == [-2, -1]
    trained = {name.split(".")[0] for name, p in one.named_parameters() if p.requires_grad}
    assert trained == {"lstm", "classifier", "pairs", "crf"}
    assert torch.equal(one.classifier.weight, other.classifier.weight)


# ---- Bad inputs ----


def test_bad_examples_and_scores():
    strange = words([["the", "cat"], ["a", "dog"]], names=[["O", "O"], ["B-a", "_"]])
    check(
        [
            (r"file\.jsonl: some words have no label", partial(encode, BIO, strange, training=True)),
            ("fr: the encoder has language embeddings", LanguageInputs(embeddings={"en": 0}).columns, "fr"),
            ("the model has maps for", LanguageInputs(maps={"en": 0}).columns, "fr"),
            ("sentence 1: the label 'NOUN' is in no scheme", count_spans, [["O"], ["NOUN"]], [["O"], ["O"]]),
            ("span_f1 needs BIO labels, or tags", TokenTask, LabelSet(("O", "Z-X")), "span_f1"),
        ]
    )
    assert LanguageInputs(embeddings={"he": 1}).columns("iw") == {"language_row": 1}  # the old code of Hebrew
    assert len(encode(BIO, strange)) == len(encode(TOKENS, strange, training=True)) == 2


def test_heads_for_other_labels_are_refused(bases, tmp_path):
    load_task_model(str(bases / "raw"), TOKENS).save_pretrained(tmp_path)
    labels = "is a BertForTokenClassification for O, B-a, I-a, whose head"
    other = TokenTask(LabelSet.of(["X", "Y", "Z"]))
    check(
        [
            (labels, load_task_model, str(tmp_path), other),
            ("whose head does not fit this task", load_task_model, str(tmp_path), SequenceTask(LABELS)),
        ]
    )
