"""Batches of words against a loop over rows, for every mode; one row a link."""

from __future__ import annotations

import pytest
import torch
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.word_collator import CachedLinkCollator, WordCollator, link_rows
from hf_xalign.modeling.feature_cache import cache_features

NUMBERS = {"en": 0, "de": 1, "nl": 2}


def pairs(max_length=None, n=6):
    """Encoded pairs of two languages; with `max_length` some words are cut off."""
    links = make_links(n).map(lambda row, k: {"source_lang": ["de", "nl"][k % 2]}, with_indices=True)
    return encode_pairs(links, make_tokenizer(), max_length=max_length)


def cached(dataset, needed, linked_tokens):
    return cache_features(
        make_encoder(),
        dataset,
        needed={"source": needed, "target": needed},
        layers=[2],
        pooling="mean",
        pad_token_id=0,
        linked_tokens=linked_tokens,
    )


def names(row, side, linked_tokens):
    """What the words of a sentence are called, and their token spans: numbers, then the special ones."""
    spans = dict(enumerate(zip(row[f"{side}_starts"], row[f"{side}_ends"], strict=True)))
    if linked_tokens != "words":
        length = len(row[f"{side}_ids"])
        spans["cls"], spans["sep"] = (0, 1), (length - 1, length)
    return spans


def linked(row, linked_tokens):
    words = [tuple(link) for link in row["links"]]
    return {
        "words": words,
        "cls": [("cls", "cls")],
        "cls_sep": [("cls", "cls"), ("sep", "sep")],
        "all": [*words, ("cls", "cls"), ("sep", "sep")],
    }[linked_tokens]


def kept(row, side, linked_tokens, which):
    position = ("source", "target").index(side)
    chosen = {pair[position] for pair in linked(row, linked_tokens)}
    if which == "all":
        chosen |= {number for number, end in enumerate(row[f"{side}_ends"]) if end}
    return [word for word in names(row, side, linked_tokens) if word in chosen]


def word_at(batch, flat):
    """What tells the word at a flat index: its tokens, or its vector."""
    if "word_spans" in batch:
        row, column = divmod(flat, batch["word_spans"].shape[1])
        start, end = batch["word_spans"][row, column].tolist()
        return batch["input_ids"][row, :].tolist(), (start, end), row
    return batch["word_vectors"].flatten(0, 1)[flat]


def expected_at(row, side, name, linked_tokens, features, batch, sentence):
    span = names(row, side, linked_tokens)[name]
    if features is None:
        width = batch["input_ids"].shape[1]
        ids = list(row[f"{side}_ids"])
        return ids + [0] * (width - len(ids)), span, sentence
    words = len(row[f"{side}_starts"])
    place = {"cls": words, "sep": words + 1}.get(name, name)
    return features.read(torch.tensor([row[f"{side}_rows"][place]]).numpy())[0, 0]


def same(found, expected):
    if isinstance(found, torch.Tensor):
        return torch.equal(found, expected)
    return found == expected


@pytest.mark.parametrize("linked_tokens", ["words", "cls", "cls_sep", "all"])
@pytest.mark.parametrize("which", ["linked", "all"])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("mode", ["tokens", "cached sentences", "cached words"])
def test_equals_a_loop(mode, side, which, linked_tokens):
    dataset, features = pairs(max_length=12), None
    assert any(0 in row["target_ends"] for row in dataset)
    if mode != "tokens":
        features, dataset = cached(dataset, "all", linked_tokens)
    rows = list(dataset)
    collator = WordCollator(
        pad_token_id=0,
        linked_tokens=linked_tokens,
        regularized_side=side,
        regularized_words=which,
        features=features,
        context=mode == "cached sentences",
        languages=NUMBERS,
        pivot="en",
    )
    batch = collator(rows)

    links = [(k, pair) for k, row in enumerate(rows) for pair in linked(row, linked_tokens)]
    assert batch["links"].shape == (len(links), 2)
    assert batch["link_pairs"].tolist() == [k for k, _ in links]
    for flat, (k, pair) in zip(batch["links"].tolist(), links, strict=True):
        for half, end in enumerate(("source", "target")):
            sentence = k + half * len(rows)
            due = expected_at(rows[k], end, pair[half], linked_tokens, features, batch, sentence)
            assert same(word_at(batch, flat[half]), due)

    near = [(k, word) for k, row in enumerate(rows) for word in kept(row, side, linked_tokens, which)]
    half = ("source", "target").index(side)
    assert len(batch["kept_words"]) == len(near)
    for flat, (k, word) in zip(batch["kept_words"].tolist(), near, strict=True):
        due = expected_at(rows[k], side, word, linked_tokens, features, batch, k + half * len(rows))
        assert same(word_at(batch, flat), due)
    assert [near[place] for place in batch["kept_links"].tolist()] == [(k, pair[half]) for k, pair in links]

    numbers = [NUMBERS[row["source_lang"]] for row in rows] + [0] * len(rows)
    if mode == "cached words":
        used = [
            {
                *(pair[number] for pair in linked(row, linked_tokens)),
                *(kept(row, end, linked_tokens, which) if end == side else ()),
            }
            for number, end in enumerate(("source", "target"))
            for row in rows
        ]
        assert batch["word_vectors"].shape == (1, sum(map(len, used)), 16)
        assert batch["language"].tolist() == [[n for n, words in zip(numbers, used, strict=True) for _ in words]]
    else:
        assert batch["language"].tolist() == numbers


