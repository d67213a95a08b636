"""What every method on linked words trains by: distances or contrasts of word vectors, and a pull to the reference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.cached_vectors import CachedVectors
from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.data.batches.token_index import TokenIndex
from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.limits import position_limit
from hf_xalign.distributed import gather_rows, whole_loss
from hf_xalign.losses import word_distance, word_infonce
from hf_xalign.modeling.pooling import pool_words
from hf_xalign.modeling.word_vectors import select_layers
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.word_config import WordAlignmentConfig


class WordAlignmentTrainer(AlignmentTrainer):
    """A trainer whose loss is over the vectors of linked words (Cao et al. 2020; MAO eq. 1-3; ROTATE eq. 7-10).

    L = L_align + w L_reg, with L_align = sum over links ||f(i, s) - f(j, t)||^2 and L_reg = sum over regularised
    words ||f - f0||^2, divided as `reduction` says by counts over the whole optimizer step and all processes. Or,
    with `objective="infonce"`, the word-level contrast of [`~hf_xalign.losses.word_infonce`], a mean over both
    words of every link, plus w L_reg.

    A method says which layers are aligned (`layers`); its batches are those of [`pair_collator`], or it overrides
    where f and f0 come from.
    """

    args: WordAlignmentConfig
    # The aligned layers, as indices into the hidden states.
    layers: list[int]
    # Whether `link_pairs` are numbers of the corpus and not of the batch.
    _pairs_are_numbered: bool = False
    # f0 where it is a model of its own; a `PeftModel` has it in itself.
    reference: PreTrainedModel | None = None

    def count_items(self, batch: dict[str, torch.Tensor]) -> list[int]:
        """Links and regularised words of one batch."""
        return [len(batch["links"]), len(batch["kept_words"])]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """The loss of one micro-batch; its sum over the step and mean over processes is the step's loss."""
        words, output = self._word_vectors(model, inputs)
        links, kept = self.step_counts(inputs, num_items_in_batch)
        f0 = self._reference_vectors(model, inputs) if self.args.needs_reference else words[:0]
        if self.args.objective == "infonce":
            loss = self._infonce(inputs, words, links)
        else:
            source, target = words[inputs["links"][:, 0]], words[inputs["links"][:, 1]]
            if self.args.align_target == "frozen" and self.args.regularized_side == "target":
                target = f0[inputs["kept_links"]]
            elif self.args.align_target == "frozen":
                source = f0[inputs["kept_links"]]
            loss = self._reduce(self._distance(source, target).sum(), links)
        self.log_term("align", loss)
        if self.args.regularizer_weight > 0:
            drift = self._distance(words[inputs["kept_words"]], f0).sum()
            regularizer = self._reduce(drift, kept if self.args.reduction == "words" else links)
            self.log_term("regularizer", regularizer)
            loss = loss + self.args.regularizer_weight * regularizer
        return (loss, output) if return_outputs else loss

    def _word_vectors(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
        """Vectors f of every word in use, (words, layers, dim), from one forward over both sides."""
        output = self._forward(model, inputs["input_ids"], inputs["attention_mask"])
        return self._pool(output, inputs, "token"), output

    def _reference_vectors(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Vectors f0 of the regularised words, (kept words, layers, dim), without gradient."""
        if "reference" in inputs:
            return inputs["reference"]
        with torch.no_grad(), self.accelerator.autocast(), self._frozen_encoder(model) as encoder:
            return self._pool(self._forward(encoder, inputs["kept_ids"], inputs["kept_mask"]), inputs, "kept")

    @contextlib.contextmanager
    def _frozen_encoder(self, model: nn.Module) -> Iterator[nn.Module]:
        """The encoder as it was: the frozen copy, or the tuned one with its adapters, and dropout, switched off."""
        if self.reference is not None:
            yield self.reference
            return
        encoder = self.accelerator.unwrap_model(model)
        training = encoder.training
        with encoder.disable_adapter():
            encoder.eval()
            try:
                yield encoder
            finally:
                encoder.train(training)

    def _forward(self, model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return model(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=self.layers != [self._depth()]
        )

    def _pool(self, output: Any, inputs: dict[str, torch.Tensor], name: str) -> torch.Tensor:
        tokens = TokenIndex(inputs[f"{name}_index"], inputs.get(f"{name}_word"), inputs.get(f"{name}_counts"))
        states = select_layers(output, self.layers, self._depth())
        return torch.stack([pool_words(hidden, tokens) for hidden in states], dim=1)

    def _depth(self) -> int:
        return self.model.config.num_hidden_layers

    def _project(self, vectors: torch.Tensor) -> torch.Tensor:
        """What InfoNCE compares of linked words' vectors, (words, dim) -> (words, any dim); outside autocast."""
        return vectors

    def _infonce(self, inputs: dict[str, torch.Tensor], words: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        vectors = words[inputs["links"].T.reshape(-1), 0]
        with torch.autocast(vectors.device.type, enabled=False):
            return self._contrast(self._project(vectors), inputs["link_pairs"], links)

    def _contrast(self, vectors: torch.Tensor, pairs: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        """InfoNCE over the source words, then target words, of all processes' links."""
        size = len(vectors) // 2
        source, target = vectors[:size], vectors[size:]
        if not self._pairs_are_numbered:
            # The same number on another process is another sentence pair.
            pairs = pairs * self.args.world_size + self.args.process_index
        source, target, pairs = gather_rows(source), gather_rows(target), gather_rows(pairs)
        groups = pairs if self.args.negatives == "other_sentences" else None
        loss = word_infonce(source, target, temperature=self.args.temperature, groups=groups).sum() / (2 * links)
        return whole_loss(loss)

    def _distance(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return word_distance(a, b, norm=self.args.norm, mean_over_dims=self.args.mean_over_dims)

    def _reduce(self, total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        # DDP averages gradients over processes; the counts are of all of them, so the sum is wanted back.
        total = total * self.args.world_size
        return total if self.args.reduction == "sum" else total / count


def encoded(
    dataset: Dataset, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, args: WordAlignmentConfig
) -> Dataset:
    """The training pairs as `encode_pairs` makes them, once for all processes; pairs that are encoded as they are."""
    if "source_ids" in dataset.column_names:
        return dataset
    with args.main_process_first(desc="encoding pairs"):
        return encode_pairs(
            dataset,
            tokenizer,
            max_length=min(args.max_length, position_limit(model.config)),
            subword_links=args.subword_links,
        )


def pair_collator(
    args: WordAlignmentConfig, tokenizer: PreTrainedTokenizerBase, reference: CachedVectors | None = None
) -> PairCollator:
    """The collator of a method whose word vectors are pooled from the encoder's token states."""
    return PairCollator(
        pad_token_id=tokenizer.pad_token_id,
        pooling=args.pooling,
        linked_tokens=args.linked_tokens,
        regularized_side=args.regularized_side,
        regularized_words=args.reference_words,
        needs_reference=args.needs_reference,
        reference=reference,
    )
