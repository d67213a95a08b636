"""The scripts of benchmarks/: all find what they import, and the comparison of systems runs on the tiny encoder."""

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path

import pytest
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.errors import InputError

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


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
