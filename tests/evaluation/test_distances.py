"""Distances of linked and random words, against loops over one pair at a time; figures and their files."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.numeric import assert_rounding
from support.results import make_grid
from support.tiny import make_encoder, make_links
from transformers import BertForTokenClassification

from hf_xalign.evaluation import distances, encode_words, plots
from hf_xalign.evaluation.distances import area_under_curve, distance_grid, draw_word_pairs, word_distances

LINKS = [[[0, 1], [2, 0]], [], [[1, 1]], [[0, 0], [1, 2], [3, 1]]]
# Additions and multiplications on the longest path through the encoder and a distance: two layers of products with 16
# and 32 inputs, of attention over at most 64 tokens and of two norms over 16 numbers; the norms keep numbers below 8.
DEPTH = 2 * (4 * 16 + 2 * 32 + 64 + 2 * 32) + 4 * 16
NUMBERS = {"operations": DEPTH, "scale": 8.0, "dtype": torch.float32}


def test_pairs_are_links_and_words_of_other_sentences():
    given = {(n, i, j) for n, part in enumerate(LINKS) for i, j in part}
    drawn = draw_word_pairs(LINKS, None)
    assert [(n, i, j) for (n, i), (_, j) in zip(drawn.source.tolist(), drawn.linked.tolist())] == sorted(given)
    targets = {(n, j) for n, _, j in given}
    for seed in range(30):
        drawn = draw_word_pairs(LINKS, 4, seed)
        linked = {(*s, t[1]) for s, t in zip(drawn.source.tolist(), drawn.linked.tolist())}
        assert len(drawn.source) == len(linked) == 4 and linked <= given
        assert (drawn.source[:, 0] == drawn.linked[:, 0]).all() and (drawn.source[:, 0] != drawn.random[:, 0]).all()
        assert {tuple(word) for word in drawn.random.tolist()} <= targets
    one, again, other = (draw_word_pairs(LINKS, None, seed).random.tolist() for seed in (1, 1, 2))
    assert one == again != other
    counts = {}
    for seed in range(3000):
        word = tuple(draw_word_pairs(LINKS, None, seed).random[2].tolist())  # the middle sentence's own link
        counts[word] = counts.get(word, 0) + 1
    assert set(counts) == {(0, 1), (0, 0), (3, 0), (3, 2), (3, 1)}
    assert all(abs(count - 600) < 5 * np.sqrt(600 * 0.8) for count in counts.values()), "uniform"


def test_distances_against_a_loop(encoder, tokenizer, aligned):
    layers = (0, -1)
    found = word_distances(encoder, tokenizer, aligned, layers=layers, batch_size=3, seed=5)
    assert list(found) == ["de"] and list(found["de"]) == [0, -1]
    drawn = draw_word_pairs(aligned["links"][:], seed=5)
    words = {
        side: [encode_words(encoder, tokenizer, text, layers=layers)[0].vectors.double() for text in aligned[side]]
        for side in ("source", "target")
    }
    for n, layer in enumerate(layers):
        for kind, targets in (("linked", drawn.linked), ("random", drawn.random)):
            l2, cosine = [], []
            for (row, i), (other, j) in zip(drawn.source.tolist(), targets.tolist()):
                x, y = words["source"][row][i, n].numpy(), words["target"][other][j, n].numpy()
                l2.append(np.sqrt(((x - y) ** 2).sum()))
                cosine.append(1 - (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))
            assert_rounding(getattr(found["de"][layer]["l2"], kind), np.array(l2), **NUMBERS)
            assert_rounding(getattr(found["de"][layer]["cosine"], kind), np.array(cosine), **NUMBERS)
    assert len(found["de"][-1]["l2"].linked) == sum(map(len, aligned["links"]))


def test_pairs_without_vectors_are_left_out_of_both_kinds(encoder, tokenizer, aligned):
    rows = aligned.to_list()
    whole = word_distances(encoder, tokenizer, aligned)["de"][-1]["l2"]
    rows[6]["source_words"][2] = " "  # nothing that the tokenizer keeps
    found = word_distances(encoder, tokenizer, Dataset.from_list(rows))["de"][-1]["l2"]
    cut = word_distances(encoder, tokenizer, aligned, max_length=6)["de"][-1]["l2"]
    assert len(found.linked) == len(found.random) == len(whole.linked) - 1
    assert 0 < len(cut.linked) == len(cut.random) < len(whole.linked) - 1


def test_area_under_the_curve_against_a_loop():
    generator = np.random.default_rng(0)
    linked, random = generator.normal(1, 1, 60), generator.normal(2, 1, 45)
    for own, other in ((linked, random), (linked.round(), random.round())):  # the second with ties
        wins = [1.0 if r > d else 0.5 if r == d else 0.0 for r in other for d in own]
        found = area_under_curve(distances.Distances(own, other))
        assert_rounding(found, np.mean(wins), operations=60 * 45)
        assert 0.6 < found < 0.95
    assert area_under_curve(distances.Distances(np.ones(5), np.ones(4))) == 0.5


def test_grid_of_checkpoints(tmp_path, tokenizer):
    models = {"raw": make_encoder(0), "aligned": make_encoder(1)}
    models["tuned"] = BertForTokenClassification(models["raw"].config)
    models["tuned"].bert.load_state_dict(models["aligned"].state_dict())
    folders = {name: tmp_path / name for name in models}
    for name, model in models.items():
        model.save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
    text = make_links(8, ["bn", "de"])
    grid = distance_grid(folders, text, layers=(-1, 0), seed=3, batch_size=5)
    assert json.loads(json.dumps(grid)) == grid and len(grid["cells"]) == 3 * 2 * 2 * 2
    axes = grid["languages"], list(grid["stages"]), grid["layers"]
    assert axes == (["bn", "de"], ["raw", "aligned", "tuned"], [-1, 0])
    cells = {(c["stage"], c["language"], c["layer"], c["measure"]): c for c in grid["cells"]}
    own = word_distances(make_encoder(1), tokenizer, text, layers=(0,), seed=3)["de"][0]["l2"]
    cell = cells["aligned", "de", 0, "l2"]
    assert abs(cell["auc"] - area_under_curve(own)) < 0.02  # a few pairs whose order rounding turns
    assert cell["pairs"] == len(own.linked) == sum(cell["linked"]["counts"]) == sum(cell["random"]["counts"])
    given = cell["random"]["mean"], cell["linked"]["median"], cell["linked"]["sd"]
    assert_rounding(given, [own.random.mean(), np.median(own.linked), own.linked.std()], **NUMBERS)
    for key, cell in cells.items():
        other = cells["raw", *key[1:]]
        assert len(cell["edges"]) == 51 and cell["edges"] == other["edges"]
        if key[0] == "tuned":  # the encoder under the head
            assert cell["linked"] == cells["aligned", *key[1:]]["linked"] != other["linked"]


def test_histogram_grid(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    drawn, save = [], plots.save_figure
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: (drawn.append(figure), save(figure, path))[1])
    grid = make_grid(("raw", "aligned", "tuned"), ("bn", "de"))
    plots.histogram_grid(grid, tmp_path / "b.png", measure="cosine")
    axes = drawn[0].axes
    assert [one.get_title() for one in axes] == ["bn", "de", *[""] * 4]
    for n, one in enumerate(axes):
        linked, random = (patch.get_data().values.tolist() for patch in one.patches)
        assert (linked, random) == ([0.7, 0.2, 0.1], [0.1, 0.4, 0.5])
        assert [text.get_text() for text in one.texts] == [f"AUC {0.9 - 0.1 * (n // 2):.3f}"]
