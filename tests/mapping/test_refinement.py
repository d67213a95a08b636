"""MUSE's refinement of a map."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from support.vocabularies import languages, share_found, vectors

from hf_xalign.errors import InputError
from hf_xalign.mapping import refinement
from hf_xalign.mapping.induction import induce_dictionary
from hf_xalign.mapping.maps import LanguageMap, SideMap
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.mapping.refinement import refine
from hf_xalign.mapping.vecmap import vecmap


class TestRefinement:
    def noisy(self, words=300, wrong=0.8):
        """Which target word each source word is paired with: a share of the pairs is wrong."""
        rows = torch.arange(words)
        count = int(wrong * words)
        rows[:count] = rows[torch.randperm(count, generator=torch.Generator().manual_seed(3))]
        return rows

    @pytest.mark.parametrize("kind", ["procrustes", "centred", "normalised"])
    def test_it_improves_a_noisy_map(self, kind):
        source, target, partner = languages(noise=0.5)
        rows = self.noisy()
        noisy = {
            "procrustes": lambda: procrustes(source, target[rows]),
            "centred": lambda: procrustes(source, target[rows], centre=True),
            "normalised": lambda: vecmap(source, target[rows], whiten=False),
        }[kind]()
        found = refine(source, target, noisy, iterations=8)
        before, after = (share_found(each, source, target, partner) for each in (noisy, found))
        assert before < 0.7 and after > 0.97, (before, after)
        assert found.method == f"{noisy.method}, refined"
        assert (found.source.steps, found.layers) == (noisy.source.steps, noisy.layers)

    def test_one_iteration_is_procrustes_on_mutual_neighbours(self):
        source, target, _ = languages(noise=0.5)
        start = procrustes(source, target[self.noisy()], centre=True)
        found = refine(source, target, start, iterations=1, cutoff=150)
        pairs = induce_dictionary(start.project(source), target, direction="mutual", cutoff=150)
        x, z = source[pairs[:, 0]] - start.source.means[0][0], target[pairs[:, 1]] - start.source.offset[0]
        torch.testing.assert_close(found.source.weight, procrustes(x, z).source.weight)

    def test_the_best_by_the_criterion_is_returned(self, monkeypatch):
        source, target, _ = languages(noise=0.5)
        start = procrustes(source, target[self.noisy()])
        scores = [0.5, 0.7, 0.9, 0.6]
        monkeypatch.setattr(refinement, "_mean_cosine", lambda *_: scores.pop(0))
        best = refine(source, target, start, iterations=3)
        monkeypatch.undo()
        monkeypatch.setattr(refinement, "_mean_cosine", lambda *_: 0.0)
        assert refine(source, target, start, iterations=2) is start, "no turn is better than the map given"
        monkeypatch.undo()
        # Scores are of the map given and of three turns; the second turn's map, by hand.
        current = start
        for _ in range(2):
            pairs = induce_dictionary(current.project(source), target, direction="mutual")
            current = procrustes(source[pairs[:, 0]], target[pairs[:, 1]])
        torch.testing.assert_close(best.source.weight, current.source.weight)

    def test_the_criterion(self):
        one, other = vectors(14, 9, 4), vectors(15, 9, 4)
        wanted = np.mean(
            [float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(one.numpy(), other.numpy())]
        )
        assert refinement._mean_cosine(one, other) == pytest.approx(wanted, abs=1e-6)

    def test_a_map_turned_round_is_refined_too(self):
        source, target, partner = languages(noise=0.4)
        start = procrustes(source, target[self.noisy()], centre=True).inverse()
        found = refine(target, source, start, iterations=8)
        before, after = (share_found(each, target, source, partner) for each in (start, found))
        assert before < 0.7 and after > 0.9, (before, after)

    def test_reduced_precision_around_it_is_suspended(self, monkeypatch):
        source, target, _ = languages(noise=0.5)
        seen, before = [], torch.get_float32_matmul_precision()
        backend = torch.backends.cuda.matmul
        monkeypatch.setattr(refinement, "_mean_cosine", lambda *_: seen.append(backend.fp32_precision) or 0.0)
        torch.set_float32_matmul_precision("medium")
        try:
            refine(source, target, procrustes(source, target), iterations=1)
            assert torch.get_float32_matmul_precision() == "medium"
        finally:
            torch.set_float32_matmul_precision(before)
        assert seen == ["ieee", "ieee"]

    def test_few_mutual_pairs_are_warned_about(self, caplog):
        source, target, _ = languages()
        with caplog.at_level(logging.WARNING):
            refine(source, target, procrustes(source, target), cutoff=10)
        assert "mutual pairs do not fix a rotation of 20 dimensions" in caplog.text

    def test_bad_input(self):
        source, target, _ = languages()
        start = procrustes(source, target)
        with pytest.raises(InputError, match=r"stretches the target's space.*vecmap\(whiten=False\)"):
            refine(source, target, vecmap(source, target))
        with pytest.raises(InputError, match=r"layers \(-2, -1\) is refined a layer at a time"):
            refine(source, target, LanguageMap(SideMap.identity(2, 20, source), layers=(-2, -1)))
        with pytest.raises(InputError, match="iterations=0"):
            refine(source, target, start, iterations=0)
        with pytest.raises(InputError, match="cutoff=0"):
            refine(source, target, start, cutoff=0)
        with pytest.raises(InputError, match="this map is for"):
            refine(source[:, :10], target, start)
        source[5, 3] = torch.nan
        with pytest.raises(InputError, match=r"source vectors: row 5 \(of 300\)"):
            refine(source, target, start)
