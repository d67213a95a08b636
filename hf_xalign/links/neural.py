"""Word links from an encoder's own word vectors: similar words in a middle layer translate each other."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.words import split_words
from hf_xalign.errors import InputError
from hf_xalign.links.symmetrization import Symmetrization, heuristic, symmetrize

if TYPE_CHECKING:
    # At run time where it is used: word vectors come from encoded words, so hf_xalign.modeling imports hf_xalign.data.
    from hf_xalign.data.batches.token_index import Pooling
    from hf_xalign.modeling.word_vectors import WordVectors

LinkMethod = Literal["argmax", "softmax"]

# Cosines lie between -1 and 1 whatever the encoder, where the dot products of the softmax method's paper grow with its
# norms (on XLM-R and E5 they say little). At this temperature a threshold of 0.001 keeps a word whose cosine is less
# than 0.035 below the best.
_TEMPERATURE = 0.005


def encoder_links(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source_words: Sequence[Sequence[str]],
    target_words: Sequence[Sequence[str]],
    *,
    layer: int | None = None,
    method: LinkMethod = "argmax",
    threshold: float = 0.001,
    symmetrization: Symmetrization = "intersection",
    pooling: Pooling = "mean",
    batch_size: int = 64,
    desc: str | None = None,
) -> list[list[list[int]]]:
    """Link the words of sentence pairs by the cosine of their vectors.

    `argmax` links each word to the most similar word of the other sentence (SimAlign, Jalili Sabet et al. 2020);
    `softmax` to every word that gets more than `threshold` of the probability over the other sentence (awesome-align,
    Dou and Neubig 2021, there with dot products of subwords). Both go in both directions, and are then symmetrised.

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        source_words: words of each source sentence.
        target_words: words of each target sentence.
        layer: position in `hidden_states` (0 the embeddings, -1 the last); default two thirds of the depth (8 of 12),
            where multilingual encoders link best.
        method: `argmax` or `softmax`.
        threshold: of `softmax`, a probability.
        symmetrization: how the links of the two directions are combined.
        pooling: of a word's subwords.
        batch_size: sentences a forward pass, and pairs a similarity product.
        desc: label of the progress bar of the forward passes, or None.

    Returns:
        The links [i, j] of each pair, sorted. A word that has no subword or was cut off has none.

    Raises:
        InputError: unknown method or symmetrisation, or a tokenizer without word ids.
    """
    from hf_xalign.modeling.word_vectors import extract_word_vectors

    if method not in get_args(LinkMethod):
        raise InputError(f"method={method!r} is none of {', '.join(get_args(LinkMethod))}")
    heuristic(symmetrization)
    layer = default_layer(model) if layer is None else layer
    options: dict[str, Any] = {"layers": (layer,), "pooling": pooling, "batch_size": batch_size}
    source = extract_word_vectors(model, tokenizer, source_words, **options, desc=desc and f"{desc}, source")
    target = extract_word_vectors(model, tokenizer, target_words, **options, desc=desc and f"{desc}, target")

    links: list[list[list[int]]] = [[] for _ in source_words]
    lengths = [len(s) * len(t) for s, t in zip(source_words, target_words, strict=True)]
    order = np.argsort(lengths, kind="stable")
    order = order[np.array(lengths)[order] > 0]
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        forward, backward = _directional_links(*_padded(source, rows), *_padded(target, rows), method, threshold)
        for row, pairs in zip(rows, _combine(forward, backward, symmetrization), strict=True):
            links[row] = pairs
    return links


class LinkedWords(NamedTuple):
    """A sentence pair as [`predict_links`] gives it back.

    Attributes:
        source_words: words of the source.
        target_words: words of the target.
        links: [i, j] for each link, source word first.
    """

    source_words: list[str]
    target_words: list[str]
    links: list[list[int]]

    def pairs(self) -> list[tuple[str, str]]:
        """The linked words themselves."""
        return [(self.source_words[i], self.target_words[j]) for i, j in self.links]


@overload
def predict_links(
    model: PreTrainedModel, source: str, target: str, *, source_lang: str = ..., target_lang: str = ..., **options: Any
) -> LinkedWords: ...
@overload
def predict_links(
    model: PreTrainedModel,
    source: Sequence[str],
    target: Sequence[str],
    *,
    source_lang: str = ...,
    target_lang: str = ...,
    **options: Any,
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
    """Split texts and their translations into words, and link these by an encoder.

    ```python
    >>> predict_links(model, "Datei öffnen", "Open the file", source_lang="de").pairs()
    [('Datei', 'file'), ('öffnen', 'Open')]
    ```

    Args:
        model: the encoder.
        source: a text or several.
        target: its translation, or theirs.
        source_lang: language code, which decides how words are split; needed for languages without blanks.
        target_lang: likewise.
        tokenizer: default the one in the folder or Hub repository that `model` was loaded from.
        options: of [`encoder_links`]: `layer`, `method`, `threshold`, `symmetrization`, `pooling`, `batch_size`.

    Raises:
        InputError: as many sources as targets are needed; or `model` has no tokenizer beside it.
    """
    if isinstance(source, str) != isinstance(target, str):
        raise InputError("give either one source and one target, or a list of each")
    sources = [source] if isinstance(source, str) else source
    targets = [target] if isinstance(target, str) else target
    if len(sources) != len(targets):
        raise InputError(f"{len(sources)} sources and {len(targets)} targets: give one target for each source")
    if tokenizer is None:
        if not model.name_or_path:
            raise InputError("the model was not loaded from a folder or the Hub: give its tokenizer= as well")
        tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
    source_words = [split_words(unicodedata.normalize("NFC", text), source_lang) for text in sources]
    target_words = [split_words(unicodedata.normalize("NFC", text), target_lang) for text in targets]
    links = encoder_links(model, tokenizer, source_words, target_words, **options)
    found = [LinkedWords(*pair) for pair in zip(source_words, target_words, links, strict=True)]
    return found[0] if isinstance(source, str) else found


def default_layer(model: PreTrainedModel) -> int:
    """Two thirds of the encoder's depth, as a position in `hidden_states`."""
    return max(1, round(model.config.num_hidden_layers * 2 / 3))


