from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import hf_xalign.metrics
from hf_xalign.errors import InputError
from hf_xalign.evaluation import csls
from hf_xalign.evaluation.embedding_alignment import alignment_of_entries, alignment_of_model, embedding_alignment
from hf_xalign.evaluation.transfer import transfer_gap

METRICS = Path(hf_xalign.metrics.__file__).parent


def unit(vector):
    return vector / np.sqrt((vector * vector).sum())


def loop_hits(sources, candidates, golds):
    """In float64, one pair at a time; `golds` is a set for each source."""
    candidates = [unit(y) for y in candidates.double().numpy()]
    found = []
    for x in sources.double().numpy():
        scores = [float(np.dot(unit(x), y)) for y in candidates]
        found.append(scores.index(max(scores)))
    return [near in gold for near, gold in zip(found, golds)], found


def planted(seed=0, rows=70, dim=8, noise=0.8):
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randn(rows, dim, generator=generator)
    candidates = sources + noise * torch.randn(rows, dim, generator=generator)
    return sources, candidates * torch.exp(torch.randn(rows, 1, generator=generator))


@pytest.mark.parametrize("tile", [4096, 32])
def test_against_a_loop(tile, monkeypatch):
    monkeypatch.setattr(csls, "_TILE", tile)
    sources, candidates = planted()
    order = torch.randperm(70, generator=torch.Generator().manual_seed(1))
    hits, found = loop_hits(sources, candidates[order], [{int(n)} for n in order.argsort()])
    result = embedding_alignment(sources, candidates[order], order.argsort())
    assert result.hits.tolist() == hits and result.nearest.tolist() == found and result.candidates == 70
    assert result.share == pytest.approx(np.mean(hits)) and 0.1 < result.share < 0.9


def test_several_golds_in_every_form():
    sources, candidates = planted(1, rows=40, noise=1.6)
    single, found = loop_hits(sources, candidates, [{n} for n in range(40)])
    table = torch.full((40, 3), -1)
    table[:, 1] = torch.arange(40)
    table[1::3, 0] = torch.tensor(found[1::3])
    table[2::3, 2] = torch.arange(40)[2::3].flip(0)
    golds = [[n for n in row if n >= 0] for row in table.tolist()]
    hits, _ = loop_hits(sources, candidates, [set(row) for row in golds])
    assert embedding_alignment(sources, candidates, table).hits.tolist() == hits
    assert embedding_alignment(sources, candidates, golds).hits.tolist() == hits
    assert sum(hits) > sum(single) and not all(hits)


def test_identical_embeddings_are_aligned_and_shuffled_ones_are_not():
    vectors = planted(3, rows=300, dim=32)[0]
    assert embedding_alignment(vectors, 3 * vectors, torch.arange(300)).share == 1
    assert embedding_alignment(vectors, vectors, torch.arange(300).roll(1)).share == 0
    unrelated = torch.randn(300, 32, generator=torch.Generator().manual_seed(4))
    assert embedding_alignment(vectors, unrelated, torch.arange(300)).share < 0.03


def test_of_equal_candidates_the_first_is_found():
    candidates = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    assert embedding_alignment(candidates, candidates, torch.arange(3)).hits.tolist() == [True, False, True]
    collapsed = torch.ones(50, 4)
    assert embedding_alignment(collapsed, collapsed, torch.arange(50)).share == 1 / 50


def test_csls_finds_behind_a_hub():
    generator = torch.Generator().manual_seed(5)
    sources = torch.randn(60, 64, generator=generator) + 1.0
    hub = sources.mean(0, keepdim=True)
    candidates = torch.cat([sources + 1.5 * torch.randn(60, 64, generator=generator), hub])
    plain, fair = (
        embedding_alignment(sources, candidates, torch.arange(60), similarity=kind).share
        for kind in ("cosine", "csls")
    )
    assert fair > plain + 0.1


def test_of_a_model_keeps_the_order_of_the_entries(encoder):
    embeddings = encoder.get_input_embeddings().weight.detach()
    entries = torch.tensor([[9, 50], [3, 51], [9, 52], [7, 50], [3, 53]])
    with torch.no_grad():
        embeddings[51] = 2 * embeddings[3]
        embeddings[52] = embeddings[9]
        embeddings[90] = embeddings[7]
    found = alignment_of_model(encoder, entries)
    golds = {9: {50, 52}, 3: {51, 53}, 7: {50}}
    pool = [50, 51, 52, 53]
    hits, near = loop_hits(
        embeddings[list(golds)], embeddings[pool], [{pool.index(n) for n in g} for g in golds.values()]
    )
    assert found.hits.tolist() == hits and found.nearest.tolist() == [pool[n] for n in near]
    assert found.hits[:2].all() and found.candidates == 4 and found.share == pytest.approx(np.mean(hits))
    wider = alignment_of_model(encoder, entries, candidates=[53, 90, 52, 51, 50, 90])
    assert wider.nearest.tolist()[2] == 90 and not wider.hits[2] and wider.candidates == 5


