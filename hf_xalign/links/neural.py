"""Link words whose vectors in a middle layer of an encoder are similar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import check_choice, check_lengths
from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.data.words import list_texts, split_words
from hf_xalign.errors import InputError
from hf_xalign.links.symmetrization import SYMMETRIZATIONS, Symmetrization, symmetrize
from hf_xalign.modeling.loading import load_tokenizer

if TYPE_CHECKING:
    from hf_xalign.modeling.word_vectors import WordVectors

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
    source, target = encode(source_words), encode(target_words)
    links: list[list[list[int]]] = [[] for _ in source_words]
    for rows in _batches(source, target, batch_size):
        forward, backward = _directional_links(*source.padded(rows), *target.padded(rows), method)
        for row, f, b in zip(rows, forward.numpy(), backward.numpy(), strict=True):
            links[row] = np.argwhere(symmetrize(f, b, symmetrization)).tolist()
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
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> backend = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "Chrome": 2, "open": 3}, "[UNK]"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
        >>> config = BertConfig(vocab_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> choose_layer(BertModel(config), tokenizer, [["open", "Chrome"]], [["Chrome", "open"]])
        1
    """
    check_choice(get_args(LinkMethod), method=method)
    depth = model.config.num_hidden_layers
    both, all_links = np.zeros(depth), np.zeros(depth)
    encode = partial(_units, model, tokenizer, method=method, layers=range(1, depth + 1))
    # All layers are in memory, so of one batch at a time.
    for start in range(0, len(source_words), batch_size):
        batch = slice(start, start + batch_size)
        source, target = encode(source_words[batch]), encode(target_words[batch])
        for rows in _batches(source, target, batch_size):
            for k in range(depth):
                forward, backward = _directional_links(*source.padded(rows, k), *target.padded(rows, k), method)
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

    Example:
        A random encoder links identical words; a trained one, such as `hf_xalign.load("builtin")`, translations.

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
    """Vectors of words or subwords, and the word of each, int64 (units,), -1 without a vector."""

    vectors: WordVectors
    words: torch.Tensor

    def padded(self, rows: np.ndarray, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return normalized vectors (rows, units, dim) of sentences, padded by zeros, and their words, -1 at pads."""
        starts, ends = self.vectors.offsets[rows], self.vectors.offsets[rows + 1]
        position = torch.arange(int((ends - starts).max()))
        inside = position < (ends - starts)[:, None]
        index = (starts[:, None] + position) * inside
        unit = torch.nn.functional.normalize(self.vectors.vectors[index, layer], dim=-1)
        return unit, self.words[index].masked_fill(~inside, -1)


def _units(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    method: LinkMethod,
    **options: Any,
) -> _Units:
    """Return the word or subword vectors that `method` compares."""
    from hf_xalign.modeling.word_vectors import extract_word_vectors, subword_spans, word_spans

    subwords = method == "subwords"
    vectors = extract_word_vectors(model, tokenizer, sentences, subwords=subwords, **options)
    unit_words = [np.arange(len(words)) for words in sentences]
    if subwords:
        unit_words = [subword_spans(spans)[1] for spans in word_spans(model, tokenizer, sentences, None)[1]]
    words = torch.from_numpy(np.concatenate([*unit_words, np.zeros(0, dtype=np.int64)]))
    return _Units(vectors, words.masked_fill(~vectors.present, -1))


def _batches(source: _Units, target: _Units, batch_size: int) -> Iterator[np.ndarray]:
    """Yield batches of the numbers of sentence pairs of similar size, without pairs that have an empty side."""
    sizes = (source.vectors.offsets.diff() * target.vectors.offsets.diff()).numpy()
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _directional_links(
    source: torch.Tensor,
    source_words: torch.Tensor,
    target: torch.Tensor,
    target_words: torch.Tensor,
    method: LinkMethod,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the links of both directions, each bool (pairs, source words, target words)."""
    present = (source_words >= 0)[:, :, None] & (target_words >= 0)[:, None, :]
    similarity = torch.bmm(source, target.transpose(1, 2)).masked_fill(~present, -torch.inf)
    directions = []
    for dim in (2, 1):
        if method == "softmax":
            # The softmax of a padding row is NaN, which compares as False.
            chosen = torch.softmax(similarity / _TEMPERATURE, dim) > 0.001
        else:
            best = similarity.argmax(dim, keepdim=True)
            chosen = torch.zeros_like(present).scatter_(dim, best, True)
        row, i, j = torch.nonzero(chosen & present, as_tuple=True)
        links = present.new_zeros(len(present), int(source_words.max()) + 1, int(target_words.max()) + 1)
        links[row, source_words[row, i], target_words[row, j]] = True
        directions.append(links)
    return directions[0], directions[1]
