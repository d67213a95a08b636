from __future__ import annotations

import logging
from importlib import import_module

import numpy as np
import pytest
import torch
from support.vocabularies import languages, loop_pairs, loop_scores, rotation, share_found, vectors

from hf_xalign.errors import InputError
from hf_xalign.mapping.induction import induce_dictionary
from hf_xalign.mapping.maps import unit
from hf_xalign.mapping.self_learning import Dropout, _search
from hf_xalign.mapping.vecmap import vecmap

# The package has the function under the name of its module.
self_learning = import_module("hf_xalign.mapping.self_learning")
learn = self_learning.self_learning


DIRECTIONS = ("union", "forward", "backward", "mutual")


class TestInduction:
    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize("similarity", ["csls", "cosine"])
    def test_against_brute_force(self, direction, similarity):
        source, target = vectors(3, 40, 5) + 0.3, vectors(4, 55, 5)
        found = induce_dictionary(source, target, k=4, direction=direction, similarity=similarity)
        assert found.dtype == torch.int64
        wanted = loop_pairs(loop_scores(source, target, 4, similarity == "csls"), direction)
        assert [tuple(pair) for pair in found.tolist()] == wanted
        assert 0 < len(wanted) <= 95

    def test_directions_differ(self):
        source, target = vectors(3, 40, 5) + 0.3, vectors(4, 55, 5)
        found = {d: induce_dictionary(source, target, direction=d) for d in DIRECTIONS}
        assert [len(found[d]) for d in ("union", "forward", "backward")] == [95, 40, 55]
        # In the union a mutual pair stands twice.
        _, counts = found["union"].unique(dim=0, return_counts=True)
        assert (counts == 2).sum() == len(found["mutual"]) > 3

    def test_cutoff_leaves_rarer_words_out_of_everything(self):
        source, target = vectors(5, 60, 6), vectors(6, 70, 6)
        found = induce_dictionary(source, target, cutoff=25)
        assert torch.equal(found, induce_dictionary(source[:25], target[:25]))
        assert found.max() < 25

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"direction": "both"}, "'both' is not known: use one of union, forward, backward, mutual"),
            ({"cutoff": 0}, "cutoff=0"),
            ({"k": 0}, "k=0"),
            ({"similarity": "dot"}, "'dot' is not known"),
        ],
    )
    def test_bad_options(self, options, message):
        with pytest.raises(InputError, match=message):
            induce_dictionary(torch.ones(3, 4), torch.ones(3, 4), **options)


class TestDropout:
    def mask(self, keep, rows=300, columns=400, seed=0):
        return Dropout(rows, columns, keep, torch.Generator().manual_seed(seed), torch.device("cpu"))

    @pytest.mark.parametrize("keep", [0.1, 0.2, 0.5, 0.8])
    def test_the_share_kept(self, keep):
        kept = ~self.mask(keep)(slice(None))
        # Five standard deviations of a binomial.
        bound = 5 * (keep * (1 - keep)) ** 0.5
        assert abs(kept.double().mean() - keep) < bound / 120_000**0.5
        assert (kept.double().mean(1) - keep).abs().max() < bound / 400**0.5
        assert (kept.double().mean(0) - keep).abs().max() < bound / 300**0.5

    def test_entries_do_not_hang_together(self):
        sign = (~self.mask(0.5)(slice(None))).double() * 2 - 1
        # Between rows, between columns, and around rectangles, which row-and-column hashes could get wrong.
        for product in (
            sign[1:] * sign[:-1],
            sign[:, 1:] * sign[:, :-1],
            sign[1:, 1:] * sign[:-1, :-1] * sign[1:, :-1] * sign[:-1, 1:],
        ):
            assert abs(product.mean()) < 5 / product.numel() ** 0.5

    def test_any_part_is_part_of_the_whole(self):
        mask = self.mask(0.3)
        whole = mask(slice(None))
        for size in (1, 7, 256):
            parts = [mask(slice(start, start + size)) for start in range(0, 300, size)]
            assert torch.equal(torch.cat(parts), whole)

    def test_each_draw_is_another_and_each_seed_repeats(self):
        generator = torch.Generator().manual_seed(4)
        one, two = (Dropout(30, 40, 0.5, generator, torch.device("cpu"))(slice(None)) for _ in range(2))
        assert not torch.equal(one, two)
        assert torch.equal(one, self.mask(0.5, 30, 40, seed=4)(slice(None)))

    @pytest.mark.parametrize("keep", [1e-12, 1 - 1e-12])
    def test_the_ends_of_the_range(self, keep):
        assert self.mask(keep)(slice(None)).double().mean().round() == round(1 - keep)


