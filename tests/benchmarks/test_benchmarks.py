"""The scripts of benchmarks/: all find what they import, and those with several parts run on the tiny encoder."""

import importlib.util
import json
import sys
from dataclasses import fields
from functools import cache
from itertools import islice, product
from pathlib import Path

import pytest
import torch
from support.families import CONFIGS
from support.ppa import make_pairs
from support.tiny import make_encoder, make_links, make_tokenizer
from transformers import AutoModelForMaskedLM

from hf_xalign.config import parse
from hf_xalign.errors import InputError
from hf_xalign.recipes import fao, mao, mapping
from hf_xalign.recipes.compare import CompareArguments
from hf_xalign.recipes.continual import ContinualArguments
from hf_xalign.recipes.distances import DistanceArguments
from hf_xalign.recipes.finetune import FinetuneArguments
from hf_xalign.tasks import LabelSet
from hf_xalign.trainers import ContinualConfig, PPAConfig, TaskConfig

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
RUNS = {"finetune.py": (FinetuneArguments, TaskConfig), "continual.py": (ContinualArguments, ContinualConfig)}
OTHERS = {
    "fao.py": fao.ARGUMENTS,
    "mao.py": mao.ARGUMENTS,
    "mapping.py": mapping.ARGUMENTS,
    "compare.py": (CompareArguments,),
    "distances.py": (DistanceArguments,),
}


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)

        @cache
        def load(name):
            spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module

        yield load


def test_every_script_finds_what_it_imports(script):
    for path in sorted(FOLDER.glob("*.py")):
        script(path.stem)


@pytest.mark.slow
def test_downstream_trains_the_systems_alike(script, tmp_path, monkeypatch):
    bench, made = script("downstream"), []
    monkeypatch.setattr(bench, "recipe", lambda name, *words: made.append((name, list(words))))
    text = tmp_path / "data" / "builtin"
    text.mkdir(parents=True)
    for language, part in product(bench.LANGUAGES, ("train", "test")):
        (text / f"{language}.{part}.jsonl").write_text(json.dumps({"source": "Katze", "target": "cat"}))
    names = ["O", "B-name", "I-name"]
    (text.parent / "slots").mkdir()
    (text.parent / "slots" / "labels.json").write_text(json.dumps({"intents": ["a"], "bio": names}))
    words = ["--data", str(text.parent), "--output_dir", str(tmp_path), "--tasks", "slots", "--seeds", "3", "4"]
    bench.main(words)
    tasks = [(name, options) for name, options in made if name in RUNS]
    # Each system first with the seed whose model is kept.
    systems = [Path(options[options.index("--output_dir") + 1]).name for _, options in tasks]
    assert systems == [system for system in bench.SYSTEMS for _ in range(2)]
    settings = []
    for number, (name, options) in enumerate(tasks):
        data, args = parse(RUNS[name], options)
        assert data.save_models == (number % 2 == 0) and data.seeds == ([3] if number % 2 == 0 else [3, 4])
        assert LabelSet.load(data.labels[0]).names == tuple(names)
        given = {field.name: str(getattr(args, field.name)) for field in fields(TaskConfig)}
        assert given.pop("keep_aligned") == str(systems[number].endswith("_kept"))
        settings.append({name: value for name, value in given.items() if name not in ("preset", "output_dir")})
    assert all(one == settings[0] for one in settings)
    assert [name for name, _ in made[-2:]] == ["compare.py", "distances.py"]
    # Their options are ones that the recipes have. What is compared is named first.
    for name, options in made:
        if name not in RUNS:
            parse(OTHERS[name], ["--folders", *options] if name == "compare.py" else options)


@pytest.mark.slow
def test_fao_step(script, tmp_path):
    bench = script("fao_step")
    setup = bench.Setup(make_encoder, make_tokenizer(), make_links(24), str(tmp_path), batch_size=4)
    variants = {name: make(setup) for name, make in bench.VARIANTS.items()}
    found = bench.measure(variants, list(islice(setup.batches(), 2)), repeats=2)  # checks that their losses agree
    assert len(found) == 4 and all(list(times) == list(bench.VARIANTS) for times in found)
    printed = bench.table(found, {"copy": 2**29}) + bench.aims(found)
    assert "| 0.50 |" in printed and printed.count("met") + printed.count("missed") == 5


