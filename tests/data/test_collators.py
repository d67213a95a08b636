"""Batches of linked words: exact tensors by hand, and every combination of options against slow loops."""

import itertools

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.batches import assert_batch
from support.tiny import make_links
from transformers import default_data_collator

from hf_xalign.data.batches.pairs import (
    SIDES,
    CachedLinkCollator,
    CachedVectors,
    PairCollator,
    WordCollator,
    link_rows,
)
from hf_xalign.data.batches.streams import PairedCollator, PairedRow
from hf_xalign.data.encoding import encode_pairs
from hf_xalign.modeling.features.cache import cache_features


def make_row(ids, spans, links, lang):
    """Return an encoded pair; ids and word spans are (source, target) each."""
    row = {"links": links, "source_lang": lang}
    for side, own, words in zip(SIDES, ids, spans, strict=True):
        row[f"{side}_ids"] = own
        row |= {f"{side}_{end}": list(places) for end, places in zip(("starts", "ends"), zip(*words), strict=True)}
    return row


# Truncation cut the last source word of the first pair and a word inside the target of the second.
CUT = (0, 0)
ROWS = [
    make_row(([2, 10, 11, 12, 3], [2, 20, 21, 3]), ([(1, 2), (2, 4), CUT], [(1, 2), (2, 3)]), [[0, 1], [1, 0]], "de"),
    make_row(([2, 13, 3], [2, 22, 23, 24, 25, 3]), ([(1, 2)], [(1, 2), (2, 4), CUT, (4, 5)]), [[0, 3]], "nl"),
]
for row, *stored in zip(ROWS, ([10, 11, -1, 12, 13], [18, 19, 20]), ([14, 15, 16, 17], [21, 22, -1, 23, 24, 25])):
    row["source_rows"], row["target_rows"] = stored
