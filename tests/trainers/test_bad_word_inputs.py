"""What the trainers of word links, FAO and MAO, refuse."""

import importlib.util
from functools import partial

import pytest
import torch
from peft import LoraConfig, get_peft_model
from support import fao, mao
from support.families import CONFIGS, save_base
from support.refusals import assert_refused
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, BertForMaskedLM

from hf_xalign.modeling import XAlignConfig
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.trainers import MAOTrainer


def test_settings_of_fao(tmp_path, monkeypatch):
    def settings(**given):
        return lambda: fao.config(tmp_path, **given)

    table = {
        "preset": (settings(preset="maoo"), "did you mean 'mao'"),
        "pooling": (settings(pooling="max"), "choose one of first, last, mean"),
        "layers": (settings(objective="infonce", layers=[-2, -1]), "one layer"),
        "norm": (settings(preset="rotate_src2tgt", mean_over_dims=True), "squared_l2"),
        "sampling": (settings(train_sampling_strategy="batch_rebalance"), "choose one of group_by_length"),
    }
    for own in ({"reference_dtype": "bfloat16"}, {"cache_dir": "x"}):
        ((name, value),) = own.items()
        table[name] = (settings(**own), f"{name}={value}: without reference=cache")
        fao.config(tmp_path, reference="cache", **own)
    assert_refused(table)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None)
    packages = {"wandb": r'"hf_xalign\[wandb\]"', "tensorboard": "tensorboard", "trackio": "trackio"}
    assert_refused(
        {
            tracker: (settings(report_to=[tracker]), f"{tracker} is not installed: pip install {package}$")
            for tracker, package in packages.items()
        }
    )


def test_what_fao_cannot_train(tmp_path):
    class Slow:
        is_fast = False

    def tokenizer(specials=True, **attributes):
        found = make_tokenizer()
        if not specials:
            found.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
        for name, value in attributes.items():
            setattr(found, name, value)
        return found

    save_base("albert", tmp_path / "albert")
    table = {
        "no specials": (
            {"tokenizer": tokenizer(False), "linked_tokens": "all"},
            "no special token first and none last",
        ),
        "no padding": ({"tokenizer": tokenizer(pad_token=None)}, "no padding token"),
        "slow tokenizer": ({"tokenizer": Slow()}, "word_ids"),
        "head": ({"model": BertForMaskedLM(make_encoder().config)}, "encoder with a head"),
        "language embeddings": (
            {"model": make_multilingual_encoder()},
            r"language embeddings \(en, de\).*take every text for en",
        ),
        "layer": ({"layers": [7]}, "layers 0"),
        "all frozen": ({"freeze_layers": 2}, "something below it must be trained"),
        "albert's layers": (
            {"model": load_encoder(str(tmp_path / "albert")), "freeze_layers": 1},
            "one set of weights",
        ),
        "frozen PEFT model": ({"model": fao.lora(), "freeze_layers": 1}, "PEFT model's is frozen"),
        "cached PEFT model": ({"model": fao.lora(), "reference": "cache"}, "use reference=copy"),
    }
    assert_refused({k: (partial(fao.make, tmp_path, **own), message) for k, (own, message) in table.items()})


def test_checkpoints(tmp_path):
    fao.make(tmp_path / "run", pairs=8, save_strategy="steps", save_steps=1).train()
    (tmp_path / "run" / "checkpoint-2" / "complete.json").unlink()

    def resume(path, folder="other", **settings):
        return lambda: fao.make(tmp_path / folder, **settings).train(resume_from_checkpoint=path)

    assert_refused(
        {
            "cut off": (resume(str(tmp_path / "run" / "checkpoint-2")), "last whole one"),
            "gone": (resume(str(tmp_path / "run" / "checkpoint-9")), "no such folder"),
            "to be deleted": (resume(True, "run", overwrite_output_dir=True), "give one of them"),
        }
    )
    assert (tmp_path / "run" / "checkpoint-2").is_dir()


def test_settings_of_mao(tmp_path):
    table = {
        "preset": ({"preset": "mbert_liner"}, "did you mean 'mbert_linear'"),
        "top": ({"top": "lstm"}, "choose one of linear, transformer, none"),
        "kind": ({"peft_type": "loraa"}, "did you mean 'lora'"),
        "option": ({"peft_type": "lora", "peft_options": {"rr": 4}}, "refuses them.*'rr'"),
        "options of no other kind": ({"peft_options": {"r": 4}}, "another peft_type"),
        "prompts": ({"peft_type": "prompt_tuning"}, "tokens of its own"),
        "lora's maps": (
            {"peft_type": "lora", "per_language": "all"},
            "per_language=all: only peft_type=xalign has that",
        ),
        "lora's links": ({"peft_type": "lora", "batch_of": "links"}, "batch_of=pairs"),
        "cached adapters": ({"adapters": "pfeiffer", "feature_cache": True}, "changes the word vectors"),
        "cache": ({"feature_cache": False, "cache_dir": "x"}, "no cache"),
        "transformer's maps": ({"preset": "transformer", "per_language": "all"}, "only the linear map"),
        "one rotation": ({"orthogonal": True}, "give per_language"),
        "frozen contrast": ({"objective": "infonce", "align_target": "frozen"}, "goes with objective=l2"),
        "specials of links": ({"batch_of": "links", "linked_tokens": "all"}, "linked_tokens=words"),
        "all words of links": (
            {"batch_of": "links", "regularizer_weight": 1.0, "regularized_words": "all"},
            "regularized_words=linked",
        ),
    }
    assert_refused({k: (partial(mao.config, tmp_path, **own), message) for k, (own, message) in table.items()})


