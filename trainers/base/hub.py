"""Push from a trainer with [`hf_xalign.hub.push`], which never uploads a pickle."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, cast

from huggingface_hub import CommitInfo, run_as_future
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import HubStrategy
from transformers.utils.hub import PushInProgress

from hf_xalign import hub
from hf_xalign.errors import InputError, explained
from hf_xalign.hub.files import is_local, list_files, portable_name
from hf_xalign.hub.upload import check_login
from hf_xalign.record import FILENAME

logger = logging.getLogger(__name__)


def check_push(args: TrainingArguments) -> None:
    """Raise an InputError, before anything is computed, if `push_to_hub=True` cannot reach the Hub or log in there."""
    if args.push_to_hub and args.process_index == 0:
        with explained("push_to_hub=true"):
            check_login(args.hub_model_id or Path(cast(str, args.output_dir)).absolute().name, args.hub_token)


class HubTrainer(Trainer):
    """`Trainer` that pushes with [`hf_xalign.hub.push`].

    The strategies `checkpoint` and `all_checkpoints` push the checkpoint's model under `last-checkpoint/` or the
    checkpoint's name. The state to resume from (optimizer, schedule, random numbers) is pickled and is not pushed.
    """

    push_in_progress: Any  # the Trainer's: None, or a `PushInProgress`

    def _check_push(self, model: Any) -> None:
        """Raise an InputError if the run cannot be pushed: its adapter's base is local, or the Hub does not answer."""
        for config in getattr(model, "peft_config", {}).values():
            base = config.base_model_name_or_path
            if is_local(portable_name(base)):
                raise InputError(
                    f"push_to_hub: the base model {base} is not on the Hub, so nobody else could load the adapter. "
                    "Train from the base's Hub id, or push the run's folder later with hf_xalign.hub.push and "
                    "base_model=OWNER/NAME"
                )
        check_push(self.args)

    def push_to_hub(  # type: ignore[override]  # it also returns a future, or None off the main process
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        *,
        base_model: str | None = None,
        **kwargs: Any,
    ) -> CommitInfo | Future[CommitInfo] | None:
        """Save the model and push the run's folder, with a card made from its `results.json`.

        Arguments and errors are those of [`hf_xalign.hub.push`], with defaults from `args`; `kwargs` go to
        `create_model_card`, for a run without `results.json`.

        Returns the commit on the main process, None on the others; a future if `blocking` is False.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        if not (self._folder / FILENAME).exists():
            tags = kwargs.pop("tags", None) or []
            tags = [tags] if isinstance(tags, str) else list(tags)
            tags += [tag for tag in getattr(self.model, "model_tags", None) or [] if tag not in tags]
            self.create_model_card(tags=tags, **kwargs)
        self._finish_current_push()
        options: Any = {"token": token, "revision": revision, "private": private, "base_model": base_model}
        push = partial(self._push, self._folder, commit_message or "End of training", **options)
        return push() if blocking else run_as_future(push)

    def push_checkpoint(self, checkpoint_folder: str) -> None:
        """Push the checkpoint's model in the background, as `hub_strategy` says."""
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        if not self.args.hub_always_push and self.push_in_progress is not None and not self.push_in_progress.is_done():
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        step = self.state.global_step
        message = f"Training in progress, step {step}"
        places = [("", message)]
        if self.args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            last = self.args.hub_strategy == HubStrategy.CHECKPOINT
            places.append(("last-checkpoint" if last else Path(checkpoint_folder).name, f"{message}, checkpoint"))
        # Background pushes wait for each other, and the checkpoint may be rotated away meanwhile.
        copy = Path(tempfile.mkdtemp(prefix=".push-", dir=self._folder))
        for name, path in list_files(checkpoint_folder).items():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, copy / name)
            except OSError:  # the file system has no hard links
                shutil.copy2(path, copy / name)

        def push() -> None:
            try:
                for path_in_repo, text in places:
                    self._push(copy, text, path_in_repo=path_in_repo)
            except Exception as error:
                # Training continues, and nobody reads a future's exception.
                logger.error("step %d was not pushed: %s", step, error, exc_info=not isinstance(error, InputError))
            finally:
                shutil.rmtree(copy, ignore_errors=True)

        job = run_as_future(push)
        if self.push_in_progress is None or self.push_in_progress.is_done():
            self.push_in_progress = PushInProgress()
        self.push_in_progress.jobs.append(job)

    @property
    def _folder(self) -> Path:
        return Path(cast(str, self.args.output_dir))

    def _push(self, folder: Path, message: str, **options: Any) -> CommitInfo:
        args = self.args
        options = {name: value for name, value in options.items() if value is not None}
        options = {"private": args.hub_private_repo, "revision": args.hub_revision, "token": args.hub_token, **options}
        repo_id = self.hub_model_id or args.hub_model_id or self._folder.absolute().name
        return hub.push(folder, repo_id, message=message, **options)
