"""Push a folder to the Hub in one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
from huggingface_hub.utils import get_session, validate_repo_id

from hf_xalign.errors import InputError, explained
from hf_xalign.hub.files import Contents, decides_model
from hf_xalign.network import TransportError


@contextmanager
def _connection() -> Iterator[None]:
    try:
        yield
    except (ConnectionError, TransportError) as error:
        reason = str(error).partition(": offline mode")
        cause = "offline mode: unset HF_HUB_OFFLINE" if reason[1] else reason[0]
        raise InputError(f"there is no connection to the Hub ({cause}). Check it, and try again.") from error


@_connection()
def push(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    base_model: str | None = None,
    message: str = "Upload model",
    token: str | bool | None = None,
) -> CommitInfo:
    """Upload a model's folder in one commit. A missing repository or branch is created.

    Uploads weights (safetensors only), configs, tokenizer, record, card and pictures, and no other files. The card is
    generated from `results.json`. Weights and configs of an earlier push that the folder does not have are deleted;
    other files of the repository stay.

    Args:
        folder: output of a run, of `save_pretrained` or of
            [`~hf_xalign.modeling.export.save_sentence_transformer`].
        repo_id: `owner/name`, or `name` for your own namespace.
        private: make a new repository private; by default as your Hub settings say.
        revision: branch to push to.
        base_model: Hub id of the base model, when the folder names it by a local path.
        message: commit message.
        token: Hub token; by default the one that you logged in with (`hf auth login`, or HF_TOKEN).

    Raises:
        InputError: the folder has no complete model, its base model is not on the Hub, or it contains a token, a link
            that leaves it or weights that are not finite (checked before anything is sent); `private` was given for an
            existing public repository; or the connection broke.
        HfHubHTTPError, RuntimeError: the Hub refused a request, or failed five times. Nothing was committed, unless
            only the answer to the commit was lost. Push again in both cases.
    """
    check_repo_id(repo_id)
    contents = Contents(folder, base_model=base_model)
    api = _api(token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision not in (None, "main"):
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    info = api.model_info(repo_id, revision=revision)
    if private and not info.private:
        raise InputError(
            f"private=True: {repo_id} already exists and is public. Change its settings, or choose another name."
        )
    added = contents.read(repo_id, revision)
    operations: list[CommitOperationAdd | CommitOperationDelete] = list(starmap(CommitOperationAdd, added.items()))
    for file in info.siblings or []:
        # Weights or a config that an earlier push left would be loaded with the new files.
        if file.rfilename not in added and decides_model(file.rfilename):
            operations.append(CommitOperationDelete(file.rfilename))
    return api.create_commit(repo_id, operations, commit_message=message, revision=revision)


@_connection()
def push_space(
    repo_id: str,
    files: Callable[[str], Mapping[str, bytes]],
    *,
    message: str,
    private: bool | None = None,
    token: str | bool | None = None,
) -> CommitInfo:
    """Upload a Gradio Space in one commit; `files` returns its files by path, given its full name."""
    check_repo_id(repo_id)
    api = _api(token)
    name = api.create_repo(repo_id, repo_type="space", space_sdk="gradio", private=private, exist_ok=True).repo_id
    additions = list(starmap(CommitOperationAdd, files(name).items()))
    return api.create_commit(name, additions, commit_message=message, repo_type="space")


@_connection()
def check_login(repo_id: str, token: str | bool | None = None) -> None:
    """Raise an InputError if the Hub would refuse the name, does not answer, or does not know the token."""
    check_repo_id(repo_id)
    with explained("the Hub does not know who you are", LocalTokenNotFoundError, HfHubHTTPError):
        _api(token).whoami()


def _api(token: str | bool | None) -> HfApi:
    """Return the Hub's client after the Hub has answered."""
    api = HfApi(token=token)
    # Without a network, the client itself would try for half a minute.
    get_session().head(api.endpoint, timeout=10)
    return api


def check_repo_id(repo_id: str) -> None:
    """Raise an `InputError` for a repository name that the Hub would refuse."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"repo_id={repo_id}: {str(error).splitlines()[0]}") from error
