"""PPA's batches: sides in random order, TLM and MLM layouts, the same example whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.tiny import make_tokenizer
from tokenizers import processors
from torch.utils.data import DataLoader

from hf_xalign.data.ppa_collator import PPACollator
from hf_xalign.errors import InputError

LANGUAGES = {"bn": 0, "de": 1}


def xlmr_like():
    """The tiny tokenizer with XLM-R's frame: two separators between two sentences."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def make_rows(n):
    """`n` encoded pairs: source tokens are 10 to 49, target tokens 50 to 89."""
    rng = np.random.default_rng(0)
    return [
        {
            "source_ids": rng.integers(10, 50, size=rng.integers(3, 12)).tolist(),
            "target_ids": rng.integers(50, 90, size=rng.integers(3, 12)).tolist(),
            "source_lang": "de" if k % 3 else "bn",
            "pair": 100 + k,
        }
        for k in range(n)
    ]


def make_collator(tokenizer=None, **options):
    return PPACollator(tokenizer or make_tokenizer(), **{"languages": LANGUAGES, "seed": 0, **options})


def unpadded(batch, prefix, row):
    return batch[f"{prefix}input_ids"][row][batch[f"{prefix}attention_mask"][row].bool()].tolist()


def unmasked(batch):
    """The batch's TLM/MLM sequences as they were before masking."""
    ids = batch["mlm_input_ids"].clone()
    ids.view(-1)[batch["mlm_positions"]] = batch["mlm_labels"]
    return {**batch, "mlm_input_ids": ids}


