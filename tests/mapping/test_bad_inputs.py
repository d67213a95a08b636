"""Tables of what the maps, the methods that learn them, anchors, and mapped encoders refuse, and in which words."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import partial
from importlib import import_module

import pytest
import torch
from datasets import Dataset, concatenate_datasets
from peft import get_peft_model
from safetensors.torch import save_file
from support.adapters import make_base
from support.maps import make_map, make_maps, make_rotated, normal, run
from support.refusals import assert_refused
from support.tiny import make_encoder, make_multilingual_encoder, make_tokenizer
from support.vocabularies import languages
from transformers import AutoModelForSequenceClassification

from hf_xalign.mapping import supervision, word2vec
from hf_xalign.mapping.align_matrix import map_adapter
from hf_xalign.mapping.anchors import Anchors, make_anchors
from hf_xalign.mapping.checks import check_vectors, matched
from hf_xalign.mapping.cover import as_sequence, count_words
from hf_xalign.mapping.induction import induce_dictionary
from hf_xalign.mapping.maps import LanguageMap, SideMap
from hf_xalign.mapping.procrustes import least_squares, procrustes
from hf_xalign.mapping.rcsls import rcsls
from hf_xalign.mapping.refinement import refine
from hf_xalign.mapping.rotated import RotatedModel
from hf_xalign.mapping.supervision import dictionary_vectors, linked_vectors
from hf_xalign.mapping.vecmap import vecmap
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec
from hf_xalign.modeling import XAlignConfig, set_language

# The package has the function under the name of its module.
learn = import_module("hf_xalign.mapping.self_learning").self_learning


def with_value(vectors, row, value):
    vectors = vectors.clone()
    vectors[row].view(-1)[1] = value
    return vectors


def table_of(call, rows):
    """The rows of a table whose calls differ in some settings: {name: (settings, message)}."""
    return {name: (partial(call, **settings), message) for name, (settings, message) in rows.items()}


# --- the map object --------------------------------------------------------------------------------------------------


def side(steps=(), layers=2, out=4, size=4, seed=0):
    means = tuple(normal(layers, size, seed=seed + 2) for _ in range(steps.count("centre")))
    return SideMap(normal(layers, out, size, seed=seed), normal(layers, out, seed=seed + 1), steps, means)


def test_maps():
    one = LanguageMap(side(out=3), side(out=3, size=5, seed=7), layers=(-2, -1))
    shapes = r"source vectors .* for floats of shape \(n, 2, 4\), layers \(-2, -1\)"
    flat = side(seed=7)
    flat.weight[1, 2] = 2 * flat.weight[1, 1]
    onto_flat = LanguageMap(side(), flat, layers=(0, 1))
    lengths = side(("unit",))
    three = LanguageMap(side(layers=3), layers=(-3, -2, -1))
    table = {
        "source vectors of the other size": (lambda: one.project(normal(5, 2, 3)), shapes),
        "another number of layers": (lambda: one.project(normal(5, 3, 4)), shapes),
        "no layers": (lambda: one.project(normal(5, 4)), shapes),
        "one vector": (lambda: one.project(normal(4)), shapes),
        "integers": (lambda: one.project(torch.ones(5, 2, 4, dtype=torch.long)), shapes),
        "target vectors": (lambda: one.project(normal(5, 2, 4), "target"), r"target vectors .* \(n, 2, 5\)"),
        "target without a map": (
            lambda: replace(one, target=None).project(normal(5, 2, 4), "target"),
            r"target vectors .* \(n, 2, 3\)",
        ),
        "layers of the matrices": (lambda: LanguageMap(side()), "2 matrices need as many layers"),
        "a target of one layer": (
            lambda: LanguageMap(side(), side(layers=1, seed=7), layers=(0, 1)),
            "both sides need as many layers",
        ),
        "a target of other size": (
            lambda: LanguageMap(side(), side(out=3, seed=7), layers=(0, 1)),
            "both sides need as many layers",
        ),
        "inverse of a rectangle": (
            lambda: LanguageMap(side(out=3), layers=(0, 1)).inverse(),
            "from 4 to 3 dimensions has no inverse",
        ),
        "inverse of a singular matrix": (lambda: LanguageMap(flat, layers=(0, 1)).inverse(), "singular"),
        "apply onto a singular side": (lambda: onto_flat.apply(normal(5, 2, 4)), "singular"),
        "affine onto a singular side": (onto_flat.affine, "singular"),
        "lengths of the source": (
            LanguageMap(lengths, side(seed=7), layers=(0, 1)).affine,
            "divides vectors by their length",
        ),
        "lengths of the target": (
            LanguageMap(side(), lengths, layers=(0, 1)).affine,
            "divides vectors by their length",
        ),
        "a layer it has not": (lambda: three.of([0]), r"layers \(-3, -2, -1\) has none for layer 0"),
    }
    assert_refused(table)


def some_anchors(words=("Haus", "haus"), layers=(-2, -1), **about):
    return Anchors(list(words), normal(len(words), len(layers), 3).float(), torch.arange(len(words)), layers, **about)


@pytest.mark.parametrize(
    ("kind", "save", "load", "writer"),
    [
        (
            "maps",
            lambda path: LanguageMap(side(("centre",)), layers=(0, 1)).save(path),
            LanguageMap.load,
            "LanguageMap",
        ),
        ("anchors", lambda path: some_anchors().save(path), Anchors.load, "Anchors"),
    ],
    ids=["maps", "anchors"],
)
def test_files(kind, save, load, writer, tmp_path):
    paths = {name: tmp_path / name for name in ("cut", "text", "foreign", "other", "newer")}
    save(paths["cut"])
    paths["cut"].write_bytes(paths["cut"].read_bytes()[:-8])
    paths["text"].write_text("de 0.1 0.2")
    tensors = {"source.weight": normal(1, 4, 4)}
    save_file(tensors, paths["foreign"], {"format": "pt"})
    save_file(tensors, paths["other"])
    save_file(
        tensors,
        paths["newer"],
        {"format": f"hf_xalign.{kind.removesuffix('s') if kind == 'maps' else kind}", "version": "2"},
    )
    foreign = rf"no {kind} of this library; they are written by {writer}\.save"
    table = {
        "missing": (lambda: load(tmp_path / "none"), f"none: no {kind} that could be read"),
        "folder": (lambda: load(tmp_path), f"no {kind} that could be read"),
        "cut": (lambda: load(paths["cut"]), f"{paths['cut']}: no {kind} that could be read"),
        "text": (lambda: load(paths["text"]), f"{paths['text']}: no {kind} that could be read"),
        "foreign": (lambda: load(paths["foreign"]), f"foreign: {foreign}"),
        "without metadata": (lambda: load(paths["other"]), f"other: {foreign}"),
        "newer": (lambda: load(paths["newer"]), f"newer: {kind} in version 2 of this library's format"),
    }
    assert_refused(table)


# --- methods ---------------------------------------------------------------------------------------------------------


def test_vectors_of_one_language_and_of_two():
    def check(*shape, **of):
        return lambda: check_vectors(torch.ones(*shape, **of), "some", normal(9, 1, 4))

    table = {
        "pairs": (
            lambda: matched(normal(5, 4), normal(4, 4), (0,)),
            "5 source vectors of 1 layers for 4 target vectors of 1: they are to be matched one by one",
        ),
        "layers of one side": (
            lambda: matched(normal(5, 2, 4), normal(5, 4), (0, 1)),
            "2 layers for 5 target vectors of 1",
        ),
        "layers": (
            lambda: matched(normal(5, 2, 4), normal(5, 2, 4), (7,)),
            r"layers=\(7,\): the vectors are of 2 layers",
        ),
        "empty": (lambda: matched(normal(5, 4), normal(0, 4), (0,)), r"target vectors: shape \(0, 4\) is empty"),
        "one vector": (lambda: matched(normal(4), normal(4), (0,)), "source vectors: expected floats of shape"),
        "one dimension": (check(4), "some: expected floats"),
        "four dimensions": (check(1, 1, 1, 4), "some: expected floats"),
        "integers": (check(5, 4, dtype=torch.long), "some: .*got torch.int64"),
        "no words": (check(0, 4), "some: .*is empty"),
        "no numbers": (check(5, 0), "some: .*is empty"),
        "size": (check(5, 3), r"some: shape \(5, 3\) for matched vectors of 1 layers and 4 dimensions"),
        "layers of the pairs": (check(5, 2, 4), "some: .*for matched vectors of 1 layers"),
    }
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for value in (float("nan"), float("inf"), float("-inf")):
            bad = with_value(with_value(normal(5, 2, 4, dtype=dtype), 4, value), 3, value)
            message = r"some words: row 3 \(of 5\) holds NaN or infinity: check the model"
            table[f"{value} in {dtype}"] = (partial(check_vectors, bad, "some words"), message)
    assert_refused(table)


def test_closed_forms_and_vecmap():
    source, target = normal(40, 6), normal(40, 6, seed=1)
    call = partial(vecmap, source, target)
    nan = with_value(source, 17, torch.nan)
    table = table_of(
        call,
        {
            "step": ({"steps": ("unit", "scale")}, "'scale' is not known"),
            "reweight": ({"reweight": -0.5}, "reweight=-0.5"),
            "reweight nan": ({"reweight": float("nan")}, "reweight=nan"),
            "layers": ({"layers": (1, 2)}, r"layers=\(1, 2\): the vectors are of 1 layers"),
            "source candidates' size": (
                {"source_candidates": torch.ones(9, 5)},
                r"source candidates: shape \(9, 5\) for matched vectors of 1 layers and 6",
            ),
            "target candidates' layers": (
                {"target_candidates": torch.ones(9, 2, 6)},
                r"target candidates: shape \(9, 2, 6\) for matched vectors of 1 layers",
            ),
            "no candidates": ({"target_candidates": torch.ones(0, 6)}, r"target candidates: shape \(0, 6\) is empty"),
            "integers": ({"source_candidates": torch.ones(9, 6).long()}, "source candidates: expected floats"),
            "nan": ({"source_candidates": torch.full((9, 6), torch.nan)}, r"source candidates: row 0 \(of 9\)"),
        },
    )
    few = torch.arange(40) % 5
    table |= {
        "nan in vecmap": (lambda: vecmap(source, nan), r"target vectors: row 17 \(of 40\)"),
        "fewer pairs than dimensions": (
            lambda: vecmap(source[:5], target[:5]),
            r"5 pairs are fewer than the 6 dimensions.*whiten=False, the orthogonal",
        ),
        "fewer different vectors": (
            lambda: vecmap(source, target[few]),
            r"only 5 of the 40 target vectors are different.* 6 dimensions.*whiten=False",
        ),
    }
    for solve in (procrustes, least_squares):
        table |= {
            f"nan in {solve.__name__}": (partial(solve, nan, target), "source vectors: row 17"),
            f"pairs of {solve.__name__}": (partial(solve, source[1:], target), "matched one by one"),
            f"layers of {solve.__name__}": (
                partial(solve, normal(40, 3, 6), normal(40, 3, 6)),
                r"layers=\(-1,\): the vectors are of 3 layers",
            ),
        }
    assert_refused(table)


def test_rcsls():
    events = []
    given = {name: normal(12, 8, seed=k) for k, name in enumerate(("source", "target"))}
    given |= {f"{name}_candidates": vectors for name, vectors in given.items()}

    def call(**settings):
        return rcsls(**{**given, "k": 3, "callback": lambda *event: events.append(event), **settings})

    rows = {
        "k": ({"k": 0}, "k=0"),
        "k above the candidates": ({"k": 13}, "only 12 source candidates; use a smaller k"),
        "epochs": ({"epochs": -1}, "epochs=-1"),
        "learning rate": ({"learning_rate": 0.0}, "learning_rate=0.0: give at least 0.0001"),
        "learning rate nan": ({"learning_rate": float("nan")}, "learning_rate=nan"),
        "chunk": ({"chunk": 0}, "chunk=0"),
        "last step": ({"steps": ("unit", "centre")}, "end in 'unit'"),
        "no steps": ({"steps": ()}, "end in 'unit'"),
        "step": ({"steps": ("whiten", "unit")}, "whiten"),
        "no candidates": ({"source_candidates": torch.zeros(0, 8)}, r"source candidates: shape \(0, 8\) is empty"),
        "candidates' size": (
            {"target_candidates": torch.ones(20, 9)},
            r"target candidates: .*\(20, 9\).* 8 dimensions",
        ),
        "integers": (
            {"target_candidates": torch.ones(20, 8).long()},
            "target candidates: expected floats .* got torch.int64",
        ),
        "candidates' layers": ({"source_candidates": torch.ones(20, 2, 8)}, "1 layers"),
        "layers": ({"layers": (1, 2)}, r"layers=\(1, 2\): the vectors are of 1 layers"),
    }
    for name, vectors in given.items():
        message = f"{name.replace('_', ' ')}.* row 7 .of 12. holds NaN"
        rows[f"nan in {name}"] = ({name: with_value(vectors, 7, torch.nan)}, message)
    assert_refused(table_of(call, rows))
    assert not events, "refused before anything is computed"


def test_induction_self_learning_and_refinement():
    source, target, partner = languages()
    start = procrustes(source, target)
    of_ones = partial(induce_dictionary, torch.ones(3, 4), torch.ones(3, 4))
    table = table_of(
        of_ones,
        {
            "direction": ({"direction": "both"}, "'both' is not known: use one of union, forward, backward, mutual"),
            "cutoff": ({"cutoff": 0}, "cutoff=0"),
            "k": ({"k": 0}, "k=0"),
            "similarity": ({"similarity": "dot"}, "'dot' is not known"),
        },
    )
    pairs = torch.stack([torch.arange(25), partner[:25]], 1)

    def self_learning(**settings):
        return learn(**{"source": source, "target": target, "seed_pairs": pairs, **settings})

    rows = {
        "keep 0": ({"keep": 0.0}, "keep=0.0"),
        "keep above 1": ({"keep": 1.5}, "keep=1.5"),
        "k of self-learning": ({"k": 0}, "k=0"),
        "patience": ({"patience": 0}, "patience=0"),
        "threshold": ({"threshold": -1e-6}, "threshold=-1e-06"),
        "threshold nan": ({"threshold": float("nan")}, "threshold=nan"),
        "layers": ({"layers": (-2, -1)}, r"layers=\(-2, -1\): self-learning is of one layer"),
        "max_iterations": ({"max_iterations": 0}, "max_iterations=0"),
        "cutoff of self-learning": ({"cutoff": 0}, "cutoff=0"),
        "direction of self-learning": ({"direction": "both"}, "'both' is not known"),
        "steps": ({"steps": ("norm",)}, "'norm' is not known"),
        "few words": ({"cutoff": 19}, "19 words are fewer than the 20 dimensions.*whiten=False"),
        "several layers": (
            {"source": torch.ones(300, 2, 20)},
            r"source vectors of shape \(300, 2, 20\): give one layer",
        ),
        "integers": ({"target": torch.ones(300, 20).long()}, "target vectors: expected floats"),
        "infinity": ({"target": with_value(target, 8, torch.inf)}, "target vectors: row 8"),
        "keeps nothing": ({"keep": 1e-12}, "leaves no union pair of 300 and 300 words; raise keep"),
    }
    for name, bad, message in [
        ("none", torch.zeros(0, 2).long(), r"expected integers.*\(0, 2\)"),
        ("three columns", torch.zeros(3, 3).long(), r"expected integers.*\(3, 3\)"),
        ("floats", torch.zeros(3, 2), "expected integers"),
        ("above", torch.tensor([[0, 0], [4, 300]]), r"row 1 is \[4, 300\], but there are 300 source"),
        ("below", torch.tensor([[-1, 0]]), r"row 0 is \[-1, 0\]"),
        ("int8", torch.tensor([[0, 0], [4, -3]], dtype=torch.int8), r"row 1 is \[4, -3\]"),
    ]:
        rows[f"seed pairs: {name}"] = ({"seed_pairs": bad}, f"seed pairs: {message}")
    table |= table_of(self_learning, rows)

    two_layers = LanguageMap(SideMap.identity(2, 20, source), layers=(-2, -1))
    table |= {
        "refine: whitened": (
            lambda: refine(source, target, vecmap(source, target)),
            r"stretches the target's space.*vecmap\(whiten=False\)",
        ),
        "refine: layers": (
            lambda: refine(source, target, two_layers),
            r"layers \(-2, -1\) is refined a layer at a time",
        ),
        "refine: iterations": (lambda: refine(source, target, start, iterations=0), "iterations=0"),
        "refine: cutoff": (lambda: refine(source, target, start, cutoff=0), "cutoff=0"),
        "refine: size": (lambda: refine(source[:, :10], target, start), "this map is for"),
        "refine: nan": (
            lambda: refine(with_value(source, 5, torch.nan), target, start),
            r"source vectors: row 5 \(of 300\)",
        ),
    }
    assert_refused(table)


# --- text, anchors and files of vectors ------------------------------------------------------------------------------


def test_anchors_and_their_text(tmp_path):
    model, tokenizer, batches = make_encoder(), make_tokenizer(), []
    model.register_forward_pre_hook(lambda *_: batches.append(1))

    def make(sentences=("the cat", "Haus offen"), lang="de", **settings):
        return make_anchors(model, tokenizer, sentences, lang=lang, folder=tmp_path / "cache", **settings)

    table = table_of(
        make,
        {
            "no text": ({"sentences": []}, "no words in its 0 rows"),
            "no letters": ({"sentences": ["7 .", "!"]}, "no word with a letter"),
            "min_count": ({"min_count": 1000}, "min_count=1000 times"),
            "no string": ({"sentences": ["a", None]}, "row 1: None is no text"),
            "a string": ({"sentences": "the cat"}, "not one text"),
            "column": ({"sentences": Dataset.from_dict({"line": ["a"]})}, "no column 'text'"),
            "layers": ({"layers": (5,)}, "layers 0"),
            "pooling": ({"pooling": "max"}, "pooling=max: choose one of first, last, mean"),
            "max_words": ({"max_words": 0}, "max_words=0"),
            "sentences_per_word": ({"sentences_per_word": 0}, "sentences_per_word=0"),
            "script": ({"sentences": ["ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ"]}, "knows fewer than half"),
            "language": ({"lang": "km"}, "Khmer"),
            "words": ({"words": ["Pferd", "Kuh"]}, r"none of the 2 words given \(such as Pferd, Kuh\)"),
        },
    )
    dataset = Dataset.from_dict({"line": ["a"], "number": [0]})
    table |= {
        "row": (lambda: count_words(["a"] * 1001 + [None], "de"), r"text in de, row 1001: None is no text"),
        "one empty row": (lambda: count_words([""], "de"), "no words in its 1 rows"),
        "blank rows": (lambda: count_words(["  ", "\n"], "de"), "no words in its 2 rows"),
        "no rows": (lambda: count_words([], "de"), "no words in its 0 rows"),
        "columns": (lambda: as_sequence(dataset, "text"), r"no column 'text' \(it has line, number\)"),
        "one text": (lambda: as_sequence("a text", "text"), "not one text"),
        "vectors of an anchor": (
            lambda: Anchors(["a", "b", "c"], torch.zeros(2, 1, 3), torch.zeros(3)),
            r"\(2, 1, 3\).*for 3 words and 1 layers",
        ),
        "layers of an anchor": (
            lambda: Anchors(["a", "b"], torch.zeros(2, 1, 3), torch.zeros(2), layers=(0, 1)),
            "for 2 words and 2 layers",
        ),
        "line end": (lambda: some_anchors(["a", "b\nc"]).save(tmp_path / "a"), r"a: the word 'b\\nc' has a line end"),
    }
    assert_refused(table)
    assert not batches and not list(tmp_path.iterdir()), "refused before the encoder runs"


def test_supervision(encoder, tokenizer, aligned, monkeypatch):
    monkeypatch.setattr(supervision, "_PAIRS", 2)
    two = concatenate_datasets([aligned, aligned.map(lambda row: {"source_lang": "bn"})])
    haus, house = some_anchors(["haus"], (-1,)), some_anchors(["house"], (-1,))

    def linked(dataset):
        return lambda: linked_vectors(encoder, tokenizer, dataset)

    def with_link(link):
        return linked(
            aligned.map(lambda row, k: {"links": [*row["links"], link] if k == 3 else row["links"]}, with_indices=True)
        )

    outside = r"row 3: link \[{}, {}\] points outside the sentence \("
    table = {
        "languages": (linked(two), "source_lang is bn, de: a map is of one language pair"),
        "no links": (linked(aligned.map(lambda row: {"links": []})), "no linked words"),
        "no column": (linked(aligned.remove_columns("links")), r"no column links \(it has .*align_words"),
        **{f"link {a}-{b}": (with_link([a, b]), outside.format(a, b)) for a, b in ((0, 99), (99, 0), (-1, 0))},
        "no entry": (
            lambda: dictionary_vectors([("house", "haus")], haus, house),
            r"none of the dictionary's 1 entries .*not there: house .*in this order",
        ),
        "no target": (
            lambda: dictionary_vectors([("haus", "cat")], haus, house),
            r"source 1, target 0 words found; not there: cat \.\.\.",
        ),
        "layers": (
            lambda: dictionary_vectors([("haus", "house")], haus, some_anchors(["house"])),
            r"layers \(-1,\) and target anchors of \(-2, -1\)",
        ),
    }
    assert_refused(table)


@pytest.mark.parametrize("rows", [2, 2_000])
def test_reading_word2vec(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", rows)
    table = {}
    for k, (text, message) in enumerate(
        [
            ("4 2\na 1 2\nb 1 2\nc 1 2 3\nd 1 2\n", r"row 4: 4 fields, 'c 1 2 3.*a word and 2 numbers"),
            ("4 2\na 1 2\nb 1 2\nc 1\nd 1 2\n", r"row 4: 2 fields"),
            ("4 2\na 1 2\nb 1 2\nc\nd 1 2\n", r"row 4: 1 fields"),
            ("4 2\na 1 2\nb 1 2\n 1 2\nd 1 2\n", r"row 4: 3 fields"),
            ("4 2\na 1 2\nb 1 2\nc 1  2\nd 1 2\n", r"row 4: 4 fields.*one blank"),
            ("4 2\na 1 2\nb 1 2\n\nd 1 2\n", r"row 4: 1 fields"),
            ("4 2\na 1 2\nb 1 2\nNew York 1 2\nd 1 2\n", r"row 4: 4 fields"),
            ("4 2\na 1 2\nb 1 2\nc 1 x\nd 1 2\n", r"row 4: not all of its fields are numbers.*'x'"),
            ("4 2\na 1 2\nb 1 2\nc 1 nan\nd 1 2\n", r"row 4: the vector of 'c' holds NaN"),
            ("4 2\na 1 2\nb 1 2\nc 1 1e39\nd 1 2\n", r"row 4: the vector of 'c' holds NaN or infinity"),
            ("a 1 2\nb 1 2\nb 1 2\nc 1 x\nd 1 2\n", r"row 4: not all"),
            ("a 1 2\nb 1 2\nb 1 2\nc 1\nd 1 2\n", r"row 4: 2 fields"),
            ("5 2\na 1 2\nb 1 2\nc 1 2\nd 1 2\n", r"row 1 says 5 words, and 4 rows"),
            ("2 2\na 1 2\nb 1 2\nc 1 2\nd 1 2\n", r"row 1 says 2 words, and [34] rows"),
            ("", "row 1, '', is neither"),
            ("word\n", r"row 1, 'word\\n', is neither"),
            ("3 0\n", r"row 1, '3 0\\n', is neither"),
            ("0 3\n", "no words"),
        ]
    ):
        path = tmp_path / f"v{k}"
        path.write_text(text)
        table[text] = (partial(read_word2vec, path), rf"{path}.*{message}")
    (tmp_path / "latin").write_bytes(b"1 1\n\xe4 1\n")
    (tmp_path / "plain.gz").write_text("1 1\na 1\n")
    whole = gzip.compress(b"2000 1\n" + b"".join(b"word%d 1\n" % k for k in range(2000)))
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    for name, message in [
        ("none", "none.*No such file"),
        ("latin", "not UTF-8"),
        ("plain.gz", r"plain\.gz: cannot be read \(Not a gzipped file"),
        ("cut.gz", r"cut\.gz: cannot be read"),
    ]:
        table[name] = (partial(read_word2vec, tmp_path / name), message)
    assert_refused(table)


def test_writing_word2vec(tmp_path, monkeypatch):
    anchors = some_anchors()
    table = {
        "layer": (
            lambda: write_word2vec(anchors, tmp_path / "v", 12),
            r"no anchors of layer 12; name one of \(-2, -1\)",
        )
    }
    for word in ("New York", "a\tb", "a\u2028b", ""):
        table[f"word {word!r}"] = (partial(write_word2vec, some_anchors(["a", word]), tmp_path / "v"), "white space")
    assert_refused(table)

    def full(*of):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(word2vec.os, "replace", full)
    assert_refused({"full disk": (lambda: write_word2vec(anchors, tmp_path / "v"), "No space left")})
    assert not list(tmp_path.iterdir())


# --- encoders with maps ----------------------------------------------------------------------------------------------


def encoders():
    adapted = get_peft_model(make_base(), XAlignConfig())
    return {
        "adapters": (adapted, "PeftModel.*without adapters"),
        "adapters inside": (adapted.get_base_model(), "without adapters"),
        "maps already": (make_rotated(), "has maps already"),
        "task head": (make_base(auto_class=AutoModelForSequenceClassification), "has a task head"),
        "language embeddings": (make_multilingual_encoder(), "a mapped encoder would take every text for en"),
    }


def test_mapped_encoders():
    def put(maps, encoder=None, **settings):
        return partial(RotatedModel.from_maps, make_base() if encoder is None else encoder, maps, **settings)

    lengths = LanguageMap(SideMap(torch.eye(16)[None], None, ("unit",)))
    onto = LanguageMap(SideMap(torch.randn(1, 8, 16)), SideMap(torch.randn(1, 8, 16)))
    table = {
        "size": (put({"en": make_map(size=8)}), r"maps\['en'\] maps 8 dimensions to 8, and BertModel has 16"),
        "a wide map": (put({"en": LanguageMap(SideMap(torch.randn(1, 16, 8)))}), "8 dimensions to 16"),
        "a space of another size": (put({"en": onto}), "no inverse"),
        "layer": (
            put({"en": make_map(layers=(3,))}),
            r"maps\['en'\]: layers \[3\]: this encoder has layers 0 .* to 2",
        ),
        "layer twice": (put({"en": make_map(layers=(-1, 2))}), "name each layer once"),
        "lengths": (put({"en": make_map(), "fr": lengths}), r"maps\['fr'\]: this map divides vectors by their length"),
        "different layers": (
            put({"en": make_map(), "fr": make_map(layers=(1,))}),
            r"layers \[2\] and of layers \[1\]",
        ),
        "no maps": (put({}), "no maps"),
        "another language's map": (
            put({"en": make_map(source_lang="de", target_lang="en")}),
            r"maps\['en'\] takes de to en.*inverse\(\)",
        ),
        "two pivots": (put({"en": make_map(target_lang="de"), "fr": make_map(target_lang="es")}), "lead to de and es"),
        "pivot given and said": (put({"en": make_map(target_lang="de")}, pivot="bn"), "lead to bn and de"),
        "pivot with a map": (put(make_maps(), pivot="en"), "pivot=en comes out as it is"),
        "pivot said, with a map": (
            put({"de": make_map(target_lang="en"), "en": make_map()}),
            "pivot=en comes out as it is",
        ),
        "modules below maps": (lambda: get_peft_model(make_rotated(), XAlignConfig()), "no stack of layers"),
    }
    for name, (encoder, message) in encoders().items():
        table[name] = (put({"en": make_map()}, encoder), message)
    assert_refused(table)


def test_languages_of_a_mapped_encoder():
    known = RotatedModel.from_maps(make_base(), {"en": make_map(source_lang="en", target_lang="de")})
    assert known.config.pivot == "de"
    unspoken = make_rotated()
    forgotten = make_rotated()
    set_language(forgotten, "to")
    set_language(forgotten, None)
    table = {
        "unknown": (lambda: run(known, language="fr"), "language='fr': this encoder has maps for en, de"),
        "unknown in a row": (lambda: run(known, language=["en", "de", "fr"]), "language='fr'"),
        "too few": (lambda: run(known, language=["en", "de"]), "2 languages for 3 rows"),
        "number": (
            lambda: run(known, language=torch.tensor([0, 1, 2])),
            "number 2; the numbers are {'en': 1, 'de': 0}",
        ),
        "negative number": (lambda: run(known, language=torch.tensor([0, 1, -1])), "number -1"),
        "shape": (lambda: run(known, language=torch.tensor([[0, 1, 1]])), r"shape \(1, 3\) for 3 rows"),
        "set": (lambda: set_language(known, "fr"), "language='fr'"),
        "no pivot": (lambda: run(make_rotated(pivot=None), language=torch.tensor([1, 2, 0])), "number 0"),
        "not said": (lambda: run(unspoken), r"set_language\(model, 'en'\) or language=... \(en, to, de\)"),
        "no longer said": (lambda: run(forgotten), "say which one"),
        "no maps": (lambda: set_language(make_base(), "en"), "no maps for single languages"),
    }
    assert_refused(table)


def test_align_matrix():
    bases = []

    def put(maps, encoder=None, **settings):
        if encoder is None:
            encoder = make_base()
            bases.append(encoder)
        return partial(map_adapter, encoder, maps, **settings)

    spoken = map_adapter(make_base(), {"en": make_map()}, pivot="de")
    table = {
        "last layer": (
            put(make_map(layers=(0, 1))),
            r"maps is of layers \[0, 1\]: the one that a head reads is the last",
        ),
        "layer": (put({"en": make_map(layers=(5,))}), r"maps\['en'\]: layers \[5\]"),
        "size": (put(LanguageMap(SideMap(torch.eye(8)[None]))), "8 dimensions to 8, and BertModel has 16"),
        "lengths": (
            put(LanguageMap(SideMap(torch.eye(16)[None], None, ("unit",)))),
            "divides vectors by their length",
        ),
        "pivot of one map": (put(make_map(), pivot="de"), "one map alone is for all text"),
        "pivot with a map": (put({"en": make_map()}, pivot="en"), "pivot=en"),
        "no maps": (put({}), "no maps"),
        "language": (lambda: set_language(spoken, "fr"), "language='fr'"),
    }
    for name, (encoder, message) in encoders().items():
        table[name] = (put(make_map(), encoder), message)
    assert_refused(table)
    assert bases and not [name for encoder in bases for name in encoder.state_dict() if "xalign" in name]
