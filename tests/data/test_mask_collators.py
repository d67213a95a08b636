"""Hidden tokens and their batches, of PPA and of pre-training: by hand and against slow loops."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support.batches import assert_batch, slow_draws, slow_mask
from support.tiny import make_tokenizer, make_two_separator_tokenizer
from torch.utils.data import DataLoader

from hf_xalign.data.batches.masked import PPACollator, PretrainingCollator
from hf_xalign.data.pretraining.dict_mlm import Translations, dict_mlm_labels
from hf_xalign.data.pretraining.entries import TokenEntries
from hf_xalign.data.pretraining.masking import example_draws, mask_tokens, masking_vocabulary

LANGUAGES = {"bn": 0, "de": 1}
IDS = {"en": 2, "de": 1}
# 10 has three translations, 31 translates back to two.
PAIRS = np.array([[10, 30], [11, 31], [10, 32], [12, 31], [33, 10]])
BOTH_WAYS = {10: [30, 32, 33], 11: [31], 12: [31], 30: [10], 31: [11, 12], 32: [10], 33: [10]}
ENTRIES = TokenEntries(PAIRS, "the test")
ALL = {"mlm_probability": 1.0, "mask_share": 1.0, "random_share": 0.0}
NONE = {"mlm_probability": 1e-9}
SHARES = {"mlm_probability": 0.6, "mask_share": 0.3, "random_share": 0.45}


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


def renamed(shares):
    return {name.replace("mlm_", ""): value for name, value in shares.items()}


# ---- Masks ----


@pytest.fixture
def vocabulary(tokenizer):
    return masking_vocabulary(tokenizer)


def hide(input_ids, vocabulary, examples, seed=0, epoch=0, **shares):
    maskable = vocabulary.maskable(input_ids)
    return mask_tokens(input_ids, maskable, vocabulary, examples, seed=seed, epoch=epoch, **shares)


def test_masks_belong_to_the_example_wherever_its_padding_is(vocabulary):
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, 100, size=size).tolist() for size in rng.integers(3, 25, size=20)]
    examples = rng.permutation(10_000)[:20]
    expected = [slow_mask(row, int(k), seed=3, epoch=2) for row, k in zip(rows, examples)]
    for left in (False, True):
        parts = [slice(-len(row), None) if left else slice(len(row)) for row in rows]
        input_ids = np.zeros((20, 30), dtype=np.int64)
        for k, row in enumerate(rows):
            input_ids[k, parts[k]] = row
        found = hide(input_ids, vocabulary, examples, seed=3, epoch=2)
        assert [tuple(side[k, parts[k]].tolist() for side in found) for k in range(20)] == expected


def test_draws_of_another_seed_epoch_or_stream_differ():
    base = {"seed": 0, "epoch": 0, "stream": 0}
    a = example_draws(np.arange(500), 20, **base)
    for name in base:
        b = example_draws(np.arange(500), 20, **{**base, name: 1})
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / len(a) ** 0.5, name
        assert len(np.union1d(a, b)) == 2 * len(a), name


@pytest.mark.numeric
def test_draws_against_a_loop():
    examples = [(12, 3), (0, 0), (2**40, 2)]
    expected = [x for example, count in examples for x in slow_draws(example, count, seed=7, epoch=5, stream=1)]
    draws = example_draws(np.array([12, 0, 2**40]), np.array([3, 0, 2]), seed=7, epoch=5, stream=1)
    assert draws.tolist() == expected


# ---- PPA ----


def make_pairs(n):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(n):
        source, target = (rng.integers(low, low + 55, size=rng.integers(1, 9)).tolist() for low in (5, 56))
        rows.append(
            {"source_ids": source, "target_ids": target, "source_lang": "de" if k % 3 else "bn", "pair": 100 + 7 * k}
        )
    return rows


def slow_ppa(rows, between=(3,), seed=0, epoch=0, order="random", words="tlm", **shares):
    def turned(row):
        return (
            slow_draws(row["pair"], 1, seed=seed, epoch=epoch, stream=1)[0] < 0.5
            if order == "random"
            else order == "target"
        )

    swaps = [turned(row) for row in rows]
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
    pairs = [
        slow_mask(*row, seed=seed, epoch=epoch, **renamed(shares)) for row in zip(sentences, numbers, strict=True)
    ]
    batch["mlm_input_ids"], batch["mlm_attention_mask"] = padded([masked for masked, _ in pairs])
    batch["mlm_positions"], batch["mlm_labels"] = hidden([labels for _, labels in pairs])
    return batch


def make_ppa(tokenizer=None, **options):
    return PPACollator(tokenizer or make_tokenizer(), **{"languages": LANGUAGES, "seed": 0, **options})


def test_ppa_batch_by_hand():
    rows = [
        {"source_ids": [10, 11, 12], "target_ids": [50, 51], "source_lang": "de", "pair": 7},
        {"source_ids": [13], "target_ids": [52, 1, 54, 55], "source_lang": "bn", "pair": 3},
    ]
    sources, targets = [[2, 10, 11, 12, 3], [2, 13, 3, 0, 0]], [[2, 50, 51, 3, 0, 0], [2, 52, 1, 54, 55, 3]]
    expected = {"pairs": [7, 3], "language": [1, 0], "query_is_target": [False, False]}
    expected |= {"input_ids": sources, "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]}
    expected |= {"key_input_ids": targets, "key_attention_mask": [[1, 1, 1, 1, 0, 0], [1] * 6]}
    expected |= {
        "mlm_input_ids": [[2, 4, 4, 4, 3, 4, 4, 3], [2, 4, 3, 4, 1, 4, 4, 3]],
        "mlm_attention_mask": [[1] * 8] * 2,
    }
    expected["mlm_positions"] = [1, 2, 3, 5, 6, 9, 11, 13, 14]
    expected["mlm_labels"] = [10, 11, 12, 50, 51, 13, 52, 54, 55]
    assert_batch(make_ppa(order="source", **ALL)(rows), expected)
    turned = make_ppa(make_two_separator_tokenizer(), order="target", **NONE)(rows)
    assert turned["query_is_target"].tolist() == [True, True]
    assert turned["input_ids"].tolist() == targets and turned["key_input_ids"].tolist() == sources
    joined = [[2, 50, 51, 3, 3, 10, 11, 12, 3], [2, 52, 1, 54, 55, 3, 3, 13, 3]]
    assert turned["mlm_input_ids"].tolist() == joined and turned["mlm_labels"].tolist() == []
    apart = make_ppa(order="target", words="mlm", **NONE)(rows)
    assert apart["mlm_input_ids"].tolist() == [*targets, *(row + [0] * (6 - len(row)) for row in sources)]


def test_ppa_batches_against_loops():
    """A row's order and masks follow from its own number, so its batch changes nothing."""
    rows = make_pairs(60)
    assert_batch(PPACollator(make_tokenizer(), languages=LANGUAGES, seed=0)(rows), slow_ppa(rows))
    for options in (
        {"words": "mlm", "seed": 5},
        {"order": "target", **SHARES},
        {"order": "source", "words": "mlm", **SHARES},
        {"words": "none"},
    ):
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
    alone = {
        name: value
        for name, value in slow_ppa(rows).items()
        if "key" not in name and not name.startswith(("in", "at"))
    }
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


