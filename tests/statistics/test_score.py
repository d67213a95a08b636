"""Scores as values, and their names in records, logs and tables."""

from dataclasses import replace
from itertools import product

from hf_xalign.score import KINDS, Score


def test_a_name_is_read_back_as_the_value_it_was_written_from():
    poolings = {"retrieval": ("mean", "last_types", "words"), "sentence": ("cls_csls",), "bli": ("p@1_oov_wrong",)}
    poolings |= {"embedding": ("alignment",), "probe": ("pos", "to_do"), "pool": ("", "sentences")}
    assert poolings.keys() == KINDS.keys()
    for task in KINDS:
        for pooling, direction, protocol, layer in product(
            poolings[task], ("", "to", "from"), ("", "mao", "identical+legacy"), (None, 8, -1)
        ):
            score = Score(task, pooling, direction, protocol, layer, "de", 0.5)
            assert Score.read(score.name, "de", 0.5) == score
    for name in ("accuracy", "span_f1", "exact_match", "_odd", ""):
        assert Score.read(name).name == name


def test_scores_know_what_they_measure():
    score = Score("retrieval", "last", "to", "mao")
    assert (score.folder, score.title, score.module) == (
        "retrieval_last_to_pivot-mao",
        "word retrieval",
        "word_retrieval",
    )
    own = Score.read("semantic_similarity")
    assert (own.title, own.module) == ("semantic similarity", "semantic_similarity")  # not word retrieval
    assert Score("probe", "pos").module == "classification_accuracy" and Score.read("exact_match").module == "qa_f1"
    assert [one.direction for one in replace(score, direction="from").directions()] == ["", "to", "from"]
