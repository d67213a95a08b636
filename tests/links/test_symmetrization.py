"""Symmetrized links against plain sets, whoever found them, and the filters after it."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thot.alignment import SymmetrizationHeuristic

from hf_xalign.errors import InputError
from hf_xalign.links.statistical import StatisticalLinker
from hf_xalign.links.symmetrization import LinkFilters, Symmetrization, heuristic, symmetrize

METHODS = get_args(Symmetrization)
NEIGHBOURS = [(di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1) if (di, dj) != (0, 0)]


def reference(f, b, method):
    """Return the links of a method by its definition, cell by cell over sets."""

    def covers(link, everything):
        new = link[0] not in {i for i, _ in links}, link[1] not in {j for _, j in links}
        return all(new) if everything else any(new)

    links = set(f | b if method == "union" else f & b)
    grown = method.startswith("grow")
    while grown:
        grown = False
        for i, j in sorted(f | b):
            beside = any((i + di, j + dj) in links for di, dj in NEIGHBOURS)
            if (i, j) not in links and beside and covers((i, j), everything=False):
                links.add((i, j))
                grown = True
    for direction in (f, b) if method == "grow-diag-final-and" else ():
        for link in sorted(direction):
            if covers(link, everything=True):
                links.add(link)
    return links


def cells(links):
    return {tuple(cell) for cell in np.argwhere(links).tolist()}


@st.composite
def directions(draw):
    """Draw the links of two directions of one sentence pair."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    bits = st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns)
    return [np.array(draw(bits)).reshape(rows, columns) for _ in range(2)]


@pytest.mark.parametrize("method", METHODS)
@given(pair=directions())
def test_links_of_every_method_equal_sets(method, pair):
    before = [links.copy() for links in pair]
    found = symmetrize(*pair, method)
    assert (found.dtype, found.shape) == (bool, pair[0].shape)
    assert cells(found) == reference(*map(cells, pair), method)
    assert all((links == old).all() for links, old in zip(pair, before))


def test_statistical_aligners_mean_the_same_by_a_name():
    pairs = [("a b c", "x y z"), ("a b", "y x"), ("b c d", "y w z"), ("d a", "w x"), ("c", "z q")] * 3
    words = [(source.split(), target.split()) for source, target in pairs]
    sources, targets = [["d", "c", "b", "a"], ["a"]], [["x", "y", "z", "w"], ["q", "x"]]
    for method in METHODS:
        linker = StatisticalLinker("fast_align", words, symmetrization=method)
        direct, inverse = linker.directions
        for source, target, found in zip(sources, targets, linker(sources, targets)):
            forward = direct.get_best_alignment(source, target)[1].to_numpy()
            backward = inverse.get_best_alignment(target, source)[1].to_numpy().T
            assert {tuple(x) for x in found} == reference(cells(forward), cells(backward), method), method


def test_names_of_methods():
    names = ("INTERSECTION", "UNION", "GROW_DIAG", "GROW_DIAG_FINAL_AND")
    assert [heuristic(name) for name in METHODS] == [getattr(SymmetrizationHeuristic, name) for name in names]
    for call in (lambda: heuristic("och"), lambda: symmetrize(*np.ones((2, 1, 1), dtype=bool), "och")):
        with pytest.raises(InputError, match="'och' is none of intersection, union, grow-diag, grow-diag-final-and"):
            call()


def test_filters_and_their_order():
    source, target = ["Haus", "1", "Chrome", ".", "rot", "blau"], ["house", "1", "Chrome", ".", "red", "colour"]
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (4, 5), (5, 5)]
    assert LinkFilters()(links, source, target) == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert LinkFilters(drop_identical=True)(links, source, target) == [[0, 0]]
    assert LinkFilters(require_letter=True)(links, source, target) == [[0, 0], [2, 2]]
    assert LinkFilters(False)(links, source, target) == [list(link) for link in links]
    assert LinkFilters()([(0, 0), (1, 0), (2, 1), (3, 1), (3, 2)], "abcd", "xyz") == []
    # The identical link goes, but its word had two links: the other one goes as well.
    assert LinkFilters(True, True)([(0, 0), (0, 1)], ["x"], ["x", "y"]) == []
    assert LinkFilters(False, True)([(0, 0), (0, 1)], ["x"], ["x", "y"]) == [[0, 1]]
    # A letter of any script counts, and both words need one.
    words = ["মা", "১২", "a", "1"], ["mother", "12", "1", "a"]
    assert LinkFilters(require_letter=True)([(k, k) for k in range(4)], *words) == [[0, 0]]
