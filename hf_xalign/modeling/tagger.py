"""A BiLSTM-CRF tagger; importing it registers the model type with transformers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, AutoModelForTokenClassification, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.configuration_utils import SubConfigSpec
from transformers.modeling_outputs import ModelOutput
from transformers.utils.generic import can_return_tuple

from hf_xalign.checks import check_choice
from hf_xalign.data.batches.pairs import Pooling
from hf_xalign.data.encoding import position_limit
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import check_bare, encoder_class, without_pooler
from hf_xalign.modeling.pooling import layer_index, pool_spans
from hf_xalign.modeling.word_vectors import select_layers

NO_TAG = -100  # tag of padding, as in labels


class Constraint(NamedTuple):
    """Forbidden first tags, bool (tags,), and forbidden transitions from tag i to tag j, bool (tags, tags)."""

    start: Tensor
    transitions: Tensor


def bio_constraint(names: Sequence[str]) -> Constraint:
    """Build the constraint that `I-X` follows only `B-X` or `I-X`; all other tags are outside."""
    strange = [name for name in names if name.startswith("I-") and f"B-{name[2:]}" not in names]
    if strange:
        raise InputError(
            f"there is a tag {strange[0]} but no B-{strange[0][2:]}. Add it to the tags, or set bio=False"
        )
    start = torch.tensor([name.startswith("I-") for name in names])
    transitions = start.repeat(len(names), 1)
    for i, before in enumerate(names):
        for j, name in enumerate(names):
            transitions[i, j] &= before not in (f"B-{name[2:]}", f"I-{name[2:]}")
    return Constraint(start, transitions)


class LinearChainCRF(nn.Module):
    """Probability p(y | x) = exp(s(x, y)) / sum over y' of exp(s(x, y')) of a sentence's tags y.

    For n words, y' runs over the allowed sequences of n tags, and

    s(x, y) = start[y_1] + end[y_n] + sum_t emissions[t, y_t]
              + sum_{t > 1} transitions[y_{t-1}, y_t] + pairwise[t - 1, y_{t-1}, y_t].

    Computation is in log space and at least float32. A mask is True up to a sentence's length; everything after it is
    ignored. A sentence without words has probability 1.

    `constraint` forbids tag sequences in training and decoding; every tag must remain reachable.
    """

    forbidden_start: Tensor | None
    forbidden: Tensor | None

    def __init__(self, num_tags: int, constraint: Constraint | None = None):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(num_tags))
        self.end = nn.Parameter(torch.zeros(num_tags))
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))
        # Added to the scores: -inf if forbidden, else 0. Saved with the weights, because `from_pretrained` would leave
        # other buffers uninitialised; not bool, because a `dtype` argument may convert it.
        for name, bad in zip(("forbidden_start", "forbidden"), constraint or (None, None), strict=True):
            self.register_buffer(name, None if bad is None else torch.zeros(bad.shape).masked_fill(bad, -torch.inf))

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor, pairwise: Tensor) -> Tensor:
        """Return log p(y | x) of each sentence, float (B,), for `emissions` float (B, W, K).

        `tags` int64 (B, W) are allowed sequences (see [`check_tags`]), with any value at padding, where `mask` bool
        (B, W) is False. `pairwise` float (B, W - 1, K, K) is added to the transitions from word t to word t + 1.
        """
        with torch.autocast(emissions.device.type, enabled=False):
            emissions, pairwise = self._prepare(emissions, mask, pairwise)
            score = self._score(emissions, tags.masked_fill(~mask, 0), mask, pairwise)
            return torch.where(mask[:, 0], score - self._log_partition(emissions, mask, pairwise), 0.0)

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor, pairwise: Tensor) -> Tensor:
        """Return the most probable tags of each sentence (Viterbi), int64 (B, W); -100 at padding."""
        with torch.autocast(emissions.device.type, enabled=False):
            emissions, pairwise = self._prepare(emissions, mask, pairwise)
            best = self._allowed_start() + emissions[:, 0]
            itself = torch.arange(best.shape[1], device=best.device).expand_as(best)
            before = []
            for t in range(1, emissions.shape[1]):
                best_before, previous = (best.unsqueeze(2) + self._step(pairwise, t)).max(1)
                goes_on = mask[:, t, None]
                best = torch.where(goes_on, best_before + emissions[:, t], best)
                before.append(torch.where(goes_on, previous, itself))
            path = [(best + self.end).argmax(1)]
            for previous in reversed(before):
                path.append(previous.gather(1, path[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(path[::-1], dim=1).masked_fill(~mask, NO_TAG)

    def check_tags(self, tags: Tensor, mask: Tensor) -> None:
        """Raise an InputError unless `tags` int64 (B, W) are known and allowed."""
        size = len(self.start)
        wrong = mask & ((tags < 0) | (tags >= size))
        if self.forbidden is not None and self.forbidden_start is not None:
            known = tags.clamp(0, size - 1)
            wrong[:, 0] |= mask[:, 0] & (self.forbidden_start[known[:, 0]] < 0)
            wrong[:, 1:] |= mask[:, 1:] & (self.forbidden[known[:, :-1], known[:, 1:]] < 0)
        if wrong.any():
            row, word = wrong.nonzero()[0].tolist()
            raise InputError(
                f"labels[{row}, {word}] = {int(tags[row, word])}: every word needs a tag from 0 to {size - 1}, and "
                "with bio=True I-X must follow B-X or I-X. Correct the labels; -100 is for padding only."
            )

    def _prepare(self, emissions: Tensor, mask: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        precision = torch.promote_types(torch.promote_types(emissions.dtype, self.start.dtype), torch.float32)
        # Mask padding instead of multiplying it by 0, because it may be NaN.
        pairwise = pairwise.to(precision).masked_fill(~mask[:, 1:, None, None], 0.0)
        return emissions.to(precision).masked_fill(~mask.unsqueeze(-1), 0.0), pairwise

    def _allowed_start(self) -> Tensor:
        return self.start if self.forbidden_start is None else self.start + self.forbidden_start

    def _step(self, pairwise: Tensor, t: int) -> Tensor:
        """Return the scores of all pairs of tags at words t - 1 and t, (B, K, K)."""
        pairs = self.transitions + pairwise[:, t - 1]
        return pairs if self.forbidden is None else pairs + self.forbidden

    def _score(self, emissions: Tensor, tags: Tensor, mask: Tensor, pairwise: Tensor) -> Tensor:
        """Return s(x, y), (B,), for allowed tags that are 0 at padding."""
        last_tags = tags.gather(1, mask.sum(1, keepdim=True).clamp(min=1) - 1).squeeze(1)
        emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1)
        moves = self.transitions[tags[:, :-1], tags[:, 1:]]
        pair = tags[:, :-1] * len(self.start) + tags[:, 1:]
        moves = moves + pairwise.flatten(2).gather(2, pair.unsqueeze(2)).squeeze(2)
        moves = moves.masked_fill(~mask[:, 1:], 0.0).sum(1)
        return self.start[tags[:, 0]] + emitted + moves + self.end[last_tags]

    def _log_partition(self, emissions: Tensor, mask: Tensor, pairwise: Tensor) -> Tensor:
        """Return the log of the sum over all allowed y' of exp(s(x, y')), (B,), by the forward algorithm."""
        alpha = self._allowed_start() + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            following = torch.logsumexp(alpha.unsqueeze(2) + self._step(pairwise, t), dim=1) + emissions[:, t]
            alpha = torch.where(mask[:, t, None], following, alpha)
        return torch.logsumexp(alpha + self.end, dim=1)


class BiLSTMCRFConfig(PreTrainedConfig):
    """Config of [`BiLSTMCRFForTokenClassification`]; the tags are `id2label`. Sizes are those of the encoder.

    `layers` are positions in the encoder's `hidden_states` (0 = embeddings, -1 = last), whose vectors of a word are
    added. `lstm_size` is the number of units in each direction; `dropout` applies to the LSTM's input and output.
    `bio` allows `I-X` only after `B-X` or `I-X`, in training and decoding.
    """

    model_type = "xalign-bilstm-crf"
    sub_configs_defaults = {"encoder_config": SubConfigSpec(AutoConfig, model_type="bert")}  # noqa: RUF012

    encoder_config: PreTrainedConfig | dict | None = None
    layers: Sequence[int] = (-4, -3, -2, -1)
    pooling: Pooling = "mean"
    lstm_size: int = 384
    lstm_layers: int = 2
    dropout: float = 0.5
    bio: bool = False

    @property
    def encoder(self) -> PreTrainedConfig:
        """Config of the encoder."""
        assert isinstance(self.encoder_config, PreTrainedConfig)
        return self.encoder_config

    @property
    def hidden_size(self) -> int:
        """Hidden size of the encoder."""
        return self.encoder.hidden_size

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the encoder."""
        return self.encoder.num_hidden_layers

    @property
    def max_position_embeddings(self) -> int:
        """Maximum number of tokens, without the positions that a model family reserves."""
        return position_limit(self.encoder)

    @property
    def language_ids(self) -> Mapping[str, int] | None:
        """The `token_type_ids` of each language, for an encoder with language embeddings; else None."""
        return getattr(self.encoder, "language_ids", None)

    @property
    def tags(self) -> list[str]:
        """Tags in the order of their ids."""
        return [name for _, name in sorted((self.id2label or {}).items())]


