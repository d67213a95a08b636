"""The task trainer: loss against a loop, invariance to how a step is split, checkpoints, scores, what is frozen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from support.adapters import adapt
from support.families import save_base
from support.tiny import make_tokenizer
from transformers import AutoModel, AutoModelForTokenClassification, TrainerCallback

from hf_xalign.errors import InputError
from hf_xalign.loading import load
from hf_xalign.tasks import Examples, LabelSet, SequenceTask, TokenTask, load_task_model
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig

LABELS = LabelSet.of(["O", "B-a"])
TOKENS, TEXTS = TokenTask(LABELS), SequenceTask(LabelSet.of(["x", "y"]))
WORDS = ["the", "cat", "dog", "house", "haus", "kat", "hund", "open", "file", "is", "a", "no", "der", "das"]


def examples(task, count=24, language="en", seed=0):
    """Words labelled by their length, texts by their first word, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    sentences = [[WORDS[k] for k in rng.integers(0, len(WORDS), rng.integers(1, 9))] for _ in range(count)]
    if task is TOKENS:
        names = [[LABELS.names[len(word) % 3] for word in sentence] for sentence in sentences]
        columns = {"tokens": sentences, "labels": names}
    else:
        columns = {
            "text_a": [" ".join(words) for words in sentences],
            "label": ["xy"[len(words[0]) % 2] for words in sentences],
        }
    return Examples(f"{language}.jsonl", language, Dataset.from_dict({**columns, "line": list(range(count))}))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    save_base("bert", folder)
    return str(folder)


def settings(folder, **given):
    return TaskConfig(
        output_dir=str(folder),
        **{
            "use_cpu": True,
            "disable_tqdm": True,
            "report_to": "none",
            "dropout": False,
            "learning_rate": 1e-2,
            "per_device_train_batch_size": 8,
            "logging_steps": 1,
            **given,
        },
    )


