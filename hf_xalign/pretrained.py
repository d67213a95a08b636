"""The one door to models: a folder is checked before anything is allocated, and no code of a repository runs."""

from __future__ import annotations

import ast
import json
import logging
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from hf_xalign.builtin import find_folder
from hf_xalign.cache import check_regular, read_json
from hf_xalign.checks import show
from hf_xalign.errors import InputError, content_errors
from hf_xalign.record import check_run

_LONGEST_JSON = 16 << 20  # bytes of a config or index
_IN_LAYER = re.compile(r"\.(\d+)\.")
# What a module saved with a task model names as its base. A folder's path would be another machine's, and the base on
# the Hub would be loaded in place of the fine-tuned model. This is neither, and the error that prints it explains it.
BASE_IN_FOLDER = "(the model in this folder: download it, or load it by hf_xalign.load)"


def check_model_folder(folder: str | os.PathLike) -> None:
    """Check what a model's folder says before anything is loaded from it. Imports no torch and takes milliseconds.

    Links and indices may not leave the folder; sizes in config.json and adapter_config.json must be whole numbers that
    the shapes in the weights' headers have, and fit the memory.

    Args:
        folder: folder of a model, an adapter, a tokenizer or a run; other folders pass.

    Raises:
        InputError: the file and field that cannot be right, and what to do.
    """
    folder = Path(folder)
    check_files(folder)
    config, adapter = _read_object(folder / "config.json"), _read_object(folder / "adapter_config.json")
    shapes, adapter_shapes = _weights(folder, "model"), _weights(folder, "adapter_model")
    if shapes and not (config or adapter):
        raise InputError(f"{folder} has weights, and no config.json. Save or download the whole model again.")
    if config:
        _refuse(f"{folder}/config.json", _config_faults(config, shapes))
    if adapter:
        _refuse(f"{folder}/adapter_config.json", _adapter_faults(adapter, adapter_shapes))


def _refuse(path: str | os.PathLike, faults: Iterator[str]) -> None:
    """Raise an InputError that names a file and the first of its faults, if there are any."""
    if fault := next(faults, None):
        raise InputError(f"{path}: {fault}")


def check_files(folder: Path) -> None:
    """Refuse a folder in which a symbolic link leads out of it, or with a pipe, which reading may never end.

    Links to blobs of the Hub's cache stay inside.
    """
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        if path.is_symlink() and not _is_inside(path, folder):
            raise InputError(f"{path} is a link that leaves the folder. Remove it, or put the file in its place.")
        if not path.is_dir():
            check_regular(path)


def _is_inside(path: Path, folder: Path) -> bool:
    """Return True if a path, with its links followed, is below a model's folder."""
    root = folder.resolve()
    if root.parent.name == "snapshots" and root.parent.parent.name.startswith("models--"):
        root = root.parent.parent
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link to itself
        return False


def _read_object(path: Path) -> dict[str, Any]:
    """Return the object in a small JSON file; an empty one if there is no file."""
    if not path.exists():
        return {}
    if not path.is_file() or path.stat().st_size > _LONGEST_JSON:
        raise InputError(f"{path} is not a file of JSON, or a very large one. Save the model again.")
    content = read_json(path, remedy="Save the model again.")
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: no JSON object with fields. Save the model again.")
    return content


