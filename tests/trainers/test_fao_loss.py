"""Each preset's loss and gradient against loops written from the formulas, in float64."""

from __future__ import annotations

import pytest
import torch
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.trainers import FAOConfig, FAOTrainer

# What the presets are, written down a second time: pooling, specials linked, frozen target, side, words, layers,
# norm, denominators, mean over dimensions.
PUBLISHED = {
    "mao": ("last", False, False, "target", "all", [4], "squared", "links", False),
    "continual": ("mean", True, False, "target", "all", [4], "squared", "links", False),
    "cao_code": ("last", True, True, "target", "all", [4], "squared", "words", True),
    "efimov": ("mean", True, False, "target", "all", [4], "squared", "words", True),
    "rotate_src2tgt": ("mean", False, False, "source", "linked", [1, 2, 3, 4], "plain", "links", False),
    "rotate_tgt2src": ("mean", False, False, "target", "linked", [1, 2, 3, 4], "plain", "links", False),
}


def vectors(model, tokenizer, words, layers, pooling, specials):
    """Word vectors of one sentence, one at a time: {word index or "cls"/"sep": [vector of each layer]}."""
    encoding = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    states = model(**encoding, output_hidden_states=True).hidden_states
    found = {}
    for number in range(len(words)):
        tokens = [k for k, w in enumerate(encoding.word_ids(0)) if w == number]
        found[number] = []
        for layer in layers:
            pieces = [states[layer][0, k] for k in tokens]
            found[number].append(pieces[-1] if pooling == "last" else sum(pieces) / len(pieces))
    if specials:
        found["cls"] = [states[layer][0, 0] for layer in layers]
        found["sep"] = [states[layer][0, -1] for layer in layers]
    return found


def distance(a, b, norm, mean_over_dims):
    total = 0.0
    for x, y in zip(a, b, strict=True):
        squared = sum((x[d] - y[d]) ** 2 for d in range(len(x)))
        if norm == "plain":
            total = total + squared.sqrt()
        else:
            total = total + (squared / len(x) if mean_over_dims else squared)
    return total


def loop_loss(preset, model, f0, tokenizer, rows):
    pooling, specials, frozen, side, which, layers, norm, divide, mean_over_dims = PUBLISHED[preset]
    align, regularizer, links, kept = 0.0, 0.0, 0, 0
    for row in rows:
        source = vectors(model, tokenizer, row["source_words"], layers, pooling, specials)
        target = vectors(model, tokenizer, row["target_words"], layers, pooling, specials)
        with torch.no_grad():
            fixed = vectors(f0, tokenizer, row[f"{side}_words"], layers, pooling, specials)
        pairs = [tuple(link) for link in row["links"]]
        if specials:
            pairs += [("cls", "cls"), ("sep", "sep")]
        for i, j in pairs:
            align = align + distance(source[i], fixed[j] if frozen else target[j], norm, mean_over_dims)
            links += 1
        moving = source if side == "source" else target
        position = 0 if side == "source" else 1
        words = moving if which == "all" else dict.fromkeys(pair[position] for pair in pairs)
        for word in words:
            regularizer = regularizer + distance(moving[word], fixed[word], norm, mean_over_dims)
            kept += 1
    return align / links + regularizer / (kept if divide == "words" else links)


