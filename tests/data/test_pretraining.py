"""Rows of text and sentence pairs as token ids: packing against a loop, framing, cutting, filters and their counts."""

import logging

import numpy as np
import pytest
from datasets import Dataset
from support.tiny import make_tokenizer, make_two_separator_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, PreTrainedTokenizerFast

from hf_xalign.data.pretraining.entries import ENTRIES_FILE, TokenEntries
from hf_xalign.data.pretraining.rows import TextCounts, encode_pretraining
from hf_xalign.data.sentence_pairs import PairCounts, count_tokens, encode_sentence_pairs, sentence_frame

CONFIG = BertConfig(max_position_embeddings=64)
COUNTERPARTS = np.stack([np.arange(5, 105), np.arange(105, 205)], axis=1)
WORDS = [("house", "haus"), ("cat", "kat"), ("dog", "hund"), ("the", "der"), ("opening", "da"), ("dog", "漢")]
WORDS += [("漢字", "opening"), ("open file", "da"), ("house", "house"), ("Cat", "KAT"), ("cat", "da")]
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


def test_words_are_tokenized_as_they_are_split(tokenizer):
    words = [["the", "cat-dog"], [], ["haus", "öffnen"]]
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
def test_pair_rows_are_those_the_tokenizer_makes(make):
    """Rooms of 14 tokens a side, of what the special tokens leave; of each language one pair does not fit."""
    tokenizer, specials = make(), 3 if make is make_tokenizer else 4
    sizes = [(int(s), int(t)) for s, t in np.random.default_rng(2).integers(1, 9, size=(60, 2))]
    sizes[5], sizes[6] = (15, 3), (0, 2)
    bitext = pairs(*sizes, languages=("de", "bn"))
    options = {"block_size": 29 + specials, "pairs": bitext, "pair_share": 9.0}
    rows, counts = encode_pretraining({"en": random_text(100)}, tokenizer, CONFIG, **options)
    assert rows["example"][:] == list(range(len(rows)))
    for code in ("de", "bn"):
        own = [row for row in bitext if row["source_lang"] == code and 0 < len(row["source"].split()) < 15]
        left = [row for row in rows if row["source_lang"] == f"en+{code}"]
        expected = [("", "")]
        for row in own:
            added = zip(expected[-1], (row["target"], row["source"]), strict=True)
            longer = tuple(f"{side} {more}".strip() for side, more in added)
            if max(len(side.split()) for side in longer) <= 14:
                expected[-1] = longer
            else:
                expected.append((row["target"], row["source"]))
        assert [row["input_ids"] for row in left] == [tokenizer(*sides).input_ids for sides in expected]
        parts = [[len(target.split()) + specials - 1, len(source.split()) + 1] for target, source in expected]
        assert [(row["parts"], row["languages"]) for row in left] == [(own, ["en", code]) for own in parts]
        tokens = sum(len(row[side].split()) for row in own for side in ("source", "target"))
        assert counts[f"en+{code}"] == TextCounts(30, 1, 0, len(left), tokens)


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
        languages = {"source_lang": "de", "target_lang": "en"}
        assert row == {**ids, "length": sum(map(len, ids.values())), **languages, "pair": number}
    assert counts == {"de": PairCounts(2, 0, 0)}


def test_filters_of_the_paper(caplog):
    """Just long enough, just short enough, and too short on one side counted before too long."""
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    sizes = ((9, 20), (20, 9), (10, 10), (120, 9), (64, 64), (118, 10), (64, 65), (0, 30))
    with caplog.at_level(logging.INFO):
        encoded, counts = encode_sentence_pairs(pairs(*sizes, languages=("de", "bn")), tokenizer)
    assert encoded["pair"][:] == [2, 4, 5] and encoded["length"][:] == [20, 128, 128]
    assert counts == {"bn": PairCounts(kept=1, short=3, long=0), "de": PairCounts(kept=2, short=1, long=1)}
    assert "bn: 3 short, 0 long of 4; de: 1 short, 1 long of 4" in caplog.text