@dataclass
class TaggerOutput(ModelOutput):
    """Output of the tagger.

    `loss` is the negative log-likelihood of the labels; `logits` float (B, W, tags) are the CRF's emissions, 0 at
    padding; `tags` int64 (B, W) is the best sequence, -100 at padding, in evaluation mode only.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    tags: Tensor | None = None


class BiLSTMCRFForTokenClassification(PreTrainedModel):
    """Tagger of words: frozen encoder, word vectors, dropout, BiLSTM, dropout, linear map to tags, CRF.

    The encoder is always in evaluation mode. The layers above it compute in float32. `word_spans` gives the tokens of
    each word. A word without tokens inside a sentence has a zero vector and gets a tag; at the end of a sentence
    (truncated, or padding) it gets none.
    """

    config_class = BiLSTMCRFConfig
    config: BiLSTMCRFConfig
    main_input_name = "input_ids"
    base_model_prefix = "backbone"
    # The encoder itself decides which of these it supports.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _keep_in_fp32_modules_strict = {"lstm", "classifier", "pairs", "crf"}  # noqa: RUF012 (the base class's own type)

    def __init__(self, config: BiLSTMCRFConfig, encoder: PreTrainedModel | None = None):
        """Build a tagger with random weights on `encoder`, by default a new encoder with random weights."""
        super().__init__(config)
        check_choice(get_args(Pooling), pooling=config.pooling)
        self.layer_numbers = layer_index(config.layers, config.num_hidden_layers)
        if encoder is None:
            model_class = encoder_class(config.encoder, config.encoder.model_type)
            encoder = cast(PreTrainedModel, model_class._from_config(config.encoder, **without_pooler(model_class)))
        self.backbone = encoder
        self.dropout = nn.Dropout(config.dropout)
        self.lstm = nn.LSTM(
            config.hidden_size, config.lstm_size, config.lstm_layers, batch_first=True, bidirectional=True
        )
        tags, width = len(config.tags), 2 * config.lstm_size
        self.classifier = nn.Linear(width, tags)
        # Without a bias, which the CRF's `transitions` are.
        self.pairs = nn.Linear(width, tags**2, bias=False)
        self.crf = LinearChainCRF(tags, bio_constraint(config.tags) if config.bio else None)
        self.post_init()
        self.train()

    @classmethod
    def from_encoder(
        cls, encoder: PreTrainedModel, tags: Sequence[str], **settings: Any
    ) -> BiLSTMCRFForTokenClassification:
        """Put a new tagger on an encoder, which is frozen and loses its pooler.

        Insert maps or a trained module of MAO afterwards, by [`hf_xalign.modeling.with_alignment`]. `tags` are in the
        order of their ids; `settings` are fields of [`BiLSTMCRFConfig`].
        """
        check_bare(encoder, "a tagger")
        if len(set(tags)) < max(2, len(tags)):
            raise InputError(f"tags={list(tags)}: name at least two, and each only once")
        config = BiLSTMCRFConfig(
            encoder_config=copy.deepcopy(encoder.config),
            id2label=dict(enumerate(tags)),
            label2id={name: number for number, name in enumerate(tags)},
            **settings,
        )
        model = cls(config, encoder)
        if getattr(encoder, "pooler", None) is not None:
            encoder.register_module("pooler", None)
        return model

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        word_spans: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        inputs_vectors: Tensor | None = None,
        word_mask: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> TaggerOutput:
        """Score the tags of words, from tokens or from word vectors.

        Args:
            input_ids: int64 (B, T).
            attention_mask: int64 (B, T).
            word_spans: int64 (B, W, 2), token spans `[start, end)` of the words, empty at padding.
            labels: int64 (B, W), a tag for every word, -100 at padding; labels of truncated words are ignored.
            inputs_vectors: float (B, W, `config.hidden_size`) from [`word_vectors`], in place of the tokens.
            word_mask: bool (B, W) with `inputs_vectors`, True at words, False at padding after them.
            num_items_in_batch: words of the whole optimizer step, by which the loss is divided.
            kwargs: arguments of the encoder, such as `language` (maps) or `token_type_ids`.
        """
        if input_ids is not None and word_spans is not None and inputs_vectors is None:
            inputs_vectors = self.word_vectors(input_ids, attention_mask, word_spans, **kwargs)
            word_mask = words_of(word_spans)
        assert inputs_vectors is not None and word_mask is not None
        # In float32 also under autocast, because an LSTM accumulates rounding errors.
        with torch.autocast(inputs_vectors.device.type, enabled=False):
            hidden = self._read(inputs_vectors.to(self.classifier.weight.dtype), word_mask)
            logits = self.classifier(hidden).masked_fill(~word_mask.unsqueeze(-1), 0.0)
            # The second word of each pair determines its transitions.
            pairwise = self.pairs(hidden[:, 1:]).unflatten(-1, self.crf.transitions.shape)
            loss = None
            if labels is not None:
                self.crf.check_tags(labels, word_mask)
                words = word_mask.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
                loss = -self.crf.log_likelihood(logits, labels, word_mask, pairwise).sum() / words
            tags = None if self.training else self.crf.decode(logits, word_mask, pairwise)
        return TaggerOutput(loss=loss, logits=logits, tags=tags)

    @torch.no_grad()
    def word_vectors(
        self, input_ids: Tensor, attention_mask: Tensor | None, word_spans: Tensor, **kwargs: Any
    ) -> Tensor:
        """Return the frozen word vectors, float32 (B, W, `config.hidden_size`), which are 0 for empty spans."""
        output = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, return_dict=True, **kwargs
        )
        states = select_layers(output, self.layer_numbers, self.config.num_hidden_layers)
        words = [pool_spans(hidden, word_spans, self.config.pooling) for hidden in states]
        return torch.stack(words).sum(0)

    def train(self, mode: bool = True) -> BiLSTMCRFForTokenClassification:
        """Set the mode of all modules except the encoder, which stays frozen and in evaluation mode."""
        super().train(mode)
        # Also here, because `from_pretrained` makes every parameter trainable, and then calls `eval()`.
        self.backbone.requires_grad_(False).eval()
        return self

    def _read(self, vectors: Tensor, word_mask: Tensor) -> Tensor:
        """Return the BiLSTM's output, (B, W, 2 * lstm_size), with dropout before and after."""
        # Packing needs at least one word per sentence; an empty sentence is read as one zero vector.
        lengths = word_mask.sum(1).clamp(min=1).cpu()
        vectors = self.dropout(vectors.masked_fill(~word_mask.unsqueeze(-1), 0.0))
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=vectors.shape[1])
        return self.dropout(hidden)

    @torch.no_grad()  # called for the modules outside the encoder
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.LSTM):
            bound = self.config.lstm_size**-0.5
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, LinearChainCRF):
            for parameter in module.parameters():
                init.zeros_(parameter)


def words_of(word_spans: Tensor) -> Tensor:
    """Return bool (B, W), True up to each sentence's last non-empty span of `word_spans` int64 (B, W, 2)."""
    filled = word_spans[..., 1] > word_spans[..., 0]
    return filled.flip(1).cumsum(1).flip(1) > 0


AutoConfig.register(BiLSTMCRFConfig.model_type, BiLSTMCRFConfig)
AutoModelForTokenClassification.register(BiLSTMCRFConfig, BiLSTMCRFForTokenClassification)
