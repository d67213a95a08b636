"""What MAO saves, and training on from a module that is there already."""

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from support.mao import SAVED, make, states, trainable
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.modeling import set_language


@pytest.mark.parametrize("kind", SAVED)
def test_what_is_saved_is_what_was_trained_and_is_trained_on(kind, tmp_path):
    first, out = make(tmp_path / "first", **SAVED[kind]), tmp_path / "out"
    first.train()
    first.save_model(str(out))
    names = {path.name for path in out.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "training_args.json"} <= names
    assert not {name for name in names if name.startswith("model") or name.endswith(".bin")}
    assert len(load_file(out / "adapter_model.safetensors")) == len(trainable(first.model))
    assert json.loads((out / "training_args.json").read_text())["preset"] == first.args.preset
    loaded = PeftModel.from_pretrained(make_encoder(), str(out))
    scores = [score_retrieval(model, make_tokenizer(), make_links(8)) for model in (loaded, first.model)]
    assert scores[0] == scores[1]
    if kind == "maps":
        for model in (loaded, first.model):
            set_language(model, "de")
    assert torch.equal(states(loaded), states(first.model))
    assert not torch.equal(states(loaded), states(make_encoder()))

    model = PeftModel.from_pretrained(make_encoder(), str(out), is_trainable=True)
    # The module that the model has is trained, whatever the settings would make.
    trainer = make(tmp_path / "second", model, regularizer_weight=0.5)
    assert trainer.model is model
    start = trainable(model)
    for name, weight in trainable(first.model).items():
        assert torch.equal(start[name], weight)
    cached = "word_vectors" in trainer.data_collator([trainer.train_dataset[0]])
    assert cached == (kind not in ("adapter", "lora"))
    trainer.train()
    moved = {name for name, weight in trainable(model).items() if not torch.equal(weight, start[name])}
    assert set(start) - moved <= {name for name in start if "in_proj" in name}
    trainer.save_model(str(tmp_path / "again"))
    again = PeftModel.from_pretrained(make_encoder(), str(tmp_path / "again"))
    for name, weight in trainable(model).items():
        assert torch.equal(again.get_parameter(name), weight)