def test_the_models_limit_holds_and_numbers_do_not_move_with_the_filters(tokenizer):
    """The tiny tokenizer takes 64 tokens, 3 of them special."""
    encoded, counts = encode_sentence_pairs(pairs((30, 31), (31, 31)), tokenizer)
    assert encoded["length"][:] == [61] and counts["de"].long == 1
    encoded, _ = encode_sentence_pairs(pairs(*((k, 10) for k in range(1, 15))), tokenizer, min_tokens=9)
    assert encoded["pair"][:] == [length - 11 for length in encoded["length"]] == list(range(8, 14))


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


# ---- Token entries ----


def test_a_share_of_the_counterparts():
    entries = TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=3)
    assert len(entries) == 25 and entries.origin == "25 of 100 pieces of a derived vocabulary"
    assert (entries.ids[:, 1] - entries.ids[:, 0] == 100).all() and (np.diff(entries.ids[:, 0]) > 0).all()
    assert (TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=4).ids != entries.ids).any()
    larger = TokenEntries.from_counterparts(COUNTERPARTS, share=0.5, seed=3)
    assert len(larger) == 50 and set(entries.ids[:, 0]) < set(larger.ids[:, 0])


def test_single_pieces_and_why_others_are_left_out(tokenizer):
    entries = TokenEntries.from_dictionary(WORDS, tokenizer, name="en-xx.txt")
    pieces = [tuple(tokenizer.convert_ids_to_tokens(row)) for row in entries.ids]
    assert pieces == [("house", "haus"), ("cat", "kat"), ("dog", "hund"), ("cat", "da")]
    assert entries.dropped == {"repeated": 1, "same_piece": 1, "several_pieces": 3, "unknown": 2}
    assert entries.origin == "en-xx.txt: 4 of the 4 entries with one piece a word, of 11 of words"
    half = TokenEntries.from_dictionary(WORDS, tokenizer, share=0.5, seed=1)
    assert len(half) == 2 and {tuple(row) for row in half.ids} < {tuple(row) for row in entries.ids}


def test_pieces_are_those_at_the_start_of_a_word():
    """`b` is `▁`, `b`; `ab` two pieces; `og` is `Ġo`, `g`."""
    pieces = ["<pad>", "<unk>", "▁", "▁the", "the", "▁das", "das", "▁a", "b", "▁b"]
    scores = [0.0, 0.0, -9.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -20.0]
    unigram = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=1))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    vocabulary = ["[PAD]", "Ġ", "d", "o", "g", "Ġd", "og", "Ġdog", "dog", "Ġo"]
    merges = [("Ġ", "d"), ("o", "g"), ("Ġd", "og"), ("d", "og"), ("Ġ", "o")]
    bytes_ = Tokenizer(models.BPE({piece: k for k, piece in enumerate(vocabulary)}, merges))
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for backend, names, words, expected in (
        (unigram, {"unk_token": "<unk>"}, [("the", "das"), ("b", "a"), ("ab", "the")], ["▁the", "▁das"]),
        (bytes_, {"pad_token": "[PAD]"}, [("dog", "o"), ("og", "dog")], ["Ġdog", "Ġo"]),
    ):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
        entries = TokenEntries.from_dictionary(words, tokenizer)
        assert [tokenizer.convert_ids_to_tokens(row) for row in entries.ids] == [expected]
        assert entries.dropped == {"several_pieces": len(words) - 1}


def test_same_after_saving(tmp_path):
    words = TokenEntries.from_dictionary(WORDS, make_tokenizer(), name="wörter.txt", share=0.75, seed=2)
    for entries in (TokenEntries.from_counterparts(COUNTERPARTS, seed=8), words):
        path = entries.save(tmp_path / "model")
        assert [file.name for file in path.parent.iterdir()] == [ENTRIES_FILE]
        again = TokenEntries.load(tmp_path / "model", vocab_size=entries.ids.max() + 1)
        assert again.ids.dtype == np.int64 and np.array_equal(again.ids, entries.ids)
        for name in ("origin", "share", "seed", "dropped"):
            assert getattr(again, name) == getattr(entries, name)
