"""Push from a trainer with [`hf_xalign.hub.push`], which never uploads a pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from huggingface_hub import CommitInfo
from transformers import Trainer, TrainingArguments

from hf_xalign import hub
from hf_xalign.errors import InputError, explained
from hf_xalign.hub.files import is_local, portable_name
from hf_xalign.hub.upload import check_login
from hf_xalign.record import FILENAME


def check_push(args: TrainingArguments) -> None:
    """Raise an InputError, before anything is computed, if `push_to_hub=True` cannot reach the Hub or log in there."""
    if args.push_to_hub and args.process_index == 0:
        with explained("push_to_hub=true"):
            check_login(args.hub_model_id or Path(cast(str, args.output_dir)).absolute().name, args.hub_token)


class HubTrainer(Trainer):
    """`Trainer` that pushes the trained model with [`hf_xalign.hub.push`], and no checkpoints, which hold pickles."""

    def _check_push(self, model: object) -> None:
        """Raise an InputError if the run cannot be pushed: its adapter's base is local, or the Hub refuses it."""
        for config in getattr(model, "peft_config", {}).values():
            base = config.base_model_name_or_path
            if is_local(portable_name(base)):
                raise InputError(
                    f"push_to_hub: the base model {base} is not on the Hub, so nobody else could load the adapter. "
                    "Train from the base's Hub id, or push the run's folder later with hf_xalign.hub.push and "
                    "base_model=OWNER/NAME"
                )
        check_push(self.args)

    def push_to_hub(  # type: ignore[override]  # it waits for the push, and returns None off the main process
        self,
        commit_message: str = "End of training",
        *,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        base_model: str | None = None,
    ) -> CommitInfo | None:
        """Save the model and push the run's folder, with a card made from its `results.json`, or a card of tags.

        Arguments and errors are those of [`hf_xalign.hub.push`], with defaults from `args`.

        Returns the commit on the main process, None on the others.
        """
        self.save_model(_internal_call=True)
        return self._upload(commit_message, token=token, revision=revision, private=private, base_model=base_model)

    def _upload(self, message: str = "End of training", **given: str | bool | None) -> CommitInfo | None:
        """Push the run's folder as it was saved; options of `hub.push` that are not given are those of `args`."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if not self.is_world_process_zero():
            return None
        args, folder = self.args, Path(cast(str, self.args.output_dir))
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
