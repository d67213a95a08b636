"""Tables of what the maps, the methods that learn them, anchors, and adapters of maps refuse, and in which words."""

from functools import partial

import torch
from datasets import concatenate_datasets
from peft import get_peft_model
from support.adapters import make_base
from support.maps import make_map, make_maps, normal
from support.refusals import assert_refused
from support.tiny import make_encoder, make_multilingual_encoder, make_tokenizer
from transformers import AutoModelForSequenceClassification

from hf_xalign.mapping import supervision, word2vec
from hf_xalign.mapping.anchors import Anchors, make_anchors
from hf_xalign.mapping.procrustes import least_squares
from hf_xalign.mapping.supervision import dictionary_vectors, linked_vectors
from hf_xalign.mapping.vecmap import vecmap
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec
from hf_xalign.modeling import XAlignConfig
from hf_xalign.modeling.maps import LanguageMap, SideMap
from hf_xalign.modeling.xalign.linear import map_adapter

ones = torch.ones


def refused(*table, call=None):
    calls = [(partial(call, **given) if isinstance(given, dict) else given, message) for given, message in table]
    assert_refused({f"row {k}, {message}": (made, message) for k, (made, message) in enumerate(calls)})


def some_anchors(words=("Haus", "haus"), layers=(-2, -1)):
    return Anchors(list(words), normal(len(words), len(layers), 3).float(), torch.arange(len(words)), layers)


def test_closed_forms_and_vecmap():
    source, target, few = normal(40, 6), normal(40, 6, seed=1), torch.arange(40) % 5
    refused(
        (lambda: least_squares(source[:5], target[:5]), "5 pairs .* of 6 dimensions. Pass 6 or more"),
        (lambda: least_squares(source[:6], target[:6], center=True), "6 pairs .* of 6 dimensions. Pass 7 or more"),
        (lambda: vecmap(source[:5], target[:5]), r"5 pairs are fewer than the 6 dim.*whiten=False, the orthogonal"),
        (lambda: vecmap(source, target[few]), "only 5 of the 40 target vectors are different.* 6 dim.*whiten=False"),
    )


def test_anchors_and_their_text(tmp_path):
    model, batches = make_encoder(), []
    model.register_forward_pre_hook(lambda *_: batches.append(1))
    refused(
        ({"sentences": "the cat"}, "not one string"),
        ({"sentences": ["ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ"]}, "100% of the words in de"),
        ({"lang": "km"}, "Khmer"),
        call=partial(make_anchors, model, make_tokenizer(), sentences=["the cat"], lang="de", folder=tmp_path / "c"),
    )
    assert not batches and not list(tmp_path.iterdir()), "refused before the encoder runs"


def test_supervision(encoder, tokenizer, aligned, monkeypatch):
    monkeypatch.setattr(supervision, "_PAIRS", 2)
    two = concatenate_datasets([aligned, aligned.map(lambda row: {"source_lang": "bn"})])
    haus, house = some_anchors(["haus"], (-1,)), some_anchors(["house"], (-1,))

    def linking(link):
        add = lambda row, k: {"links": [*row["links"], *[link][: k == 3]]}  # noqa: E731
        message = rf"row 3, links, row \d: \[{link[0]}, {link[1]}\] is out of range"
        return {"dataset": aligned.map(add, with_indices=True)}, message

    refused(
        ({"dataset": two}, "source_lang is de and bn. Give the rows of each language alone"),
        linking([0, 99]),
        call=partial(linked_vectors, encoder, tokenizer),
    )
    refused(
        ({"entries": [("house", "haus")]}, "no entry of 1 .*in this order"),
        ({"entries": [("haus", "cat")]}, "source 1, target 0"),
        call=partial(dictionary_vectors, entries=[("haus", "house")], source=haus, target=house),
    )


def test_word2vec(tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec, "_ROWS", 2)
    (tmp_path / "v.vec").write_text("5 2\na 1 2\nb 1 2\nc 1 2\nd 1 2\n")
    model = (793712314).to_bytes(4, "little")
    for name, content in (("model", model), ("cut", b"2 1\na \0\0\x80?")):
        (tmp_path / f"{name}.bin").write_bytes(content)
    (tmp_path / "weights.pt").write_bytes(b"PK\x03\x04" + bytes(12) + b"archive/data.pkl" + bytes(9) + b"\x80\x02}q")
    (tmp_path / "v.npy").write_bytes(b"\x93NUMPY\1\0")
    refused(
        (lambda: read_word2vec(tmp_path / "v.npy"), "as text, for example by gensim's save_word2vec_format"),
        (lambda: read_word2vec(tmp_path / "v.vec"), r"/v\.vec: row 1 says 5 words, but 4 rows"),
        (lambda: read_word2vec(tmp_path / "model.bin"), "a fastText model, not word vectors"),
        (lambda: read_word2vec(tmp_path / "weights.pt"), "line 1: UTF-16 or binary data"),
        (lambda: read_word2vec(tmp_path / "cut.bin"), "word 2 has no end"),
        ({"anchors": some_anchors(["a", "a\u2028b"])}, "white space"),
        call=partial(write_word2vec, path=tmp_path / "v"),
    )
    assert not (tmp_path / "v").exists()


def encoders():
    adapted = get_peft_model(make_base(), XAlignConfig())
    return (
        (adapted, "PeftModel.*without adapters"),
        (adapted.get_base_model(), "without adapters"),
        (make_base(auto_class=AutoModelForSequenceClassification), "has a task head"),
        (make_multilingual_encoder(), "a map would treat all text as en"),
    )


LENGTHS = LanguageMap(SideMap(torch.eye(16)[None], None, ("unit",)))


def test_maps_on_an_encoder():
    base = make_base()
    to_german, to_spanish = make_map(target_lang="de"), make_map(target_lang="es")
    refused(
        ({"en": make_map(), "fr": LENGTHS}, r"maps\['fr'\]: this map divides vectors by their length"),
        ({"en": make_map(), "fr": make_map(layers=(1,))}, r"layers \[-1\] and of layers \[-2\]"),
        ({"en": make_map(source_lang="de", target_lang="en")}, r"maps\['en'\] maps de to en.*the map of de"),
        ({"en": to_german, "fr": to_spanish}, "target languages: de and es"),
        ({"de": make_map(target_lang="en"), "en": make_map()}, "pivot=en has no map"),
        *((partial(map_adapter, encoder, make_maps()), says) for encoder, says in encoders()),
        call=lambda **maps: map_adapter(base, maps),
    )
    assert not [name for name in base.state_dict() if "xalign" in name]
