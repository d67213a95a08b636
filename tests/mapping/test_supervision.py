"""Matched vectors of linked words and of dictionary entries, and word vectors in word2vec's text format."""

import logging
import math

import pytest
import torch
from datasets import Dataset
from support.numeric import assert_rounding

from hf_xalign.mapping import supervision, word2vec
from hf_xalign.mapping.anchors.anchors import Anchors
from hf_xalign.mapping.supervision import dictionary_vectors, linked_vectors
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec
from hf_xalign.modeling.word_vectors import extract_word_vectors


@pytest.mark.numeric
def test_linked_words_as_in_a_loop(encoder, tokenizer, aligned, monkeypatch):
    encoder = encoder.double()
    for pooling, at_a_time in (("first", 3), ("last", 100), ("mean", 3), ("mean", 100)):
        monkeypatch.setattr(supervision, "_PAIRS", at_a_time)
        settings = {"layers": (1, -1), "pooling": pooling}
        found = linked_vectors(encoder, tokenizer, aligned, **settings)
        k = 0
        for row in aligned:
            source, target = (
                extract_word_vectors(encoder, tokenizer, [row[f"{side}_words"]], **settings).vectors
                for side in ("source", "target")
            )
            for i, j in row["links"]:
                # The encoder runs in float64; a vector is rounded to float32 once.
                assert_rounding(found.source[k], source[i], operations=1)
                assert_rounding(found.target[k], target[j], operations=1)
                words = found.source_words[k], found.target_words[k]
                assert words == (row["source_words"][i], row["target_words"][j])
                k += 1
        assert k == len(found.source) == len(found.target_words)


def test_a_word_that_was_cut_off_on_either_side_is_left_out(encoder, tokenizer, aligned):
    for max_length, longer in ((8, "source"), (10, "target")):
        # Two words before the sentence on one side, so that it loses words that the other keeps.
        shift = torch.tensor([2, 0] if longer == "source" else [0, 2])
        column, rows = f"{longer}_words", aligned.to_list()
        for row in rows:
            row |= {column: ["the", "the", *row[column]], "links": (torch.tensor(row["links"]) + shift).tolist()}
        text = Dataset.from_list(rows)
        expected, lost = [], 0
        for row in text:
            source, target = (
                extract_word_vectors(encoder, tokenizer, [row[f"{side}_words"]], max_length=max_length).present
                for side in ("source", "target")
            )
            for i, j in row["links"]:
                lost += bool(source[i] != target[j])
                if source[i] and target[j]:
                    expected.append((row["source_words"][i], row["target_words"][j]))
        found = linked_vectors(encoder, tokenizer, text, max_length=max_length)
        assert list(zip(found.source_words, found.target_words, strict=True)) == expected and lost
        assert all(side.flatten(1).any(1).all() and len(side) == len(expected) for side in found[:2])


def test_entries_with_both_anchors():
    source, target = (
        Anchors(words, torch.randn(3, 1, 4), torch.ones(3, dtype=torch.int64), lang=lang)
        for words, lang in ((["Haus", "katze", "hund"], "de"), (["house", "dog", "tree"], "en"))
    )
    entries = [("haus", "house"), ("haus", "house"), ("katze", "cat"), ("baum", "tree"), ("hund", "dog")]
    found, coverage = dictionary_vectors(entries, source, target)
    assert found.source_words == ["haus", "hund"] and found.target_words == ["house", "dog"]
    assert torch.equal(found.source, source.vectors[[0, 2]])
    assert torch.equal(found.target, target.vectors[[0, 1]])
    assert coverage == (4, 3, 3, 2)


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
