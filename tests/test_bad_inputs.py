"""What the settings' parser, `load`, records and the cache refuse, and in which words."""

from __future__ import annotations

import errno
import re
import shutil
from functools import partial

import pytest
import torch
from support.checkpoints import rewrite, save_all
from support.refusals import assert_refused
from support.settings import Data, Small, Training
from transformers import AutoModel

import hf_xalign
from hf_xalign.cache import disk_errors, replacing
from hf_xalign.config import coerce, parse
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.modeling.xalign.insertion import BASE_IN_FOLDER
from hf_xalign.record import FILENAME, read_record, to_plain
from hf_xalign.trainers import FAOConfig

QUOTE = r" \(quote words that YAML reads otherwise: yes, no, on, off, numbers, dates\)$"
# A line of a file to what is said of it, behind its place.
LINES = {
    "rate: fast": 'rate: expected a number, got "fast"$',
    "rate: true": "rate: expected a number, got true$",
    "rate: null": "rate: expected a number, got null$",
    "steps: 1.5": "steps: expected a whole number, got 1.5$",
    "steps: true": "steps: expected a whole number, got true$",
    "steps: [1]": r"steps: expected a whole number, got \[1\]$",
    "dropout: 1": "dropout: expected true or false, got 1$",
    "dropout: 'true'": 'dropout: expected true or false, got "true"$',
    "layers: [1, x]": r'layers: expected a list \[a whole number, ...\] or null, got \[1, "x"\]$',
    "layers: {a: 1}": r'layers: expected a list \[a whole number, ...\] or null, got {"a": 1}$',
    "pooling: men": "pooling: expected one of first, last, mean, got \"men\"; did you mean 'mean'\\?$",
    "norm: L2": 'norm: expected one of l2, squared, got "L2"$',
    "weights: [de]": r'weights: expected a mapping or null, got \["de"\]$',
    "weights: {de: heavy}": 'weights: expected a mapping or null, got {"de": "heavy"}$',
    "train_data: [de, no]": r'train_data: expected a list \[text, ...\], got \["de", false\]' + QUOTE,
    "model_name: 5": "model_name: expected text, got 5" + QUOTE,
    "model_name: 2024-01-01": 'model_name: expected text, got "2024-01-01"' + QUOTE,
    "poling: mean": "unknown key 'poling'; did you mean 'pooling'\\?$",
}
TRAINING_LINES = {
    "eval_strategy: no": "got false" + QUOTE,
    "lr_scheduler_type: linaer": "did you mean 'linear'\\?$",
    "log_level: wraning": "got \"wraning\"; did you mean 'warning'\\?$",
}
OPTIONS = {
    "value of another type": ((Small,), "--rate fast", "^--rate: invalid float value: 'fast'"),
    "no choice": (
        (Small,),
        "--pooling men",
        r"^--pooling: invalid choice: 'men' \(choose from 'first', 'last', 'mean'\)",
    ),
    "value of another type, as YAML": ((Data,), "--weights 5", "^--weights: expected a mapping or null, got 5$"),
    "no YAML": ((Data,), "--weights {", "^--weights: not valid YAML"),
    "no value": ((Small,), "--steps", "^--steps: expected one argument"),
    "no field of the name": ((Small,), "--droput=true", "^unknown option --droput; did you mean '--dropout'\\?$"),
    "dashes": ((Data,), "--train-dat x", "^unknown option --train-dat; did you mean '--train_data'\\?$"),
    "abbreviation": ((Small,), "--pool mean", "^unknown option --pool;"),
    "nothing like it": ((Small,), "--zzzzzz 1", r"^unknown option --zzzzzz \(--help lists all\)$"),
    "no option": ((Small,), "stray", "^unexpected argument 'stray'"),
    "field without a value": ((Data,), "", "^--model_name is missing"),
    "what the class refuses": (
        (Training,),
        "--per_device_train_batch_size 1 --optim_args x --eval_strategy=steps --logging_steps 0",
        "^Training: evaluation strategy",
    ),
    "no file": ((Small,), "--config none.yaml", "^--config none.yaml: No such file"),
    "no preset": (
        (FAOConfig,),
        "--output_dir x --use_cpu true --preset contnual",
        "^preset=contnual: did you mean continual",
    ),
}
# Contents to what is said of the file.
FILES = {
    b"rate: 1\nsteps: [1\n": ":3: not valid YAML",
    b"- 1\n": ":1: expected lines of the form 'field: value'$",
    b"rate: 1\nsteps: 1\nrate: 2\n": ":3: rate is given twice, first at .*yaml:1$",
    b"preset: m\xe4o\n": r": not UTF-8 \(byte 9\)",
}


