"""The MAO benchmarks: what they read, count and print. The runs themselves are made by hand."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.modeling.reference import model_fingerprint
from hf_xalign.recipes.material import Material


@pytest.fixture
def against(script):
    return script("mao_against_fao")


@pytest.fixture
def modules(script):
    return script("mao_modules")


# ---- mao_against_fao ----


def found(preparing, training, peaks, after, words=None):
    """A record as a measured recipe run leaves it, one language."""
    scores = {"retrieval_mean": after} | ({} if words is None else {"retrieval_words": words})
    return {
        "times": {"seconds": {"loading and linking": 50.0, "preparing": preparing, "training": training}},
        "cpu_seconds": {"loading and linking": 70.0, "preparing": 2 * preparing, "training": training},
        "peak_memory": dict(zip(("between phases", "scoring", "preparing", "training"), peaks, strict=True)),
        "scores": {"before": {"de": {"retrieval_mean": 0.5}}, "untrained": {}, "after": {"de": scores}},
        "trainable": {"parameters": 1234, "share": 0.0123},
    }


def test_run_counts_preparing_and_training_alone(against):
    assert against.spread([1.26], 1) == "1.3"  # one value has no range
    run = against.read_run(found(2.0, 3.0, (7, 9, 4, 5), 0.6))
    assert (run.wall, run.cpu, run.preparing) == (5.0, 7.0, 2.0)
    assert (run.peak, run.peak_total) == (5, 9)
    assert against.read_run(found(2.0, 3.0, (7, 9, 6, 5), 0.6)).peak == 6


@pytest.fixture
def runs(against):
    gib = 2**30
    # The third repeat is on a machine three times as slow: ratios are .25, .2, .3, those of the medians .2 and more.
    fao = [(40.0, 60.0), (40.0, 60.0), (120.0, 180.0)]
    mao = [(15.0, 10.0), (15.0, 5.0), (60.0, 30.0)]
    return {
        "fao": [against.read_run(found(*times, (0, 9 * gib, gib, 4 * gib), 0.7)) for times in fao],
        "mao": [against.read_run(found(*times, (0, 9 * gib, 2 * gib, gib), 0.8, 0.9)) for times in mao],
    }


def test_table_and_aims(against, runs):
    """Ratios within a repeat, medians and ranges; an aim is met up to its bound."""
    assert against.ratio(runs, "mao", lambda run: run.wall) == 0.25
    assert against.ratio(runs, "fao", lambda run: run.wall) == 1.0
    head, _, fao, mao = against.table(runs).splitlines()
    assert [cell.strip() for cell in head.split("|")[-3:-1]] == ["de", "de, words"]
    cells = [cell.strip() for cell in mao.split("|")[1:-1]]
    assert cells[:4] == ["mao", "25.0 (20.0-90.0)", "15.0", "0.250"]
    assert cells[5:8] == ["2.00 (2.00-2.00)", "0.500", "9.00"]
    assert cells[8:] == ["1,234", "1.23%", "50.0 -> 80.0", "50.0 -> 90.0"]
    assert fao.split("|")[-2].strip() == "-"
    lines = against.aims(runs).splitlines()[2:]
    assert len(lines) == 4 and all(line.startswith("| mao |") and line.endswith("| met |") for line in lines)
    assert "| +30.0 |" in lines[-1]
    slower = {**runs, "mao": [run._replace(wall=run.wall * 1.01) for run in runs["mao"]]}
    assert against.aims(slower).splitlines()[2].endswith("| missed |")
    worse = {**runs, "mao": [run._replace(after=run.before) for run in runs["mao"]]}
    assert against.aims(worse).splitlines()[-1].endswith("| missed |")


def test_arguments(against, tmp_path, capsys):
    configs = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for config in configs:
        config.touch()
    options = ["--fao_config", str(configs[0]), "--mao_configs"]
    assert against.parse_arguments([*options, str(configs[1])]).mao_configs == [configs[1]]
    for wrong, message in ((configs[0], "same name"), (tmp_path / "c.yaml", "no such file")):
        with pytest.raises(SystemExit):
            against.parse_arguments([*options, str(wrong)])
        assert message in capsys.readouterr().err


RECIPE = """
import json, sys
import numpy
from hf_xalign.record import phase

found = {"times": {"seconds": {}}}
with phase(found, "scoring"):
    numpy.ones(25_000_000)  # 200 MB, given back at once
with phase(found, "training"):
    pass
