"""Masked-language-model head that computes masked tokens only, tied to the encoder's word embeddings."""

from __future__ import annotations

import logging
from itertools import chain
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from hf_xalign.distributed import full_tensor
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import carried_weights

logger = logging.getLogger(__name__)

# Logits in memory: 128 MiB in float32, 134 tokens with a vocabulary of 250,000.
_CHUNK_LOGITS = 2**25
# Tokens of the vocabulary per thread, so that their logits stay in a CPU's cache.
_BLOCK_TOKENS = 2048


class MaskedLMHead(nn.Module):
    """The MLM head of every family: logits = E LayerNorm(activation(W h + b)) + c, with word embeddings E.

    E is not a weight of this module but an argument, so that it gets the gradients of both of its uses. Make a head
    with [`mlm_head`].
    """

    # Names of each weight in checkpoints of the family, first the one that transformers writes.
    names: dict[str, list[str]]
    # Weights that the encoder's checkpoint did not have.
    new: frozenset[str]

    def __init__(self, dense: nn.Linear, activation: nn.Module, norm: nn.LayerNorm, bias: nn.Parameter | None):
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm
        self.bias: nn.Parameter | None
        self.register_parameter("bias", bias)

    def forward(
        self, hidden: torch.Tensor, positions: torch.Tensor, labels: torch.Tensor, embeddings: torch.Tensor
    ) -> torch.Tensor:
        """Return the sum of the cross entropies of the masked tokens, a float32 scalar that has one backward pass.

        The loss of the paper is this sum, over micro-batches and processes, divided by the number of masked tokens of
        the optimizer step.

        `hidden` is the encoder's last layer, float (B, T, d); `positions` int64 (M,) are indices of the masked tokens
        into the flattened tokens, `labels` int64 (M,) the original tokens, and `embeddings` float (vocabulary, e) the
        input embeddings. For M = 0, loss and gradients are 0.
        """
        vectors = self.norm(self.activation(self.dense(hidden.flatten(0, 1).index_select(0, positions))))
        return tied_cross_entropy(vectors, embeddings, self.bias, labels)

    @torch.no_grad()
    def start_bias(self, counts: torch.Tensor) -> None:
        """Initialize a new bias c (not a pre-trained one) with log frequencies, from `counts` int64 (vocabulary,)."""
        # From c = 0, the encoder would first learn which tokens are frequent.
        if self.bias is not None and "bias" in self.new:
            smoothed = counts.double() + 0.1  # the count of a token that does not occur in the text
            self.bias.copy_((smoothed / smoothed.sum()).log())

    def put_into(self, carried: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return `carried` with the trained weights of the head, under the names that transformers reads."""
        old = set(chain.from_iterable(self.names.values()))
        state = self.state_dict()
        trained = {aliases[0]: full_tensor(state[name].detach()).cpu() for name, aliases in self.names.items()}
        return {name: tensor for name, tensor in carried.items() if name not in old} | trained


def mlm_head(encoder: PreTrainedModel) -> MaskedLMHead:
    """Load the MLM head of `encoder`'s checkpoint, or initialize a new one at random; the log says which."""
    config = encoder.config
    if not config.tie_word_embeddings:
        raise InputError(
            "config.tie_word_embeddings is false, but this MLM head is tied to the input embeddings. Set it to true "
            "to train the tied head, or switch the TLM/MLM term off"
        )
    with torch.device("meta"):
        family = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
    head = MaskedLMHead(*_head_modules(family), family.get_output_embeddings().bias)
    head.names = {}
    aliases = list(family.named_parameters(remove_duplicate=False))
    for name, parameter in head.named_parameters():
        head.names[name] = [alias for alias, candidate in aliases if candidate is parameter]
    for module in (head.dense, head.norm):
        module.to_empty(device="cpu")
    # Computes nothing for the rest of the model, which is on "meta".
    family.apply(family._init_weights)
    if head.bias is not None:
        head.bias = nn.Parameter(torch.zeros(len(cast(torch.Tensor, encoder.get_input_embeddings().weight))))
    carried, new = carried_weights(encoder)[1], []
    for name, parameter in head.named_parameters():
        pretrained = [carried[alias] for alias in head.names[name] if alias in carried]
        if pretrained and pretrained[0].shape == parameter.shape:
            with torch.no_grad():
                parameter.copy_(pretrained[0])
        else:
            new.append(name)
    head.new = frozenset(new)
    source = encoder.name_or_path or config.model_type
    if not new:
        logger.info("%s: training continues from its pre-trained MLM head", source)
    elif len(new) == len(head.names):
        logger.warning("%s has no pre-trained MLM head: a new one, tied to its word embeddings, is trained", source)
    else:
        logger.warning(
            "%s: weights of its MLM head are missing or have another size, and are initialized at random: %s",
            source,
            ", ".join(head.names[name][0] for name in new),
        )
    return head.to(device=encoder.device, dtype=torch.float32)


def _head_modules(family: PreTrainedModel) -> tuple[nn.Linear, nn.Module, nn.LayerNorm]:
    """Return dense layer, activation and norm of an MLM model's head, found by the types of its modules."""
    outside = set(family.modules()) - {*family.base_model.modules(), family.get_output_embeddings()}
    leaves = [module for module in family.modules() if module in outside and not [*module.children()]]
    dense = [module for module in leaves if isinstance(module, nn.Linear)]
    norm = [module for module in leaves if isinstance(module, nn.LayerNorm)]
    activations = [m for m in leaves if not isinstance(m, (nn.Linear, nn.LayerNorm, nn.Dropout, nn.CrossEntropyLoss))]
    if len(dense) != 1 or len(norm) != 1 or len(activations) > 1:
        raise InputError(
            f"the MLM head of {type(family).__name__} is not one linear map, activation and layer norm "
            f"({', '.join(type(module).__name__ for module in leaves)}): switch the TLM/MLM term off"
        )
    # RoBERTa's family calls GELU as a function and has no module for it.
    return dense[0], activations[0] if activations else nn.GELU(), norm[0]


def tied_cross_entropy(
    vectors: torch.Tensor, embeddings: torch.Tensor, bias: torch.Tensor | None, labels: torch.Tensor
) -> torch.Tensor:
    """Return the sum over rows of -log softmax(E v + c)[label], with bounded memory.

    v float (M, e), E float (vocabulary, e), c float (vocabulary,) or None, labels int64 (M,). The float32 scalar has
    one backward pass.
    """
    return _TiedCrossEntropy.apply(vectors, embeddings, bias, labels, torch.is_grad_enabled())


class _TiedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        vectors: torch.Tensor,
        embeddings: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        differentiate: bool,
    ) -> torch.Tensor:
        # The product with E is in the autocast dtype, as in transformers; softmax and loss are always in float32.
        device_type = vectors.device.type
        autocast = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else torch.float32
        with torch.autocast(device_type, enabled=False):
            # Gradients are computed here, while the logits of a part of the rows are in memory.
            needs_grad = ctx.needs_input_grad[:3] if differentiate else (False, False, False)
            grads = [
                torch.zeros_like(tensor, dtype=torch.float32) if tensor is not None and needed else None
                for tensor, needed in zip((vectors, embeddings, bias), needs_grad, strict=True)
            ]
            total = vectors.new_zeros((), dtype=torch.float32)
            chunks = -(-len(vectors) * len(embeddings) // _CHUNK_LOGITS)
            # Equal chunks, because a short last one is slow.
            size = max(1, -(-len(vectors) // max(1, chunks)))
            for start in range(0, len(vectors), size):
                row_slice = slice(start, start + size)
                total += _chunk(vectors[row_slice].to(autocast), embeddings, bias, labels[row_slice], grads, row_slice)
        ctx.grads = grads
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in (vectors, embeddings, bias)]
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grads, ctx.grads = ctx.grads, None
        # In place, because the embeddings' gradient is as large as the embeddings.
        scaled = [
            None if grad is None else grad.mul_(scale).to(dtype) for grad, dtype in zip(grads, ctx.dtypes, strict=True)
        ]
        return (*scaled, None, None)


def _chunk(
    rows: torch.Tensor,
    embeddings: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    grads: list[torch.Tensor | None],
    row_slice: slice,
) -> torch.Tensor:
    """Return the loss of a part of the rows, and add its gradients to `grads` (of vectors, embeddings, bias)."""
    # One pass over the vocabulary computes a running softmax: a block's weights are exp(logit - largest logit so far).
    grad_rows, grad_table, grad_bias = grads
    width = _BLOCK_TOKENS * torch.get_num_threads() if rows.device.type == "cpu" else len(embeddings)
    labels = labels.unsqueeze(1)
    label_logits = norm = torch.zeros(len(rows), 1, device=rows.device)
    largest = torch.full_like(norm, float("-inf"))
    pulled = torch.zeros(rows.shape, device=rows.device)  # weighted sum of the embeddings
    blocks = []
    for start in range(0, len(embeddings), width):
        block = slice(start, start + width)
        table = embeddings[block].to(rows.dtype)
        logits = (rows @ table.T).float()
        if bias is not None:
            logits += bias[block]
        label_index = labels - start
        inside = (label_index >= 0) & (label_index < len(table))
        label_logits = torch.where(inside, logits.gather(1, label_index.clamp(0, len(table) - 1)), label_logits)
        before, largest = largest, torch.maximum(largest, logits.amax(1, keepdim=True))
        fading = (before - largest).exp_()
        weights = logits.sub_(largest).exp_()
        norm = norm * fading + weights.sum(1, keepdim=True)
        weights = weights.to(rows.dtype)
        if grad_rows is not None:
            pulled.mul_(fading).add_(weights @ table)
        if grad_table is not None or grad_bias is not None:
            blocks.append((block, weights, largest))
    log_norm = norm.log() + largest
    if grad_rows is not None:
        grad_rows[row_slice] = pulled * (largest - log_norm).exp_() - embeddings[labels.squeeze(1)].to(rows.dtype)
    for block, weights, reference in blocks:
        shares = (reference - log_norm).exp_()  # weights * shares are the probabilities
        if grad_bias is not None:
            grad_bias[block] += (shares.T.to(rows.dtype) @ weights).squeeze(0)
        if grad_table is not None and grad_table.dtype == rows.dtype:
            grad_table[block].addmm_(weights.T, rows * shares)
        elif grad_table is not None:
            grad_table[block] += weights.T @ (rows * shares).to(rows.dtype)
    if grad_bias is not None:
        grad_bias.index_add_(0, labels.squeeze(1), torch.full_like(label_logits, -1.0).squeeze(1))
    if grad_table is not None:
        grad_table.index_add_(0, labels.squeeze(1), rows.float(), alpha=-1)
    return (log_norm - label_logits).sum()
