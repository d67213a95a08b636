"""The PPA benchmarks on the tiny encoder: what they time, start from, keep and print. The runs are made by hand."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.families import CONFIGS
from support.numeric import assert_rounding, tolerance
from support.ppa import make_pairs
from support.refusals import assert_refused
from support.tiny import make_encoder, make_tokenizer
from transformers import AutoModelForMaskedLM

from hf_xalign.data.sentence_pairs import encode_sentence_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import model_fingerprint
from hf_xalign.recipes.parts.sentences import SentenceCorpus
from hf_xalign.trainers import PPAConfig

# The MLM head: a matmul over 16, a norm over 16, the logits' sum over 16, and a softmax over 160 pieces.
HEAD = 4 * 16 + 160
# Two layers of four matmuls over 16, two over at most 32, a softmax over 40 tokens and two norms over 16.
ENCODER = 2 * (4 * 16 + 2 * 32 + 40 + 4 * 16)


@pytest.fixture
def bench(script):
    return script("ppa_step")


@pytest.fixture
def ablation(script):
    return script("ppa_ablation")


@pytest.fixture
def material():
    return SentenceCorpus(make_encoder(), make_tokenizer(), make_pairs(16), make_pairs(8), {}, {}, "cls")


@pytest.fixture
def args(tmp_path):
    settings = {"queue_size": 12, "projection_dim": 6, "min_tokens": 2, "max_tokens": 60, "mlm_probability": 0.3}
    settings |= {"per_device_train_batch_size": 4, "dropout": False, "freeze_embeddings": True, "use_cpu": True}
    return PPAConfig(output_dir=str(tmp_path), **settings)


@pytest.fixture
def step(bench, material, args):
    return bench.Step(material, args)


def gradients(module):
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def test_the_step_and_its_passes(step):
    """Batches and plain head are the trainer's, passes are of what is trained, and only the queue moves."""
    batches, actions = step.batches(9), step.actions()
    for ours, theirs in zip(batches, step.trainer.get_train_dataloader(), strict=True):
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    batch = batches[0]
    before, pointer = model_fingerprint(step.trainer.model), int(step.trainer.queue.pointer)
    actions["key"](batch)
    assert not gradients(step.bare) and not gradients(step.key)
    for name in ("query", "pair"):
        step.clear()
        actions[name](batch)
        trained = gradients(step.bare).keys()
        assert trained and "embeddings.word_embeddings.weight" not in trained
    actions["step"](batch)
    assert {name for name in gradients(step.trainer.model) if not name.startswith("alignment_head")} == trained
    assert model_fingerprint(step.trainer.model) == before
    assert int(step.trainer.queue.pointer) == pointer + 4
    model, head = step.trainer.model, step.trainer._head("words")
    with torch.no_grad():
        hidden = model(input_ids=batch["mlm_input_ids"], attention_mask=batch["mlm_attention_mask"]).last_hidden_state
        plain = sys.modules["ppa_variants"].plain_head(head, hidden, batch, model.get_input_embeddings().weight)
        ours, _ = step.trainer._words(model, batch, torch.tensor(1))
    assert_rounding(plain, ours, ENCODER + HEAD + len(batch["mlm_labels"]))


@pytest.fixture
def heads(bench):
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(CONFIGS["bert"]())
    with torch.no_grad():
        model.get_output_embeddings().bias.normal_()
    return bench.Heads(model, freeze_embeddings=False, bf16=False, device=torch.device("cpu"))


def test_both_heads_give_one_loss_and_one_gradient(bench, heads, material, args):
    lengths = encode_sentence_pairs(material.train, material.tokenizer, min_tokens=2, max_tokens=60).dataset["length"]
    away = sorted(abs(length + 3 - 32) for length in lengths)[:6]
    batch, other = bench.head_batches(material, args, pairs=6, count=2)
    assert [abs(int(row.sum()) - 32) for row in batch["mlm_attention_mask"]] == away  # nearest in length
    assert not torch.equal(batch["mlm_positions"], other["mlm_positions"])
    rounding = ENCODER + HEAD + len(batch["mlm_labels"])
    heads.check(batch, tolerance(rounding, dtype=torch.float32))
    found = {}
    for name in ("ours", "plain"):
        heads.clear()
        heads.actions()[name](batch)
        found[name] = gradients(heads.base)
    assert found["ours"].keys() == found["plain"].keys()
    scale = max(gradient.abs().max().item() for gradient in found["plain"].values())
    for name, gradient in found["ours"].items():
        assert_rounding(gradient, found["plain"][name], 2 * rounding, scale)
    with torch.no_grad():
        heads.ours.bias.add_(torch.arange(160.0) / 10)
    with pytest.raises(RuntimeError, match="they should agree"):
        heads.check(batch, tolerance(rounding, dtype=torch.float32))


