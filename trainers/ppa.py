"""PPA: contrast sentences with their translations, and predict masked tokens from both."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from datasets import Dataset
from torch import nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from hf_xalign.data.arrow import count_languages
from hf_xalign.data.batches.masked import PPACollator
from hf_xalign.data.pretraining.rows import count_tokens, encode_sentence_pairs
from hf_xalign.distributed import gather_rows
from hf_xalign.evaluation.scores import Scores
from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.contrast import KeyQueue, MomentumEncoder, SentenceHead, load_momentum, save_momentum
from hf_xalign.modeling.freezing import disable_dropout, freeze, freeze_unused
from hf_xalign.modeling.mlm_head import MaskedLMHead, mlm_head
from hf_xalign.modeling.packing import encode_batch
from hf_xalign.modeling.pooling import pool_sentences
from hf_xalign.objectives.term import Vectors
from hf_xalign.score import Score
from hf_xalign.trainers.base.fsdp import reshard, shard
from hf_xalign.trainers.base.opening import describe_pairs
from hf_xalign.trainers.base.run import Run, pivot_sentences
from hf_xalign.trainers.base.trainer import AlignmentTrainer, Batch, Computed, Counts, Loss, Prepared
from hf_xalign.trainers.ppa_config import PPAConfig

logger = logging.getLogger(__name__)

# Weights do not give them: both depend on all steps before the checkpoint.
_MOMENTUM_FILE = "momentum.safetensors"


class PPATrainer(AlignmentTrainer):
    """Trainer of PPA, L = L_MoCo + L_TLM on the query encoder (PPA sections 2.1 and 2.2; METHODS section 6).

    L_MoCo is a mean over pairs and L_TLM a mean over masked tokens, both over the whole optimizer step and all
    processes. The queue and the momentum encoder are updated once per optimizer step.

    Args: (see [`AlignmentTrainer`] for the others)
        train_dataset: parallel text (`source`, `target`, `source_lang`, `target_lang`).
        eval_dataset: parallel text, scored by sentence retrieval.

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> args = PPAConfig(max_steps=1, report_to="none", save_strategy="no", queue_size=64, min_tokens=1)
        >>> given = {"train_dataset": tiny.pairs, "processing_class": tiny.tokenizer}
        >>> trainer = PPATrainer(BertModel(tiny.config), args, **given)
        >>> trainer.train().global_step
        {'loss': ...}
        1
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "ppa", "cross-lingual-alignment"]
    _paper = "pan2021multilingual"
    config_class = PPAConfig
    method = "ppa"
    adapter_rate = 10.0
    can_shard = True
    computes = ("keys", "projections", "masked")
    args: PPAConfig

    def _complete(self) -> None:
        args = self.args
        self.momentum: MomentumEncoder | None = None
        self.queue: KeyQueue | None = None
        # Keys and pairs of the micro-batches of an optimizer step.
        self._step_keys: list[tuple[torch.Tensor, torch.Tensor]] = []
        if self.objective.reads("keys"):
            # The copy is made before a checkpoint is loaded and before accelerate wraps the encoder's forward.
            self.momentum = MomentumEncoder(self.model, self.head("sentence"), pooling=args.sentence_pooling)
            if self.is_fsdp_enabled:
                shard(self.accelerator, self.momentum.encoder, self.momentum.head)
            else:
                self.momentum.to(args.device)
            queue = KeyQueue(args.queue_size, args.projection_dim, start=args.queue_start, seed=args.seed)
            self.queue = queue.to(args.device)
            if args.queue_start == "empty":
                self.growing_term = "contrast"

    def _prepare(self, model: PreTrainedModel, train_dataset: Dataset) -> Prepared:
        args = self.args
        counts = {language: {"pairs": n} for language, n in sorted(count_languages(train_dataset).items())}
        self.show(*describe_pairs(train_dataset, counts, cast(Dataset | None, self.eval_dataset)))
        with args.main_process_first(desc="encoding sentence pairs"):
            train_dataset = encode_sentence_pairs(
                train_dataset, self.processing_class, min_tokens=args.min_tokens, max_tokens=args.max_tokens
            )
        if self.objective.reads("keys") and args.queue_size > len(train_dataset):
            logger.warning(
                "queue_size=%d is more than the %d pairs of the corpus, so the queue has keys of the previous epoch. "
                "Set it to a quarter of the pairs.",
                args.queue_size,
                len(train_dataset),
            )
        if not args.dropout:
            disable_dropout(model)
        if not hasattr(model, "peft_config"):
            freeze(model, embeddings=args.freeze_embeddings)
        freeze_unused(model, model.config.num_hidden_layers)
        # The heads are a submodule of the encoder, so that optimizer, DDP and checkpoints include them. Every process
        # draws the same weights, because the momentum encoder copies them before DDP synchronizes them.
        heads = nn.ModuleDict()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(args.seed)
            if self._contrasts:
                heads["sentence"] = SentenceHead(
                    model.config.hidden_size, args.projection_dim, normalize=args.normalize
                )
            if self.objective.reads("masked"):
                heads["words"] = words = mlm_head(model)
                # Counting reads the whole text, which only a new head needs.
                if words.new:
                    vocabulary = len(cast(torch.Tensor, model.get_input_embeddings().weight))
                    words.start_bias(torch.from_numpy(count_tokens(train_dataset, vocabulary)))
        cast(nn.Module, model).add_module(HEAD_NAME, heads)
        masked = [getattr(term, "seen", "sentence") for term in self.objective if "masked" in term.needs]
        collator = PPACollator(
            self.processing_class,
            seed=args.seed if args.data_seed is None else args.data_seed,
            contrast=self._contrasts,
            words=("tlm" if "pair" in masked else "mlm") if masked else "none",
            mlm_probability=args.mlm_probability,
        )
        return model, train_dataset, collator

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Create the optimizer; a new MLM head gets its own groups with `head_learning_rate`."""
        is_given = self.optimizer is not None
        optimizer = super().create_optimizer(model)
        if is_given or not self._new_head:
            return optimizer
        head = set(self.head("words").parameters())
        for group in list(optimizer.param_groups):
            of_head = [parameter for parameter in group["params"] if parameter in head]
            group["params"] = [parameter for parameter in group["params"] if parameter not in head]
            if of_head:
                optimizer.add_param_group({**group, "params": of_head, "lr": self.args.head_learning_rate})
        return optimizer

    def begin(self) -> None:
        """Settle what the queue and a sharded head need before the first step."""
        super().begin()
        self._step_keys = []  # of an interrupted step
        if self.is_fsdp_enabled and self.objective.reads("masked"):
            # The MLM head reads the embeddings after the forward pass.
            cast(FSDPModule, self.model.get_input_embeddings()).set_reshard_after_forward(False)

    # ---- Loss ----

    @property
    def _contrasts(self) -> bool:
        """True if a term contrasts projected sentences."""
        return self.objective.reads("keys", "projections")

    @property
    def _new_head(self) -> bool:
        return self.objective.reads("masked") and bool(cast(MaskedLMHead, self.head("words")).new)

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Counts = None
    ) -> Loss:
        """Return L = L_MoCo + L_TLM: a contrast of projected sentences, and the prediction of masked tokens."""
        computed, output = self._vectors(model, inputs)
        loss = self.total(Vectors(inputs, heads=self.head, **computed), num_items_in_batch)
        return (loss, output) if return_outputs else loss

    def _vectors(self, model: nn.Module, inputs: Batch) -> tuple[dict[str, torch.Tensor | KeyQueue], Any]:
        computed: dict[str, torch.Tensor | KeyQueue] = {}
        output = None
        if self.objective.reads("keys"):
            assert self.momentum is not None and self.queue is not None
            queries = self._sentences(model, inputs["input_ids"], inputs["attention_mask"])
            with self.accelerator.autocast():
                keys = self.momentum.encode(inputs["key_input_ids"], inputs["key_attention_mask"])
            if self._in_step and self.is_in_train:
                self._step_keys.append((keys, inputs["pairs"]))
            computed |= {"queries": queries, "keys": keys, "queue": self.queue}
        if self.objective.reads("projections"):
            sides = [(inputs[f"{side}input_ids"], inputs[f"{side}attention_mask"]) for side in ("", "key_")]
            computed["projections"] = torch.stack([self._sentences(model, *side) for side in sides], dim=1)
        if self.objective.reads("masked"):
            masked, output = self._masked(model, inputs)
            computed |= masked
        return computed, output

    def _masked(self, model: nn.Module, inputs: Batch) -> Computed:
        """Compute the states of the masked text, without gradient while a new head trains alone."""
        settling = self._new_head and self.state.global_step < self.args.head_warmup_ratio * self.state.max_steps
        # DDP needs a gradient for every weight, and without a contrast there is no other.
        with torch.no_grad() if settling and self._contrasts else nullcontext():
            output = self._encode(model, inputs["mlm_input_ids"], inputs["mlm_attention_mask"])
        states = output.last_hidden_state
        embeddings = self.accelerator.unwrap_model(model).get_input_embeddings().weight
        if settling:
            states, embeddings = states.detach() + 0 * states, embeddings.detach()
        return {"states": states, "embeddings": embeddings}, output

    def _sentences(self, model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        output = self._encode(model, input_ids, attention_mask)
        vectors = pool_sentences(output.last_hidden_state, attention_mask, self.args.sentence_pooling)
        return self.head("sentence")(vectors)

    def _encode(self, model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        args, encoder = self.args, self.accelerator.unwrap_model(model)
        last = [encoder.config.num_hidden_layers]
        packed, reruns = not args.torch_compile, bool(args.gradient_checkpointing)
        return encode_batch(model, encoder, input_ids, attention_mask, last, packed=packed, reruns=reruns)

    def advance(self) -> None:
        """Update queue and momentum encoder, if there are any, with the same sorted keys on every process."""
        if self.momentum is None or self.queue is None:
            return
        keys, pairs = (gather_rows(torch.cat(parts)) for parts in zip(*self._step_keys))
        self._step_keys = []
        # Sorted by pair, so that the queue does not depend on how the step was divided.
        order = torch.argsort(pairs, stable=True)
        self.queue.enqueue(keys[order], pairs[order])
        reshard(self.momentum)
        self.momentum.update(self.accelerator.unwrap_model(self.model), self.head("sentence"), self.args.momentum)

    # ---- Scores and checkpoints ----

    def score_held_out(self, model: PreTrainedModel, when: str) -> Iterator[Scores]:
        """Score sentence retrieval by mean and [CLS] vectors, cosine, both directions, in float32."""
        evaluation, size = cast(Dataset, self.eval_dataset), self.args.per_device_eval_batch_size
        run, tokenizer = cast(Run, self.run), self.processing_class
        run.pivot[when] = {"sentences": pivot_sentences(self, model, self.args.sentence_pooling)}
        desc, examples = f"Scoring {when}", run.examples[when]
        yield score_sentences(model, tokenizer, evaluation, batch_size=size, desc=desc, examples=examples)

    @staticmethod
    def headline(args: Any) -> str:
        """Return the name of the headline score under these settings."""
        return Score("sentence", args.sentence_pooling).name

    def _score(self, dataset: Dataset) -> Scores:
        return self._score_by(score_sentences, dataset)

    def save_state(self, folder: Path) -> None:
        """Save momentum encoder and queue."""
        if self.momentum is not None and self.queue is not None:
            save_momentum(folder / _MOMENTUM_FILE, self.momentum, self.queue, write=self.args.should_save)

    def load_state(self, folder: Path) -> None:
        """Load momentum encoder and queue."""
        if self.momentum is not None and self.queue is not None:
            load_momentum(folder / _MOMENTUM_FILE, self.momentum, self.queue)
            self.momentum.copy_shared(self.accelerator.unwrap_model(self.model), self.head("sentence"))
