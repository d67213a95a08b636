"""Run the examples in docstrings. Add a module here when one of its docstrings gets an example."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "hf_xalign.config",
    "hf_xalign.data.batches.pairs",
    "hf_xalign.data.encoding",
    "hf_xalign.data.parallel",
    "hf_xalign.data.words",
    "hf_xalign.evaluation.alignment_error",
    "hf_xalign.evaluation.lexicon",
    "hf_xalign.evaluation.retrieval",
    "hf_xalign.evaluation.scores",
    "hf_xalign.evaluation.sentence_scores",
    "hf_xalign.evaluation.vectors",
    "hf_xalign.links.align",
    "hf_xalign.links.neural",
    "hf_xalign.losses",
    "hf_xalign.mapping.anchors.anchors",
    "hf_xalign.mapping.procrustes",
    "hf_xalign.mapping.rcsls",
    "hf_xalign.mapping.refinement",
    "hf_xalign.mapping.self_learning",
    "hf_xalign.mapping.vecmap",
    "hf_xalign.mapping.word2vec",
    "hf_xalign.model_cards.card",
    "hf_xalign.modeling.contrast.momentum",
    "hf_xalign.modeling.contrast.momentum",
    "hf_xalign.modeling.language_embeddings",
    "hf_xalign.modeling.languages",
    "hf_xalign.modeling.loading",
    "hf_xalign.modeling.maps",
    "hf_xalign.modeling.tagger.crf",
    "hf_xalign.modeling.xalign.config",
    "hf_xalign.modeling.xalign.insertion",
    "hf_xalign.modeling.xalign.merging",
    "hf_xalign.report.builder",
    "hf_xalign.search.csls",
    "hf_xalign.search.ranking",
    "hf_xalign.statistics.bootstrap",
    "hf_xalign.statistics.comparison",
    "hf_xalign.statistics.significance",
    "hf_xalign.tables",
    "hf_xalign.tasks.classification",
    "hf_xalign.tasks.examples",
    "hf_xalign.tasks.labels",
    "hf_xalign.tasks.qa.task",
    "hf_xalign.trainers.align_mlm",
    "hf_xalign.trainers.continual",
    "hf_xalign.trainers.fao",
    "hf_xalign.trainers.mao",
    "hf_xalign.trainers.ppa",
    "hf_xalign.trainers.task",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a trainer makes its output folder
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert result.attempted and not result.failed