def test_measure_and_tables(bench, material, args, heads, step):
    turns = bench.measure(step.actions(), step.batches(2), 2, step.clear)
    assert len(turns) == 4 and all(list(turn) == ["query", "key", "pair", "head", "step"] for turn in turns)
    assert all(seconds.wall > 0 for turn in turns for seconds in turn.values())
    printed = bench.step_table(turns)
    assert printed.count("met") + printed.count("missed") == 2

    batches = bench.head_batches(material, args, 6, 1)
    turns = bench.measure(heads.actions(), batches, 1, heads.clear)
    table = bench.head_table(turns, {"encoder": 2**30, "ours": 3 * 2**29, "plain": 2**32})
    assert "| 1.50 | 0.50 |" in table and "| 4.00 | 3.00 |" in table
    assert "- | - |" in bench.head_table(turns, {})
    if sys.platform == "linux":  # the process at its largest
        assert bench.peak_memory(heads, "plain", batches) > 50 * 2**20


def test_a_ratio_is_of_sums_within_a_turn(bench):
    names = ("query", "key", "pair", "head", "step")
    # The second turn is on a machine ten times as slow.
    walls = [(1, 1, 2, 1, 5), (10, 10, 20, 10, 44), (1, 1, 2, 1, 4.4)]
    turns = [{name: bench.Seconds(w, 2 * w) for name, w in zip(names, turn, strict=True)} for turn in walls]
    text, ratio = bench.ratio(turns, ("step",), bench.PASSES)
    assert text == "1.10 (1.10-1.25) | 1.10" and abs(ratio - 1.1) <= tolerance(9, 2.0)
    assert bench.ratio(turns, ("step",), (*bench.PASSES, "head"))[0] == "0.88 (0.88-1.00) | 0.88"
    assert "| <= 1.15 | met |" in bench.step_table(turns)
    assert "| <= 1.15 | missed |" in bench.step_table(turns[:1])


def test_arguments(bench, ablation, args, material, capsys):
    arguments = bench.parse_arguments(["--trial", "--set", "queue_size=99"])
    assert arguments.set["queue_size"] == "99" and arguments.set["per_device_train_batch_size"] == "8"
    assert arguments.steps == 2
    with pytest.raises(SystemExit):
        bench.parse_arguments(["--set", "queue_size"])
    assert "FIELD=VALUE" in capsys.readouterr().err
    for name in ("contrast", "words"):
        with pytest.raises(InputError, match="bare passes"):
            bench.Step(material, replace(args, **{name: "none"}))
    assert ablation.parse_arguments([]).output == Path("runs/ppa_ablation_raw.json")
    given = ablation.parse_arguments(
        ["--encoder", "reinitialised", "--variants", *ablation.VARIANTS, "--set", "learning_rate=1e-4"]
    )
    assert given.output.name == "ppa_ablation_reinitialised.json" and given.set == {"learning_rate": "1e-4"}


def test_reinitialised_layers_are_the_last_and_the_same_every_time(ablation):
    start = make_encoder(layers=4)
    for parameter in start.parameters():
        parameter._is_hf_initialized = True  # as those that come out of a checkpoint
    one, again, other = (copy.deepcopy(start) for _ in range(3))
    drawn = torch.get_rng_state()
    for model, seed in ((one, 0), (again, 0), (other, 1)):
        ablation.reinitialise(model, 2, seed=seed)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model_fingerprint(one) == model_fingerprint(again) != model_fingerprint(start)
    assert model_fingerprint(other) != model_fingerprint(one)
    old = start.state_dict()
    for name, weight in one.state_dict().items():
        if not name.startswith(("encoder.layer.2.", "encoder.layer.3.")):
            assert torch.equal(weight, old[name])
        elif name.endswith("bias"):
            assert not weight.any()
        elif "LayerNorm" in name:
            assert (weight == 1).all()
        else:
            assert not torch.equal(weight, old[name])
            assert 0.1 < weight.std() < 0.3  # initializer_range 0.2


