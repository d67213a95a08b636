"""Sentence scores against one sentence and one similarity at a time."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from datasets import Dataset, concatenate_datasets
from support.maps import make_rotated
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.evaluation.sentence_scores import score_sentences
from hf_xalign.evaluation.vectors import encode_pooled_sentences, encode_sentences
from hf_xalign.modeling import set_language
from hf_xalign.record import is_count


def pairs(n=8, lang="de"):
    links = make_links(n).select_columns(["source", "target", "source_lang", "target_lang"])
    return links.map(lambda row: {"source_lang": lang})


def vector(model, tokenizer, text, pooling, layer):
    with torch.no_grad():
        states = model.eval()(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[layer]
    found = (states[0].sum(0) / states.shape[1] if pooling == "mean" else states[0, 0]).double().numpy()
    return found / np.sqrt((found * found).sum())


def shares(sources, targets):
    """The shares of nearest neighbours that are the translation: to the target side, and from it."""
    cosine = [[float(s @ t) for t in targets] for s in sources]
    forward = [max(range(len(targets)), key=lambda j: cosine[i][j]) == i for i in range(len(sources))]
    backward = [max(range(len(sources)), key=lambda i: cosine[i][j]) == j for j in range(len(targets))]
    return sum(forward) / len(forward), sum(backward) / len(backward)


@pytest.mark.parametrize("layer", [-1, 1])
def test_against_a_loop(layer):
    model, tokenizer, data = make_encoder(9), make_tokenizer(), pairs()
    scores = score_sentences(model, tokenizer, data, layer=layer, batch_size=3)["de"]
    for pooling in ("mean", "cls"):
        sides = [[vector(model, tokenizer, t, pooling, layer) for t in data[side]] for side in ("source", "target")]
        forward, backward = shares(*sides)
        assert scores[f"sentence_{pooling}_to_pivot"] == forward
        assert scores[f"sentence_{pooling}_from_pivot"] == backward
        assert scores[f"sentence_{pooling}"] == (forward + backward) / 2
        assert 0 < forward < 1 and (forward != backward or pooling == "cls")
    assert scores["sentence_mean"] != scores["sentence_cls"]
    assert scores["pool_sentences"] == 8
    assert [name for name in scores if is_count(name)] == ["pool_sentences"]


def test_both_poolings_come_from_one_pass():
    model, tokenizer = make_encoder(), make_tokenizer()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    data = pairs()
    score_sentences(model, tokenizer, data, batch_size=8, similarities=("cosine", "csls"))
    assert len(calls) == 2
    found = encode_pooled_sentences(model, tokenizer, data["source"][:], layers=(0, -1), batch_size=3)
    for pooling, vectors in found.items():
        assert vectors.dtype == torch.float32 and vectors.shape == (8, 2, 16)
        alone = encode_sentences(model, tokenizer, data["source"][:], layers=(0, -1), pooling=pooling, batch_size=3)
        assert torch.equal(vectors, alone)
    assert not torch.equal(found["mean"], found["cls"])


def test_every_language_for_itself():
    model, tokenizer = make_encoder(), make_tokenizer()
    german, tongan = pairs(6), pairs(8, "to").select([7, 5, 3, 1])
    both = score_sentences(model, tokenizer, concatenate_datasets([tongan, german]))
    assert list(both) == ["de", "to"]
    assert both["de"] == score_sentences(model, tokenizer, german)["de"]
    assert both["to"] == score_sentences(model, tokenizer, tongan)["to"]
    assert both["to"]["pool_sentences"] == 4


def test_other_similarities_have_names_of_their_own():
    model, tokenizer, data = make_encoder(), make_tokenizer(), pairs()
    scores = score_sentences(model, tokenizer, data, poolings=("cls",), similarities=("cosine", "csls", "margin"))
    names = [f"sentence_cls{s}{d}" for s in ("", "_csls", "_margin") for d in ("", "_to_pivot", "_from_pivot")]
    assert list(scores["de"]) == [*names, "pool_sentences"]
    alone = score_sentences(model, tokenizer, data, poolings=("cls",), similarities=("margin",))["de"]
    assert alone["sentence_cls_margin"] == scores["de"]["sentence_cls_margin"]


def test_the_map_of_the_language_is_used():
    rotated, tokenizer = make_rotated(), make_tokenizer()  # maps for en and to; de comes out as it is
    data = pairs()
    scores = score_sentences(rotated, tokenizer, data, poolings=("mean",))["de"]
    sides = []
    for side, lang in (("source", "de"), ("target", "en")):
        set_language(rotated, lang)
        sides.append([vector(rotated, tokenizer, text, "mean", -1) for text in data[side]])
    assert (scores["sentence_mean_to_pivot"], scores["sentence_mean_from_pivot"]) == shares(*sides)
    plain = score_sentences(rotated.unmapped, tokenizer, data, poolings=("mean",))["de"]
    assert plain["sentence_mean"] != scores["sentence_mean"]
    with pytest.raises(InputError, match="maps for"):
        score_sentences(rotated, tokenizer, pairs(lang="fr"))


def test_repeated_sentences_are_left_out(caplog):
    model, tokenizer = make_encoder(), make_tokenizer()
    data = pairs(8)
    twice = concatenate_datasets([data, data.select([2, 4])])
    with caplog.at_level(logging.INFO):
        assert score_sentences(model, tokenizer, twice) == score_sentences(model, tokenizer, data)
    assert "de: 2 of 10 pairs repeat a sentence" in caplog.text
    assert score_sentences(model, tokenizer, twice, distinct=False)["de"]["pool_sentences"] == 10
    rows = [("ein hund", "a dog"), ("der hund", "a dog"), ("der hund", "the dog"), ("ein hund", "dog")]
    some = Dataset.from_list([{"source": s, "target": t, "source_lang": "de", "target_lang": "en"} for s, t in rows])
    # The second is out for its target; it was not kept, so its source does not put out the third.
    assert score_sentences(model, tokenizer, some)["de"]["pool_sentences"] == 2


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda data: data.remove_columns("target_lang"), {}, "no column target_lang"),
        (lambda data: data.select([]), {}, "no sentence pairs"),
        (lambda data: data.map(lambda row, i: {"target": "" if i == 3 else "x"}, with_indices=True), {}, "row 3: tar"),
        (lambda data: data, {"poolings": ("max",)}, "mean or cls"),
        (lambda data: data, {"layer": 9}, "layers 0 "),
        (lambda data: data, {"similarities": ("dot",)}, "'dot'"),
    ],
)
def test_bad_input(change, options, message):
    with pytest.raises(InputError, match=message):
        score_sentences(make_encoder(), make_tokenizer(), change(pairs()), **options)
