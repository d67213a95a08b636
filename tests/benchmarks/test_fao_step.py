"""The FAO benchmark's variants are what it says they are, on the tiny encoder."""

from __future__ import annotations

import sys
from itertools import islice

import pytest
import torch
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_links, make_tokenizer

# Two layers of four matmuls over 16, two over at most 32, a softmax over 20 tokens and two norms over 16; then means
# over at most 4 tokens, 16 dimensions and 40 words; forward and backward.
STEP = 2 * (2 * (4 * 16 + 2 * 32 + 20 + 4 * 16) + 4 + 16 + 40)


@pytest.fixture
def bench(script):
    return script("fao_step")


@pytest.fixture
def setup(bench, tmp_path):
    return bench.Setup(make_encoder, make_tokenizer(), make_links(24), str(tmp_path), batch_size=4)


def gradients(variant, rows):
    variant.model.zero_grad(set_to_none=True)
    variant.step(variant.prepare(rows))
    return {name: p.grad for name, p in variant.model.named_parameters() if p.grad is not None}


def test_batches_are_those_of_the_trainers_data_loader(bench, setup):
    trainer = setup.trainer()
    loaded, batches = list(trainer.get_train_dataloader()), list(setup.batches())
    assert len(batches) == len(loaded) == 6
    for rows, batch in zip(batches, loaded, strict=True):
        assert torch.equal(sys.modules["fao_variants"].collate(trainer, rows)["input_ids"], batch["input_ids"])


def test_same_trained_weights_same_gradients(bench, setup):
    rows = next(setup.batches())
    found = {name: gradients(make(setup), rows) for name, make in bench.VARIANTS.items()}
    embeddings, expected = "embeddings.word_embeddings.weight", found["copy"]
    assert embeddings in found["copy all"] and embeddings in found["script"]
    assert found["bare"].keys() == expected.keys() and embeddings not in expected
    assert any((found["bare"][name] - expected[name]).abs().max() > 1e-3 for name in expected)
    scale = max(gradient.abs().max().item() for gradient in expected.values())
    for name in ("cache", "loops", "copy all", "script"):
        for weight, gradient in expected.items():
            assert_rounding(found[name][weight], gradient, STEP, scale)


def test_measure_and_report(bench, setup):
    variants = {name: make(setup) for name, make in bench.VARIANTS.items()}
    found = bench.measure(variants, list(islice(setup.batches(), 2)), repeats=2)
    assert len(found) == 4
    assert all(list(times) == list(bench.VARIANTS) for times in found)
    assert all(timing.wall > 0 for times in found for timing in times.values())
    printed = bench.table(found, {"copy": 2**29}) + bench.aims(found)
    assert "| 0.50 |" in printed
    assert printed.count("met") + printed.count("missed") == 4
    with torch.no_grad():
        variants["loops"].model.encoder.layer[0].output.dense.weight.mul_(1.1)
    with pytest.raises(RuntimeError, match="the loss of loops is"):
        bench.measure(variants, [next(setup.batches())], repeats=1)


@pytest.mark.skipif(sys.platform != "linux", reason="the mark of peak memory is Linux's")
def test_peak_memory_is_the_process_at_its_largest(bench, setup):
    assert bench.peak_memory(setup, "bare", list(setup.batches())) > 50 * 2**20