def _check_tokenizer(folder: Path) -> None:
    """Check a tokenizer's files; tokenizer.json is parsed, and if it is short, loaded: a long one takes a second."""
    settings = {name: folder / f"{name}.json" for name in ("tokenizer_config", "special_tokens_map", "added_tokens")}
    contents = {name: read_json(path, remedy="Save it again.") for name, path in settings.items() if path.exists()}
    for name, content in contents.items():
        if not isinstance(content, dict):
            raise InputError(f"{settings[name]}: no JSON object. Save the tokenizer again.")
    for name, value in contents.get("tokenizer_config", {}).items():
        valid, expected = True, ""
        if name == "tokenizer_class":
            valid, expected = isinstance(value, (str, type(None))), "a name"
        elif name == "model_max_length":
            valid, expected = isinstance(value, (int, float, type(None))) and (value is None or value > 0), "above 0"
        elif name == "padding_side":
            valid, expected = value in ("left", "right"), "left or right"
        elif name == "added_tokens_decoder":
            valid = isinstance(value, dict) and all(k.isdecimal() and isinstance(v, dict) for k, v in value.items())
            expected = "an object of tokens by their number"
        elif name.endswith("_token") and not name.startswith("add_"):
            valid, expected = isinstance(value, (str, dict, bool, type(None))), "a token"
            if name == "pad_token" and value is None:
                valid, expected = False, "a token, which shorter sentences are filled up with"
        if not valid:
            raise InputError(f"{settings['tokenizer_config']}: {name} is {value!r}; it is {expected}. Correct it.")
    path = folder / "tokenizer.json"
    if path.exists():
        try:
            content = json.loads(path.read_text("utf-8"))
            model_types = ("BPE", "Unigram", "WordLevel", "WordPiece")
            vocabulary = content["model"]["vocab"]
            highest = max(vocabulary.values()) if isinstance(vocabulary, dict) else len(vocabulary) - 1
            added = (token["id"] for token in content.get("added_tokens") or () if not token["special"])
            highest = max([highest, *added])
            complete = content["model"].get("type") in (None, *model_types) and highest >= 0
            if complete and path.stat().st_size < 1 << 20:
                from tokenizers import Tokenizer

                Tokenizer.from_file(str(path))
        except Exception:  # tokenizers raises bare exceptions
            complete = False
        if not complete:
            raise InputError(f"{path} is no whole tokenizer. Save or download the tokenizer again.")
        config = _read_object(folder / "config.json")
        if isinstance(rows := config.get("vocab_size"), int) and highest >= rows:
            raise InputError(f"{path} has ids up to {highest:,}, and {folder}/config.json a vocab_size of {rows:,}.")
        return
    names = [path.name for path in folder.iterdir()]
    for path in (folder / name for name in names if name in ("vocab.txt", "vocab.json")):
        with content_errors(path, "no vocabulary", "Save or download the tokenizer again."):
            path.read_text("utf-8") if path.suffix == ".txt" else read_json(path)
    tokenizer_class = contents.get("tokenizer_config", {}).get("tokenizer_class")
    vocabulary_file = re.compile(r"vocab\.(txt|json)|\S+\.model|tekken\.json")
    without_files = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
    if not any(map(vocabulary_file.fullmatch, names)) and tokenizer_class not in without_files:
        raise InputError(f"{folder} has no tokenizer's files: save the model's tokenizer in the same folder.")


def _weights(folder: Path, stem: str) -> dict[str, list[int]]:
    """Return {name: shape} of the tensors in `stem`.safetensors, or in the files that its index names."""
    index = folder / f"{stem}.safetensors.index.json"
    files = [folder / f"{stem}.safetensors"]
    if index.exists():
        names = _read_object(index).get("weight_map")
        if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
            raise InputError(f"{index}: weight_map is no object of file names. Save the model again.")
        files = files if files[0].exists() else [folder / name for name in sorted(set(names.values()))]
        if outside := next((file for file in files if file.parent != folder or file.name == ".."), None):
            raise InputError(f"{index}: weight_map names {show(outside)}, which is not a file of this folder.")
        if gone := next((file for file in files if not os.path.isfile(file)), None):  # also of a name too long for one
            raise InputError(f"{show(gone)} is missing, but {index.name} lists it. Save or download the model again.")
    return {name: entry["shape"] for file in files if file.exists() for name, entry in _header(file)[0].items()}


# Integer of the bits of a number of each dtype, and those bits that are all set in NaN and infinity.
_EXPONENT = {
    "F64": ("<u8", 0x7FF0_0000_0000_0000), "F32": ("<u4", 0x7F80_0000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)
}  # fmt: skip


