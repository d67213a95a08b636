"""Language codes from data, configs and command lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hf_xalign
from hf_xalign.data.parallel import load_parallel
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language

GOOD = ["de", "ckb", "zh-Hant", "zh_Hans_CN", "en-x-inv-trans", "sr-Latn-RS", "und"]
BAD = ["", "x", "x.y", "../evil", "/tmp/evil", "de/..", "de en", "de\n", "dé", "a" * 300, "de-abcdefghi"]
BAD += [7, ["x"], {}, True]


def test_codes():
    assert [check_language(code, "here") for code in GOOD] == GOOD
    for code in BAD:
        with pytest.raises(InputError, match=r"^here is .*not a language code") as error:
            check_language(code, "here")
        assert len(str(error.value)) < 200


@pytest.mark.parametrize("code", [code for code in BAD if code])
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
