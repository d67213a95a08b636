"""Push a folder to the Hub in one commit."""

from __future__ import annotations

import os

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from hf_xalign.errors import InputError
from hf_xalign.hub.files import Contents, decides_model


def push(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    base_model: str | None = None,
    message: str = "Upload model",
    path_in_repo: str = "",
    token: str | bool | None = None,
) -> CommitInfo:
    """Upload a model's folder, in one commit; the repository and the branch are made where they are missing.

    Weights (safetensors only), configs, tokenizer, record, card and pictures go, and nothing else, whatever lies in
    the folder. The card is written anew from `results.json`, to name the repository. Weights and configs of an
    earlier push that the folder has not are deleted by the same commit; other files of the repository stay.

    Args:
        folder: of a run, of `save_pretrained` or [`~hf_xalign.modeling.sentence_export.save_sentence_transformer`].
        repo_id: `owner/name`, or `name` for one of your own.
        private: whether it is to be seen by its owner alone; by default as the owner's settings say.
        revision: the branch.
        base_model: Hub id of the model that this one was made from, where the folder knows it by a local path: the
            card, the record and an adapter's config then name it.
        message: of the commit.
        path_in_repo: folder of the repository, for checkpoints beside the model.
        token: of the Hub; by default the one that you logged in with (`hf auth login`, or HF_TOKEN).

    Raises:
        InputError: the folder has no whole model, was made from one that is not on the Hub, or holds a token (found
            before anything is sent); or a public repository was to be private.
        HfHubHTTPError, RuntimeError (of an upload, from what stopped it): the Hub refused something, or stayed out of
            order through the client's five tries. Nothing was committed, unless the answer to the commit itself was
            lost; to push again is right in both cases.
    """
    check_repo_id(repo_id)
    contents = Contents(folder, base_model=base_model)
    api = HfApi(token=token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision not in (None, "main"):
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    there = api.model_info(repo_id, revision=revision)
    if private and not there.private:
        raise InputError(
            f"private=True: {repo_id} is there already, and public; change that in its settings or name another"
        )
    place = f"{path_in_repo.strip('/')}/" if path_in_repo else ""
    added = contents.read(repo_id, revision)
    old = (file.rfilename for file in there.siblings or [] if file.rfilename.startswith(place))
    gone = [path for path in old if path.removeprefix(place) not in added and decides_model(path.removeprefix(place))]
    return api.create_commit(
        repo_id,
        [
            *(CommitOperationAdd(f"{place}{path}", content) for path, content in added.items()),
            *(CommitOperationDelete(path) for path in gone),
        ],
        commit_message=message,
        revision=revision,
    )


def check_repo_id(repo_id: str) -> None:
    """Require a repository name that the Hub takes.

    Raises:
        InputError: it is none.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"repo_id={repo_id}: {str(error).splitlines()[0]}") from error
