"""What happens around the steps: evaluation, early stopping, NaN, logging, sampling."""

import os

import pytest
import torch
from safetensors.torch import load_file
from support import fao, mao, runs
from support.fao import make
from support.launch import identical, numbers, outcome, same_bits, tensors
from support.numeric import assert_rounding
from support.runs import train
from support.tiny import make_encoder, make_links, make_tokenizer
from transformers import TrainerCallback

from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.freezing import autocast_removed
from hf_xalign.trainers import FAOTrainer, NonFiniteLossError
from hf_xalign.trainers.base import word
from hf_xalign.trainers.base.checkpoints import last_complete_checkpoint

STEPS = {"save_strategy": "steps", "eval_strategy": "steps"}


class Poison(TrainerCallback):
    """Put a NaN into a weight after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            next(p for p in model.parameters() if p.requires_grad).data.flatten()[0] = float("nan")


def test_pairs_that_are_encoded_when_drawn(tmp_path, monkeypatch):
    """In the same order they give the same steps, and a resumed run takes up at its row; caches need all rows."""
    settings = {"trainer": "fao", "objective": "infonce", "max_steps": 6, "save_strategy": "steps", "save_steps": 2}
    settings |= {"per_device_train_batch_size": 2, "num_train_epochs": 2, "count": 20}
    ahead = train(tmp_path / "ahead", train_sampling_strategy="random", **settings)
    monkeypatch.setattr(word, "ENCODED_AHEAD", 19)
    drawn = train(tmp_path / "drawn", train_sampling_strategy="random", **settings)
    assert "source_ids" not in drawn.train_dataset.column_names
    identical(outcome(ahead), outcome(drawn))
    settings["train_sampling_strategy"] = "group_by_length"
    whole = train(tmp_path / "whole", **settings)
    train(tmp_path / "stopped", **settings | {"max_steps": 4})
    resumed = runs.make(tmp_path / "stopped", **settings)
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(*(run.model.embeddings.word_embeddings.weight for run in (whole, resumed)))
    cached = runs.make(tmp_path / "cached", reference="cache", **settings)
    assert "source_ids" in cached.train_dataset.column_names


def test_a_share_of_the_start_is_averaged_in_at_the_end(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 2, "start_share": 0.25}
    trainer = make(tmp_path, **settings)
    start = {name: weight.clone() for name, weight in tensors(trainer.model).items()}
    trainer.train()
    trained = load_file(last_complete_checkpoint(tmp_path) + "/model.safetensors")
    names = {name for name in start if not torch.equal(trained[name], start[name])}
    assert names and "embeddings.word_embeddings.weight" in start
    ends = tensors(trainer.model)
    same_bits({name: trained[name].lerp(start[name], 0.25) for name in names}, {name: ends[name] for name in names})
    resumed = make(tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    same_bits(ends, tensors(resumed.model))
    assert trainer.formula().endswith("final weights: 0.25 before + 0.75 after training")


def test_held_out_pairs_of_words_alone_are_scored_by_words(tmp_path):
    words = make_links(8).remove_columns(["source", "target"])
    trainer = FAOTrainer(
        make_encoder(),
        fao.config(tmp_path, preset="joint", max_steps=1, record=True, warmup_steps=0),
        train_dataset=make_links(24),
        eval_dataset=words,
        processing_class=make_tokenizer(),
    )
    trainer.train()
    scores = trainer.run.record["scores"]["after"]["de"]
    assert "retrieval_mean" in scores and "sentence_mean" not in scores


def test_nan_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(NonFiniteLossError, match="last complete checkpoint: none"):  # of the last steps, too
        make(tmp_path / "last", callbacks=[Poison(5)], logging_steps=1000).train()
    for every in (1, 1000):
        folder = tmp_path / f"logged {every}"
        trainer = make(folder, callbacks=[Poison(3)], save_strategy="steps", save_steps=2, logging_steps=every)
        with pytest.raises(NonFiniteLossError, match="checkpoint-2"):
            trainer.train()
        assert last_complete_checkpoint(folder).endswith("checkpoint-2")
        assert not (folder / "checkpoint-4").exists()


def test_early_stopping_restores_the_best_with_the_projection_head_which_is_not_exported(tmp_path, monkeypatch):
    curve, seen = iter([0.05, 0.1, 0.5, 0.4, 0.3, 0.2]), []

    def metrics(trainer, _):
        seen.append(tensors(trainer.model))
        return {"retrieval": next(curve)}

    monkeypatch.setattr(FAOTrainer, "_metrics", metrics)
    options = {"early_stopping_patience": 2, **STEPS, "eval_steps": 1, "save_steps": 1, "save_only_model": True}
    trainer = make(tmp_path, objective="infonce", **options)
    trainer.train()
    assert trainer.state.global_step == 4 and trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    same_bits(seen[2], tensors(trainer.model))
    head = {name for name in seen[0] if HEAD_NAME in name}
    assert head and not any(torch.equal(seen[0][name], seen[2][name]) for name in head)
    trainer.save_model(str(tmp_path / "out"))
    assert not head & set(load_file(tmp_path / "out" / "model.safetensors"))


def test_after_training_in_16_bits_the_model_is_scored_in_float32_at_any_layer(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    trainer = make(tmp_path, bf16=True)
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    plain = make_encoder().eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    batch = dict(trainer.processing_class("the cat sees the dog", return_tensors="pt"))
    half, whole = model(**batch), plain(**batch, output_hidden_states=True)
    with autocast_removed(model):
        found = model(**batch, output_hidden_states=True)
    assert not torch.equal(half.last_hidden_state, whole.last_hidden_state)
    for own, wanted in zip(found.hidden_states, whole.hidden_states, strict=True):
        assert torch.equal(own, wanted)


def test_saved_weights_follow_the_umask(tmp_path):
    trainer = make(tmp_path, objective="infonce", max_steps=1, save_strategy="steps", save_steps=1)
    before = os.umask(0o027)
    try:
        trainer.train()
        trainer.save_model(str(tmp_path / "out"))
    finally:
        os.umask(before)
    files = [*tmp_path.rglob("*.safetensors")]
    assert len(files) == 3  # of the checkpoint the model and the head, and the model
    assert {file.stat().st_mode & 0o777 for file in files} == {0o640}


def test_terms_are_means_over_steps(tmp_path):
    rows, (first, row) = (
        numbers(trainer)[:, 1:]
        for every in (1, 6)
        for trainer in [make(tmp_path / str(every), train_sampling_strategy="sequential", logging_steps=every)]
        if trainer.train()
    )
    # Loss, distance and regularizer are logged in float32; the first step and the last have a row of their own.
    assert torch.equal(torch.as_tensor(first), torch.as_tensor(rows[0]))
    assert_rounding(row, rows[1:].mean(0), 5 + 1, dtype=torch.float32)
    assert_rounding(rows[:, 0], rows[:, 1:].sum(1), 2, dtype=torch.float32)
    assert rows.shape == (6, 3) and rows[-1].min() > 0


def test_a_second_trainer_finds_the_model_as_the_first_was_given_it(tmp_path):
    model = make_encoder(layers=3, dropout=0.25)
    model.encoder.layer[0].output.requires_grad_(False)

    def switches():
        frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
        return frozen, [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]

    given = switches()
    first = make(tmp_path / "first", model, layers=[1], freeze_embeddings=True, dropout=False, max_steps=1)
    first.train()
    assert len(switches()[0]) > 20
    assert not any(switches()[1])
    make(tmp_path / "second", model)
    assert switches() == given


def test_weights_in_bfloat16_are_warned_about(tmp_path, caplog):
    make(tmp_path / "whole")
    assert not caplog.messages
    make(tmp_path / "half", make_encoder().bfloat16())
    assert "the weights are bfloat16" in caplog.text
    caplog.clear()
    mao.make(tmp_path / "module", make_encoder().bfloat16())  # trains a module in float32
    assert "bfloat16" not in caplog.text