@pytest.mark.parametrize("linked_tokens", ["words", "all"])
def test_sentences_are_the_same_from_tokens_and_from_the_cache(linked_tokens):
    """Which words a transformer's layer sees: all of a sentence that have tokens, whichever way they come."""
    features, dataset = cached(pairs(max_length=12), "all", linked_tokens)
    rows = list(dataset)
    from_tokens = WordCollator(pad_token_id=0, linked_tokens=linked_tokens)(rows)
    from_cache = WordCollator(pad_token_id=0, linked_tokens=linked_tokens, features=features, context=True)(rows)
    spans = from_tokens["word_spans"]
    assert torch.equal(spans[..., 1] > spans[..., 0], from_cache["word_mask"])
    assert not from_cache["word_vectors"][~from_cache["word_mask"]].any()
    for name in ("links", "link_pairs", "kept_words", "kept_links"):
        assert torch.equal(from_tokens[name], from_cache[name])
    lengths = [len(row[f"{side}_ids"]) for side in ("source", "target") for row in rows]
    assert from_tokens["attention_mask"].sum(1).tolist() == lengths
    specials = 2 if linked_tokens == "all" else 0
    counts = [sum(map(bool, row[f"{side}_ends"])) + specials for side in ("source", "target") for row in rows]
    assert from_cache["word_mask"].sum(1).tolist() == counts


def test_a_word_that_was_not_stored_is_an_error():
    features, dataset = cached(pairs(), "linked", "words")
    with pytest.raises(IndexError, match="not stored"):
        WordCollator(pad_token_id=0, features=features, regularized_words="all")(list(dataset))


def test_one_row_a_link():
    dataset = pairs()
    rows = link_rows(dataset, alone=False)
    flat = [(k, list(link)) for k, row in enumerate(dataset) for link in row["links"]]
    assert [(row["pair"], [list(link) for link in row["links"]]) for row in rows] == [(k, [link]) for k, link in flat]
    assert set(rows["length"]) == {1}
    for row in rows:
        whole = dataset[row["pair"]]
        assert all(row[name] == whole[name] for name in whole if name not in ("links", "length"))


def test_links_of_one_pair_know_each_other_in_any_batch():
    rows = link_rows(pairs(n=3), alone=False)
    drawn = [rows[k] for k in (9, 0, 4, 10, 6)]
    batch = WordCollator(pad_token_id=0)(drawn)
    assert batch["link_pairs"].tolist() == [2, 0, 0, 2, 1]
    assert batch["input_ids"].shape[0] == 2 * len(drawn)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("languages", [None, NUMBERS])
def test_links_alone_are_the_same_batch_without_a_loop(languages, side):
    features, dataset = cached(pairs(), "linked", "words")
    drawn = (7, 0, 1, 13, 9, 3)
    fast = CachedLinkCollator(features, side, languages, "en")([link_rows(dataset, alone=True)[k] for k in drawn])
    loop = WordCollator(pad_token_id=0, regularized_side=side, features=features, languages=languages, pivot="en")(
        [link_rows(dataset, alone=False)[k] for k in drawn]
    )
    assert fast.keys() == loop.keys()
    for name in fast:
        assert fast[name].dtype == loop[name].dtype
        assert torch.equal(fast[name], loop[name]), name
