"""Anchors: what they average, how they are found and kept, and how a run that was cut short goes on."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import save_file
from support.adapters import adapt, make_base
from support.text import random_text, slow_cover
from support.tiny import make_encoder, make_tokenizer
from tokenizers import normalizers

from hf_xalign.errors import InputError
from hf_xalign.mapping import averaging
from hf_xalign.mapping.anchors import Anchors, make_anchors
from hf_xalign.modeling import set_language
from hf_xalign.modeling.word_vectors import word_spans

TEXT = [*random_text(), "Haus offen", "das Haus, das HAUS", "Haus offen"]


def make(folder, texts=TEXT, model=None, tokenizer=None, **settings):
    settings = {"lang": "de", "batch_size": 4, **settings}
    return make_anchors(model or make_encoder(), tokenizer or make_tokenizer(), texts, folder=folder, **settings)


def counted(model):
    """The sentences of each forward pass of `model`, filled as it runs."""
    batches = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: batches.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    return batches


def slow_anchors(texts, vocabulary, per_word, layers, pooling, max_length=None, lowercase=True, model=None):
    """Each word's vectors of some `hidden_states`, and its number of sentences, word by word and text by text."""
    pool = {"first": lambda x: x[0], "last": lambda x: x[-1], "mean": lambda x: x.mean(0)}[pooling]
    tokenizer, model = make_tokenizer(), (model or make_encoder()).eval()
    found = []  # of each distinct sentence, the vectors of each of its words
    for text in dict.fromkeys(texts):
        words = text.replace(",", " ,").split()
        encoded = tokenizer([words], is_split_into_words=True)
        kept = encoded.input_ids[0]
        if max_length is not None and len(kept) > max_length:
            kept = [*kept[: max_length - 1], kept[-1]]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([kept]), output_hidden_states=True).hidden_states
        vectors = {}
        for number, word in enumerate(words):
            places = [k for k, owner in enumerate(encoded.word_ids(0)) if owner == number]
            word = word.lower() if lowercase else word
            if word in vocabulary and places[-1] < len(kept) - 1:
                here = torch.stack([pool(states[layer][0, places].float()) for layer in layers])
                vectors.setdefault(word, []).append(here)
        found.append({word: torch.stack(each).mean(0) for word, each in vectors.items()})
    chosen = [found[k] for k in slow_cover([set(vectors) for vectors in found], per_word)]
    rows = [[vectors[word] for vectors in chosen if word in vectors][:per_word] for word in vocabulary]
    return torch.stack([torch.stack(row).mean(0) for row in rows]), [len(row) for row in rows]


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
@pytest.mark.parametrize("per_word", [1, 3, 100])
@pytest.mark.parametrize("lowercase", [True, False])
def test_anchors_by_a_slow_loop(per_word, pooling, lowercase, tmp_path):
    got = make(
        tmp_path, layers=(-1, 0, 1), pooling=pooling, sentences_per_word=per_word, batch_size=5, lowercase=lowercase
    )
    assert ("Haus" in got.words, "HAUS" in got.words) == (not lowercase, not lowercase) and "," not in got.words
    expected, counts = slow_anchors(TEXT, got.words, per_word, (2, 0, 1), pooling, lowercase=lowercase)
    torch.testing.assert_close(got.vectors, expected, atol=1e-5, rtol=1e-4)
    assert got.counts.tolist() == counts and max(counts) <= per_word
    assert got.vectors.dtype == torch.float32 and got.counts.dtype == torch.int64
    assert (got.layers, got.pooling, got.lang, got.lowercase) == ((-1, 0, 1), pooling, "de", lowercase)