@pytest.mark.slow
def test_ppa_step(script, tmp_path):
    bench = script("ppa_step")
    text = bench.Text(make_encoder(), make_tokenizer(), make_pairs(16), make_pairs(8))
    settings = {"queue_size": 12, "projection_dim": 6, "min_tokens": 2, "max_tokens": 60, "mlm_probability": 0.3}
    settings |= {"per_device_train_batch_size": 4, "dropout": False, "freeze_embeddings": True, "use_cpu": True}
    args = PPAConfig(output_dir=str(tmp_path), **settings)
    step = bench.Step(text, args)
    turns = bench.measure(step.actions(), step.batches(2), 2, step.clear)
    assert len(turns) == 4 and all(list(turn) == ["query", "key", "pair", "head", "step"] for turn in turns)
    printed = bench.step_table(turns)
    assert printed.count("met") + printed.count("missed") == 2
    model = AutoModelForMaskedLM.from_config(CONFIGS["bert"]())
    heads = bench.Heads(model, freeze_embeddings=False, bf16=False, device=torch.device("cpu"))
    batches = bench.head_batches(text, args, 6, 1)
    heads.check(batches[0], 1e-3)  # both heads give one loss
    turns = bench.measure(heads.actions(), batches, 1, heads.clear)
    assert "| 1.50 | 0.50 |" in bench.head_table(turns, {"encoder": 2**30, "ours": 3 * 2**29, "plain": 2**32})


@pytest.mark.slow
def test_trainer_steps(script, capsys):
    small = ["--device", "cpu", "--pairs", "2", "--steps", "1", "--turns", "1"]
    script("trainer_steps").main([*small, "--trainers", "FAO cache", "MAO linear", "PPA"])
    rows = [line.split() for line in capsys.readouterr().out.split("ratio\n")[1].splitlines()[1:]]
    assert [row[0] for row in rows] == ["FAO", "MAO", "PPA"]
    # MAO's words are cached: no pass through the encoder.
    assert float(rows[0][-1]) > 0 and len(rows[1]) == 5 and len(rows[2]) == 6


@pytest.mark.slow
def test_against_sentence_transformers(script, tmp_path, capsys, monkeypatch):
    bench, calls = script("against_sentence_transformers"), []
    make_encoder().save_pretrained(tmp_path / "base")
    make_tokenizer().save_pretrained(tmp_path / "base")
    pairs = make_links(24)
    text = "".join(f"{row['source']}\t{row['target']}\n" for row in pairs)
    (tmp_path / "de.tsv").write_text(f"de\ten\n{text}", encoding="utf-8")
    tags = [{"tokens": words, "labels": ["DET", *["X"] * (len(words) - 1)]} for words in pairs["target_words"]]
    (tmp_path / "tags.jsonl").write_text("\n".join(map(json.dumps, tags)), encoding="utf-8")
    tagged = [f"{language}={tmp_path / 'tags.jsonl'}" for language in ("en", "en", "de")]
    words = ["--model", str(tmp_path / "base"), "--output", str(tmp_path / "out"), "--use_cpu"]
    words += ["--train", f"de={tmp_path / 'de.tsv'}", "--eval", f"de={tmp_path / 'de.tsv'}", "--probe", "pos", *tagged]
    words += ["--steps", "3", "--batch_size", "4", "--pairs", "16", "--learning_rate", "0.01"]
    words += ["--systems", "raw", "mse", "mnrl", "joint", "joint,similarity_weight=1"]

    def apart(command, check):
        calls.append(command)
        bench.main(command[2:])

    monkeypatch.setattr(bench.subprocess, "run", apart)
    bench.main(words)
    trained = capsys.readouterr().out
    bench.main(words)
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in printed.splitlines()[2:]}
    assert len(calls) == len(rows) == 5 and trained.endswith(printed) and rows["raw"][-2:] == ["1.00", "1.00"]
    ranks = [float(rows[name][7]) for name in rows if name != "raw"]
    assert all(rank < 1 for rank in ranks) and rows["mnrl"][-3] == "1.00"
    with pytest.raises(InputError, match="steps"):
        bench.main([*words, "--steps", "4"])
