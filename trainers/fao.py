"""FAO: fine-tune the whole encoder until linked words of two languages meet, while the pivot stays where it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.collators import PairCollator
from hf_xalign.data.encoding import encode_pairs
from hf_xalign.losses import word_distance, word_infonce
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.freezing import disable_dropout, freeze, freeze_unused
from hf_xalign.modeling.heads import ProjectionHead
from hf_xalign.modeling.limits import position_limit
from hf_xalign.modeling.pooling import TokenIndex, layer_index, pool_words
from hf_xalign.modeling.reference import cache_reference, frozen_copy
from hf_xalign.modeling.word_vectors import select_layers
from hf_xalign.trainers.base import AlignmentTrainer
from hf_xalign.trainers.checks import check_encoder
from hf_xalign.trainers.fao_config import FAOConfig


class FAOTrainer(AlignmentTrainer):
    """Fine-tuning alignment objective (Cao et al. 2020; MAO eq. 1-3; CONTINUAL eq. 1; ROTATE eq. 7-10).

    L = L_align + w L_reg, with L_align = sum over links ||f(i, s) - f(j, t)||^2 and L_reg = sum over regularised
    words ||f - f0||^2, divided as `reduction` says by counts over the whole optimizer step and all processes. Or,
    with `objective="infonce"`, the word-level contrast of [`~hf_xalign.losses.word_infonce`], a mean over both
    words of every link, plus w L_reg.

    Args:
        model: the encoder, from `hf_xalign.modeling.checkpoint.load_encoder` or any `AutoModel`; or a `PeftModel`.
        args: the settings.
        train_dataset: word-linked pairs from `align_words`, or pairs from `encode_pairs`.
        eval_dataset: word-linked pairs.
        processing_class: the model's fast tokenizer.
        kwargs: passed to `Trainer`.

    Raises:
        InputError: no `word_ids`, no links, or settings that the model cannot have.
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "fao", "cross-lingual-alignment"]
    _paper: ClassVar[dict[str, str]] = {
        "title": "Multilingual Alignment of Contextual Word Representations",
        "id": "2002.03518",
        "citation": (
            "@inproceedings{cao2020multilingual,\n"
            "  title = {Multilingual Alignment of Contextual Word Representations},\n"
            "  author = {Cao, Steven and Kitaev, Nikita and Klein, Dan},\n"
            "  booktitle = {International Conference on Learning Representations},\n"
            "  year = {2020}\n"
            "}"
        ),
    }
    args: FAOConfig

    def __init__(
        self,
        model: PreTrainedModel,
        args: FAOConfig,
        *,
        train_dataset: Dataset,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase,
        **kwargs: Any,
    ):
        check_encoder(model, processing_class, args)
        peft = hasattr(model, "peft_config")
        self._depth = model.config.num_hidden_layers
        self.layers = layer_index(args.layers, self._depth)
        if "source_ids" not in train_dataset.column_names:
            with args.main_process_first(desc="encoding pairs"):
                train_dataset = encode_pairs(
                    train_dataset,
                    processing_class,
                    max_length=min(args.max_length, position_limit(model.config)),
                    subword_links=args.subword_links,
                )
        if not args.dropout:
            disable_dropout(model)
        if not peft:
            freeze(model, embeddings=args.freeze_embeddings, layers=args.freeze_layers)
        freeze_unused(cast(Any, model).get_base_model() if peft else model, max(self.layers))
        self._needs_reference = args.regularizer_weight > 0 or args.align_target == "frozen"
        cached = None
        if self._needs_reference and args.reference == "cache" and not peft:
            cast(nn.Module, model).to(args.device)
            with args.main_process_first(desc="caching the reference vectors"):
                cached, train_dataset = cache_reference(
                    model,
                    train_dataset,
                    side=args.regularized_side,
                    layers=self.layers,
                    pooling=args.pooling,
                    pad_token_id=processing_class.pad_token_id,
                    dtype=getattr(torch, args.reference_dtype),
                    autocast=torch.bfloat16 if args.bf16 else None,
                )
        if args.objective == "infonce" and args.projection_dim:
            # A submodule of the encoder, so that the optimizer, DDP and the checkpoints have it; never exported.
            model.add_module(HEAD_NAME, ProjectionHead(model.config.hidden_size, args.projection_dim))
        super().__init__(
            model,
            args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=PairCollator(
                pad_token_id=processing_class.pad_token_id,
                pooling=args.pooling,
                linked_tokens=args.linked_tokens,
                regularized_side=args.regularized_side,
                regularized_words=args.regularized_words if self._needs_reference else "linked",
                needs_reference=self._needs_reference,
                reference=cached,
            ),
            **kwargs,
        )
        # Made before any checkpoint is resumed: f0 is the encoder that the run began with.
        self.reference = frozen_copy(self.model) if self._needs_reference and not cached and not peft else None

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
        """The FAO loss of one micro-batch; its sum over the step and mean over processes is the step's loss."""
        words, output = self._word_vectors(model, inputs)
        if not isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = self._get_num_items_in_batch([inputs], words.device)
        links, kept = num_items_in_batch
        f0 = self._reference_vectors(model, inputs) if self._needs_reference else words[:0]
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
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=self.layers != [self._depth]
        )

    def _pool(self, output: Any, inputs: dict[str, torch.Tensor], name: str) -> torch.Tensor:
        tokens = TokenIndex(inputs[f"{name}_index"], inputs.get(f"{name}_word"), inputs.get(f"{name}_counts"))
        states = select_layers(output, self.layers, self._depth)
        return torch.stack([pool_words(hidden, tokens) for hidden in states], dim=1)

    def _infonce(self, inputs: dict[str, torch.Tensor], words: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        vectors = words[inputs["links"].T.reshape(-1), 0]
        head = getattr(self.accelerator.unwrap_model(self.model), HEAD_NAME, None)
        with torch.autocast(vectors.device.type, enabled=False):
            vectors = vectors if head is None else head(vectors.to(head.out.weight.dtype))
            return self._contrast(vectors, links)

    def _contrast(self, vectors: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        """InfoNCE over the source words, then target words, of all processes' links.

        Every process computes the loss of all anchors, with only its own vectors carrying a gradient: the gradients
        that DDP then averages are the shares of the whole loss, and only their number has to be put back.
        """
        size = len(vectors) // 2
        source, target = vectors[:size], vectors[size:]
        if self.args.world_size > 1:
            source, target = self._gather_links(source), self._gather_links(target)
        loss = word_infonce(source, target, temperature=self.args.temperature).sum() / (2 * links)
        # The value is the whole loss already; the gradient is this process's share, of which DDP takes the mean.
        return loss + (self.args.world_size - 1) * (loss - loss.detach())

    def _gather_links(self, vectors: torch.Tensor) -> torch.Tensor:
        """The vectors of every process, in their order; only this process's own have a gradient."""
        counts = self.accelerator.gather(torch.tensor([len(vectors)], device=vectors.device)).tolist()
        padded = vectors.detach().new_zeros(max(counts), vectors.shape[1])
        padded[: len(vectors)] = vectors.detach()
        parts = list(self.accelerator.gather(padded).split(max(counts)))
        parts = [part[:count] for part, count in zip(parts, counts, strict=True)]
        parts[self.args.process_index] = vectors
        return torch.cat(parts)

    def _distance(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return word_distance(a, b, norm=self.args.norm, mean_over_dims=self.args.mean_over_dims)

    def _reduce(self, total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        # DDP averages gradients over processes; the counts are of all of them, so the sum is wanted back.
        total = total * self.args.world_size
        return total if self.args.reduction == "sum" else total / count