def test_the_report(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        got = make(tmp_path, sentences_per_word=3, words=["haus", "Hund", "cat", "the", "the", "Pferd", "New York"])
    assert got.words == ["haus", "hund", "cat", "the"]
    assert "2 of 7 words are not in the text, such as ['new york', 'pferd']" in caplog.text
    assert got.cover.words == 4 and got.cover.missing == 2
    assert got.cover.distinct == len(set(TEXT)) and got.cover.short == sum(count < 3 for count in got.counts)
    assert 3 <= got.cover.bound <= got.cover.sentences <= 12
    with pytest.raises(InputError, match=r"none of the 2 words given \(such as Pferd, Kuh\)"):
        make(tmp_path, words=["Pferd", "Kuh"])


def test_each_sentence_runs_once_for_all_words_and_layers(tmp_path):
    model = make_encoder().train()
    batches = counted(model)
    got = make(tmp_path, model=model, layers=(0, 1, 2))
    assert got.cover.sentences == got.cover.distinct == len(set(TEXT)) == 41
    assert sorted(batches) == [1] + [4] * 10
    assert model.training


@pytest.mark.parametrize("max_length", [6, 10, None])
def test_words_that_are_cut_off_do_not_count(max_length, tmp_path):
    texts = [*random_text(30, seed=1), "the zebra", "the cat the cat the cat the cat the zwiebel"]
    got = make(tmp_path, texts, max_length=max_length)
    assert ("zebra" in got.words, "zwiebel" in got.words) == (max_length != 6, max_length is None)
    expected, counts = slow_anchors(texts, got.words, 100, (2,), "mean", max_length=max_length)
    torch.testing.assert_close(got.vectors, expected, atol=1e-5, rtol=1e-4)
    assert got.counts.tolist() == counts


@pytest.mark.parametrize("max_length", range(4, 16))
def test_words_to_be_cut_are_found_beforehand(max_length):
    model, tokenizer = make_encoder(), make_tokenizer()
    sentences = [text.split() for text in random_text(60, seed=2)]
    found = averaging.cut_finder(model, tokenizer, max_length)(sentences)
    _, spans = word_spans(model, tokenizer, sentences, max_length=max_length, specials=False)
    for k, span in enumerate(spans):
        assert found.get(k, np.zeros(len(span), dtype=bool)).tolist() == (span[:, 1] == 0).tolist()


def test_the_encoders_own_limit_holds(tmp_path):
    texts = ["kat " * 70 + "hund", "haus"]
    assert make(tmp_path, texts).words == ["kat", "haus"]


def test_a_word_without_subword_has_no_anchor(tmp_path):
    tokenizer = make_tokenizer()
    drop = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("q", "")])
    tokenizer.backend_tokenizer.normalizer = drop
    got = make(tmp_path, ["the qqq cat", "qq the", "qqq"], tokenizer=tokenizer)
    assert got.words == ["the", "cat"] and got.counts.tolist() == [2, 1] and got.cover.sentences == 2


def test_sums_are_float32_whatever_the_model_is(tmp_path):
    texts = [f"the {a} {b}" for a in "abcdefghijklmnop" for b in "abcdefghijklmnop"]
    model = make_encoder().bfloat16()
    got = make(tmp_path, texts, model=model, sentences_per_word=256, batch_size=1)
    assert got.vectors.dtype == torch.float32
    expected, counts = slow_anchors(texts, got.words, 256, (2,), "mean", model=model)
    assert got.counts.max() == max(counts) == 256
    torch.testing.assert_close(got.vectors, expected, atol=1e-5, rtol=1e-5)


def test_autocast(tmp_path):
    exact, near = make(tmp_path), make(tmp_path, dtype=torch.bfloat16)
    assert not torch.equal(exact.vectors, near.vectors) and near.vectors.dtype == torch.float32
    torch.testing.assert_close(exact.vectors, near.vectors, atol=0.05, rtol=0.05)


# ---- Going on ----


@pytest.fixture
def mark_each_batch(monkeypatch):
    monkeypatch.setattr(averaging, "_MARK_SECONDS", -1.0)


