"""The FAO benchmark's variants are what it says they are, on the tiny encoder."""

from __future__ import annotations

import importlib.util
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from support.tiny import make_encoder, make_links, make_tokenizer


@pytest.fixture(scope="module")
def bench():
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "fao_step.py"
    spec = importlib.util.spec_from_file_location("benchmark_fao_step", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def setup(bench, tmp_path):
    return bench.Setup(make_encoder, make_tokenizer(), make_links(24), str(tmp_path), batch_size=4)


def gradients(variant, rows):
    variant.model.zero_grad(set_to_none=True)
    variant.step(variant.prepare(rows))
    return {name: p.grad for name, p in variant.model.named_parameters() if p.grad is not None}


def test_batches_are_those_of_the_trainers_data_loader(bench, setup):
    trainer = setup.trainer()
    loaded = list(trainer.get_train_dataloader())
    batches = list(setup.batches())
    assert len(batches) == len(loaded) == 6
    for rows, batch in zip(batches, loaded, strict=True):
        assert torch.equal(sys.modules["fao_variants"].collate(trainer, rows)["input_ids"], batch["input_ids"])


def test_same_trained_weights_same_gradients(bench, setup):
    rows = next(setup.batches())
    variants = {name: make(setup) for name, make in bench.VARIANTS.items()}
    found = {name: gradients(variant, rows) for name, variant in variants.items()}
    embeddings = "embeddings.word_embeddings.weight"
    for name in ("copy all", "script"):
        assert embeddings in found[name]
    expected = found["copy"]
    assert found["bare"].keys() == expected.keys() and embeddings not in expected
    assert any((found["bare"][name] - expected[name]).abs().max() > 1e-3 for name in expected)
    for name in ("cache", "loops", "copy all", "script"):
        for weight, gradient in expected.items():
            torch.testing.assert_close(found[name][weight], gradient, rtol=1e-3, atol=1e-4)


def test_measure_and_report(bench, setup):
    variants = {name: make(setup) for name, make in bench.VARIANTS.items()}
    found = bench.measure(variants, list(islice(setup.batches(), 2)), repeats=2)
    assert len(found) == 4
    assert all(list(times) == list(bench.VARIANTS) for times in found)
    assert all(timing.wall > 0 for times in found for timing in times.values())
    printed = bench.table(found, {"copy": 2**29}) + bench.aims(found)
    assert "| 0.50 |" in printed
    assert printed.count("met") + printed.count("missed") == 4


def test_another_loss_stops_the_benchmark(bench, setup):
    variants = {name: bench.VARIANTS[name](setup) for name in ("copy", "loops")}
    with torch.no_grad():
        variants["loops"].model.encoder.layer[0].output.dense.weight.mul_(1.1)
    with pytest.raises(RuntimeError, match="the loss of loops is"):
        bench.measure(variants, [next(setup.batches())], repeats=1)


def test_peak_memory_is_the_process_at_its_largest(bench, setup):
    assert bench.peak_memory(setup, "bare", list(setup.batches())) > 50 * 2**20
