"""The ways to take a step that `fao_step.py` compares: what they share, and one function a variant."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.sampling import PairSampler, lengths_and_languages
from hf_xalign.data.encoding import encode_pairs
from hf_xalign.modeling.freezing import disable_dropout, freeze, frozen_copy
from hf_xalign.trainers import FAOConfig, FAOTrainer

MAX_LENGTH = 128
MEMORY_STEPS = 2


@dataclass
class Setup:
    """Settings that the variants share; each loads its own encoder."""

    load: Callable[[], PreTrainedModel]
    tokenizer: PreTrainedTokenizerBase
    linked: Dataset
    output_dir: str
    batch_size: int = 16
    device: str = "cpu"
    bf16: bool = False

    @cached_property
    def encoded(self) -> Dataset:
        """The linked pairs as token ids, row for row (`script` reads the words of the same rows)."""
        encoded = encode_pairs(self.linked, self.tokenizer, max_length=MAX_LENGTH)
        if len(encoded) != len(self.linked):
            raise RuntimeError(f"{len(self.linked) - len(encoded)} pairs lost every link in encoding")
        return encoded

    def batches(self) -> Iterator[list[int]]:
        """Row numbers of each batch, in the order of the trainer's data loader."""
        lengths, languages, _ = lengths_and_languages(self.encoded)
        order = list(PairSampler(lengths, languages, step_pairs=self.batch_size))
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def trainer(self, **settings: Any) -> FAOTrainer:
        """A trainer with the settings of fao_builtin.yaml."""
        options: dict[str, Any] = {
            "preset": "mao",
            "regularized_words": "all",
            "pooling": "mean",
            "dropout": False,
            "freeze_embeddings": True,
            "per_device_train_batch_size": self.batch_size,
            "max_length": MAX_LENGTH,
            "bf16": self.bf16,
            "use_cpu": self.device == "cpu",
            "seed": 0,
            "report_to": "none",
            "output_dir": self.output_dir,
        }
        return FAOTrainer(
            self.load(),
            FAOConfig(**{**options, **settings}),
            train_dataset=self.linked,
            processing_class=self.tokenizer,
        )

    def autocast(self) -> torch.autocast:
        """The precision of the forward passes that are not the trainer's."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.bf16)


class Variant(NamedTuple):
    """One way to take a step.

    Attributes:
        model: the tuned encoder; its gradients are dropped before each step.
        prepare: row numbers to whatever `step` takes.
        step: forward, loss, backward; gives the loss.
    """

    model: PreTrainedModel
    prepare: Callable[[list[int]], Any]
    step: Callable[[Any], Tensor]


# ---- The variants ----


def bare(setup: Setup) -> Variant:
    """Forward and backward of the encoder alone."""
    trainer = setup.trainer(regularizer_weight=0.0)
    model = move(trainer.model).train()

    def step(batch: dict[str, Tensor]) -> Tensor:
        tokens = {name: batch[name].to(setup.device) for name in ("input_ids", "attention_mask")}
        with setup.autocast():
            loss = model(**tokens).last_hidden_state.float().square().mean()
        loss.backward()
        return loss.detach()

    return Variant(model, lambda rows: collate(trainer, rows), step)


def ours(setup: Setup, **settings: Any) -> Variant:
    """The trainer's own step."""
    trainer = setup.trainer(**settings)
    trainer.cache_start()  # f0 is the encoder that has not moved
    model = trainer.accelerator.prepare_model(move(trainer.model))

    def step(batch: dict[str, Tensor]) -> Tensor:
        counts = trainer._get_num_items_in_batch([batch], trainer.args.device)
        return trainer.training_step(model, batch, counts)

    return Variant(trainer.model, lambda rows: collate(trainer, rows), step)


def loops(setup: Setup) -> Variant:
    """Three forwards and a loop over words, on token ids that were made beforehand."""
    model = setup.load().to(torch.device(setup.device)).train()
    disable_dropout(model)
    freeze(model, embeddings=True)
    reference = frozen_copy(model)
    move(model)

    def prepare(rows: list[int]) -> tuple:
        pairs = setup.encoded.__getitems__(rows)
        sides = []
        for side in ("source", "target"):
            spans = [list(zip(p[f"{side}_starts"], p[f"{side}_ends"], strict=True)) for p in pairs]
            sides.append((*pad([p[f"{side}_ids"] for p in pairs], setup.tokenizer.pad_token_id), spans))
        return *sides, [p["links"] for p in pairs]

    def step(batch: tuple) -> Tensor:
        source, target, links = batch
        with setup.autocast():
            f_source, f_target = words_by_loop(model, source), words_by_loop(model, target)
            with torch.no_grad():
                f0 = words_by_loop(reference, target)
        loss = loop_loss(f_source, f_target, f0, links)
        loss.backward()
        return loss.detach()

    return Variant(model, prepare, step)


