"""Anchors: their sentences, what they average, matched vectors; word2vec's files."""

import gzip
import logging
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.adapters import adapt, make_base
from support.numeric import assert_rounding
from support.text import random_text, slow_cover
from support.tiny import make_encoder, make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.mapping import anchors as averaging
from hf_xalign.mapping import supervision, word2vec
from hf_xalign.mapping.anchors import Anchors, choose_sentences, count_words, make_anchors
from hf_xalign.mapping.supervision import dictionary_vectors, linked_vectors
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec
from hf_xalign.modeling import set_language
from hf_xalign.modeling.word_vectors import extract_word_vectors

TEXT = [*random_text(), "Haus offen", "das Haus, das HAUS", "Haus offen"]
# Operations in float32 around the encoder, which runs in float64: the mean over at most 9 subwords of a word and over
# its occurrences in a sentence, and over 100 sentences; each product with a weight, each sum.
OPERATIONS = 2 * (9 + 100)


def make(folder, texts=TEXT, model=None, tokenizer=None, **settings):
    settings = {"lang": "de", "batch_size": 4, **settings}
    model = make_encoder().double() if model is None else model
    return make_anchors(model, tokenizer or make_tokenizer(), texts, folder=folder, **settings)


def watched(model):
    """The input of each forward pass of `model`, filled as it runs."""
    inputs = []
    model.register_forward_pre_hook(lambda *given: inputs.append(given[-1]["input_ids"]), with_kwargs=True)
    return inputs


def slow_anchors(texts, vocabulary, per_word, layers, pooling, model=None, tokenizer=None):
    """Return each word's vectors of some layers, and its number of sentences, word by word and text by text."""
    pool = {"first": lambda x: x[0], "last": lambda x: x[-1], "mean": lambda x: x.mean(0)}[pooling]
    tokenizer, model = tokenizer or make_tokenizer(), (model or make_encoder().double()).eval()
    found = []  # of each distinct sentence, the vectors of each of its words
    for text in dict.fromkeys(texts):
        words = text.replace(",", " ,").split()
        encoded = tokenizer([words], is_split_into_words=True)
        kept = encoded.input_ids[0]
        if len(kept) > tokenizer.model_max_length:
            kept = [*kept[: tokenizer.model_max_length - 1], kept[-1]]
        with torch.no_grad():
            given = {"input_ids": torch.tensor([kept]), "attention_mask": torch.ones(1, len(kept), dtype=torch.int64)}
            output = model(**given, output_hidden_states=True)
        states = (*output.hidden_states[:-1], output.last_hidden_state)  # a module on top changes the last state alone
        vectors = {}
        for number, word in enumerate(words):
            places = [k for k, owner in enumerate(encoded.word_ids(0)) if owner == number]
            word = word.lower()
            if word in vocabulary and places[-1] < len(kept) - 1:
                here = torch.stack([pool(states[layer][0, places].double()) for layer in layers])
                vectors.setdefault(word, []).append(here)
        found.append({word: torch.stack(each) for word, each in vectors.items()})
    if per_word is None:
        rows = [torch.cat([vectors[word] for vectors in found if word in vectors]) for word in vocabulary]
        return torch.stack([row.mean(0) for row in rows]), list(map(len, rows))
    chosen = [found[k] for k in slow_cover([set(vectors) for vectors in found], per_word)]
    rows = [[vectors[word].mean(0) for vectors in chosen if word in vectors][:per_word] for word in vocabulary]
    return torch.stack([torch.stack(row).mean(0) for row in rows]), [len(row) for row in rows]


@pytest.mark.parametrize(("per_word", "pooling"), [(1, "first"), (3, "last"), (100, "mean"), (None, "mean")])
def test_anchors_by_a_slow_loop(per_word, pooling, tmp_path, monkeypatch):
    monkeypatch.setattr(averaging, "_READ_AT_ONCE", 3)
    monkeypatch.setattr(averaging, "_TOKENIZED_AT_ONCE", 7)
    settings = {"layers": (-1, 0, 1), "pooling": pooling}
    got = make(tmp_path, sentences_per_word=per_word, batch_size=5, **settings)
    assert "haus" in got.words and "Haus" not in got.words and "," not in got.words
    expected, counts = slow_anchors(TEXT, got.words, per_word, (2, 0, 1), pooling)
    assert_rounding(got.vectors, expected, OPERATIONS)
    assert got.counts.tolist() == counts and (per_word is None or max(counts) <= per_word)
    assert got.vectors.dtype == torch.float32 and got.counts.dtype == torch.int64
    assert (got.layers, got.pooling, got.lang) == ((-1, 0, 1), pooling, "de")


