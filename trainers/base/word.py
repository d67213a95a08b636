"""Trainer for losses on linked words: distances or contrasts of word vectors, and regularizers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from hf_xalign.data.batches.pairs import PairCollator, TokenIndex
from hf_xalign.data.encoding import encode_pairs, encode_when_read, position_limit
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.errors import InputError
from hf_xalign.evaluation.distances import known_distances
from hf_xalign.evaluation.scores import Scores, check_protocols, score_vectors, text_vectors
from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.evaluation.vectors import language_rows
from hf_xalign.links.counts import link_entries, link_statistics
from hf_xalign.links.frozen import keep_links, make_evaluation_links
from hf_xalign.links.linking import LinkedPairs, Linking
from hf_xalign.modeling.features import FrozenStates, Start, cache_features
from hf_xalign.modeling.freezing import stopped_at
from hf_xalign.modeling.packing import encode_batch
from hf_xalign.modeling.pooling import layer_index, pool_means, pool_words
from hf_xalign.modeling.word_vectors import evaluating, select_layers
from hf_xalign.modeling.xalign.config import XAlignConfig, base_of, changed_start
from hf_xalign.objectives.term import Vectors
from hf_xalign.record import Record
from hf_xalign.trainers.base.checkpoints import check_output_dir
from hf_xalign.trainers.base.fsdp import shard
from hf_xalign.trainers.base.opening import describe_pairs
from hf_xalign.trainers.base.run import DRIFT_SENTENCES, Run, pivot_sentences
from hf_xalign.trainers.base.trainer import AlignmentTrainer, Batch, Computed, Counts
from hf_xalign.trainers.base.word_config import WordAlignmentConfig

if TYPE_CHECKING:
    from hf_xalign.trainers.continual import ContinualTrainer

logger = logging.getLogger(__name__)

# Pairs of a sub-batch in Cao's script and the scripts that are based on it.
SUB_BATCH = 4
# More pairs are encoded when they are drawn, because encoding ahead takes over a minute, and 500 bytes per pair.
ENCODED_AHEAD = 200_000
# {cached vectors of the encoder before training in a batch: their name in terms}
_CACHED = {"reference": "f0", "sentences0": "sentences0"}


def pool_layers(states: Iterable[torch.Tensor], inputs: Batch, name: str) -> torch.Tensor:
    """Return the vectors of a batch's words, (words, layers, dim); `name` is that of their [`TokenIndex`]."""
    tokens = TokenIndex(inputs[f"{name}_index"], inputs.get(f"{name}_word"), inputs.get(f"{name}_counts"))
    return torch.stack([pool_words(hidden, tokens) for hidden in states], dim=1)


def probe(model: PreTrainedModel) -> torch.Tensor:
    """Return the last hidden states of a few tokens in evaluation mode, with their gradient's graph."""
    ids = torch.arange(8, device=model.device).unsqueeze(0)
    with evaluating(model):
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state


def pair_collator(trainer: WordAlignmentTrainer | ContinualTrainer) -> PairCollator:
    """Return the collator for word vectors that are pooled from the encoder's token states."""
    args, objective = trainer.args, trainer.objective
    return PairCollator(
        pad_token_id=trainer.processing_class.pad_token_id,
        pooling=args.pooling,
        linked_tokens=args.linked_tokens,
        regularized_side=objective.kept_side,
        regularized_words=objective.kept_words,
        # For sentences, the frozen encoder runs on both sides of the batch itself.
        needs_reference=objective.reads("f0") and not objective.reads("sentences0"),
        sentences=objective.reads("texts"),
        every_word=objective.reads("words"),
        sub_batch=SUB_BATCH if objective.reads("sub_batches") else None,
    )


def cache_f0(
    trainer: WordAlignmentTrainer | ContinualTrainer, model: PreTrainedModel, pairs: Dataset, **options: Any
) -> Start:
    """Compute once what training reads of the encoder before it; `options` are those of `cache_features`."""
    args = trainer.args
    options = {"needed": {trainer.objective.kept_side: "all"}, **options}
    with args.main_process_first(desc="caching vectors of the encoder before training"):
        return cache_features(
            model,
            pairs,
            layers=trainer.layers,
            pooling=args.pooling,
            pad_token_id=trainer.processing_class.pad_token_id,
            autocast=torch.bfloat16 if args.bf16 else None,
            **options,
        )