def test_labels_become_translations():
    labels = np.array([[-100, 11, -100, 9, 30], [10, -100, -100, -100, 31]])
    before = labels.copy()
    for options in ({}, {"probability": 0.0}, {"probability": 1.0}):
        found = dict_mlm_labels(labels, Translations(PAIRS), np.array([4, 7]), seed=2, epoch=1, **options)
        assert found.tolist() == [slow_labels(row, k, 2, 1, **options) for row, k in zip(labels.tolist(), (4, 7))]
        assert found is not labels and (labels == before).all()


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


def slow_pretraining(rows, seed=0, epoch=0, language_ids=None, entries=None, dict_probability=0.5, **shares):
    numbers = [row["example"] for row in rows]
    pairs = [slow_mask(row["input_ids"], row["example"], seed=seed, epoch=epoch, **renamed(shares)) for row in rows]
    labels = [labels for _, labels in pairs]
    if entries is not None:
        labels = [slow_labels(row, k, seed, epoch, dict_probability) for row, k in zip(labels, numbers)]
    batch = dict(zip(("input_ids", "attention_mask"), padded([masked for masked, _ in pairs])))
    batch["mlm_positions"], batch["mlm_labels"] = hidden(labels)
    if language_ids is not None:
        spoken = [
            [language_ids[code] for code, n in zip(row["languages"], row["parts"]) for _ in range(n)] for row in rows
        ]
        batch["token_type_ids"] = padded(spoken)[0]
    return batch


