"""Continual learning: against two passes, at alpha 0 against plain fine-tuning, however divided, killed or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.continual import QUESTIONS, SMALL, TEXTS, TOKENS, examples, make, make_model, outcome, train
from support.launch import STEADY, STOPPED, identical, launch, result, same
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling.language_embeddings import add_language_embeddings, language_ids
from hf_xalign.trainers.checkpoints import COMPLETE, last_complete_checkpoint
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig

SCRIPT = "support.continual"


def gradients(trainer):
    found = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
    trainer.model.zero_grad()
    return found


def word_vector(model, ids, start, end, layer, language):
    rows = language_ids(model.config)
    told = {} if rows is None else {"token_type_ids": torch.full((1, len(ids)), rows[language])}
    states = model(input_ids=torch.tensor([ids]), output_hidden_states=True, **told).hidden_states[layer][0]
    return sum(states[t] for t in range(start, end)) / (end - start)


def words_of(row, side):
    """Spans of all words with a token, then [CLS] and [SEP]."""
    spans = [(s, e) if e else None for s, e in zip(row[f"{side}_starts"], row[f"{side}_ends"], strict=True)]
    return [*spans, (0, 1), (len(row[f"{side}_ids"]) - 1, len(row[f"{side}_ids"]))]


def alignment(trainer, rows):
    """L_align and L_reg of some pairs, a word at a time."""
    align, keep, links, kept = 0.0, 0.0, 0, 0
    model, f0 = trainer.model, trainer._reference[0]
    for row in rows:
        source, target = words_of(row, "source"), words_of(row, "target")
        pairs = [*row["links"], [len(source) - 2, len(target) - 2], [len(source) - 1, len(target) - 1]]
        for layer in trainer.layers:
            for i, j in pairs:
                a = word_vector(model, row["source_ids"], *source[i], layer, row["source_lang"])
                b = word_vector(model, row["target_ids"], *target[j], layer, "en")
                align = align + ((a - b) ** 2).sum()
            for span in filter(None, target):
                with torch.no_grad():
                    before = word_vector(f0, row["target_ids"], *span, layer, "en")
                keep = keep + ((word_vector(model, row["target_ids"], *span, layer, "en") - before) ** 2).sum()
        links += len(pairs)
        kept += len([span for span in target if span])
    size = trainer.model.config.hidden_size if trainer.args.mean_over_dims else 1
    per_kept = kept if trainer.args.reduction == "words" else links
    return align / links / size, keep / per_kept / size


def tell_languages_apart(model, languages):
    """Give a model language embeddings, far from each other."""
    add_language_embeddings(model, languages)
    torch.nn.init.normal_(model.base_model.embeddings.token_type_embeddings.weight)
    return model


@pytest.mark.parametrize(
    ("task", "given", "languages"),
    [
        (TOKENS, {"alpha": 0.3}, False),
        (TEXTS, {"alpha": 0.3, "layers": [1, -1]}, False),
        (QUESTIONS, {"alpha": 0.3}, False),
        (TOKENS, {"preset": "efimov"}, False),
        (TOKENS, {"alpha": 0.3}, True),
    ],
    ids=["tokens", "texts", "questions", "efimov", "languages"],
)
def test_loss_and_gradient_against_two_passes(task, given, languages, tmp_path, monkeypatch):
    model = make_model(task)
    if languages:
        # The rows of both models differ: each is told by its own.
        reference = tell_languages_apart(make_encoder(seed=3), ["en"])
        monkeypatch.setattr("support.continual.make_encoder", lambda **_: reference)
        tell_languages_apart(model, ["de", "bn", "en"])
        pairs = make_links(7).to_list()
        for number, row in enumerate(pairs):
            row["source_lang"] = ("de", "bn")[number % 2]
        given = {**given, "pairs": Dataset.from_list(pairs)}
        tell_languages_apart(reference, ["de", "bn"])
    trainer = make(tmp_path, model, task=task, dropout=False, **given)
    indices = list(trainer._get_train_sampler())[:4]
    rows = [trainer.train_dataset[index] for index in indices]
    # The task's own trainer on the same examples, and the pairs a word at a time.
    plain = TaskTrainer(
        trainer.model,
        TaskConfig(output_dir=str(tmp_path), report_to="none", dropout=False, **SMALL),
        task=task,
        train_dataset=[examples(task)],
        processing_class=make_tokenizer(),
    )
    task_loss = plain.compute_loss(plain.model, plain.data_collator([row.task for row in rows]))
    align, keep = alignment(trainer, [pair for row in rows for pair in row.pairs])
    expected = task_loss + trainer.args.alpha * (align + trainer.args.regularizer_weight * keep)
    expected.backward()
    wanted = gradients(trainer)
    loss = trainer.compute_loss(trainer.model, trainer.data_collator(rows))
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for name, value in gradients(trainer).items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-4, atol=1e-5, msg=name)
    for name, value in {"task": task_loss, "align": align, "regularizer": keep}.items():
        torch.testing.assert_close(trainer._term_sums[name], value.detach(), rtol=1e-5, atol=1e-6)


def test_pairs_can_go_without_dropout(tmp_path):
    """The alignment's terms are then those of the model in evaluation; the task's is as it would be with it."""
    trainer = make(tmp_path, make_model(dropout=0.3))
    rows = [trainer.train_dataset[index] for index in list(trainer._get_train_sampler())[:4]]
    terms = {}
    for dropout in (True, False):
        trainer.args.pairs_dropout = dropout
        trainer._term_sums.clear()
        trainer.model.train()
        torch.manual_seed(0)
        trainer.compute_loss(trainer.model, trainer.data_collator(rows))
        assert all(module.training for module in trainer.model.modules())
        terms[dropout] = dict(trainer._term_sums)
    trainer.model.eval()
    expected = alignment(trainer, [pair for row in rows for pair in row.pairs])
    for name, value in zip(("align", "regularizer"), expected, strict=True):
        torch.testing.assert_close(terms[False][name], value.detach(), rtol=1e-5, atol=1e-6)
        assert not torch.allclose(terms[True][name], value, rtol=1e-2)
    torch.testing.assert_close(terms[False]["task"], terms[True]["task"], rtol=0, atol=0)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("task", [TOKENS, TEXTS], ids=["tokens", "texts"])
def test_at_alpha_0_it_is_plain_fine_tuning(task, dropout, tmp_path):
    """The pairs go through the model all the same, and move neither gradient nor order nor the task's dropout."""
    seen = {}
    for name, trainer in {
        "paired": make(tmp_path / "paired", make_model(task, dropout=dropout), task=task, alpha=0.0, **STEADY),
        "plain": TaskTrainer(
            make_model(task, dropout=dropout),
            TaskConfig(output_dir=str(tmp_path / "plain"), report_to="none", **{**SMALL, **STEADY}),
            task=task,
            train_dataset=[examples(task)],
            processing_class=make_tokenizer(),
        ),
    }.items():
        steps = []
        original = trainer.compute_loss

        def spy(model, inputs, original=original, steps=steps, **kwargs):
            own = [key for key in inputs if not key.startswith("pair_")]
            steps.append({key: inputs[key].clone() for key in own})
            return original(model, inputs, **kwargs)

        trainer.compute_loss = spy
        torch.manual_seed(0)  # both trainers were made before either trains
        trainer.train()
        seen[name] = (steps, trainer.state.log_history, trainer.model.state_dict())
    (paired, log, weights), (plain, plain_log, plain_weights) = seen["paired"], seen["plain"]
    assert len(paired) == len(plain) == 4
    for one, other in zip(paired, plain, strict=True):
        assert all(torch.equal(one[key], value) for key, value in other.items())
    for one, other in zip(log, plain_log, strict=True):
        if "loss" in other:
            assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)
            assert one["grad_norm"] == pytest.approx(other["grad_norm"], abs=1e-6)
            assert one["loss/align"] > 0
    for name, value in plain_weights.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-6, msg=name)


