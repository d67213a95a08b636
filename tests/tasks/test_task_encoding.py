"""Labelled text to batches and back: first subwords, truncation, languages, and the models that read them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from support.adapters import adapt, make_base
from support.families import CONFIGS, save_base
from support.tiny import make_tokenizer
from tokenizers import normalizers, processors
from transformers import AutoModel, AutoModelForTokenClassification, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.mapping.maps import LanguageMap, SideMap
from hf_xalign.mapping.rotated import RotatedModel
from hf_xalign.modeling.tuner import find_top
from hf_xalign.tasks import Examples, LabelSet, LanguageInputs, SequenceTask, TokenTask, load_task_model, predict
from hf_xalign.tasks.collation import TaskCollator

LABELS = LabelSet.of(["O", "B-a"])
TOKENS = TokenTask(LABELS)
TEXTS = SequenceTask(LabelSet.of(["x", "y"]))
SENTENCES = [["the", "katze", "sees"], ["open", "file"], ["a", "house", "is", "the", "dog"]]


def words(sentences=SENTENCES, language="en"):
    names = [[LABELS.names[len(word) % 3] for word in sentence] for sentence in sentences]
    rows = Dataset.from_dict({"tokens": sentences, "labels": names, "line": list(range(1, len(sentences) + 1))})
    return Examples("file.jsonl", language, rows)


def texts(language="en", pair=True):
    sides = {"text_a": ["the cat", "a dog is open"], **({"text_b": ["open file the", "no"]} if pair else {})}
    return Examples("t.jsonl", language, Dataset.from_dict({**sides, "label": ["y", "x"], "line": [1, 2]}))


def encode(task, examples, languages=None, **options):
    options = {"max_length": 32, "training": False, **options}
    return task.encode(examples, options.pop("tokenizer", make_tokenizer()), languages or LanguageInputs(), **options)


def test_labels_lie_on_first_subwords():
    tokenizer = make_tokenizer()
    encoded = encode(TOKENS, words())
    for sentence, row in zip(SENTENCES, encoded):
        pieces = [tokenizer.tokenize(word) for word in sentence]
        flat = tokenizer.convert_tokens_to_ids([piece for word in pieces for piece in word])
        starts = np.cumsum([1, *(len(word) for word in pieces)])[:-1]
        assert row["input_ids"] == [2, *flat, 3] and row["first"] == starts.tolist()
        assert row["word_labels"] == [len(word) % 3 for word in sentence]
        assert row["length"] == len(row["input_ids"]) and row["source_lang"] == "en"


def test_batch_names_the_labelled_positions():
    encoded = encode(TOKENS, words())
    batch = TaskCollator(0)(list(encoded))
    width = max(encoded["length"][:])
    flat = batch["input_ids"].flatten()
    assert batch["input_ids"].shape == (3, width) and batch["attention_mask"].sum(1).tolist() == encoded["length"][:]
    at = [row["input_ids"][place] for row in encoded for place in row["first"]]
    assert flat[batch["label_positions"]].tolist() == at
    assert batch["labels"].tolist() == [label for row in encoded for label in row["word_labels"]]
    assert batch["label_counts"].tolist() == [3, 2, 5]


@pytest.mark.parametrize("training", [True, False])
def test_truncation_is_counted_and_loses_words(training, caplog):
    with caplog.at_level(logging.WARNING):
        encoded = encode(TOKENS, words([["the", "dog", "zzzz", "cat"], ["the"]]), max_length=6, training=training)
    # [CLS] the dog z z, and [SEP]: the third word is cut in part, the fourth as a whole.
    assert encoded["first"][:] == [[1, 2, -1, -1], [1]]
    assert "file.jsonl: 2 words" in caplog.text and "max_length=6" in caplog.text
    batch = TaskCollator(0)(list(encoded))
    assert batch["label_counts"].tolist() == [2, 1] and len(batch["labels"]) == 3


def test_words_without_subwords(caplog):
    examples = words([["the", "dog"], ["cat", "\u200b\x00", "open"]])
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    with pytest.raises(InputError) as error:
        encode(TOKENS, examples, tokenizer=tokenizer)
    assert "file.jsonl, line 2: the tokenizer makes nothing of word 2 ('\\u200b\\x00')" in str(error.value)
    task = TokenTask(LABELS, on_empty_word="unk")
    encoded = encode(task, examples, tokenizer=tokenizer)
    ids, first = encoded["input_ids"][1], encoded["first"][1]
    assert [ids[place] for place in first] == tokenizer.convert_tokens_to_ids(["cat", "[UNK]", "open"])


def test_pairs_of_texts_and_their_segments():
    tokenizer = make_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    plain = encode(TEXTS, texts(), tokenizer=tokenizer)
    assert "token_type_ids" not in plain.column_names
    told = encode(TEXTS, texts(), LanguageInputs(segments=True), tokenizer=tokenizer)
    expected = tokenizer(["the cat", "a dog is open"], ["open file the", "no"])
    assert told["input_ids"][:] == plain["input_ids"][:] == expected["input_ids"]
    assert told["token_type_ids"][:] == expected["token_type_ids"] and 1 in told["token_type_ids"][0]
    batch = TaskCollator(0)(list(told))
    assert batch["labels"].tolist() == [1, 0] and batch["token_type_ids"].shape == batch["input_ids"].shape
    single = encode(TEXTS, texts(pair=False), LanguageInputs(segments=True), tokenizer=tokenizer)
    assert "token_type_ids" not in single.column_names


def test_texts_that_are_cut_off_are_counted(caplog):
    with caplog.at_level(logging.WARNING):
        assert max(encode(TEXTS, texts(), max_length=6)["length"][:]) == 6
    assert "t.jsonl: 2 examples are cut off" in caplog.text
    with pytest.raises(InputError, match="special tokens already"):
        encode(TEXTS, texts(), max_length=2)


def test_language_embeddings_fill_token_types():
    model = make_base(auto_class=AutoModelForTokenClassification)
    model.config.language_ids = {"en": 0, "de": 1}
    languages = LanguageInputs.of(model)
    rows = list(encode(TOKENS, words(language="de"), languages)) + list(encode(TOKENS, words(), languages))
    batch = TaskCollator(0)(rows)
    assert batch["token_type_ids"].tolist() == [[k] * batch["input_ids"].shape[1] for k in (1, 1, 1, 0, 0, 0)]
    with pytest.raises(InputError, match="language 'fr': the encoder has language embeddings for en, de"):
        encode(TOKENS, words(language="fr"), languages)


# ---- Models ----


@pytest.fixture
def base(tmp_path):
    save_base("bert", tmp_path / "base")
    return str(tmp_path / "base")


@pytest.mark.parametrize("task", [TOKENS, TEXTS], ids=["token", "sequence"])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_every_family_predicts_alike_in_any_batch(family, task, tmp_path):
    save_base(family, tmp_path)
    model = load_task_model(str(tmp_path), task, seed=3)
    encoder = AutoModel.from_pretrained(tmp_path)
    own, kept = model.base_model.state_dict(), encoder.state_dict()
    assert all(torch.equal(own[name], kept[name]) for name in own if "pooler" not in name)
    assert model.config.id2label == dict(enumerate(task.labels.names))
    encoded = encode(task, words() if task is TOKENS else texts())
    together, alone = (predict(model, task, encoded, 0, batch_size=size) for size in (8, 1))
    assert all((one == other).all() for one, other in zip(together, alone, strict=True))
    logits = model(torch.tensor([encoded[0]["input_ids"]])).logits[0]
    expected = logits[encoded[0]["first"]].argmax(-1) if task is TOKENS else logits.argmax(-1)
    assert together[0].tolist() == expected.tolist()


def test_head_depends_on_the_seed_alone(base):
    def head(seed):
        torch.rand(3)
        return load_task_model(base, TOKENS, seed=seed).classifier.weight

    before = torch.get_rng_state()
    assert torch.equal(load_task_model(base, TOKENS, seed=1).classifier.weight, head(1))
    assert not torch.equal(head(1), head(2))
    torch.set_rng_state(before)


def test_pooler_of_the_checkpoint_is_kept(base):
    weight = load_file(f"{base}/model.safetensors")["bert.pooler.dense.weight"]
    assert torch.equal(load_task_model(base, TEXTS).bert.pooler.dense.weight, weight)


def test_head_for_other_labels_is_refused(base, tmp_path):
    model = load_task_model(base, TOKENS, seed=5)
    model.save_pretrained(tmp_path / "task")
    again = load_task_model(str(tmp_path / "task"), TOKENS, seed=6)
    assert torch.equal(again.classifier.weight, model.classifier.weight)
    with pytest.raises(InputError, match="is a BertForTokenClassification for O, B-a, I-a, whose head"):
        load_task_model(str(tmp_path / "task"), TokenTask(LabelSet.of(["X", "Y", "Z"])))
    with pytest.raises(InputError, match="whose head is not this task's"):
        load_task_model(str(tmp_path / "task"), SequenceTask(LABELS))


def test_models_that_cannot_be(base, tmp_path):
    with pytest.raises(InputError, match="no model that transformers knows"):
        load_task_model(str(tmp_path / "none"), TOKENS)
    adapt(make_base(), "linear").save_pretrained(tmp_path / "adapter")
    with pytest.raises(InputError, match="is an adapter: give it by adapter="):
        load_task_model(str(tmp_path / "adapter"), TOKENS)


def test_module_with_a_map_for_each_language(base, tmp_path):
    """Rows of a batch go each through its own language's map, as the encoder's vectors show."""
    adapter = adapt(AutoModel.from_pretrained(base, add_pooling_layer=False), "languages", init="random")
    adapter.save_pretrained(tmp_path / "adapter")
    model = load_task_model(base, TOKENS, adapter=str(tmp_path / "adapter")).eval()
    languages = LanguageInputs.of(model)
    assert languages.maps == {"en": 0, "de": 1, "to": 2}
    with pytest.raises(InputError, match="the model has maps for"):
        languages.columns("fr")
    encoder = AutoModel.from_pretrained(base, add_pooling_layer=False).eval()
    rows = [encode(TOKENS, words(language=code), languages)[0] for code in ("de", "en", "to")]
    top = find_top(adapter).xalign_top["default"]
    inputs, _ = TOKENS.split(TaskCollator(0)(rows))
    with torch.no_grad():
        logits = model(**inputs).logits
        states = encoder(inputs["input_ids"][:1]).last_hidden_state[0]
        for row, code in enumerate(("de", "en", "to")):
            mapped = states if code == "en" else top.get_submodule(f"map_{code}")(states)
            torch.testing.assert_close(logits[row], model.classifier(mapped), atol=1e-5, rtol=1e-5)


def test_mapped_encoder_is_an_align_matrix(base, tmp_path):
    encoder = AutoModel.from_pretrained(base, add_pooling_layer=False).eval()
    weight = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0))
    maps = {"de": LanguageMap(SideMap(weight, torch.ones(2, 16)), layers=(-2, -1), source_lang="de", target_lang="en")}
    rotated = RotatedModel.from_maps(encoder, maps)
    rotated.save_pretrained(tmp_path / "mapped")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "mapped")
    model = load_task_model(str(tmp_path / "mapped"), TOKENS).eval()
    ids = torch.tensor([[2, 60, 61, 3]])
    with torch.no_grad():
        for code in ("de", "en"):
            states = rotated(ids, language=code).last_hidden_state
            number = torch.tensor([LanguageInputs.of(model).maps[code]])
            torch.testing.assert_close(
                model(ids, language=number).logits, model.classifier(states), atol=1e-5, rtol=1e-5
            )
    assert all(p.requires_grad for name, p in model.named_parameters() if "xalign" not in name)
    assert not any(p.requires_grad for name, p in model.named_parameters() if "xalign" in name)
