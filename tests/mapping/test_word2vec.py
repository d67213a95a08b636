"""Word vectors in word2vec's text format."""

import logging
import math

import torch

from hf_xalign.mapping import word2vec
from hf_xalign.mapping.anchors.anchors import Anchors
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec


def test_round_trip_is_bitwise(tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", 3)
    vectors = torch.randn(7, 2, 5, generator=torch.Generator().manual_seed(0)) * torch.logspace(-30, 30, 5)
    vectors[0, :, 0] = torch.tensor([0.1, 1 / 3])
    vectors[1, :, 0] = math.ldexp(1.0, -149)  # the smallest float32
    vectors[2] = 0.0
    words = ["wort", "öffnen", "হিঁ", "l·l", "w0", "w1", "w2"]
    anchors = Anchors(words, vectors, torch.ones(7, dtype=torch.int64), (-2, -1), "mean", "de")
    for name, layer in (("one/a.vec", -1), ("two/a.vec.gz", -2), ("new/deep/a.txt", -2)):
        path = tmp_path / name
        write_word2vec(anchors, path, layer)
        found = read_word2vec(path, lang="de")
        assert found.words == words and found.lang == "de" and found.layers == (-1,)
        assert found.vectors.dtype == torch.float32
        assert torch.equal(found.vectors[:, 0], vectors[:, anchors.layers.index(layer)])
        assert found.counts.tolist() == [0] * 7
        assert list(path.parent.iterdir()) == [path]
    write_word2vec(Anchors(["a", "b"], torch.tensor([[[0.5, -2.0]], [[0.1, 1e20]]]), torch.ones(2)), tmp_path / "v")
    assert (tmp_path / "v").read_text() == "2 2\na 0.5 -2\nb 0.100000001 1.00000002e+20\n"


def test_reads(tmp_path):
    for text, words in [
        ("2 3\na 1 2 3\nb 4 5 6\n", ["a", "b"]),
        ("2 3\r\na 1 2 3 \r\nb 4 5 6 \r\n", ["a", "b"]),  # as the first word2vec wrote rows, and on Windows
        ("a 1 2 3\nb 4 5 6", ["a", "b"]),  # GloVe
        ("3 1 2 3\nb 4 5 6", ["3", "b"]),
        ("2 3\na\u2028\u0085 1 2 3\nb\xa0c 4 5 6\n", ["a\u2028\u0085", "b\xa0c"]),
        ("2 3\nA\u030a 1 2 3\nb 4 5 6\n", ["Å", "b"]),
    ]:
        (tmp_path / "v").write_bytes(text.encode())
        found = read_word2vec(tmp_path / "v")
        assert found.words == words, text
        assert found.vectors.tolist() == [[[1, 2, 3]], [[4, 5, 6]]], text


def test_of_a_repeated_word_the_first_row_counts(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", 2)
    (tmp_path / "v").write_text("5 1\na 1\nb 2\na 3\nc 4\nb 5\n")
    with caplog.at_level(logging.WARNING):
        found = read_word2vec(tmp_path / "v")
    assert found.words == ["a", "b", "c"] and found.vectors.flatten().tolist() == [1, 2, 4]
    assert "2 rows of repeated words are ignored" in caplog.text
