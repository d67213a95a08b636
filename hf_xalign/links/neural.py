"""Link words whose vectors in a middle layer of an encoder are similar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import check_choice, check_lengths
from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.data.words import list_texts, split_words
from hf_xalign.errors import InputError
from hf_xalign.links.symmetrization import SYMMETRIZATIONS, Symmetrization, symmetrize
from hf_xalign.modeling.loading import load_tokenizer

LinkMethod = Literal["subwords", "argmax", "softmax"]

# awesome-align's softmax is over dot products, which work badly with XLM-R and E5. With cosines and this temperature,
# a threshold of 0.001 keeps words whose cosine is less than 0.035 below the best.
_TEMPERATURE = 0.005


def encoder_links(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source_words: Sequence[Sequence[str]],
    target_words: Sequence[Sequence[str]],
    *,
    layer: int | None = None,
    method: LinkMethod = "subwords",
    symmetrization: Symmetrization = "intersection",
    batch_size: int = 64,
) -> list[list[list[int]]]:
    """Link the words of sentence pairs by the cosine of their vectors.

    `subwords` links each subword to the most similar subword of the other sentence, which links their words; a
    compound may have several links. `argmax` links the mean vectors of words in this way (SimAlign, Jalili Sabet et
    al. 2020). `softmax` links a word to every word with a probability above 0.001 (awesome-align, Dou and Neubig 2021,
    which takes dot products of subwords). All methods run in both directions, whose links are then symmetrised.

    `layer` is a position in `hidden_states` (0 is the embeddings, -1 the last layer), by default at two thirds of the
    depth (8 of 12); [`choose_layer`] finds a better one. Returns the sorted links [i, j] of each pair; words without
    subwords, or cut by truncation, have none.
    """
    check_choice(get_args(LinkMethod), method=method)
    check_choice(SYMMETRIZATIONS, symmetrization=symmetrization)
    if layer is None:
        layer = max(1, round(model.config.num_hidden_layers * 2 / 3))
    encode = partial(_units, model, tokenizer, method=method, layers=(layer,), batch_size=batch_size)
    links = []
    for source, target in zip(encode(source_words), encode(target_words), strict=True):
        forward, backward = _directional_links(source, target, 0, method)
        links.append(np.argwhere(symmetrize(forward.numpy(), backward.numpy(), symmetrization)).tolist())
    return links


def choose_layer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source_words: Sequence[Sequence[str]],
    target_words: Sequence[Sequence[str]],
    *,
    method: LinkMethod = "subwords",
    batch_size: int = 64,
) -> int:
    """Choose the layer in which the links of the two directions agree most, without gold links.

    Agreement is 2 |F and B| / (|F| + |B|) over all sentence pairs; a few hundred pairs suffice.

    Returns:
        The layer, 1 to the depth of the encoder; the lowest of equals.

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> choose_layer(BertModel(tiny.config), tiny.tokenizer, [["the", "cat"]], [["die", "katze"]])
        1
    """
    check_choice(get_args(LinkMethod), method=method)
    depth = model.config.num_hidden_layers
    both, all_links = np.zeros(depth), np.zeros(depth)
    encode = partial(_units, model, tokenizer, method=method, layers=range(1, depth + 1))
    # All layers are in memory, so of one batch at a time.
    for start in range(0, len(source_words), batch_size):
        batch = slice(start, start + batch_size)
        for source, target in zip(encode(source_words[batch]), encode(target_words[batch]), strict=True):
            for k in range(depth):
                forward, backward = _directional_links(source, target, k, method)
                both[k] += int((forward & backward).sum())
                all_links[k] += int(forward.sum() + backward.sum())
    return 1 + int(np.argmax(both / np.maximum(all_links, 1)))


class LinkedWords(NamedTuple):
    """Words of a sentence pair, and their links [i, j] from source to target words."""

    source_words: list[str]
    target_words: list[str]
    links: list[list[int]]

    def pairs(self) -> list[tuple[str, str]]:
        """Return the linked words."""
        return [(self.source_words[i], self.target_words[j]) for i, j in self.links]


@overload
def predict_links(model: PreTrainedModel, source: str, target: str, **options: Any) -> LinkedWords: ...
@overload
def predict_links(
    model: PreTrainedModel, source: Sequence[str], target: Sequence[str], **options: Any
) -> list[LinkedWords]: ...
def predict_links(
    model: PreTrainedModel,
    source: str | Sequence[str],
    target: str | Sequence[str],
    *,
    source_lang: str = "und",
    target_lang: str = "en",
    tokenizer: PreTrainedTokenizerBase | None = None,
    **options: Any,
) -> LinkedWords | list[LinkedWords]:
    """Split texts and their translations into words, and link the words by an encoder.

    Args:
        model: the encoder.
        source: a text, or a list of texts.
        target: the translation, or a list of translations.
        source_lang: language code of the source, by which words are split (required for Chinese and Thai).
        target_lang: language code of the target.
        tokenizer: the encoder's tokenizer; loaded from the model's folder or Hub repository by default.
        options: options of [`encoder_links`], such as `layer`, `method` and `symmetrization`.

    Raises:
        InputError: the numbers of sources and targets differ, or `model` has no tokenizer next to it.

    Example:
        A random encoder links identical words; a trained one, such as `hf_xalign.load("builtin")`, translations.

        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> links = predict_links(BertModel(tiny.config), "katze ruht", "katze", tokenizer=tiny.tokenizer)
        >>> links.source_words, links.pairs()
        (['katze', 'ruht'], [('katze', 'katze')])
    """
    sources, targets = list_texts(source, "source"), list_texts(target, "target")
    check_lengths("sentence pair", source=sources, target=targets)
    if tokenizer is None:
        if not model.name_or_path:
            raise InputError("the model was not loaded from a folder or the Hub. Give its tokenizer=.")
        tokenizer = load_tokenizer(model.name_or_path)
    source_words = [split_words(text, source_lang) for text in sources]
    target_words = [split_words(text, target_lang) for text in targets]
    check_vocabulary(tokenizer, source_words, source_lang, "the source")
    check_vocabulary(tokenizer, target_words, target_lang, "the target")
    links = encoder_links(model, tokenizer, source_words, target_words, **options)
    linked = list(map(LinkedWords._make, zip(source_words, target_words, links, strict=True)))
    return linked[0] if isinstance(source, str) else linked


class _Units(NamedTuple):
    """Vectors of a sentence's words or subwords, float32 (units, layers, dim), the word of each, and all words."""

    vectors: torch.Tensor
    words: torch.Tensor
    size: int


