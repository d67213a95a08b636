"""Rows written by two processes are those of one."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset
from support.examples import nli
from support.text import random_text
from transformers import BertConfig

from hf_xalign.data.code_switching.examples import code_switch_pairs, gather_groups
from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.derived.rows import derive, derive_pairs
from hf_xalign.data.derived.transliteration import Alphabet
from hf_xalign.data.pretraining.rows import encode_pretraining

pytestmark = pytest.mark.slow
CONFIG = BertConfig(max_position_embeddings=64)


def test_rows_do_not_depend_on_their_processes():
    text = random_text()
    rows = Dataset.from_dict({"a": text, "b": text[::-1], "label": list(range(len(text)))})
    language = DerivedLanguage(
        "en", ("permutation", "transliteration"), seed=3, shared=0.3, alphabet=Alphabet.of(text)
    )
    german, english = nli("de"), nli("en")
    halves = code_switch_pairs(german, english, first="premise", second="hypothesis")
    for name, call in {
        "code_switch_pairs": lambda n: code_switch_pairs(
            german, english, first="premise", second="hypothesis", num_proc=n
        ),
        "gather_groups": lambda n: gather_groups(halves, num_proc=n),
        "derive": lambda n: derive(rows, language, ["a", "b"], num_proc=n),
        "derive_pairs": lambda n: derive_pairs(rows, language, "a", num_proc=n),
    }.items():
        one, two = call(None), call(2)
        assert len(one) > 1 and one.to_list() == two.to_list() and one.features == two.features, name


def test_rows_of_pretraining_and_their_counts(tokenizer, tmp_path):
    """The second half of `de` is but a part of one row, and so is that of each language's pairs."""
    sizes = {
        "en": np.random.default_rng(0).integers(0, 20, size=1500),
        "de": np.random.default_rng(5).integers(0, 3, size=40),
    }
    corpora = {code: Dataset.from_dict({"text": [" ".join("a" * n) for n in own]}) for code, own in sizes.items()}
    languages = {"source_lang": ["de", "bn"] * 6, "target_lang": ["en"] * 12}
    sides = {side: [" ".join("b" * (1 + k % n)) for k in range(12)] for side, n in (("source", 7), ("target", 5))}
    options = {"block_size": 64, "pairs": Dataset.from_dict({**sides, **languages}), "pair_share": 0.1}
    one, counts = encode_pretraining(corpora, tokenizer, CONFIG, **options)
    corpora["en"].save_to_disk(tmp_path / "en")
    corpora["en"] = Dataset.load_from_disk(str(tmp_path / "en"))
    two, counts_two = encode_pretraining(corpora, tokenizer, CONFIG, **options, num_proc=2)
    assert one.to_list() == two.to_list() and counts == counts_two and one.features == two.features
