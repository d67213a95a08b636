"""Batches: collators against slow loops and by hand, and seeded orders."""

import itertools
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.batches import assert_batch, slow_draws, slow_mask
from support.tiny import TWO_SEPARATORS, make_links, make_tokenizer
from torch.utils.data import SequentialSampler
from transformers import default_data_collator

from hf_xalign.data.batches.masked import (
    PPACollator,
    PretrainingCollator,
)
from hf_xalign.data.batches.pairs import (
    SIDES,
    CachedLinkCollator,
    CachedVectors,
    PairCollator,
    WordCollator,
    link_rows,
)
from hf_xalign.data.batches.sampling import (
    PairedCollator,
    PairedSampler,
    PairedStreams,
    PairSampler,
    lengths_and_languages,
)
from hf_xalign.data.pretraining.rows import TokenEntries


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
for row, *stored in zip(ROWS, ([0, 11, -1, 12, 13], [18, 19, 20]), ([14, 15, 16, 17], [21, 22, -1, 23, 24, 25])):
    row["source_rows"], row["target_rows"] = stored
NUMBERS = {"en": 0, "de": 1, "nl": 2}
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
    for side, rows in (("target", [14, 15, 21, 22, 23]), ("source", [0, 11, 18])):
        batch = PairCollator(9, regularized_side=side, reference=features)(ROWS)
        assert batch["reference"].dtype == torch.float32
        assert batch["reference"].tolist() == [[vector] for vector in vectors(*rows)]
        assert not {"kept_ids", "kept_mask", "kept_index", "kept_word", "kept_counts"} & set(batch)


def test_a_word_that_was_not_stored_is_an_error(features):
    row = {**ROWS[1], "source_rows": [-1, 19, 20]}
    with pytest.raises(IndexError, match="no stored vector"):
        WordCollator(9, features=features)([row])


def test_rows_of_links():
    dataset = Dataset.from_list(ROWS)
    flat = [(0, 0), (0, 1), (1, 0)]
    names = ("pair", "length", "source_lang", "source_row", "target_row")
    expected = [(0, 1, "de", 0, 15), (0, 1, "de", 11, 14), (1, 1, "nl", 18, 23)]
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


def test_task_batch_comes_with_its_pairs():
    task = [{"label": 5}, {"label": 6}]
    given = default_data_collator(task)
    rows = [(task[0], ROWS[:1]), (task[1], ROWS[1:])]
    pairs = {f"pair_{name}": value for name, value in PairCollator(9)(ROWS).items()}
    assert_batch(PairedCollator(default_data_collator, PairCollator(9))(rows), {**given, **pairs})
    spoken = PairedCollator(default_data_collator, PairCollator(9), language_rows=NUMBERS, pivot="en")
    told = spoken(rows)
    types = [[1] * 6, [2] * 6, [0] * 6, [0] * 6]
    assert_batch(told, {**given, **pairs, "pair_token_type_ids": types})
    assert told["pair_token_type_ids"].is_contiguous()
    assert_batch(spoken([(row, []) for row in task]), given)


# ---- Hidden tokens, of PPA and of pre-training ----


TYPE_IDS = {"en": 2, "de": 1, "nl": 3}
# 10 has three translations, 31 translates back to two.
PAIRS = np.array([[10, 30], [11, 31], [10, 32], [12, 31], [33, 10]])
BOTH_WAYS = {10: [30, 32, 33], 11: [31], 12: [31], 30: [10], 31: [11, 12], 32: [10], 33: [10]}
ENTRIES = TokenEntries(PAIRS, "the test", languages=("en", "de"))
# The same as triples of an English token, a token of the language, and its number in TYPE_IDS.
SPOKEN = [(english, german, 1) for english, german in PAIRS.tolist()]


def padded(rows):
    width = max(map(len, rows))
    fill = [[0] * (width - len(row)) for row in rows]
    return [row + rest for row, rest in zip(rows, fill)], [[1] * len(row) + rest for row, rest in zip(rows, fill)]


def hidden(labels):
    """Return the positions of the labels in the flattened padded batch, and the labels there."""
    width = max(map(len, labels))
    found = [(k * width + place, label) for k, row in enumerate(labels) for place, label in enumerate(row)]
    return [place for place, label in found if label != -100], [label for _, label in found if label != -100]


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
    return PPACollator(tokenizer or make_tokenizer(), **{"seed": 0, **options})


