"""Mask tokens and make their labels; draws depend on seed, epoch and example, not on batch, process or worker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.encoding import tokenizer_name
from hf_xalign.errors import InputError

IGNORED = -100  # label of a token that is not predicted, as in torch's and transformers' cross entropy
LANGUAGE = 1 << 32  # a token of a language is one number: language * LANGUAGE + token

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class MaskingVocabulary(NamedTuple):
    """Token ids for masking: int64, ascending; `special_ids` are never masked, `replacements` may replace a token."""

    mask_token_id: int
    special_ids: np.ndarray
    replacements: np.ndarray

    def maskable(self, input_ids: np.ndarray) -> np.ndarray:
        """Return a bool array in the shape of `input_ids`: the tokens that may be masked."""
        return ~np.isin(input_ids, self.special_ids)


def masking_vocabulary(tokenizer: PreTrainedTokenizerBase) -> MaskingVocabulary:
    """Return the token ids for [`mask_tokens`]; a tokenizer without mask token raises an InputError."""
    if tokenizer.mask_token_id is None:
        raise InputError(
            f"{tokenizer_name(tokenizer)}: the tokenizer has no mask token, which masked language modelling needs. "
            "Take a model that was trained with one, switch the TLM/MLM term off, or add one by "
            "tokenizer.add_special_tokens({'mask_token': '[MASK]'}) and model.resize_token_embeddings(len(tokenizer))"
        )
    special = np.unique(tokenizer.all_special_ids)
    ids = np.fromiter(tokenizer.get_vocab().values(), dtype=np.int64)
    return MaskingVocabulary(tokenizer.mask_token_id, special, np.setdiff1d(ids, special))


def example_draws(
    examples: np.ndarray, counts: np.ndarray | int, *, seed: int, epoch: int, stream: int = 0
) -> np.ndarray:
    """Draw uniform random numbers for each example of a batch at once.

    The numbers of an example are the SplitMix64 sequence (Steele et al. 2014, "Fast splittable pseudorandom number
    generators") that starts at a hash of seed, epoch, stream and example.

    Draws `counts`, int (B,) or int, numbers for each of the `examples`, int (B,), not negative. Returns float64 (sum
    of counts,) in [0, 1), example after example. Streams are independent: 0 draws masks, 1 the order of PPA's sides, 2
    DICT-MLM's translations.
    """
    key = np.zeros(1, dtype=np.uint64)
    for number in (seed, epoch, stream):
        key = _mixed(key + _GOLDEN + np.uint64(number))
    examples = np.asarray(examples)
    counts = np.broadcast_to(counts, examples.shape)
    starts = _mixed(key + _GOLDEN + examples.astype(np.uint64))
    first = np.cumsum(counts) - counts
    steps = (np.arange(counts.sum()) - np.repeat(first, counts) + 1).astype(np.uint64)
    bits = _mixed(np.repeat(starts, counts) + steps * _GOLDEN)
    return (bits >> np.uint64(11)) * 2.0**-53


def mask_tokens(
    input_ids: np.ndarray,
    maskable: np.ndarray,
    vocabulary: MaskingVocabulary,
    examples: np.ndarray,
    *,
    seed: int,
    epoch: int,
    probability: float = 0.15,
) -> tuple[np.ndarray, np.ndarray]:
    """Select tokens to predict: 80% become the mask token, 10% a random one, 10% stay (BERT, Devlin et al. 2019).

    Every maskable token is selected with `probability`, independently of the others. A sentence of 20 tokens has none
    in 4% of the draws (0.85^20); forcing one would over-sample the tokens of short sentences. Draws are assigned to
    maskable tokens in order, so padding on either side changes nothing.

    `input_ids` int64 and `maskable` bool are (B, T); `examples` int64 (B,) are the rows' numbers in the dataset.
    Returns the masked tokens and the labels, int64 (B, T): the original token where it was selected, else -100.
    """
    draws = example_draws(examples, 2 * maskable.sum(axis=1), seed=seed, epoch=epoch).reshape(-1, 2)
    # One draw chooses between mask, random, kept and not hidden; the other picks the random token.
    choice = draws[:, 0]
    tokens = input_ids[maskable]
    labels = np.full_like(input_ids, IGNORED)
    labels[maskable] = np.where(choice < probability, tokens, IGNORED)
    by_mask = choice < probability * 0.8
    by_random = ~by_mask & (choice < probability * 0.9)
    picked = (draws[by_random, 1] * len(vocabulary.replacements)).astype(np.int64)
    tokens[by_mask] = vocabulary.mask_token_id
    tokens[by_random] = vocabulary.replacements[picked]
    masked = input_ids.copy()
    masked[maskable] = tokens
    return masked, labels


class Translations:
    """Translate many tokens at once, by entries int64 (n, 2) from column 0 to column 1."""

    def __init__(self, entries: np.ndarray):
        entries = np.unique(entries, axis=0)  # also sorts them by token
        self._tokens, self._starts, self._counts = np.unique(entries[:, 0], return_index=True, return_counts=True)
        self._translations = entries[:, 1]

    def draw(self, tokens: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Choose a translation of each token, int64 (n,), by `numbers` in [0, 1); a token without one stays."""
        places = np.minimum(np.searchsorted(self._tokens, tokens), len(self._tokens) - 1)
        drawn = self._starts[places] + (numbers * self._counts[places]).astype(np.int64)
        return np.where(self._tokens[places] == tokens, self._translations[drawn], tokens)


def dict_mlm_labels(
    labels: np.ndarray,
    translations: Translations,
    examples: np.ndarray,
    *,
    seed: int,
    epoch: int,
    probability: float = 0.5,
) -> np.ndarray:
    """Make the labels of DICT-MLM as Chaudhary et al. (2020) define it, without language conditioning.

    The label of a masked token becomes its translation, if it has one, with `probability` (0.5 in ALIGN-MLM). The
    encoder's input does not change. Arguments and labels are those of [`mask_tokens`].
    """
    changed, draws = _changed(labels, examples, probability, seed, epoch)
    relabelled = labels.copy()
    relabelled[changed] = translations.draw(labels[changed], draws)
    return relabelled


def _changed(
    labels: np.ndarray, examples: np.ndarray, probability: float, seed: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the masked tokens that DICT-MLM changes, bool (B, T), and a number for the translation of each."""
    changed = labels != IGNORED
    draws = example_draws(examples, 2 * changed.sum(axis=1), seed=seed, epoch=epoch, stream=2).reshape(-1, 2)
    chosen = draws[:, 0] < probability
    changed[changed] = chosen
    return changed, draws[chosen, 1]


def dict_mlm_inputs(
    masked: np.ndarray,
    languages: np.ndarray,
    labels: np.ndarray,
    translations: Translations,
    examples: np.ndarray,
    *,
    seed: int,
    epoch: int,
    probability: float = 0.5,
) -> tuple[np.ndarray, np.ndarray]:
    """Make the inputs of DICT-MLM as ALIGN-MLM defines it (section 3 and appendix G.4): code-switched text.

    With `probability` (0.5 in the paper) the input at a masked position is the token's translation, in the
    translation's language, or the token itself if it has none. Other masked positions stay as [`mask_tokens`] made
    them: 80% mask, 10% random, 10% original. The labels are the original tokens.

    `masked` and `labels` int64 (B, T) come from [`mask_tokens`]; `languages` int64 (B, T) holds the language id of
    each token. `translations` translate numbers `language * LANGUAGE + token`. Returns the inputs and their language
    ids, int64 (B, T) each.
    """
    changed, draws = _changed(labels, examples, probability, seed, epoch)
    translated = translations.draw(languages[changed] * LANGUAGE + labels[changed], draws)
    inputs, switched = masked.copy(), languages.copy()
    switched[changed], inputs[changed] = np.divmod(translated, LANGUAGE)
    return inputs, switched


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Apply SplitMix64's finalizer, a one-to-one map of uint64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