def check_finite(path: Path) -> None:
    """Refuse a safetensors file with a number that is NaN or infinite. Imports no torch, and holds 4 MiB at a time.

    Raises:
        InputError: the tensor, or a file that is no whole safetensors file.
    """
    import numpy as np

    entries, start = _header(path)
    with path.open("rb") as file:
        for name, entry in entries.items():
            integer_type, bits = _EXPONENT.get(entry["dtype"], ("", 0))
            file.seek(start + entry["data_offsets"][0])
            remaining = math.prod(entry["shape"]) if integer_type else 0
            while remaining > 0:
                values = np.fromfile(file, integer_type, min(remaining, (4 << 20) // np.dtype(integer_type).itemsize))
                remaining -= max(len(values), 1)
                if (values & bits == bits).any():
                    raise InputError(nonfinite(path, name))


def nonfinite(where: str | os.PathLike, name: str) -> str:
    """Return what a refusal of NaN or infinite weights says."""
    return (
        f"{where}: {name} holds NaN or infinite numbers, so the model computes none. Take an earlier checkpoint; "
        "export and push also have allow_nonfinite."
    )


def _header(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Return {name: entry} of a safetensors file, whose tensors fill it one after another, and where they begin."""
    damaged = InputError(f"{path} is no whole safetensors file. Save or download the model again.")
    if not path.is_file():
        raise damaged
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(size - 8, 8 * _LONGEST_JSON):
            raise damaged
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {})
            position, complete = 0, _fits(ast.parse("dict[str, str]", mode="eval").body, metadata)
            for entry in sorted(header.values(), key=lambda entry: entry["data_offsets"]):
                start, end = entry["data_offsets"]
                bits = int(re.findall(r"\d+", entry["dtype"].replace("BOOL", "8"))[0])
                if not all(isinstance(n, int) and n >= 0 for n in entry["shape"]):  # a product with text repeats it
                    raise damaged
                complete &= start == position and 8 * (end - start) == bits * math.prod(entry["shape"])
                position = end
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise damaged from error
    if not complete or position != size - 8 - length:
        raise damaged
    return header, 8 + length


# {field: part of the name of the table whose rows it counts}
_TABLES = {
    "max_position_embeddings": "position_embeddings.w",
    "type_vocab_size": "token_type_embeddings.w",
    "vocab_size": "word_embeddings.w",
    "intermediate_size": "intermediate.dense.w",
}


def _config_faults(config: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> Iterator[str]:
    """Yield what is wrong in the config of a model whose weights have these shapes."""
    model_types = {*_strings("transformers", "models/auto/*.py"), "xalign-bilstm-crf", "xalign-mapped"}
    model_type = config.get("model_type")
    if ("model_type" in config or shapes) and not (isinstance(model_type, str) and model_type in model_types):
        yield f"model_type is {model_type!r}, which the installed transformers does not know."
    if shapes:  # a field that is left out has its default
        for name, declared in _declared_config(model_type).items():
            if name in ("hidden_size", "num_hidden_layers", "vocab_size") and declared.value:
                config = {name: ast.literal_eval(declared.value), **config}
    dims = {n for shape in shapes.values() for n in shape}
    for path, name, value, sizes in _fields(config):
        rows = {shape[0] for tensor, shape in shapes.items() if _TABLES.get(name, "\0") in tensor and shape}
        if _SIZE.fullmatch(name):
            yield from _size_faults(name, value, path, set() if rows else dims)
        yield from _form_faults(name, value, path, str(sizes.get("model_type")), sizes.get("vocab_size"))
        if not _SIZE.fullmatch(name) or not isinstance(value, int):  # null, or one for each layer
            continue
        # Some families have two positions more than they say.
        if rows and value not in rows | ({n - 2 for n in rows} if name == "max_position_embeddings" else set()):
            yield f"{path} is {value:,}, and the weights have {max(rows):,}. Correct it."
        shared = "num_hidden_groups" in sizes  # ALBERT's layers share weights
        counts_layers = name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
        if counts_layers and shapes and not shared and value > (layers := _layers(shapes)):
            yield f"{path} is {value:,}, and the weights have {layers:,}. Correct it."
        if sizes is config and name in ("hidden_size", "d_model", "n_embd", "dim"):
            matrices = [shape for tensor, shape in shapes.items() if _IN_LAYER.search(tensor) and len(shape) == 2]
            if 2 * sum(value in shape for shape in matrices) < len(matrices):
                yield f"{path} is {value:,}, which most matrices of the weights do not have. Correct it."
        heads = sizes.get("num_attention_heads") if name == "hidden_size" else None
        if isinstance(heads, int) and heads and not {"head_dim", "d_kv"} & sizes.keys() and value % heads:
            yield f"{path} is {value:,}, which {heads:,} attention heads do not divide. Correct one of them."
    yield from _memory_faults(config)
    if shapes:
        yield from _name_faults(str(model_type), shapes)


def _name_faults(model_type: str, tensors: Iterable[str]) -> Iterator[str]:
    """Refuse weights of which most have names that the source of such a model does not have."""
    source_names = _strings("transformers", f"models/{model_type.replace('-', '_')}/modeling_*.py", r"self\.(\w+)")
    if source_names and model_type not in _strings("transformers", "conversion_mapping.py"):
        source_names |= {"weight", "bias", "gamma", "beta"}
        fits = [all(part in source_names or part.isdigit() for part in name.split(".")) for name in tensors]
        if 2 * sum(fits) < len(fits):
            yield f"model_type is {model_type!r}, and the weights' names are not those of such a model."


# Fields that change how a model is built or what it returns, with the values that are read.
_FIXED: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None,),
    "attn_implementation": ("sdpa", "eager"),
    "_attn_implementation": ("sdpa", "eager"),
    "chunk_size_feed_forward": (0,),
    "return_dict": (True,),
}


def _form_faults(name: str, value: Any, path: str, model_type: str, vocabulary: Any) -> Iterator[str]:
    """Check a field that is no size."""
    expected, valid = "", True
    if name in ("id2label", "label2id", "auto_map"):
        valid, expected = isinstance(value, dict), "an object"
    elif name in ("dtype", "torch_dtype"):
        dtypes = r"(?:torch\.)?(?:auto|half|float|double|bfloat16|float(?:8\w*|16|32|64))"
        valid = isinstance(value, str) and bool(re.fullmatch(dtypes, value))
        expected = "the name of a floating-point dtype"
    elif name == "pad_token_id":
        rows = vocabulary if isinstance(vocabulary, int) and vocabulary > 0 else math.inf
        valid = isinstance(value, int) and -rows <= value < rows
        expected = "a whole number below vocab_size"
    elif "dropout" in name or name.endswith("_eps"):
        valid = not isinstance(value, str) and (not isinstance(value, (int, float)) or 0 <= value <= 1)
        expected = "a number from 0 to 1"
    elif name in ("hidden_act", "hidden_activation", "activation_function"):
        # A model may know more of them than transformers has in one place.
        files = ("activations.py", f"models/{model_type.replace('-', '_')}/*.py")
        valid = not isinstance(value, str) or any(value in _strings("transformers", file) for file in files)
        expected = "an activation of transformers"
    elif name in _FIXED:
        valid, expected = value in _FIXED[name], f"{_FIXED[name][0]!r}, as others are not read"
    if value is None or valid:
        valid, expected = _is_declared(_declared_config(model_type).get(name), value)
    if not valid:
        yield f"{path} is {value!r}; it is {expected}. Correct it."


@cache
def _declared(package: str, files: str, mark: str) -> dict[str, ast.AnnAssign]:
    """Return the fields of the class whose source in a package, which is not imported, has a mark."""
    spec = find_spec(package)
    for path in Path(spec.origin).parent.glob(files) if spec and spec.origin else ():
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body if mark in text else ():
            if isinstance(node, ast.ClassDef) and mark in (ast.get_source_segment(text, node) or ""):
                return {ast.unparse(field.target): field for field in node.body if isinstance(field, ast.AnnAssign)}
    return {}


def _declared_config(model_type: Any) -> dict[str, ast.AnnAssign]:
    """Return the fields of a kind of models' config in transformers."""
    common = _declared("transformers", "configuration_utils.py", "class PreTrainedConfig")
    return {**common, **_declared("transformers", "models/*/configuration_*.py", f'model_type = "{model_type}"')}


def _is_declared(field: ast.AnnAssign | None, value: Any) -> tuple[bool, str]:
    """Return whether a value of JSON is of a field's type, and the type in words; an unknown field has any value."""
    if field is None:
        return True, ""
    return _fits(field.annotation, value), f"of type {ast.unparse(field.annotation)}"


_PLAIN = {"int": int, "float": (int, float), "str": str, "bool": bool, "dict": dict, "list": list, "set": list}


def _fits(annotation: ast.expr, value: Any) -> bool:
    """Return False if a value of JSON is not of an annotation's type; a type that is not plain has any value."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _fits(left, value) or _fits(right, value)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return value is None or _fits(inner, value)
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=kinds)):
            return any(_fits(kind, value) for kind in kinds)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            kinds = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return value in [kind.value for kind in kinds if isinstance(kind, ast.Constant)]
        case ast.Subscript(value=ast.Name(id="list" | "set" as kind), slice=inner):
            return isinstance(value, list) and all(_fits(inner, one) for one in value)
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[key, inner])):
            text = key.id == "str" if isinstance(key, ast.Name) else True  # JSON has no other keys than text
            fits = isinstance(value, dict) and all(_fits(inner, one) for one in value.values())
            return fits and (text or all(re.fullmatch(r"-?\d+", one) for one in value))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=kinds)):
            fits = isinstance(value, list) and len(value) == len(kinds)
            return fits and all(_fits(kind, one) for kind, one in zip(kinds, value, strict=True))
        case ast.Name(id=kind) if kind.endswith("Config"):
            return isinstance(value, dict)
        case ast.Constant(value=None):
            return value is None
        case ast.Name(id=kind) if kind in _PLAIN:
            plain = isinstance(value, cast(Any, _PLAIN[kind])) and (kind == "bool" or not isinstance(value, bool))
            return plain and not (isinstance(value, float) and not math.isfinite(value))
    return True


# Part of the name of a tensor that an adapter has: by its kind, and by a field that is set.
_NEEDED_BY_KIND = {"ADALORA": "lora_E", "PREFIX_TUNING": "prompt_embeddings"}
_NEEDED_BY_FIELD = {
    "use_dora": "lora_magnitude_vector",
    "lora_bias": "lora_B.bias",
    "trainable_token_indices": "trainable_tokens_delta",
}
# Kinds that put vectors of their own between the words, or want more than a sentence.
_NO_WORD_VECTORS = ("PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING", "CPT", "ADAPTION_PROMPT", "POLY")


def _adapter_faults(adapter: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> Iterator[str]:
    """Yield what is wrong in the config of an adapter whose weights have these shapes."""
    peft_type = adapter.get("peft_type")
    peft_names = {*_strings("peft", "utils/peft_types.py"), "XALIGN"}
    if not isinstance(peft_type, str) or peft_type not in peft_names:
        yield f"peft_type is {peft_type!r}, which the installed PEFT does not know ({len(peft_names)} kinds)."
        return
    if peft_type in _NO_WORD_VECTORS:
        yield f"peft_type is {peft_type}, with which an encoder gives no vectors of words alone."
    sources = ("peft", "tuners/*/config.py", f"self.peft_type = PeftType.{peft_type}\n")
    if peft_type == "XALIGN":
        sources = ("hf_xalign", "modeling/xalign/config.py", "XAlignPeftType.XALIGN")
    common = (_declared("peft", "config.py", f"class {name}") for name in ("PeftConfigMixin", "PeftConfig("))
    declared = {**next(common), **next(common), **_declared(*sources)}
    dims = {n for shape in shapes.values() for n in shape}
    readable: dict[str, tuple[Any, ...]] = {"megatron_config": (None,), "pooling": ("first", "last", "mean")}
    for name, value in adapter.items():
        if value not in readable.get(name, (value,)):
            allowed = ", ".join(map(str, readable[name]))
            yield f"{name} is {value!r}; what is read is {allowed}. Correct it."
        if name in ("r", "reduction_factor", "num_heads", "feedforward_size") and peft_type != "OFT":
            yield from _size_faults(name, value, name, set())
            if name == "r" and dims and value > max(dims):
                yield f"r is {value:,}, and the largest size of the weights is {max(dims):,}."
        elif ("dropout" in name or name.endswith("alpha")) and (
            not isinstance(value, (int, float))
            or not math.isfinite(value)
            or ("dropout" in name and not 0 <= value <= 1)
        ):
            yield f"{name} is {value!r}; it is a number. Correct it."
        valid, expected = _is_declared(declared.get(name), value)
        if not (valid or name.endswith("alpha")):
            yield f"{name} is {value!r}; it is {expected}. Correct it."
    if not isinstance(base := (adapter.get("auto_mapping") or {}).get("base_model_class"), (str, type(None))):
        yield f"auto_mapping has the base_model_class {base!r}; it is a name. Correct it."
    if (task := adapter.get("task_type")) is not None and task not in peft_names:
        yield f"task_type is {task!r}, which the installed PEFT does not know."
    tables = ("rank_pattern", "alpha_pattern")  # objects whose keys are patterns
    for name in tables:
        table, kinds = adapter.get(name) or {}, int if name == "rank_pattern" else (int, float)
        if not all(isinstance(value, kinds) and 0 < value < 1 << 20 for value in table.values()):
            yield f"{name} is {table!r}; it has positive numbers for patterns. Correct it."
    patterns = [adapter.get(name) for name in ("target_modules", "exclude_modules", "layers_pattern")]
    patterns += [pattern for name in tables for pattern in adapter.get(name) or ()]
    for pattern in patterns:
        if isinstance(pattern, str) and not re.fullmatch(r"[\w.-]*", pattern):
            yield from _regex_faults(pattern, sorted(shapes))
    prefix = _strings("peft", f"tuners/{peft_type.lower()}/model.py", r'^    prefix: str = "(\w+)"')
    head = {"SEQ_CLS": r"classifier|score", "TOKEN_CLS": r"classifier|score", "QUESTION_ANS": "qa_outputs"}
    needed = [*prefix, _NEEDED_BY_KIND.get(peft_type), head.get(str(adapter.get("task_type")))]
    needed += [fragment for field, fragment in _NEEDED_BY_FIELD.items() if adapter.get(field)]
    needed += [] if peft_type in _NEEDED_BY_KIND else ["^base_model"]
    for fragment in filter(None, needed if shapes else ()):
        if not any(re.search(fragment, name) for name in shapes):
            lacking = fragment.lstrip("^")
            yield f"such an adapter has weights called {lacking}, and its file has none. Save it again."
    if peft_type == "LORA" and shapes:
        yield from _lora_faults(adapter, shapes)


def _lora_faults(adapter: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> Iterator[str]:
    """Check LoRA's ranks, modules and layers against its weights."""
    modules = {
        name.partition(".lora_")[0].removeprefix("base_model.model."): name for name in shapes if ".lora_" in name
    }
    ranks = {shape[0] for name, shape in shapes.items() if name.endswith(".lora_A.weight")}
    if wrong := ranks - {adapter.get("r", 8), *(adapter.get("rank_pattern") or {}).values()}:
        yield f"r is {adapter.get('r', 8)}, and the weights have {min(wrong)}. Correct it."
    targets, layers, pattern = (adapter.get(k) for k in ("target_modules", "layers_to_transform", "layers_pattern"))
    if pattern and layers is None:
        yield "layers_pattern needs layers_to_transform. Give both, or remove it."
    if layers is not None and isinstance(targets, str):
        yield "layers_to_transform needs a list of target_modules, not a pattern. Correct it."
    layers_with_weights = {int(number) for name in modules for number in _IN_LAYER.findall(name)}
    if missing := {*_listed(layers)} - layers_with_weights:
        yield f"layers_to_transform has {min(missing)}, which has no weights. Correct it."
    if not any(_aims(adapter, name) for name in modules):
        targets = f"{targets} with layers_pattern {pattern}" if pattern else targets
        yield f"target_modules {targets} match no tensor of its weights. Correct it."


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, (int, str)) else value or []


def _aims(adapter: Mapping[str, Any], name: str) -> bool:
    """Return whether an adapter is for a module, by its targets, exclusions and layers, as PEFT reads them."""
    targets, layers = adapter.get("target_modules"), _listed(adapter.get("layers_to_transform"))
    stacks = "|".join(_listed(adapter.get("layers_pattern"))) or r"\w+"
    layer = re.search(rf"(?:^|\.)(?:{stacks})\.(?P<number>\d+)\.", name)
    out = layers and (not layer or int(layer["number"]) not in layers)
    out = out or _names_module(adapter.get("exclude_modules"), name)
    return not out and (targets is None or _names_module(targets, name))


def _names_module(targets: str | list[str] | None, name: str) -> bool:
    """Return whether a pattern, or one of the ends of names, is that of a module, as PEFT reads them."""
    if targets == "all-linear":
        return bool(_IN_LAYER.search(name)) and "relative" not in name
    if isinstance(targets, str):
        return bool(re.fullmatch(targets, name))
    return any(f".{name}".endswith(f".{target}") for target in targets or ())


def check_base(folder: Path, *, finite: bool = True) -> None:
    """Check the encoder that the adapter of a folder names, and that the adapter fits it.

    An encoder in the same folder comes first; of one on the Hub, only its place in the cache is checked.

    Args:
        folder: folder of an adapter; any other passes.
        finite: refuse an encoder with weights that are NaN or infinite.

    Raises:
        InputError: the adapter names no encoder, a folder that is not there, or one that cannot be a model.
    """
    path = folder / "adapter_config.json"
    if adapter := _read_object(path):
        _refuse(path, _base_faults(folder, adapter, finite))


def _base_faults(folder: Path, adapter: Mapping[str, Any], finite: bool) -> Iterator[str]:
    base = str(folder) if (folder / "config.json").exists() else adapter.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        yield (
            f"base_model_name_or_path is {base!r}; it names the encoder that the adapter was trained on. Add it, or "
            "use PeftModel.from_pretrained(encoder, adapter)."
        )
        return
    base_folder = Path(os.path.expanduser(base))
    if os.path.isdir(base_folder):  # False for what can be no name at all
        if not (base_folder / "config.json").exists():
            yield f"base_model_name_or_path is {base}, which holds no encoder. Correct it."
        if base_folder != folder:
            check_model_folder(base_folder)
            check_whole(base_folder, tokenizer=False, finite=finite)
        yield from _on_base_faults(adapter, _weights(folder, "adapter_model"), base_folder)
    elif not find_folder(base):
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", base):
            yield (
                f"base_model_name_or_path is {base}, and there is no such folder. Correct it, or use "
                "PeftModel.from_pretrained(encoder, adapter)."
            )
        from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE

        cached = Path(HF_HUB_CACHE, f"models--{base.replace('/', '--')}")
        if HF_HUB_OFFLINE and not any(cached.glob("snapshots/*/config.json")):
            yield (
                f"base_model_name_or_path {base} is no folder and not in the Hub's cache, and HF_HUB_OFFLINE is set. "
                "Unset it, or name a folder."
            )


def _on_base_faults(adapter: Mapping[str, Any], shapes: Mapping[str, list[int]], folder: Path) -> Iterator[str]:
    """Check that an adapter's layers, tokens and LoRA matrices are those of its encoder."""
    base = {name: shape for name, shape in _weights(folder, "model").items() if "decoder." not in name}
    layers, rows = _layers(base), max((shape[0] for name, shape in base.items() if "embed" in name), default=0)
    tokens = adapter.get("trainable_token_indices") or adapter.get("token_indices") or []
    tokens = [n for ids in tokens.values() for n in ids] if isinstance(tokens, dict) else tokens
    if unknown := next((token for token in tokens if rows and not 0 <= token < rows), None):
        yield f"token {unknown:,} is trained, and the encoder has {rows:,}. Correct it."
    if replicated := adapter.get("layer_replication"):
        if wrong := next((pair for pair in replicated if not 0 <= pair[0] < pair[1] <= layers), None):
            yield f"layer_replication has {wrong}, and the encoder has {layers} layers. Correct it."
        return
    model_type = _read_object(folder / "config.json").get("model_type")
    if model_type in _strings("transformers", "conversion_mapping.py"):  # other names than in the file
        return
    matrix = re.compile(r"(?:.*\.)?((?:\w+\.\d+\.|\w*embed).*)\.weight")
    matrices = {match[1]: shape for name, shape in base.items() if (match := matrix.match(name))}
    adapted_modules = set()
    for name, shape in shapes.items():
        module, lora, side = name.partition(".lora_")
        if lora and (match := matrix.match(f"{module}.weight")):
            adapted_modules.add(match[1])
            length = shape[-1] if "A" in side else shape[0] if "B" in side else None
            if match[1] not in matrices or length not in {None, *matrices[match[1]]}:
                yield f"the encoder has no matrix for {name} {shape}. Name the encoder it is for."
    targets = adapter.get("target_modules")
    for name in matrices if adapted_modules and (targets == "all-linear" or isinstance(targets, list)) else ():
        if len(matrices[name]) > 1 and name not in adapted_modules and _aims(adapter, name):
            yield f"adapter_model.safetensors has no weights for {name}, which target_modules match. Save it again."


def check_whole(folder: Path, *, tokenizer: bool = True, finite: bool = True) -> None:
    """Check that a folder has weights that are read, all `finite`, and a `tokenizer`, and its files are as written.

    Raises:
        InputError: one of them is missing, or a weight is NaN or infinite.
    """
    check_run(folder)
    stem = "model" if (folder / "config.json").exists() else "adapter_model"
    if not (folder / "config.json").exists() and not (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} holds no model: it has no config.json and no adapter_config.json.")
    if not any((folder / f"{stem}.safetensors{ending}").exists() for ending in ("", ".index.json")):
        raise InputError(
            f"{folder} has no {stem}.safetensors, the only kind of weights that is read (others are pickles, which "
            "run code). Load it with its own library once, and save it with save_pretrained."
        )
    if tokenizer:
        _check_tokenizer(folder)
    for path in folder.glob(f"{stem}*.safetensors") if finite else ():
        check_finite(path)


def _fields(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, Any, Mapping[str, Any]]]:
    """Yield (path, name, value, config that it is in) of the fields of a config and of the configs in it."""
    for name, value in config.items():
        if isinstance(value, dict) and name.endswith("config") and name not in _FIXED:
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", name, value, config


# Integers that sizes of tensors follow, and those that are at least 1.
_SIZE = re.compile(r"(?:num|n|d)_\w+|dim|\w+_(?:dim|size|heads|layers)|max_position_embeddings|r|reduction_factor")
_POSITIVE = re.compile(
    r"d_model|dim|n_embd|(?:hidden|vocab|intermediate|embedding|feedforward)_size|d_ff|ffn_dim|hidden_dim|r"
    r"|(?:num_hidden|num|n)_layers?|(?:num_attention|num_key_value|num|n)_heads?|max_position_embeddings"
    r"|reduction_factor|num_labels"
)


def _size_faults(name: str, value: Any, path: str, dims: set[int]) -> Iterator[str]:
    needed = name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "r")
    if not needed and (value is None or isinstance(value, (list, dict, bool))):
        return
    least = 1 if _POSITIVE.fullmatch(name) else 0
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        yield f"{path} is {value!r}; it is a whole number from {least} on. Correct it."
    # Others, such as an attention head's, may be in no shape.
    if dims and name in ("hidden_size", "d_model", "n_embd", "vocab_size") and value not in dims:
        yield f"{path} is {value:,}, and no tensor of the weights has that size. Correct it."
    if value > 1_000_000_000 or (dims and least and value > 64 * max(dims)):
        yield f"{path} is {value:,}, and the largest size of the weights is {max(dims, default=0):,}."


