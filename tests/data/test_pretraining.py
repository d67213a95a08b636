"""Rows of text: packing against a loop, framing, cutting, and the same for any number of processes."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from datasets import Dataset
from support.tiny import make_tokenizer
from tokenizers import processors
from transformers import BertConfig, RobertaConfig

from hf_xalign.data.pretraining import TextCounts, check_block_size, encode_pretraining, pack
from hf_xalign.errors import InputError

CONFIG = BertConfig(max_position_embeddings=64)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def xlmr_like():
    """The tiny tokenizer with XLM-R's frame: two separators between two sentences."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def letters(count, start=0):
    """A sentence of so many tokens of the tiny tokenizer."""
    return " ".join(LETTERS[(start + k) % 26] for k in range(count))


def text(*sizes, seed=0):
    return Dataset.from_dict({"text": [letters(size, seed + k) for k, size in enumerate(sizes)]})


def random_text(count, seed=0, longest=20):
    return text(*np.random.default_rng(seed).integers(0, longest, size=count).tolist(), seed=seed)


def pairs(*sizes, languages=("de",)):
    """Rows of (source tokens, target tokens); the languages take turns."""
    return Dataset.from_dict(
        {
            "source": [letters(s, k) for k, (s, _) in enumerate(sizes)],
            "target": [letters(t, k + 5) for k, (_, t) in enumerate(sizes)],
            "source_lang": [languages[k % len(languages)] for k in range(len(sizes))],
            "target_lang": ["en"] * len(sizes),
        }
    )


def ids(tokenizer, sentence):
    return tokenizer(sentence, add_special_tokens=False).input_ids


def loop_rows(sentences, room):
    """Token lists packed one sentence after another, long ones cut."""
    pieces = [s[start : start + room] for s in sentences for start in range(0, len(s), room)]
    rows = [[]]
    for piece in pieces:
        if rows[-1] and len(rows[-1]) + len(piece) > room:
            rows.append([])
        rows[-1] = rows[-1] + piece
    return rows


# ---- Packing ----


def test_pack_by_hand():
    assert pack(np.array([[3], [4], [3], [10], [1], [9], [1]]), 10).tolist() == [0, 3, 4, 6, 7]
    assert pack(np.array([[3, 1], [4, 5], [3, 5], [1, 1]]), 10).tolist() == [0, 2, 4]
    assert pack(np.array([[7]]), 10).tolist() == [0, 1]


def test_rows_by_hand(tokenizer):
    corpus = Dataset.from_dict({"text": ["a b c", "d e", "", "f g h i", "j"]})
    rows, counts = encode_pretraining({"en": corpus}, tokenizer, CONFIG, block_size=7)
    frames = [["[CLS]", *sentence.split(), "[SEP]"] for sentence in ("a b c d e", "f g h i j")]
    assert [tokenizer.convert_ids_to_tokens(row) for row in rows["input_ids"]] == frames
    assert rows["length"][:] == [7, 7] and rows["example"][:] == [0, 1]
    assert rows["languages"][:] == [["en"], ["en"]] and rows["parts"][:] == [[7], [7]]
    assert rows["source_lang"][:] == ["en", "en"]
    assert counts == {"en": TextCounts(sentences=5, left_out=1, cut=0, rows=2, tokens=10)}


@pytest.mark.parametrize("block_size", [5, 13, 64])
def test_rows_against_a_loop(block_size, tokenizer):
    corpora = {"en": random_text(1200), "de": random_text(120, seed=9, longest=30)}  # `map` takes 1000 at once
    rows, counts = encode_pretraining(corpora, tokenizer, CONFIG, block_size=block_size)
    expected, codes = [], []
    for code, corpus in corpora.items():
        sentences = [ids(tokenizer, sentence) for sentence in corpus["text"]]
        own = loop_rows(sentences, block_size - 2)
        expected += [[2, *row, 3] for row in own]
        codes += [code] * len(own)
        assert counts[code] == TextCounts(
            sentences=len(corpus),
            left_out=sum(not s for s in sentences),
            cut=sum(len(s) > block_size - 2 for s in sentences),
            rows=len(own),
            tokens=sum(map(len, sentences)),
        )
    assert rows["input_ids"][:] == expected
    assert rows["source_lang"][:] == codes and rows["languages"][:] == [[code] for code in codes]
    assert rows["length"][:] == [len(row) for row in expected] == [part for (part,) in rows["parts"]]
    assert rows["example"][:] == list(range(len(expected)))


