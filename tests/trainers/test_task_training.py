"""The task trainer: loss against a loop, checkpoints with a module in them, scores, what is frozen."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import concatenate_datasets
from safetensors.torch import load_file
from support.adapters import adapt
from support.continual import LABELS, QUESTIONS, TEXTS, TOKENS, examples, make_model, make_task
from support.families import save_base
from support.launch import STEP, gradients, same_bits, same_tensors, tensors
from support.numeric import assert_rounding
from support.runs import exact
from support.tiny import make_tokenizer
from transformers import AutoModel, AutoModelForTokenClassification, TrainerCallback

from hf_xalign.errors import InputError
from hf_xalign.modeling.loading import load
from hf_xalign.statistics.softmax_regression import fit_softmax
from hf_xalign.tasks import load_task_model
from hf_xalign.trainers.task_config import TaskConfig

SETTINGS = {"learning_rate": 1e-2, "per_device_train_batch_size": 8, "dropout": False, "count": 24}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    save_base("bert", folder)
    return str(folder)


def make_loaded(folder, base, adapter=None, **settings):
    """Make a trainer of a model that is loaded from files, with a module of MAO where one is named."""
    if adapter:
        encoder = AutoModel.from_pretrained(base, add_pooling_layer=False)
        adapt(encoder, adapter, init="random").save_pretrained(folder / "adapter")
        adapter = str(folder / "adapter")
    model = load_task_model(base, TOKENS, adapter=adapter, seed=1)
    return make_task(folder / "run", model, **{**SETTINGS, **settings})


class AtEnd(TrainerCallback):
    """Keep the weights that a callback gets at the end of training."""

    def __init__(self, kept):
        self.kept = kept

    def on_train_end(self, *_, model, **__):
        self.kept.append(tensors(model))


def first_subwords(words):
    """Return the positions of the first subwords, behind the special token."""
    counts = [len(make_tokenizer()(word, add_special_tokens=False).input_ids) for word in words]
    return [1 + sum(counts[:k]) for k in range(len(counts))]


def slow_loss(model, task, part):
    """Mean of -log p, an item at a time, without padding."""
    tokenizer, losses = make_tokenizer(), []
    for row in part.rows:
        if task is TOKENS:
            pieces = [tokenizer(word, add_special_tokens=False).input_ids for word in row["tokens"]]
            ids = [2, *(piece for word in pieces for piece in word), 3]
            logits = model(torch.tensor([ids])).logits[0, first_subwords(row["tokens"])]
            gold = [LABELS.ids[name] for name in row["labels"]]
        else:
            logits = model(torch.tensor([tokenizer(row["text_a"]).input_ids])).logits
            gold = [task.labels.ids[row["label"]]]
        losses += [-row_logits.log_softmax(0)[label] for row_logits, label in zip(logits, gold, strict=True)]
    return torch.stack(losses).mean()


def test_loss_and_gradient_against_a_loop(tmp_path):
    for task in (TOKENS, TEXTS):
        with exact():
            trainer = make_task(tmp_path, make_model(task), task)
            results = []
            batch = trainer.data_collator([*trainer.train_dataset])
            for loss in (slow_loss(trainer.model, task, examples(task)), trainer.compute_loss(trainer.model, batch)):
                results.append({"loss": loss, **gradients(trainer.model, loss)})
        assert loss.dtype == torch.float64
        same_tensors(*results, STEP)


def test_one_text_needs_neither_a_list_nor_a_dict(tmp_path):
    text = examples()
    trainer = make_task(tmp_path, train=text, evaluation=text)
    assert (trainer.train_languages, [*trainer.eval_dataset]) == (["en"], ["en"])
    with pytest.raises(InputError, match=r"train_dataset \(Dataset\) holds no labelled text.*read_examples"):
        make_task(tmp_path, train=text.rows)


def test_halves_of_an_example_are_in_one_batch(tmp_path):
    for task in (TEXTS, QUESTIONS):
        plain = examples(task, 5)
        if task is TEXTS:
            plain = replace(plain, rows=plain.rows.add_column("text_b", plain.rows["text_a"][:]))
        halves = replace(plain, language="de", rows=concatenate_datasets([plain.rows] * 2), group_size=2)
        with exact():
            trainer = make_task(tmp_path, make_model(task), task, train=[plain, halves], dropout=False)
            alone = [make_task(tmp_path, trainer.model, task, train=[one], dropout=False) for one in (plain, halves)]
            flat = replace(halves, group_size=1)
            together = make_task(tmp_path, trainer.model, task, train=[plain, flat], dropout=False)
            batches = [one.data_collator([*one.train_dataset]) for one in (trainer, together)]
            losses = [trainer.compute_loss(trainer.model, batch) for batch in batches]
        assert [len(one.train_dataset) for one in alone] == [len(alone[0].train_dataset), 5]
        assert set(trainer.train_languages) == {"de", "en"} and torch.equal(*(b["input_ids"] for b in batches))
        assert_rounding(losses[0].item(), losses[1].item(), operations=100)


def test_resumed_with_a_module_is_uninterrupted(base, tmp_path):
    options = {"adapter": "transformer", "save_strategy": "steps", "save_steps": 2, "max_steps": 4, "dropout": True}
    whole = make_loaded(tmp_path, base, **options)
    whole.train()
    resumed = make_loaded(tmp_path, base, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert resumed.state.global_step == whole.state.global_step == 4
    same_bits(tensors(whole.model), tensors(resumed.model))


@pytest.mark.parametrize("adapter", [None, "linear"])
def test_saved_model_is_an_ordinary_one(adapter, base, tmp_path):
    trainer = make_loaded(tmp_path, base, adapter, max_steps=1)
    before = {name: tensor for name, tensor in tensors(trainer.model).items() if "xalign" in name}
    trainer.train()
    trainer.save_model()
    assert all(torch.equal(trainer.model.state_dict()[name], tensor) for name, tensor in before.items())
    assert bool(before) == bool(adapter)
    loaded = (load if adapter else AutoModelForTokenClassification.from_pretrained)(tmp_path / "run").eval()
    assert loaded.config.id2label == {0: "O", 1: "B-a", 2: "I-a"}
    ids = torch.tensor([[2, 60, 70, 3]])
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, trainer.model.eval()(ids).logits)
    assert "learning_rate" in json.loads((tmp_path / "run" / "training_args.json").read_text())


def test_scores_of_every_language_and_selection(base, tmp_path):
    evaluation = {
        "en": examples(TOKENS, 24, seed=1),
        "de": examples(TOKENS, 24, seed=2, language="de"),
        "hi": examples(TOKENS, 5, seed=3, language="hi"),
    }
    options = {"eval_strategy": "epoch", "num_train_epochs": 4, "fit_head": False}
    trainer = make_loaded(tmp_path, base, evaluation=evaluation, **options)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_selection" in row]
    assert [row["step"] for row in rows] == [0, 3, 6, 9, 12]
    last = rows[-1]
    assert last["eval_en_accuracy"] > rows[0]["eval_en_accuracy"] + 0.2
    assert last["eval_selection"] == last["eval_en_span_f1"]
    assert_rounding(last["eval_span_f1"], np.mean([last[f"eval_{code}_span_f1"] for code in evaluation]), operations=3)
    scores = trainer.score()
    assert {code: len(found.examples["span_f1"]) for code, found in scores.items()} == {"en": 24, "de": 24, "hi": 5}
    assert scores["hi"].totals()["accuracy"] == last["eval_hi_accuracy"]
    again = trainer.evaluate({"de": evaluation["de"]}, metric_key_prefix="test")
    assert again["test_de_accuracy"] == last["eval_de_accuracy"]


def test_a_target_language_chooses_only_if_asked(base, tmp_path):
    best = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    german = examples(TOKENS, 12, seed=2, language="de")
    with pytest.raises(InputError, match=r"no evaluation text in en.*selection=target"):
        make_loaded(tmp_path, base, evaluation={"de": german}, **best)
    with pytest.raises(InputError, match="selection=target: all evaluation text is in en"):
        make_loaded(tmp_path, base, evaluation={"en": examples(TOKENS, 12)}, selection="target", **best)
    with pytest.raises(InputError, match="selection=target needs load_best_model_at_end=true"):
        TaskConfig(selection="target", output_dir=str(tmp_path))
    both = {"en": examples(TOKENS, 12, seed=1), "de": german}
    trainer = make_loaded(tmp_path, base, evaluation=both, selection="target", **best)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_selection" in row]
    assert rows and all(row["eval_selection"] == row["eval_de_span_f1"] for row in rows)
    assert trainer.state.best_metric == max(row["eval_de_span_f1"] for row in rows if row["step"])


def test_frozen_weights_stay(tmp_path):
    for option in ("freeze_embeddings", "freeze_encoder"):
        trainer = make_task(tmp_path / option, **{**SETTINGS, option: True})
        before = tensors(trainer.model)
        trainer.train()
        moved = {name for name, tensor in tensors(trainer.model).items() if not torch.equal(tensor, before[name])}
        if option == "freeze_encoder":
            assert moved == {"classifier.weight", "classifier.bias"}
        else:
            assert "bert.embeddings.word_embeddings.weight" not in moved
            assert "bert.embeddings.position_embeddings.weight" in moved


def test_a_fitted_head_alone_keeps_no_average(tmp_path):
    with exact():
        alone = make_task(tmp_path, make_model(TEXTS), TEXTS, **SETTINGS, fit_head=True)
        kept = make_task(tmp_path, make_model(TEXTS), TEXTS, **SETTINGS, keep_aligned=True)
        same_bits(tensors(alone.model), tensors(kept.model))
    assert alone._average is None and kept._average is not None
    assert alone.formula().endswith("; the head is first fitted on the frozen encoder")


def test_a_new_head_is_fitted_by_default_where_examples_are_few(tmp_path, monkeypatch):
    def start(model=None, **options):
        trainer = make_task(tmp_path, model or make_model(TEXTS), TEXTS, **{**SETTINGS, **options})
        return tensors(trainer.model)["classifier.weight"], "first fitted" in trainer.formula()

    with exact():
        (random, _), (fitted, said) = start(fit_head=False), start()
        assert said and not torch.equal(random, fitted)
        assert torch.equal(fitted, start(fit_head=True)[0])
        trained = make_model(TEXTS)
        trained.classifier.bias.data.fill_(0.1)
        monkeypatch.setattr("hf_xalign.trainers.task.FEW_EXAMPLES", 24)
        assert start()[1]
        for options in ({"preset": "continual"}, {"model": trained}):
            weight, said = start(**options)
            assert torch.equal(weight, random) and not said
        monkeypatch.setattr("hf_xalign.trainers.task.FEW_EXAMPLES", 23)
        assert not start()[1]


@pytest.mark.parametrize("task", [TOKENS, TEXTS])
def test_keep_aligned_starts_from_a_fitted_head_and_ends_with_a_mean(task, tmp_path):
    options = {**SETTINGS, "keep_aligned": True, "start_share": 0.25, "save_strategy": "steps", "save_steps": 2}
    with exact():
        before, task_rows = make_model(task).eval(), examples(task, 24).rows
        fitted = make_task(tmp_path, make_model(task), task, **options)
        start = tensors(fitted.model)
        moved = {name for name, tensor in tensors(before).items() if not torch.equal(tensor, start[name])}
        assert moved == {"classifier.weight", "classifier.bias"}
        # What the head reads, a sentence at a time.
        before.classifier, labels, vectors = torch.nn.Identity(), [], []
        for row in task_rows:
            text = " ".join(row["tokens"]) if task is TOKENS else row["text_a"]
            with torch.no_grad():
                states = before(**make_tokenizer()(text, return_tensors="pt")).logits
            vectors.append(states[0, first_subwords(row["tokens"])] if task is TOKENS else states)
            labels += [task.labels.ids[name] for name in (row["labels"] if task is TOKENS else [row["label"]])]
        vectors, labels = torch.cat(vectors), torch.tensor(labels)
        weight, bias = fit_softmax(vectors, labels, len(task.labels.names))

        def loss(weight, bias):
            penalty = 1e-4 * (weight * (vectors.std(0) + 1e-6)).square().sum()
            return (torch.nn.functional.cross_entropy(vectors @ weight.T + bias, labels) + penalty).item()

        # L-BFGS amplifies rounding in the weights, but not in what they achieve.
        none, best = loss(torch.zeros_like(weight), torch.zeros_like(bias)), loss(weight, bias)
        assert abs(loss(start["classifier.weight"], start["classifier.bias"]) - best) < 1e-3 * (none - best)

    ends = []
    trainer = make_task(tmp_path, make_model(task), task, callbacks=[AtEnd(ends)], **options)
    start = tensors(trainer.model)
    trainer.train()
    same_bits(ends[0], tensors(trainer.model))  # callbacks, which may log or keep the model, get the average
    last = max(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    trained = load_file(last / "model.safetensors")
    same_bits({name: trained[name].lerp(start[name], 0.25) for name in start}, tensors(trainer.model))
    resumed = make_task(tmp_path, make_model(task), task, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    same_bits(tensors(trainer.model), tensors(resumed.model))