def test_pairs_come_in_their_share_and_evaluation_has_none(tmp_path):
    trainer = make(tmp_path)
    batches = list(trainer.get_train_dataloader())
    assert [len(batch["pair_kept_ids"]) for batch in batches] == [2, 2, 2, 2]
    metrics = trainer.evaluate()
    assert metrics["eval_en_span_f1"] == metrics["eval_span_f1"] and "eval_loss" not in metrics


def test_it_keeps_words_together_where_plain_fine_tuning_does_not(tmp_path):
    settings = {"num_train_epochs": 6, "learning_rate": 3e-3, "dropout": False, "regularizer_weight": 0.1}
    held = train(tmp_path / "held", alpha=1.0, **settings)
    plain = train(tmp_path / "plain", alpha=0.0, **settings)
    rows = [held._pairs[k] for k in range(5)]
    with torch.no_grad():
        assert alignment(held, rows)[0] < 0.7 * alignment(plain, rows)[0]


DIVIDED = {"alpha": 0.3, "num_train_epochs": 2}


@pytest.mark.parametrize("order", ["sequential", "group_by_length"])
def test_accumulation_changes_nothing(order, tmp_path):
    runs = [
        outcome(
            train(
                tmp_path / str(batch),
                pairs=make_links(30),
                **{**STEADY, **DIVIDED, "train_sampling_strategy": order},
                per_device_train_batch_size=batch,
                gradient_accumulation_steps=8 // batch,
            )
        )
        for batch in (8, 4, 1)
    ]
    assert len(runs[0][0]) == 4
    for other in runs[1:]:
        same(runs[0], other, log_tolerance=1e-5)


