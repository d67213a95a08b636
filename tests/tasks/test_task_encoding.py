"""Labelled text to batches and back: first subwords, truncation, languages, and the models that read them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.adapters import adapt, make_base
from support.families import CONFIGS, save_base
from support.labelled import ENCODER, LABELS, SENTENCES, texts, words
from support.numeric import assert_rounding
from support.tiny import make_tokenizer
from tokenizers import normalizers, processors
from transformers import AutoModel, AutoModelForTokenClassification, AutoTokenizer

from hf_xalign.modeling.maps import LanguageMap, SideMap
from hf_xalign.modeling.rotated import RotatedModel
from hf_xalign.modeling.xalign.tuner import find_top
from hf_xalign.tasks import LabelSet, LanguageInputs, SequenceTask, TokenTask, load_task_model, predict

TOKENS = TokenTask(LABELS)
TEXTS = SequenceTask(LabelSet.of(["x", "y"]))
MAPPED = ENCODER + 16 + 16  # with a map and a head, each over 16 numbers


def encode(task, examples, languages=None, tokenizer=None, **options):
    options = {"max_length": 32, "training": False, **options}
    return task.encode(examples, tokenizer or make_tokenizer(), languages or LanguageInputs(), **options)


def test_labels_lie_on_first_subwords():
    tokenizer, encoded = make_tokenizer(), encode(TOKENS, words())
    for sentence, row in zip(SENTENCES, encoded, strict=True):
        pieces = [tokenizer.tokenize(word) for word in sentence]
        flat = tokenizer.convert_tokens_to_ids([piece for word in pieces for piece in word])
        starts = np.cumsum([1, *(len(word) for word in pieces)])[:-1]
        assert row["input_ids"] == [2, *flat, 3] and row["first"] == starts.tolist()
        assert row["word_labels"] == [len(word) % 3 for word in sentence]
        assert row["length"] == len(row["input_ids"]) and row["source_lang"] == "en"
    batch = TOKENS.collate(list(encoded), 0)
    assert batch["input_ids"].shape == (3, max(encoded["length"][:]))
    assert batch["attention_mask"].sum(1).tolist() == encoded["length"][:]
    at = [row["input_ids"][place] for row in encoded for place in row["first"]]
    assert batch["input_ids"].flatten()[batch["label_positions"]].tolist() == at
    assert batch["labels"].tolist() == [label for row in encoded for label in row["word_labels"]]
    assert batch["label_counts"].tolist() == [3, 2, 5]


def test_truncation_is_counted(caplog):
    long = words([["the", "dog", "zzzz", "cat"], ["the"]])
    for training in (True, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            encoded = encode(TOKENS, long, max_length=6, training=training)
        # [CLS] the dog z z, and [SEP]: the third word is cut in part, the fourth as a whole.
        assert encoded["first"][:] == [[1, 2, -1, -1], [1]]
        assert "file.jsonl: 2 words" in caplog.text and "max_length=6" in caplog.text
        batch = TOKENS.collate(list(encoded), 0)
        assert batch["label_counts"].tolist() == [2, 1] and len(batch["labels"]) == 3
    with caplog.at_level(logging.WARNING):
        assert max(encode(TEXTS, texts(), max_length=6)["length"][:]) == 6
    assert "t.jsonl: 2 examples cut off" in caplog.text


def test_words_without_subwords_can_be_unknown_ones():
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    task = TokenTask(LABELS, on_empty_word="unk")
    encoded = encode(task, words([["the", "dog"], ["cat", "\u200b\x00", "open"]]), tokenizer=tokenizer)
    ids, first = encoded["input_ids"][1], encoded["first"][1]
    assert [ids[place] for place in first] == tokenizer.convert_tokens_to_ids(["cat", "[UNK]", "open"])


def test_pairs_of_texts_and_their_segments():
    tokenizer = make_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    segments = LanguageInputs(segments=True)
    plain, told = (encode(TEXTS, texts(), languages, tokenizer) for languages in (None, segments))
    assert "token_type_ids" not in plain.column_names
    expected = tokenizer(["the cat", "a dog is open"], ["open file the", "no"])
    assert told["input_ids"][:] == plain["input_ids"][:] == expected["input_ids"]
    assert told["token_type_ids"][:] == expected["token_type_ids"] and 1 in told["token_type_ids"][0]
    batch = TEXTS.collate(list(told), 0)
    assert batch["labels"].tolist() == [1, 0] and batch["token_type_ids"].shape == batch["input_ids"].shape
    assert "token_type_ids" not in encode(TEXTS, texts(pair=False), segments, tokenizer).column_names


def test_language_embeddings_fill_token_types():
    model = make_base(auto_class=AutoModelForTokenClassification)
    model.config.language_ids = {"en": 0, "de": 1}
    languages = LanguageInputs.of(model)
    rows = [row for code in ("de", "en") for row in encode(TOKENS, words(language=code), languages)]
    batch = TOKENS.collate(rows, 0)
    assert batch["token_type_ids"].tolist() == [[k] * batch["input_ids"].shape[1] for k in (1, 1, 1, 0, 0, 0)]


# ---- Models ----


@pytest.fixture
def base(tmp_path):
    save_base("bert", tmp_path / "base")
    return str(tmp_path / "base")


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


def test_weights_of_a_new_head_and_of_a_saved_one(base, tmp_path):
    def head(seed):
        torch.rand(3)
        return load_task_model(base, TOKENS, seed=seed).classifier.weight

    before = torch.get_rng_state()
    assert torch.equal(head(1), head(1)) and not torch.equal(head(1), head(2))  # of the seed alone
    torch.set_rng_state(before)
    pooler = load_file(f"{base}/model.safetensors")["bert.pooler.dense.weight"]
    assert torch.equal(load_task_model(base, TEXTS).bert.pooler.dense.weight, pooler)
    model = load_task_model(base, TOKENS, seed=5)
    model.save_pretrained(tmp_path / "task")
    again = load_task_model(str(tmp_path / "task"), TOKENS, seed=6)
    assert torch.equal(again.classifier.weight, model.classifier.weight)


@pytest.mark.numeric
@torch.no_grad()
def test_module_with_a_map_for_each_language(base, tmp_path):
    """Each row of a batch goes through its own language's map, as the encoder's vectors show."""
    encoder = AutoModel.from_pretrained(base, add_pooling_layer=False).eval()
    adapter = adapt(AutoModel.from_pretrained(base, add_pooling_layer=False), "languages", init="random")
    adapter.save_pretrained(tmp_path / "adapter")
    model = load_task_model(base, TOKENS, adapter=str(tmp_path / "adapter")).eval()
    languages = LanguageInputs.of(model)
    assert languages.maps == {"en": 0, "de": 1, "to": 2}
    rows = [encode(TOKENS, words(language=code), languages)[0] for code in ("de", "en", "to")]
    inputs = TOKENS.inputs(TOKENS.collate(rows, 0))
    top = find_top(adapter.double()).xalign_top["default"]
    logits = model.double()(**inputs).logits
    states = encoder.double()(inputs["input_ids"][:1]).last_hidden_state[0]
    for row, code in enumerate(("de", "en", "to")):
        mapped = states if code == "en" else top.get_submodule(f"map_{code}")(states)
        assert_rounding(logits[row], model.classifier(mapped), MAPPED)


@pytest.mark.numeric
@torch.no_grad()
def test_mapped_encoder_is_an_align_matrix(base, tmp_path):
    encoder = AutoModel.from_pretrained(base, add_pooling_layer=False).eval()
    weight = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0))
    maps = {"de": LanguageMap(SideMap(weight, torch.ones(2, 16)), layers=(-2, -1), source_lang="de", target_lang="en")}
    rotated = RotatedModel.from_maps(encoder, maps)
    rotated.save_pretrained(tmp_path / "mapped")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "mapped")
    model = load_task_model(str(tmp_path / "mapped"), TOKENS).eval()
    trained = {"xalign" in name: p.requires_grad for name, p in model.named_parameters()}
    assert all(p.requires_grad == ("xalign" not in name) for name, p in model.named_parameters())
    assert trained == {False: True, True: False}
    model, rotated = model.double(), rotated.double()
    ids = torch.tensor([[2, 60, 61, 3]])
    for code in ("de", "en"):
        number = torch.tensor([LanguageInputs.of(model).maps[code]])
        expected = model.classifier(rotated(ids, language=code).last_hidden_state)
        assert_rounding(model(ids, language=number).logits, expected, MAPPED)
