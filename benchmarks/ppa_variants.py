"""Variants of `ppa_step.py`: PPA's step, the bare passes that it needs, and two MLM heads on one encoder."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from functools import partial
from typing import Any, cast

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from text import Text
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from hf_xalign.data.batches.masked import PPACollator
from hf_xalign.data.encoding import sentence_frame
from hf_xalign.data.pretraining.rows import encode_sentence_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import disable_dropout, freeze
from hf_xalign.modeling.mlm_head import MaskedLMHead, mlm_head
from hf_xalign.trainers import PPAConfig, PPATrainer

# Layers and widths of XLM-R base and BERT base.
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
PASSES = ("query", "key", "pair")
HEADS = ("encoder", "ours", "plain")
WIDTH = 32  # tokens of a concatenation in the comparison of heads

Batch = dict[str, Tensor]
Action = Callable[[Batch], Any]


def mlm_model(name_or_path: str, *, base: bool) -> PreTrainedModel:
    """The MLM model around an encoder, float32; with `base` of another shape and with random weights."""
    if not base:
        return AutoModelForMaskedLM.from_pretrained(name_or_path, dtype=torch.float32)
    config = AutoConfig.from_pretrained(name_or_path)
    config.update(BASE)
    return AutoModelForMaskedLM.from_config(config, dtype=torch.float32)


def encoder_pass(model: PreTrainedModel, ids: Tensor, mask: Tensor, autocast: torch.autocast, backward: bool) -> None:
    """One pass of a bare encoder."""
    with torch.set_grad_enabled(backward):
        with autocast:
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        if backward:
            hidden.float().square().mean().backward()


# ---- The step ----


class Step:
    """PPA's trainer, and a bare encoder beside it with the same weights, frozen in the same parts.

    Args:
        text: encoder and text.
        args: settings, with a queue and a word objective.

    Raises:
        InputError: the settings have no queue, or no hidden words.
    """

    def __init__(self, text: Text, args: PPAConfig):
        if args.contrast != "moco" or args.words == "none":
            raise InputError("the bare passes are those of contrast=moco with words=tlm or mlm")
        self.device = args.device
        self.autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=args.bf16)
        self.bare = copy.deepcopy(text.model)
        if not args.dropout:
            disable_dropout(self.bare)
        freeze(self.bare, embeddings=args.freeze_embeddings)
        self.bare.train()
        self.key = copy.deepcopy(self.bare).eval()
        self.trainer = PPATrainer(
            text.model,
            args,
            train_dataset=text.train,
            eval_dataset=text.evaluation,
            processing_class=text.tokenizer,
        )
        self.trainer.current_gradient_accumulation_steps = 1
        self.wrapped = self.trainer.accelerator.prepare_model(self.trainer.model)

    def batches(self, count: int) -> list[Batch]:
        """The first batches of the trainer's order, on the device."""
        rows = list(self.trainer.make_sampler(self.trainer.train_dataset))[
            : count * self.trainer.args.train_batch_size
        ]
        size = self.trainer.args.train_batch_size
        parts = (rows[first : first + size] for first in range(0, len(rows), size))
        made = (self.trainer.data_collator(self.trainer.train_dataset.__getitems__(part)) for part in parts)
        return [{name: tensor.to(self.device) for name, tensor in batch.items()} for batch in made]

    def actions(self) -> dict[str, Action]:
        """Each bare pass, the plain head, and the step."""

        def bare(prefix: str, batch: Batch) -> None:
            ids, mask = batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"]
            model, backward = (self.key, False) if prefix == "key_" else (self.bare, True)
            encoder_pass(model, ids, mask, self.autocast, backward)

        passes = {name: partial(bare, prefix) for name, prefix in zip(PASSES, ("", "key_", "mlm_"), strict=True)}
        return {**passes, "head": self.head, "step": self.step}

    def head(self, batch: Batch) -> Tensor:
        """Forward and backward of the family's head on the masked tokens, of random vectors, by plain torch."""
        size = self.bare.config.hidden_size
        hidden = torch.randn(*batch["mlm_input_ids"].shape, size, device=self.device, requires_grad=True)
        embeddings = self.trainer.model.get_input_embeddings().weight
        with self.autocast:
            loss = plain_head(self.trainer.head("words"), hidden, batch, embeddings)
        loss.backward()
        return loss.detach()

    def step(self, batch: Batch) -> Tensor:
        """Run the trainer's optimizer step without the optimizer."""
        self.trainer.is_in_train = True
        counts = self.trainer._get_num_items_in_batch([batch], self.device)
        loss = self.trainer.training_step(self.wrapped, batch, counts)
        self.trainer.advance()
        return loss

    def clear(self) -> None:
        """Drop all gradients."""
        self.bare.zero_grad(set_to_none=True)
        self.trainer.model.zero_grad(set_to_none=True)


