"""Which words are retrieved by a model and by its base: examples that show what its scores count."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.errors import InputError
from hf_xalign.modeling.word_vectors import WordVectors, extract_word_vectors
from hf_xalign.modeling.languages import language_context
from hf_xalign.record import write_text
from hf_xalign.search.csls import nearest_neighbours

FILENAME = "retrievals.json"


class Retrieved(NamedTuple):
    """The words that a model retrieves for the links of one language.

    Attributes:
        links: int64 (links, 3): row of the dataset, source word, target word; without links of words that have no
            vector.
        answers: int64 (links,): the number of the link whose target word is the nearest of all linked ones.
    """

    links: np.ndarray
    answers: np.ndarray


def retrieve_words(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layer: int = -1,
    batch_size: int = 64,
    desc: str | None = None,
) -> dict[str, Retrieved]:
    """For each linked source word the nearest linked target word, as `retrieval_mean_to_pivot` counts it.

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        dataset: `source_words`, `target_words`, `links` (1-to-1), `source_lang`, `target_lang`.
        layer: the layer looked at.
        batch_size: sentences a forward pass.
        desc: label of the progress bar, or None.

    Raises:
        InputError: a language without a link of words that have vectors.
    """
    found = {}
    languages = np.asarray(dataset["source_lang"][:])
    device = next(model.parameters()).device
    for language in sorted(set(languages.tolist())):
        numbers = np.flatnonzero(languages == language)
        rows = dataset.select(numbers)
        sides: list[WordVectors] = []
        for side in ("source", "target"):
            with language_context(model, rows[f"{side}_lang"][0]):
                label = desc and f"{desc} ({language}, {side})"
                sentences = rows[f"{side}_words"][:]
                sides.append(
                    extract_word_vectors(
                        model, tokenizer, sentences, layers=(layer,), batch_size=batch_size, desc=label
                    )
                )
        links, places = [], []
        starts = [side.offsets.numpy() for side in sides]
        for own, (number, pairs) in enumerate(zip(numbers.tolist(), rows["links"][:], strict=True)):
            for i, j in pairs:
                place = int(starts[0][own]) + i, int(starts[1][own]) + j
                if sides[0].present[place[0]] and sides[1].present[place[1]]:
                    links.append((number, i, j))
                    places.append(place)
        if not links:
            raise InputError(f"{language}: no link joins words that have vectors, so there is nothing to retrieve")
        source, target = (side.vectors[[place[n] for place in places], 0] for n, side in enumerate(sides))
        answers = nearest_neighbours(source, target, device=device).source_to_target.cpu().numpy()
        found[language] = Retrieved(np.array(links, dtype=np.int64), answers)
    return found


def changed_retrievals(
    dataset: Dataset,
    before: Mapping[str, Retrieved],
    after: Mapping[str, Retrieved],
    *,
    examples: int = 20,
    seed: int = 0,
) -> dict[str, Any]:
    """Examples of words whose nearest word is another one after training, drawn at random for each language.

    Args:
        dataset: what both were retrieved from.
        before: of the base.
        after: of the model.
        examples: at most, a language.
        seed: of the draw.

    Returns:
        Plain JSON: `seed`, and `languages` -> `queries`, `gained` (right after only), `lost` (right before only),
        `other` (wrong both times, in another way) and `examples`, each with `source_words`, `word` (index of the
        query), `target_words`, `linked`, and for `before` and `after` the `word`, whether it is `right`, and whether
        it is from another sentence (`elsewhere`).
    """
    languages = {}
    for language, old in before.items():
        old, new = _common(old, after[language])
        own = np.arange(len(old.links))
        right = [side.answers == own for side in (old, new)]
        changed = np.flatnonzero(old.answers != new.answers)
        generator = np.random.default_rng(seed)
        drawn = np.sort(generator.permutation(changed)[:examples])
        languages[language] = {
            "queries": len(own),
            "gained": int((right[1] & ~right[0]).sum()),
            "lost": int((right[0] & ~right[1]).sum()),
            "other": int((~right[0] & ~right[1])[changed].sum()),
            "examples": [_example(dataset, old, new, int(at)) for at in drawn],
        }
    return {"seed": seed, "languages": languages}


def write_retrievals(folder: str | os.PathLike, found: Mapping[str, Any]) -> Path:
    """Write [`changed_retrievals`] as `retrievals.json`, whole or not at all; returns its path."""
    return write_text(Path(folder) / FILENAME, json.dumps(found, ensure_ascii=False, indent=1) + "\n")


def _common(old: Retrieved, new: Retrieved) -> tuple[Retrieved, Retrieved]:
    """Both, of the same links.

    Raises:
        InputError: a model could give vectors to words that the other could not: their tokenizers differ.
    """
    if len(old.links) != len(new.links) or (old.links != new.links).any():
        raise InputError("the model and its base cut the text into other subwords, so their retrievals do not compare")
    return old, new


def _example(dataset: Dataset, old: Retrieved, new: Retrieved, at: int) -> dict[str, Any]:
    row, i, j = old.links[at].tolist()
    sentence = dataset[row]

    def answer(side: Retrieved) -> dict[str, Any]:
        found = int(side.answers[at])
        where, _, word = side.links[found].tolist()
        return {"word": dataset[where]["target_words"][word], "right": found == at, "elsewhere": where != row}

    return {
        "source_words": sentence["source_words"],
        "word": i,
        "target_words": sentence["target_words"],
        "linked": sentence["target_words"][j],
        "before": answer(old),
        "after": answer(new),
    }
