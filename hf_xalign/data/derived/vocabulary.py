"""Extend a tokenizer by a transliterated copy of its vocabulary.

Every piece, and every rule that splits text into pieces, is copied with its characters transliterated. The tokenizer
then splits a transliterated word exactly where it splits the natural word. The two vocabularies correspond one to one,
which gives the dictionary of T_trans in Tang et al. (2022).
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_xalign.data.builtin import build_charsmap
from hf_xalign.data.derived.language import LETTERS, Alphabet, normalized_character
from hf_xalign.data.encoding import tokenizer_name
from hf_xalign.data.pretraining.vocabulary import rebuild, tokenizer_spec
from hf_xalign.errors import InputError

# Pre-tokenizers that look at one character at a time, so that a rule for a character can be copied for its letter.
_SPLITTERS = ("BertPreTokenizer", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit")
_NOTHING: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
}


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase, alphabet: Alphabet
) -> tuple[PreTrainedTokenizerFast, np.ndarray]:
    """Add a transliterated copy of the vocabulary.

    - Every piece with a character of the alphabet gets a copy, with the same score (Unigram) or merges of the same
      rank (BPE). Special tokens get no copy. The marks "▁", "##" and "</w>" stay. Copies get the ids from
      `len(tokenizer)` on, in the order of their originals.
    - The normalizer and pre-tokenizer treat a letter like its character. If text is lower-cased, the letter of a
      capital becomes the letter of the small character; if full stops are split off, so is the letter of a full stop.

    Text must be in NFC, because the normalizer's rules for sequences of characters are not copied.

    `alphabet` is `Alphabet.of(words, tokenizer)`. Returns the tokenizer, and int64 (n, 2) with the id of each natural
    piece and of its copy. The model then needs `model.resize_token_embeddings(len(tokenizer))`.
    """
    spec = tokenizer_spec(tokenizer)
    name = tokenizer_name(tokenizer)
    model = spec["model"]
    pipeline = json.dumps([spec["normalizer"], spec["pre_tokenizer"], spec["decoder"]])
    instead = "train one by train_tokenizer, or take one whose pieces are characters (XLM-R's, BERT's)"
    if '"ByteLevel"' in pipeline or model.get("byte_fallback"):
        raise InputError(f"{name}: the tokenizer works on bytes, which transliteration changes; {instead}")
    if model["type"] not in ("Unigram", "BPE", "WordPiece"):
        raise InputError(f"{name}: a vocabulary of the kind {model['type']} cannot be transliterated; {instead}")
    unigram = model["type"] == "Unigram"
    vocabulary = {piece: i for i, (piece, _) in enumerate(model["vocab"])} if unigram else dict(model["vocab"])
    if taken := [piece for piece in vocabulary if any(ord(character) in LETTERS for character in piece)]:
        raise InputError(
            f"{name}: {taken[0]!r} is in the vocabulary, so it has been extended. Give the original tokenizer."
        )
    spec["normalizer"] = _normalizer(spec["normalizer"], alphabet, name)
    if spec["pre_tokenizer"] is not None:
        spec["pre_tokenizer"] = _pre_tokenizer(spec["pre_tokenizer"], alphabet, name)
    special = {token["content"] for token in spec["added_tokens"]}
    special.add(model["vocab"][model["unk_id"]][0] if unigram else model["unk_token"])
    scores = [score for _, score in model["vocab"]] if unigram else []
    prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""

    def copy(piece: str) -> str:
        start = len(prefix) if prefix and piece.startswith(prefix) and piece != prefix else 0
        end = len(piece) - (len(suffix) if suffix and piece.endswith(suffix) else 0)
        return piece[:start] + alphabet.translate(piece[start:end]) + piece[end:]

    counterparts: list[tuple[int, int]] = []
    for piece, natural in sorted(vocabulary.items(), key=lambda item: item[1]):
        if piece in special or (derived := copy(piece)) == piece:
            continue
        counterparts.append((natural, len(vocabulary)))
        vocabulary[derived] = len(vocabulary)
        if unigram:
            model["vocab"].append([derived, scores[natural]])
    if not unigram:
        model["vocab"] = vocabulary
    if model["type"] == "BPE":
        # Right after its original, so that merges apply in the same order in words that keep some characters.
        merges: list[list[str]] = []
        for first, second in model["merges"]:
            merges.append([first, second])
            if (copied := [copy(first), copy(second)]) != merges[-1]:
                merges.append(copied)
        model["merges"] = merges
    return rebuild(tokenizer, spec), np.array(counterparts, dtype=np.int64).reshape(-1, 2)


def _normalizer(normalizer: dict[str, Any] | None, alphabet: Alphabet, name: str) -> dict[str, Any] | None:
    """Return the normalizer, followed by a map of the letters whose characters it changes."""
    if normalizer is None:
        return None
    natural = Tokenizer.from_str(json.dumps({**_NOTHING, "normalizer": normalizer})).normalizer
    mapping = {}
    for character in alphabet.characters:
        normal = normalized_character(natural, character)
        if normal == character:
            continue
        if missing := alphabet.unknown(normal):
            raise InputError(
                f"{name}: the normalizer makes {normal!r} of {character!r}, but {missing[0]!r} is not in the "
                "alphabet. Make it by Alphabet.of(words, tokenizer)."
            )
        mapping[alphabet.translate(character)] = alphabet.translate(normal)
    if not mapping:
        return normalizer
    charsmap = base64.b64encode(build_charsmap(mapping)).decode()
    return {
        "type": "Sequence",
        "normalizers": [normalizer, {"type": "Precompiled", "precompiled_charsmap": charsmap}],
    }


def _pre_tokenizer(rules: dict[str, Any], alphabet: Alphabet, name: str) -> dict[str, Any]:
    """Return the pre-tokenizer, extended to split off the letters of characters that it splits off."""
    if rules["type"] == "Sequence":
        return {**rules, "pretokenizers": [_pre_tokenizer(inner, alphabet, name) for inner in rules["pretokenizers"]]}
    unknown = f"{name}: the rules of the pre-tokenizer {rules['type']} cannot be copied for another script. "
    unknown += "Train a tokenizer by train_tokenizer."
    if rules["type"] not in _SPLITTERS:
        raise InputError(unknown)
    splitter = Tokenizer.from_str(json.dumps({**_NOTHING, "pre_tokenizer": rules})).pre_tokenizer
    assert splitter is not None
    single, run = [], []
    for character in alphabet.characters:
        pieces = [piece for piece, _ in splitter.pre_tokenize_str(f"a{character}{character}a")]
        if pieces[1:-1] == [character] * 2:
            single.append(character)
        elif pieces[1:-1] == [character * 2]:
            run.append(character)
        elif len(pieces) > 1:
            raise InputError(unknown)
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    splits = [
        {**split, "pattern": {"Regex": f"[{alphabet.translate(''.join(group))}]{repeat}"}}
        for group, repeat in ((single, ""), (run, "+"))
        if group
    ]
    return {"type": "Sequence", "pretokenizers": [rules, *splits]} if splits else rules