@pytest.fixture
def threads():
    """Sets the number of torch's threads for this test; more than one and batches run side by side."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("stop", [1, 5, 10])
def test_a_run_that_was_cut_short_goes_on_to_the_same_bits(stop, number, tmp_path, mark_each_batch, threads):
    threads(1)
    inputs = []
    model = make_encoder().train()
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: inputs.append(kwargs["input_ids"]), with_kwargs=True
    )
    whole = make(tmp_path / "whole", model=model, layers=(1, -1))
    hook.remove()

    def fail(module, args, kwargs):
        if torch.equal(kwargs["input_ids"], inputs[stop]):
            raise KeyboardInterrupt

    threads(number)
    batches = counted(model)
    hook = model.register_forward_pre_hook(fail, with_kwargs=True)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "part", model=model, layers=(1, -1))
    hook.remove()
    (home,) = (tmp_path / "part").iterdir()
    assert sorted(path.name for path in home.iterdir()) == ["lock", "progress.safetensors"]
    assert model.training
    batches.clear()
    got = make(tmp_path / "part", model=model, layers=(1, -1))
    assert sum(batches) == whole.cover.sentences - 4 * stop
    assert torch.equal(got.vectors, whole.vectors) and got.counts.tolist() == whole.counts.tolist()
    assert sorted(path.name for path in home.iterdir()) == ["anchors.safetensors", "lock"]


def test_what_is_done_is_read_back(tmp_path):
    model = make_encoder()
    batches = counted(model)
    first = make(tmp_path, model=model, layers=(1, -1))
    batches.clear()
    again = make(tmp_path, Dataset.from_dict({"line": TEXT}), model=model, layers=(1, 2), text_column="line")
    assert not batches and torch.equal(again.vectors, first.vectors)
    assert (first.layers, again.layers) == ((1, -1), (1, 2)) and again.cover == first.cover
    for change in (
        {"layers": (1,)},
        {"pooling": "last"},
        {"sentences_per_word": 2},
        {"lowercase": False},
        {"lang": "en"},
        {"dtype": torch.bfloat16},
        {"words": ["the"]},
        {"texts": TEXT[1:]},
        {"model": make_encoder(seed=1)},
    ):
        make(tmp_path, **{"model": model, "layers": (1, -1), **change})
    assert len(list(tmp_path.iterdir())) == 10


def test_a_full_disk(tmp_path, monkeypatch, mark_each_batch):
    calls = []

    def full(number):
        calls.append(number)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(averaging.os, "fsync", full)
    model = make_encoder().train()
    with pytest.raises(InputError, match=r"progress\.safetensors: cannot be written \(No space left on device\)"):
        make(tmp_path, model=model)
    assert model.training
    (home,) = tmp_path.iterdir()
    assert sorted(path.name for path in home.iterdir()) == ["lock", "progress.safetensors"]
    assert torch.equal(make(tmp_path).vectors, make(tmp_path / "whole").vectors)


def test_a_broken_mark(tmp_path, mark_each_batch):
    make(tmp_path)
    (home,) = tmp_path.iterdir()
    (home / "anchors.safetensors").unlink()
    (home / "progress.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"progress\.safetensors: cannot be read .* remove it"):
        make(tmp_path)


# ---- Modules of MAO ----


@pytest.mark.parametrize("kind", ["languages", "transformer", "houlsby"])
def test_an_encoder_with_a_module(kind, tmp_path, monkeypatch):
    asked = []
    batches = averaging.hidden_batches
    monkeypatch.setattr(
        averaging,
        "hidden_batches",
        lambda *of, **named: asked.append(named["pooled_threads"]) or batches(*of, **named),
    )
    plain = make(tmp_path, model=make_base())
    model = adapt(make_base(), kind, init="random")
    if kind == "languages":
        set_language(model, "to")
    got = make(tmp_path, model=model)
    if kind == "languages":
        set_language(model, "de")
    assert asked == [True, False]
    expected, _ = slow_anchors(TEXT, got.words, 100, (-1,), "mean", model=Last(model))
    torch.testing.assert_close(got.vectors, expected, atol=1e-4, rtol=1e-3)
    assert not torch.allclose(got.vectors, plain.vectors, atol=1e-2)
    with model.disable_adapter():
        torch.testing.assert_close(make(tmp_path, model=model).vectors, plain.vectors, atol=1e-5, rtol=1e-4)


class Last(torch.nn.Module):
    """A model whose `hidden_states` end in what it gives as its last state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        output = self.model(**inputs)
        output.hidden_states = (*output.hidden_states[:-1], output.last_hidden_state)
        return output


def test_each_language_has_its_map(tmp_path):
    model = adapt(make_base(), "languages", init="random")
    set_language(model, "to")
    german, tongan, pivot = (make(tmp_path, model=model, lang=lang) for lang in ("de", "to", "en"))
    assert not torch.allclose(german.vectors, tongan.vectors, atol=1e-2)
    torch.testing.assert_close(pivot.vectors, make(tmp_path, model=make_base()).vectors, atol=1e-5, rtol=1e-4)
    with pytest.raises(InputError, match="fr"):
        make(tmp_path, model=model, lang="fr")
    one, other = (adapt(make_base(), "linear", init="random") for _ in range(2))
    with torch.no_grad():
        next(p for name, p in other.named_parameters() if "xalign" in name).add_(1.0)
    assert not torch.equal(make(tmp_path, model=one).vectors, make(tmp_path, model=other).vectors)


# ---- Bad input ----


