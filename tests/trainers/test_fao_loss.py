"""Each preset's loss and gradient against loops written from the formulas, in float64."""

from __future__ import annotations

import pytest
import torch
from support import fao
from support.launch import STEP, same_tensors
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.trainers import FAOConfig

pytestmark = pytest.mark.numeric

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


def make(folder, preset="mao", model=None, seed=1, **settings):
    """A trainer in float64 whose model has moved, and its whole data as one batch."""
    model = make_encoder(layers=4) if model is None else model
    trainer = fao.make(folder, model.double(), pairs=6, preset=preset, **{"reference": "copy", **settings})
    perturb(model, seed)
    return trainer, trainer.data_collator([trainer.train_dataset[k] for k in range(6)])


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def f0():
    return make_encoder(layers=4).double().eval()


@pytest.mark.parametrize("preset", sorted(FAOConfig.PRESETS))
def test_preset_equals_loops(preset, tmp_path):
    trainer, batch = make(tmp_path, preset, dropout=False)
    loss = trainer.compute_loss(trainer.model, batch)
    expected = loop_loss(preset, trainer.model, f0(), make_tokenizer(), make_links(6))
    assert_rounding(loss, expected, STEP)
    assert "reference" not in batch
    found, due = gradients(trainer.model, loss), gradients(trainer.model, expected)
    same_tensors(due, found, STEP)
    assert max(g.abs().max() for g in found.values()) > 1e-3

    # f0's vectors rounded once to float32, each of 16 numbers, in a square.
    trainer, batch = make(tmp_path, preset, dropout=False, reference="cache")
    assert "reference" in batch
    assert_rounding(trainer.compute_loss(trainer.model, batch), expected, 2 * 16, dtype=torch.float32)


def test_bfloat16_cache_rounds_only_the_reference(tmp_path):
    losses = []
    for dtype in ("float32", "bfloat16"):
        trainer, batch = make(tmp_path, reference="cache", reference_dtype=dtype)
        losses.append(trainer.compute_loss(trainer.model, batch))
    assert losses[0] != losses[1]
    # A vector off by half an eps of its size, in the square of a difference that is half as large.
    assert_rounding(losses[1], losses[0], 2, dtype=torch.bfloat16)


def test_infonce_equals_loops(tmp_path):
    trainer, batch = make(tmp_path, objective="infonce", temperature=0.2, projection_dim=8)
    model = trainer.model
    head = model.alignment_head.double()
    loss = trainer.compute_loss(model, batch)
    sides = {"source": [], "target": []}
    for row in make_links(6):
        for side, words in sides.items():
            found = vectors(model, make_tokenizer(), row[f"{side}_words"], [4], "last", False)
            words += [head(found[link[side == "target"]][0]) for link in row["links"]]
    everything = sides["source"] + sides["target"]
    size = len(sides["source"])
    total = 0.0
    for a, anchor in enumerate(everything):
        cosines = [torch.cosine_similarity(anchor, other, dim=0) for other in everything]
        others = sum(torch.exp(c / 0.2) for k, c in enumerate(cosines) if k != a)
        total = total - torch.log(torch.exp(cosines[(a + size) % (2 * size)] / 0.2) / others)
    expected = total / (2 * size)
    assert_rounding(loss, expected, STEP, scale=1 / 0.2)
    found, due = gradients(model, loss), gradients(model, expected)
    same_tensors(due, found, STEP, 1 / 0.2)
    assert {"alignment_head.hidden.weight", "alignment_head.out.weight"} < set(found)