@pytest.mark.parametrize("make", [make_tokenizer, xlmr_like])
def test_layout_by_hand(make):
    rows = [
        {"source_ids": [10, 11, 12], "target_ids": [50, 51], "source_lang": "de", "pair": 0},
        {"source_ids": [13], "target_ids": [52, 53, 54, 55], "source_lang": "bn", "pair": 1},
    ]
    between = [3] if make is make_tokenizer else [3, 3]
    batch = make_collator(make(), order="source", mlm_probability=1e-9)(rows)
    assert batch["input_ids"].tolist() == [[2, 10, 11, 12, 3], [2, 13, 3, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch["key_input_ids"].tolist() == [[2, 50, 51, 3, 0, 0], [2, 52, 53, 54, 55, 3]]
    assert batch["key_attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]
    assert batch["mlm_input_ids"].tolist() == [
        [2, 10, 11, 12, *between, 50, 51, 3],
        [2, 13, *between, 52, 53, 54, 55, 3],
    ]
    assert batch["mlm_attention_mask"].all()
    assert batch["mlm_positions"].tolist() == [] == batch["mlm_labels"].tolist()
    assert batch["query_is_target"].tolist() == [False, False]
    assert batch["pairs"].tolist() == [0, 1] and batch["language"].tolist() == [1, 0]
    turned = make_collator(make(), order="target", mlm_probability=1e-9)(rows)
    assert turned["input_ids"].equal(batch["key_input_ids"]) and turned["key_input_ids"].equal(batch["input_ids"])
    assert unpadded(turned, "mlm_", 0) == [2, 50, 51, *between, 10, 11, 12, 3]
    apart = make_collator(make(), order="target", words="mlm", mlm_probability=1e-9)(rows)
    sequences = [unpadded(apart, "mlm_", row) for row in range(4)]
    assert sequences == [[2, 50, 51, 3], [2, 52, 53, 54, 55, 3], [2, 10, 11, 12, 3], [2, 13, 3]]


def test_order_is_random_and_shared_by_contrast_and_tlm():
    rows = make_rows(2000)
    batch = unmasked(make_collator()(rows))
    turned = batch["query_is_target"].numpy()
    assert abs(turned.sum() - 1000) < 4 * 500**0.5
    for k in range(200):
        query, key = ("target", "source") if turned[k] else ("source", "target")
        assert unpadded(batch, "", k) == [2, *rows[k][f"{query}_ids"], 3]
        assert unpadded(batch, "key_", k) == [2, *rows[k][f"{key}_ids"], 3]
        assert unpadded(batch, "mlm_", k) == [2, *rows[k][f"{query}_ids"], 3, *rows[k][f"{key}_ids"], 3]


def test_masks_of_tlm_and_mlm():
    rows = make_rows(1000)
    text = sum(len(row["source_ids"]) + len(row["target_ids"]) for row in rows)
    for words in ("tlm", "mlm"):
        batch = make_collator(words=words)(rows)
        count = len(batch["mlm_labels"])
        assert abs(count - 0.15 * text) < 4 * (text * 0.15 * 0.85) ** 0.5
        assert batch["mlm_labels"].min() >= 10
        hidden = batch["mlm_input_ids"].view(-1)[batch["mlm_positions"]]
        assert abs((hidden == 4).sum() - 0.8 * count) < 4 * (count * 0.8 * 0.2) ** 0.5
    # The two sides of a pair are drawn apart: equal sides would otherwise be hidden at equal places.
    twins = [{**row, "target_ids": row["source_ids"]} for row in rows]
    batch = make_collator(words="mlm")(twins)
    hidden = torch.zeros(batch["mlm_input_ids"].shape, dtype=torch.bool)
    hidden.view(-1)[batch["mlm_positions"]] = True
    both = (hidden[:1000] & hidden[1000:]).sum().item()
    total = sum(len(row["source_ids"]) for row in rows)
    assert abs(both - 0.15**2 * total) < 4 * (total * 0.15**2) ** 0.5


@pytest.mark.parametrize("words", ["tlm", "mlm"])
def test_an_example_is_the_same_in_every_batch(words):
    rows = make_rows(30)
    collator = make_collator(words=words, seed=5)
    collator.set_epoch(3)

    def by_pair(batch):
        count = len(batch["pairs"])
        sequences = range(len(batch["mlm_input_ids"]))
        found = {int(p): [] for p in batch["pairs"]}
        for k in sequences:
            found[int(batch["pairs"][k % count])].append(
                (unpadded(batch, "mlm_", k), unpadded(unmasked(batch), "mlm_", k))
            )
        for k in range(count):
            found[int(batch["pairs"][k])].append((unpadded(batch, "", k), unpadded(batch, "key_", k)))
        return found

    whole = by_pair(collator(rows))
    order = np.random.default_rng(1).permutation(30)
    other = make_collator(words=words, seed=5)
    other.set_epoch(3)
    split = {}
    for part in np.array_split(order, 4):
        split |= by_pair(other([rows[k] for k in part]))
    assert split == whole
    other.set_epoch(4)
    assert by_pair(other(rows)) != whole


def test_masks_do_not_depend_on_the_contrast():
    """The ablations without MoCo and with it hide the same tokens."""
    rows = make_rows(20)
    batch, alone = make_collator()(rows), make_collator(contrast=False)(rows)
    assert set(batch) - set(alone) == {"input_ids", "attention_mask", "key_input_ids", "key_attention_mask"}
    assert all(batch[name].equal(tensor) for name, tensor in alone.items())
    contrast = make_collator(words="none")(rows)
    assert not [name for name in contrast if name.startswith("mlm_")]
    assert all(batch[name].equal(tensor) for name, tensor in contrast.items())


def test_the_epoch_reaches_workers_that_live_on():
    rows = make_rows(8)
    collator = make_collator()
    loader = DataLoader(rows, batch_size=4, collate_fn=collator, num_workers=1, persistent_workers=True)
    expected = {}
    for epoch in range(3):
        collator.set_epoch(epoch)
        expected[epoch] = collator(rows[:4])["mlm_input_ids"].tolist()
        assert next(iter(loader))["mlm_input_ids"].tolist() == expected[epoch]
    assert expected[0] != expected[1] != expected[2]


def test_without_a_mask_token():
    tokenizer = make_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(InputError, match="no mask token"):
        make_collator(tokenizer)
    assert "input_ids" in make_collator(tokenizer, words="none")(make_rows(2))


def test_bad_shares():
    with pytest.raises(InputError, match=r"masking probability 1\.5"):
        make_collator(mlm_probability=1.5)
