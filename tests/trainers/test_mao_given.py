"""MAO on a module that is there already, other PEFT methods, and what is refused."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from support.families import CONFIGS
from support.mao import SAVED, config, make, trainable
from support.tiny import make_encoder, make_links, make_tokenizer
from transformers import AutoModel

from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig
from hf_xalign.trainers import MAOTrainer

# ---- A module that is there already ----


@pytest.mark.parametrize("kind", SAVED)
def test_a_trained_module_is_trained_on(kind, tmp_path):
    first = make(tmp_path / "first", **SAVED[kind])
    first.train()
    first.save_model(str(tmp_path / "out"))
    model = PeftModel.from_pretrained(make_encoder(), str(tmp_path / "out"), is_trainable=True)
    # The module that the model has is trained, whatever the settings would make.
    trainer = make(tmp_path / "second", model, regularizer_weight=0.5)
    assert trainer.model is model
    start = trainable(model)
    for name, weight in trainable(first.model).items():
        assert torch.equal(start[name], weight)
    cached = "word_vectors" in trainer.data_collator([trainer.train_dataset[0]])
    assert cached == (kind not in ("adapter", "lora"))
    trainer.train()
    assert all(
        not torch.equal(weight, start[name]) for name, weight in trainable(model).items() if "in_proj" not in name
    )
    trainer.save_model(str(tmp_path / "again"))
    again = PeftModel.from_pretrained(make_encoder(), str(tmp_path / "again"))
    for name, weight in trainable(model).items():
        assert torch.equal(again.get_parameter(name), weight)


def peft(trained=True, **settings):
    model = get_peft_model(make_encoder(), XAlignConfig(**settings))
    return model if trained else model.requires_grad_(False)


def two_active():
    # The cache of what is below the one on top would leave the other out.
    model = peft()
    model.add_adapter("inside", XAlignConfig(top=None, adapters="houlsby"))
    model.base_model.set_adapter(["default", "inside"])
    return model


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (lambda: peft(trained=False), {}, "is_trainable=True"),
        (lambda: peft(pooling="last"), {}, "for pooling=last"),
        (lambda: peft(adapters="pfeiffer"), {"feature_cache": True}, "leave them out"),
        (lambda: get_peft_model(make_encoder(), LoraConfig()), {"cache_dir": "x"}, "leave them out"),
        (lambda: peft(languages=["nl"], pivot="en"), {}, "are in de too, and this PeftModel has maps for nl, en"),
        (lambda: two_active(), {}, "adapters default, inside of this PeftModel are active"),
        (lambda: peft(adapters="pfeiffer"), {"batch_of": "links", "regularized_words": "linked"}, "two sentences for"),
        (lambda: get_peft_model(make_encoder(), LoraConfig()), {"batch_of": "links"}, "two sentences for"),
    ],
    ids=[
        "frozen",
        "pooling",
        "cached adapters",
        "cached lora",
        "language",
        "two active",
        "links for adapters",
        "links for lora",
    ],
)
def test_a_module_that_does_not_fit_is_refused(model, settings, message, tmp_path):
    with pytest.raises(InputError, match=message):
        make(tmp_path, model(), **settings)


# ---- Settings ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "mbert_liner"}, "did you mean mbert_linear"),
        ({"top": "lstm"}, "choose one of linear, transformer, none"),
        ({"peft_type": "loraa"}, "did you mean lora"),
        ({"peft_type": "lora", "peft_options": {"rr": 4}}, "no setting rr; did you mean r"),
        ({"peft_options": {"r": 4}}, "another peft_type"),
        ({"peft_type": "prompt_tuning"}, "tokens of its own"),
        ({"peft_type": "lora", "per_language": "all"}, "per_language=all: only peft_type=xalign has that"),
        (
            {"peft_type": "lora", "preset": "adapter", "top": "linear"},
            "top=linear: only",
        ),
        ({"preset": "transformer", "linear_bias": True}, "set top=linear"),
        ({"peft_type": "lora", "batch_of": "links"}, "batch_of=pairs"),
        ({"peft_type": "lora", "feature_cache": True}, "changes the word vectors"),
        ({"adapters": "pfeiffer", "feature_cache": True}, "changes the word vectors"),
        ({"feature_cache": False, "cache_dir": "x"}, "no cache"),
        ({"preset": "adapter", "cache_dir": "x"}, "no cache"),
        ({"preset": "transformer", "per_language": "all"}, "only the linear map"),
        ({"orthogonal": True}, "give per_language"),
        ({"orthogonal": True, "per_language": "all", "linear_bias": True}, "linear_bias=False"),
        ({"top": "none"}, "nothing to train"),
        ({"dropout": 1.5}, "below 1"),
        ({"objective": "infonce", "align_target": "frozen"}, "goes with objective=l2"),
        ({"batch_of": "links", "linked_tokens": "all"}, "linked_tokens=words"),
        (
            {"batch_of": "links", "regularizer_weight": 1.0, "regularized_words": "all"},
            "regularized_words=linked",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings, message, tmp_path):
    with pytest.raises(InputError, match=message):
        config(tmp_path, **settings)


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({"preset": "transformer", "num_heads": 3}, {}, "num_heads=3 does not divide the hidden size, 16"),
        ({"preset": "adapter", "reduction_factor": 32}, {}, "leaves nothing"),
        ({"peft_type": "lora", "peft_options": {"target_modules": ["nothing"]}}, {}, "not found.*peft_options"),
        ({"per_language": "all"}, {"target_lang": None}, "no column target_lang"),
        ({"per_language": "all"}, {"target_lang": ["en", "fr"] * 4}, "one pivot"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once(settings, data, message, tmp_path):
    links = make_links(8)
    for name, values in data.items():
        links = links.remove_columns(name)
        if values:
            links = links.add_column(name, values)
    encoder = make_encoder()
    encoder.register_forward_hook(lambda *_: pytest.fail("the encoder ran"))
    with pytest.raises(InputError, match=message):
        make(tmp_path, encoder, data=links, **settings)


@pytest.mark.parametrize("family", ["modernbert", "bert"])
def test_the_encoder_is_asked_before_any_pair_is_linked(family, tmp_path):
    encoder = AutoModel.from_config(CONFIGS[family]())
    state = torch.get_rng_state()
    args = config(tmp_path, preset="adapter")
    if family == "bert":
        args.check_model(encoder, make_tokenizer())
    else:
        with pytest.raises(InputError, match="use pfeiffer or houlsby"):
            args.check_model(encoder, make_tokenizer())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any("xalign" in name for name, _ in encoder.named_modules())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda links: links.map(lambda row: {"source_lang": "fr"}), "held-out pairs are in fr too.*for de, en alone"),
        (lambda links: links.remove_columns("target_lang"), "no column target_lang"),
    ],
)
def test_held_out_pairs_without_a_map_are_refused_before_training(change, message, tmp_path):
    def attempt(model, **settings):
        with pytest.raises(InputError, match=message):
            MAOTrainer(
                model,
                config(tmp_path, **settings),
                train_dataset=make_links(8),
                eval_dataset=change(make_links(8)),
                processing_class=make_tokenizer(),
            )

    attempt(make_encoder(), per_language="all")
    attempt(peft(languages=["de"], pivot="en"))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"top": "transformer"}, "top is linear there and transformer here"),
        ({}, {"pooling": "last"}, "pooling is mean there and last here"),
        ({}, {"peft_type": "lora"}, "peft_type is XALIGN there"),
        (
            {"peft_type": "lora", "peft_options": {"r": 2}},
            {"peft_type": "lora", "peft_options": {"r": 4}},
            "r is 2 there and 4 here",
        ),
    ],
    ids=["top", "pooling", "kind", "rank"],
)
def test_resuming_with_another_module_is_refused(first, second, message, tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    make(tmp_path, **first, **saving).train()
    with pytest.raises(InputError, match=message):
        make(tmp_path, **second, **{**saving, "max_steps": 4}).train(resume_from_checkpoint=True)
