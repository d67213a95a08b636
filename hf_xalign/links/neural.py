"""Word links from an encoder: words with similar vectors in a middle layer translate each other."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.words import split_words
from hf_xalign.errors import InputError
from hf_xalign.links.symmetrization import Symmetrization, heuristic, symmetrize
from hf_xalign.pretrained import load_tokenizer

if TYPE_CHECKING:
    from hf_xalign.modeling.word_vectors import WordVectors

LinkMethod = Literal["argmax", "softmax"]

# The softmax method's paper uses dot products, which say little on XLM-R and E5. With cosines and this temperature, a
# threshold of 0.001 keeps a word whose cosine is less than 0.035 below the best.
_TEMPERATURE = 0.005


def encoder_links(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source_words: Sequence[Sequence[str]],
    target_words: Sequence[Sequence[str]],
    *,
    layer: int | None = None,
    method: LinkMethod = "argmax",
    symmetrization: Symmetrization = "intersection",
    batch_size: int = 64,
) -> list[list[list[int]]]:
    """Link the words of sentence pairs by the cosine of their vectors.

    `argmax` links each word to the most similar word of the other sentence (SimAlign, Jalili Sabet et al. 2020).
    `softmax` links it to every word with a probability above 0.001 (awesome-align, Dou and Neubig 2021, there
    with dot products of subwords). Both run in both directions and are then symmetrised.

    `layer` is a position in `hidden_states` (0 is the embeddings, -1 the last layer); two thirds of the depth by
    default (8 of 12), where multilingual encoders link best. Returns the sorted links [i, j] of each pair; a word
    without subwords or cut by truncation has none.
    """
    from hf_xalign.modeling.word_vectors import extract_word_vectors

    if method not in get_args(LinkMethod):
        raise InputError(f"method={method!r} is none of {', '.join(get_args(LinkMethod))}")
    heuristic(symmetrization)
    if layer is None:
        layer = max(1, round(model.config.num_hidden_layers * 2 / 3))
    options: dict[str, Any] = {"layers": (layer,), "batch_size": batch_size}
    source = extract_word_vectors(model, tokenizer, source_words, **options)
    target = extract_word_vectors(model, tokenizer, target_words, **options)

    links: list[list[list[int]]] = [[] for _ in source_words]
    lengths = [len(s) * len(t) for s, t in zip(source_words, target_words, strict=True)]
    order = np.argsort(lengths, kind="stable")
    order = order[np.array(lengths)[order] > 0]
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        forward, backward = _directional_links(*_padded(source, rows), *_padded(target, rows), method)
        for row, f, b in zip(rows, forward.numpy(), backward.numpy(), strict=True):
            links[row] = np.argwhere(symmetrize(f, b, symmetrization)).tolist()
    return links


class LinkedWords(NamedTuple):
    """Sentence pair with its words and links [i, j], source word first, from [`predict_links`]."""

    source_words: list[str]
    target_words: list[str]
    links: list[list[int]]

    def pairs(self) -> list[tuple[str, str]]:
        """Return the linked words themselves."""
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
    """Split texts and their translations into words, and link the words by an encoder.

    Args:
        model: the encoder.
        source: a text, or a list of texts.
        target: its translation, or their translations.
        source_lang: language code of the source, which decides how words are split (needed for Chinese, Thai).
        target_lang: language code of the target.
        tokenizer: the encoder's tokenizer; loaded from the model's folder or Hub repository by default.
        options: options of [`encoder_links`], such as `layer`, `method` and `symmetrization`.

    Raises:
        InputError: the numbers of sources and targets differ, or `model` has no tokenizer next to it.

    Example:
        A random encoder links identical words; a real one, such as `hf_xalign.load("embedded")`, links translations.

        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> backend = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "Chrome": 2, "öffnen": 3}, "[UNK]"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
        >>> config = BertConfig(vocab_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> links = predict_links(BertModel(config), "Chrome öffnen", "Chrome", source_lang="de", tokenizer=tokenizer)
        >>> links.source_words, links.pairs()
        (['Chrome', 'öffnen'], [('Chrome', 'Chrome')])
    """
    if isinstance(source, str) != isinstance(target, str):
        raise InputError("give either one source and one target, or a list of each")
    sources, targets = ([side] if isinstance(side, str) else side for side in (source, target))
    if len(sources) != len(targets):
        raise InputError(f"{len(sources)} sources and {len(targets)} targets. Give one target for each source.")
    if tokenizer is None:
        if not model.name_or_path:
            raise InputError("the model was not loaded from a folder or the Hub. Give its tokenizer= as well.")
        tokenizer = load_tokenizer(model.name_or_path)
    source_words = [split_words(unicodedata.normalize("NFC", text), source_lang) for text in sources]
    target_words = [split_words(unicodedata.normalize("NFC", text), target_lang) for text in targets]
    links = encoder_links(model, tokenizer, source_words, target_words, **options)
    found = [LinkedWords(*pair) for pair in zip(source_words, target_words, links, strict=True)]
    return found[0] if isinstance(source, str) else found


def _padded(words: WordVectors, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unit vectors (rows, words, dim) of some sentences, padded with zeros, and a mask of present words."""
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
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the links of both directions, each bool (pairs, source words, target words)."""
    present = source_present[:, :, None] & target_present[:, None, :]
    similarity = torch.bmm(source, target.transpose(1, 2)).masked_fill(~present, -torch.inf)
    directions = []
    for dim in (2, 1):
        if method == "softmax":
            # The softmax of a padding row is NaN, which is above no threshold.
            chosen = torch.softmax(similarity / _TEMPERATURE, dim) > 0.001
        else:
            best = similarity.argmax(dim, keepdim=True)
            chosen = torch.zeros_like(present).scatter_(dim, best, True)
        directions.append(chosen & present)
    return directions[0], directions[1]
