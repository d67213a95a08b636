"""What MAO trains and saves, from its presets or on a module that is there; its cache of word vectors."""

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from support.launch import slow
from support.mao import KINDS, SAVED, make, states, trainable
from support.runs import two_languages
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.modeling import set_language

FAST_KINDS = ("linear", "maps", "others", "transformer", "adapter", "lora")
FAST_SAVED = ("maps", "transformer", "lora")

# ---- What is trained ----


@pytest.mark.parametrize("kind", [*FAST_KINDS, *slow(sorted({*KINDS} - {*FAST_KINDS}))])
def test_the_encoder_stays_and_all_of_the_module_moves(kind, tmp_path):
    encoder, trained = make_encoder(layers=3), make_encoder(layers=3)
    # A random start: at an identity start the first step moves only the gate, or one of an adapter's two matrices.
    trainer = make(tmp_path, trained, init="random", num_train_epochs=2, warmup_steps=0.0, **KINDS[kind])
    frozen = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if not p.requires_grad}
    start = trainable(trainer.model)
    # The encoder has all of its weights among the frozen ones, and nothing else is frozen.
    assert start and sum(p.numel() for p in frozen.values()) == sum(p.numel() for p in encoder.parameters())
    trainer.train()
    for name, parameter in trainer.model.named_parameters():
        if name in frozen:
            assert torch.equal(parameter, frozen[name]) and parameter.grad is None, name
        elif name.endswith("layer.self_attn.in_proj_bias"):
            # The key's third shifts every score of a softmax alike: its gradient is zero but for rounding.
            query, _, value = parameter.chunk(3)
            was = start[name].chunk(3)
            assert kind == "no context" or not torch.equal(query, was[0])
            assert not torch.equal(value, was[2])
        else:
            assert not torch.equal(parameter, start[name]), name
    with trainer.model.disable_adapter():
        assert torch.equal(states(trainer.model), states(encoder))


def test_nothing_below_the_first_adapter_is_kept_for_backward(tmp_path):
    trainer = make(tmp_path, preset="adapter")
    trainer.cache_start()
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(4)])
    seen = {}
    layers = trainer.model.get_base_model().encoder.layer
    layers[0].attention.register_forward_hook(lambda m, a, output: seen.update(below=output[0].requires_grad))
    layers[0].register_forward_hook(
        lambda m, a, output: seen.update(above=(output[0] if isinstance(output, tuple) else output).requires_grad)
    )
    trainer.compute_loss(trainer.model, batch).backward()
    assert seen == {"below": False, "above": True}
    assert trainer.model.get_base_model().embeddings.word_embeddings.weight.grad is None


# ---- What is saved, and training on from a module that is there already ----


@pytest.mark.parametrize("kind", [*FAST_SAVED, *slow(sorted({*SAVED} - {*FAST_SAVED}))])
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
    start = trainable(model)
    for name, weight in trainable(first.model).items():
        assert torch.equal(start[name], weight)
    trainer.cache_start()
    cached = "word_vectors" in trainer.data_collator([trainer.train_dataset[0]])
    assert trainer.model is model and cached == (kind not in ("adapter", "lora"))
    trainer.train()
    moved = {name for name, weight in trainable(model).items() if not torch.equal(weight, start[name])}
    assert set(start) - moved <= {name for name in start if "in_proj" in name}


# ---- The cache ----


def test_the_encoder_runs_once_over_the_corpus(tmp_path):
    def forwards(name, **settings):
        """Count the encoder's passes in caching and one step."""
        encoder, calls = make_encoder(), []
        encoder.register_forward_hook(lambda *_: calls.append(1))
        torch.manual_seed(len(name))
        make(tmp_path / name, encoder, data=two_languages(24), max_steps=1, **settings).train()
        return len(calls)

    # Sixteen distinct sentences, eight at a time. Without context, the words alone are needed, as for the map.
    for name, passes, module, cache in (
        ("maps", 2, {"per_language": "others"}, "words of others"),
        ("transformer", 2, {"preset": "transformer"}, "sentences"),
        ("no context", 0, {"preset": "transformer", "context": False}, "words of others"),
    ):
        assert forwards(name, **module, cache_dir=str(tmp_path / cache)) == passes, name
        assert forwards(f"{name} again", **module, cache_dir=str(tmp_path / cache)) == 0, name
