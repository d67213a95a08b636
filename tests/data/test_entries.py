"""Token entries: how many and which are drawn, what of a word dictionary is left, and the file they lie in."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.tiny import make_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_xalign.data.entries import ENTRIES_FILE, TokenEntries
from hf_xalign.errors import InputError

COUNTERPARTS = np.stack([np.arange(5, 105), np.arange(105, 205)], axis=1)
WORDS = [
    ("house", "haus"),
    ("cat", "kat"),
    ("dog", "hund"),
    ("the", "der"),  # d ##e ##r
    ("opening", "da"),  # open ##ing
    ("dog", "漢"),
    ("漢字", "opening"),
    ("open file", "da"),
    ("house", "house"),
    ("Cat", "KAT"),
    ("cat", "da"),
]


def sentencepiece_like():
    """Unigram with `▁` before a word, and pieces both at the start of a word and inside."""
    pieces = ["<pad>", "<unk>", "▁", "▁the", "the", "▁das", "das", "▁a", "b", "▁b"]
    scores = [0.0, 0.0, -9.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -20.0]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")


def byte_level_like():
    vocabulary = {"[PAD]": 0, "Ġ": 1, "d": 2, "o": 3, "g": 4, "Ġd": 5, "og": 6, "Ġdog": 7, "dog": 8, "Ġo": 9}
    merges = [("Ġ", "d"), ("o", "g"), ("Ġd", "og"), ("d", "og"), ("Ġ", "o")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")


# ---- Counterparts ----


def test_a_share_of_the_counterparts():
    entries = TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=3)
    assert len(entries) == 25 and entries.ids.dtype == np.int64
    assert (entries.share, entries.seed, dict(entries.dropped)) == (0.25, 3, {})
    assert entries.origin == "25 of 100 pieces of a derived vocabulary"
    assert (entries.ids[:, 1] - entries.ids[:, 0] == 100).all() and (np.diff(entries.ids[:, 0]) > 0).all()
    again = TokenEntries.from_counterparts(COUNTERPARTS.astype(np.int32), share=0.25, seed=3)
    assert (again.ids == entries.ids).all() and again.ids.dtype == np.int64
    other = TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=4)
    assert (other.ids != entries.ids).any()
    larger = TokenEntries.from_counterparts(COUNTERPARTS, share=0.5, seed=3)
    assert len(larger) == 50 and set(entries.ids[:, 0]) < set(larger.ids[:, 0])
    assert (TokenEntries.from_counterparts(COUNTERPARTS, share=1.0).ids == COUNTERPARTS).all()


def test_every_counterpart_is_drawn_as_often():
    counts = np.zeros(205)
    for seed in range(400):
        counts[TokenEntries.from_counterparts(COUNTERPARTS, seed=seed).ids[:, 0]] += 1
    assert abs(counts[5:105] - 100).max() < 4.5 * (400 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, 25])
def test_shares_that_are_none(share):
    with pytest.raises(InputError, match=f"dictionary share {share}"):
        TokenEntries.from_counterparts(COUNTERPARTS, share=share)


def test_too_small_a_share():
    with pytest.raises(InputError, match=r"share of 0\.001 of 100 entries is none"):
        TokenEntries.from_counterparts(COUNTERPARTS, share=0.001)


# ---- Words ----


def testsingle_pieces_and_why_others_are_left_out(tokenizer):
    entries = TokenEntries.from_dictionary(WORDS, tokenizer, name="en-xx.txt")
    pieces = [tuple(tokenizer.convert_ids_to_tokens(row)) for row in entries.ids]
    assert pieces == [("house", "haus"), ("cat", "kat"), ("dog", "hund"), ("cat", "da")]
    assert entries.dropped == {"repeated": 1, "same_piece": 1, "several_pieces": 3, "unknown": 2}
    assert len(entries) + sum(entries.dropped.values()) == len(WORDS)
    assert entries.origin == "en-xx.txt: 4 of the 4 entries with one piece a word, of 11 of words"
    half = TokenEntries.from_dictionary(WORDS, tokenizer, share=0.5, seed=1)
    assert len(half) == 2 and {tuple(row) for row in half.ids} < {tuple(row) for row in entries.ids}


@pytest.mark.parametrize(
    ("make", "words", "expected"),
    [
        (sentencepiece_like, [("the", "das"), ("b", "a"), ("ab", "the")], [("▁the", "▁das")]),
        (byte_level_like, [("dog", "o"), ("og", "dog")], [("Ġdog", "Ġo")]),
    ],
)
def test_pieces_are_those_at_the_start_of_a_word(make, words, expected):
    """`b` is `▁`, `b`; `ab` two pieces; `og` is `Ġo`, `g`."""
    tokenizer = make()
    entries = TokenEntries.from_dictionary(words, tokenizer)
    assert [tuple(tokenizer.convert_ids_to_tokens(row)) for row in entries.ids] == expected
    assert entries.dropped == {"several_pieces": len(words) - 1}


def test_no_entry_left(tokenizer):
    with pytest.raises(InputError, match=r"en-xx\.txt: none of its 2 entries.*several pieces: 1, unknown: 1"):
        TokenEntries.from_dictionary([("the", "der"), ("dog", "漢")], tokenizer, name="en-xx.txt")


# ---- The file ----


@pytest.mark.parametrize("kind", ["counterparts", "words"])
def test_same_after_saving(kind, tmp_path):
    if kind == "counterparts":
        entries = TokenEntries.from_counterparts(COUNTERPARTS, seed=8)
    else:
        entries = TokenEntries.from_dictionary(WORDS, make_tokenizer(), name="wörter.txt", share=0.75, seed=2)
    path = entries.save(tmp_path / "model")
    assert [file.name for file in path.parent.iterdir()] == [ENTRIES_FILE]
    again = TokenEntries.load(tmp_path / "model", vocab_size=205)
    assert again.ids.dtype == np.int64 and np.array_equal(again.ids, entries.ids)
    for name in ("origin", "share", "seed", "dropped"):
        assert getattr(again, name) == getattr(entries, name)


def test_of_another_vocabulary(tmp_path):
    TokenEntries(np.array([[5, 99], [6, 40]]), "a test").save(tmp_path)
    TokenEntries.load(tmp_path, vocab_size=100)
    with pytest.raises(InputError, match=rf"{ENTRIES_FILE}: token 99 in a vocabulary of 99"):
        TokenEntries.load(tmp_path, vocab_size=99)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match=rf"{ENTRIES_FILE}: cannot be read"):
        TokenEntries.load(tmp_path, vocab_size=10)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], r"n at least 1"),
        ([[1, 2, 3]], r"\(1, 3\)"),
        ([[1, 2], [3]], "no file of token entries"),
        ([[1, "x"]], "no file of token entries"),
        ([[1, 2**70]], "no file of token entries"),
        ([[1, -2]], "negative token"),
        ([[1, 2], [4, 4]], r"entry \[4, 4\] is of a token with itself"),
        ([[1, 2], [3, 4], [1, 2]], r"entry \[1, 2\] is there twice"),
    ],
)
def test_a_damaged_file(entries, reason, tmp_path):
    TokenEntries(np.array([[5, 9]]), "a test").save(tmp_path)
    content = json.loads((tmp_path / ENTRIES_FILE).read_text())
    (tmp_path / ENTRIES_FILE).write_text(json.dumps({**content, "entries": entries}))
    with pytest.raises(InputError, match=f"{ENTRIES_FILE}.*{reason}"):
        TokenEntries.load(tmp_path, vocab_size=2**80)


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"entries": [[1, 2]]}', "{"])
def test_no_such_file(text, tmp_path):
    (tmp_path / ENTRIES_FILE).write_text(text)
    with pytest.raises(InputError, match="no file of token entries"):
        TokenEntries.load(tmp_path, vocab_size=10)