def test_what_mao_cannot_train(tmp_path):
    """It is refused before the encoder runs."""

    def attempt(target_lang=..., **settings):
        links, encoder = make_links(8), make_encoder()
        if target_lang is not ...:
            links = links.remove_columns("target_lang")
        if target_lang not in (..., None):
            links = links.add_column("target_lang", target_lang)
        encoder.register_forward_hook(lambda *_: pytest.fail("the encoder ran"))
        mao.make(tmp_path, encoder, data=links, **settings)

    table = {
        "heads": ({"preset": "transformer", "num_heads": 3}, "num_heads=3 does not divide the hidden size, 16"),
        "bottleneck": ({"preset": "adapter", "reduction_factor": 32}, "leaves nothing"),
        "lora": ({"peft_type": "lora", "peft_options": {"target_modules": ["nothing"]}}, "not found.*peft_options"),
        "no language": ({"per_language": "all", "target_lang": None}, "no column target_lang"),
        "two pivots": ({"per_language": "all", "target_lang": ["en", "fr"] * 4}, "one pivot"),
    }
    assert_refused({k: (partial(attempt, **own), message) for k, (own, message) in table.items()})
    modernbert, state = AutoModel.from_config(CONFIGS["modernbert"]()), torch.get_rng_state()
    check = mao.config(tmp_path, preset="adapter").check_model
    assert_refused({"ModernBERT": (lambda: check(modernbert, make_tokenizer()), "use pfeiffer or houlsby")})
    encoder = make_encoder()
    state = torch.get_rng_state()
    check(encoder, make_tokenizer())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any("xalign" in name for model in (encoder, modernbert) for name, _ in model.named_modules())


def peft(config=None, trained=True, **settings):
    model = get_peft_model(make_encoder(), config or XAlignConfig(**settings))
    return model if trained else model.requires_grad_(False)


def two_active():
    # The cache of what is below the one on top would leave the other out.
    model = peft()
    model.add_adapter("inside", XAlignConfig(top=None, adapters="houlsby"))
    model.base_model.set_adapter(["default", "inside"])
    return model


def test_a_module_that_does_not_fit(tmp_path):
    table = {
        "frozen": (peft(trained=False), {}, "is_trainable=True"),
        "pooling": (peft(pooling="last"), {}, "for pooling=last"),
        "cached adapters": (peft(adapters="pfeiffer"), {"feature_cache": True}, "leave them out"),
        "cached lora": (peft(LoraConfig()), {"cache_dir": "x"}, "leave them out"),
        "language": (
            peft(languages=["nl"], pivot="en"),
            {},
            "training pairs are in de too.*for nl, en alone",
        ),
        "two active": (two_active(), {}, "adapters default, inside of this PeftModel are active"),
        "links for adapters": (
            peft(adapters="pfeiffer"),
            {"batch_of": "links", "regularized_words": "linked"},
            "two sentences for",
        ),
    }
    assert_refused(
        {k: (partial(mao.make, tmp_path, model, **own), message) for k, (model, own, message) in table.items()}
    )


def test_held_out_pairs_without_a_map(tmp_path):
    """They are refused before training."""

    def attempt(held_out, model=None, **settings):
        MAOTrainer(
            model or make_encoder(),
            mao.config(tmp_path, **settings),
            train_dataset=make_links(8),
            eval_dataset=held_out,
            processing_class=make_tokenizer(),
        )

    french = make_links(8).map(lambda row: {"source_lang": "fr"})
    bare = make_links(8).remove_columns("target_lang")
    table = {}
    for kind, given in {
        "new": {"per_language": "all"},
        "there": {"model": peft(languages=["de"], pivot="en")},
    }.items():
        table[f"french, {kind}"] = (
            partial(attempt, french, **given),
            "held-out pairs are in fr too.*for de, en alone",
        )
        table[f"no language, {kind}"] = (partial(attempt, bare, **given), "no column target_lang")
    assert_refused(table)


def test_resuming_with_another_module(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2}
    rank2, rank4 = ({"peft_type": "lora", "peft_options": {"r": r}} for r in (2, 4))
    for name, first in (("linear", {}), ("lora", rank2)):
        mao.make(tmp_path / name, **first, **saving, max_steps=2).train()

    def resume(name, **settings):
        return lambda: mao.make(tmp_path / name, **settings, **saving, max_steps=4).train(resume_from_checkpoint=True)

    assert_refused(
        {
            "top": (resume("linear", top="transformer"), "top is linear there and transformer here"),
            "pooling": (resume("linear", pooling="last"), "pooling is mean there and last here"),
            "kind": (resume("linear", peft_type="lora"), "peft_type is XALIGN there"),
            "rank": (resume("lora", **rank4), "r is 2 there and 4 here"),
        }
    )