def test_settings(tmp_path):
    """Each message is one line that begins with the place."""
    texts = {
        f"# a comment\n{line}\n".encode(): f":2: .*{message}" for line, message in (LINES | TRAINING_LINES).items()
    }
    table = {}
    for k, (text, message) in enumerate((texts | FILES).items()):
        path = tmp_path / f"{k}.yaml"
        path.write_bytes(text)
        types = (Training,) if k in range(len(LINES), len(texts)) else (Data, Small)
        call = partial(parse, types, ["--config", str(path)])
        table[repr(text)] = (call, rf"\A(?=.*\Z){re.escape(str(path))}{message}")
    for name, (types, words, message) in OPTIONS.items():
        table[name] = (partial(parse, types, words.split()), rf"\A(?=.*\Z){message}")
    table["nested lists"] = (
        partial(coerce, 5, list[list[str]], "x"),
        r"^x: expected a list \[a list \[text, ...\], ...\]",
    )
    assert_refused(table)


def test_credentials(tmp_path):
    """They are not echoed."""
    table = {}
    for name in ("hub_token", "hub-token", "push_to_hub_token", "api_key"):
        (tmp_path / name).write_text(f"{name}: hf_abc")
        for words in ([f"--{name}", "hf_abc"], [f"--{name}=hf_abc"], ["--config", str(tmp_path / name)]):
            call = partial(parse, (Small, Data), ["--model_name", "m", *words])
            table[str(words)] = (call, r"\A(?!.*hf_abc).*HF_TOKEN")
    assert_refused(table)


def test_load(tmp_path):
    """Pickles, code, and adapters whose base is gone are refused, beside what does not exist."""
    made = tmp_path / "made"
    save_all(made)

    def load(*names, base=..., pickled=(), **options):
        """Load the last of the copied folders, its adapter on another base."""

        def attempt(folder):
            for name in {*names, *pickled}:
                shutil.copytree(made / name, folder / name)
            if base is not ...:
                rewrite(folder / names[-1], base_model_name_or_path=base)
            for name in pickled:
                for file in (folder / name).glob("*.safetensors"):
                    file.rename(file.with_suffix(".bin"))
            return hf_xalign.load(folder / names[-1], **options)

        return attempt

    def pickled_base(folder):
        shutil.copytree(made / "base", folder / "base")
        (folder / "base" / "model.safetensors").unlink()
        torch.save(AutoModel.from_pretrained(made / "base").state_dict(), folder / "base" / "pytorch_model.bin")
        return hf_xalign.load(folder / "base")

    assert_refused(
        {
            "nowhere on the Hub": (
                lambda folder: hf_xalign.load("someone/nothing", cache_dir=folder),
                "^someone/nothing is neither a folder here nor a model that can be had from the Hub",
            ),
            "no folder": (
                lambda folder: hf_xalign.load(folder / "no/such/folder"),
                "no/such/folder is neither a folder",
            ),
            "empty folder": (hf_xalign.load, r"row\d+ holds no model"),
            "base gone": (
                load("adapter", base="/gone"),
                "is an adapter, and its base_model_name_or_path, /gone, cannot be loaded",
            ),
            "no base": (load("adapter", base=None), "names no base_model_name_or_path"),
            "base of another folder": (load("adapter", base=BASE_IN_FOLDER), "the model in this folder"),
            "pickled adapter": (load("adapter", pickled=["adapter"]), r"has no adapter_model\.safetensors"),
            "pickled adapter beside a model": (load("one", pickled=["one"]), r"has no adapter_model\.safetensors"),
            "pickled encoder": (pickled_base, "has no weights in safetensors"),
            "code": (load("base", trust_remote_code=True), "^trust_remote_code: no code of a repository is run"),
            "choice of pickles": (
                load("base", use_safetensors=False),
                "^use_safetensors: .*only safetensors are read",
            ),
            "tokenizer": (load_tokenizer, "has no tokenizer that can be loaded, or is no model at all"),
        },
        tmp_path,
    )


def test_records_and_the_cache(tmp_path):
    def read(text):
        def attempt(folder):
            (folder / FILENAME).write_text(text)
            return read_record(folder)

        return attempt

    def full(number, writing):
        def attempt(folder):
            with writing(folder / "file"):
                raise OSError(number, "why")

        return attempt

    table = {
        "no record": (read_record, r"results\.json: no such file. Pass the folder"),
        "cut off": (read('{"schema": 1,'), "not a JSON record"),
        "no mapping": (read("[]"), "has no 'schema' number"),
        "newer": (read('{"schema": 99}'), "schema 99 is newer than 1. Upgrade"),
    }
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        table[f"{errno.errorcode[number]}, replacing"] = (
            full(number, replacing),
            r"file: cannot be written \(why\): make room and run again$",
        )
        table[errno.errorcode[number]] = (
            full(number, lambda path: disk_errors(path, "use another")),
            r"file: cannot be written \(why\): use another$",
        )
    assert_refused(table, tmp_path)
    with pytest.raises(PermissionError), disk_errors("here"):
        raise PermissionError(errno.EACCES, "why")
    assert_refused(
        {
            "no number": (
                lambda: to_plain({"a": [1, torch.float32]}, "settings"),
                r"^settings\.a\[1\]: dtype has no JSON form$",
            )
        },
        error=TypeError,
    )
