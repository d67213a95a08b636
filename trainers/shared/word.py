"""Trainer for losses on linked words: distances or contrasts of word vectors, and a pull to the reference."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.data.batches.bandit import LanguageBandit
from hf_xalign.data.batches.pairs import CachedVectors, LinkCollator, PairCollator
from hf_xalign.data.batches.token_index import TokenIndex
from hf_xalign.data.encoding import encode_pairs, encode_when_read, position_limit
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.words import split_pairs
from hf_xalign.distributed import gather_rows, whole_loss
from hf_xalign.errors import InputError
from hf_xalign.links.align import align_words
from hf_xalign.links.frozen import make_evaluation_links
from hf_xalign.losses import sentence_infonce, word_distance, word_infonce
from hf_xalign.modeling.contrast.heads import pool_sentences
from hf_xalign.modeling.freezing import stopped_at
from hf_xalign.modeling.pooling import pool_words
from hf_xalign.modeling.word_vectors import select_layers
from hf_xalign.modeling.xalign.base import changed_start
from hf_xalign.record import write_text
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.fsdp import shard
from hf_xalign.trainers.shared.word_config import WordAlignmentConfig

# Pairs of a sub-batch in Cao's script and those made from it.
SUB_BATCH = 4
# More pairs are encoded when they are drawn: to encode them ahead would take over a minute, and 500 bytes a pair.
ENCODED_AHEAD = 200_000
_BANDIT_FILE = "language_bandit.json"


def pool_layers(states: Iterable[torch.Tensor], inputs: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """Return the vectors of a batch's words, (words, layers, dim); `name` is that of their [`TokenIndex`]."""
    tokens = TokenIndex(inputs[f"{name}_index"], inputs.get(f"{name}_word"), inputs.get(f"{name}_counts"))
    return torch.stack([pool_words(hidden, tokens) for hidden in states], dim=1)


def _midpoints(sentences: torch.Tensor) -> torch.Tensor:
    source, target = sentences.chunk(2)
    return (source + target) / 2


def probe(model: PreTrainedModel) -> torch.Tensor:
    """Return the last hidden states of a few tokens in evaluation mode, with their gradient's graph."""
    training = model.training
    ids = torch.arange(8, device=model.device).unsqueeze(0)
    model.eval()
    try:
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    finally:
        model.train(training)


