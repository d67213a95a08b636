"""Frozen probes: a linear classifier on an encoder's vectors, trained in one language and tested in others.

Zero-shot scores of fine-tuned encoders differ by points between seeds. A probe does not change the encoder and has one
solution, so it shows the effect of the alignment alone (on probes: Hewitt and Liang 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, compress
from operator import eq
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.data.parallel import check_labelled
from hf_xalign.data.span_labels import OUTSIDE, UNLABELLED, word_labels
from hf_xalign.errors import InputError
from hf_xalign.evaluation.vectors import encode_pooled_sentences
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.word_vectors import extract_word_vectors
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.statistics.softmax_regression import fit_softmax

Labelled = tuple[Tensor, Sequence[str]]
"""Vectors, float (n, dim), and their labels."""


def _predict(train: Labelled, tests: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Train a softmax classifier on vectors, and return its labels for other vectors, by name."""
    names, numbers = np.unique(np.array(train[1], dtype=object), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"a probe needs at least two labels; there is only {names[0]}")
    weight, bias = fit_softmax(train[0], torch.from_numpy(numbers), len(names))
    predicted = {}
    for name, vectors in tests.items():
        logits = vectors.to(weight.dtype) @ weight.T + bias
        predicted[name] = names[logits.argmax(1).numpy()].tolist()
    return predicted


def _examples(predicted: Sequence[str], gold: Sequence[str], sizes: Sequence[int]) -> dict[str, ExampleScores]:
    """Count correct labels by example, for accuracy and macro F1; `sizes` are the numbers of labels by example."""
    example = np.repeat(np.arange(len(sizes)), sizes)
    right = np.array(list(map(eq, predicted, gold)), dtype=bool)
    names = sorted(set(gold) - {OUTSIDE})
    column_of = {name: k for k, name in enumerate(names)}
    tables = []
    for labels, counted in ((gold, right), (predicted, True), (gold, True)):
        column = np.array([column_of.get(label, -1) for label in labels])
        chosen = (column >= 0) & counted
        table = np.zeros((len(sizes), len(names)), dtype=np.int64)
        np.add.at(table, (example[chosen], column[chosen]), 1)
        tables.append(table)
    counts = np.asarray(sizes)
    accuracy = ExampleScores.from_counts(np.bincount(example[right], minlength=len(sizes)), counts, counts)
    # Without any label but O, F1 is 0.
    macro = ExampleScores.from_label_counts(*tables) if names else ExampleScores.from_values(np.zeros(len(sizes)))
    return {"accuracy": accuracy, "macro_f1": macro}


def probe_encoder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: tuple[str, Dataset],
    tests: Mapping[str, Dataset],
    *,
    layer: int = -1,
    batch_size: int = 64,
    dtype: torch.dtype | None = None,
    desc: str | None = None,
) -> dict[str, dict[str, ExampleScores]]:
    """Train a linear classifier on an encoder's vectors of labelled words or texts, and test it on others.

    Dimensions are standardized; the loss is the mean cross-entropy plus 1e-4 times the squared weights.

    Args:
        model: the encoder, which is not changed.
        tokenizer: its fast tokenizer.
        train: language and rows to learn from, with the columns `tokens` and `labels` (lists of str), or `text_a` and
            `label` (str), as [`read_examples`] returns them. Words labelled `_` are left out.
        tests: rows to test on, by language. A label that does not occur in `train` counts as wrong.
        layer: layer of the vectors, which are means over a word's subwords or a text's tokens.
        batch_size: sentences per forward pass.
        dtype: autocast dtype of the forward passes, or None.
        desc: label of the progress bars, or None.

    Returns:
        `{language: {"accuracy": examples, "macro_f1": examples}}`: scores of every sentence or text, by the share of
        correct labels and by the mean F1 of the labels that occur in the test, except `O`. `score()` sums them up, and
        [`~hf_xalign.statistics.comparison.compare`] tests them.

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> rows = Dataset.from_dict({"tokens": [["the", "cat"]], "labels": [["DET", "NOUN"]]})
        >>> probe_encoder(BertModel(tiny.config), tiny.tokenizer, ("en", rows), {"en": rows})["en"]["accuracy"].score()
        1.0
    """

    def encode(language: str, rows: Dataset) -> tuple[Labelled, list[int]]:
        rows = check_labelled(rows, f"the text in {language}")
        texts = rows["tokens" if "tokens" in rows.column_names else "text_a"]
        check_vocabulary(tokenizer, texts, language, "the labelled text")
        options: dict[str, Any] = {"batch_size": batch_size, "dtype": dtype, "desc": desc and f"{desc}, {language}"}
        with language_context(model, language):
            if "tokens" not in rows.column_names:
                pooled = encode_pooled_sentences(model, tokenizer, texts[:], (layer,), ("mean",), **options)
                return (pooled["mean"][:, 0], rows["label"][:]), [1] * len(rows)
            words = extract_word_vectors(model, tokenizer, texts[:], layers=(layer,), **options)
        labels = list(chain.from_iterable(word_labels(rows, language, lambda row: f"{language}, row {row + 1}")))
        # Words that the tokenizer drops or truncates have no vector.
        used = words.present & torch.tensor([label != UNLABELLED for label in labels])
        used_labels = list(compress(labels, used.tolist()))
        sizes = torch.tensor_split(used, words.offsets[1:-1])
        return (words.vectors[used, 0], used_labels), [int(sentence.sum()) for sentence in sizes]

    labelled, _ = encode(*train)
    vectors, golds = {}, {}
    for language, rows in tests.items():
        (vectors[language], labels), sizes = encode(language, rows)
        golds[language] = labels, sizes
    predicted = _predict(labelled, vectors)
    return {language: _examples(predicted[language], *gold) for language, gold in golds.items()}
