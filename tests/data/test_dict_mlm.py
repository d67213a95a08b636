"""DICT-MLM's labels by hand and by count, and the batches of pre-training."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from support.tiny import make_tokenizer
from torch.utils.data import DataLoader

from hf_xalign.data.dict_mlm import Translations, dict_mlm_labels
from hf_xalign.data.entries import TokenEntries
from hf_xalign.data.masking import mask_tokens, masking_vocabulary
from hf_xalign.data.pretraining_collator import PretrainingCollator
from hf_xalign.errors import InputError

# 10 has three translations, 31 translates back to two.
PAIRS = np.array([[10, 30], [11, 31], [10, 32], [12, 31], [33, 10]])
BOTH_WAYS = {10: {30, 32, 33}, 11: {31}, 12: {31}, 30: {10}, 31: {11, 12}, 32: {10}, 33: {10}}
ENTRIES = TokenEntries(PAIRS, "the test")


def make_rows(count, low=8, high=36):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(count):
        first, second = rng.integers(2, 9, size=2).tolist()
        ids = [2, *rng.integers(low, high, size=first), 3, *rng.integers(low, high, size=second), 3]
        bilingual = k % 3 == 0
        rows.append(
            {
                "input_ids": [int(token) for token in ids],
                "languages": ["en", "de"] if bilingual else ["de"],
                "parts": [first + 2, second + 1] if bilingual else [len(ids)],
                "example": 50 + k,
            }
        )
    return rows


def make_collator(**options):
    return PretrainingCollator(make_tokenizer(), **{"seed": 0, **options})


def by_example(collator, rows):
    """Hidden sequence, labels and token types of each row, without padding."""
    batch = collator(rows)
    labels = torch.full(batch["input_ids"].shape, -100)
    labels.view(-1)[batch["mlm_positions"]] = batch["mlm_labels"]
    found = {}
    for k, row in enumerate(rows):
        inside = batch["attention_mask"][k].bool()
        assert inside.sum() == len(row["input_ids"]) and not batch["input_ids"][k][~inside].any()
        assert (labels[k][~inside] == -100).all()
        parts = [batch["input_ids"], labels, *([batch["token_type_ids"]] if "token_type_ids" in batch else [])]
        found[row["example"]] = [part[k][inside].tolist() for part in parts]
    return found


# ---- Translations ----


def test_every_translation_by_hand():
    translations = Translations(PAIRS)
    tokens = np.array([10, 10, 10, 31, 31, 11, 33, 9, 34, 99])
    numbers = np.array([0.0, 0.34, 0.999, 0.49, 0.5, 0.9, 0.0, 0.2, 0.7, 0.99])
    assert translations.draw(tokens, numbers).tolist() == [30, 32, 33, 11, 12, 31, 10, 9, 34, 99]


def test_the_order_of_entries_is_nothing():
    numbers = np.random.default_rng(0).random(200)
    tokens = np.random.default_rng(1).integers(8, 36, size=200)
    drawn = Translations(PAIRS).draw(tokens, numbers)
    assert (Translations(PAIRS[::-1]).draw(tokens, numbers) == drawn).all()
    assert (Translations(PAIRS[:, ::-1]).draw(tokens, numbers) == drawn).all()


# ---- Labels ----


def test_labels_by_hand():
    labels = np.array([[-100, 11, -100, 9, 30], [10, -100, -100, -100, 31]])
    always = dict_mlm_labels(labels, Translations(PAIRS), np.array([4, 7]), seed=0, epoch=0, probability=1.0)
    assert always[0].tolist() == [-100, 31, -100, 9, 10]
    assert always[1, 0] in (30, 32, 33) and always[1, 4] in (11, 12) and (always[1, 1:4] == -100).all()
    never = dict_mlm_labels(labels, Translations(PAIRS), np.array([4, 7]), seed=0, epoch=0, probability=0.0)
    assert (never == labels).all() and never is not labels
    assert labels[0, 1] == 11  # what was given stays


def test_half_of_the_labels_and_each_translation_alike():
    labels = np.tile([10, 11, -100, 31, 9], (4000, 1))
    found = dict_mlm_labels(labels, Translations(PAIRS), np.arange(4000), seed=0, epoch=0)
    assert (found[:, 2] == -100).all() and (found[:, 4] == 9).all()
    for place, token in ((0, 10), (1, 11), (3, 31)):
        changed = found[:, place] != token
        assert abs(changed.mean() - 0.5) < 4 * (0.25 / 4000) ** 0.5
        values, counts = np.unique(found[changed, place], return_counts=True)
        assert set(values) == BOTH_WAYS[token]
        share = 1 / len(values)
        assert (abs(counts / changed.sum() - share) <= 4 * (share * (1 - share) / changed.sum()) ** 0.5).all()
    # Each token by itself: two are changed together as often as by chance.
    both = ((found[:, 0] != 10) & (found[:, 1] != 11)).mean()
    assert abs(both - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5


def test_the_translation_is_drawn_apart_from_the_mask():
    """Masks with probability 1/2 are hidden where a first draw is small; labels must not follow it."""
    tokens = np.full((3000, 6), 11)
    vocabulary = masking_vocabulary(make_tokenizer())
    masked, labels = mask_tokens(tokens, tokens > 0, vocabulary, np.arange(3000), seed=0, epoch=0, probability=0.5)
    found = dict_mlm_labels(labels, Translations(PAIRS), np.arange(3000), seed=0, epoch=0)
    for shown in (masked == 4, masked != 4):
        hidden = shown & (labels != -100)
        share = (found[hidden] == 31).mean()
        assert abs(share - 0.5) < 4 * (0.25 / hidden.sum()) ** 0.5


# ---- Batches ----


def test_batch_by_hand():
    rows = [
        {"input_ids": [2, 10, 11, 3, 30, 3], "languages": ["en", "de"], "parts": [4, 2], "example": 0},
        {"input_ids": [2, 12, 3], "languages": ["de"], "parts": [3], "example": 1},
    ]
    batch = make_collator(language_ids={"de": 1, "en": 2}, mlm_probability=1e-9)(rows)
    assert batch["input_ids"].tolist() == [[2, 10, 11, 3, 30, 3], [2, 12, 3, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]
    assert batch["token_type_ids"].tolist() == [[2, 2, 2, 2, 1, 1], [1, 1, 1, 0, 0, 0]]
    assert len(batch["mlm_positions"]) == len(batch["mlm_labels"]) == 0
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    hidden = make_collator(mlm_probability=1.0, mask_share=1.0, random_share=0.0)(rows)
    assert "token_type_ids" not in hidden
    assert hidden["input_ids"].tolist() == [[2, 4, 4, 3, 4, 3], [2, 4, 3, 0, 0, 0]]
    assert hidden["mlm_positions"].tolist() == [1, 2, 4, 7]
    assert hidden["mlm_labels"].tolist() == [10, 11, 30, 12]
    translated = make_collator(
        mlm_probability=1.0, mask_share=1.0, random_share=0.0, entries=ENTRIES, dict_probability=1.0
    )(rows)
    assert translated["mlm_labels"][1:].tolist() == [31, 10, 31] and translated["mlm_labels"][0] in (30, 32, 33)
    assert all(translated[name].equal(hidden[name]) for name in ("input_ids", "attention_mask", "mlm_positions"))


@pytest.mark.parametrize("entries", [None, ENTRIES])
def test_an_example_is_the_same_in_every_batch(entries):
    rows = make_rows(40)
    options = {"entries": entries, "language_ids": {"de": 0, "en": 1}, "mlm_probability": 0.4, "seed": 7}
    collator = make_collator(**options)
    collator.set_epoch(3)
    whole = by_example(collator, rows)
    other = make_collator(**options)
    other.set_epoch(3)
    split = {}
    for part in np.array_split(np.random.default_rng(1).permutation(40), 7):
        split |= by_example(other, [rows[k] for k in part])
    assert split == whole
    other.set_epoch(4)
    assert by_example(other, rows) != whole


def test_a_dictionary_hides_the_same_tokens_and_changes_only_labels():
    rows = make_rows(300)
    plain, other = make_collator()(rows), make_collator(entries=ENTRIES)(rows)
    assert all(plain[name].equal(other[name]) for name in ("input_ids", "attention_mask", "mlm_positions"))
    changed = plain["mlm_labels"] != other["mlm_labels"]
    known = torch.tensor([int(token) in BOTH_WAYS for token in plain["mlm_labels"]])
    assert changed.any() and not (changed & ~known).any()
    for before, after in zip(
        plain["mlm_labels"][changed].tolist(), other["mlm_labels"][changed].tolist(), strict=True
    ):
        assert after in BOTH_WAYS[before]
    assert abs(changed.sum() / known.sum() - 0.5) < 4 * (0.25 / known.sum()) ** 0.5


def test_evaluation_hides_the_same_each_time_and_knows_no_dictionary():
    rows = make_rows(40)
    collator = make_collator(entries=ENTRIES, dict_probability=1.0, language_ids={"de": 0, "en": 1})
    held_out = collator.for_evaluation()
    first = by_example(held_out, rows)
    collator.set_epoch(5)
    assert by_example(held_out, rows) == first
    assert by_example(make_collator(language_ids={"de": 0, "en": 1}), rows) == first
    assert by_example(collator, rows) != first


def test_workers_and_pickles():
    rows = make_rows(8)
    collator = make_collator(entries=ENTRIES)
    assert by_example(pickle.loads(pickle.dumps(collator)), rows) == by_example(collator, rows)
    loader = DataLoader(rows, batch_size=8, collate_fn=collator, num_workers=1, persistent_workers=True)
    seen = []
    for epoch in range(2):
        collator.set_epoch(epoch)
        (batch,) = loader
        assert batch["input_ids"].equal(collator(rows)["input_ids"])
        seen.append(batch["input_ids"].tolist())
    assert seen[0] != seen[1]


def test_what_cannot_be_masked_is_refused():
    tokenizer = make_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(InputError, match="no mask token"):
        PretrainingCollator(tokenizer, seed=0)
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(InputError, match="no padding token"):
        PretrainingCollator(tokenizer, seed=0)
    with pytest.raises(InputError, match=r"masking probability 1\.5"):
        make_collator(mlm_probability=1.5)
    with pytest.raises(InputError, match=r"dict_probability=1\.5"):
        make_collator(dict_probability=1.5)
