"""Hidden tokens and their batches, of PPA and of pre-training: by hand and against slow loops."""

import pickle

import numpy as np
import pytest
from support.batches import assert_batch, slow_draws, slow_mask
from support.tiny import make_tokenizer, make_two_separator_tokenizer
from torch.utils.data import DataLoader

from hf_xalign.data.batches.masked import PPACollator, PretrainingCollator
from hf_xalign.data.pretraining.entries import TokenEntries
from hf_xalign.data.pretraining.masking import Translations, mask_tokens, masking_vocabulary

LANGUAGES = {"bn": 0, "de": 1}
IDS = {"en": 2, "de": 1}
# 10 has three translations, 31 translates back to two.
PAIRS = np.array([[10, 30], [11, 31], [10, 32], [12, 31], [33, 10]])
BOTH_WAYS = {10: [30, 32, 33], 11: [31], 12: [31], 30: [10], 31: [11, 12], 32: [10], 33: [10]}
ENTRIES = TokenEntries(PAIRS, "the test")


def padded(rows):
    """Return the rows padded with 0, and their mask."""
    width = max(map(len, rows))
    fill = [[0] * (width - len(row)) for row in rows]
    return [row + rest for row, rest in zip(rows, fill)], [[1] * len(row) + rest for row, rest in zip(rows, fill)]


def hidden(labels):
    """Return the positions of the labels in the flattened padded batch, and the labels there."""
    width = max(map(len, labels))
    found = [(k * width + place, label) for k, row in enumerate(labels) for place, label in enumerate(row)]
    return [place for place, label in found if label != -100], [label for _, label in found if label != -100]


# ---- Masks ----


@pytest.mark.numeric
def test_masks_belong_to_the_example_wherever_its_padding_is(tokenizer):
    vocabulary = masking_vocabulary(tokenizer)
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, 100, size=size).tolist() for size in rng.integers(3, 25, size=20)]
    examples = rng.permutation(10_000)[:20]
    expected = [slow_mask(row, int(k), seed=3, epoch=2) for row, k in zip(rows, examples)]
    for left in (False, True):
        parts = [slice(-len(row), None) if left else slice(len(row)) for row in rows]
        input_ids = np.zeros((20, 30), dtype=np.int64)
        for k, row in enumerate(rows):
            input_ids[k, parts[k]] = row
        found = mask_tokens(input_ids, vocabulary.maskable(input_ids), vocabulary, examples, seed=3, epoch=2)
        assert [tuple(side[k, parts[k]].tolist() for side in found) for k in range(20)] == expected


# ---- PPA ----


def make_pairs(n):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(n):
        source, target = (rng.integers(low, low + 55, size=rng.integers(1, 9)).tolist() for low in (5, 56))
        row = {"source_ids": source, "target_ids": target}
        rows.append({**row, "source_lang": "de" if k % 3 else "bn", "pair": 100 + 7 * k})
    return rows


def slow_ppa(rows, between=(3,), seed=0, epoch=0, words="tlm", mlm_probability=0.15):
    swaps = [slow_draws(row["pair"], 1, seed=seed, epoch=epoch, stream=1)[0] < 0.5 for row in rows]
    sides = [("target_ids", "source_ids") if swap else ("source_ids", "target_ids") for swap in swaps]
    queries, keys = ([[2, *row[names[end]], 3] for row, names in zip(rows, sides)] for end in (0, 1))
    batch = {
        "pairs": [row["pair"] for row in rows],
        "language": [LANGUAGES[row["source_lang"]] for row in rows],
        "query_is_target": swaps,
    }
    batch["input_ids"], batch["attention_mask"] = padded(queries)
    batch["key_input_ids"], batch["key_attention_mask"] = padded(keys)
    if words == "none":
        return batch
    numbers = [2 * row["pair"] for row in rows]
    if words == "tlm":
        sentences = [[*query[:-1], *between, *key[1:]] for query, key in zip(queries, keys)]
    else:
        sentences = queries + keys
        numbers = [n + swap for n, swap in zip(numbers * 2, [*swaps, *(not swap for swap in swaps)])]
    options = {"seed": seed, "epoch": epoch, "probability": mlm_probability}
    pairs = [slow_mask(*row, **options) for row in zip(sentences, numbers, strict=True)]
    batch["mlm_input_ids"], batch["mlm_attention_mask"] = padded([masked for masked, _ in pairs])
    batch["mlm_positions"], batch["mlm_labels"] = hidden([labels for _, labels in pairs])
    return batch


def make_ppa(tokenizer=None, **options):
    return PPACollator(tokenizer or make_tokenizer(), **{"languages": LANGUAGES, "seed": 0, **options})


