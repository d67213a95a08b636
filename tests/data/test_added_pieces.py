"""Pieces for a script that a tokenizer writes as unknown tokens or as bytes."""

import contextlib
import random
from functools import partial

import pytest
from support.tiny import byte_level, make_tokenizer, train_unigram
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from hf_xalign.data.encoding import word_tokenizer
from hf_xalign.data.pretraining.vocabulary import add_pieces, train_tokenizer
from hf_xalign.errors import InputError

ENGLISH = ["open the file", "the cat and the dog", "close the other file", "a new house"] * 3
BENGALI = ["ফাইল খোলো", "নতুন ফাইল", "ফাইল (file) বন্ধ করো", "নতুন ঘর খোলো", "ঘরের নতুন ফাইল"] * 3


def byte_fallback():
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁(adefghilnoprstuwc)", "th", "the", "▁the"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    vocabulary = {piece: k for k, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


KINDS = {
    "unigram": partial(train_unigram, ENGLISH, 60),
    "wordpiece": make_tokenizer,
    "bpe": partial(train_tokenizer, ENGLISH, 60),
    "byte_level": partial(byte_level, ENGLISH),
    "byte_fallback": byte_fallback,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_script_is_written_by_the_new_pieces_and_other_text_as_before(kind, tmp_path):
    old = KINDS[kind]()
    text = BENGALI if kind != "wordpiece" else [line.replace("(", "").replace(")", "") for line in BENGALI]
    new = add_pieces(old, text, 60)
    new.save_pretrained(tmp_path)
    new = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert len(old) < len(new) <= len(old) + 60
    assert new(ENGLISH).input_ids == old(ENGLISH).input_ids
    found = new("নতুন ফাইল", add_special_tokens=False)
    before = old("নতুন ফাইল", add_special_tokens=False).input_ids
    assert old.unk_token_id in before or 2 * len(found.input_ids) < len(before)
    assert new.decode(found.input_ids).strip() == "নতুন ফাইল"
    assert all(token >= len(old) or new.decode([token]).strip() == "" for token in found.input_ids)
    # Words of their own, as the trainers encode them.
    split = word_tokenizer(new)(["নতুন", "ফাইল"], is_split_into_words=True, add_special_tokens=False)
    assert split.word_ids()[0] == 0 and split.word_ids()[-1] == 1
    assert split.input_ids == new(" নতুন ফাইল", add_special_tokens=False).input_ids


def new_pieces(old, new):
    return [piece for piece, row in sorted(new.get_vocab().items(), key=lambda item: item[1]) if row >= len(old)]


def invented(letters, count=400):
    """Return lines of invented words, of three syllables each, some of them often."""
    syllables = [a + b for a in letters for b in letters[:7]]
    draw = random.Random(1)
    words = ["".join(draw.choices(syllables, k=3)) for _ in range(count)]
    return [" ".join(draw.choices(words[: 2 + row], k=4)) for row in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("letters", ["აბგდევზთიკ", "abcdefghij"], ids=["new", "known"])
def test_pieces_are_the_same_each_time_and_all_occur(kind, letters):
    old, text = KINDS[kind](), invented(letters)
    text = [line for line in text if old.unk_token_id not in old(line).input_ids] if letters < "z" else text
    split_over = 2 if letters < "z" else None
    made = [add_pieces(old, text, 300, split_over=split_over) for _ in range(2)]
    pieces = new_pieces(old, made[0])
    assert len(pieces) > 10 and all(new_pieces(old, again) == pieces for again in made[1:])
    used = {token for ids in made[0](text).input_ids for token in ids}
    rows = {piece: row for piece, row in made[0].get_vocab().items() if row >= len(old)}
    words = {word for line in text for word in line.split()}
    if "byte" not in kind:
        for piece in rows:
            start, inner = piece.removeprefix("▁"), piece.removeprefix("##")
            assert any(word.startswith(start) or inner in word[1:] for word in words), piece
    # Pieces on the way to longer ones stay in a BPE vocabulary, and characters in all.
    if kind in ("unigram", "wordpiece"):
        assert {rows[piece] for piece in rows if len(piece.removeprefix("##")) > 1} <= used
    shares = [sum(map(len, tokenizer(text).input_ids)) for tokenizer in (old, made[0])]
    assert shares[1] < shares[0] or old.unk_token_id in old(text[0]).input_ids
    assert letters < "z" or made[0](ENGLISH).input_ids == old(ENGLISH).input_ids


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("कुत्ता और बिल्ली", "3 of the 6 combining marks of the text (DEVANAGARI SIGN VIRAMA, DEVANAGARI VOWEL SIGN U)"),
        ("ไป file", None),
    ],
)
def test_marks_that_the_normalizer_strips_are_said(text, lost, caplog):
    old = make_tokenizer()
    backend = Tokenizer.from_str(old.backend_tokenizer.to_str())
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    special = {"unk_token": old.unk_token, "pad_token": old.pad_token}
    stripping = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    for tokenizer in (old, stripping):
        caplog.clear()
        with contextlib.suppress(InputError):  # it knows the letters that are left
            add_pieces(tokenizer, [text], 60)
        assert (lost is not None and lost in caplog.text) == (tokenizer is stripping and lost is not None)
        assert ("strips" in caplog.text) == (tokenizer is stripping and lost is not None)
