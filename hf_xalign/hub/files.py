"""What of a model's folder goes to the Hub, and in which words: a list of what may, never of what may not.

Nothing pickled is on the list (`training_args.bin`, the optimizer's state, `.bin` weights), so none can be pushed; the
state to resume training from stays home for this reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, get_token
from safetensors import SafetensorError, safe_open

from hf_xalign.data.embedded import encoder as embedded
from hf_xalign.errors import InputError
from hf_xalign.model_cards import render_card
from hf_xalign.modeling.xalign.insertion import BASE_IN_FOLDER
from hf_xalign.record import FILENAME, hub_id, read_record

CARD = "README.md"
ADAPTER = "adapter_config.json"
# What a record calls the base of a model that was pre-trained from random weights.
_FROM_NOTHING = "new"
# What decides which model is loaded. Of these the repository is to hold what the folder holds and nothing else.
_MODEL = (
    r"config\.json|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
    r"|adapter_config\.json|adapter_model\.safetensors"
    r"|modules\.json|config_sentence_transformers\.json|sentence_bert_config\.json|\d_\w+/config\.json"
    r"|maps/[^/]+\.safetensors"
)
_BESIDE = (
    r"tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json"
    r"|vocab\.(txt|json)|merges\.txt|(sentencepiece\.bpe|spiece|spm|tokenizer)\.model"
    r"|token_entries\.json|derived_language\.json|results\.json|training_args\.json|README\.md"
    r"|((?!checkpoint-|[._])[^/]+/)?[^/]+\.(png|svg)"
)
_WEIGHTS = re.compile(r"(model(-\d+-of-\d+)?|adapter_model|maps/[^/]+)\.safetensors")
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")


def decides_model(path: str) -> bool:
    """Whether a file of this name, relative to the folder, takes part in what is loaded."""
    return bool(re.fullmatch(_MODEL, path))


def list_files(folder: str | os.PathLike) -> dict[str, Path]:
    """The files of a folder that may be pushed, by their path in it, with `/`; sorted.

    Raises:
        InputError: it is no folder, has no weights, lacks a part of them, or has some that are not safetensors.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; name the one that the model was saved to")
    names = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {name: path for name, path in names.items() if re.fullmatch(f"{_MODEL}|{_BESIDE}", name)}
    weights = [name for name in files if _WEIGHTS.fullmatch(name)]
    if not weights:
        raise InputError(
            f"{folder} holds no model: no model.safetensors, adapter_model.safetensors or maps/*.safetensors (pickled "
            "weights, .bin and .pt, are not pushed: load them once and save them by save_pretrained)"
        )
    index = files.get("model.safetensors.index.json")
    if index is not None:
        parts = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        if gone := sorted(parts - set(files)):
            raise InputError(f"{folder}/{gone[0]} is missing, which {index.name} names: the model is not whole")
    for name in weights:
        try:
            with safe_open(files[name], "pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{folder}/{name} is no whole safetensors file ({error}): save the model again"
            ) from error
    return files