def make_pretraining(**options):
    return PretrainingCollator(make_tokenizer(), **{"seed": 0, **options})


def test_pretraining_batch_by_hand():
    rows = [
        {"input_ids": [2, 10, 11, 3, 30, 3], "languages": ["en", "de"], "parts": [4, 2], "example": 0},
        {"input_ids": [2, 12, 3], "languages": ["de"], "parts": [3], "example": 1},
    ]
    mask = {"attention_mask": [[1] * 6, [1, 1, 1, 0, 0, 0]]}
    plain = {"input_ids": [[2, 10, 11, 3, 30, 3], [2, 12, 3, 0, 0, 0]], **mask, "mlm_positions": [], "mlm_labels": []}
    plain["token_type_ids"] = [[2, 2, 2, 2, 1, 1], [1, 1, 1, 0, 0, 0]]
    assert_batch(make_pretraining(language_ids=IDS, **NONE)(rows), plain)
    masked = {"input_ids": [[2, 4, 4, 3, 4, 3], [2, 4, 3, 0, 0, 0]], **mask}
    masked |= {"mlm_positions": [1, 2, 4, 7], "mlm_labels": [10, 11, 30, 12]}
    assert_batch(make_pretraining(**ALL)(rows), masked)
    translated = make_pretraining(entries=ENTRIES, dict_probability=1.0, **ALL)(rows)
    first = translated["mlm_labels"][0].item()
    assert first in BOTH_WAYS[10]
    assert_batch(translated, {**masked, "mlm_labels": [first, 31, 10, 31]})


def test_pretraining_batches_against_loops():
    """A row's masks and labels follow from its own number, so its batch changes nothing."""
    rows = make_rows(60)
    assert_batch(PretrainingCollator(make_tokenizer(), seed=0)(rows), slow_pretraining(rows))
    for options in (
        {"entries": ENTRIES, "seed": 7},
        {"language_ids": IDS, **SHARES},
        {"entries": ENTRIES, "dict_probability": 0.9, "language_ids": IDS, **SHARES},
    ):
        collator = make_pretraining(**options)
        for epoch in (0, 4):
            collator.set_epoch(epoch)
            for part in (rows, rows[20:23]):
                assert_batch(collator(part), slow_pretraining(part, epoch=epoch, **options))


def test_evaluation_hides_the_same_tokens_in_every_epoch_and_has_plain_labels():
    rows = make_rows(40)
    options = {"language_ids": IDS, "seed": 3, **SHARES}
    collator = make_pretraining(entries=ENTRIES, dict_probability=1.0, **options)
    collator.set_epoch(2)
    held_out = collator.for_evaluation()
    collator.set_epoch(5)
    assert type(held_out) is PretrainingCollator
    assert_batch(held_out(rows), slow_pretraining(rows, **options))
    assert_batch(collator(rows), slow_pretraining(rows, epoch=5, entries=ENTRIES, dict_probability=1.0, **options))


def test_collators_survive_pickling():
    for collator, rows in ((make_ppa(seed=2), make_pairs(8)), (make_pretraining(entries=ENTRIES), make_rows(8))):
        collator.set_epoch(1)
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
