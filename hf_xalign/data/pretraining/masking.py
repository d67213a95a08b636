"""Hide tokens from a masked language model, drawn for each example separately.

An example's draws depend only on the seed, the epoch and the example's number. Its batch, process and
dataloader worker do not matter, nor where a run is resumed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from hf_xalign.errors import InputError

IGNORED = -100  # label of a token that is not predicted, as in torch's and transformers' cross entropy

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class MaskingVocabulary(NamedTuple):
    """Token ids that masking needs.

    Attributes:
        mask_token_id: id of the mask token.
        special_ids: int64, ascending: tokens that are never hidden or drawn, with the unknown and padding tokens.
        replacements: int64, ascending: every other token; one of these may replace a hidden token.
    """

    mask_token_id: int
    special_ids: np.ndarray
    replacements: np.ndarray

    def maskable(self, input_ids: np.ndarray) -> np.ndarray:
        """Return a bool mask, of the shape of `input_ids`, of the tokens that may be hidden."""
        return ~np.isin(input_ids, self.special_ids)


def masking_vocabulary(tokenizer: PreTrainedTokenizerBase) -> MaskingVocabulary:
    """Return the ids that [`mask_tokens`] needs, without the unused ids of a padded vocabulary.

    Raises:
        InputError: the tokenizer has no mask token.
    """
    if tokenizer.mask_token_id is None:
        raise InputError(
            f"{tokenizer.name_or_path or type(tokenizer).__name__}: the tokenizer has no mask token, which masked "
            "language modelling needs. Take a model that was trained with one, add one by "
            "tokenizer.add_special_tokens({'mask_token': '[MASK]'}) (and, if it is new, "
            "model.resize_token_embeddings(len(tokenizer))), or switch the TLM/MLM term off"
        )
    special = np.unique(tokenizer.all_special_ids)
    known = np.fromiter(tokenizer.get_vocab().values(), dtype=np.int64)
    return MaskingVocabulary(tokenizer.mask_token_id, special, np.setdiff1d(known, special))


def example_draws(
    examples: np.ndarray, counts: np.ndarray | int, *, seed: int, epoch: int, stream: int = 0
) -> np.ndarray:
    """Draw uniform random numbers for each example: the SplitMix64 sequence that starts at a hash of its arguments.

    Steele et al. (2014), "Fast splittable pseudorandom number generators". This draws a whole batch at once, without a
    `numpy.random.Generator` for each example.

    Args:
        examples: int (B,), not negative: number of each example in the corpus.
        counts: int (B,) or int: how many numbers each example needs.
        seed: seed of the run.
        epoch: number of the epoch; each epoch has other draws.
        stream: purpose of the numbers; streams are independent of each other.

    Returns:
        float64 (sum of counts,) in [0, 1), example by example.
    """
    key = np.zeros(1, dtype=np.uint64)
    for part in (seed, epoch, stream):
        key = _mixed(key + _GOLDEN + np.uint64(part))
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
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> tuple[np.ndarray, np.ndarray]:
    """Hide tokens of each row (BERT, Devlin et al. 2019).

    Every maskable token is hidden with `probability`, independently of the others. A short sentence may have no hidden
    token (0.85^20, or 4%, of those with 20 tokens); forcing one would over-sample the tokens of short sentences.

    Args:
        input_ids: int64 (B, T).
        maskable: bool (B, T), see [`MaskingVocabulary.maskable`]. Draws are assigned to these tokens in order, so
            padding on either side changes nothing.
        vocabulary: ids of the tokenizer, see [`masking_vocabulary`].
        examples: int64 (B,), number of each row in the corpus.
        seed: seed of the run.
        epoch: number of the epoch.
        probability: probability that a token is hidden, and predicted.
        mask_share: share of hidden tokens replaced by the mask token.
        random_share: share of hidden tokens replaced by a random token that is not special. The rest stay.

    Returns:
        The tokens with some hidden, and the labels: the original token if it is hidden, else -100. Both int64 (B, T).

    Raises:
        InputError: a share is invalid.
    """
    check_shares(probability, mask_share, random_share)
    counts = maskable.sum(axis=1)
    draws = example_draws(examples, 2 * counts, seed=seed, epoch=epoch).reshape(-1, 2)
    # One draw chooses between mask, random, kept and not hidden; the other picks the random token.
    choice = draws[:, 0]
    tokens = input_ids[maskable]
    labels = np.full_like(input_ids, IGNORED)
    labels[maskable] = np.where(choice < probability, tokens, IGNORED)
    by_mask = choice < probability * mask_share
    by_random = ~by_mask & (choice < probability * (mask_share + random_share))
    picked = (draws[by_random, 1] * len(vocabulary.replacements)).astype(np.int64)
    tokens[by_mask] = vocabulary.mask_token_id
    tokens[by_random] = vocabulary.replacements[picked]
    masked = input_ids.copy()
    masked[maskable] = tokens
    return masked, labels


def check_shares(probability: float, mask_share: float, random_share: float) -> None:
    """Refuse invalid shares of [`mask_tokens`]."""
    # A sum such as 0.7 + 0.3 may exceed 1 by rounding.
    if not 0 < probability <= 1 or min(mask_share, random_share) < 0 or mask_share + random_share > 1 + 1e-9:
        raise InputError(
            f"masking probability {probability}, mask share {mask_share}, random share {random_share}: the first must "
            "be above 0 and at most 1, the others at least 0 and together at most 1 (BERT's are 0.15, 0.8, 0.1)"
        )


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Apply SplitMix64's finaliser: a one-to-one map of uint64 in which every bit depends on every other."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