def test_words_are_tokenized_as_they_are_split(tokenizer):
    words = [["the", "cat-dog"], [], ["haus", "öffnen"]]
    corpus = Dataset.from_dict({"words": words, "text": ["x", "y", "z"]})
    rows, counts = encode_pretraining({"en": corpus}, tokenizer, CONFIG, block_size=40)
    whole = tokenizer([word for sentence in words for word in sentence], is_split_into_words=True).input_ids
    assert rows["input_ids"][:] == [whole] and counts["en"].left_out == 1


# ---- Sentence pairs ----


@pytest.mark.parametrize("make", [make_tokenizer, xlmr_like])
def test_pair_rows_by_hand(make):
    tokenizer = make()
    bitext = Dataset.from_dict(
        {
            "source": ["a b", "c", "d e f", "g h i j k l", "m"],
            "target": ["n", "o p", "q r", "s", ""],
            "source_lang": ["de"] * 5,
            "target_lang": ["en"] * 5,
        }
    )
    between = ["[SEP]"] if make is make_tokenizer else ["[SEP]", "[SEP]"]
    block_size = 10 + 1 + len(between)
    rows, counts = encode_pretraining(
        {"en": text(2, 2)}, tokenizer, CONFIG, block_size=block_size, pairs=bitext, pair_share=9.0
    )
    # Rooms of 4 tokens a side (9 of 12 or 13 tokens are left, and halved).
    expected = [
        ["[CLS]", *"nop", *between, *"abc", "[SEP]"],
        ["[CLS]", *"qr", *between, *"def", "[SEP]"],
    ]
    found = rows.filter(lambda row: len(row["parts"]) == 2)
    assert [tokenizer.convert_ids_to_tokens(row) for row in found["input_ids"]] == expected
    assert found["parts"][:] == [[4 + len(between), 4], [3 + len(between), 4]]
    assert found["languages"][:] == [["en", "de"]] * 2 and found["source_lang"][:] == ["en+de"] * 2
    assert counts["en+de"] == TextCounts(sentences=5, left_out=2, cut=0, rows=2, tokens=11)
    assert rows["example"][:] == [0, 1, 2]


def test_pair_rows_are_those_the_tokenizer_makes(tokenizer):
    sizes = [(int(s), int(t)) for s, t in np.random.default_rng(2).integers(1, 9, size=(60, 2))]
    bitext = pairs(*sizes, languages=("de", "bn"))
    rows, counts = encode_pretraining(
        {"en": random_text(100)}, tokenizer, CONFIG, block_size=31, pairs=bitext, pair_share=9.0
    )
    for code in ("de", "bn"):
        own = bitext.filter(lambda row, code=code: row["source_lang"] == code)
        left = rows.filter(lambda row, code=code: row["source_lang"] == f"en+{code}")
        expected = [("", "")]
        for target, source in zip(own["target"], own["source"], strict=True):
            longer = [f"{side} {added}".strip() for side, added in zip(expected[-1], (target, source), strict=True)]
            if max(len(side.split()) for side in longer) <= 14:
                expected[-1] = tuple(longer)
            else:
                expected.append((target, source))
        assert left["input_ids"][:] == [tokenizer(*sides).input_ids for sides in expected]
        tokens = sum(len(side.split()) for side in [*own["source"], *own["target"]])
        assert counts[f"en+{code}"] == TextCounts(30, 0, 0, len(left), tokens)


def test_share_of_pair_rows(tokenizer, caplog):
    corpora = {"en": random_text(200), "de": random_text(200, seed=1)}
    bitext = pairs(*[(6, 6)] * 400)

    def encode(**options):
        rows, counts = encode_pretraining(corpora, tokenizer, CONFIG, block_size=16, pairs=bitext, **options)
        assert counts["en+de"].rows == sum(len(parts) == 2 for parts in rows["parts"])
        assert counts["en+de"].tokens == 12 * counts["en+de"].rows
        return rows, counts

    rows, counts = encode()
    plain = counts["en"].rows + counts["de"].rows
    assert counts["en+de"].rows == round(0.25 * plain) < 200
    again, other = encode()[0], encode(seed=1)[0]
    assert rows.to_list() == again.to_list()
    assert rows["input_ids"][:plain] == other["input_ids"][:plain] and rows.to_list() != other.to_list()
    with caplog.at_level(logging.WARNING):
        assert encode(pair_share=3.0)[1]["en+de"].rows == 400
    assert f"400 TLM rows, of {round(3 * plain)}" in caplog.text
    with pytest.raises(InputError, match="pair_share=0"):
        encode(pair_share=0)