def _units(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    method: LinkMethod,
    **options: Any,
) -> Iterator[_Units]:
    """Yield the word or subword vectors of each sentence that `method` compares."""
    from hf_xalign.modeling.word_vectors import extract_word_vectors, subword_spans, word_spans

    subwords = method == "subwords"
    vectors, offsets, present = extract_word_vectors(model, tokenizer, sentences, subwords=subwords, **options)
    unit_words = [np.arange(len(words)) for words in sentences]
    if subwords:
        unit_words = [subword_spans(spans)[1] for spans in word_spans(model, tokenizer, sentences, None)[1]]
    for start, sentence, words in zip(offsets.tolist(), sentences, unit_words, strict=False):
        here = slice(start, start + len(words))
        yield _Units(vectors[here][present[here]], torch.from_numpy(words)[present[here]], len(sentence))


def _directional_links(
    source: _Units, target: _Units, layer: int, method: LinkMethod
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the links of both directions, each bool (source words, target words)."""
    unit = [torch.nn.functional.normalize(side.vectors[:, layer], dim=-1) for side in (source, target)]
    similarity = unit[0] @ unit[1].T
    directions = []
    for dim in (1, 0):
        chosen = torch.zeros_like(similarity, dtype=torch.bool)
        if method == "softmax":
            chosen = torch.softmax(similarity / _TEMPERATURE, dim) > 0.001
        elif similarity.numel():
            chosen.scatter_(dim, similarity.argmax(dim, keepdim=True), True)
        i, j = chosen.nonzero(as_tuple=True)
        links = torch.zeros(source.size, target.size, dtype=torch.bool)
        links[source.words[i], target.words[j]] = True
        directions.append(links)
    return directions[0], directions[1]
