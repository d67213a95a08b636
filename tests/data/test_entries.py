"""Token entries: how many and which are drawn, what of a word dictionary is left, and the file they lie in."""

from __future__ import annotations

import numpy as np
from support.tiny import make_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_xalign.data.pretraining.entries import ENTRIES_FILE, TokenEntries

COUNTERPARTS = np.stack([np.arange(5, 105), np.arange(105, 205)], axis=1)
WORDS = [("house", "haus"), ("cat", "kat"), ("dog", "hund"), ("the", "der"), ("opening", "da"), ("dog", "漢")]
WORDS += [("漢字", "opening"), ("open file", "da"), ("house", "house"), ("Cat", "KAT"), ("cat", "da")]


def test_a_share_of_the_counterparts():
    entries = TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=3)
    assert len(entries) == 25 and entries.origin == "25 of 100 pieces of a derived vocabulary"
    assert (entries.ids[:, 1] - entries.ids[:, 0] == 100).all() and (np.diff(entries.ids[:, 0]) > 0).all()
    assert (TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=4).ids != entries.ids).any()
    larger = TokenEntries.from_counterparts(COUNTERPARTS, share=0.5, seed=3)
    assert len(larger) == 50 and set(entries.ids[:, 0]) < set(larger.ids[:, 0])


def test_single_pieces_and_why_others_are_left_out(tokenizer):
    entries = TokenEntries.from_dictionary(WORDS, tokenizer, name="en-xx.txt")
    pieces = [tuple(tokenizer.convert_ids_to_tokens(row)) for row in entries.ids]
    assert pieces == [("house", "haus"), ("cat", "kat"), ("dog", "hund"), ("cat", "da")]
    assert entries.dropped == {"repeated": 1, "same_piece": 1, "several_pieces": 3, "unknown": 2}
    assert entries.origin == "en-xx.txt: 4 of the 4 entries with one piece a word, of 11 of words"
    half = TokenEntries.from_dictionary(WORDS, tokenizer, share=0.5, seed=1)
    assert len(half) == 2 and {tuple(row) for row in half.ids} < {tuple(row) for row in entries.ids}


def test_pieces_are_those_at_the_start_of_a_word():
    """`b` is `▁`, `b`; `ab` two pieces; `og` is `Ġo`, `g`."""
    pieces = ["<pad>", "<unk>", "▁", "▁the", "the", "▁das", "das", "▁a", "b", "▁b"]
    scores = [0.0, 0.0, -9.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -20.0]
    unigram = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=1))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    vocabulary = ["[PAD]", "Ġ", "d", "o", "g", "Ġd", "og", "Ġdog", "dog", "Ġo"]
    merges = [("Ġ", "d"), ("o", "g"), ("Ġd", "og"), ("d", "og"), ("Ġ", "o")]
    bytes_ = Tokenizer(models.BPE({piece: k for k, piece in enumerate(vocabulary)}, merges))
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for backend, names, words, expected in (
        (unigram, {"unk_token": "<unk>"}, [("the", "das"), ("b", "a"), ("ab", "the")], ["▁the", "▁das"]),
        (bytes_, {"pad_token": "[PAD]"}, [("dog", "o"), ("og", "dog")], ["Ġdog", "Ġo"]),
    ):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
        entries = TokenEntries.from_dictionary(words, tokenizer)
        assert [tokenizer.convert_ids_to_tokens(row) for row in entries.ids] == [expected]
        assert entries.dropped == {"several_pieces": len(words) - 1}


def test_same_after_saving(tmp_path):
    words = TokenEntries.from_dictionary(WORDS, make_tokenizer(), name="wörter.txt", share=0.75, seed=2)
    for entries in (TokenEntries.from_counterparts(COUNTERPARTS, seed=8), words):
        path = entries.save(tmp_path / "model")
        assert [file.name for file in path.parent.iterdir()] == [ENTRIES_FILE]
        again = TokenEntries.load(tmp_path / "model", vocab_size=entries.ids.max() + 1)
        assert again.ids.dtype == np.int64 and np.array_equal(again.ids, entries.ids)
        for name in ("origin", "share", "seed", "dropped"):
            assert getattr(again, name) == getattr(entries, name)