def _layers(shapes: Mapping[str, list[int]]) -> int:
    """Return the number of layers that the names of tensors count."""
    return 1 + max((int(number) for name in shapes for number in re.findall(r"(?<=\.)\d+(?=\.)", name)), default=0)


def _memory_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """Refuse a model whose weights, by the sizes in its config, need more memory than there is."""
    import psutil

    sizes = {name: value for _, name, value, _ in _fields(config) if isinstance(value, int)}
    width, layers = sizes.get("hidden_size", 0), sizes.get("num_hidden_layers", 0)
    layers = 1 if "num_hidden_groups" in sizes else layers
    parameters = layers * width * (4 * width + 2 * sizes.get("intermediate_size", 0))
    needed, memory = 4 * (parameters + sizes.get("vocab_size", 0) * width), psutil.virtual_memory().total
    if needed > 2 * memory:  # a checkpoint in half precision may just fit
        yield f"weights of these sizes take {needed >> 30:,} GiB; this machine has {memory >> 30:,}."


def _regex_faults(pattern: str, names: list[str]) -> Iterator[str]:
    """Refuse a pattern that is none, or whose search does not end: only another process can be stopped."""
    code = "import re, sys; f = re.compile(sys.argv[1]).fullmatch; [f(line.strip()) for line in sys.stdin]"
    command = [sys.executable, "-I", "-S", "-c", code, pattern]
    text = "\n".join(["base_model.model.encoder.layer.0.attention.self.query", *names])
    try:
        subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=1.0)
    except subprocess.TimeoutExpired:
        yield f"matching {pattern[:80]!r} does not end. Name the modules in a list."
    except (subprocess.CalledProcessError, ValueError):
        yield f"{pattern[:80]!r} is no regular expression. Name the modules in a list."