@pytest.mark.parametrize(
    "variant", ["full", *(pytest.param(name, marks=pytest.mark.slow) for name in ("no_moco", "no_tlm", "mlm"))]
)
def test_a_run_starts_from_the_same_encoder(ablation, material, variant, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("use_cpu: true\nqueue_size: 8\nper_device_train_batch_size: 4\nmax_tokens: 60\nmin_tokens: 2\n")
    start, tests = material.model, {"held out": material.evaluation}
    before = model_fingerprint(start)
    words = ablation.options(config, {"learning_rate": "1e-2", **ablation.VARIANTS[variant]}, seed=1, max_steps=3)
    result = ablation.train(material, start, words, tests)
    assert model_fingerprint(start) == before and all(p.requires_grad for p in start.parameters())
    assert result["steps"] == 3 and result["training"] > 0
    assert result["scores"] == ablation.score(material, tests, 8)
    assert result["scores"]["held out"].keys() == {"de", "nl"}
    first = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(material.model.state_dict()[first], start.state_dict()[first])


def runs_of(encoder, full):
    """A file of runs: one language pair in two test sets, before at 50%, two seeds of `full` and one of `no_tlm`."""

    def scores(cls, mean):
        own = {"sentence_cls": cls, "sentence_mean": mean, "pool_sentences": 9}
        return {"held out": {"bn": own, "de": own}, "Tatoeba": {"bn": own}}

    def one(variant, seed, *values):
        return {"variant": variant, "seed": seed, "steps": 10, "training": 20.0 + seed, "scores": scores(*values)}

    return {
        "setup": {"encoder": encoder, "pairs": {"bn": [90, 100], "de": [100, 100]}},
        "hardware": {"gpus": [], "cores": 2},
        "versions": {"torch": "2.13.0"},
        "before": scores(0.5, 0.5),
        "runs": [*(one("full", seed, *values) for seed, values in enumerate(full)), one("no_tlm", 0, 0.4, 0.4)],
    }


def test_table_of_means_and_ranges(ablation):
    found = runs_of("raw", [(0.6, 0.5), (0.62, 0.5)])
    lines = ablation.table(found).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0][5:7] == ["held out bn, [CLS]", "held out bn, mean"] and cells[0][-1] == "Tatoeba bn, mean"
    assert cells[2] == ["before", "-", "-", "-", "-", *["50.0"] * 6]
    assert cells[3][:7] == ["full", "2", "10", "20 (20-21)", "2.05", "61.0 (60.0-62.0) +11.0", "50.0 (50.0-50.0) +0.0"]
    assert cells[4][:6] == ["- TLM", "1", "10", "20 (20-20)", "2.00", "40.0 (40.0-40.0) -10.0"]
    assert "2 CPU cores, torch 2.13.0, raw encoder, trained on 90 of 100 pairs of bn" in ablation.report(found)


def test_aims(ablation):
    def said(encoder, *full):
        return ablation.aims(runs_of(encoder, full)).splitlines()[2:]

    met = said("raw", (0.5, 0.496), (0.5, 0.496))
    assert [line.endswith("| met |") for line in met] == [True] * 5 + [False]  # Bengali Tatoeba may not fall at all
    assert met[-1] == "| Tatoeba bn, mean | -0.40 | >= +0 | missed |"
    assert all(line.endswith("| missed |") for line in said("raw", (0.499, 0.494))[:2])
    assert said("reinitialised", (0.71, 0.69))[:3] == [
        "| held out, [CLS], second-best language | +21.00 | >= +20 | met |",
        "| held out, mean, second-best language | +19.00 | >= +20 | missed |",
        "| Tatoeba, [CLS], second-best language | -inf | >= +20 | missed |",  # there is but one
    ]
    assert ablation.aims(runs_of("raw", [])) == ""


def test_a_file_of_runs_is_continued_and_tatoeba_is_read(ablation, tmp_path):
    path = tmp_path / "runs.json"
    setup = {"encoder": "raw", "pairs": {"de": (3, 4)}}
    started = ablation.open_runs(path, setup)
    assert ablation.settle_steps(started, None, path) is None and ablation.settle_steps(started, 7, path) == 7
    started["max_steps"] = 7
    started["runs"].append({"variant": "full", "seed": 0})
    ablation.write_runs(path, started)
    again = ablation.open_runs(path, setup)
    assert again == json.loads(path.read_text()) and again["runs"] == started["runs"]
    assert ablation.missing(again, [("full", 0), ("full", 1)]) == [("full", 1)]
    assert ablation.settle_steps(again, None, path) == ablation.settle_steps(again, 7, path) == 7
    other = {**setup, "encoder": "reinitialised"}
    for language in ("de", "nl"):
        (tmp_path / f"{language}.jsonl").write_text('{"en": "a cat", "xx": "eine katze"}\n')
    found = ablation.load_tatoeba(tmp_path, ["de", "nl"], "en")
    assert found["source_lang"][:] == ["de", "nl"] and found["source"][0] == "eine katze"
    assert_refused(
        {
            "steps": (lambda: ablation.settle_steps(again, 8, path), "runs of 7 steps, not of 8"),
            "setup": (lambda: ablation.open_runs(path, other), r"another setup \(encoder\); give another --output"),
            "text": (lambda: ablation.load_tatoeba(tmp_path, ["bn"], "en"), "no such file"),
        }
    )