def test_ppa_batches_against_loops():
    rows = make_pairs(60)
    for options in ({}, {"words": "mlm", "seed": 5}, {"mlm_probability": 0.6}, {"words": "none"}):
        collator = make_ppa(**options)
        for epoch in (0, 3):
            collator.set_epoch(epoch)
            for part in (rows, rows[20:23]):
                assert_batch(collator(part), slow_ppa(part, epoch=epoch, **options))
        assert collator._epoch.is_shared()  # with workers that live on
    no_mask = make_tokenizer()
    no_mask.mask_token = None
    assert_batch(make_ppa(no_mask, words="none")(rows), slow_ppa(rows, words="none"))
    collator = make_ppa(make_tokenizer(pair=TWO_SEPARATORS), seed=5)
    assert_batch(collator(rows), slow_ppa(rows, between=(3, 3), seed=5))
    sides = ("input_ids", "attention_mask", "key_input_ids", "key_attention_mask")
    alone = {name: value for name, value in slow_ppa(rows).items() if name not in sides}
    assert_batch(make_ppa(contrast=False)(rows), alone)


def slow_labels(labels, example, seed=0, epoch=0, probability=0.5):
    places = [k for k, label in enumerate(labels) if label != -100]
    draws = iter(slow_draws(example, 2 * len(places), seed=seed, epoch=epoch, stream=2))
    found = list(labels)
    for k, change, pick in zip(places, draws, draws, strict=True):
        options = BOTH_WAYS.get(labels[k], [labels[k]])
        if change < probability:
            found[k] = options[int(pick * len(options))]
    return found


def slow_inputs(row, masked, labels, languages, example, seed=0, epoch=0, probability=0.5):
    """Return inputs and language numbers: a masked token's translation or itself, or else what masking made of it."""
    draws = iter(slow_draws(example, 2 * sum(label != -100 for label in labels), seed=seed, epoch=epoch, stream=2))
    inputs, spoken = list(masked), list(languages)
    for k, token in enumerate(row):
        if labels[k] == -100:
            continue
        change, pick = next(draws), next(draws)
        if change >= probability:
            continue
        pivot = languages[k] == TYPE_IDS["en"]
        options = [(number, other) for one, other, number in SPOKEN if pivot and one == token]
        options += [(2, one) for one, other, number in SPOKEN if other == token and number == languages[k]]
        options = sorted(options) or [(languages[k], token)]
        spoken[k], inputs[k] = options[int(pick * len(options))]
    return inputs, spoken


def make_rows(count):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(count):
        first, second = rng.integers(2, 9, size=2).tolist()
        ids = [2, *rng.integers(8, 36, size=first).tolist(), 3, *rng.integers(8, 36, size=second).tolist(), 3]
        codes = ["en", ("de", "nl")[k % 2]]
        languages, parts = (codes, [first + 2, second + 1]) if k % 3 == 0 else (codes[k % 3 - 1 :][:1], [len(ids)])
        rows.append({"input_ids": ids, "languages": languages, "parts": parts, "example": 50 + k})
    return rows


def slow_pretraining(
    rows, seed=0, epoch=0, language_ids=None, entries=None, dict_mlm="input", dict_probability=0.5, **given
):
    numbers = [row["example"] for row in rows]
    options = {"seed": seed, "epoch": epoch, "probability": given.get("mlm_probability", 0.15)}
    pairs = [slow_mask(row["input_ids"], row["example"], **options) for row in rows]
    inputs, labels = [masked for masked, _ in pairs], [labels for _, labels in pairs]
    draw = (seed, epoch, dict_probability)
    if language_ids is not None:
        spoken = [np.repeat([language_ids[code] for code in row["languages"]], row["parts"]).tolist() for row in rows]
    if entries is not None and dict_mlm == "input":
        given = zip([row["input_ids"] for row in rows], inputs, labels, spoken, numbers)
        inputs, spoken = zip(*(slow_inputs(*one, *draw) for one in given))
    elif entries is not None:
        labels = [slow_labels(row, k, *draw) for row, k in zip(labels, numbers)]
    batch = dict(zip(("input_ids", "attention_mask"), padded(inputs)))
    batch["mlm_positions"], batch["mlm_labels"] = hidden(labels)
    if language_ids is not None:
        batch["token_type_ids"] = padded(spoken)[0]
    return batch


def make_pretraining(**options):
    return PretrainingCollator(make_tokenizer(), **{"seed": 0, **options})