@cache
def _strings(package: str, pattern: str, form: str = r'"([\w.-]+)"') -> frozenset[str]:
    """Return the text constants in files of a package, which is not imported: that takes seconds."""
    spec = find_spec(package)
    files = Path(spec.origin).parent.glob(pattern) if spec and spec.origin else ()
    return frozenset(
        word for path in files for word in re.findall(form, path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def from_pretrained(auto_class: Any, name_or_path: str | os.PathLike, **options: Any) -> Any:
    """Call `auto_class.from_pretrained` without remote code.

    Without `trust_remote_code=False`, transformers asks on the terminal, and a "y" runs code of the folder. Its report
    of unused weights is hidden: a checkpoint's heads are no part of an encoder.

    Raises:
        InputError: config or weights of the wrong form.
        OSError, ValueError: other errors of transformers.
    """
    with ExitStack() as stack, plain_errors(str(name_or_path)):
        for name in ("transformers.modeling_utils", "transformers.distributed.tensor_parallel"):
            stack.enter_context(_errors_alone(logging.getLogger(name)))
        return auto_class.from_pretrained(name_or_path, trust_remote_code=False, **options)


@contextmanager
def plain_errors(name: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of libraries on files of the wrong form, and those of `kinds`, into an InputError with the name."""
    wrong_form = (
        ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, re.error
    )  # fmt: skip
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        error_class = type(error)
        # tokenizers raises bare exceptions, and configs errors of their own kind.
        strange = error_class is Exception or "Validation" in error_class.__name__
        if not (strange or isinstance(error, (*wrong_form, *kinds))) or "OutOfMemory" in error_class.__name__:
            raise
        raise InputError(
            f"{name}: its files make no model that can be loaded. Compare its config with the weights, or save the "
            "model again. --debug shows what the library says."
        ) from error


@contextmanager
def _errors_alone(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_tokenizer(name_or_path: str | os.PathLike, *, revision: str | None = None) -> Any:
    """Load a tokenizer from a folder or the Hub."""
    from transformers import AutoTokenizer

    from hf_xalign.network import TransportError

    try:
        tokenizer = from_pretrained(AutoTokenizer, name_or_path, revision=revision or "main")
    except InputError:
        raise
    except (OSError, ValueError, TransportError) as error:
        reason = "" if Path(name_or_path).is_dir() else f", or is no model at all ({str(error).splitlines()[0]})"
        raise InputError(
            f"{name_or_path} has no tokenizer that can be loaded{reason}. Name another, or save the tokenizer again."
        ) from error
    # Without files, transformers makes one of the model's kind that knows no word.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise InputError(f"{name_or_path} has no tokenizer's files: save the model's tokenizer in the same folder")
    return tokenizer
