"""Pieces for a script that a tokenizer writes as unknown tokens or as bytes."""

from functools import partial

import pytest
from support.refusals import assert_refused, calls
from support.tiny import make_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from hf_xalign.data.encoding import word_tokenizer
from hf_xalign.data.pretraining.vocabulary import add_pieces, train_tokenizer

ENGLISH = ["open the file", "the cat and the dog", "close the other file", "a new house"] * 3
BENGALI = ["ফাইল খোলো", "নতুন ফাইল", "ফাইল (file) বন্ধ করো", "নতুন ঘর খোলো", "ঘরের নতুন ফাইল"] * 3


def byte_level():
    """Return a tokenizer of RoBERTa's and Qwen's kind."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(ENGLISH, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>")


def byte_fallback():
    """Return a tokenizer of Gemma's and mmBERT's kind, which writes unknown characters as bytes."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁(adefghilnoprstuwc)", "th", "the", "▁the"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    vocabulary = {piece: k for k, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


KINDS = {
    "unigram": partial(train_tokenizer, ENGLISH, 60, kind="unigram"),
    "wordpiece": make_tokenizer,
    "bpe": partial(train_tokenizer, ENGLISH, 60),
    "byte_level": byte_level,
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


def test_text_that_needs_no_pieces_and_too_few_pieces_are_refused():
    rows = [
        ({"texts": ENGLISH}, "can write every word"),
        ({"count": 3}, "3 new pieces are too few"),
        ({"tokenizer": PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")))},
         "WordLevel"),
    ]  # fmt: skip
    given = {"tokenizer": train_tokenizer(ENGLISH, 60), "texts": BENGALI, "count": 60}
    assert_refused(calls(add_pieces, rows, **given))