NUMBERED = [{**row, "pair": number} for row, number in zip(ROWS, (4, 2), strict=True)]
NUMBERS = {"en": 0, "de": 1, "nl": 2}
SPECIAL = {"words": [], "cls": ["cls"], "cls_sep": ["cls", "sep"], "all": ["cls", "sep"]}
IDS = [[2, 10, 11, 12, 3, 9], [2, 13, 3, 9, 9, 9], [2, 20, 21, 3, 9, 9], [2, 22, 23, 24, 25, 3]]
MASK = [[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Stored vectors of which row r is [r, r + 0.5]."""
    path = tmp_path_factory.mktemp("cache") / "vectors.bin"
    np.stack([np.arange(40), np.arange(40) + 0.5], axis=1).astype(np.float32).tofile(path)
    return CachedVectors(path, (40, 1, 2), torch.float32)


def vectors(*rows):
    return [[float(row), row + 0.5] for row in rows]


# ---- Pairs ----


def test_pair_batch_by_hand():
    bare = {"input_ids": IDS, "attention_mask": MASK, "links": [[0, 4], [1, 3], [2, 7]], "link_pairs": [0, 0, 1]}
    bare |= {"kept_words": [3, 4, 5, 6, 7], "kept_links": [1, 0, 4]}
    bare |= {"token_index": [1, 2, 3, 7, 13, 14, 19, 20, 21, 22], "token_word": [0, 1, 1, 2, 3, 4, 5, 6, 6, 7]}
    bare["token_counts"] = [1, 2, 1, 1, 1, 1, 2, 1]
    expected = {**bare, "kept_ids": IDS[2:], "kept_mask": MASK[2:], "kept_index": [1, 2, 7, 8, 9, 10]}
    expected |= {"kept_word": [0, 1, 2, 3, 3, 4], "kept_counts": [1, 1, 1, 2, 1]}
    batch = PairCollator(9)(ROWS)
    assert_batch(batch, expected)
    batch["kept_ids"].fill_(7)  # a copy: the trained encoder's input must not change with it
    assert batch["input_ids"].tolist() == IDS and batch["kept_mask"].is_contiguous()
    assert_batch(PairCollator(9, needs_reference=False)(ROWS), bare)


def test_reference_vectors_are_read_for_the_kept_words(features):
    for side, rows in (("target", [14, 15, 21, 22, 23]), ("source", [10, 11, 18])):
        batch = PairCollator(9, regularized_side=side, reference=features)(ROWS)
        assert batch["reference"].dtype == torch.float32
        assert batch["reference"].tolist() == [[vector] for vector in vectors(*rows)]
        assert not {"kept_ids", "kept_mask", "kept_index", "kept_word", "kept_counts"} & set(batch)


# ---- Every combination of options ----


def spans(row, side):
    """Return the token span of each word by its number, then those of [CLS] and [SEP]."""
    words = dict(enumerate(zip(row[f"{side}_starts"], row[f"{side}_ends"], strict=True)))
    size = len(row[f"{side}_ids"])
    return {**words, "cls": (0, 1), "sep": (size - 1, size)}


def linked(tokens):
    """Return (row, pair of words) of every link."""
    words = [[tuple(link) for link in row["links"]] if tokens in ("words", "all") else [] for row in ROWS]
    return [(k, pair) for k in range(2) for pair in [*words[k], *((name, name) for name in SPECIAL[tokens])]]


def in_use(half, tokens, every):
    """Return (row, word) of every linked word of one side, or of every word that has a token."""
    chosen = {(k, pair[half]) for k, pair in linked(tokens)}
    words = [(k, name, end) for k, row in enumerate(ROWS) for name, (_, end) in spans(row, SIDES[half]).items()]
    return [(k, name) for k, name, end in words if (k, name) in chosen or (every and end and isinstance(name, int))]


def check_links(batch, found, due, case):
    """A word of the batch is, by `found`, what the row's word is by `due`; returns the words near f0."""
    tokens, half, which, *_ = case
    links, near = linked(tokens), in_use(half, tokens, which == "all")
    assert [[found(w) for w in link] for link in batch["links"].tolist()] == [
        [due(k, side, name) for side, name in enumerate(pair)] for k, pair in links
    ], case
    assert batch["link_pairs"].tolist() == [k for k, _ in links], case
    assert [found(w) for w in batch["kept_words"].tolist()] == [due(k, half, name) for k, name in near], case
    assert [near[w] for w in batch["kept_links"].tolist()] == [(k, pair[half]) for k, pair in links], case
    return near


COMBINATIONS = list(itertools.product(SPECIAL, (0, 1), ("all", "linked")))


def test_pair_batches_against_loops():
    def word_tokens(batch, prefix):
        index = batch[f"{prefix}_index"].tolist()
        owners = batch.get(f"{prefix}_word", torch.arange(len(index))).tolist()
        words = [[] for _ in range(owners[-1] + 1)]
        for place, owner in zip(index, owners, strict=True):
            words[owner].append(place)
        return words

    for (tokens, half, which), pooling in itertools.product(COMBINATIONS, ("first", "last", "mean")):
        case = (tokens, half, which, pooling)
        batch = PairCollator(9, tokens, SIDES[half], which, pooling)(ROWS)

        def places(k, side, name, width=6, first=0, pooling=pooling):
            start, end = spans(ROWS[k], SIDES[side])[name]
            found = [(k + 2 * side - first) * width + token for token in range(start, end)]
            return {"first": found[:1], "last": found[-1:], "mean": found}[pooling]

        near = check_links(batch, word_tokens(batch, "token").__getitem__, places, case)
        width = batch["kept_ids"].shape[1]
        assert word_tokens(batch, "kept") == [places(k, half, name, width, 2 * half) for k, name in near], case


@pytest.mark.parametrize("mode", ["tokens", "cached sentences", "cached words"])
def test_word_batches_against_loops(mode, features):
    given = {} if mode == "tokens" else {"features": features, "context": mode == "cached sentences"}
    for tokens, half, which in COMBINATIONS:
        case = (tokens, half, which)
        batch = WordCollator(9, tokens, SIDES[half], which, languages=NUMBERS, pivot="en", **given)(ROWS)

        def found(flat, batch=batch):
            if mode != "tokens":
                return batch["word_vectors"].flatten(0, 1)[flat].tolist()
            row, column = divmod(flat, batch["word_spans"].shape[1])
            return row, tuple(batch["word_spans"][row, column].tolist())

        def due(k, side, name):
            if mode == "tokens":
                return k + 2 * side, spans(ROWS[k], SIDES[side])[name]
            place = list(spans(ROWS[k], SIDES[side])).index(name)
            return vectors(ROWS[k][f"{SIDES[side]}_rows"][place])[0]

        check_links(batch, found, due, case)
        used = [in_use(side, tokens, side == half and which == "all") for side in (0, 1)]
        lone = [[[1, 2][k] for k, _ in used[0]] + [0] * len(used[1])]
        assert batch["language"].tolist() == (lone if mode == "cached words" else [1, 2, 0, 0]), case
        if mode == "cached words":
            assert batch["word_vectors"].shape == (1, len(lone[0]), 2), case


# ---- Words ----

FLAT = {"links": [[0, 9], [1, 8], [4, 15]], "link_pairs": [0, 0, 1], "kept_words": [8, 9, 15], "kept_links": [1, 0, 2]}


def test_word_batch_of_tokens_by_hand():
    one, no = [1, 2], [0, 0]
    word_spans = [[one, [2, 4], no, no], [one, no, no, no], [one, [2, 3], no, no], [one, [2, 4], no, [4, 5]]]
    expected = {"input_ids": IDS, "attention_mask": MASK, "word_spans": word_spans, **FLAT}
    assert_batch(WordCollator(9)(ROWS), expected)
    numbered = {**expected, "link_pairs": [4, 4, 2], "language": [1, 2, 0, 0]}
    assert_batch(WordCollator(9, languages=NUMBERS, pivot="en")(NUMBERED), numbered)


def test_an_encoders_cache_holds_the_words_that_tokens_give(encoder, tokenizer):
    pairs = encode_pairs(make_links(6), tokenizer, max_length=12)
    assert any(0 in row["target_ends"] for row in pairs)
    every = {"source": "all", "target": "all"}
    for tokens in ("words", "all"):
        options = {"needed": every, "layers": [2], "pooling": "mean", "pad_token_id": 0, "linked_tokens": tokens}
        stored, rows = cache_features(encoder, pairs, **options)
        from_tokens, from_cache = (
            WordCollator(0, tokens, features=given, context=given is not None)(list(rows)) for given in (None, stored)
        )
        spans = from_tokens["word_spans"]
        assert torch.equal(spans[..., 1] > spans[..., 0], from_cache["word_mask"])
        assert all(from_tokens[name].equal(from_cache[name]) for name in FLAT)


def test_a_word_that_was_not_stored_is_an_error(features):
    row = {**ROWS[1], "source_rows": [-1, 19, 20]}
    with pytest.raises(IndexError, match="not stored"):
        WordCollator(9, features=features)([row])


def test_rows_of_links():
    dataset = Dataset.from_list(ROWS)
    flat = [(0, 0), (0, 1), (1, 0)]
    names = ("pair", "length", "source_lang", "source_row", "target_row")
    expected = [(0, 1, "de", 10, 15), (0, 1, "de", 11, 14), (1, 1, "nl", 18, 23)]
    assert link_rows(dataset, alone=True).to_list() == [dict(zip(names, row)) for row in expected]
    whole = link_rows(dataset.add_column("length", [5, 6]), alone=False)
    assert whole.to_list() == [{**ROWS[k], "links": [ROWS[k]["links"][n]], "pair": k, "length": 1} for k, n in flat]
    many = link_rows(Dataset.from_list(ROWS * 501), alone=True)  # `map` passes 1,000 rows at a time
    assert many["pair"][-3:] == [1000, 1000, 1001]


def test_links_alone_as_the_word_collator_has_them(features):
    dataset = Dataset.from_list(ROWS)
    lone, whole = (link_rows(dataset, alone=alone) for alone in (True, False))
    drawn = (2, 0, 1)
    for side, languages in itertools.product(SIDES, (None, NUMBERS)):
        fast = CachedLinkCollator(features, side, languages, "en")([lone[k] for k in drawn])
        loop = WordCollator(9, "words", side, "linked", features, languages=languages, pivot="en")
        assert_batch(fast, loop([whole[k] for k in drawn]))
    assert fast["language"].tolist() == [[2, 1, 1, 0, 0, 0]]


# ---- A task's examples with pairs ----


def test_task_batch_comes_with_its_pairs():
    task = [{"label": 5}, {"label": 6}]
    given = default_data_collator(task)
    rows = [PairedRow(task[0], ROWS[:1]), PairedRow(task[1], ROWS[1:])]
    pairs = {f"pair_{name}": value for name, value in PairCollator(9)(ROWS).items()}
    assert_batch(PairedCollator(default_data_collator, PairCollator(9))(rows), {**given, **pairs})
    spoken = PairedCollator(default_data_collator, PairCollator(9), language_rows=NUMBERS, pivot="en")
    told = spoken(rows)
    types = [[1] * 6, [2] * 6, [0] * 6, [0] * 6]
    assert_batch(told, {**given, **pairs, "pair_token_type_ids": types})
    assert told["pair_token_type_ids"].is_contiguous()
    assert_batch(spoken([PairedRow(row, []) for row in task]), given)
