"""Matched vectors of linked words and of dictionary entries."""

from __future__ import annotations

import pytest
import torch
from datasets import concatenate_datasets

from hf_xalign.errors import InputError
from hf_xalign.mapping import supervision
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.mapping.supervision import dictionary_vectors, linked_vectors
from hf_xalign.modeling.word_vectors import extract_word_vectors


def anchors(words, seed=0, layers=(-1,), lang="de"):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(len(words), len(layers), 4, generator=generator)
    return Anchors(list(words), vectors, torch.ones(len(words), dtype=torch.int64), layers, lang=lang)


@pytest.mark.parametrize("pairs_at_a_time", [3, 100])
@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_linked_words_as_in_a_loop(encoder, tokenizer, aligned, pooling, pairs_at_a_time, monkeypatch):
    monkeypatch.setattr(supervision, "_PAIRS", pairs_at_a_time)
    found = linked_vectors(encoder, tokenizer, aligned, layers=(1, -1), pooling=pooling)
    k = 0
    for row in aligned:
        alone = {
            side: extract_word_vectors(
                encoder, tokenizer, [row[f"{side}_words"]], layers=(1, -1), pooling=pooling
            ).vectors
            for side in ("source", "target")
        }
        for i, j in row["links"]:
            torch.testing.assert_close(found.source[k], alone["source"][i], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(found.target[k], alone["target"][j], atol=1e-5, rtol=1e-5)
            assert (found.source_words[k], found.target_words[k]) == (row["source_words"][i], row["target_words"][j])
            k += 1
    assert k == len(found.source) == len(found.target_words)


def test_a_word_that_was_cut_off_is_left_out(encoder, tokenizer, aligned):
    whole = linked_vectors(encoder, tokenizer, aligned)
    short = linked_vectors(encoder, tokenizer, aligned, max_length=8)
    assert 0 < len(short.source) < len(whole.source)
    assert len(short.source) == len(short.target) == len(short.source_words)


def test_text_that_no_map_can_be_learnt_from(encoder, tokenizer, aligned):
    other = aligned.map(lambda row: {"source_lang": "bn"})
    with pytest.raises(InputError, match="source_lang is bn, de: a map is of one language pair"):
        linked_vectors(encoder, tokenizer, concatenate_datasets([aligned, other]))
    with pytest.raises(InputError, match="no linked words"):
        linked_vectors(encoder, tokenizer, aligned.map(lambda row: {"links": []}))


def test_entries_with_both_anchors():
    source, target = anchors(["Haus", "katze", "hund"]), anchors(["house", "dog", "tree"], 1, lang="en")
    entries = [("haus", "house"), ("haus", "house"), ("katze", "cat"), ("baum", "tree"), ("hund", "dog")]
    found, coverage = dictionary_vectors(entries, source, target)
    assert found.source_words == ["haus", "hund"] and found.target_words == ["house", "dog"]
    assert torch.equal(found.source, source.vectors[[0, 2]])
    assert torch.equal(found.target, target.vectors[[0, 1]])
    assert coverage == (4, 3, 3, 2)


def test_a_dictionary_of_no_use():
    source, target = anchors(["haus"]), anchors(["house"], lang="en")
    with pytest.raises(InputError, match=r"none of the dictionary's 1 entries .*not there: house .*in this order"):
        dictionary_vectors([("house", "haus")], source, target)
    with pytest.raises(InputError, match=r"layers \(-1,\) and target anchors of \(-2, -1\)"):
        dictionary_vectors([("haus", "house")], source, anchors(["house"], layers=(-2, -1)))
