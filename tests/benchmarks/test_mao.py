"""The MAO benchmarks: what they read, count and print. The runs themselves are made by hand."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import model_fingerprint
from hf_xalign.recipes.parts.parallel import WordCorpus

GIB = 2**30
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


@pytest.fixture
def against(script):
    return script("mao_against_fao")


@pytest.fixture
def modules(script):
    return script("mao_modules")


def found(preparing, training, peaks, **after):
    """A record as a measured recipe run leaves it, one language."""
    return {
        "times": {"seconds": {"loading and linking": 50.0, "preparing": preparing, "training": training}},
        "cpu_seconds": {"loading and linking": 70.0, "preparing": 2 * preparing, "training": training},
        "peak_memory": dict(zip(("between phases", "scoring", "preparing", "training"), peaks, strict=True)),
        "scores": {"before": {"de": {"retrieval_mean": 0.5}}, "untrained": {}, "after": {"de": after}},
        "trainable": {"parameters": 1234, "share": 0.0123},
    }


def test_table_and_aims_of_mao_against_fao(against):
    run = against.read_run(found(2.0, 3.0, (7, 9, 4, 5), retrieval_mean=0.6))
    assert (run.wall, run.cpu, run.preparing, run.peak, run.peak_total) == (5.0, 7.0, 2.0, 5, 9)
    assert against.read_run(found(2.0, 3.0, (7, 9, 6, 5), retrieval_mean=0.6)).peak == 6
    # The third repeat is on a machine three times as slow: ratios are .25, .2, .3, those of the medians .2 and more.
    fao = [(40.0, 60.0), (40.0, 60.0), (120.0, 180.0)]
    mao = [(15.0, 10.0), (15.0, 5.0), (60.0, 30.0)]
    scores = {"retrieval_mean": 0.8, "retrieval_words": 0.9}
    runs = {
        "fao": [against.read_run(found(*times, (0, 9 * GIB, GIB, 4 * GIB), retrieval_mean=0.7)) for times in fao],
        "mao": [against.read_run(found(*times, (0, 9 * GIB, 2 * GIB, GIB), **scores)) for times in mao],
    }
    assert [against.ratio(runs, name, lambda run: run.wall) for name in runs] == [1.0, 0.25]
    head, _, *lines = against.table(runs).splitlines()
    assert [cell.strip() for cell in head.split("|")[-3:-1]] == ["de", "de, words"]
    fao, mao = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    assert mao[:4] == ["mao", "25.0 (20.0-90.0)", "15.0", "0.250"]
    assert mao[5:] == ["2.00 (2.00-2.00)", "0.500", "9.00", "1,234", "1.23%", "50.0 -> 80.0", "50.0 -> 90.0"]
    assert fao[-1] == "-" and against.spread([1.26], 1) == "1.3"  # one value has no range
    lines = against.aims(runs).splitlines()[2:]
    assert len(lines) == 4 and all(line.startswith("| mao |") and line.endswith("| met |") for line in lines)
    assert "| +30.0 |" in lines[-1]
    # Each aim is met up to its bound.
    for line, change in {0: lambda run: {"wall": run.wall * 1.01}, -1: lambda run: {"after": run.before}}.items():
        worse = {**runs, "mao": [run._replace(**change(run)) for run in runs["mao"]]}
        assert against.aims(worse).splitlines()[2:][line].endswith("| missed |")


def test_arguments(against, modules, tmp_path, capsys):
    configs = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for config in configs:
        config.touch()
    options = ["--fao_config", str(configs[0]), "--mao_configs"]
    assert against.parse_arguments([*options, str(configs[1])]).mao_configs == [configs[1]]
    given = modules.parse_arguments(["--set", "learning_rate=1e-3", "temperature=0.1"]).set
    words = modules.settings("rotation_per_language", "infonce", 2, given)
    expected = {"preset": "linear", "orthogonal": "true", "objective": "infonce", "seed": "2"} | given
    assert given.keys() == {"learning_rate", "temperature"}
    assert {f"--{name}": value for name, value in expected.items()}.items() <= dict(
        zip(words[::2], words[1::2])
    ).items()
    for parse, wrong, message in [
        (against.parse_arguments, [*options, str(configs[0])], "same name"),
        (against.parse_arguments, [*options, str(tmp_path / "c.yaml")], "no such file"),
        (modules.parse_arguments, ["--set", "learning_rate"], "learning_rate"),
    ]:
        with pytest.raises(SystemExit):
            parse(wrong)
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the mark of peak memory is Linux's")
def test_runs_in_processes(against, tmp_path):
    """Each phase has a peak of its own; a run that fails stops the benchmark and says why."""
    recipe = tmp_path / "recipe.py"
    recipe.write_text(RECIPE)
    command = [sys.executable, against.__file__, "--measured", recipe, "--max_train_pairs", "3"]
    options, record = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert options == ["--max_train_pairs", "3"]
    peaks = record["peak_memory"]
    assert peaks["scoring"] - peaks["training"] > 150e6
    assert peaks["training"] > 20e6
    assert record["cpu_seconds"].keys() == record["times"]["seconds"].keys() == {"scoring", "training"}
    recipe.write_text("raise SystemExit('the disk is on fire')")
    with pytest.raises(RuntimeError, match="the disk is on fire"):
        against.run_apart(recipe, tmp_path / "a.yaml", [], tmp_path)


def run_of(module, seed, mean, words):
    scores = {"de": {"retrieval_mean": mean, "retrieval_words": words}}
    costs = {"preparing": 1.0, "training": 2.0 + seed, "parameters": 1000, "share": 0.01}
    return {"module": module, "objective": "l2", "seed": seed, "scores": scores, **costs}


def test_table_and_file_of_modules(modules, tmp_path):
    runs = [run_of("linear", 0, 0.6, 0.7), run_of("linear", 1, 0.62, 0.7), run_of("adapter", 0, 0.4, 0.4)]
    assert modules.table({"de": {"retrieval_mean": 0.5}}, runs).splitlines()[2:] == [
        "| untouched | - | - | 50.0 | - | 50.0 | - | - | - | - |",
        "| linear | l2 | 2 | 61.0 (2.0) | +11.0 | 70.0 (0.0) | +20.0 | 2.5 | 1,000 | 1.00% |",
        "| adapter | l2 | 1 | 40.0 (0.0) | -10.0 | 40.0 (0.0) | -10.0 | 2.0 | 1,000 | 1.00% |",
    ]
    path, setup = tmp_path / "runs.json", {"encoder": "abc", "links": {"de-en": {"pairs": 3}}}
    started = modules.open_runs(path, setup)
    started["runs"].append(runs[0])
    modules.write_runs(path, started)
    again = modules.open_runs(path, setup)
    assert again["runs"] == started["runs"]
    wanted = [("linear", "l2", 0), ("linear", "infonce", 0), ("linear", "l2", 1)]
    assert modules.missing(again, wanted) == wanted[1:]
    with pytest.raises(InputError, match=r"another setup \(encoder\); give another --output"):
        modules.open_runs(path, {**setup, "encoder": "abd"})


@pytest.mark.parametrize("module", ["linear_per_language", pytest.param("adapter", marks=pytest.mark.slow)])
def test_a_run_leaves_the_encoder_as_it_was(modules, module):
    linked = make_links(16)
    material = WordCorpus(make_encoder(), make_tokenizer(), linked, linked, {}, {})
    encoder, overrides = model_fingerprint(material.model), {"max_steps": "3", "bf16": "false"}
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