def plain_head(head: MaskedLMHead, hidden: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
    """The sum of the masked tokens' cross entropies as one would write it."""
    vectors = head.norm(head.activation(head.dense(hidden.flatten(0, 1)[batch["mlm_positions"]])))
    logits = nn.functional.linear(vectors, embeddings, head.bias)
    return nn.functional.cross_entropy(logits, batch["mlm_labels"], reduction="sum")


# ---- The MLM head ----


class Heads:
    """transformers' MLM model, and the head for masked tokens with the same weights on the same encoder.

    Args:
        model: the MLM model.
        freeze_embeddings: do not train the word embeddings.
        bf16: autocast.
        device: of all of it.
    """

    def __init__(self, model: PreTrainedModel, *, freeze_embeddings: bool, bf16: bool, device: torch.device):
        disable_dropout(model)
        self.base = cast(PreTrainedModel, model.base_model)
        freeze(self.base, embeddings=freeze_embeddings)
        self.model = cast(nn.Module, model).train().to(device)
        self.ours = mlm_head(self.base).to(device)
        weights = dict(model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            for name, parameter in self.ours.named_parameters():
                parameter.copy_(weights[self.ours.names[name][0]])
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=bf16)

    def actions(self) -> dict[str, Action]:
        """The encoder alone, and both heads on it."""
        return dict(zip(HEADS, (self.encoder, self.hidden_tokens, self.all_tokens), strict=True))

    def encoder(self, batch: Batch) -> None:
        """Forward and backward without a head."""
        encoder_pass(self.base, batch["mlm_input_ids"], batch["mlm_attention_mask"], self.autocast, backward=True)

    def hidden_tokens(self, batch: Batch) -> Tensor:
        """Forward and backward with our head."""
        with self.autocast:
            hidden = self.base(input_ids=batch["mlm_input_ids"], attention_mask=batch["mlm_attention_mask"])
            embeddings = self.base.get_input_embeddings().weight
            total = self.ours(hidden.last_hidden_state, batch["mlm_positions"], batch["mlm_labels"], embeddings)
        loss = total / len(batch["mlm_labels"])
        loss.backward()
        return loss.detach()

    def all_tokens(self, batch: Batch) -> Tensor:
        """Forward and backward with the family's own."""
        labels = torch.full_like(batch["mlm_input_ids"], -100)
        labels.view(-1)[batch["mlm_positions"]] = batch["mlm_labels"]
        with self.autocast:
            loss = self.model(
                input_ids=batch["mlm_input_ids"], attention_mask=batch["mlm_attention_mask"], labels=labels
            ).loss
        loss.backward()
        return loss.detach()

    def check(self, batch: Batch, tolerance: float) -> None:
        """Stop where the two heads' losses differ by more than `tolerance`, relative.

        Raises:
            RuntimeError: they do.
        """
        ours, plain = self.hidden_tokens(batch).item(), self.all_tokens(batch).item()
        self.clear()
        if abs(ours - plain) > tolerance * abs(plain):
            raise RuntimeError(f"the loss is {ours} on masked tokens and {plain} on all: they should agree")

    def clear(self) -> None:
        """Drop all gradients."""
        self.model.zero_grad(set_to_none=True)
        self.ours.zero_grad(set_to_none=True)


def head_batches(text: Text, args: PPAConfig, pairs: int, count: int) -> list[Batch]:
    """The pairs whose concatenation is nearest to `WIDTH` tokens, `count` times, other tokens hidden each time."""
    tokenizer = text.tokenizer
    encoded = encode_sentence_pairs(text.train, tokenizer, min_tokens=args.min_tokens, max_tokens=args.max_tokens)
    collator = PPACollator(tokenizer, seed=args.seed, contrast=False)
    away = WIDTH - sum(map(len, sentence_frame(tokenizer)))
    lengths = encoded["length"][:]
    rows = encoded.__getitems__(sorted(range(len(lengths)), key=lambda row: abs(lengths[row] - away))[:pairs])
    made = []
    for epoch in range(count):
        collator.set_epoch(epoch)
        made.append({name: tensor.to(args.device) for name, tensor in collator(rows).items()})
    return made
