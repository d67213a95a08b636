"""Rows of text and sentence pairs as token ids: packing against a loop, framing, cutting, filters and their counts."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from datasets import Dataset
from support.tiny import make_tokenizer, make_two_separator_tokenizer
from transformers import BertConfig

from hf_xalign.data.pretraining.rows import TextCounts, encode_pretraining
from hf_xalign.data.sentence_pairs import PairCounts, count_tokens, encode_sentence_pairs, sentence_frame

CONFIG = BertConfig(max_position_embeddings=64)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letters(count, start=0):
    """Return a sentence of so many tokens of the tiny tokenizer."""
    return " ".join(LETTERS[(start + k) % 26] for k in range(count))


def random_text(count, seed=0, longest=20):
    sizes = np.random.default_rng(seed).integers(0, longest, size=count).tolist()
    return Dataset.from_dict({"text": [letters(size, seed + k) for k, size in enumerate(sizes)]})


def pairs(*sizes, languages=("de",)):
    """Return rows of (source tokens, target tokens); the languages take turns."""
    columns = {
        "source": [letters(s, k) for k, (s, _) in enumerate(sizes)],
        "target": [letters(t, k + 5) for k, (_, t) in enumerate(sizes)],
        "source_lang": [languages[k % len(languages)] for k in range(len(sizes))],
        "target_lang": ["en"] * len(sizes),
    }
    return Dataset.from_dict(columns)


def loop_rows(sentences, room):
    """Return token lists packed one sentence after another, long ones cut."""
    rows = [[]]
    for piece in (s[start : start + room] for s in sentences for start in range(0, len(s), room)):
        if rows[-1] and len(rows[-1]) + len(piece) > room:
            rows.append([])
        rows[-1] = rows[-1] + piece
    return rows


# ---- Rows of text ----


def test_rows_by_hand(tokenizer):
    corpus = Dataset.from_dict({"text": ["a b c", "d e", "", "f g h i", "j"]})
    rows, counts = encode_pretraining({"en": corpus}, tokenizer, CONFIG, block_size=7)
    common = {"length": 7, "languages": ["en"], "parts": [7], "source_lang": "en"}
    ids = [[2, *tokenizer.convert_tokens_to_ids(list(row)), 3] for row in ("abcde", "fghij")]
    assert rows.to_list() == [{"input_ids": row, "example": k, **common} for k, row in enumerate(ids)]
    assert counts == {"en": TextCounts(sentences=5, left_out=1, cut=0, rows=2, tokens=10)}
    words = [["the", "cat-dog"], [], ["haus", "öffnen"]]  # words are tokenized as they are split
    corpus = Dataset.from_dict({"words": words, "text": ["x", "y", "z"]})
    rows, counts = encode_pretraining({"en": corpus}, tokenizer, CONFIG, block_size=40)
    whole = tokenizer([word for sentence in words for word in sentence], is_split_into_words=True).input_ids
    assert rows["input_ids"][:] == [whole] and counts["en"].left_out == 1


@pytest.mark.parametrize("block_size", [5, 13, 64])
def test_rows_against_a_loop(block_size, tokenizer):
    corpora = {"en": random_text(1100), "de": random_text(120, seed=9, longest=30)}  # `map` takes 1000 at once
    rows, counts = encode_pretraining(corpora, tokenizer, CONFIG, block_size=block_size)
    expected, codes = [], []
    for code, corpus in corpora.items():
        sentences = tokenizer(corpus["text"][:], add_special_tokens=False).input_ids
        own = loop_rows(sentences, block_size - 2)
        expected += [[2, *row, 3] for row in own]
        codes += [code] * len(own)
        left_out, cut = sum(not s for s in sentences), sum(len(s) > block_size - 2 for s in sentences)
        assert counts[code] == TextCounts(len(corpus), left_out, cut, len(own), sum(map(len, sentences)))
    assert rows["input_ids"][:] == expected
    assert rows["source_lang"][:] == codes and rows["languages"][:] == [[code] for code in codes]
    assert rows["length"][:] == [len(row) for row in expected] == [part for (part,) in rows["parts"]]
    assert rows["example"][:] == list(range(len(expected)))


@pytest.mark.parametrize("make", [make_tokenizer, make_two_separator_tokenizer])
def test_pair_rows_by_hand(make):
    tokenizer = make()
    columns = {"source": ["a b", "c", "d e f", "g h i j k l", "m"], "target": ["n", "o p", "q r", "s", ""]}
    bitext = Dataset.from_dict({**columns, "source_lang": ["de"] * 5, "target_lang": ["en"] * 5})
    between = ["[SEP]"] * (1 if make is make_tokenizer else 2)
    # Rooms of 4 tokens a side (9 of 12 or 13 tokens are left, and halved).
    options = {"block_size": 11 + len(between), "pairs": bitext, "pair_share": 9.0}
    corpus = Dataset.from_dict({"text": ["a b", "b c"]})
    rows, counts = encode_pretraining({"en": corpus}, tokenizer, CONFIG, **options)
    expected = [["[CLS]", *"nop", *between, *"abc", "[SEP]"], ["[CLS]", *"qr", *between, *"def", "[SEP]"]]
    found = rows.filter(lambda row: len(row["parts"]) == 2)
    assert [tokenizer.convert_ids_to_tokens(row) for row in found["input_ids"]] == expected
    assert found["parts"][:] == [[4 + len(between), 4], [3 + len(between), 4]]
    assert found["languages"][:] == [["en", "de"]] * 2 and found["source_lang"][:] == ["en+de"] * 2
    assert counts["en+de"] == TextCounts(sentences=5, left_out=2, cut=0, rows=2, tokens=11)
    assert rows["example"][:] == [0, 1, 2]


def test_pair_rows_are_those_the_tokenizer_makes(tokenizer):
    sizes = [(int(s), int(t)) for s, t in np.random.default_rng(2).integers(1, 9, size=(60, 2))]
    bitext = pairs(*sizes, languages=("de", "bn"))
    options = {"block_size": 31, "pairs": bitext, "pair_share": 9.0}
    rows, counts = encode_pretraining({"en": random_text(100)}, tokenizer, CONFIG, **options)
    for code in ("de", "bn"):
        own = [row for row in bitext if row["source_lang"] == code]
        left = [row["input_ids"] for row in rows if row["source_lang"] == f"en+{code}"]
        expected = [("", "")]
        for row in own:
            added = zip(expected[-1], (row["target"], row["source"]), strict=True)
            longer = tuple(f"{side} {more}".strip() for side, more in added)
            if max(len(side.split()) for side in longer) <= 14:
                expected[-1] = longer
            else:
                expected.append((row["target"], row["source"]))
        assert left == [tokenizer(*sides).input_ids for sides in expected]
        tokens = sum(len(row[side].split()) for row in own for side in ("source", "target"))
        assert counts[f"en+{code}"] == TextCounts(30, 0, 0, len(left), tokens)


def test_share_of_pair_rows(tokenizer, caplog):
    corpora = {"en": random_text(200), "de": random_text(200, seed=1)}
    bitext = pairs(*[(6, 6)] * 400)

    def encode(**options):
        rows, counts = encode_pretraining(corpora, tokenizer, CONFIG, block_size=16, pairs=bitext, **options)
        assert counts["en+de"].rows == sum(len(parts) == 2 for parts in rows["parts"])
        assert counts["en+de"].tokens == 12 * counts["en+de"].rows
        return rows.to_list(), counts

    rows, counts = encode()
    plain = counts["en"].rows + counts["de"].rows
    assert counts["en+de"].rows == round(0.25 * plain) < 200
    other = encode(seed=1)[0]
    assert rows == encode()[0] != other and rows[:plain] == other[:plain]
    with caplog.at_level(logging.WARNING):
        assert encode(pair_share=3.0)[1]["en+de"].rows == 400
    assert f"400 TLM rows, of {round(3 * plain)}" in caplog.text


# ---- Sentence pairs ----


def test_ids_are_the_tokenizers(tokenizer):
    sides = {"source": ["die katze, öffnen!", "datei"], "target": ["the cat opening", "file it"]}
    dataset = Dataset.from_dict({**sides, "source_lang": ["de"] * 2, "target_lang": ["en"] * 2})
    encoded, counts = encode_sentence_pairs(dataset, tokenizer, min_tokens=1, max_tokens=60)
    for number, (row, text) in enumerate(zip(encoded, dataset, strict=True)):
        ids = {f"{side}_ids": tokenizer(text[side]).input_ids[1:-1] for side in sides}
        assert row == {
            **ids,
            "length": sum(map(len, ids.values())),
            "source_lang": "de",
            "target_lang": "en",
            "pair": number,
        }
    assert counts == {"de": PairCounts(2, 0, 0)}


def test_filters_of_the_paper(caplog):
    """Just long enough, just short enough, and too short on one side counted before too long."""
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    sizes = ((9, 20), (20, 9), (10, 10), (120, 9), (64, 64), (118, 10), (64, 65), (0, 30))
    with caplog.at_level(logging.INFO):
        encoded, counts = encode_sentence_pairs(pairs(*sizes, languages=("de", "bn")), tokenizer)
    assert encoded["pair"][:] == [2, 4, 5]
    assert encoded["length"][:] == [20, 128, 128]
    assert counts == {"bn": PairCounts(kept=1, short=3, long=0), "de": PairCounts(kept=2, short=1, long=1)}
    assert sum(counts["de"]) == 4
    assert "bn: 3 short, 0 long of 4; de: 1 short, 1 long of 4" in caplog.text


def test_the_models_limit_holds_and_numbers_do_not_move_with_the_filters(tokenizer):
    """The tiny tokenizer takes 64 tokens, 3 of them special."""
    encoded, counts = encode_sentence_pairs(pairs((30, 31), (31, 31)), tokenizer)
    assert encoded["length"][:] == [61] and counts["de"].long == 1
    for least in (2, 9):
        encoded, _ = encode_sentence_pairs(pairs(*((k, 10) for k in range(1, 15))), tokenizer, min_tokens=least)
        assert encoded["pair"][:] == [length - 11 for length in encoded["length"]] == list(range(least - 1, 14))


def test_frame():
    for make, specials in ((make_tokenizer, 3), (make_two_separator_tokenizer, 4)):
        tokenizer = make()
        before, between, after = sentence_frame(tokenizer)
        a, b = (tokenizer(text, add_special_tokens=False).input_ids for text in ("the cat", "datei öffnen"))
        assert [*before, *a, *after] == tokenizer("the cat").input_ids
        assert [*before, *a, *between, *b, *after] == tokenizer("the cat", "datei öffnen").input_ids
        assert sentence_frame(tokenizer).pair_specials == specials


def test_tokens_are_counted_on_both_sides_of_the_pairs_left(tokenizer):
    encoded, _ = encode_sentence_pairs(pairs((3, 2), (9, 1), (2, 4)), tokenizer, min_tokens=2)
    tokens = [token for row in encoded for token in row["source_ids"] + row["target_ids"]]
    assert count_tokens(encoded, len(tokenizer)).tolist() == [tokens.count(token) for token in range(len(tokenizer))]
    assert len(tokens) == 3 + 2 + 2 + 4
