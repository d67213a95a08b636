"""Continual learning: its loss against two passes, at alpha 0 plain fine-tuning, and the stream of its pairs."""

import pytest
import torch
from support.continual import QUESTIONS, TEXTS, TOKENS, make, make_model, make_task
from support.launch import STEADY, STEP, gradients, numbers, outcome, same, same_tensors, trained
from support.numeric import assert_rounding
from support.runs import exact
from support.tiny import make_encoder, make_links

from hf_xalign.errors import InputError
from hf_xalign.modeling.languages import add_language_embeddings, language_ids


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
    model, f0 = trainer.model, trainer._reference
    for row in rows:
        source, target = words_of(row, "source"), words_of(row, "target")
        pairs = [*row["links"]]
        if trainer.args.linked_tokens == "all":
            pairs += [[len(source) - 2, len(target) - 2], [len(source) - 1, len(target) - 1]]
        elif not trainer.args.preset.startswith("efimov"):
            target = target[:-2]
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


def first_rows(trainer):
    return [trainer.train_dataset[index] for index in list(trainer.make_sampler(trainer.train_dataset))[:4]]


FORMS = {
    "tokens": (TOKENS, {"alpha": 0.3}),
    "texts": (TEXTS, {"alpha": 0.3, "layers": [1, -1]}),
    "questions": (QUESTIONS, {"alpha": 0.3}),
    "continual_mean": (TOKENS, {"preset": "continual_mean"}),
    "efimov": (TOKENS, {"preset": "efimov"}),
    "words linked": (TEXTS, {"linked_tokens": "words"}),
    "languages": (TOKENS, {"alpha": 0.3, "pairs": make_links(7, ["de", "bn"])}),
}


def test_loss_and_gradient_against_two_passes(subtests, tmp_path, monkeypatch):
    for name, (task, given) in FORMS.items():
        with subtests.test(name), exact(), monkeypatch.context() as patch:
            model = make_model(task)
            if name == "languages":
                # The rows of both models differ: each is told by its own.
                reference = tell_languages_apart(tell_languages_apart(make_encoder(seed=3), ["en"]), ["de", "bn"])
                patch.setattr("support.continual.make_encoder", lambda reference=reference, **_: reference)
                tell_languages_apart(model, ["de", "bn", "en"])
            assert_loss_and_gradient(make(tmp_path, model, task=task, dropout=False, **given), task)


def assert_loss_and_gradient(trainer, task):
    rows = first_rows(trainer)
    # The task's own trainer on the same examples, and the pairs a word at a time.
    plain = make_task(trainer.args.output_dir, trainer.model, task, dropout=False)
    task_loss = plain.compute_loss(plain.model, plain.data_collator([task for task, _ in rows]))
    align, keep = alignment(trainer, [pair for _, pairs in rows for pair in pairs])
    expected = task_loss + trainer.args.alpha * (align + trainer.args.regularizer_weight * keep)
    wanted = gradients(trainer.model, expected)
    trainer._in_step = True
    loss = trainer.compute_loss(trainer.model, trainer.data_collator(rows))
    found = gradients(trainer.model, loss)
    assert loss.dtype == torch.float64
    due = {"loss": expected, "task": task_loss, "align": align, "regularizer": keep}
    same_tensors({**due, **wanted}, {"loss": loss, **trainer._term_sums, **found}, STEP)


def test_pairs_can_go_without_dropout(tmp_path):
    with exact():
        trainer = make(tmp_path, make_model(dropout=0.3))
        rows = first_rows(trainer)
        terms, trainer._in_step = {}, True
        for dropout in (True, False):
            trainer.args.pairs_dropout = dropout
            trainer._term_sums.clear()
            trainer.model.train()
            torch.manual_seed(0)
            trainer.compute_loss(trainer.model, trainer.data_collator(rows))
            assert all(module.training for module in trainer.model.modules())
            terms[dropout] = dict(trainer._term_sums)
        trainer.model.eval()
        expected = alignment(trainer, [pair for _, pairs in rows for pair in pairs])
    for name, value in zip(("align", "regularizer"), expected, strict=True):
        assert_rounding(terms[False][name], value, STEP)
        assert not torch.allclose(terms[True][name], value, rtol=1e-3)
    assert torch.equal(terms[False]["task"], terms[True]["task"])