print(json.dumps([sys.argv[1:], found]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the mark of peak memory is Linux's")
def test_each_phase_has_a_peak_of_its_own(against, tmp_path):
    recipe = tmp_path / "recipe.py"
    recipe.write_text(RECIPE)
    command = [sys.executable, against.__file__, "--measured", recipe, "--max_train_pairs", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    options, record = json.loads(done.stdout)
    assert options == ["--max_train_pairs", "3"]
    peaks = record["peak_memory"]
    assert peaks["scoring"] - peaks["training"] > 150e6
    assert peaks["training"] > 20e6
    assert record["cpu_seconds"].keys() == record["times"]["seconds"].keys() == {"scoring", "training"}


@pytest.mark.slow
def test_a_failing_run_stops_the_benchmark_and_says_why(against, tmp_path):
    recipe = tmp_path / "recipe.py"
    recipe.write_text("raise SystemExit('the disk is on fire')")
    with pytest.raises(RuntimeError, match="the disk is on fire"):
        against.run_apart(recipe, tmp_path / "a.yaml", [], tmp_path)


# ---- mao_modules ----


def run_of(module, seed, mean, words):
    scores = {"de": {"retrieval_mean": mean, "retrieval_words": words}}
    costs = {"preparing": 1.0, "training": 2.0 + seed, "parameters": 1000, "share": 0.01}
    return {"module": module, "objective": "l2", "seed": seed, "scores": scores, **costs}


def test_table_of_means_and_spreads(modules):
    runs = [run_of("linear", 0, 0.6, 0.7), run_of("linear", 1, 0.62, 0.7), run_of("adapter", 0, 0.4, 0.4)]
    lines = modules.table({"de": {"retrieval_mean": 0.5}}, runs).splitlines()
    assert lines[2] == "| untouched | - | - | 50.0 | - | 50.0 | - | - | - | - |"
    assert lines[3] == "| linear | l2 | 2 | 61.0 (2.0) | +11.0 | 70.0 (0.0) | +20.0 | 2.5 | 1,000 | 1.00% |"
    assert lines[4] == "| adapter | l2 | 1 | 40.0 (0.0) | -10.0 | 40.0 (0.0) | -10.0 | 2.0 | 1,000 | 1.00% |"


def test_a_file_of_runs_is_gone_on_with(modules, tmp_path):
    path = tmp_path / "runs.json"
    setup = {"encoder": "abc", "links": {"de-en": {"pairs": 3}}}
    started = modules.open_runs(path, setup)
    started["runs"].append(run_of("linear", 0, 0.6, 0.7))
    modules.write_runs(path, started)
    again = modules.open_runs(path, setup)
    assert again["runs"] == started["runs"]
    wanted = [("linear", "l2", 0), ("linear", "infonce", 0), ("linear", "l2", 1)]
    assert modules.missing(again, wanted) == wanted[1:]
    with pytest.raises(InputError, match=r"another setup \(encoder\); give another --output"):
        modules.open_runs(path, {**setup, "encoder": "abd"})


def test_settings_are_the_modules_with_overrides_on_top(modules):
    arguments = modules.parse_arguments(["--set", "learning_rate=1e-3", "temperature=0.1"])
    options = modules.settings("rotation_per_language", "infonce", 2, arguments.set)
    chosen = dict(zip(options[::2], options[1::2], strict=True))
    expected = {"preset": "linear", "orthogonal": "true", "objective": "infonce", "seed": "2"}
    expected |= {"learning_rate": "1e-3", "temperature": "0.1"}
    assert {name: chosen[f"--{name}"] for name in expected} == expected
    with pytest.raises(SystemExit):
        modules.parse_arguments(["--set", "learning_rate"])


@pytest.mark.parametrize("module", ["linear_per_language", pytest.param("adapter", marks=pytest.mark.slow)])
def test_a_run_leaves_the_encoder_as_it_was(modules, module):
    linked = make_links(16)
    material = Material(make_encoder(), make_tokenizer(), linked, linked, {}, {})
    encoder = model_fingerprint(material.model)
    overrides = {"max_steps": "3", "bf16": "false"}
    if module == "adapter":
        overrides |= {"num_heads": "2", "feedforward_size": "16"}
    result = modules.train(material, modules.settings(module, "l2", 0, overrides), encoder)
    assert model_fingerprint(material.model) == encoder and not hasattr(material.model, "peft_config")
    if module == "linear_per_language":
        assert result["parameters"] == 2 * 16 * 16
    assert result["share"] == result["parameters"] / sum(p.numel() for p in material.model.parameters())
    assert {"retrieval_mean", "retrieval_words"} <= result["scores"]["de"].keys()
    with pytest.raises(RuntimeError, match="the frozen encoder was changed by --temperature"):
        modules.train(material, modules.settings("linear", "l2", 0, overrides), "another")