def test_two_processes_are_one(tmp_path):
    runs = {
        "whole": {**STEADY, **DIVIDED},
        # A process has a pair in some of its micro-batches only.
        "accumulated": {
            **STEADY,
            **DIVIDED,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "preset": "efimov",
        },
        "grouped": {**STEADY, **DIVIDED, "train_sampling_strategy": "group_by_length"},
    }
    launch(SCRIPT, tmp_path / "two", runs, processes=2)
    for name, settings in runs.items():
        assert (tmp_path / "two" / name / "world_size").read_text() == "2"
        batch = 2 * settings.get("per_device_train_batch_size", 4)
        one = train(tmp_path / "one" / name, **{**settings, "per_device_train_batch_size": batch})
        same(outcome(one), result(tmp_path / "two" / name), log_tolerance=1e-5)


def test_every_micro_batch_has_a_dropout_of_its_own(tmp_path):
    trainer = make(tmp_path)
    seeds = []
    for step in (0, 0, 1, 1):
        trainer.state.global_step = step
        seeds.append(trainer._pass_seed())
    assert len(set(seeds)) == 4
    resumed = make(tmp_path)
    resumed.state.global_step = 1
    assert [resumed._pass_seed(), resumed._pass_seed()] == seeds[2:]


def test_languages_of_the_pairs_come_as_the_tasks_do(tmp_path):
    pairs = make_links(24).to_list()
    for number, row in enumerate(pairs):
        row["source_lang"] = "bn" if number < 4 else "de"
    trainer = make(tmp_path, pairs=Dataset.from_list(pairs), language_sampling="each")
    for batch in (list(trainer._get_train_sampler())[start : start + 4] for start in (0, 4, 8, 12)):
        languages = [pairs[k]["source_lang"] for _, drawn in batch for k in drawn]
        assert sorted(languages) == ["bn", "de"]


def test_a_wrapper_that_leaves_the_pairs_out_is_told(tmp_path, monkeypatch):
    trainer = make(tmp_path)
    batch = next(iter(trainer.get_train_dataloader()))
    # As a compiled model calls it.
    monkeypatch.setattr(type(trainer.model), "__call__", lambda model, **inputs: model.forward(**inputs))
    with pytest.raises(RuntimeError, match="BertForTokenClassification did not pass the sentence pairs on"):
        trainer.compute_loss(trainer.model, batch)