def perturb(model, seed=1):
    """Move the tuned model away from f0, so that the regulariser has a value and a gradient."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def make_trainer(tmp_path, preset, model, reference="copy", **kwargs):
    args = FAOConfig(
        output_dir=str(tmp_path / "run"), preset=preset, use_cpu=True, reference=reference, dropout=False, **kwargs
    )
    return FAOTrainer(model, args, train_dataset=make_links(6), processing_class=make_tokenizer())


@pytest.mark.parametrize("preset", sorted(FAOConfig.PRESETS))
def test_preset_equals_loops(preset, tmp_path):
    model = make_encoder(layers=4).double()
    trainer = make_trainer(tmp_path, preset, model)
    f0 = make_encoder(layers=4).double().eval()
    perturb(model)
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(6)])
    loss = trainer.compute_loss(model, batch)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    expected = loop_loss(preset, model, f0, make_tokenizer(), make_links(6))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-9, atol=1e-9)
    assert max(g.abs().max() for g in gradients.values()) > 1e-3


@pytest.mark.parametrize("preset", sorted(FAOConfig.PRESETS))
def test_cached_reference_equals_copy(preset, tmp_path):
    losses = []
    for reference in ("copy", "cache"):
        model = make_encoder(layers=4)
        trainer = make_trainer(tmp_path, preset, model, reference)
        perturb(model)
        batch = trainer.data_collator([trainer.train_dataset[k] for k in range(6)])
        assert ("reference" in batch) == (reference == "cache")
        losses.append(trainer.compute_loss(model, batch).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_bfloat16_cache_rounds_only_the_reference(tmp_path):
    losses = []
    for dtype in ("float32", "bfloat16"):
        model = make_encoder(layers=4)
        trainer = make_trainer(tmp_path, "mao", model, "cache", reference_dtype=dtype)
        perturb(model)
        batch = trainer.data_collator([trainer.train_dataset[k] for k in range(6)])
        losses.append(trainer.compute_loss(model, batch).item())
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


def test_adapters_off_is_the_reference(tmp_path):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(make_encoder(layers=4), LoraConfig(r=4, target_modules=["query", "value"]))
    trainer = make_trainer(tmp_path, "mao", model)
    assert trainer.reference is None
    perturb_lora = [p for n, p in model.named_parameters() if "lora" in n]
    with torch.no_grad():
        for parameter in perturb_lora:
            parameter += 0.3
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(6)])
    loss = trainer.compute_loss(model, batch)
    expected = loop_loss("mao", model.base_model.model, make_encoder(layers=4).eval(), make_tokenizer(), make_links(6))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_infonce_equals_loops(tmp_path):
    model = make_encoder(layers=4).double()
    trainer = make_trainer(tmp_path, "mao", model, objective="infonce", temperature=0.2, projection_dim=8)
    head = model.alignment_head.double()
    rows = make_links(6)
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(6)])
    loss = trainer.compute_loss(model, batch)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    sides = {"source": [], "target": []}
    for row in rows:
        source = vectors(model, make_tokenizer(), row["source_words"], [4], "last", False)
        target = vectors(model, make_tokenizer(), row["target_words"], [4], "last", False)
        for i, j in row["links"]:
            sides["source"].append(head(source[i][0]))
            sides["target"].append(head(target[j][0]))
    everything = sides["source"] + sides["target"]
    size = len(sides["source"])
    total = 0.0
    for a, anchor in enumerate(everything):
        cosines = [torch.cosine_similarity(anchor, other, dim=0) for other in everything]
        others = sum(torch.exp(c / 0.2) for k, c in enumerate(cosines) if k != a)
        total = total - torch.log(torch.exp(cosines[(a + size) % (2 * size)] / 0.2) / others)
    expected = total / (2 * size)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    assert {"alignment_head.hidden.weight", "alignment_head.out.weight"} < set(gradients)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reduction", ["sum", "links", "words"])
def test_reductions(reduction, tmp_path):
    model = make_encoder(layers=4)
    trainer = make_trainer(tmp_path, "mao", model, reduction=reduction)
    perturb(model)
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(6)])
    loss = trainer.compute_loss(model, batch).item()
    align, regularizer = (trainer._term_sums[k].item() for k in ("align", "regularizer"))
    links, words = trainer.count_items(batch)
    other = make_trainer(tmp_path, "mao", make_encoder(layers=4), reduction="sum")
    perturb(other.model)
    other.compute_loss(other.model, batch)
    sums = {k: other._term_sums[k].item() for k in ("align", "regularizer")}
    divisors = {"sum": (1, 1), "links": (links, links), "words": (links, words)}[reduction]
    assert words > links
    assert align == pytest.approx(sums["align"] / divisors[0], rel=1e-5)
    assert regularizer == pytest.approx(sums["regularizer"] / divisors[1], rel=1e-5)
    assert loss == pytest.approx(align + regularizer, rel=1e-6)


def test_l2_has_no_gradient_where_nothing_moved():
    from hf_xalign.losses import word_distance

    a = torch.randn(5, 2, 8, requires_grad=True)
    word_distance(a, (a * (1 + 1e-7)).detach(), norm="l2").sum().backward()
    assert a.grad.abs().max() == 0
