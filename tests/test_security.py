"""What SECURITY.md promises: nothing leaves the folder, no code of a repository runs, no token is written."""

import builtins
import json
import re
from pathlib import Path

import pytest
from support.refusals import assert_refused

import hf_xalign
from hf_xalign.cache import inside
from hf_xalign.config import parse
from hf_xalign.data.load import load_parallel
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.pretrained import load_tokenizer
from hf_xalign.trainers import FAOConfig

GOOD = ["de", "ckb", "zh-Hant", "zh", "en-x-inv-trans", "sr-Latn", "und"]
BAD = ["", "x", "x.y", "../evil", "/tmp/evil", "de/..", "de en", "de\n", "dé", "a" * 300, "de-abcdefghi"]
BAD += [7, ["x"], {}, True]


def test_codes():
    assert [check_language(code, "here") for code in GOOD] == GOOD
    for code in BAD:
        with pytest.raises(InputError, match=r"^here is .*not a language code") as error:
            check_language(code, "here")
        assert len(str(error.value)) < 200


@pytest.mark.parametrize("code", ["../evil", 7])
def test_rows_name_their_place(code, tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"source": "a", "target": "b", "source_lang": one} for one in ("de", code)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=re.escape(f"{path}, row 2: source_lang")):
        load_parallel(path)


def test_one_door_to_transformers():
    """Nothing else loads by transformers, so that no code of a repository can run."""
    allowed = re.compile(r"(nn\.Embedding|Peft(Model|Config)|auto_class)\.from_pretrained\(|^\s*(>>>|\.\.\.)|`|\"")
    root = Path(hf_xalign.__file__).parents[1]
    found = [
        f"{path.name}: {line.strip()}"
        for room in ("hf_xalign", "trainers", "recipes", "model_cards")
        for path in sorted((root / room).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if ".from_pretrained(" in line and not allowed.search(line)
    ]
    assert not found


def test_a_name_cannot_lead_out_of_a_folder(tmp_path):
    assert inside(tmp_path, "de-en.safetensors") == tmp_path / "de-en.safetensors"
    for name in ("../x", "/etc/x", "a/../../x", "sub/x", ".."):
        with pytest.raises(InputError, match="cannot be the name of a file in"):
            inside(tmp_path, name)


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A model folder whose code says that it ran, and a user who answers every question by yes."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Evil: ...\n")
    auto = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Evil", "auto_map": auto}))
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    yield folder
    assert not (tmp_path / "ran").exists()


def test_no_code_of_a_repository_runs(hostile, tmp_path):
    from hf_xalign.modeling.checkpoint import load_trainable
    from hf_xalign.modeling.loading import load
    from hf_xalign.recipes import align_mlm, fao, mapping
    from hf_xalign.tasks import load_task_model

    words = ["--model_name_or_path", str(hostile), "--output_dir", str(tmp_path / "out")]
    corpus = f"en={tmp_path / 'en.txt'}"
    (tmp_path / "en.txt").write_text("the cat\n" * 4)
    table = {
        "load": lambda: load(hostile),
        "encoder": lambda: load_trainable(str(hostile)),
        "tokenizer": lambda: load_tokenizer(hostile),
        "task model": lambda: load_task_model(str(hostile), None),
        "fao": lambda: fao.main([*words, "--use_cpu", "true"]),
        "mapping": lambda: mapping.main([*words, "--device", "cpu"]),
        "align_mlm": lambda: align_mlm.main([*words, "--use_cpu", "true", "--objective", "mlm", "--corpus", corpus]),
    }
    assert_refused({name: (call, "hostile") for name, call in table.items()})


def test_a_token_is_no_argument():
    token = "hf_" + "a" * 34
    for words in (["--run_name", token], [f"--output_dir=runs/{token}"]):
        with pytest.raises(InputError, match=r"\*\*\*.*an argument is not allowed.*HF_TOKEN") as error:
            parse([FAOConfig], words)
        assert token not in str(error.value)
