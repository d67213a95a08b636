"""An encoder as a folder that the sentence-transformers package loads, written without that package.

The folder is an ordinary checkpoint as well (`AutoModel.from_pretrained`). Names and keys are those of the package's
versions 2 to 5, which 6 reads too, as it does every folder of before; the ones that 6 itself writes are not known to
the older.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign._version import __version__
from hf_xalign.data.limits import position_limit
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import carried_weights, save_encoder
from hf_xalign.modeling.xalign.tuner import LanguageAware, backbone_of, find_top

_CONFIG = "config_sentence_transformers.json"


def save_sentence_transformer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    *,
    pooling: Literal["mean", "cls"] = "mean",
    normalize: bool = True,
    max_length: int | None = None,
    card: str | None = None,
) -> Path:
    """Write an encoder and how its vectors are pooled as `SentenceTransformer(folder)` loads them.

    Vectors equal those of [`~hf_xalign.evaluation.vectors.encode_sentences`] (divided by their length with
    `normalize`). The encoder's own pooler, which it came with and which takes no part, is put back, as it would
    otherwise be drawn at random.

    The folder is written beside its place and renamed, so it is never seen half-written. An earlier export there is
    replaced; anything else is left alone.

    Args:
        model: an encoder without adapters, maps or a task head, in the precision it is to be saved in.
        tokenizer: its tokenizer.
        folder: where to; made when missing.
        pooling: `mean` over all tokens (special ones too), or `cls`, the first token.
        normalize: vectors of length 1.
        max_length: tokens a text is cut at; default what tokenizer and encoder take.
        card: text of the model card, `README.md`.

    Returns:
        The folder.

    Raises:
        InputError: the model is one that transformers alone cannot load, pooling or length is none, or `folder` holds
            something else than an earlier export.
    """
    folder = Path(folder)
    _check_plain(model)
    if pooling not in ("mean", "cls"):
        raise InputError(f"pooling={pooling!r}: a sentence is pooled by mean or cls")
    limit = min(tokenizer.model_max_length, position_limit(model.config))
    length = limit if max_length is None else max_length
    if not 1 <= length <= limit:
        raise InputError(f"max_length={length}: this encoder takes texts of 1 to {limit} tokens")
    _check_free(folder)

    made = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    try:
        _save_encoder(model, made)
        tokenizer.save_pretrained(made)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] * normalize)]
        _write_json(
            made / "modules.json",
            [
                {"idx": k, "name": str(k), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for k, (path, kind) in enumerate(modules)
            ],
        )
        _write_json(made / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
        _write_json(
            made / "1_Pooling" / "config.json",
            {
                "word_embedding_dimension": model.config.hidden_size,
                "pooling_mode_cls_token": pooling == "cls",
                "pooling_mode_mean_tokens": pooling == "mean",
                "pooling_mode_max_tokens": False,
                "pooling_mode_mean_sqrt_len_tokens": False,
                "pooling_mode_weightedmean_tokens": False,
                "pooling_mode_lasttoken": False,
                "include_prompt": True,
            },
        )
        if normalize:
            _write_json(made / "2_Normalize" / "config.json", {})
        if card is not None:
            (made / "README.md").write_text(card, encoding="utf-8")
        files = sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file())
        _write_json(
            made / _CONFIG,
            {
                "__version__": {
                    "hf_xalign": __version__,
                    "transformers": transformers.__version__,
                    "pytorch": torch.__version__,
                },
                "prompts": {},
                "default_prompt_name": None,
                "similarity_fn_name": "cosine",
                "hf_xalign_files": [*files, _CONFIG],
            },
        )
        _put_in_place(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _check_plain(model: PreTrainedModel) -> None:
    """That transformers alone can load what is saved of this model."""
    if any(isinstance(module, LanguageAware) for module in model.modules()):
        raise InputError(
            "this encoder has a map for each language, and sentence-transformers does not say which one a text is "
            "in; export the encoder inside (model.unmapped) for the unmapped vectors"
        )
    if find_top(model) is not None:
        raise InputError(
            "this encoder has modules that only hf_xalign loads, and no weights of a bare encoder are equal to them: "
            "use hf_xalign.load and encode_sentences, or export an encoder that was trained itself"
        )
    if isinstance(model, PeftModel) or any(isinstance(module, BaseTunerLayer) for module in model.modules()):
        raise InputError(
            "this encoder has adapters: fold them into its weights by hf_xalign.modeling.merge, where that can be "
            "done (LoRA), and export what it returns"
        )
    if backbone_of(model) is not model:
        raise InputError(
            f"{type(model).__name__} has a task head: export its encoder, model.{model.base_model_prefix}, or load "
            "the folder by AutoModel or hf_xalign.load"
        )


def _check_free(folder: Path) -> None:
    """That nothing is lost by replacing the folder."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder")
    try:
        known = set(json.loads((folder / _CONFIG).read_text(encoding="utf-8"))["hf_xalign_files"])
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    strange = [name for name in found if name not in known]
    if strange:
        raise InputError(f"{folder} holds {strange[0]}, which is of no earlier export: name another folder")


def _save_encoder(model: PreTrainedModel, folder: Path) -> None:
    """The encoder under its bare names, with what `AutoModel` has beyond it (a pooler), and without heads."""
    prefix, carried = carried_weights(model)
    with torch.device("meta"):
        whole = set(AutoModel.from_config(copy.deepcopy(model.config)).state_dict())
    bare = {name.removeprefix(prefix): tensor for name, tensor in carried.items()}
    save_encoder(model, folder, carried={name: tensor for name, tensor in bare.items() if name in whole})
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]  # the checkpoint's own may name a head that is not here
    config.save_pretrained(folder)


def _put_in_place(made: Path, folder: Path) -> None:
    old = made.with_name(made.name + "-old")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, old)
    try:
        os.rename(made, folder)
    except OSError:
        if old.exists():
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
