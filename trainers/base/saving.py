"""Train a run that can be resumed, and save and load its model and checkpoints."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from datasets import Dataset
from huggingface_hub import CommitInfo
from peft import PeftConfig, PeftModel
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.trainer_utils import TrainOutput, rotate_checkpoints
from transformers.utils import ADAPTER_SAFE_WEIGHTS_NAME

from hf_xalign import hub
from hf_xalign.cache import follow_umask, hold_folder, write_json, write_mark, write_text
from hf_xalign.distributed import own_storage, shard_like
from hf_xalign.errors import InputError, explained
from hf_xalign.hub.files import check_recorded_base
from hf_xalign.hub.upload import check_login
from hf_xalign.modeling.checkpoint import HEAD_NAME, carried_weights, load_weights, save_encoder
from hf_xalign.modeling.export import LENGTH_FILE, read_length
from hf_xalign.modeling.mlm_head import MaskedLMHead
from hf_xalign.modeling.xalign.config import SKETCH, XAlignConfig, changed_start, sketch_base
from hf_xalign.record import FILENAME, base_entry, phase
from hf_xalign.trainers.base import checkpoints, fsdp
from hf_xalign.trainers.base.callbacks import stop_if_not_finite
from hf_xalign.trainers.base.run import Reporting, Run
from hf_xalign.trainers.base.trainer_config import AlignmentConfig

logger = logging.getLogger(__name__)

# Apart from the weights, because the folder of a checkpoint loads as a plain encoder.
_HEAD_FILE = f"{HEAD_NAME}.safetensors"
# Timed steps of an estimate, after one that warms up, and rows to prepare for them.
_TIMED_STEPS, _SAMPLE_ROWS = 5, 200


@contextmanager
def _changed(args: AlignmentConfig, **settings: object) -> Iterator[None]:
    before = {name: getattr(args, name, None) for name in settings}
    try:
        vars(args).update(settings)
        yield
    finally:
        vars(args).update(before)


def check_push(args: AlignmentConfig, bases: Iterable[str | None]) -> None:
    """Raise an InputError, before anything is computed, if no push can log in, or its card name the base models."""
    for base in bases:
        check_recorded_base({"base_model": base_entry(base or "")}, "push_to_hub: the base model")
    if args.process_index == 0:
        with explained("push_to_hub=true"):
            check_login(args.hub_model_id or Path(args.output_dir).absolute().name, args.hub_token)


class SavingTrainer(Trainer):
    """`Trainer` whose checkpoints are whole or not there, hold no pickled settings, and load without FSDP too.

    It pushes the trained model with [`hf_xalign.hub.push`], and no checkpoints, which hold pickles.
    A method that keeps more than weights and optimizer overrides `save_state` and `load_state`.
    """

    # True if the scores before and after training are the ends of the curve, which `evaluate` then reports.
    scores_ends: ClassVar[bool] = True
    args: AlignmentConfig
    model: PreTrainedModel
    processing_class: PreTrainedTokenizerBase
    reporting: Reporting
    run: Run | None = None
    # Numbers of training rows by language as `rows`, and their hash as `text`.
    trained_text: dict[str, Any]
    # True if the checkpoint that training resumed from is of a run that had ended.
    resumed_at_end: bool = False
    # True from the first loss on that is not finite.
    not_finite: torch.Tensor
    _trained: bool = False
    # True if `cache_start` was called.
    _start_cached: bool = False
    # True if the method keeps a record and the settings want it.
    _recorded: bool = False
    # Sums of the terms since the last row of the log.
    _term_sums: dict[str, torch.Tensor]
    # Of the base's checkpoint: the prefix of its weights, those of heads that are not trained, the longest input, and
    # the fingerprint of the encoder below an adapter.
    _prefix: str
    _carried: dict[str, torch.Tensor]
    _length: dict[str, int]
    _sketch: str | None

    def remember_base(self, model: PreTrainedModel) -> None:
        """Keep what is saved with the trained weights, because the base's folder may be gone when the run ends."""
        adapter = hasattr(model, "peft_config")
        self._prefix, self._carried = ("", {}) if adapter else carried_weights(model)
        configs: list[PeftConfig] = [*model.peft_config.values()] if isinstance(model, PeftModel) else []
        # A config of ours has it already.
        known = any(isinstance(config, XAlignConfig) or changed_start(config) for config in configs)
        self._sketch = sketch_base(model) if configs and not known else None
        self._length = {} if adapter else read_length(model.config)

    @property
    def run_scores_ends(self) -> bool:
        """True if the run scores the model before and after training."""
        return self.run is not None and bool(self.run.record) and self.scores_ends

    def cache_start(self) -> None:
        """Compute and store the vectors of the encoder before training that the training reads, once."""
        if self._start_cached:
            return
        self._start_cached = True
        model = self.accelerator.unwrap_model(self.model)
        # Sharded weights wait on the CPU.
        home = next(model.parameters()).device
        cast(nn.Module, model).to(self.args.device)
        self._encode_start(model)
        cast(nn.Module, model).to(home)

    def _encode_start(self, model: PreTrainedModel) -> None:
        """Encode the training text by the model before training, if the settings cache its vectors."""

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train; `resume_from_checkpoint=True` resumes from the last complete checkpoint. Default: the config's.

        Raises:
            InputError: the output folder holds another run, and the settings neither resume nor overwrite it.
            NonFiniteLossError: the loss became NaN or infinite.
        """
        output_dir = self.args.output_dir
        if self._trained:
            checkpoint = checkpoints.resolve_resume(resume_from_checkpoint, self.args)
        else:
            checkpoint = checkpoints.check_output_dir(self.args, resume_from_checkpoint)
        if self.args.should_save:
            hold_folder(output_dir)
        self.accelerator.wait_for_everyone()
        if self.args.should_save and checkpoint:
            checkpoints.remove_incomplete(output_dir)
        elif self.args.should_save and self.args.overwrite_output_dir and not self._trained:
            checkpoints.clear_run(output_dir)
        self.accelerator.wait_for_everyone()
        # Steps outside the run, as of an estimate, may have left sums.
        self._trained, self._term_sums = True, {}
        run = self.run
        if run is not None:
            run.start()
        # After the scores before training, whose table is shown first; before weights of a checkpoint are loaded.
        with phase(run.record, "preparing") if run is not None else nullcontext():
            self.cache_start()
        if self.is_fsdp_enabled:
            # accelerate does not wrap the forward of a sharded model into autocast.
            self.accelerator.prepare_model(self.model, device_placement=False, evaluation_mode=True)
        with phase(run.record, "training") if run is not None else nullcontext():
            result = super().train(checkpoint, trial, ignore_keys_for_eval)
        stop_if_not_finite(self)
        if run is not None and not self.is_fsdp_enabled:
            run.score_end()
        scored = (int(row["step"]) for row in self.state.log_history if self.args.headline in row)
        if self.args.eval_on_start and not self.run_scores_ends and max(scored, default=-1) < self.state.global_step:
            self.evaluate()
        return result

    # ---- Estimate ----

    def estimate(self, *, times: float = 1.0) -> dict[str, float]:
        """Estimate the size of the cache of vectors and the time of training by a few steps; nothing is trained.

        The lines of a recipe's dry run are shown, and the trainer is as it was. `times` is how many times as many rows
        the training text has, if the trainer has a part of it.

        Returns:
            `cache_bytes`, the seconds `caching` and `training`, and the number of `batches` of training.

        Raises:
            InputError: training is sharded, so that no process can run a step alone.
        """
        if self.is_fsdp_enabled:
            raise InputError("dry_run: training with FSDP cannot be estimated. Remove fsdp or dry_run.")
        args, rows = self.args, self.train_dataset
        before = {name: value.copy() if isinstance(value, list) else value for name, value in vars(self).items()}
        # The copy gets the vectors of the sample; the own collator must not keep them.
        self.data_collator = copy.copy(self.data_collator)
        if isinstance(rows, Dataset):
            part = rows.select(range(0, len(rows), max(1, len(rows) // _SAMPLE_ROWS)))
            self.train_dataset, times = part, times * len(rows) / len(part)
        model = None
        try:
            with tempfile.TemporaryDirectory() as folder, _changed(args, cache_dir=folder), torch.random.fork_rng():
                start = time.perf_counter()
                self.cache_start()
                caching = times * (time.perf_counter() - start)
                cache_bytes = times * sum(file.stat().st_size for file in Path(folder).rglob("*.bin"))
                _, note = self.layers_computed_once(self.model, len(cast(Dataset, rows)))
                loader = self.get_train_dataloader()
                model = self.accelerator.prepare_model(self.model)
                typical = statistics.median(self._time_steps(model, loader))
        finally:
            if model is not None:
                self.accelerator.unwrap_model(model, keep_fp32_wrapper=False).zero_grad()
            vars(self).clear()
            vars(self).update(before)
        batches = times * len(loader) * args.num_train_epochs
        if args.max_steps > 0:
            batches = args.max_steps * args.gradient_accumulation_steps
        if cache_bytes:
            self.show(f"cache    about {cache_bytes / 1e6:,.0f} MB of word vectors, about {caching / 60:.1f} minutes")
        if note:
            self.show(f"frozen   {note}")
        self.show(f"steps    about {batches * typical / 60:.1f} minutes: {batches:.0f} batches of {typical:.2f} s")
        return {"cache_bytes": cache_bytes, "caching": caching, "training": batches * typical, "batches": batches}

    def _time_steps(self, model: nn.Module, loader: Iterable[dict[str, torch.Tensor]]) -> list[float]:
        """Return the seconds of a few micro-batches, without the first, which warms up, if there are more."""
        seconds = []
        self.current_gradient_accumulation_steps = 1
        for batch in itertools.islice(loader, _TIMED_STEPS + 1):
            start = time.perf_counter()
            self.training_step(model, batch, self._get_num_items_in_batch([batch], self.args.device))
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        return seconds[1:] or seconds

    def layers_computed_once(self, model: PreTrainedModel, rows: int) -> tuple[int, str]:
        """Return how many frozen layers are computed once for each distinct sentence of `rows` pairs, and why."""
        return 0, ""

    def show(self, *lines: str) -> None:
        """Show lines on the main process."""
        if self.args.process_index == 0:
            self.reporting.show("\n".join(lines))

    def begin(self) -> None:
        """Settle what the method needs between the loaded checkpoint and the first step."""
        if self.is_fsdp_enabled:
            fsdp.record_states(self.model)

    def advance(self) -> None:
        """Update what follows the weights, after each optimizer step and before anything is logged or saved."""

    # ---- Save ----

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; after training, also score it and write `results.json`, pictures and the model card."""
        folder = Path(output_dir or self.args.output_dir)
        state = self.accelerator.get_state_dict(self.model) if self.is_fsdp_enabled else None
        for head in getattr(self.accelerator.unwrap_model(self.model), HEAD_NAME, {}).values():
            # It replaces the head of the original checkpoint. All processes gather it.
            if isinstance(head, MaskedLMHead):
                self._carried = head.put_into(self._carried)
        if self.args.should_save:
            self.save_files(folder, state)
        if folder.name.startswith("checkpoint-"):
            return
        # Without an evaluation set, or with `record=False`, the folder has the model and the tokenizer alone.
        if self.run is not None and self.run.record:
            self.run.finish(folder)
        elif self._trained and self.run is None and self._recorded and self.args.should_save and not _internal_call:
            logger.warning("%s: no eval_dataset was given, so there are no scores, no record and no card", folder)
        if self.args.push_to_hub and not _internal_call:
            # The run's folder is pushed; where another was saved, it may hold nothing, or older weights.
            self._upload() if folder == Path(self.args.output_dir) else self.push_to_hub()

    def save_files(self, folder: Path, state: dict[str, torch.Tensor] | None = None) -> None:
        """Save model, tokenizer and settings; `state` are the gathered weights of a sharded model."""
        state = state and {name: own_storage(tensor) for name, tensor in state.items()}
        folder.mkdir(parents=True, exist_ok=True)
        self.save_weights(folder, state)
        follow_umask(folder)
        self.processing_class.save_pretrained(folder)
        write_text(folder / checkpoints.ARGUMENTS, self.args.to_json_string() + "\n")

    def save_weights(self, folder: Path, state: dict[str, torch.Tensor] | None) -> None:
        """Save the model as `from_pretrained` loads it: an adapter, or the encoder with its checkpoint's heads."""
        if not hasattr(self.model, "peft_config"):
            save_encoder(self.model, folder, self._prefix, self._carried, state)
            if self._length:
                write_json(folder / LENGTH_FILE, self._length)
            return
        self.model.save_pretrained(folder, state_dict=state)
        if self._sketch:
            for path in folder.rglob(ADAPTER_SAFE_WEIGHTS_NAME):
                if not path.relative_to(folder).parts[0].startswith("checkpoint-"):
                    save_file(load_file(path), path, metadata={"format": "pt", SKETCH: self._sketch})

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save a checkpoint, and mark it as complete by its last file, before older ones are deleted."""
        # The Trainer's would delete them first, push pickles, and save the optimizer of a sharded model in parts.
        args = self.args
        folder = Path(args.output_dir) / f"checkpoint-{self.state.global_step}"
        if args.should_save:
            # A damaged checkpoint of this step may be there. Its mark must not stay on a new one that is half written.
            (folder / checkpoints.COMPLETE).unlink(missing_ok=True)
        with _changed(args, save_total_limit=None, push_to_hub=False, save_only_model=True):
            super()._save_checkpoint(model, trial)
        self._save_rest(folder)
        self.accelerator.wait_for_everyone()
        if args.should_save:
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            # With the text that it was trained on, for `check_same_text`.
            write_mark(folder / checkpoints.COMPLETE, self.trained_text, files)
            best = self.state.best_model_checkpoint
            rotate_checkpoints(args.output_dir, args.save_total_limit, best, use_mtime=True)

    def _save_rest(self, folder: Path) -> None:
        """Save the settings, the head, and what a run resumes from."""
        if (head := getattr(self.model, HEAD_NAME, None)) is not None:
            state = fsdp.full_state(head.state_dict())
            if self.args.should_save:
                save_file(state, folder / _HEAD_FILE)
        if self.args.should_save:
            write_text(folder / checkpoints.ARGUMENTS, self.args.to_json_string() + "\n")
        if not self.args.save_only_model:
            if self.is_fsdp_enabled:
                fsdp.save_optimizer(self, folder)
            else:
                self._save_optimizer_and_scheduler(str(folder))
            self._save_scaler(str(folder))
            self._save_rng_state(str(folder))
            self.save_state(folder)
        if self.args.should_save:
            follow_umask(folder)

    def save_state(self, folder: Path) -> None:
        """Save what the method needs to resume, in addition to weights, optimizer and schedule; on all processes."""

    def push_to_hub(  # type: ignore[override]  # it waits for the push, and returns None off the main process
        self, commit_message: str = "End of training", **options: str | bool | None
    ) -> CommitInfo | None:
        """Save the model and push the run's folder, with a card made from its `results.json`, or a card of tags.

        Options and errors are those of [`hf_xalign.hub.push`]; `args` have the defaults of token, revision, private.

        Returns the commit on the main process, None on the others.
        """
        self.save_model(_internal_call=True)
        return self._upload(commit_message, **options)

    def _upload(self, message: str = "End of training", **given: str | bool | None) -> CommitInfo | None:
        """Push the run's folder as it was saved; options of `hub.push` that are not given are those of `args`."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if not self.is_world_process_zero():
            return None
        args, folder = self.args, Path(self.args.output_dir)
        if not (folder / FILENAME).exists():
            self.create_model_card(tags=list(getattr(self.model, "model_tags", None) or []))
        options: dict[str, Any] = {
            "token": args.hub_token,
            "revision": args.hub_revision,
            "private": args.hub_private_repo,
        }
        options |= {name: value for name, value in given.items() if value is not None}
        repo_id = self.hub_model_id or args.hub_model_id or folder.absolute().name
        return hub.push(folder, repo_id, message=message, **options)

    # ---- Load ----

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Load weights; the Trainer's would not find those whose names have the prefix of the base's checkpoint."""
        model = self.model if model is None else cast(PreTrainedModel, model)
        self.load_model(resume_from_checkpoint, model)
        if (head := getattr(model, HEAD_NAME, None)) is not None:
            state, like = load_file(os.path.join(resume_from_checkpoint, _HEAD_FILE)), head.state_dict()
            head.load_state_dict({name: shard_like(tensor, like[name]) for name, tensor in state.items()})

    def load_model(self, checkpoint: str, model: PreTrainedModel) -> None:
        """Load the weights of encoder or adapter."""
        if hasattr(model, "peft_config"):
            checkpoints.check_same_adapter(cast(PeftModel, model), checkpoint)
            super()._load_from_checkpoint(checkpoint, model)
        else:
            load_weights(model, checkpoint, self._prefix)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the optimizer, which is saved in full, and what the method saved, for the same text alone."""
        if checkpoint is None:
            return
        if not self.args.ignore_data_skip:
            checkpoints.check_same_text(checkpoint, self.trained_text)
        if self.is_fsdp_enabled:
            fsdp.load_optimizer(self, Path(checkpoint))
        else:
            super()._load_optimizer_and_scheduler(checkpoint)
        self.load_state(Path(checkpoint))

    def load_state(self, folder: Path) -> None:
        """Load what `save_state` saved."""

    def _load_best_model(self) -> None:
        """Load the best checkpoint as any other; the Trainer's has a second way, by the names of files."""
        logger.info("restoring the best checkpoint, %s", self.state.best_model_checkpoint)
        self._load_from_checkpoint(cast(str, self.state.best_model_checkpoint))
