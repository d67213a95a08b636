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


@pytest.mark.parametrize("max_length", [8, 10])
@pytest.mark.parametrize("longer", ["source", "target"])
def test_a_word_that_was_cut_off_on_either_side_is_left_out(encoder, tokenizer, aligned, max_length, longer):
    shift = 2  # words before the sentence on one side, so that it loses words that the other keeps
    column = f"{longer}_words"
    aligned = aligned.map(
        lambda row: {
            column: ["the"] * shift + row[column],
            "links": [[i + shift, j] if longer == "source" else [i, j + shift] for i, j in row["links"]],
        }
    )
    expected, lost = [], 0
    for row in aligned:
        there = {
            side: extract_word_vectors(encoder, tokenizer, [row[f"{side}_words"]], max_length=max_length).present
            for side in ("source", "target")
        }
        for i, j in row["links"]:
            lost += bool(there["source"][i] != there["target"][j])
            if there["source"][i] and there["target"][j]:
                expected.append((row["source_words"][i], row["target_words"][j]))
    found = linked_vectors(encoder, tokenizer, aligned, max_length=max_length)
    assert list(zip(found.source_words, found.target_words, strict=True)) == expected and lost
    assert all(side.flatten(1).any(1).all() and len(side) == len(expected) for side in (found.source, found.target))


def test_text_that_no_map_can_be_learnt_from(encoder, tokenizer, aligned):
    other = aligned.map(lambda row: {"source_lang": "bn"})
    with pytest.raises(InputError, match="source_lang is bn, de: a map is of one language pair"):
        linked_vectors(encoder, tokenizer, concatenate_datasets([aligned, other]))
    with pytest.raises(InputError, match="no linked words"):
        linked_vectors(encoder, tokenizer, aligned.map(lambda row: {"links": []}))


@pytest.mark.parametrize("link", [[0, 99], [99, 0], [-1, 0]])
def test_a_link_to_no_word_is_named(encoder, tokenizer, aligned, link, monkeypatch):
    monkeypatch.setattr(supervision, "_PAIRS", 2)
    bad = aligned.map(lambda row, k: {"links": [*row["links"], link] if k == 3 else row["links"]}, with_indices=True)
    with pytest.raises(InputError, match=rf"row 3: link \[{link[0]}, {link[1]}\] points outside the sentence \("):
        linked_vectors(encoder, tokenizer, bad)
    with pytest.raises(InputError, match=r"no column links \(it has .*align_words"):
        linked_vectors(encoder, tokenizer, aligned.remove_columns("links"))


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
    with pytest.raises(InputError, match=r"source 1, target 0 words found; not there: cat \.\.\."):
        dictionary_vectors([("haus", "cat")], source, target)
    with pytest.raises(InputError, match=r"layers \(-1,\) and target anchors of \(-2, -1\)"):
        dictionary_vectors([("haus", "house")], source, anchors(["house"], layers=(-2, -1)))
