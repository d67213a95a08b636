"""The four pre-training losses against loops written from the formulas: one token, one entry at a time."""

import math

import numpy as np
import pytest
import torch
from support.align_mlm import OBJECTIVES, make, make_rows, token_loss
from support.launch import STEP, gradients, same_tensors, trained
from support.numeric import assert_rounding
from support.runs import exact
from transformers import AutoModel, AutoModelForMaskedLM

from hf_xalign.data.pretraining.rows import TokenEntries
from hf_xalign.modeling.languages import language_ids


def token_losses(trainer, collator, row):
    """The losses of one row's masked tokens."""
    batch = collator([row])
    kinds = {"token_type_ids": batch["token_type_ids"]} if "token_type_ids" in batch else {}
    # Without the padding of a half: the positions of both halves begin at 0.
    own = [k for k, token in enumerate(row["input_ids"]) if token]
    halves = np.split(
        np.arange(len(own)), [sum(k < row["parts"][0] for k in own)] if len(own) < len(row["input_ids"]) else []
    )
    places = torch.tensor([[k - half[0] for half in halves for k in half]])
    inputs = {name: batch[name][:, own] for name in ("input_ids", *kinds)}
    states = torch.zeros(
        len(row["input_ids"]), 16, dtype=torch.float64 if trainer.model.dtype == torch.float64 else None
    )
    states = states.index_copy(0, torch.tensor(own), trainer.model(**inputs, position_ids=places).last_hidden_state[0])
    hidden = list(zip(batch["mlm_positions"].tolist(), batch["mlm_labels"].tolist(), strict=True))
    own = all(row["input_ids"][place] == label for place, label in hidden)
    assert own or (collator is trainer.data_collator and trainer.args.dict_mlm == "label")
    table = trainer.model.embeddings.word_embeddings.weight
    return [token_loss(trainer.model, states[place], table, label) for place, label in hidden]


def reference(trainer, rows):
    """The loss of one step over `rows`, each read for itself, and its parts."""
    losses = [loss for row in rows for loss in token_losses(trainer, trainer.data_collator, row)]
    mlm = sum(losses) / len(losses)
    if trainer.args.objective != "align_mlm":
        return mlm, {"mlm": mlm}
    table = trainer.model.get_input_embeddings().weight
    cosines = []
    for one, other in trainer.entries.ids.tolist():
        a, b = table[one], table[other]
        cosines.append((a * b).sum() / torch.sqrt((a * a).sum()) / torch.sqrt((b * b).sum()))
    align = -sum(cosines) / len(cosines)
    return mlm + trainer.args.alpha * align, {"mlm": mlm, "align": align}


@pytest.fixture
def float64():
    with exact():
        yield


@pytest.mark.parametrize("objective", [*OBJECTIVES, "dict_mlm label", "xlm padded"])
def test_loss_and_gradient(objective, tmp_path, float64):
    objective, *kind = objective.split()
    kinds = {"dict_mlm": "label"} if kind == ["label"] else {}
    data = make_rows(pairs=True, pair_halves="padded") if kind == ["padded"] else None
    trainer = make(tmp_path, objective=objective, data=data, dropout=False, alpha=3.0, **kinds)
    trainer.model.double()
    rows = [trainer.train_dataset[k] for k in (0, 5, 9, 15)]
    assert objective != "xlm" or any(len(row["languages"]) == 2 for row in rows)
    assert (0 in rows[3]["input_ids"]) == bool(data)
    trainer.data_collator.set_epoch(1)
    expected, terms = reference(trainer, rows)
    wanted = gradients(trainer.model, expected)
    trainer._in_step = True
    loss = trainer.compute_loss(trainer.model, trainer.data_collator(rows))
    assert loss.dtype == torch.float64
    found = gradients(trainer.model, loss)
    same_tensors({"all": expected, **terms, **wanted}, {"all": loss, **trainer._term_sums, **found}, STEP)


@pytest.mark.parametrize("objective", ["xlm", "align_mlm"])
def test_evaluation_is_of_hidden_tokens_alone_and_the_same_each_time(objective, tmp_path):
    trainer = make(tmp_path, objective=objective, per_device_eval_batch_size=2)
    assert 0 <= trainer.evaluate()["eval_alignment"] <= 1
    trainer.test_entries = {}
    trainer.model.double()
    with exact():
        found = trainer.evaluate()
        trainer.data_collator.set_epoch(5)
        torch.rand(3)
        assert trainer.evaluate() == found and "eval_alignment" not in found
        trainer.model.eval()
        losses = {}
        with torch.no_grad():
            for row in trainer.eval_dataset:
                own = token_losses(trainer, trainer.data_collator.for_evaluation(), row)
                losses.setdefault(row["source_lang"], []).extend(loss.item() for loss in own)
    for language, own in losses.items():
        assert_rounding(found[f"eval_{language}_loss"], np.mean(own), STEP)
    mean = np.mean([loss for own in losses.values() for loss in own])
    assert_rounding(found["eval_loss"], mean, STEP)
    # An error e of the exponent is one of e times the value.
    assert_rounding(found["eval_perplexity"], math.exp(mean), STEP, scale=mean * math.exp(mean))


def test_dictionary_languages_and_head_are_saved_with_the_model(tmp_path):
    trainer = trained(make(tmp_path, objective="dict_mlm", max_steps=1, save_strategy="steps", save_steps=1))
    trainer.save_model()
    for folder in (tmp_path, tmp_path / "checkpoint-1"):
        found, due = TokenEntries.load(folder), trainer.entries
        assert np.array_equal(found.ids, due.ids)
        assert (found.origin, found.share, found.seed) == (due.origin, due.share, due.seed)
    model = AutoModel.from_pretrained(tmp_path)
    assert language_ids(model.config) == {"en": 0, "de": 1, "nl": 2}
    assert model.embeddings.token_type_embeddings.weight.shape[0] == 3
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path)
    head = trainer.model.alignment_head["words"]
    assert torch.equal(whole.cls.predictions.transform.dense.weight, head.dense.weight.detach())