def make(folder, base, task=TOKENS, *, adapter=None, train=None, evaluation=None, callbacks=None, **given):
    return TaskTrainer(
        load_task_model(base, task, adapter=adapter, seed=1),
        settings(folder, **given),
        task=task,
        train_dataset=train or [examples(task)],
        eval_dataset=evaluation,
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def slow_loss(model, task, part):
    """Mean of -log p, an item at a time, without padding."""
    tokenizer, losses = make_tokenizer(), []
    for row in part.rows:
        if task is TOKENS:
            pieces = [tokenizer(word, add_special_tokens=False).input_ids for word in row["tokens"]]
            ids = [2, *(piece for word in pieces for piece in word), 3]
            places = [1 + sum(map(len, pieces[:k])) for k in range(len(pieces))]
            logits = model(torch.tensor([ids])).logits[0, places]
            gold = [LABELS.ids[name] for name in row["labels"]]
        else:
            logits = model(torch.tensor([tokenizer(row["text_a"]).input_ids])).logits
            gold = [task.labels.ids[row["label"]]]
        losses += [-row_logits.log_softmax(0)[label] for row_logits, label in zip(logits, gold, strict=True)]
    return torch.stack(losses).mean()


@pytest.mark.parametrize("task", [TOKENS, TEXTS], ids=["token", "sequence"])
def test_loss_and_gradient_against_a_loop(task, base, tmp_path):
    trainer = make(tmp_path, base, task)
    part = examples(task)
    batch = trainer.data_collator(list(trainer.train_dataset))
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    found = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
    trainer.model.zero_grad()
    expected = slow_loss(trainer.model, task, part)
    expected.backward()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    for name, parameter in trainer.model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("task", [TOKENS, TEXTS], ids=["token", "sequence"])
def test_accumulation_changes_nothing(task, base, tmp_path):
    """Micro-batches have other numbers of words, so a mean of means would differ."""
    weights, losses = [], []
    for batch, accumulation in ((8, 1), (2, 4)):
        trainer = make(
            tmp_path / str(batch),
            base,
            task,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            num_train_epochs=2,
            optim="sgd",
            learning_rate=0.1,
        )
        trainer.train()
        weights.append(trainer.model.state_dict())
        losses.append([row["loss"] for row in trainer.state.log_history if "loss" in row])
    np.testing.assert_allclose(*losses, rtol=1e-4, atol=1e-4)
    for name, one in weights[0].items():
        torch.testing.assert_close(weights[1][name], one, atol=1e-5, rtol=1e-4, msg=name)


RUN = """
import sys
sys.path[:0] = sys.argv[1:3]
from test_task_training import make
import torch
from safetensors.torch import save_file
folder, base = sys.argv[3:]
trainer = make(folder, base, per_device_train_batch_size=4, num_train_epochs=1, optim="sgd", learning_rate=0.1)
assert trainer.args.world_size == 2
trainer.train()
if trainer.is_world_process_zero():
    save_file({k: v.contiguous() for k, v in trainer.model.state_dict().items()}, folder + "/final.safetensors")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_are_one(base, tmp_path):
    here = Path(__file__).resolve().parent
    (tmp_path / "run.py").write_text(RUN)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    subprocess.run(
        [
            *launch,
            "--main_process_port",
            "0",
            str(tmp_path / "run.py"),
            str(here),
            str(here.parent),
            str(tmp_path),
            base,
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    alone = make(tmp_path / "one", base, num_train_epochs=1, optim="sgd", learning_rate=0.1)
    alone.train()
    found = load_file(tmp_path / "final.safetensors")
    for name, one in alone.model.state_dict().items():
        torch.testing.assert_close(found[name], one, atol=1e-5, rtol=1e-4, msg=name)


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == 4


@pytest.mark.parametrize("adapter", [None, "transformer"])
def test_resumed_is_uninterrupted(adapter, base, tmp_path):
    if adapter:
        adapt(AutoModel.from_pretrained(base, add_pooling_layer=False), adapter, init="random").save_pretrained(
            tmp_path / "adapter"
        )
    options = {
        "save_strategy": "steps",
        "save_steps": 2,
        "num_train_epochs": 3,
        "dropout": True,
        "adapter": str(tmp_path / "adapter") if adapter else None,
    }
    whole = make(tmp_path / "whole", base, **options)
    whole.train()
    make(tmp_path / "cut", base, callbacks=[Stop()], **options).train()
    resumed = make(tmp_path / "cut", base, **options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == whole.state.global_step == 9
    for name, one in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], one), name


@pytest.mark.parametrize("adapter", [None, "linear"])
def test_saved_model_is_an_ordinary_one(adapter, base, tmp_path):
    if adapter:
        adapt(AutoModel.from_pretrained(base, add_pooling_layer=False), adapter, init="random").save_pretrained(
            tmp_path / "adapter"
        )
    trainer = make(tmp_path / "out", base, adapter=str(tmp_path / "adapter") if adapter else None, num_train_epochs=1)
    before = {name: p.clone() for name, p in trainer.model.named_parameters() if "xalign" in name}
    trainer.train()
    trainer.save_model()
    assert all(torch.equal(p, before[name]) for name, p in trainer.model.named_parameters() if name in before)
    assert bool(before) == bool(adapter)
    loaded = (load if adapter else AutoModelForTokenClassification.from_pretrained)(tmp_path / "out").eval()
    assert loaded.config.id2label == {0: "O", 1: "B-a", 2: "I-a"}
    ids = torch.tensor([[2, 60, 70, 3]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, trainer.model.eval()(ids).logits)
    assert "learning_rate" in json.loads((tmp_path / "out" / "training_args.json").read_text())


def test_scores_of_every_language_and_selection(base, tmp_path):
    evaluation = {
        "en": examples(TOKENS, seed=1),
        "de": examples(TOKENS, seed=2, language="de"),
        "hi": examples(TOKENS, 5, seed=3, language="hi"),
    }
    trainer = make(tmp_path, base, evaluation=evaluation, eval_strategy="epoch", num_train_epochs=4)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_selection" in row]
    assert [row["step"] for row in rows] == [0, 3, 6, 9, 12]
    last = rows[-1]
    assert last["eval_en_accuracy"] > rows[0]["eval_en_accuracy"] + 0.2
    assert last["eval_selection"] == last["eval_en_span_f1"]
    assert last["eval_span_f1"] == pytest.approx(np.mean([last[f"eval_{code}_span_f1"] for code in evaluation]))
    scores = trainer.score()
    assert {code: len(found.examples["span_f1"]) for code, found in scores.items()} == {"en": 24, "de": 24, "hi": 5}
    assert scores["hi"].totals()["accuracy"] == last["eval_hi_accuracy"]
    again = trainer.evaluate({"de": evaluation["de"]}, metric_key_prefix="test")
    assert again["test_de_accuracy"] == last["eval_de_accuracy"]


def test_translate_train_mixes_languages(base, tmp_path):
    train = [examples(TOKENS, 8), examples(TOKENS, 16, language="de", seed=4)]
    trainer = make(tmp_path, base, train=train, num_train_epochs=1, language_sampling="each")
    assert trainer.train_languages == ["de", "en"] and len(trainer.train_dataset) == 24
    assert len(trainer._get_train_sampler()) == 32
    assert np.isfinite(trainer.train().training_loss)


def test_early_stopping_looks_at_the_training_language_alone(base, tmp_path):
    options = {"early_stopping_patience": 1, "eval_strategy": "epoch", "save_strategy": "epoch"}
    with pytest.raises(InputError, match="needs evaluation text in en"):
        make(tmp_path, base, evaluation={"de": examples(TOKENS, language="de")}, **options)
    trainer = make(tmp_path, base, evaluation={"en": examples(TOKENS, seed=1)}, learning_rate=1e-6, **options)
    assert trainer.args.metric_for_best_model == "eval_selection"
    trainer.train()
    assert trainer.state.best_model_checkpoint


@pytest.mark.parametrize("option", ["freeze_embeddings", "freeze_encoder"])
def test_frozen_weights_stay(option, base, tmp_path):
    trainer = make(tmp_path, base, num_train_epochs=1, **{option: True})
    before = {name: p.clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    if option == "freeze_encoder":
        assert moved == {"classifier.weight", "classifier.bias"}
    else:
        assert "bert.embeddings.word_embeddings.weight" not in moved
        assert "bert.embeddings.position_embeddings.weight" in moved


def test_settings_that_do_not_go_together(base, tmp_path):
    with pytest.raises(InputError, match="did you mean ppa_xnli"):
        settings(tmp_path, preset="ppa_xnl")
    with pytest.raises(InputError, match="leave freeze_embeddings out"):
        settings(tmp_path, freeze_encoder=True, freeze_embeddings=True)
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 1000
    with pytest.raises(InputError, match="takes 80 tokens: set max_length to 80"):
        settings(tmp_path).check_model(load_task_model(base, TOKENS), tokenizer)
    with pytest.raises(InputError, match=r"en\.jsonl, line 0.*: label"):
        make(tmp_path, base, TokenTask(LabelSet.of(["X", "Y"])), train=[examples(TOKENS)])


def test_published_presets(tmp_path):
    """METHODS sections 2, 4, 5, 6 and 7."""
    found = {
        name: (one.learning_rate, one.num_train_epochs, one.per_device_train_batch_size, one.warmup_steps)
        for name in TaskConfig.PRESETS
        for one in [TaskConfig(output_dir=str(tmp_path), preset=name, use_cpu=True)]
    }
    assert found == {
        "ours": (5e-5, 3, 32, 0.1),
        "mao_xnli": (1e-6, 3, 8, 0),
        "align_mlm_xnli": (2e-5, 5, 32, 0),
        "align_mlm_tagging": (2e-5, 10, 32, 0),
        "continual": (5e-5, 3, 32, 0),
        "ppa_xnli": (5e-5, 2, 32, 1000),
        "rotate": (1e-4, 40, 10, 0),
    }