def test_words_that_are_cut_off_do_not_count(tmp_path):
    texts = [*random_text(30, seed=1), "the zebra", "the cat the cat the cat the cat the zwiebel"]
    for limit in (6, 10, 512):
        tokenizer = make_tokenizer()
        tokenizer.model_max_length = limit
        got = make(tmp_path, texts, tokenizer=tokenizer)
        assert ("zebra" in got.words, "zwiebel" in got.words) == (limit != 6, limit == 512)
        expected, counts = slow_anchors(texts, got.words, 100, (2,), "mean", tokenizer=tokenizer)
        assert_rounding(got.vectors, expected, OPERATIONS)
        assert got.counts.tolist() == counts
    # The encoder's own limit cuts too.
    assert make(tmp_path, ["kat " * 70 + "hund", "haus"]).words == ["kat", "haus"]


def test_what_is_done_is_read_back(tmp_path):
    model = make_encoder()
    seen = watched(model)
    first = make(tmp_path, model=model, layers=(1, -1))
    seen.clear()
    again = make(tmp_path, Dataset.from_dict({"line": TEXT})["line"], model=model, layers=(1, 2))
    assert not seen and torch.equal(again.vectors, first.vectors)
    assert (first.layers, again.layers) == ((1, -1), (1, 2))
    changes = (
        *({"layers": (1,)}, {"pooling": "last"}, {"sentences_per_word": 2}, {"lang": "en"}),
        *({"max_words": 1}, {"texts": TEXT[1:]}, {"model": make_encoder(seed=1)}),
    )
    for number, change in enumerate(changes, 2):
        make(tmp_path, **{"model": model, "layers": (1, -1), **change})
        assert len(list(tmp_path.glob("*.safetensors"))) == number, change


def test_an_encoder_with_a_module(tmp_path):
    plain = make(tmp_path, model=make_base().double())
    for kind in ("languages", "transformer", "houlsby"):
        model = adapt(make_base().double(), kind, init="random").double()
        got = make(tmp_path, model=model)
        if kind == "languages":
            set_language(model, "de")
        expected, _ = slow_anchors(TEXT, got.words, 100, (-1,), "mean", model=model)
        assert_rounding(got.vectors, expected, OPERATIONS)
        assert (got.vectors - plain.vectors).abs().max() > 1e-2
        with model.disable_adapter():
            assert_rounding(make(tmp_path, model=model).vectors, plain.vectors, OPERATIONS)
        with pytest.raises(InputError, match="ray=auto: an encoder with adapters cannot be sent"):
            make(tmp_path / "ray", model=model, ray="auto")