def test_one_way_only():
    source = torch.tensor([[1.0, 0.0], [0.9, 0.5]])
    target = torch.tensor([[1.0, 0.1], [0.2, 1.0]])
    entries = np.array([[0, 0], [1, 1]])
    assert alignment_of_entries(source, target, entries).hits.tolist() == [True, False]
    assert alignment_of_entries(target, source, entries[:, [1, 0]]).hits.tolist() == [True, True]


def test_scores_carry_an_interval():
    sources, candidates = planted()
    result = embedding_alignment(sources, candidates, torch.arange(70))
    scores = result.scores(bootstrap=200)
    assert scores["alignment_low"] < scores["alignment"] == result.share < scores["alignment_high"]
    assert (scores["sources"], scores["candidates"]) == (70, 70)
    assert set(result.scores(bootstrap=0)) == {"alignment", "sources", "candidates"}


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        (torch.tensor([0, 3]), "gold of source 1: 3 is out of range .there are 3 candidates"),
        (torch.tensor([0, -2]), "gold of source 1: -2 is out of range"),
        (torch.tensor([[0, 1], [-1, -1]]), "source 1 has no gold"),
        ([[0], []], "source 1 has no gold"),
        (torch.tensor([0]), "1 golds for 2 sources"),
        (torch.tensor([0.0, 1.0]), "expected integers"),
    ],
)
def test_bad_golds(gold, message):
    with pytest.raises(InputError, match=message):
        embedding_alignment(torch.eye(3)[:2], torch.eye(3), gold)


@pytest.mark.parametrize(
    ("entries", "candidates", "message"),
    [
        ([], None, "there are no entries"),
        ([[0, 1, 2]], None, "expected integers of shape"),
        ([[0, 1], [1, 9]], None, r"entry 1 \(1 -> 9\): there are 4 target embeddings"),
        ([[0, 1], [-1, 2]], None, r"entry 1 \(-1 -> 2\): there are 4 source embeddings"),
        ([[0, 1], [1, 2]], [1, 3], r"entry 1 \(1 -> 2\): the counterpart is not among the 2 candidates"),
        ([[0, 1]], [1, 4], "candidates: 4 is out of range"),
        ([[0, 1]], [], "candidates: expected a list"),
    ],
)
def test_bad_entries(entries, candidates, message):
    with pytest.raises(InputError, match=message):
        alignment_of_entries(torch.eye(4), torch.eye(4), entries, candidates)


USER = """
import doctest, json, sys
import evaluate
import numpy as np

folder, data = sys.argv[1:]
given = dict(np.load(data))
modules = {name: evaluate.load(f"{folder}/{name}") for name in ("embedding_alignment", "transfer_gap")}
tests = {name: doctest.testmod(sys.modules[type(module).__module__]) for name, module in modules.items()}
result = {"doctests": {name: [found.failed, found.attempted] for name, found in tests.items()}}

entries = given.pop("entries")
alignment, gap = modules.values()
result["alignment"] = alignment.compute(entries=entries, **given)
for part in (entries[:30], entries[30:]):
    alignment.add_batch(entries=part.tolist())
result["wide"] = alignment.compute(**given, candidates=list(range(70)), similarity="csls", k=3, bootstrap=50, seed=2)

result["gap"] = gap.compute(supervised=[0.9, 0.8], zero_shot=[0.5, 0.6])
for n in range(4):
    gap.add(supervised=1, zero_shot=n % 2)
result["interval"] = gap.compute(bootstrap=100, seed=1)
print(json.dumps(result))
"""


def test_modules_load_offline_and_give_the_librarys_scores(tmp_path):
    sources, candidates = planted()
    entries = [[n, n] for n in range(50)] + [[n, n + 1] for n in range(10)]
    np.savez(tmp_path / "data.npz", source_vectors=sources, target_vectors=candidates, entries=entries)
    (tmp_path / "user.py").write_text(USER)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    for variable in ("HF_MODULES_CACHE", "HF_EVALUATE_CACHE", "PYTHONPATH"):
        environment.pop(variable, None)
    run = subprocess.run(
        [sys.executable, "user.py", str(METRICS), "data.npz"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout.splitlines()[-1])
    assert all(failed == 0 and attempted > 0 for failed, attempted in seen["doctests"].values())
    assert seen["alignment"] == alignment_of_entries(sources, candidates, entries).scores()
    wide = alignment_of_entries(sources, candidates, entries, range(70), similarity="csls", k=3)
    assert seen["wide"] == wide.scores(bootstrap=50, seed=2) != seen["alignment"]
    assert seen["gap"] == transfer_gap([0.9, 0.8], [0.5, 0.6])
    assert seen["interval"] == transfer_gap([1.0] * 4, [0.0, 1.0, 0.0, 1.0], bootstrap=100, seed=1)


@pytest.mark.parametrize("name", ["embedding_alignment", "transfer_gap"])
def test_readmes_are_space_cards(name):
    _, front, body = (METRICS / name / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["title"] and card["sdk"] and "metric" in card["tags"]
    for heading in ("Metric description", "Inputs", "Outputs", "Limitations", "Citation"):
        assert f"## {heading}\n" in body
