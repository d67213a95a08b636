"""Word vectors in word2vec's text format."""

from __future__ import annotations

import gzip
import logging
import math

import pytest
import torch

from hf_xalign.errors import InputError
from hf_xalign.mapping import word2vec
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec


def some(words=7, dim=5, layers=(-2, -1)):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(words, len(layers), dim, generator=generator) * torch.logspace(-30, 30, dim)
    vectors[0, :, 0] = torch.tensor([0.1, 1 / 3])[: len(layers)]
    vectors[1, :, 0] = math.ldexp(1.0, -149)  # the smallest float32
    vectors[2] = 0.0
    names = ["wort", "öffnen", "হিঁ", "l·l", *(f"w{k}" for k in range(words - 4))]
    return Anchors(names[:words], vectors, torch.ones(words, dtype=torch.int64), layers, "mean", "de")


@pytest.mark.parametrize("name", ["a.vec", "a.vec.gz", "new/a.txt"])
@pytest.mark.parametrize("layer", [-1, -2])
def test_round_trip_is_bitwise(name, layer, tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", 3)
    anchors = some()
    write_word2vec(anchors, tmp_path / name, layer)
    found = read_word2vec(tmp_path / name, lang="de")
    assert found.words == anchors.words and found.lang == "de" and found.layers == (-1,)
    assert found.vectors.dtype == torch.float32
    assert torch.equal(found.vectors[:, 0], anchors.vectors[:, anchors.layers.index(layer)])
    assert found.counts.tolist() == [0] * 7
    assert [path.name for path in (tmp_path / name).parent.iterdir()] == [(tmp_path / name).name]
    first = read_word2vec(tmp_path / name, max_words=4)
    assert first.words == anchors.words[:4] and torch.equal(first.vectors, found.vectors[:4])


def test_the_format(tmp_path):
    write_word2vec(Anchors(["a", "b"], torch.tensor([[[0.5, -2.0]], [[0.1, 1e20]]]), torch.ones(2)), tmp_path / "v")
    assert (tmp_path / "v").read_text() == "2 2\na 0.5 -2\nb 0.100000001 1.00000002e+20\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2 3\na 1 2 3\nb 4 5 6\n", ["a", "b"]),
        ("2 3\r\na 1 2 3 \r\nb 4 5 6 \r\n", ["a", "b"]),  # as the first word2vec wrote rows, and on Windows
        ("a 1 2 3\nb 4 5 6", ["a", "b"]),  # GloVe
        ("3 1 2 3\nb 4 5 6", ["3", "b"]),
        ("2 3\na\u2028\u0085 1 2 3\nb\xa0c 4 5 6\n", ["a\u2028\u0085", "b\xa0c"]),
        ("2 3\nA\u030a 1 2 3\nb 4 5 6\n", ["Å", "b"]),
    ],
)
def test_reads(text, words, tmp_path):
    (tmp_path / "v").write_bytes(text.encode())
    found = read_word2vec(tmp_path / "v")
    assert found.words == words
    assert found.vectors.tolist() == [[[1, 2, 3]], [[4, 5, 6]]]


def test_of_a_repeated_word_the_first_row_counts(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", 2)
    (tmp_path / "v").write_text("5 1\na 1\nb 2\na 3\nc 4\nb 5\n")
    with caplog.at_level(logging.WARNING):
        found = read_word2vec(tmp_path / "v")
    assert found.words == ["a", "b", "c"] and found.vectors.flatten().tolist() == [1, 2, 4]
    assert "2 rows of words that had come before" in caplog.text
    assert read_word2vec(tmp_path / "v", max_words=2).words == ["a", "b"]
    assert read_word2vec(tmp_path / "v", max_words=3).words == ["a", "b", "c"]


@pytest.mark.parametrize("rows", [2, 2_000])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4 2\na 1 2\nb 1 2\nc 1 2 3\nd 1 2\n", r"row 4: 4 fields, 'c 1 2 3.*a word and 2 numbers"),
        ("4 2\na 1 2\nb 1 2\nc 1\nd 1 2\n", r"row 4: 2 fields"),
        ("4 2\na 1 2\nb 1 2\nc\nd 1 2\n", r"row 4: 1 fields"),
        ("4 2\na 1 2\nb 1 2\n 1 2\nd 1 2\n", r"row 4: 3 fields"),
        ("4 2\na 1 2\nb 1 2\nc 1  2\nd 1 2\n", r"row 4: 4 fields.*one blank"),
        ("4 2\na 1 2\nb 1 2\n\nd 1 2\n", r"row 4: 1 fields"),
        ("4 2\na 1 2\nb 1 2\nNew York 1 2\nd 1 2\n", r"row 4: 4 fields"),
        ("4 2\na 1 2\nb 1 2\nc 1 x\nd 1 2\n", r"row 4: not all of its fields are numbers.*'x'"),
        ("4 2\na 1 2\nb 1 2\nc 1 nan\nd 1 2\n", r"row 4: the vector of 'c' holds NaN"),
        ("4 2\na 1 2\nb 1 2\nc 1 1e39\nd 1 2\n", r"row 4: the vector of 'c' holds NaN or infinity"),
        ("a 1 2\nb 1 2\nb 1 2\nc 1 x\nd 1 2\n", r"row 4: not all"),
        ("a 1 2\nb 1 2\nb 1 2\nc 1\nd 1 2\n", r"row 4: 2 fields"),
        ("5 2\na 1 2\nb 1 2\nc 1 2\nd 1 2\n", r"row 1 says 5 words, and 4 rows"),
        ("2 2\na 1 2\nb 1 2\nc 1 2\nd 1 2\n", r"row 1 says 2 words, and [34] rows"),
        ("", "row 1, '', is neither"),
        ("word\n", r"row 1, 'word\\n', is neither"),
        ("3 0\n", r"row 1, '3 0\\n', is neither"),
        ("0 3\n", "no words"),
    ],
)
def test_a_malformed_file_is_named_by_row(text, message, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", rows)
    (tmp_path / "v").write_text(text)
    with pytest.raises(InputError, match=rf"{tmp_path}/v.*{message}"):
        read_word2vec(tmp_path / "v")


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"none.*No such file"):
        read_word2vec(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"1 1\n\xe4 1\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_word2vec(tmp_path / "latin")
    (tmp_path / "plain.gz").write_text("1 1\na 1\n")
    with pytest.raises(InputError, match=r"plain\.gz: cannot be read \(Not a gzipped file"):
        read_word2vec(tmp_path / "plain.gz")
    whole = gzip.compress(b"2000 1\n" + b"".join(b"word%d 1\n" % k for k in range(2000)))
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.gz: cannot be read"):
        read_word2vec(tmp_path / "cut.gz")


def test_what_cannot_be_written(tmp_path, monkeypatch):
    anchors = some(4)
    with pytest.raises(InputError, match=r"no anchors of layer 12; name one of \(-2, -1\)"):
        write_word2vec(anchors, tmp_path / "v", 12)
    for word in ("New York", "a\tb", "a\u2028b", ""):
        anchors.words[1] = word
        with pytest.raises(InputError, match="white space"):
            write_word2vec(anchors, tmp_path / "v")

    def full(*of):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(word2vec.os, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        write_word2vec(some(4), tmp_path / "v")
    assert not list(tmp_path.iterdir())