@pytest.mark.slow
def test_a_ray_cluster_changes_no_bit(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    here = make(tmp_path / "here", layers=(0, 1, -1))
    assert torch.equal(make(tmp_path / "ray", layers=(0, 1, -1), ray="local").vectors, here.vectors)


def some(words=("Haus", "haus", "US", "öffnen", "Istanbul"), **about):
    vectors = torch.randn(len(words), 2, 3, generator=torch.Generator().manual_seed(0))
    return Anchors(list(words), vectors, torch.arange(len(words)), layers=(-2, -1), **about)


def test_lookup_takes_the_word_itself_first_then_another_case():
    found = some().lookup(["haus", "HAUS", "Haus", "us", "US", "Öffnen", "O\u0308ffnen", "kein"])
    assert found.tolist() == [1, 0, 0, 2, 2, 3, 3, -1]
    assert some(lang="tr").lookup(["istanbul", "ıstanbul"]).tolist() == [-1, 4]


def test_save_and_load_are_bitwise(tmp_path):
    made = make(tmp_path / "cache", layers=(0, -1), pooling="last")
    bare = some(["ein Wort\n", "বাংলা"])
    views = replace(bare, vectors=torch.randn(3, 2, 2).permute(2, 1, 0), counts=torch.arange(9)[3:8:4])
    for k, anchors in enumerate((made, bare, views)):
        anchors.save(tmp_path / "new" / f"{k}.safetensors")
        found = Anchors.load(tmp_path / "new" / f"{k}.safetensors")
        assert torch.equal(found.vectors, anchors.vectors) and torch.equal(found.counts, anchors.counts)
        for name in ("words", "layers", "pooling", "lang", "model"):
            assert getattr(found, name) == getattr(anchors, name)
    assert made.model and bare.model is None
    assert len(list((tmp_path / "new").iterdir())) == 3


def test_greedy_choice_by_a_slow_loop():
    odds = 0.5 / np.arange(1, 16)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sentences = [set(np.flatnonzero(rng.random(15) < odds).tolist()) for _ in range(60)]
        offsets, flat = np.cumsum([0, *map(len, sentences)]), np.concatenate([sorted(s) for s in sentences])
        for per_word in (1, 2, 5, 100):
            found = choose_sentences(offsets, flat.astype(np.int64), per_word)
            assert found.tolist() == slow_cover(sentences, per_word), (seed, per_word)


def words_of(counted):
    return [[counted.types[k] for k in counted.words[a:b]] for a, b in pairwise(counted.offsets.tolist())]


def test_words_are_numbered_and_repeated_sentences_left_out():
    decomposed = "o\N{COMBINING DIAERESIS}ffnen"
    counted = count_words(["Das Haus.", f"Datei {decomposed}", "Das Haus.", "", "Datei öffnen", "das Haus"], "de")
    assert words_of(counted) == [["das", "haus", "."], ["datei", "öffnen"], [], ["das", "haus"]]
    assert counted.rows.tolist() == [0, 1, 3, 5] and len(counted) == 4
    assert counted.split(np.array([1, 3])) == [["Datei", "öffnen"], ["das", "Haus"]]
    # Lower case is the language's; given words are not split again.
    assert words_of(count_words([["New York", "IŞIK"], ["new york"]], "az")) == [["new york", "ışık"], ["new york"]]
    assert words_of(count_words(["IŞIK ışık"], "tr")) == [["ışık", "ışık"]]


def test_vocabulary_is_the_most_frequent_words_with_a_letter():
    counted = count_words(["b a . 7", "b c . 7", "B c 3d হিঁ . 7"], "en")
    for size, words in ((9, ["b", "c", "a", "3d", "হিঁ"]), (2, ["b", "c"])):
        assert [counted.types[k] for k in counted.vocabulary(size)] == words


# ---- Matched vectors of links and of dictionaries, and word2vec's text format ----


def test_linked_words_as_in_a_loop_without_those_cut_off_on_either_side(encoder, tokenizer, aligned, monkeypatch):
    encoder = encoder.double()
    for max_length, longer, pooling, at_a_time in ((8, "source", "first", 3), (10, "target", "mean", 100)):
        monkeypatch.setattr(supervision, "_PAIRS", at_a_time)
        settings = {"layers": (1, -1), "pooling": pooling, "max_length": max_length}
        # Two words before the sentence on one side, so that it loses words that the other keeps.
        shift = torch.tensor([2, 0] if longer == "source" else [0, 2])
        column, rows = f"{longer}_words", aligned.to_list()
        for row in rows:
            row |= {column: ["the", "the", *row[column]], "links": (torch.tensor(row["links"]) + shift).tolist()}
        text = Dataset.from_list(rows)
        vectors, lost = [], 0
        for row in text:
            source, target = (
                extract_word_vectors(encoder, tokenizer, [row[f"{side}_words"]], **settings)
                for side in ("source", "target")
            )
            for i, j in row["links"]:
                lost += bool(source.present[i] != target.present[j])
                if source.present[i] and target.present[j]:
                    vectors.append((source.vectors[i], target.vectors[j]))
        found = linked_vectors(encoder, tokenizer, text, **settings)
        assert lost and len(found.source) == len(vectors)
        for side, wanted in zip(found, zip(*vectors, strict=True), strict=True):
            # The encoder runs in float64; a vector is rounded to float32 once.
            assert_rounding(side, torch.stack(wanted), operations=1)


def test_entries_with_both_anchors():
    source, target = (
        Anchors(words, torch.randn(3, 1, 4), torch.ones(3, dtype=torch.int64), lang=lang)
        for words, lang in ((["Haus", "katze", "hund"], "de"), (["house", "dog", "tree"], "en"))
    )
    entries = [("haus", "house"), ("haus", "house"), ("katze", "cat"), ("baum", "tree"), ("hund", "dog")]
    found = dictionary_vectors(entries, source, target)
    assert torch.equal(found.source, source.vectors[[0, 2]])
    assert torch.equal(found.target, target.vectors[[0, 1]])


def test_round_trip_is_bitwise(tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", 3)
    vectors = torch.randn(7, 2, 5, generator=torch.Generator().manual_seed(0)) * torch.logspace(-30, 30, 5)
    vectors[0, :, 0] = torch.tensor([0.1, 1 / 3])
    vectors[1, :, 0] = math.ldexp(1.0, -149)  # the smallest float32
    vectors[2] = 0.0
    words = ["wort", "öffnen", "হিঁ", "l·l", "w0", "w1", "w2"]
    anchors = Anchors(words, vectors, torch.ones(7, dtype=torch.int64), (-2, -1), "mean", "de")
    for name, layer in (("one/a.vec", -1), ("two/a.vec.gz", -2), ("new/deep/a.txt", -2)):
        path = tmp_path / name
        write_word2vec(anchors, path, layer)
        found = read_word2vec(path, lang="de")
        assert found.words == words and found.lang == "de" and found.layers == (-1,)
        assert found.vectors.dtype == torch.float32
        assert torch.equal(found.vectors[:, 0], vectors[:, anchors.layers.index(layer)])
        assert found.counts.tolist() == [0] * 7
        assert list(path.parent.iterdir()) == [path]
    write_word2vec(Anchors(["a", "b"], torch.tensor([[[0.5, -2.0]], [[0.1, 1e20]]]), torch.ones(2)), tmp_path / "v")
    assert (tmp_path / "v").read_text() == "2 2\na 0.5 -2\nb 0.100000001 1.00000002e+20\n"


def test_reads(tmp_path):
    for text, words in [
        ("2 3\na 1 2 3\nb 4 5 6\n", ["a", "b"]),
        ("2 3\r\na 1 2 3 \r\nb 4 5 6 \r\n", ["a", "b"]),  # as the first word2vec wrote rows, and on Windows
        ("a 1 2 3\nb 4 5 6", ["a", "b"]),  # GloVe
        ("3 1 2 3\nb 4 5 6", ["3", "b"]),
        ("2 3\na\u2028\u0085 1 2 3\nb\xa0c 4 5 6\n", ["a\u2028\u0085", "b\xa0c"]),
        ("2 3\nA\u030a 1 2 3\nb 4 5 6\n", ["Å", "b"]),
        ("2\t3\nнебо\t1\t2\t3\nрічка\t4 5 6\n", ["небо", "річка"]),
    ]:
        for name in ("v", "text.bin"):
            (tmp_path / name).write_bytes(text.encode())
            found = read_word2vec(tmp_path / name)
            assert found.words == words, text
            assert found.vectors.tolist() == [[[1, 2, 3]], [[4, 5, 6]]], text


def test_bad_rows_are_counted_and_left_out(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", 2)
    good, bad = b"w%d 1 2\n", [b"c 1 2 3\n", b"c 1  2\n", b"c 1 x\n", b"c 1 nan\n", b"\xe4 1 2\n", b" 1 2\n", b"c\n"]
    rows = [row for k, fault in enumerate(bad) for row in (good % k, fault)]
    (tmp_path / "v").write_bytes(b"%d 2\n" % len(rows) + b"".join(rows))
    with caplog.at_level(logging.WARNING):
        found = read_word2vec(tmp_path / "v")
        assert read_word2vec(tmp_path / "v", limit=3).words == ["w0", "w1", "w2"]
    assert found.words == [f"w{k}" for k in range(7)] and found.vectors.flatten(1).tolist() == [[1, 2]] * 7
    assert "7 of 14 rows are bad and left out; the first is row 3: 4 fields, 'c 1 2 3'" in caplog.records[0].message
    assert len(caplog.records) == 2  # one for each file that was read


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_binary_files_of_word2vec(tmp_path, caplog, monkeypatch, end):
    monkeypatch.setattr(word2vec, "_ROWS", 2)
    rows = [("Haus", [1, 0.5]), ("o\u0308l", [0, 2]), ("x", [float("nan"), 1]), ("Haus", [3, 4]), ("a\xa0b", [5, 6])]
    content = b"6 2\n" + b"".join(w.encode() + b" " + np.array(v, "<f4").tobytes() + end for w, v in rows)
    content += b"\xff " + np.zeros(2, "<f4").tobytes() + end
    # The content says whether a file is binary.
    for name in ("v.bin", "v.bin.gz", "w2v.model", "w2v.vec"):
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        found = read_word2vec(tmp_path / name)
        assert found.words == ["Haus", "\xf6l", "a\xa0b"]
        assert found.vectors[:, 0].tolist() == [[1, 0.5], [0, 2], [5, 6]]
    assert "2 of 6 rows are bad and left out; the first is row 3: not all fields of 'x'" in caplog.text
    assert "1 rows of repeated words are ignored" in caplog.text  # the first row of a word counts


def test_a_word_with_a_blank_in_a_binary_file_is_named(tmp_path):
    rows = [("a", [1.0, 0.5]), ("New York", [0.25, 2.0]), ("b", [1.5, 0.0])]
    for name, order in {"inside": rows, "last": [rows[0], rows[2], rows[1]]}.items():
        content = b"3 2\n" + b"".join(word.encode() + b" " + np.float32(v).tobytes() + b"\n" for word, v in order)
        (tmp_path / f"{name}.bin").write_bytes(content)
        with pytest.raises(InputError, match="a word ends at its first blank, so a word with a blank"):
            read_word2vec(tmp_path / f"{name}.bin")