def script(setup: Setup) -> Variant:
    """Follow published scripts: tokenize in the step, train everything, leave the reference in the graph."""
    model = setup.load().to(torch.device(setup.device)).train()
    disable_dropout(model)
    reference = copy.deepcopy(model).eval()
    move(model)
    tokenizer: Any = setup.tokenizer
    first, last = tokenizer("").input_ids

    def tokenize(sentences: list[list[str]]) -> tuple:
        ids: list[list[int]] = []
        spans: list[list[tuple[int, int]]] = []
        for sentence in sentences:
            ids.append([first])
            spans.append([])
            for word in sentence:
                pieces = tokenizer.tokenize(word)
                # A lone word-boundary mark is no part of the word, else the loss would be another one.
                boundary = len(pieces) > 1 and pieces[0] == "▁"
                spans[-1].append((len(ids[-1]) + boundary, len(ids[-1]) + len(pieces)))
                ids[-1] += tokenizer.convert_tokens_to_ids(pieces)
            ids[-1].append(last)
        return *pad(ids, tokenizer.pad_token_id), spans

    def step(pairs: list[dict[str, Any]]) -> Tensor:
        source = tokenize([pair["source_words"] for pair in pairs])
        target = tokenize([pair["target_words"] for pair in pairs])
        with setup.autocast():
            f_source, f_target = words_by_loop(model, source), words_by_loop(model, target)
            f0 = words_by_loop(reference, target)
        loss = loop_loss(f_source, f_target, f0, [pair["links"] for pair in pairs])
        loss.backward()
        return loss.detach()

    return Variant(model, setup.linked.__getitems__, step)


VARIANTS: dict[str, Callable[[Setup], Variant]] = {
    "bare": bare,
    "copy": lambda setup: ours(setup, reference="copy"),
    "cache": lambda setup: ours(setup, reference="cache"),
    "joint": lambda setup: ours(setup, preset="joint", reference="cache"),
    "loops": loops,
    "copy all": lambda setup: ours(setup, reference="copy", freeze_embeddings=False),
    "script": script,
}


def move(model: PreTrainedModel) -> PreTrainedModel:
    """Move the weights, except the word embeddings, by a hundredth of their size, the same in every variant."""
    generator = torch.Generator().manual_seed(1)
    embeddings = model.get_input_embeddings().weight
    with torch.no_grad():
        for weight in model.parameters():
            if weight is not embeddings:
                noise = torch.randn(weight.shape, generator=generator).to(weight)
                weight.add_(noise, alpha=0.01 * weight.square().mean().sqrt().item())
    return model


def collate(trainer: FAOTrainer, rows: list[int]) -> dict[str, Tensor]:
    """A batch, as the trainer's data loader makes it."""
    return trainer.data_collator(trainer.train_dataset.__getitems__(rows))


def pad(ids: list[list[int]], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """`input_ids` and `attention_mask`."""
    rows = [torch.tensor(row) for row in ids]
    masks = [torch.ones_like(row) for row in rows]
    sequences = torch.nn.utils.rnn.pad_sequence
    return sequences(rows, True, pad_token_id), sequences(masks, True, 0)


def words_by_loop(model: PreTrainedModel, side: tuple) -> list[list[Tensor | None]]:
    """The vector of every word of every sentence; None for a word without a subword."""
    input_ids, mask, spans = side
    device = next(model.parameters()).device
    hidden = model(input_ids=input_ids.to(device), attention_mask=mask.to(device)).last_hidden_state.float()
    return [
        [hidden[k, start:end].mean(0) if end > start else None for start, end in sentence]
        for k, sentence in enumerate(spans)
    ]


def loop_loss(source: list[list], target: list[list], f0: list[list], links: list[list]) -> Tensor:
    """MAO's objective, divided by the number of links."""
    pairs = [(source[k][i], target[k][j]) for k, row in enumerate(links) for i, j in row]
    pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
    kept = [(a, b) for now, before in zip(target, f0, strict=True) for a, b in zip(now, before, strict=True)]
    kept = [(a, b) for a, b in kept if a is not None]
    terms = [(torch.stack([a for a, _ in x]) - torch.stack([b for _, b in x])).square().sum() for x in (pairs, kept)]
    return (terms[0] + terms[1]) / len(pairs)


# ---- Time ----
