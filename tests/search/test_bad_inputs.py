"""Bad inputs of the searches."""

import re

import torch
from support.nearest import on_circle
from support.refusals import assert_refused, calls

from hf_xalign.search.csls import as_tensor, nearest_neighbours
from hf_xalign.search.ranking import nearest

ONES = torch.ones(3, 4)
NAN, INF = float("nan"), float("inf")


def whole(message):
    """Expression of this message and nothing else."""
    return f"^{re.escape(message)}$"


def spoilt(value, row):
    x = torch.ones(20, 4)
    x[row:, 2] = value
    return x


MATRIX = "{} vectors: expected a floating-point matrix (words, dimensions), got {} of shape {}"
SIZES = "{} vectors have 4 dimensions and {} vectors {}: both must come from the same layers of the same model"
BAD_ROW = "{} vectors: row {} (of 20) has NaN or infinity. Check the model that computed it."
NO_ROWS = "{} vectors: there are no rows to search in"
RAGGED = "^{} vectors: every row needs the same number of dimensions: .+$"


def test_nearest_neighbours():
    rows = [
        ((ONES, ONES[:, :3]), whole(SIZES.format("source", "target", 3))),
        ((ONES[:0], ONES), whole(NO_ROWS.format("source"))),
        ((ONES, ONES[:0]), whole(NO_ROWS.format("target"))),
        ((ONES[0], ONES), whole(MATRIX.format("source", "torch.float32", "(4,)"))),
        ((ONES, ONES.long()), whole(MATRIX.format("target", "torch.int64", "(3, 4)"))),
        ((spoilt(NAN, 13), ONES), whole(BAD_ROW.format("source", 13))),
        ((ONES, spoilt(INF, 0)), whole(BAD_ROW.format("target", 0))),
    ]
    k = "k=0: must be at least 1"
    legacy = "legacy=True is a variant of CSLS: leave similarity at 'csls'"
    margin = (
        "margin: source row 1 and target row 1 have a mean cosine of -0.94 to their 1 nearest neighbours, and the "
        "margin cannot divide by zero or less. Check that these vectors are not zero, or use 'csls', which subtracts "
        "the mean."
    )
    options = [
        ({"k": 0}, whole(k)),
        ({"similarity": "dot"}, whole("similarity=dot: choose one of csls, cosine, margin")),
        ({"similarity": "cosine", "legacy": True}, whole(legacy)),
        ({"target": on_circle(20, -20), "source": on_circle(150, 180), "similarity": "margin", "k": 1}, whole(margin)),
    ]
    assert_refused(calls(nearest_neighbours, rows) | calls(nearest_neighbours, options, source=ONES, target=ONES))
    assert_refused(calls(nearest_neighbours, rows, legacy=True))
    assert_refused(calls(as_tensor, [(([[1.0], [1.0, 2.0]], "source"), RAGGED.format("source"))]))


def test_ranking():
    rows = [
        ((ONES, ONES[:, :3]), whole(SIZES.format("query", "candidate", 3))),
        ((ONES, ONES, 1, ONES[:, :2]), whole(SIZES.format("query", "neighbourhood", 2))),
        ((ONES[:0], ONES), whole(NO_ROWS.format("query"))),
        ((ONES, ONES[0]), whole(MATRIX.format("candidate", "torch.float32", "(4,)"))),
        ((spoilt(NAN, 7), ONES), whole(BAD_ROW.format("query", 7))),
        ((ONES, spoilt(NAN, 2)), whole(BAD_ROW.format("candidate", 2))),
        ((ONES, ONES, 1, spoilt(INF, 3)), whole(BAD_ROW.format("neighbourhood", 3))),
    ]

    def rank(queries, candidates, n=10, neighbourhood=None):
        return nearest(queries, candidates, n, neighbourhood=neighbourhood)

    options = [
        ({"n": 0}, whole("n=0: must be at least 1")),
        ({"k": 0}, whole("k=0: must be at least 1")),
        ({"similarity": "margin"}, whole("similarity=margin: choose one of csls, cosine")),
    ]
    assert_refused(calls(rank, rows) | calls(nearest, options, queries=ONES, candidates=ONES))