class TestSearch:
    @pytest.mark.parametrize("kept", [0, 2**26])
    @pytest.mark.parametrize("rows", [7, 16, 256])
    @pytest.mark.parametrize("keep", [None, 0.3, 0.02])
    def test_against_brute_force(self, keep, rows, kept, monkeypatch):
        monkeypatch.setattr(self_learning, "_ROWS", rows)
        monkeypatch.setattr(self_learning, "_KEPT", kept)
        x, z = unit(vectors(7, 40, 6) + 0.3), unit(vectors(8, 30, 6))
        dropout = keep and Dropout(40, 30, keep, torch.Generator().manual_seed(1), x.device)
        scores = loop_scores(x, z, 5)
        if dropout:
            scores[dropout(slice(None)).numpy()] = -np.inf
        found, _ = _search(x, z, 5, "union", dropout)
        dense = [(scores.max(axis) > -np.inf).tolist() for axis in (1, 0)]
        assert all(all(side) for side in dense) == (keep != 0.02), "the smallest share leaves words with nothing"
        for side, index, axis in zip(dense, found, (1, 0)):
            wanted = [best if any_left else -1 for best, any_left in zip(scores.argmax(axis).tolist(), side)]
            assert index.tolist() == wanted

    @pytest.mark.parametrize("rows", [1, 3, 50, 163, 200, 203])
    def test_the_largest_of_each_column(self, rows):
        values = vectors(9, rows, 30)
        values[: rows // 2] = values[rows - rows // 2 :]  # every value twice
        wanted = values.sort(0, descending=True).values[:10]
        assert torch.equal(self_learning._largest(values, 10), wanted)

    @pytest.mark.parametrize("direction", DIRECTIONS)
    def test_the_objective_is_the_mean_best_cosine_whatever_is_dropped(self, direction):
        x, z = unit(vectors(7, 40, 6) + 0.3), unit(vectors(8, 30, 6))
        cosine = loop_scores(x, z, 5, use_csls=False)
        ways = {"forward": (1,), "backward": (0,)}.get(direction, (0, 1))
        dropout = Dropout(40, 30, 0.2, torch.Generator().manual_seed(1), x.device)
        _, objective = _search(x, z, 5, direction, dropout)
        assert objective == pytest.approx(np.mean([cosine.max(axis).mean() for axis in ways]), abs=1e-6)


class TestSelfLearning:
    @pytest.mark.parametrize("seeds", [15, 25])
    @pytest.mark.parametrize("whiten", [True, False])
    def test_a_planted_rotation_from_a_few_seeds(self, seeds, whiten):
        source, target, partner = languages(noise=0.6, order=True)
        seed_pairs = torch.stack([torch.arange(seeds), partner[:seeds]], 1)
        alone = vecmap(
            source[:seeds],
            target[partner[:seeds]],
            whiten=False,
            source_candidates=source,
            target_candidates=target,
        )
        found = learn(source, target, seed_pairs, whiten=whiten, patience=10)
        assert share_found(alone, source, target, partner) < 0.9
        assert share_found(found, source, target, partner) > 0.97

    def test_the_last_step_is_vecmap_on_the_induced_dictionary(self):
        source, target, partner = languages(noise=0.0)
        pairs = torch.stack([torch.arange(20), partner[:20]], 1)
        found = learn(source, target, pairs, patience=2, reweight=0.8, cutoff=200)
        # Without noise the dictionary is the truth; a union holds every pair twice.
        twice = torch.arange(200).repeat(2)
        wanted = vecmap(source[twice], target[twice], reweight=0.8, source_candidates=source, target_candidates=target)
        assert found.method == wanted.method
        torch.testing.assert_close(
            found.project(source) @ found.project(target, "target").T,
            wanted.project(source) @ wanted.project(target, "target").T,
        )

    def test_deterministic_and_the_seed_matters(self, monkeypatch):
        source, target, partner = languages(noise=1.0)
        pairs = torch.stack([torch.arange(20), partner[:20]], 1)
        options = {"patience": 3, "max_iterations": 12}
        found = [learn(source, target, pairs, **options).source.weight for _ in range(2)]
        assert torch.equal(*found)
        assert not torch.allclose(found[0], learn(source, target, pairs, seed=1, **options).source.weight)

    def test_autocast_around_it_changes_nothing(self):
        source, target, partner = languages(noise=1.0)
        pairs = torch.stack([torch.arange(20), partner[:20]], 1)
        run = lambda: learn(source, target, pairs, patience=3, max_iterations=6)  # noqa: E731
        wanted = run().source.weight
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(run().source.weight, wanted)

    @pytest.mark.parametrize(("rows", "kept"), [(37, 2**26), (256, 0), (64, 0)])
    def test_the_parts_of_the_work_do_not_matter(self, rows, kept, monkeypatch):
        source, target, partner = languages()
        pairs = torch.stack([torch.arange(25), partner[:25]], 1)
        wanted = learn(source, target, pairs, patience=4)
        monkeypatch.setattr(self_learning, "_ROWS", rows)
        monkeypatch.setattr(self_learning, "_KEPT", kept)
        found = learn(source, target, pairs, patience=4)
        torch.testing.assert_close(found.source.weight, wanted.source.weight)

    def test_the_share_doubles_when_stuck_and_the_loop_ends_with_all(self, monkeypatch):
        seen = []
        # The objective rises with the first three turns, by less than the threshold in the fourth, and then never.
        rises = [0.1, 0.2, 0.3, 0.3 + 5e-7]

        def search(x, z, k, direction, dropout):
            neighbours, _ = _search(x, z, k, direction, dropout)
            seen.append(1.0 if dropout is None else dropout.last_kept)
            return neighbours, rises.pop(0) if rises else 0.3

        monkeypatch.setattr(self_learning, "_search", search)
        source, target, partner = languages()
        learn(source, target, torch.stack([torch.arange(25), partner[:25]], 1), patience=5)
        shares = [share if share == 1.0 else (share + 2**31) / 2**32 for share in seen]
        assert shares == pytest.approx([0.1] * 8 + [0.2] * 5 + [0.4] * 5 + [0.8] * 5 + [1.0] * 5, abs=1e-8)

    @pytest.mark.parametrize("rank", ["0", "1"])
    def test_max_iterations_ends_it_with_a_warning(self, rank, monkeypatch, caplog):
        monkeypatch.setenv("RANK", rank)
        source, target, partner = languages()
        pairs = torch.stack([torch.arange(25), partner[:25]], 1)
        with caplog.at_level(logging.WARNING):
            learn(source, target, pairs, max_iterations=4)
        assert "max_iterations=4 turns, not converged (keep=0.1)" in caplog.text

    def test_other_sizes_and_numbers_of_words(self):
        base = vectors(10, 260, 12)
        source = base @ rotation(11, 14)[:12] + 0.05 * vectors(12, 260, 14)
        target = base[:240] + 0.05 * vectors(13, 240, 12)
        pairs = torch.arange(30).repeat(2, 1).T
        found = learn(source, target, pairs, patience=5)
        assert found.project(source).shape == (260, 12)
        assert share_found(found, source[:240], target, torch.arange(240)) > 0.9

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"keep": 0.0}, "keep=0.0"),
            ({"keep": 1.5}, "keep=1.5"),
            ({"k": 0}, "k=0"),
            ({"patience": 0}, "patience=0"),
            ({"threshold": -1e-6}, "threshold=-1e-06"),
            ({"threshold": float("nan")}, "threshold=nan"),
            ({"layers": (-2, -1)}, r"layers=\(-2, -1\): self-learning is of one layer"),
            ({"seed_pairs": torch.tensor([[0, 0], [4, -3]], dtype=torch.int8)}, r"row 1 is \[4, -3\]"),
            ({"max_iterations": 0}, "max_iterations=0"),
            ({"cutoff": 0}, "cutoff=0"),
            ({"direction": "both"}, "'both' is not known"),
            ({"steps": ("norm",)}, "'norm' is not known"),
            ({"cutoff": 19}, "19 words are fewer than the 20 dimensions.*whiten=False"),
            ({"source": torch.ones(300, 2, 20)}, r"source vectors of shape \(300, 2, 20\): give one layer"),
            ({"target": torch.ones(300, 20).long()}, "target vectors: expected floats"),
            ({"target": torch.ones(300, 20).index_fill(0, torch.tensor([8]), torch.inf)}, "target vectors: row 8"),
            ({"seed_pairs": torch.zeros(0, 2).long()}, r"seed pairs: expected integers.*\(0, 2\)"),
            ({"seed_pairs": torch.zeros(3, 3).long()}, r"seed pairs: expected integers.*\(3, 3\)"),
            ({"seed_pairs": torch.zeros(3, 2)}, "seed pairs: expected integers"),
            ({"seed_pairs": torch.tensor([[0, 0], [4, 300]])}, r"row 1 is \[4, 300\], but there are 300 source"),
            ({"seed_pairs": torch.tensor([[-1, 0]])}, r"row 0 is \[-1, 0\]"),
            ({"keep": 1e-12}, "leaves no union pair of 300 and 300 words; raise keep"),
        ],
    )
    def test_bad_input(self, change, message):
        source, target, partner = languages()
        pairs = torch.stack([torch.arange(25), partner[:25]], 1)
        given = {"source": source, "target": target, "seed_pairs": pairs, **change}
        with pytest.raises(InputError, match=message):
            learn(given.pop("source"), given.pop("target"), given.pop("seed_pairs"), **given)

    @pytest.mark.gpu
    def test_gpu_equals_cpu(self):
        source, target, partner = languages()
        pairs = torch.stack([torch.arange(25), partner[:25]], 1)
        found = learn(source.cuda(), target.cuda(), pairs, patience=5)
        assert found.source.weight.is_cuda
        assert share_found(found, source.cuda(), target.cuda(), partner.cuda()) > 0.97
