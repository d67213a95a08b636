"""The exported folder, read file by file and pooled by hand; and by sentence-transformers where it is installed."""

import importlib.util
import json
import logging

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from support import fao
from support.adapters import make_base
from support.families import CONFIGS, PASS, save_base
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_tokenizer
from transformers import AutoModel, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.evaluation import encode_sentences
from hf_xalign.modeling import merge
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.export import save_sentence_transformer
from hf_xalign.modeling.pooling import SENTENCE_POOLINGS

# Up to 64 tokens, their mean, and its norm.
POOLED = 2 * PASS + 64 + 2 * 16
TEXTS = ["the cat sees the dog", "open file", "der kleine hund und die große katze spielen " * 3]


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@torch.no_grad()
def vectors_by_hand(folder):
    """What sentence-transformers does with the folder, one text at a time."""
    modules = read(folder / "modules.json")
    kinds = [module["type"].removeprefix("sentence_transformers.models.") for module in modules]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    length = read(folder / "sentence_bert_config.json")["max_seq_length"]
    pooling = read(folder / modules[1]["path"] / "config.json")
    modes = [name for name, on in pooling.items() if on is True and name.startswith("pooling_mode")]
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    assert pooling["word_embedding_dimension"] == model.config.hidden_size
    found = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
        states = model(**inputs).last_hidden_state[0]
        ways = {"mean_tokens": states.mean(0), "cls_token": states[0], "lasttoken": states[-1]}
        vector = ways[modes[0].removeprefix("pooling_mode_")]
        found.append(vector / vector.norm())
    assert len(modes) == 1
    return torch.stack(found)


def ours(model, tokenizer, pooling="mean"):
    vectors = encode_sentences(model, tokenizer, TEXTS, pooling=pooling)[:, 0]
    return vectors / vectors.norm(dim=1, keepdim=True)


def test_published_checkpoints(subtests, tmp_path):
    for family in CONFIGS:
        with subtests.test(family):
            folder = tmp_path / family
            save_base(family, folder / "base")
            model, tokenizer = load_trainable(str(folder / "base")), make_tokenizer()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.01)
            save_sentence_transformer(model, tokenizer, folder / "out")
            assert_rounding(vectors_by_hand(folder / "out"), ours(model, tokenizer), POOLED)
            saved = load_file(folder / "out" / "model.safetensors")
            base = load_file(folder / "base" / "model.safetensors")
            extra = set(saved) - set(model.state_dict())
            assert extra == ({"pooler.dense.weight", "pooler.dense.bias"} if family == "bert" else set())
            assert all(torch.equal(saved[name], base[f"bert.{name}"]) for name in extra)
            assert read(folder / "out" / "config.json")["architectures"] == [type(model).__name__]
            limit = 64 if family not in ("roberta", "xlm-roberta") else min(64, 80 - model.config.pad_token_id - 1)
            assert read(folder / "out" / "sentence_bert_config.json")["max_seq_length"] == limit


def test_the_last_token_of_a_decoder(tmp_path):
    save_base("qwen3", tmp_path / "base")
    model, tokenizer = load_trainable(str(tmp_path / "base")), make_tokenizer()
    save_sentence_transformer(model, tokenizer, tmp_path / "out", pooling="last")
    assert_rounding(vectors_by_hand(tmp_path / "out"), ours(model, tokenizer, "last"), POOLED)


def test_merged_lora_and_a_trained_head_beside(tmp_path):
    merged = merge(get_peft_model(make_base(), LoraConfig(target_modules=["query"], init_lora_weights=False)))
    merged.alignment_head = torch.nn.Linear(16, 3)
    save_sentence_transformer(merged, make_tokenizer(), tmp_path / "out")
    assert not [name for name in load_file(tmp_path / "out" / "model.safetensors") if "head" in name]
    assert_rounding(vectors_by_hand(tmp_path / "out"), ours(merged, make_tokenizer()), POOLED)


@pytest.mark.parametrize("given", [{"max_seq_length": 12, "do_lower_case": True}, {"max_seq_length": 500}, None])
def test_the_length_of_the_base_stays_through_training(given, tmp_path):
    save_base("bert", tmp_path / "base")
    if given is not None:
        (tmp_path / "base" / "sentence_bert_config.json").write_text(json.dumps(given))
    fao.make(tmp_path / "run", load_trainable(str(tmp_path / "base"))).save_model()
    (tmp_path / "base").rename(tmp_path / "gone")
    encoder, tokenizer = load_trainable(str(tmp_path / "run")), make_tokenizer()
    save_sentence_transformer(encoder, tokenizer, tmp_path / "out")
    limit = tokenizer.model_max_length
    length = min(limit, (given or {}).get("max_seq_length", limit))
    lower = (given or {}).get("do_lower_case", False)
    assert read(tmp_path / "out" / "sentence_bert_config.json") == {"do_lower_case": lower, "max_seq_length": length}


def test_an_export_is_whole_or_not_there(tmp_path, monkeypatch):
    tokenizer = make_tokenizer()
    save_sentence_transformer(make_encoder(), tokenizer, tmp_path / "out", pooling="cls")
    assert_rounding(vectors_by_hand(tmp_path / "out"), ours(make_encoder(), tokenizer, "cls"), POOLED)
    with pytest.raises(InputError, match="out exists already"):
        save_sentence_transformer(make_encoder(), tokenizer, tmp_path / "out")
    monkeypatch.setattr(type(tokenizer), "save_pretrained", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_sentence_transformer(make_encoder(), tokenizer, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)
@pytest.mark.parametrize("family", sorted(CONFIGS))
@pytest.mark.parametrize("pooling", SENTENCE_POOLINGS)
def test_sentence_transformers_gives_our_vectors(family, pooling, tmp_path, caplog):
    from sentence_transformers import SentenceTransformer

    save_base(family, tmp_path / "base")
    model, tokenizer = load_trainable(str(tmp_path / "base")), make_tokenizer()
    save_sentence_transformer(model, tokenizer, tmp_path / "out", pooling=pooling)
    with caplog.at_level(logging.WARNING, "sentence_transformers"):
        loaded = SentenceTransformer(str(tmp_path / "out"), device="cpu")
        found = loaded.encode(TEXTS, convert_to_tensor=True)
    assert not [record for record in caplog.records if record.name.startswith("sentence_transformers")]
    assert_rounding(found, ours(model, tokenizer, pooling), POOLED)
    assert loaded.max_seq_length == read(tmp_path / "out" / "sentence_bert_config.json")["max_seq_length"]