# ---- The same whatever the processes ----


def test_same_with_several_processes(tokenizer, tmp_path):
    """The second half of `de` is but a part of one row, and so is that of each language's pairs."""
    corpora = {"en": random_text(1500), "de": random_text(40, seed=5, longest=3)}
    bitext = pairs(*[(1 + k % 7, 1 + k % 5) for k in range(12)], languages=("de", "bn"))
    options = {"block_size": 64, "pairs": bitext, "pair_share": 0.1}
    one, counts = encode_pretraining(corpora, tokenizer, CONFIG, **options)
    corpora["en"].save_to_disk(tmp_path / "en")
    on_disk = {**corpora, "en": Dataset.load_from_disk(str(tmp_path / "en"))}
    two, counts_two = encode_pretraining(on_disk, tokenizer, CONFIG, **options, num_proc=2)
    assert one.to_list() == two.to_list() and counts == counts_two and one.features == two.features


# ---- What is refused ----


def test_no_text(tokenizer):
    for corpus, reason in ((text(0, 0), "text in its 2 rows"), (text(3).select([]), "rows")):
        with pytest.raises(InputError, match=f"the corpus of de has no {reason}"):
            encode_pretraining({"en": text(3), "de": corpus}, tokenizer, CONFIG, block_size=20)
    with pytest.raises(InputError, match="at least one corpus"):
        encode_pretraining({}, tokenizer, CONFIG, block_size=20)


def test_missing_columns(tokenizer):
    with pytest.raises(InputError, match="no column words or text"):
        encode_pretraining({"en": text(3).rename_column("text", "line")}, tokenizer, CONFIG, block_size=20)
    with pytest.raises(InputError, match="no column source_lang"):
        encode_pretraining(
            {"en": text(3)}, tokenizer, CONFIG, block_size=20, pairs=pairs((3, 3)).remove_columns("source_lang")
        )


def test_empty_cell(tokenizer):
    corpus = Dataset.from_dict({"text": ["a", None]})
    with pytest.raises(InputError, match="the corpus of en, row 1: the column text is empty"):
        encode_pretraining({"en": corpus}, tokenizer, CONFIG, block_size=20)


def test_pairs_that_do_not_fit(tokenizer):
    with pytest.raises(InputError, match="none of the 2 sentence pairs fits: each side may have 1 to 8"):
        encode_pretraining({"en": text(3)}, tokenizer, CONFIG, block_size=20, pairs=pairs((9, 3), (3, 0)))
    with pytest.raises(InputError, match="there are no sentence pairs"):
        encode_pretraining({"en": text(3)}, tokenizer, CONFIG, block_size=20, pairs=pairs((9, 3)).select([]))


def test_another_script(tokenizer):
    corpus = Dataset.from_dict({"text": ["привет мир"]})
    with pytest.raises(InputError, match="the corpus of ru: the tokenizer"):
        encode_pretraining({"ru": corpus}, tokenizer, CONFIG, block_size=20)


@pytest.mark.parametrize(
    ("block_size", "config", "reason"),
    [
        (65, CONFIG, r"block_size=65.*\(bert\) takes 64"),
        (64, RobertaConfig(max_position_embeddings=64, pad_token_id=1), r"\(roberta\) takes 62"),
        (4, CONFIG, "5 is the least"),
    ],
)
def test_block_sizes_that_are_none(block_size, config, reason, tokenizer):
    with pytest.raises(InputError, match=reason):
        check_block_size(block_size, tokenizer, config, pairs=True)
    check_block_size(62, tokenizer, config, pairs=True)


@pytest.mark.parametrize("token", ["mask", "pad"])
def test_tokens_that_are_missing(token):
    tokenizer = make_tokenizer()
    setattr(tokenizer, f"{token}_token", None)
    with pytest.raises(InputError, match=f"no {'mask' if token == 'mask' else 'padding'} token"):
        encode_pretraining({"en": text(3)}, tokenizer, CONFIG, block_size=20)


def test_no_separator():
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    check_block_size(20, tokenizer, CONFIG)
    with pytest.raises(InputError, match="pair template"):
        check_block_size(20, tokenizer, CONFIG, pairs=True)
