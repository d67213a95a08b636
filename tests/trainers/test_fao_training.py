"""What happens around the steps: evaluation, early stopping, NaN, logging, sampling."""

from __future__ import annotations

import json

import pytest
import torch
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer
from transformers import TrainerCallback

from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.trainers import FAOConfig, FAOTrainer, NonFiniteLossError
from hf_xalign.trainers.checkpoints import last_complete_checkpoint


def make(folder, callbacks=None, pairs=24, **settings):
    args = FAOConfig(
        **{
            "output_dir": str(folder),
            "use_cpu": True,
            "per_device_train_batch_size": 4,
            "disable_tqdm": True,
            "logging_steps": 1,
            "learning_rate": 1e-3,
            "save_strategy": "no",
            **settings,
        }
    )
    return FAOTrainer(
        make_encoder(),
        args,
        train_dataset=make_links(pairs),
        eval_dataset=make_links(8),
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


class Poison(TrainerCallback):
    """Put a NaN into a weight after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            next(p for p in model.parameters() if p.requires_grad).data.flatten()[0] = float("nan")


def test_nan_in_the_last_steps_is_not_returned_as_a_model(tmp_path):
    trainer = make(tmp_path / "run", [Poison(5)], logging_steps=1000)
    with pytest.raises(NonFiniteLossError, match="no checkpoint was written"):
        trainer.train()


@pytest.mark.parametrize("logging_steps", [1, 1000])
def test_nan_stops_and_keeps_the_last_good_checkpoint(logging_steps, tmp_path):
    trainer = make(tmp_path / "run", [Poison(3)], save_strategy="steps", save_steps=2, logging_steps=logging_steps)
    with pytest.raises(NonFiniteLossError, match="checkpoint-2"):
        trainer.train()
    assert last_complete_checkpoint(tmp_path / "run").endswith("checkpoint-2")
    assert not (tmp_path / "run" / "checkpoint-4").exists()


def test_evaluates_before_during_and_after(tmp_path):
    trainer = make(tmp_path / "run", eval_strategy="steps", eval_steps=4)
    trainer.train()
    curve = [(row["step"], row["eval_retrieval"]) for row in trainer.state.log_history if "eval_retrieval" in row]
    assert [step for step, _ in curve] == [0, 4, 6]
    scores = score_retrieval(trainer.model, make_tokenizer(), make_links(8))
    assert curve[-1][1] == pytest.approx(scores["de"]["retrieval_mean"])
    assert any("eval_de_retrieval_mean_to_pivot" in row for row in trainer.state.log_history)


def test_early_stopping_restores_the_best(tmp_path):
    class Falling(FAOTrainer):
        """Its scores rise once and then fall."""

        curve = iter([0.05, 0.1, 0.5, 0.4, 0.3, 0.2, 0.1])

        def evaluate(self, *args, **kwargs):
            metrics = {"eval_retrieval": next(self.curve)}
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    args = FAOConfig(
        output_dir=str(tmp_path / "run"),
        use_cpu=True,
        per_device_train_batch_size=4,
        early_stopping_patience=2,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        objective="infonce",
        learning_rate=1e-2,
        disable_tqdm=True,
    )
    trainer = Falling(
        make_encoder(),
        args,
        train_dataset=make_links(24),
        eval_dataset=make_links(8),
        processing_class=make_tokenizer(),
    )
    trainer.train()
    assert trainer.state.global_step == 4
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    best = make(tmp_path / "other", objective="infonce")
    best._load_from_checkpoint(str(tmp_path / "run" / "checkpoint-2"))
    for a, b in zip(trainer.model.state_dict().values(), best.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_the_projection_head_is_trained_but_not_exported(tmp_path):
    trainer = make(tmp_path / "run", objective="infonce")
    head = {k: v.clone() for k, v in getattr(trainer.model, HEAD_NAME).state_dict().items()}
    trainer.train()
    assert all(not torch.equal(head[k], v) for k, v in getattr(trainer.model, HEAD_NAME).state_dict().items())
    trainer.save_model(str(tmp_path / "out"))
    from safetensors.torch import load_file

    assert not any(HEAD_NAME in name for name in load_file(tmp_path / "out" / "model.safetensors"))


def test_terms_are_means_over_steps(tmp_path):
    each = make(tmp_path / "each", train_sampling_strategy="sequential")
    each.train()
    rows = [row for row in each.state.log_history if "loss/align" in row]
    joint = make(tmp_path / "joint", train_sampling_strategy="sequential", logging_steps=6)
    joint.train()
    (row,) = [row for row in joint.state.log_history if "loss/align" in row]
    for name in ("loss", "loss/align", "loss/regularizer"):
        assert row[name] == pytest.approx(sum(r[name] for r in rows) / 6, rel=1e-5)
        assert row["loss"] == pytest.approx(row["loss/align"] + row["loss/regularizer"], rel=1e-5)


def test_reported_to_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    import wandb

    logged = {}
    real = wandb.Run.log
    monkeypatch.setattr(
        wandb.Run, "log", lambda self, data, *a, **k: (logged.update(data), real(self, data, *a, **k))[1]
    )
    trainer = make(tmp_path / "run", report_to=["wandb"], eval_strategy="steps", eval_steps=3)
    trainer.train()
    wandb.finish()
    assert {"train/loss", "train/loss/align", "train/loss/regularizer", "eval/retrieval"} <= set(logged)
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.parametrize(
    ("tracker", "package"),
    [("wandb", r'"hf_xalign\[wandb\]"'), ("tensorboard", "tensorboard"), ("trackio", "trackio")],
)
def test_a_missing_tracker_names_what_to_install(tracker, package, tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None)
    with pytest.raises(InputError, match=f"{tracker} is not installed: pip install {package}$"):
        FAOConfig(output_dir=str(tmp_path), use_cpu=True, report_to=[tracker])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "maoo"}, "did you mean mao"),
        ({"pooling": "max"}, "choose one of first, last, mean"),
        ({"objective": "infonce", "layers": [-2, -1]}, "one layer"),
        ({"preset": "rotate_src2tgt", "mean_over_dims": True}, "squared_l2"),
        ({"train_sampling_strategy": "batch_rebalance"}, "choose group_by_length"),
    ],
)
def test_settings_that_cannot_be(settings, message, tmp_path):
    with pytest.raises(InputError, match=message):
        FAOConfig(output_dir=str(tmp_path), use_cpu=True, **settings)


def test_the_head_is_in_checkpoints_without_an_optimizer(tmp_path):
    trainer = make(
        tmp_path / "run",
        objective="infonce",
        save_strategy="steps",
        save_steps=3,
        save_only_model=True,
        eval_strategy="steps",
        eval_steps=3,
        early_stopping_patience=5,
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint


def test_train_can_go_on_in_one_process(tmp_path):
    trainer = make(tmp_path / "run", save_strategy="steps", save_steps=3)
    trainer.train()
    trainer.train()
    assert trainer.state.global_step == 6


def test_a_checkpoint_by_its_path(tmp_path):
    make(tmp_path / "run", save_strategy="steps", save_steps=2).train()
    trainer = make(tmp_path / "other")
    trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-4"))
    assert trainer.state.global_step == 6
    (tmp_path / "run" / "checkpoint-4" / "complete").unlink()
    for path, message in (("checkpoint-4", "last whole one"), ("checkpoint-9", "no such folder")):
        with pytest.raises(InputError, match=message):
            make(tmp_path / "third").train(resume_from_checkpoint=str(tmp_path / "run" / path))
    assert (tmp_path / "run" / "checkpoint-4").is_dir()
    with pytest.raises(InputError, match="give one of them"):
        make(tmp_path / "run", overwrite_output_dir=True).train(resume_from_checkpoint=True)


def lora(dropout, **settings):
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        make_encoder(dropout=dropout), LoraConfig(r=4, target_modules=["query", "value"], **settings)
    )


def test_the_reference_of_a_peft_model_has_no_dropout(tmp_path):
    model = lora(dropout=0.3)
    args = FAOConfig(output_dir=str(tmp_path), use_cpu=True)
    trainer = FAOTrainer(model, args, train_dataset=make_links(8), processing_class=make_tokenizer())
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(4)])
    model.train()
    first, second = (trainer._reference_vectors(model, batch) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    other = make_encoder().eval()
    with torch.no_grad():
        hidden = other(input_ids=batch["kept_ids"], attention_mask=batch["kept_mask"]).last_hidden_state
    torch.testing.assert_close(first[:, 0], hidden.flatten(0, 1)[batch["kept_index"]])


def test_a_peft_model_trains_saves_and_resumes(tmp_path):
    from peft import PeftModel

    for resume in (None, True):
        args = FAOConfig(
            output_dir=str(tmp_path / "run"),
            use_cpu=True,
            save_steps=1,
            max_steps=3 if resume else 2,
            disable_tqdm=True,
        )
        trainer = FAOTrainer(lora(0.0), args, train_dataset=make_links(16), processing_class=make_tokenizer())
        trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(str(tmp_path / "out"))
    loaded = PeftModel.from_pretrained(make_encoder(), str(tmp_path / "out")).eval()
    ids = torch.tensor([[2, 8, 59, 3]])
    with torch.no_grad():
        assert torch.equal(
            loaded(input_ids=ids).last_hidden_state, trainer.model.eval()(input_ids=ids).last_hidden_state
        )


def no_specials():
    from tokenizers.processors import TemplateProcessing

    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    return tokenizer


def no_padding():
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    return tokenizer


def with_head():
    from transformers import BertForMaskedLM

    return BertForMaskedLM(make_encoder().config)


@pytest.mark.parametrize(
    ("encoder", "tokenizer", "settings", "message"),
    [
        (make_encoder, no_specials, {"linked_tokens": "all"}, "no special token first and none last"),
        (make_encoder, no_padding, {}, "no padding token"),
        (with_head, make_tokenizer, {}, "encoder with a head"),
        (make_multilingual_encoder, make_tokenizer, {}, r"language embeddings \(en, de\).*take every text for en"),
        (make_encoder, make_tokenizer, {"layers": [7]}, "layers 0"),
        (make_encoder, make_tokenizer, {"freeze_layers": 2}, "something below it must be trained"),
        (lambda: lora(0.0), make_tokenizer, {"freeze_layers": 1}, "PEFT model's is frozen"),
        (lambda: lora(0.0), make_tokenizer, {"reference": "cache"}, "use reference=copy"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once(encoder, tokenizer, settings, message, tmp_path):
    args = FAOConfig(output_dir=str(tmp_path), use_cpu=True, **settings)
    with pytest.raises(InputError, match=message):
        FAOTrainer(encoder(), args, train_dataset=make_links(8), processing_class=tokenizer())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reference_dtype": "bfloat16"}, "reference_dtype=bfloat16: without reference=cache"),
        ({"cache_dir": "x"}, "cache_dir=x: without reference=cache"),
    ],
)
def test_a_setting_that_nothing_would_read_is_refused(settings, message, tmp_path):
    with pytest.raises(InputError, match=message):
        FAOConfig(output_dir=str(tmp_path), use_cpu=True, **settings)
    FAOConfig(output_dir=str(tmp_path), use_cpu=True, reference="cache", **settings)


@pytest.mark.parametrize("setting", [("temperature", 0.05), ("negatives", "other_sentences"), ("projection_dim", 0)])
def test_the_distance_tells_of_settings_that_infonce_alone_reads(setting, tmp_path, caplog):
    own = {"output_dir": str(tmp_path), "use_cpu": True, setting[0]: setting[1]}
    FAOConfig(objective="infonce", **own)
    assert not caplog.records
    FAOConfig(**own)
    assert f"{setting[0]}={setting[1]} has no effect: objective=l2" in caplog.text


def test_a_slow_tokenizer_is_refused(tmp_path):
    class Slow:
        is_fast = False

    args = FAOConfig(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(InputError, match="word_ids"):
        FAOTrainer(make_encoder(), args, train_dataset=make_links(8), processing_class=Slow())


def test_settings_are_kept_as_json(tmp_path):
    trainer = make(tmp_path / "run")
    trainer.save_model(str(tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "training_args.json").read_text())["preset"] == "mao"
    assert not (tmp_path / "out" / "training_args.bin").exists()
