"""The cache of reference vectors: what it holds, and when it is made anew."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling import reference
from hf_xalign.modeling.reference import cache_reference, cache_size, frozen_copy


def cache(folder, model=None, pairs=24, side="target", pooling="mean", layers=(2,), **settings):
    encoded = encode_pairs(make_links(pairs), make_tokenizer())
    return cache_reference(
        model or make_encoder(),
        encoded,
        side=side,
        layers=list(layers),
        pooling=pooling,
        pad_token_id=0,
        folder=folder,
        **settings,
    )


@pytest.mark.parametrize("block", [50_000, 3])
def test_every_word_of_every_row_and_each_sentence_once(block, tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "_BLOCK", block)
    vectors, indexed = cache(tmp_path, layers=(1, 2))
    distinct = {tuple(row["target_ids"]): len(row["target_starts"]) + 2 for row in indexed}
    assert len(distinct) == 8 < len(indexed) == 24
    assert vectors.shape == (sum(distinct.values()), 2, 16)
    model = make_encoder().eval()
    for row in indexed:
        with torch.no_grad():
            states = model(input_ids=torch.tensor([row["target_ids"]]), output_hidden_states=True).hidden_states
        for word, (start, end) in enumerate(zip(row["target_starts"], row["target_ends"], strict=True)):
            got = vectors.read(np.array([row["reference_start"] + word]))[0]
            for column, layer in enumerate((1, 2)):
                torch.testing.assert_close(got[column], states[layer][0, start:end].mean(0), rtol=1e-4, atol=1e-5)
        last = len(row["target_ids"]) - 1
        specials = vectors.read(row["reference_start"] + len(row["target_starts"]) + np.array([0, 1]))
        torch.testing.assert_close(specials[:, 1], states[2][0, [0, last]], rtol=1e-4, atol=1e-5)


def test_anything_else_is_another_file(tmp_path):
    paths = {cache(tmp_path)[0].path}
    other = make_encoder(seed=1)
    for change in (
        {"model": other},
        {"pairs": 7},
        {"side": "source"},
        {"pooling": "last"},
        {"layers": (1,)},
        {"dtype": torch.bfloat16},
    ):
        path = cache(tmp_path, **change)[0].path
        assert path not in paths
        paths.add(path)
    assert not list(tmp_path.glob("*.part"))


def test_the_same_is_read_again(tmp_path, monkeypatch):
    first, _ = cache(tmp_path)
    monkeypatch.setattr(reference, "_write", None)
    assert cache(tmp_path)[0].path == first.path


def test_no_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    class Full:
        f_bavail, f_frsize = 1, 512

    monkeypatch.setattr(reference.os, "statvfs", lambda path: Full)
    with pytest.raises(InputError, match=r"no room.*reference=copy"):
        cache(tmp_path)
    assert not list(tmp_path.iterdir())


def test_size_is_an_upper_bound(tmp_path):
    vectors, indexed = cache(tmp_path)
    assert vectors.path.stat().st_size <= cache_size(indexed, "target", 1, 16, torch.float32)


def test_workers_open_the_file_themselves(tmp_path):
    vectors, _ = cache(tmp_path)
    rows = np.array([0, 3])
    expected = vectors.read(rows)
    assert len(pickle.dumps(vectors)) < 2000
    torch.testing.assert_close(pickle.loads(pickle.dumps(vectors)).read(rows), expected)


def test_frozen_copy_shares_what_is_frozen_and_nothing_else():
    model = make_encoder()
    model.embeddings.requires_grad_(False)
    copy = frozen_copy(model.train())
    assert not copy.training and model.training
    for (name, own), other in zip(model.named_parameters(), copy.parameters(), strict=True):
        assert (own is other) == name.startswith("embeddings")
        assert not other.requires_grad
    assert any(p.requires_grad for p in model.parameters())