def test_bad_input_is_refused_before_the_encoder_runs(tmp_path):
    model = make_encoder()
    batches = counted(model)
    for settings, message in (
        ({"texts": []}, "no words in its 0 rows"),
        ({"texts": ["7 .", "!"]}, "no word with a letter"),
        ({"min_count": 1000}, "min_count=1000 times"),
        ({"texts": ["a", None]}, "row 1: None is no text"),
        ({"texts": "the cat"}, "not one text"),
        ({"texts": Dataset.from_dict({"line": ["a"]})}, "no column 'text'"),
        ({"layers": (5,)}, "layers 0"),
        ({"pooling": "max"}, "pooling=max: choose one of first, last, mean"),
        ({"max_words": 0}, "max_words=0"),
        ({"sentences_per_word": 0}, "sentences_per_word=0"),
        ({"texts": ["ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ"]}, "knows fewer than half"),
        ({"lang": "km"}, "Khmer"),
    ):
        with pytest.raises(InputError, match=message):
            make(tmp_path, **{"model": model, **settings})
    assert not batches and not list(tmp_path.iterdir())


# ---- The object ----


def some(words=("Haus", "haus", "US", "öffnen", "Istanbul"), **about):
    vectors = torch.randn(len(words), 2, 3, generator=torch.Generator().manual_seed(0))
    return Anchors(list(words), vectors, torch.arange(len(words)), layers=(-2, -1), **about)


def test_lookup_takes_the_word_itself_first_then_another_case():
    anchors = some()
    assert anchors.lookup(["haus", "HAUS", "Haus", "us", "US", "Öffnen", "O\u0308ffnen", "kein"]).tolist() == [
        *(1, 0, 0, 2, 2, 3, 3, -1)
    ]
    assert anchors.lookup([]).tolist() == [] and anchors.lookup(["x"]).dtype == torch.int64
    assert anchors.lookup(["istanbul"]).tolist() == [4]
    assert some(lang="tr").lookup(["istanbul", "ıstanbul"]).tolist() == [-1, 4]
    assert len(anchors) == 5 and anchors.index["US"] == 2


def test_save_and_load_are_bitwise(tmp_path):
    made = make(tmp_path / "cache", layers=(0, -1), pooling="last")
    bare = some(["ein Wort", "বাংলা"])
    views = replace(bare, vectors=torch.randn(3, 2, 2).permute(2, 1, 0), counts=torch.arange(9)[3:8:4])
    for k, anchors in enumerate((made, bare, views)):
        anchors.save(tmp_path / "new" / f"{k}.safetensors")
        found = Anchors.load(tmp_path / "new" / f"{k}.safetensors")
        assert torch.equal(found.vectors, anchors.vectors) and torch.equal(found.counts, anchors.counts)
        for name in ("words", "layers", "pooling", "lang", "lowercase", "model", "cover"):
            assert getattr(found, name) == getattr(anchors, name)
    assert made.model and made.cover and bare.model is None
    assert len(list((tmp_path / "new").iterdir())) == 3


def test_a_broken_or_foreign_file(tmp_path):
    some().save(tmp_path / "good")
    content = (tmp_path / "good").read_bytes()
    (tmp_path / "cut").write_bytes(content[:-4])
    (tmp_path / "text").write_text("no tensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "other")
    save_file({"a": torch.zeros(2)}, tmp_path / "newer", {"format": "hf_xalign.anchors", "version": "2"})
    with pytest.raises(InputError, match=r"newer: anchors in version 2 of this library's format"):
        Anchors.load(tmp_path / "newer")
    for name in ("none", "cut", "text"):
        with pytest.raises(InputError, match=rf"{name}: no anchors that could be read"):
            Anchors.load(tmp_path / name)
    with pytest.raises(InputError, match=r"other: no anchors of this library; they are written by Anchors\.save"):
        Anchors.load(tmp_path / "other")


def test_a_word_with_a_line_end_is_not_saved(tmp_path):
    with pytest.raises(InputError, match=r"a: the word 'b\\nc' has a line end"):
        some(["a", "b\nc"]).save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_shapes_go_together():
    with pytest.raises(InputError, match=r"\(2, 1, 3\).*for 3 words and 1 layers"):
        Anchors(["a", "b", "c"], torch.zeros(2, 1, 3), torch.zeros(3))
    with pytest.raises(InputError, match="for 2 words and 2 layers"):
        Anchors(["a", "b"], torch.zeros(2, 1, 3), torch.zeros(2), layers=(0, 1))
