"""Text of one language, from files."""

from __future__ import annotations

import gzip
import json

import pytest
from datasets import Dataset
from support.dataset_builder import COMMIT, put_on_hub

from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.parallel import hub_commit
from hf_xalign.errors import InputError

LINES = ["eins zwei", "", "drei"]


@pytest.fixture(params=["text.txt", "text.txt.gz", "text.jsonl", "text.jsonl.gz", "text.parquet"])
def file(request, tmp_path):
    path = tmp_path / request.param
    text = "".join(
        (line if ".txt" in request.param else json.dumps({"id": 1, "text": line}, ensure_ascii=False)) + "\n"
        for line in LINES
    )
    if request.param.endswith(".parquet"):
        Dataset.from_dict({"text": LINES, "id": [1] * 3}).to_parquet(path)
    elif request.param.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def test_every_format_gives_the_same_rows(file):
    found = load_monolingual(file)
    assert found.column_names == ["text"]
    assert found["text"][:] == LINES
    assert load_monolingual(str(file), max_sentences=2)["text"][:] == LINES[:2]


def test_another_column(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"satz": "eins", "n": 1}\n', encoding="utf-8")
    assert load_monolingual(path, text_column="satz")["text"][:] == ["eins"]
    for column in ("text", "n"):
        with pytest.raises(InputError, match=r"a\.jsonl: no column .* the columns there are satz, n: name one"):
            load_monolingual(path, text_column=column)


def test_a_file_that_is_not_there(tmp_path):
    (tmp_path / "german.txt").write_text("eins\n")
    with pytest.raises(InputError, match=r"did you mean .*german\.txt"):
        load_monolingual(tmp_path / "germna.txt")
    with pytest.raises(InputError, match=r"a\.docx: text is read from"):
        (tmp_path / "a.docx").write_text("eins")
        load_monolingual(tmp_path / "a.docx")


def test_a_file_that_is_broken(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "eins"}\nzwei\n')
    with pytest.raises(InputError, match=r"a\.jsonl: cannot be read as \.jsonl"):
        load_monolingual(tmp_path / "a.jsonl")
    (tmp_path / "b.txt").write_bytes("größer".encode("latin-1"))
    with pytest.raises(InputError, match=r"b\.txt: cannot be read as \.txt, in UTF-8"):
        load_monolingual(tmp_path / "b.txt")


def test_a_file_without_text(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"a\.txt: the file is empty"):
        load_monolingual(tmp_path / "a.txt")
    (tmp_path / "a.jsonl").write_text('{"text": {"de": "eins"}}\n')
    with pytest.raises(InputError, match=r"a\.jsonl: no column 'text' with text"):
        load_monolingual(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        load_monolingual(tmp_path)


def test_a_dataset_of_the_hub(monkeypatch):
    asked = put_on_hub(monkeypatch, Dataset.from_dict({"text": LINES, "url": LINES}))
    found = load_monolingual("owner/wiki:20251101.de", revision="r", max_sentences=2)
    assert found["text"][:] == LINES[:2]
    assert asked == [("owner/wiki", "20251101.de", "r", "train")]
    assert hub_commit(found) == COMMIT
