from __future__ import annotations

import numpy as np
import pytest

from hf_xalign.data.statistical_alignment import StatisticalLinker
from hf_xalign.data.symmetrization import LinkFilters, heuristic, symmetrize
from hf_xalign.errors import InputError

NEIGHBOURS = [(di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1) if (di, dj) != (0, 0)]


def _new(link, links, both):
    new_row, new_column = link[0] not in {i for i, _ in links}, link[1] not in {j for _, j in links}
    return (new_row and new_column) if both else (new_row or new_column)


def reference(forward, backward, method):
    """The definitions, cell by cell over sets of links."""
    f, b = ({(i, j) for i, j in np.argwhere(x).tolist()} for x in (forward, backward))
    if method == "union":
        return f | b
    links = f & b
    if method == "intersection":
        return links
    grown = True
    while grown:
        grown = False
        for i, j in sorted(f | b):
            beside = any((i + di, j + dj) in links for di, dj in NEIGHBOURS)
            if (i, j) not in links and beside and _new((i, j), links, both=False):
                links = links | {(i, j)}
                grown = True
    if method == "grow-diag-final-and":
        for direction in (f, b):
            for link in sorted(direction):
                if _new(link, links, both=True):
                    links = links | {link}
    return links


def _random_directions(rng):
    rows, columns = rng.integers(1, 8, size=2)
    forward, backward = np.zeros((2, rows, columns), dtype=bool)
    forward[np.arange(rows), rng.integers(columns, size=rows)] = rng.random(rows) < 0.8
    backward[rng.integers(rows, size=columns), np.arange(columns)] = rng.random(columns) < 0.8
    return forward, backward


@pytest.mark.parametrize("method", ["intersection", "union", "grow-diag", "grow-diag-final-and"])
def test_equals_the_definition(method):
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(300):
        forward, backward = _random_directions(rng)
        before = forward.copy(), backward.copy()
        result = symmetrize(forward, backward, method)
        assert result.dtype == bool
        assert {tuple(x) for x in np.argwhere(result).tolist()} == reference(forward, backward, method)
        assert (forward == before[0]).all() and (backward == before[1]).all()
        sizes.append(result.sum())
    assert sum(sizes) > 200


def test_methods_differ_on_a_hand_made_case():
    forward = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1]], dtype=bool)
    backward = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    links = {
        method: np.argwhere(symmetrize(forward, backward, method)).tolist()
        for method in ("intersection", "union", "grow-diag", "grow-diag-final-and")
    }
    assert links["intersection"] == [[0, 0]]
    assert links["union"] == [[0, 0], [1, 0], [1, 1], [2, 2]]
    assert links["grow-diag"] == [[0, 0], [1, 0], [1, 1], [2, 2]]
    apart = np.zeros((3, 3), dtype=bool)
    apart[0, 0] = apart[2, 2] = True
    corner = apart & (np.arange(3) == 0)
    assert np.argwhere(symmetrize(apart, corner, "grow-diag")).tolist() == [[0, 0]]
    assert np.argwhere(symmetrize(apart, corner, "grow-diag-final-and")).tolist() == [[0, 0], [2, 2]]


@pytest.mark.parametrize("method", ["intersection", "union", "grow-diag", "grow-diag-final-and"])
def test_statistical_aligners_mean_the_same_by_a_name(method):
    pairs = [("a b c", "x y z"), ("a b", "y x"), ("b c d", "y w z"), ("d a", "w x"), ("c", "z q")] * 3
    words = [(source.split(), target.split()) for source, target in pairs]
    linker = StatisticalLinker("fast_align", words, symmetrization=method)
    sources, targets = [["d", "c", "b", "a"], ["a"]], [["x", "y", "z", "w"], ["q", "x"]]
    links = linker(sources, targets)
    direct, inverse = linker.directions
    for source, target, found in zip(sources, targets, links):
        forward = direct.get_best_alignment(source, target)[1].to_numpy()
        backward = inverse.get_best_alignment(target, source)[1].to_numpy().T
        assert {tuple(x) for x in found} == reference(forward, backward, method)


def test_unknown_name_is_refused():
    with pytest.raises(InputError, match="grow-diag-final-and"):
        heuristic("grow-final")


def test_filters_and_their_order():
    source, target = ["Haus", "1", "Chrome", ".", "rot", "blau"], ["house", "1", "Chrome", ".", "red", "colour"]
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (4, 5), (5, 5)]
    assert LinkFilters()(links, source, target) == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert LinkFilters(drop_identical=True)(links, source, target) == [[0, 0]]
    assert LinkFilters(require_letter=True)(links, source, target) == [[0, 0], [2, 2]]
    assert LinkFilters(False)(links, source, target) == [list(link) for link in links]
    # The identical link goes, but its word had two links: the other one goes as well.
    assert LinkFilters(True, True)([(0, 0), (0, 1)], ["x"], ["x", "y"]) == []
    assert LinkFilters(False, True)([(0, 0), (0, 1)], ["x"], ["x", "y"]) == [[0, 1]]


def test_letters_of_any_script_count():
    assert LinkFilters(require_letter=True)([(0, 0), (1, 1)], ["মা", "১২"], ["mother", "12"]) == [[0, 0]]