def link_pairs(trainer: WordAlignmentTrainer | ContinualTrainer, pairs: Dataset, **options: Any) -> LinkedPairs:
    """Link pairs once for all processes, as the trainer was given or by default.

    `options` are those of [`~hf_xalign.links.linking.Linking.apply`].
    """
    args = trainer.args
    check_output_dir(args)
    linking = trainer.linking or Linking(draw=args.draw, seed=args.seed)
    drop, subwords = linking.drop_identical or args.drop_identical, getattr(args, "subword_links", False)
    linking = replace(linking, drop_identical=drop, subwords=linking.subwords or subwords)
    with args.main_process_first(desc="linking words"):
        return linking.apply(pairs, **options)


class WordAlignmentTrainer(AlignmentTrainer):
    """Trainer for a loss on the vectors of words and sentences of parallel text.

    The loss is a list of terms ([`~hf_xalign.objectives.Term`]), each divided by its count over the whole optimizer
    step and all processes. The trainer computes the vectors that they read: of linked words, of all words, of
    sentences, and those of the encoder before training.

    A method sets `layers` and calls `_encoded` and [`pair_collator`], or overrides where f and f0 come from.

    Args: (the others are those of [`AlignmentTrainer`])
        train_dataset: pairs from `load_parallel`, which are linked by `linking`; or word-linked pairs from
            `align_words`.
        eval_dataset: pairs, linked by the fixed evaluation aligner if they have no links.
        linking: how pairs without links are linked, and how many are drawn; by default fast_align, and all.

    Raises:
        InputError: `objective` is given with a setting of the loss; or a term reads something that is not computed.
    """

    can_shard = True
    computes = ("links", "words", "f0", "sentences", "sentences0", "texts", "sub_batches")
    args: WordAlignmentConfig
    # Aligned layers, as indices into the hidden states.
    layers: list[int]
    # True if `link_pairs` are row numbers of the corpus, not of the batch.
    _pairs_are_numbered: bool = False
    # Numbers of links by language pair, and what linked them.
    link_counts: Mapping[str, Mapping[str, object]]
    linked_by: str | None
    # Frozen copy that computes f0; a `PeftModel` switches its adapters off instead.
    reference: PreTrainedModel | None = None
    # States of the frozen layers of all training sentences, if they are computed once.
    frozen_states: FrozenStates | None = None

    def __init__(
        self,
        model: str | PreTrainedModel,
        args: WordAlignmentConfig | None = None,
        *,
        linking: Linking | None = None,
        **kwargs: Any,
    ):
        self.linking = linking
        super().__init__(model, args, **kwargs)

    def _complete(self) -> None:
        # After the copy, because a sharded model cannot be copied.
        if self.is_fsdp_enabled and self.reference is not None:
            shard(self.accelerator, self.reference)

    def score_held_out(self, model: PreTrainedModel, when: str) -> Iterator[Scores]:
        """Score retrieval of linked words in float32 by their mean subword; then by each pooling, and of all words.

        Sentence retrieval is scored where a term reads sentences, and pairs have text. Keeps vectors of the pivot's
        words and sentences, and the distances of linked words, in `run`.
        """
        run, evaluation = cast(Run, self.run), cast(Dataset, self.eval_dataset)
        options: Any = {"batch_size": self.args.per_device_eval_batch_size, "desc": f"Scoring {when}"}
        vectors = text_vectors(
            model,
            self.processing_class,
            evaluation,
            poolings=("mean", "last"),
            specials=check_protocols(run.protocols, self.processing_class, evaluation),
            word_view=isinstance(getattr(model, "active_peft_config", None), XAlignConfig),
            **options,
        )
        others = {*next(iter(vectors.values()))["source"]} - {"mean"}
        device, examples = next(model.parameters()).device, run.examples[when]
        score = partial(score_vectors, vectors, evaluation, run.protocols, device=device, examples=examples)
        # First the mean subword alone, whose table is shown before the other scores are computed.
        yield score(scored=others)
        pivot_words = []
        for language, row_ids in language_rows(evaluation).items():
            words = vectors[language]["target"]["mean"]
            end = words.offsets[np.searchsorted(row_ids, DRIFT_SENTENCES)]
            pivot_words.append(words.vectors[:end][words.present[:end], 0])
        run.pivot[when] = {"words": torch.cat(pivot_words), "sentences": pivot_sentences(self, model)}
        try:
            run.distances[when] = known_distances(vectors, evaluation)
        except InputError as error:  # too few links for random pairs are not an error of the run
            logger.warning("no histograms of distances: %s", error)
        yield score(scored=("mean",), all_occurrences=True)
        if self.objective.reads("sentences") and {"source", "target"} <= {*evaluation.column_names}:
            options["desc"] += ", sentences"
            yield score_sentences(
                model, self.processing_class, evaluation, poolings=("mean",), examples=examples, **options
            )

    def text_entries(self) -> Record:
        """Return languages, pivot, text and links as arguments of [`~hf_xalign.record.start_record`]."""
        return {**super().text_entries(), "links": self.link_counts, "linked_by": self.linked_by}

    def keep_held_out(self, folder: Path) -> dict[str, str]:
        """Save the evaluation links, and return {description: file}."""
        return keep_links(cast(Dataset, self.eval_dataset), folder)

    def _settle_layers(self, model: PreTrainedModel, layers: Sequence[int]) -> None:
        """Set `layers` to those that the terms read, by default `layers`."""
        depth = model.config.num_hidden_layers
        number = partial(layer_index, num_layers=depth)
        self.layers = self.objective.all_layers(layers, number)
        self._places: list[list[int] | None] = []
        for term in self.objective:
            places = [self.layers.index(k) for k in number(term.layers or layers)]
            self._places.append(None if places == list(range(len(self.layers))) else places)

    def _check_f0(self, model: PreTrainedModel, before: torch.Tensor | None = None) -> None:
        """Require that a `PeftModel` without its adapters stays the encoder from before them, if f0 is in the loss.

        `before` is that encoder's [`probe`], if it is known.
        """
        if not self.objective.reads("f0", "sentences0"):
            return
        cause, peft = "", cast(Any, model)
        for config in peft.peft_config.values():
            if start := changed_start(config):
                cause = f"init_lora_weights={start} changes the encoder's own weights. Use true or gaussian"
            elif getattr(config, "layer_replication", None):
                cause = "layer_replication adds layers to the encoder. Remove it."
        with peft.disable_adapter():
            now, weights = probe(model), {n: p for n, p in model.named_parameters() if p.requires_grad}
        if now.requires_grad:
            gradients = torch.autograd.grad(now.sum(), list(weights.values()), allow_unused=True)
            name = next(name for name, gradient in zip(weights, gradients, strict=True) if gradient is not None)
            cause = f"{name} is a weight of the encoder and trained: set LoRA's bias to none, or freeze it"
        elif not cause and before is not None and not torch.allclose(now, before, rtol=1e-3, atol=1e-3):
            cause = f"this {peft.peft_type.value} adapter changes the encoder's own weights. Use another peft_type"
        if cause:
            raise InputError(
                f"f0, the encoder before the adapter, would be lost. {cause}; or train without f0, by "
                "regularizer_weight=0 and interpolation_weight=0"
            )

    def _encoded(self, dataset: Dataset, model: PreTrainedModel, *, ahead: bool) -> Dataset:
        """Link and encode the training pairs once for all processes, and link the held-out pairs, as far as needed."""
        linked = self.objective.reads("links")
        held_out = cast(Dataset | None, self.eval_dataset)
        if held_out is not None and "links" not in held_out.column_names:
            text = dataset if set(COLUMNS) <= set(dataset.column_names) else None
            check_output_dir(self.args)
            with self.args.main_process_first(desc="linking words"):
                self.eval_dataset = make_evaluation_links(held_out, text)
        if "links" in dataset.column_names and self.linking is None:
            self.link_counts, self.linked_by = link_entries(link_statistics(dataset)), "given" if linked else "none"
        else:
            dataset = self._link(dataset, model)
        self.show(*describe_pairs(dataset, self.link_counts, cast(Dataset | None, self.eval_dataset)))
        length = position_limit(model.config, self.args.max_length)
        options: dict[str, Any] = {"max_length": length, "subword_links": self.args.subword_links}
        # A cache of vectors, which is made before training, reads every row.
        if len(dataset) > ENCODED_AHEAD and not ahead:
            return encode_when_read(dataset, self.processing_class, **options)
        with self.args.main_process_first(desc="encoding pairs"):
            return encode_pairs(dataset, self.processing_class, keep_unlinked=not linked, **options)

    def _link(self, dataset: Dataset, model: PreTrainedModel) -> Dataset:
        """Link the training pairs, and draw from those with links."""
        if self.linking is not None and self.linking.aligner.startswith("encoder"):
            cast(nn.Module, model).to(self.args.device)
        options = {"links": self.objective.reads("links"), "model": base_of(model), "tokenizer": self.processing_class}
        linked = link_pairs(self, dataset, **options)
        self.link_counts, self.linked_by = linked.counts, linked.linked_by
        if self.linking is not None and self.linking.max_pairs is not None:
            self._given = linked.pairs
        return linked.pairs

    def word_loss(self, inputs: Batch, computed: Batch, counts: Counts) -> torch.Tensor:
        """Return the weighted sum of the terms of these vectors, each by the count of its items in the step."""
        counts = self.step_counts(inputs, counts)
        if "link_pairs" in inputs and not self._pairs_are_numbered:
            # The same number on another process is another sentence pair.
            inputs = inputs | {"link_pairs": inputs["link_pairs"] * self.args.world_size + self.args.process_index}
        vectors = Vectors(inputs, heads=self.head, **computed)
        return self.objective(vectors, counts, self.log_term, self._places)

    def _vectors(self, model: nn.Module, inputs: Batch) -> Computed:
        """Compute f of the words, (words, layers, dim), and of sentences, in one forward over both sides."""
        states, output = self._states(model, inputs["input_ids"], inputs["attention_mask"])
        computed = {}
        if self.objective.reads("links", "words", "f0"):
            computed["words"] = pool_layers(states, inputs, "token")
        if self.objective.reads("sentences"):
            computed["sentences"] = pool_means(states, inputs["attention_mask"])
        return computed, output

    def _frozen_vectors(self, model: nn.Module, inputs: Batch) -> Batch:
        """Compute `f0` of the kept words (kept words, layers, dim), and `sentences0` (sentences, layers, dim)."""
        computed = {term_name: inputs[name] for name, term_name in _CACHED.items() if name in inputs}
        if computed:
            return computed
        with torch.no_grad(), self.accelerator.autocast(), self._frozen_encoder(model) as encoder:
            if not self.objective.reads("sentences0"):
                states, _ = self._states(encoder, inputs["kept_ids"], inputs["kept_mask"])
                return {"f0": pool_layers(states, inputs, "kept")}
            states, _ = self._states(encoder, inputs["input_ids"], inputs["attention_mask"])
            computed["sentences0"] = pool_means(states, inputs["attention_mask"])
            if self.objective.reads("f0"):
                computed["f0"] = pool_layers(states, inputs, "token")[inputs["kept_words"]]
            return computed

    @contextlib.contextmanager
    def _frozen_encoder(self, model: nn.Module) -> Iterator[nn.Module]:
        """Yield the untuned encoder: the frozen copy, or the `PeftModel` without adapters and dropout."""
        if self.reference is not None:
            yield self.reference
            return
        encoder = self.accelerator.unwrap_model(model)
        with encoder.disable_adapter(), evaluating(encoder):
            yield encoder

    def _states(
        self, model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[list[torch.Tensor], BaseModelOutput]:
        """Return the states of `layers`, each (rows, width, dim), and the encoder's output."""
        # The backward pass of a checkpointed layer runs its forward again, outside this block.
        reruns_layers = self.args.gradient_checkpointing or self.args.torch_compile
        encoder, depth = self.accelerator.unwrap_model(model), self.model.config.num_hidden_layers
        with stopped_at(encoder, depth if reruns_layers else max(self.layers)):
            output = encode_batch(
                model,
                encoder,
                input_ids,
                attention_mask,
                self.layers,
                packed=not self.args.torch_compile,
                reruns=reruns_layers,
                frozen=self.frozen_states,
            )
        return select_layers(output, self.layers, depth), output