@pytest.mark.parametrize(("task", "dropout"), [(TOKENS, 0.2), (TEXTS, 0.0)], ids=["tokens", "texts"])
def test_at_alpha_0_it_is_plain_fine_tuning(task, dropout, tmp_path):
    """The pairs go through the model all the same, and move neither gradient nor order nor the task's dropout."""
    with exact():
        paired = make(tmp_path / "paired", make_model(task, dropout=dropout), task=task, alpha=0.0, **STEADY)
        plain = make_task(tmp_path / "plain", make_model(task, dropout=dropout), task=task, fit_head=False, **STEADY)
        for trainer in (paired, plain):
            torch.manual_seed(0)
            trainer.train()
    # The gradient's norm, the loss, and its terms in the order of the alphabet.
    log, expected = numbers(paired), numbers(plain)
    assert len(log) == 4 and log[:, 2].min() > 0
    assert_rounding(log[:, :2], expected[:, :2], 4 * STEP)
    same_tensors(outcome(plain)[1], outcome(paired)[1], 4 * STEP)


def test_cached_reference_vectors_are_those_of_the_copy(tmp_path):
    pairs = make_links(24, ["bn"] * 4 + ["de"] * 20)
    settings = {**STEADY, "alpha": 0.3, "max_steps": 3, "layers": [1, -1], "pairs": pairs}
    copied, cached = (trained(make(tmp_path / str(on), cache_reference=on, **settings)) for on in (False, True))
    assert not hasattr(cached, "_reference") and numbers(copied).min() > 0
    assert_rounding(numbers(cached), numbers(copied), STEP, dtype=torch.float32)
    with pytest.raises(InputError, match="cache_reference=true"):
        told = tell_languages_apart(make_encoder(seed=3), ["de", "bn", "en"])
        make(tmp_path, reference=told, cache_reference=True, pairs=pairs)


def test_pairs_come_in_their_share_and_evaluation_has_none(tmp_path):
    trainer = make(tmp_path)
    batches = list(trainer.get_train_dataloader())
    assert [len(batch["pair_kept_ids"]) for batch in batches] == [2, 2, 2, 2]
    metrics = trainer.evaluate()
    assert metrics["eval_en_span_f1"] == metrics["eval_span_f1"] and "eval_loss" not in metrics


def test_every_micro_batch_has_a_dropout_of_its_own(tmp_path):
    trainer = make(tmp_path)
    seeds, trainer._in_step = [], True
    for step in (0, 0, 1, 1):
        trainer.state.global_step = step
        seeds.append(trainer._pass_seed())
    assert len(set(seeds)) == 4
    resumed = make(tmp_path)
    resumed.state.global_step, resumed._in_step = 1, True
    assert [resumed._pass_seed(), resumed._pass_seed()] == seeds[2:]


def test_languages_of_the_pairs_come_as_the_tasks_do(tmp_path):
    pairs = make_links(24, ["bn"] * 4 + ["de"] * 20)
    trainer = make(tmp_path, pairs=pairs, language_sampling="each")
    order = list(trainer.make_sampler(trainer.train_dataset))
    for batch in (order[start : start + 4] for start in (0, 4, 8, 12)):
        languages = [pairs[k]["source_lang"] for _, drawn in batch for k in drawn]
        assert sorted(languages) == ["bn", "de"]


def test_gradient_checkpointing_and_bfloat16_change_little(tmp_path):
    def run(name, **given):
        settings = {**STEADY, "max_steps": 2, "alpha": 0.3, **given}
        return trained(make(tmp_path / name, make_model(dropout=0.2), **settings))

    with exact():
        same(outcome(run("plain")), outcome(run("recomputed", gradient_checkpointing=True)), 2 * STEP)
    whole, half = run("float32"), run("bfloat16", bf16=True)
    # The six products of each of two layers are rounded to bfloat16.
    assert_rounding(numbers(half), numbers(whole), operations=2 * 6, dtype=torch.bfloat16)
    # A CPU without AMX trains in float32.
    assert torch.equal(numbers(half), numbers(whole)) == (not half.args.bf16)