def _padded(words: WordVectors, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit vectors (rows, words, dim) of some sentences, zeros as padding, and which of them are present."""
    starts, ends = words.offsets[rows], words.offsets[rows + 1]
    position = torch.arange(int((ends - starts).max()))
    inside = position < (ends - starts)[:, None]
    index = (starts[:, None] + position) * inside
    unit = torch.nn.functional.normalize(words.vectors[index, 0], dim=-1)
    return unit, inside & words.present[index]


def _directional_links(
    source: torch.Tensor,
    source_present: torch.Tensor,
    target: torch.Tensor,
    target_present: torch.Tensor,
    method: LinkMethod,
    threshold: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Links from source to target and from target to source, both bool (pairs, source words, target words)."""
    present = source_present[:, :, None] & target_present[:, None, :]
    similarity = torch.bmm(source, target.transpose(1, 2)).masked_fill(~present, -torch.inf)
    directions = []
    for dim in (2, 1):
        if method == "softmax":
            # A row of padding is all -inf and its softmax NaN, which is above no threshold.
            chosen = torch.softmax(similarity / _TEMPERATURE, dim) > threshold
        else:
            best = similarity.argmax(dim, keepdim=True)
            chosen = torch.zeros_like(present).scatter_(dim, best, True)
        directions.append(chosen & present)
    return directions[0], directions[1]


def _combine(
    forward: torch.Tensor, backward: torch.Tensor, symmetrization: Symmetrization
) -> Iterator[list[list[int]]]:
    """The symmetrised links of each pair of a batch."""
    for f, b in zip(forward.numpy(), backward.numpy(), strict=True):
        yield np.argwhere(symmetrize(f, b, symmetrization)).tolist()