@pytest.mark.parametrize("settings", [{"gradient_checkpointing": True}, {"bf16": True}], ids=lambda s: next(iter(s)))
def test_as_without_savings(settings, tmp_path):
    """Recomputed states give the same gradients, dropout and all; bfloat16 nearly."""
    runs = [
        outcome(
            train(tmp_path / name, make_model(dropout=0.2), max_steps=2, **{**STEADY, **DIVIDED, **given}),
        )
        for name, given in (("plain", {}), ("saving", settings))
    ]
    if "bf16" in settings:
        np.testing.assert_allclose(runs[0][0], runs[1][0], rtol=0.02)
    else:
        same(*runs, log_tolerance=1e-6)


KILLED = {
    **STOPPED,
    "learning_rate": 1e-3,
    "alpha": 0.3,
    "lr_scheduler_type": "constant",
}


def test_resumed_equals_never_stopped(tmp_path):
    whole = train(tmp_path / "whole", make_model(dropout=0.2), **KILLED)
    train(tmp_path / "run", make_model(dropout=0.2), **{**KILLED, "max_steps": 7})
    (tmp_path / "run" / "checkpoint-7" / COMPLETE).unlink()
    torch.manual_seed(9)
    resumed = make(tmp_path / "run", make_model(dropout=0.2, seed=5), **KILLED)
    resumed.train(resume_from_checkpoint=True)
    identical(outcome(whole), outcome(resumed))


@pytest.mark.slow
def test_killed_and_resumed_equals_never_killed(tmp_path):
    launch(SCRIPT, tmp_path / "whole", {"run": KILLED}, "--dropout", "0.2")
    launch(SCRIPT, tmp_path, {"run": KILLED}, "--dropout", "0.2", "--kill_after", "7", killed=True)
    assert last_complete_checkpoint(tmp_path / "run").endswith("checkpoint-6")
    launch(SCRIPT, tmp_path, {"run": KILLED}, "--dropout", "0.2", "--resume")
    identical(result(tmp_path / "whole" / "run"), result(tmp_path / "run"))


def test_bad_input(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="pairs_per_example=0"):
        make(tmp_path, pairs_per_example=0)
    with pytest.raises(InputError, match="torch_compile=true: a compiled model need not pass"):
        make(tmp_path, torch_compile=True)
    with (
        monkeypatch.context() as patch,
        pytest.raises(InputError, match="use_reentrant=true does not go"),
    ):
        patch.setattr(ContinualConfig, "world_size", 2)
        make(tmp_path, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
    with pytest.raises(InputError, match="freeze_encoder=true leaves nothing"):
        make(tmp_path, freeze_encoder=True)
    with pytest.raises(InputError, match="layers 0"):
        make(tmp_path, layers=[7])
    with pytest.raises(InputError, match="preset=contin"):
        make(tmp_path, preset="contin")
    from transformers import BertConfig, BertModel

    from hf_xalign.trainers.continual import ContinualTrainer

    trainer = make(tmp_path)
    with pytest.raises(InputError, match="vectors have 8 numbers and the model's 16"):
        ContinualTrainer(
            make_model(),
            trainer.args,
            task=TOKENS,
            train_dataset=[examples()],
            pairs=make_links(4),
            reference=BertModel(BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)),
            processing_class=make_tokenizer(),
        )
    assert make_encoder().config.hidden_size == 16
    with pytest.raises(InputError, match="head=tagger reads a frozen encoder"):
        make(tmp_path, head="tagger")
    told = tell_languages_apart(make_model(), ["en", "fr"])
    with pytest.raises(InputError, match="language 'de': the encoder has language embeddings for en, fr"):
        make(tmp_path, told)
    with pytest.raises(InputError, match=r"target_lang is not there: .* which are not encoded yet"):
        make(tmp_path, told, pairs=encode_pairs(make_links(7), make_tokenizer()))
