"""Matched vectors of linked words and of dictionary entries."""

import pytest
import torch
from datasets import Dataset
from support.numeric import assert_rounding

from hf_xalign.mapping import supervision
from hf_xalign.mapping.anchors.anchors import Anchors
from hf_xalign.mapping.supervision import dictionary_vectors, linked_vectors
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