def test_pretraining_batches_against_loops():
    rows = make_rows(60)
    for options in (
        {},
        {"entries": ENTRIES, "seed": 7, "dict_mlm": "label"},
        {"entries": ENTRIES, "seed": 7, "language_ids": TYPE_IDS},
        *(
            {**often, "dict_mlm": kind, "entries": ENTRIES, "language_ids": TYPE_IDS}
            for often in [{"dict_probability": 0.9, "mlm_probability": 0.6}]
            for kind in ("input", "label")
        ),
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


def test_padded_halves_have_the_masks_of_packed_ones_and_positions_of_their_own():
    rows = make_rows(12)
    padded_rows = []
    for row in rows:
        ids, (first, *rest) = row["input_ids"], row["parts"]
        wide = {"input_ids": [*ids[:first], *[0] * (14 - first), *ids[first:]], "parts": [14, *rest]}
        padded_rows.append(row | wide if rest else row)
    options = {"language_ids": TYPE_IDS, "entries": ENTRIES, "first_position": 2}
    found, plain = make_pretraining(**options)(padded_rows), make_pretraining(**options)(rows)
    for k, row in enumerate(rows):
        first, size = row["parts"][0], sum(row["parts"])
        places = [*range(size)] if len(row["parts"]) == 1 else [*range(first), *range(14, 14 + size - first)]
        for name in ("input_ids", "token_type_ids", "attention_mask"):
            assert found[name][k, places].tolist() == plain[name][k, :size].tolist()
        assert found["attention_mask"][k].sum() == size
        halves = [range(size)] if len(row["parts"]) == 1 else [range(first), range(size - first)]
        assert found["position_ids"][k, places].tolist() == [2 + place for half in halves for place in half]
        rest = sorted({*range(found["input_ids"].shape[1])} - {*places})
        assert set(found["position_ids"][k, rest].tolist()) <= {1}
    assert found["mlm_labels"].tolist() == plain["mlm_labels"].tolist() and "position_ids" not in plain


# ---- Seeded orders: grouped by length and balanced over languages ----


LENGTHS = np.random.default_rng(0).integers(3, 60, 1003)
BENGALI = np.arange(1003) >= 800


def sampled(lengths, **settings):
    """Return a sampler of pairs in one language."""
    return PairSampler(np.array(lengths), np.zeros(len(lengths), dtype=np.int16), **settings)


def order(epoch=0, lengths=LENGTHS, **settings):
    sampler = PairSampler(lengths, (~BENGALI).astype(np.int16), **{"step_pairs": 8, "seed": 1, **settings})
    sampler.set_epoch(epoch)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    return indices


def test_every_pair_once_in_a_seeded_order_of_the_epoch():
    for grouped in (True, False):
        first = order(group_by_length=grouped)
        assert sorted(first) == list(range(1003)) and first == order(group_by_length=grouped)
        assert first not in (order(epoch=1, group_by_length=grouped), order(seed=2, group_by_length=grouped))
    assert order(shuffle=False) == list(range(1003))


def test_grouping_saves_padding_and_shuffles_the_steps_of_a_window():
    def longest(indices):
        return [LENGTHS[indices[k : k + 8]].max() for k in range(0, 1000, 8)]

    assert sum(longest(order())) < 0.75 * sum(longest(order(group_by_length=False)))
    means = [LENGTHS[order()[k : k + 8]].mean() for k in range(0, 400, 8)]
    assert means != sorted(means, reverse=True)


def test_every_step_has_its_share_of_each_language():
    """Bengali is a fifth of the pairs, and its sentences are three times as long."""
    indices = order(lengths=np.where(BENGALI, LENGTHS * 3, LENGTHS), step_pairs=20)
    shares = [BENGALI[indices[k : k + 20]].sum() for k in range(0, 1000, 20)]
    assert min(shares) >= 3 and max(shares) <= 6


def test_no_pair_is_always_left_out():
    for sampling in ("proportional", "each"):
        sampler = sampled(range(31), step_pairs=16, multiple=16, language_sampling=sampling)
        orders = [drawn(sampler, epoch) for epoch in range(20)]
        assert {len(order) for order in orders} == {16} and {*np.concatenate(orders)} == set(range(31))


def test_each_language_in_every_step():
    indices = order(language_sampling="each")
    assert len(indices) == 1600
    for start in range(0, 1600, 8):
        assert BENGALI[indices[start : start + 8]].sum() == 4
    counts = Counter(indices)
    assert all(counts[i] == 1 for i in range(800))
    assert {counts[i] for i in range(800, 1003)} == {3, 4}


@pytest.mark.parametrize(("alpha", "shares"), [(1.0, (800, 203)), (0.5, (667, 336)), (0.0, (501, 502))])
def test_temperature_draws_languages_by_a_power_of_their_size(alpha, shares):
    """Steps have their share of each, a short corpus starts again when all of it was drawn, a long one goes on."""
    settings = {"language_sampling": "temperature", "alpha": alpha, "step_pairs": 20}
    indices, later = order(**settings), order(epoch=1, **settings)
    counts, bengali = Counter(indices), sum(index >= 800 for index in indices)
    assert (1003 - bengali, bengali) == shares and indices != later
    assert max(counts[i] for i in range(800)) == 1
    assert {counts[i] for i in range(800, 1003)} <= {shares[1] // 203, -(-shares[1] // 203)}
    if shares[0] < 800:
        assert {i for i in indices if i < 800} != {i for i in later if i < 800}
    steps = [sum(i >= 800 for i in indices[k : k + 20]) / 20 for k in range(0, 1000, 20)]
    assert max(abs(step - shares[1] / 1003) for step in steps) < 0.11


def test_lengths_of_pairs_that_are_encoded_when_read():
    pairs = make_links(24, ["de", "xde"]).select(range(3, 20))
    lengths, languages, names = lengths_and_languages(pairs)
    sides = ((row["source_words"], row["target_words"]) for row in pairs)
    assert lengths.tolist() == [max(len("".join(words)) for words in both) for both in sides]
    assert [names[code] for code in languages] == pairs["source_lang"][:] and names == ["de", "xde"]


TASK = sampled([5] * 10, step_pairs=4, seed=3)


def stream(seed=0):
    return sampled([5] * 7, step_pairs=2, seed=seed)


def drawn(paired, *epochs):
    rows = []
    for epoch in epochs:
        paired.set_epoch(epoch)
        rows += paired
    return rows


def test_the_task_comes_in_its_own_order_whatever_the_streams_seed():
    one, other = (drawn(PairedSampler(TASK, stream(seed=seed), share=0.5), 0) for seed in (0, 1))
    assert [row for row, _ in one] == [row for row, _ in other] == list(TASK)
    assert [pairs for _, pairs in one] != [pairs for _, pairs in other]


def test_the_stream_runs_on_over_epochs_and_resumes():
    paired = PairedSampler(TASK, stream(), share=0.7)
    rows = drawn(paired, 0, 1, 2)
    pairs = [pair for _, some in rows for pair in some]
    assert len(pairs) == 21 and pairs[:7] != pairs[7:14]
    assert all(sorted(pairs[start : start + 7]) == list(range(7)) for start in (0, 7, 14))
    assert drawn(paired, 2) == rows[20:]


def test_a_new_sampler_is_at_epoch_0_and_tells_its_task_the_epoch():
    paired = PairedSampler(sampled([1] * 10, step_pairs=1, seed=0), stream(), share=0.7)
    first = list(paired)
    assert first == drawn(paired, 0)
    assert [row for row, _ in first] != [row for row, _ in drawn(paired, 1)]
    both = PairedStreams(*(Dataset.from_dict({name: range(10)}) for name in "nm"))
    assert len(both) == 10 and both[3, (1, 0)] == ({"n": 3}, [{"m": 1}, {"m": 0}])


def test_a_steps_pairs_are_of_like_length():
    for examples in (24, 22):
        lengths = [10 * (k // 4) + k % 4 for k in range(32)]
        groups = sampled(lengths, step_pairs=4, seed=1, multiple=4)
        paired = PairedSampler(SequentialSampler(range(examples)), groups, share=0.5, step_examples=8)
        epochs = [drawn(paired, epoch) for epoch in range(5)]
        steps = [[k for _, some in rows[n : n + 8] for k in some] for rows in epochs for n in range(0, len(rows), 8)]
        assert {len(step) for step in steps} <= {3, 4}
        assert all(len({lengths[k] // 10 for k in step}) == 1 for step in steps)
        # Eight groups, then all of them again: none is passed over but for pairs that a short step leaves.
        assert {k // 4 for step in steps[:8] for k in step} == set(range(8))