class WordAlignmentTrainer(AlignmentTrainer):
    """Trainer for a loss on the vectors of linked words (Cao et al. 2020; MAO eq. 1-3; ROTATE eq. 7-10).

    L = L_align + w L_reg. L_align is the sum over links of ||f(i, s) - f(j, t)||^2. L_reg is the sum over regularized
    words of ||f - f0||^2. `reduction` says how both are divided by counts over the whole optimizer step and all
    processes, or by those of sub-batches. With `objective="infonce"`, L_align is
    [`~hf_xalign.losses.word_infonce`], averaged over both words of
    every link.

    Two more terms hold the vectors of whole sentences, the means of their tokens. Interpolation is the distance of a
    pair's midpoint (s + t) / 2 to where the encoder before training has it (SALT 2026). The sentence contrast is
    [`~hf_xalign.losses.sentence_infonce`] (as in LaBSE). Both are means over pairs.

    A method sets `layers`. Its batches come from `_pair_collator`, or it overrides where f and f0 come from.
    """

    can_shard = True
    args: WordAlignmentConfig
    # Aligned layers, as indices into the hidden states.
    layers: list[int]
    # True if `link_pairs` are row numbers of the corpus, not of the batch.
    _pairs_are_numbered: bool = False
    # Frozen copy that computes f0; a `PeftModel` switches its adapters off instead.
    reference: PreTrainedModel | None = None
    # Chooses the languages, if language_sampling is ucb.
    bandit: LanguageBandit | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.is_fsdp_enabled and self.reference is not None:
            shard(self.accelerator, self.reference)

    def _check_f0(self, model: PreTrainedModel, before: torch.Tensor | None = None) -> None:
        """Require that a `PeftModel` without its adapters stays the encoder from before them, if f0 is in the loss.

        `before` is that encoder's [`probe`], if it is known.
        """
        if not (self.args.needs_reference or self.args.interpolation_weight):
            return
        cause, peft = "", cast(Any, model)
        for config in peft.peft_config.values():
            if start := changed_start(config):
                cause = f"init_lora_weights={start} changes the encoder's own weights: use true or gaussian"
            elif getattr(config, "layer_replication", None):
                cause = "layer_replication adds layers to the encoder: leave it out"
        with peft.disable_adapter():
            now, weights = probe(model), {n: p for n, p in model.named_parameters() if p.requires_grad}
        if now.requires_grad:
            gradients = torch.autograd.grad(now.sum(), list(weights.values()), allow_unused=True)
            name = next(name for name, gradient in zip(weights, gradients, strict=True) if gradient is not None)
            cause = f"{name} is a weight of the encoder and trained: set LoRA's bias to none, or freeze it"
        elif not cause and before is not None and not torch.allclose(now, before, rtol=1e-3, atol=1e-3):
            cause = f"this {peft.peft_type.value} adapter changes the encoder's own weights: take another peft_type"
        if cause:
            raise InputError(
                f"f0, the encoder before the adapter, would be lost. {cause}; or train without f0, by "
                "regularizer_weight=0 and interpolation_weight=0"
            )

    def _encoded(self, dataset: Dataset, model: PreTrainedModel, *, ahead: bool) -> Dataset:
        """Link and encode the training pairs once for all processes, and link the held-out pairs, as far as needed.

        A large corpus of which not all rows are needed `ahead` of training is encoded as its rows are drawn.
        """
        held_out = cast(Dataset | None, self.eval_dataset)
        if held_out is not None and "links" not in held_out.column_names:
            text = dataset if set(COLUMNS) <= set(dataset.column_names) else None
            self._check_output_dir()
            with self.args.main_process_first(desc="linking words"):
                self.eval_dataset = make_evaluation_links(held_out, text)
        if "source_ids" in dataset.column_names:
            return dataset
        if "links" not in dataset.column_names:
            self._check_output_dir()
            with self.args.main_process_first(desc="linking words"):
                dataset = (
                    split_pairs(dataset)
                    if self.args.objective == "none"
                    else align_words(dataset, drop_identical=self.args.drop_identical)
                )
        length = min(self.args.max_length, position_limit(model.config))
        if len(dataset) > ENCODED_AHEAD and not ahead:
            return encode_when_read(
                dataset, self.processing_class, max_length=length, subword_links=self.args.subword_links
            )
        with self.args.main_process_first(desc="encoding pairs"):
            return encode_pairs(
                dataset,
                self.processing_class,
                max_length=length,
                subword_links=self.args.subword_links,
                keep_unlinked=self.args.objective == "none",
            )

    def _pair_collator(self, reference: CachedVectors | None = None) -> PairCollator:
        """Return the collator for word vectors that are pooled from the encoder's token states."""
        return PairCollator(
            pad_token_id=self.processing_class.pad_token_id,
            pooling=self.args.pooling,
            linked_tokens=self.args.linked_tokens,
            regularized_side=self.args.regularized_side,
            regularized_words=self.args.reference_words,
            # The frozen encoder then runs on both sides of the batch itself.
            needs_reference=self.args.needs_reference and not self.args.interpolation_weight,
            reference=reference,
            sentences=self.args.sentence_weight > 0,
            sub_batch=SUB_BATCH if self.args.reduction == "sub_batches" else None,
        )

    def _make_bandit(self, languages: list[str]) -> LanguageBandit:
        self.bandit = LanguageBandit(len(languages))
        cast(LinkCollator, self.data_collator).numbers = {name: number for number, name in enumerate(languages)}
        # Since the bandit last learned: each language's losses, and their number.
        self._losses = torch.zeros(2, len(languages), device=self.args.device)
        return self.bandit

    def _note(self, losses: torch.Tensor, languages: torch.Tensor, processes: int = 1) -> None:
        """Add the losses of links, float (links,), that so many processes note, to their languages, int64 (links,)."""
        if not self._in_step:
            return
        losses = losses.detach().to(self._losses.dtype)
        self._losses.index_add_(1, languages, torch.stack([losses, torch.ones_like(losses)]) / processes)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        if self.bandit is not None:
            self._teach(self.bandit)
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def _teach(self, bandit: LanguageBandit) -> None:
        """Tell the bandit the losses of a window at its end, once: the end of an epoch calls again."""
        sampler = self._train_sampler
        steps = -(-len(sampler) // sampler.step_pairs)
        epoch, step = divmod(self.state.global_step - 1, steps)
        windows, more = divmod(step + 1, sampler.WINDOW_STEPS)
        trained = epoch * sampler.windows + (sampler.windows if step + 1 == steps else windows)
        if trained > len(bandit.slots) - 2 and (not more or step + 1 == steps):
            losses, counts = self._sum_losses().double().cpu().numpy()
            bandit.learn(losses, counts)
            self._losses.zero_()

    def _sum_losses(self) -> torch.Tensor:
        return self.accelerator.reduce(self._losses, reduction="sum")

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.bandit is not None:
            self._hold(self._sum_losses())
            if self.args.should_save:
                state = self.bandit.state_dict() | {"window": self._losses.tolist()}
                write_text(Path(output_dir) / _BANDIT_FILE, json.dumps(state))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.bandit is not None:
            state = json.loads((Path(checkpoint) / _BANDIT_FILE).read_text(encoding="utf-8"))
            self.bandit.load_state_dict(state)
            self._hold(torch.tensor(state["window"], dtype=self._losses.dtype, device=self.args.device))

    def _hold(self, losses: torch.Tensor) -> None:
        """Give the losses of all processes to the first, as a resumed run does: sums then round alike."""
        self._losses = losses if self.args.process_index == 0 else torch.zeros_like(losses)

    def _count_items(self, batch: dict[str, torch.Tensor]) -> list[int]:
        return [len(batch["links"]), len(batch["kept_words"]), len(batch.get("input_ids", ())) // 2]

    def _loss(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], counts: torch.Tensor
    ) -> tuple[torch.Tensor, Any]:
        words, output = self._word_vectors(model, inputs)
        links, kept, pairs = counts
        f0, midpoints = words[:0], words[:0]
        if self.args.needs_reference or self.args.interpolation_weight:
            f0, midpoints = self._frozen_vectors(model, inputs)
        if self.args.objective == "none":
            loss = words.sum() * 0.0
        elif self.args.objective == "infonce":
            loss = self._infonce(inputs, words, links)
        else:
            source, target = words[inputs["links"][:, 0]], words[inputs["links"][:, 1]]
            if self.args.align_target == "frozen" and self.args.regularized_side == "target":
                target = f0[inputs["kept_links"]]
            elif self.args.align_target == "frozen":
                source = f0[inputs["kept_links"]]
            distances = self._distance(source, target)
            if "link_languages" in inputs:
                self._note(distances, inputs["link_languages"])
            loss = self._reduce(distances, links, inputs.get("link_divisors"))
        self.log_term("align", loss)
        if self.args.regularizer_weight > 0:
            drift = self._distance(words[inputs["kept_words"]], f0)
            over_words = self.args.reduction == "words" or self.args.objective == "none"
            regularizer = self._reduce(drift, kept if over_words else links, inputs.get("kept_divisors"))
            self.log_term("regularizer", regularizer)
            loss = loss + self.args.regularizer_weight * regularizer
        if not self.args.has_sentence_terms:
            return loss, output
        sentences = self._sentences(output, inputs["attention_mask"])
        if self.args.interpolation_weight > 0:
            drift = self._distance(_midpoints(sentences), midpoints)
            interpolation = self._reduce(drift, pairs)
            self.log_term("interpolation", interpolation)
            loss = loss + self.args.interpolation_weight * interpolation
        if self.args.sentence_weight > 0:
            contrast = self._sentence_infonce(sentences[:, 0], inputs["texts"], pairs)
            self.log_term("sentences", contrast)
            loss = loss + self.args.sentence_weight * contrast
        return loss, output

    def _word_vectors(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
        """Compute f of all words, (words, layers, dim), in one forward over both sides."""
        output = self._forward(model, inputs["input_ids"], inputs["attention_mask"])
        return self._pool(output, inputs, "token"), output

    def _frozen_vectors(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute f0 of the regularized words (kept words, layers, dim), and of the midpoints (pairs, layers, dim).

        Without gradient. One that the loss does not read is empty.
        """
        empty = inputs["input_ids"].new_zeros(0)
        if "reference" in inputs or "midpoints" in inputs:
            return inputs.get("reference", empty), inputs.get("midpoints", empty)
        with torch.no_grad(), self.accelerator.autocast(), self._frozen_encoder(model) as encoder:
            if not self.args.interpolation_weight:
                output = self._forward(encoder, inputs["kept_ids"], inputs["kept_mask"])
                return self._pool(output, inputs, "kept"), empty
            words, output = self._word_vectors(encoder, inputs)
            return words[inputs["kept_words"]], _midpoints(self._sentences(output, inputs["attention_mask"]))

    def _sentences(self, output: Any, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the mean token of each sentence, (sentences, layers, dim)."""
        states = select_layers(output, self.layers, self._depth())
        return torch.stack([pool_sentences(hidden, attention_mask, "mean") for hidden in states], dim=1)

    @contextlib.contextmanager
    def _frozen_encoder(self, model: nn.Module) -> Iterator[nn.Module]:
        """Yield the untuned encoder: the frozen copy, or the `PeftModel` without adapters and dropout."""
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
        states = self.layers != [self._depth()]
        # The backward pass of a checkpointed layer runs its forward again, outside this block.
        whole = self.args.gradient_checkpointing or self.args.torch_compile
        encoder = self.accelerator.unwrap_model(model)
        with stopped_at(encoder, self._depth() if whole else max(self.layers)):
            return model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=states)

    def _pool(self, output: Any, inputs: dict[str, torch.Tensor], name: str) -> torch.Tensor:
        return pool_layers(select_layers(output, self.layers, self._depth()), inputs, name)

    def _depth(self) -> int:
        return self.model.config.num_hidden_layers

    def _project(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (words, dim) to what InfoNCE compares, (words, any dim); runs outside autocast."""
        return vectors

    def _infonce(self, inputs: dict[str, torch.Tensor], words: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        """InfoNCE over the links of all processes."""
        vectors, pairs = words[inputs["links"].T.reshape(-1), 0], inputs["link_pairs"]
        if not self._pairs_are_numbered:
            # The same number on another process is another sentence pair.
            pairs = pairs * self.args.world_size + self.args.process_index
        with torch.autocast(vectors.device.type, enabled=False):
            source, target = map(gather_rows, self._project(vectors).chunk(2))
            pairs = gather_rows(pairs)
            groups = pairs if self.args.negatives == "other_sentences" else None
            loss = word_infonce(source, target, temperature=self.args.temperature, groups=groups)
            if "link_languages" in inputs:
                self._note(loss.view(2, -1).mean(0), gather_rows(inputs["link_languages"]), self.args.world_size)
            return whole_loss(loss.sum() / (2 * links))

    def _sentence_infonce(self, sentences: torch.Tensor, texts: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """InfoNCE over the sentence pairs of all processes; pairs with the same pivot text are no negatives."""
        with torch.autocast(sentences.device.type, enabled=False):
            source, target = map(gather_rows, nn.functional.normalize(sentences, dim=-1).chunk(2))
            loss = sentence_infonce(source, target, temperature=self.args.temperature, pairs=gather_rows(texts))
            return whole_loss(loss.sum() / (2 * pairs))

    def _distance(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return word_distance(a, b, norm=self.args.norm, mean_over_dims=self.args.mean_over_dims)

    def _reduce(
        self, distances: torch.Tensor, count: torch.Tensor, divisors: torch.Tensor | None = None
    ) -> torch.Tensor:
        if divisors is not None:
            return (distances / divisors).sum() * self.args.world_size
        total = distances.sum() * self.args.world_size
        return total if self.args.reduction == "sum" else total / count
