"""PPA around its steps: what is saved and scored, every family, and what a step leaves behind."""

import pytest
import torch
from safetensors.torch import load_file
from support.families import CONFIGS, save_base
from support.launch import STEADY, numbers, slow, tensors, trained
from support.numeric import assert_rounding
from support.ppa import make, make_pairs
from support.tiny import make_tokenizer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, TrainerCallback

from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.modeling.checkpoint import HEAD_NAME, load_trainable

ONE_STEP = {"max_steps": 1, "learning_rate": 0.05, "warmup_steps": 0.0, "lr_scheduler_type": "constant"}

# ---- What is saved ----


FAST_FAMILIES = ("bert", "deberta-v2")


@pytest.mark.parametrize("family", [*FAST_FAMILIES, *slow(sorted({*CONFIGS} - {*FAST_FAMILIES}))])
def test_trains_saves_and_loads(family, tmp_path):
    base, out = tmp_path / "base", tmp_path / "out"
    save_base(family, base)
    model, tokenizer = load_trainable(str(base)), AutoTokenizer.from_pretrained(base)
    settings = {**ONE_STEP, "mlm_probability": 1.0, "queue_start": "random", "per_device_train_batch_size": 8}
    trainer = make(out, model, tokenizer=tokenizer, **settings)
    before = tensors(model)
    trainer.train()
    trainer.save_model()
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    still = {name for name in trained if torch.equal(model.state_dict()[name], before[name])}
    # A key bias shifts every score of a softmax by the same amount: its gradient is zero but for rounding.
    assert still <= {name for name in trained if "key.bias" in name or "k_lin.bias" in name}
    assert {name.split(".")[1] for name in trained if name.startswith(HEAD_NAME)} == {"sentence", "words"}

    saved = load_file(out / "model.safetensors")
    assert set(saved) == set(load_file(base / "model.safetensors"))
    batch = tokenizer(["the cat", "datei öffnen"], padding=True, return_tensors="pt", return_token_type_ids=False)
    loaded = AutoModel.from_pretrained(out)
    _, report = AutoModelForMaskedLM.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"]
    with torch.no_grad():
        assert torch.equal(loaded.eval()(**batch).last_hidden_state, model.eval()(**batch).last_hidden_state)
    if family == "bert":
        untouched = load_file(base / "model.safetensors")["bert.pooler.dense.weight"]
        assert torch.equal(saved["bert.pooler.dense.weight"], untouched)


@pytest.mark.parametrize("had_head", [True, False])
def test_only_a_new_head_settles_at_a_rate_of_its_own(had_head, tmp_path, caplog):
    save_base("xlm-roberta", tmp_path / "base", head=had_head)
    model = load_trainable(str(tmp_path / "base"))
    before = tensors(model)
    trainer = make(tmp_path / "out", model, **ONE_STEP, weight_decay=0.0, contrast="none", head_learning_rate=0.01)
    head = getattr(trainer.model, HEAD_NAME)["words"]
    assert ("no pre-trained MLM head: a new one" in caplog.text) == (not had_head)
    if not had_head:
        text = trainer.train_dataset
        ids = torch.tensor([token for side in ("source_ids", "target_ids") for row in text[side] for token in row])
        counts = torch.bincount(ids, minlength=len(head.bias)).double() + 0.1
        assert_rounding(head.bias, (counts / counts.sum()).log(), operations=8, scale=10)
    trainer.train()
    rates = {p: group["lr"] for group in trainer.optimizer.param_groups for p in group["params"]}
    own = set() if had_head else set(head.parameters())
    assert rates == {p: 0.01 if p in own else 0.05 for p in trainer.model.parameters() if p.requires_grad}
    moved = {name for name, weight in before.items() if not torch.equal(tensors(trainer.model)[name], weight)}
    assert bool(moved) == had_head
    trainer.save_model()
    whole, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and torch.equal(whole.lm_head.dense.weight, head.dense.weight)


def test_bfloat16_is_near_float32(tmp_path):
    for settings in ({}, {"contrast": "in_batch"}):
        settings = {**STEADY, **settings, "queue_start": "random", "overwrite_output_dir": True}
        half, whole = (numbers(trained(make(tmp_path, **settings, bf16=bf16)))[:, 1] for bf16 in (True, False))
        # The six products of each of two layers are rounded to bfloat16.
        assert_rounding(half, whole, operations=2 * 6, dtype=torch.bfloat16)
        # A CPU without AMX trains in float32.
        assert torch.equal(half, whole) == (not make(tmp_path / "made", bf16=True).args.bf16)


# ---- Scores ----


def test_evaluates_before_during_and_after(tmp_path):
    trainer = trained(make(tmp_path, eval_strategy="steps", eval_steps=3))
    rows = [row for row in trainer.state.log_history if "eval_retrieval" in row]
    assert [row["step"] for row in rows] == [0, 3, 4]
    scores = score_sentences(trainer.model, make_tokenizer(), make_pairs(8))
    for code, own in scores.items():
        for name in ("sentence_cls", "sentence_cls_to_pivot", "sentence_cls_from_pivot"):
            assert rows[-1][f"eval_{code}_{name}"] == own[name]
    mean = sum(own["sentence_cls"] for own in scores.values()) / 2
    assert_rounding(rows[-1]["eval_retrieval"], mean, operations=2)
    metrics = make(tmp_path / "mean", sentence_pooling="mean").evaluate(metric_key_prefix="test")
    assert {"test_de_sentence_mean", "test_retrieval"} <= set(metrics)


# ---- What a step leaves behind ----


def test_the_keys_of_an_interrupted_step_are_forgotten(tmp_path):
    class Interrupt(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            if state.global_step == 1:
                raise KeyboardInterrupt

    callback = Interrupt()
    settings = {"gradient_accumulation_steps": 2, "queue_size": 40, "logging_strategy": "no"}
    trainer = make(tmp_path, callbacks=[callback], **settings)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.remove_callback(callback)
    trainer.train()
    assert (trainer.queue.pairs >= 0).sum() == 8 + 16
