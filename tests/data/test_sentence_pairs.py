"""Encoded sentence pairs: ids, filters with their counts, frames, errors."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from datasets import Dataset
from support.tiny import make_tokenizer
from tokenizers import processors

from hf_xalign.data.sentence_pairs import PairCounts, count_tokens, encode_sentence_pairs, sentence_frame
from hf_xalign.errors import InputError


def xlmr_like():
    """The tiny tokenizer with XLM-R's frame: two separators between two sentences."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def pairs(*rows):
    """Rows of (source tokens, target tokens, language): a letter is one token of the tiny tokenizer."""
    return Dataset.from_dict(
        {
            "source": [" ".join("a" * n) for n, _, _ in rows],
            "target": [" ".join("b" * n) for _, n, _ in rows],
            "source_lang": [language for *_, language in rows],
            "target_lang": ["en"] * len(rows),
        }
    )


def test_ids_are_the_tokenizers(tokenizer):
    dataset = Dataset.from_dict(
        {
            "source": ["die katze, öffnen!", "datei"],
            "target": ["the cat opening", "file it"],
            "source_lang": ["de", "de"],
            "target_lang": ["en", "en"],
        }
    )
    encoded, counts = encode_sentence_pairs(dataset, tokenizer, min_tokens=1, max_tokens=60)
    assert set(encoded.column_names) == {"source_ids", "target_ids", "length", "source_lang", "target_lang", "pair"}
    for row, text in zip(encoded, dataset, strict=True):
        for side in ("source", "target"):
            assert [2, *row[f"{side}_ids"], 3] == tokenizer(text[side]).input_ids
        assert row["length"] == len(row["source_ids"]) + len(row["target_ids"])
        assert (row["source_lang"], row["target_lang"]) == ("de", "en")
    assert counts == {"de": PairCounts(2, 0, 0)}


def test_the_papers_filters(caplog):
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    rows = [
        (9, 20, "de"),
        (10, 10, "de"),  # just long enough
        (64, 64, "de"),  # just short enough
        (64, 65, "de"),
        (20, 9, "bn"),
        (120, 9, "bn"),  # both: counted as short
        (118, 10, "bn"),
        (0, 30, "bn"),
    ]
    with caplog.at_level(logging.INFO):
        encoded, counts = encode_sentence_pairs(pairs(*rows), tokenizer)
    assert encoded["pair"][:] == [1, 2, 6]
    assert encoded["length"][:] == [20, 128, 128]
    assert counts == {"bn": PairCounts(kept=1, short=3, long=0), "de": PairCounts(kept=2, short=1, long=1)}
    assert counts["de"].total == 4
    assert "bn: 3 short, 0 long of 4; de: 1 short, 1 long of 4" in caplog.text


def test_same_with_several_processes(tokenizer):
    dataset = pairs(*[(1 + k % 7, 1 + k % 5, "de") for k in range(40)])
    one, counts = encode_sentence_pairs(dataset, tokenizer, min_tokens=3, max_tokens=8)
    two, counts_two = encode_sentence_pairs(dataset, tokenizer, min_tokens=3, max_tokens=8, num_proc=2)
    assert 0 < len(one) < 40
    assert one.to_list() == two.to_list() and counts == counts_two


def test_the_models_limit_holds(tokenizer):
    """The tiny tokenizer takes 64 tokens, 3 of them special."""
    encoded, counts = encode_sentence_pairs(pairs((30, 31, "de"), (31, 31, "de")), tokenizer)
    assert encoded["length"][:] == [61]
    assert counts["de"].long == 1


@pytest.mark.parametrize("make", [make_tokenizer, xlmr_like])
def test_frame(make):
    tokenizer = make()
    before, between, after = sentence_frame(tokenizer)
    a, b = (tokenizer(text, add_special_tokens=False).input_ids for text in ("the cat", "datei öffnen"))
    assert [*before, *a, *after] == tokenizer("the cat").input_ids
    assert [*before, *a, *between, *b, *after] == tokenizer("the cat", "datei öffnen").input_ids
    assert sentence_frame(tokenizer).pair_specials == (3 if make is make_tokenizer else 4)


def test_no_separator_between(tokenizer):
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with pytest.raises(InputError, match=r"encodes two sentences as.*pair template"):
        sentence_frame(tokenizer)


def test_nothing_left(tokenizer):
    with pytest.raises(InputError, match=r"no pair is left \(de: 2 short, 1 long of 3.*lower min_tokens.*max_tokens"):
        encode_sentence_pairs(pairs((3, 20, "de"), (9, 9, "de"), (40, 40, "de")), tokenizer)


@pytest.mark.parametrize("limits", [{"min_tokens": 0}, {"min_tokens": 10, "max_tokens": 19}, {"min_tokens": 31}])
def test_limits_that_exclude_each_other(tokenizer, limits):
    with pytest.raises(InputError, match="let no pair pass"):
        encode_sentence_pairs(pairs((10, 10, "de")), tokenizer, **limits)


def test_missing_column(tokenizer):
    with pytest.raises(InputError, match="no column source_lang"):
        encode_sentence_pairs(pairs((10, 10, "de")).remove_columns("source_lang"), tokenizer)


def test_empty_cell(tokenizer):
    dataset = Dataset.from_dict(
        {"source": ["a", None], "target": ["a", "b"], "source_lang": ["de"] * 2, "target_lang": ["en"] * 2}
    )
    with pytest.raises(InputError, match="row 1: the column source is empty"):
        encode_sentence_pairs(dataset, tokenizer, min_tokens=1)


def test_no_rows(tokenizer):
    with pytest.raises(InputError, match="no pairs"):
        encode_sentence_pairs(pairs((10, 10, "de")).select([]), tokenizer)


def test_another_script(tokenizer):
    dataset = Dataset.from_dict(
        {"source": ["привет мир"], "target": ["hello world"], "source_lang": ["ru"], "target_lang": ["en"]}
    )
    with pytest.raises(InputError, match="the source column: the tokenizer"):
        encode_sentence_pairs(dataset, tokenizer, min_tokens=1)


def test_tokens_are_counted_on_both_sides_of_the_pairs_left(tokenizer):
    encoded, _ = encode_sentence_pairs(pairs((3, 2, "de"), (9, 1, "de"), (2, 4, "nl")), tokenizer, min_tokens=2)
    expected = [0] * len(tokenizer)
    for row in encoded:
        for token in row["source_ids"] + row["target_ids"]:
            expected[token] += 1
    assert count_tokens(encoded, len(tokenizer)).tolist() == expected
    assert sum(expected) == 3 + 2 + 2 + 4


def test_numbers_do_not_move_with_the_filters(tokenizer):
    dataset = pairs(*[(k, 10, "de") for k in range(1, 15)])
    for least in (2, 9):
        encoded, _ = encode_sentence_pairs(dataset, tokenizer, min_tokens=least)
        lengths = np.array(encoded["length"][:])
        assert (np.array(encoded["pair"][:]) == lengths - 11).all()