class Contents:
    """The files of a folder as they are pushed.

    Card, record and the adapter's config are written anew where the folder's own would be wrong elsewhere: the card
    names the repository, the record and the adapter the base model's Hub id. The folder is left as it is.

    Args:
        folder: of the model.
        base_model: Hub id of the base model, for a folder that knows it by a local path.

    Raises:
        InputError: the folder holds no whole model; its base model is a local folder and `base_model` was not given; a
            file holds a token.
    """

    def __init__(self, folder: str | os.PathLike, *, base_model: str | None = None):
        self.folder = Path(folder)
        self.files = list_files(folder)
        if base_model is not None and hub_id(base_model) is None:
            raise InputError(f"base_model={base_model}: give an id on the Hub (owner/name), not a path")
        self._base = base_model
        self._record = _pushed_record(read_record(folder), base_model) if FILENAME in self.files else None
        self._adapter = self._read_adapter()
        self._card = self._read_card()
        self._check_base()
        # With a stand-in for the repository's id, which is not known for certain before it was made.
        _check_tokens(self.folder, self.read("someone/model"))

    def read(self, repo_id: str, revision: str | None = None) -> dict[str, bytes | Path]:
        """Content, or the file that holds it, by path in the repository.

        Args:
            repo_id: with its owner.
            revision: the branch that they go to, if it is not the main one.
        """
        contents: dict[str, bytes | Path] = dict(self.files)
        if self._record is not None:
            contents[FILENAME] = _json(self._record | {"saved_to": repo_id})
            contents[CARD] = render_card(self._record, repo_id=repo_id, pictures=self.files).encode()
        elif self._card is not None:
            contents[CARD] = self._card.encode()
        if self._adapter is not None:
            adapter = dict(self._adapter)
            if adapter["base_model_name_or_path"] == BASE_IN_FOLDER:
                # From the Hub transformers loads the base that the adapter names: here the repository itself.
                adapter |= {"base_model_name_or_path": repo_id, "revision": revision}
            contents[ADAPTER] = _json(adapter)
        return dict(sorted(contents.items()))

    def _read_adapter(self) -> dict[str, Any] | None:
        """The adapter's config, with a base that other machines can find."""
        if ADAPTER not in self.files:
            return None
        config = json.loads(self.files[ADAPTER].read_text("utf-8"))
        base = config.get("base_model_name_or_path")
        return config if base == BASE_IN_FOLDER else config | {"base_model_name_or_path": self._abroad(base)}

    def _read_card(self) -> str | None:
        """The folder's own card, where no record says what is to be in it; PEFT writes one of local paths."""
        if CARD not in self.files:
            return None
        text = self.files[CARD].read_text("utf-8")
        for base in _named_bases(text):
            text = text.replace(base, self._abroad(base))
        return text

    def _abroad(self, base: str) -> str:
        return abroad(base) if self._base is None else self._base

    def _check_base(self) -> None:
        """That nobody who loads the model, or reads of it, is sent to a folder of this machine."""
        if self._adapter is not None:
            base = self._adapter.get("base_model_name_or_path")
            if is_local(base):
                raise InputError(_refusal(f"{self.folder}/{ADAPTER}: base_model_name_or_path", base))
        if self._record is None:
            for base in _named_bases(self._card or ""):
                if is_local(base):
                    raise InputError(_refusal(f"{self.folder}/{CARD}: base_model", base))
        else:
            check_recorded_base(self._record, f"{self.folder}/{FILENAME}: base_model")


def check_recorded_base(record: Mapping[str, Any], where: str) -> None:
    """Refuse to push a run whose base model is a folder of this machine, which no card could send others to.

    Args:
        record: of the run.
        where: the head of the message.

    Raises:
        InputError: so it is; the message says how to name the base model.
    """
    base = record["base_model"]
    # As it was when the run began: a relative path that is no folder here and now may look like an id.
    if base["hub_id"] is None and abroad(base["name"]) not in (embedded.EMBEDDED, embedded.FOLDER, _FROM_NOTHING):
        raise InputError(_refusal(where, base["name"]))


def abroad(base: str) -> str:
    """A base model's name on machines other than this one, where it has one there."""
    # hf_xalign.load knows the embedded encoder's folder by its name, wherever it lies.
    return embedded.FOLDER if base and os.path.basename(base.rstrip("/\\")) == embedded.FOLDER else base


def is_local(base: str | None) -> bool:
    """Whether a base model is to be found on this machine alone, if at all; `base` is as [`abroad`] gives it."""
    return base not in (BASE_IN_FOLDER, embedded.FOLDER) and (not base or hub_id(base) is None)


def _refusal(where: str, base: str | None) -> str:
    return (
        f"{where} is {base}, which is no model of the Hub, so nobody else could load this model or trace where it "
        "comes from: name the base by its Hub id, base_model=OWNER/NAME (hf-xalign push --base_model), and push it "
        "first where it is your own"
    )


def _named_bases(card: str) -> list[str]:
    """What a card's metadata call its base model; several of a merge."""
    named = ModelCard(card, ignore_metadata_errors=True).data.get("base_model")
    return [named] if isinstance(named, str) else list(named or [])


def _pushed_record(record: Mapping[str, Any], base_model: str | None) -> dict[str, Any]:
    if base_model is None:
        base = {**record["base_model"], "name": abroad(record["base_model"]["name"])}
    else:
        base = {"name": base_model, "hub_id": base_model}
    return {**record, "base_model": base}


def _check_tokens(folder: Path, contents: Mapping[str, bytes | Path]) -> None:
    """That no text among the files holds a Hub token, of whomever or in use here."""
    own = get_token()
    for name, content in contents.items():
        if not name.endswith((".json", ".md", ".txt", ".svg")):
            continue
        text = (content if isinstance(content, bytes) else content.read_bytes()).decode("utf-8", "replace")
        if _TOKEN.search(text) or (own and own in text):
            raise InputError(f"{folder}/{name} holds a Hub token: take it out, and revoke it in your Hub settings")


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