def test_ppa_batches_against_loops():
    """A row's order and masks follow from its own number, so its batch changes nothing."""
    rows = make_pairs(60)
    for options in ({}, {"words": "mlm", "seed": 5}, {"mlm_probability": 0.6}, {"words": "none"}):
        collator = make_ppa(**options)
        for epoch in (0, 3):
            collator.set_epoch(epoch)
            for part in (rows, rows[20:23]):
                assert_batch(collator(part), slow_ppa(part, epoch=epoch, **options))
    no_mask = make_tokenizer()
    no_mask.mask_token = None
    assert_batch(make_ppa(no_mask, words="none")(rows), slow_ppa(rows, words="none"))
    collator = make_ppa(make_two_separator_tokenizer(), seed=5)
    assert_batch(collator(rows), slow_ppa(rows, between=(3, 3), seed=5))
    sides = ("input_ids", "attention_mask", "key_input_ids", "key_attention_mask")
    alone = {name: value for name, value in slow_ppa(rows).items() if name not in sides}
    assert_batch(make_ppa(contrast=False)(rows), alone)


# ---- Dictionaries ----


def test_translations_are_found_both_ways_in_any_order_of_the_entries():
    tokens = np.array([10, 10, 10, 31, 31, 11, 33, 9, 34, 99])
    numbers = np.array([0.0, 0.34, 0.999, 0.49, 0.5, 0.9, 0.0, 0.2, 0.7, 0.99])
    for pairs in (PAIRS, PAIRS[::-1], PAIRS[:, ::-1]):
        found = Translations(pairs).draw(tokens, numbers)
        assert found.tolist() == [30, 32, 33, 11, 12, 31, 10, 9, 34, 99]


def slow_labels(labels, example, seed=0, epoch=0, probability=0.5):
    places = [k for k, label in enumerate(labels) if label != -100]
    draws = iter(slow_draws(example, 2 * len(places), seed=seed, epoch=epoch, stream=2))
    found = list(labels)
    for k, change, pick in zip(places, draws, draws, strict=True):
        options = BOTH_WAYS.get(labels[k], [labels[k]])
        if change < probability:
            found[k] = options[int(pick * len(options))]
    return found


# ---- Pre-training ----


def make_rows(count):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(count):
        first, second = rng.integers(2, 9, size=2).tolist()
        ids = [2, *rng.integers(8, 36, size=first).tolist(), 3, *rng.integers(8, 36, size=second).tolist(), 3]
        languages, parts = (["en", "de"], [first + 2, second + 1]) if k % 3 == 0 else (["de"], [len(ids)])
        rows.append({"input_ids": ids, "languages": languages, "parts": parts, "example": 50 + k})
    return rows


def slow_pretraining(rows, seed=0, epoch=0, language_ids=None, entries=None, dict_probability=0.5, **given):
    numbers = [row["example"] for row in rows]
    options = {"seed": seed, "epoch": epoch, "probability": given.get("mlm_probability", 0.15)}
    pairs = [slow_mask(row["input_ids"], row["example"], **options) for row in rows]
    labels = [labels for _, labels in pairs]
    if entries is not None:
        labels = [slow_labels(row, k, seed, epoch, dict_probability) for row, k in zip(labels, numbers)]
    batch = dict(zip(("input_ids", "attention_mask"), padded([masked for masked, _ in pairs])))
    batch["mlm_positions"], batch["mlm_labels"] = hidden(labels)
    if language_ids is not None:
        spoken = [np.repeat([language_ids[code] for code in row["languages"]], row["parts"]).tolist() for row in rows]
        batch["token_type_ids"] = padded(spoken)[0]
    return batch


def make_pretraining(**options):
    return PretrainingCollator(make_tokenizer(), **{"seed": 0, **options})


def test_pretraining_batches_against_loops():
    """A row's masks and labels follow from its own number, so its batch changes nothing."""
    rows = make_rows(60)
    for options in (
        {},
        {"entries": ENTRIES, "seed": 7},
        {"entries": ENTRIES, "dict_probability": 0.9, "language_ids": IDS, "mlm_probability": 0.6},
    ):
        collator = make_pretraining(**options)
        for epoch in (0, 4):
            collator.set_epoch(epoch)
            for part in (rows, rows[20:23]):
                assert_batch(collator(part), slow_pretraining(part, epoch=epoch, **options))
        held_out = collator.for_evaluation()  # the same tokens in every epoch, and plain labels
        plain = {name: value for name, value in options.items() if "entries" not in name and "dict" not in name}
        assert type(held_out) is PretrainingCollator
        assert_batch(held_out(rows), slow_pretraining(rows, **plain))
        assert_batch(collator(rows), slow_pretraining(rows, epoch=4, **options))
        assert collator._epoch.is_shared()
        assert_batch(pickle.loads(pickle.dumps(collator))(rows), collator(rows))


@pytest.mark.slow
def test_the_epoch_reaches_workers_that_live_on():
    for collator, rows in ((make_ppa(), make_pairs(8)), (make_pretraining(entries=ENTRIES), make_rows(8))):
        loader = DataLoader(rows, batch_size=8, collate_fn=collator, num_workers=1, persistent_workers=True)
        seen = []
        for epoch in range(3):
            collator.set_epoch(epoch)
            (batch,) = loader
            assert_batch(batch, collator(rows))
            seen.append(batch["mlm_labels"].tolist())
        assert seen[0] != seen[1] != seen[2]
