"""The four pre-training losses against loops written from the formulas: one token, one entry at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.align_mlm import OBJECTIVES, make, make_entries, make_rows
from support.tiny import make_encoder

from hf_xalign.errors import InputError
from hf_xalign.modeling.language_embeddings import add_language_embeddings


def token_loss(model, state, label):
    """-log p(label) by the head that BERT has."""
    head = model.alignment_head["words"]
    x = head.dense.weight @ state + head.dense.bias
    x = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    centred = x - x.mean()
    x = centred / torch.sqrt((centred * centred).mean() + 1e-12) * head.norm.weight + head.norm.bias
    scores = model.embeddings.word_embeddings.weight @ x + head.bias
    return torch.logsumexp(scores, 0) - scores[label]


def reference(trainer, rows, epoch):
    """The loss of one step over `rows`, each read for itself, and its parts."""
    model, args = trainer.model, trainer.args
    trainer.data_collator.set_epoch(epoch)
    losses = []
    for row in rows:
        batch = trainer.data_collator([row])
        kinds = {"token_type_ids": batch["token_type_ids"]} if "token_type_ids" in batch else {}
        states = model(input_ids=batch["input_ids"], **kinds).last_hidden_state[0]
        for place, label in zip(batch["mlm_positions"].tolist(), batch["mlm_labels"].tolist(), strict=True):
            losses.append(token_loss(model, states[place], label))
    mlm = sum(losses) / len(losses)
    if args.objective != "align_mlm":
        return mlm, {"mlm": mlm}
    table = model.get_input_embeddings().weight
    cosines = []
    for one, other in trainer.entries.ids.tolist():
        a, b = table[one], table[other]
        cosines.append((a * b).sum() / torch.sqrt((a * a).sum()) / torch.sqrt((b * b).sum()))
    align = -sum(cosines) / len(cosines)
    return mlm + args.alpha * align, {"mlm": mlm, "align": align}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_and_gradient(objective, tmp_path):
    trainer = make(tmp_path, objective=objective, dropout=False, alpha=3.0)
    rows = [trainer.train_dataset[k] for k in (0, 5, 9, 15)]
    if objective == "xlm":
        assert any(len(row["languages"]) == 2 for row in rows)
    expected, terms = reference(trainer, rows, epoch=1)
    expected.backward()
    gradients = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, trainer.data_collator(rows))
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for name, value in terms.items():
        torch.testing.assert_close(trainer._term_sums[name], value.detach(), rtol=1e-5, atol=1e-6)
    trained = {name for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert set(gradients) == trained
    for name, parameter in trainer.model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6, msg=name)


def test_dictionary_pulls_its_entries_together(tmp_path):
    trainer = make(tmp_path, num_train_epochs=6, learning_rate=3e-3, lr_scheduler_type="constant", warmup_steps=0.0)
    ids = torch.from_numpy(trainer.entries.ids)

    def cosine():
        table = trainer.model.get_input_embeddings().weight.detach()
        return torch.cosine_similarity(table[ids[:, 0]], table[ids[:, 1]]).mean()

    before = cosine()
    trainer.train()
    assert cosine() > before + 0.2


def test_sampled_entries_are_the_same_all_through_a_step(tmp_path):
    trainer = make(tmp_path, entries_per_step=2)
    ids = torch.from_numpy(trainer.entries.ids)
    drawn = []
    for step in range(20):
        trainer.state.global_step = step
        first = trainer._entries_of_step(ids)
        assert torch.equal(first, trainer._entries_of_step(ids))
        assert len({tuple(entry) for entry in first.tolist()}) == 2
        drawn += [tuple(entry) for entry in first.tolist()]
    assert {tuple(entry) for entry in ids.tolist()} == set(drawn)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_evaluation_is_of_hidden_tokens_alone_and_the_same_each_time(objective, tmp_path):
    trainer = make(tmp_path, objective=objective, per_device_eval_batch_size=2)
    first = trainer.evaluate()
    trainer.data_collator.set_epoch(5)
    torch.rand(3)
    assert trainer.evaluate() == first
    # One row at a time, with plain labels.
    collator = trainer.data_collator.for_evaluation()
    sums, counts = {}, {}
    trainer.model.eval()
    for row in trainer.eval_dataset:
        batch = collator([row])
        hidden = [place for place, kept in enumerate(batch["mlm_positions"].tolist())]
        kinds = {"token_type_ids": batch["token_type_ids"]} if "token_type_ids" in batch else {}
        with torch.no_grad():
            states = trainer.model(input_ids=batch["input_ids"], **kinds).last_hidden_state[0]
            for k in hidden:
                place, label = batch["mlm_positions"][k].item(), batch["mlm_labels"][k].item()
                assert row["input_ids"][place] == label
                language = row["source_lang"]
                sums[language] = sums.get(language, 0.0) + token_loss(trainer.model, states[place], label).item()
                counts[language] = counts.get(language, 0) + 1
    for language, total in sums.items():
        assert first[f"eval_{language}_loss"] == pytest.approx(total / counts[language], rel=1e-5)
    mean = sum(sums.values()) / sum(counts.values())
    assert first["eval_loss"] == pytest.approx(mean, rel=1e-5)
    assert first["eval_perplexity"] == pytest.approx(math.exp(mean), rel=1e-4)
    assert 0 <= first["eval_alignment"] <= 1


def test_bad_input(tmp_path):
    with pytest.raises(InputError, match="needs a dictionary"):
        from support.tiny import make_tokenizer

        from hf_xalign.trainers.align_mlm import AlignMLMTrainer
        from hf_xalign.trainers.align_mlm_config import AlignMLMConfig

        AlignMLMTrainer(
            make_encoder(),
            AlignMLMConfig(output_dir=str(tmp_path), use_cpu=True),
            train_dataset=make_rows(4),
            processing_class=make_tokenizer(),
        )
    with pytest.raises(InputError, match="does not look at a dictionary"):
        make(tmp_path, objective="mlm", entries=make_entries())
    with pytest.raises(InputError, match="token 160 in a vocabulary of 160"):
        from hf_xalign.data.entries import TokenEntries

        make(tmp_path, entries=TokenEntries(np.array([[3, 160]]), "a test"))
    with pytest.raises(InputError, match="objective=mmm"):
        make(tmp_path, objective="mmm")
    with pytest.raises(InputError, match="translation_probability=2"):
        make(tmp_path, translation_probability=2)


def test_objectives_with_languages_need_their_embeddings(tmp_path):
    from support.tiny import make_tokenizer

    from hf_xalign.trainers.align_mlm import AlignMLMTrainer
    from hf_xalign.trainers.align_mlm_config import AlignMLMConfig

    args = AlignMLMConfig(output_dir=str(tmp_path), objective="xlm", use_cpu=True)
    with pytest.raises(InputError, match="no language embeddings"):
        AlignMLMTrainer(make_encoder(), args, train_dataset=make_rows(4), processing_class=make_tokenizer())
    model = make_encoder()
    add_language_embeddings(model, ["en"])
    with pytest.raises(InputError, match="embeddings of en and not of de"):
        AlignMLMTrainer(model, args, train_dataset=make_rows(4), processing_class=make_tokenizer())
