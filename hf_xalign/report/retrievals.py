"""Example words that a model retrieves and its base does not, or the reverse."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import Protocol, held_out_words
from hf_xalign.evaluation.vectors import language_rows
from hf_xalign.search.csls import nearest_neighbours

FILENAME = "retrievals.json"


class Retrieved(NamedTuple):
    """Words that a model retrieves for the links of one language.

    `links` is int64 (links, 3): row of the dataset, source word, target word; links of words without a vector are left
    out. `answers` is int64 (links,): index of the link whose target word is nearest to the source word.
    """

    links: np.ndarray
    answers: np.ndarray


def retrieve_words(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dataset: Dataset, layer: int = -1, desc: str = ""
) -> dict[str, Retrieved]:
    """Find each linked source word's nearest linked target word, as `retrieval_mean_to_pivot` counts it."""
    retrieved, device = {}, next(model.parameters()).device
    encoders: dict[str, Any] = dict.fromkeys(SIDES, (model, tokenizer))
    for language, row_ids in language_rows(dataset).items():
        rows = dataset.select(row_ids)
        label = f"{desc} ({language})" if desc else None
        encoded = held_out_words(encoders, rows, (Protocol(),), layers=(layer,), desc=label)
        # Links of identical words are left out.
        ours = ~encoded.kinds.any(1)
        present = encoded.present[ours].numpy()
        if not present.any():
            raise InputError(f"{language}: no link joins words that have vectors")
        source, target = (side[ours][present, 0] for side in (encoded.source, encoded.target))
        answers = nearest_neighbours(source, target, device=device).source_to_target.cpu().numpy()
        words = np.array(list(chain.from_iterable(rows["links"][:])), dtype=np.int64)
        places = np.column_stack([row_ids[encoded.sentences[ours]], words])
        retrieved[language] = Retrieved(places[present], answers)
    return retrieved


def changed_retrievals(
    dataset: Dataset,
    before: Mapping[str, Retrieved],
    after: Mapping[str, Retrieved],
    *,
    examples: int = 20,
    seed: int = 0,
) -> dict[str, object]:
    """Draw words whose retrieved word differs before and after training, at most `examples` for a language.

    Returns plain JSON: `seed` and `languages` -> `queries`, `gained` (right after only), `lost` (right before only),
    `other` (wrong in a different way) and `examples`. Each example has `source_words`, `word` (index of the query),
    `target_words`, `linked`, and for `before` and `after` the `word`, `right`, and `elsewhere` (the word is from
    another sentence).
    """
    languages = {}
    for language, old in before.items():
        new = after[language]
        if not np.array_equal(old.links, new.links):
            raise InputError(
                "the model and its base split words into different subwords, so their retrievals cannot be compared"
            )
        link_ids = np.arange(len(old.links))
        right = [side.answers == link_ids for side in (old, new)]
        changed = np.flatnonzero(old.answers != new.answers)
        generator = np.random.default_rng(seed)
        drawn = np.sort(generator.permutation(changed)[:examples])
        languages[language] = {
            "queries": len(link_ids),
            "gained": int((right[1] & ~right[0]).sum()),
            "lost": int((right[0] & ~right[1]).sum()),
            "other": int((~right[0] & ~right[1])[changed].sum()),
            "examples": [_example(dataset, old, new, int(link)) for link in drawn],
        }
    return {"seed": seed, "languages": languages}


def _example(dataset: Dataset, old: Retrieved, new: Retrieved, link: int) -> dict[str, object]:
    row, i, j = old.links[link].tolist()
    sentence = dataset[row]

    def answer(side: Retrieved) -> dict[str, object]:
        nearest_link = int(side.answers[link])
        nearest_row, _, word = side.links[nearest_link].tolist()
        words = dataset[nearest_row]["target_words"]
        return {"word": words[word], "right": nearest_link == link, "elsewhere": nearest_row != row}

    return {
        "source_words": sentence["source_words"],
        "word": i,
        "target_words": sentence["target_words"],
        "linked": sentence["target_words"][j],
        "before": answer(old),
        "after": answer(new),
    }
