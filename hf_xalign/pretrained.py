"""The one door to models: a folder is checked before anything is allocated, and no code of a repository runs."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hf_xalign.cache import read_json
from hf_xalign.errors import InputError

_LONGEST_JSON = 16 << 20  # bytes of a config or index
_REGEX_SECONDS = 2.0
_OWN_TYPES = {"xalign-bilstm-crf", "xalign-mapped"}
_OWN_PEFT_TYPES = {"XALIGN"}

# Integers that sizes of tensors follow; those that are at least 1; those that some tensor has where there are weights
# (others, such as an attention head's, may be in no shape).
_SIZE = re.compile(r"(?:num|n|d)_\w+|dim|\w+_(?:dim|size|heads|layers)|max_position_embeddings|r|reduction_factor")
_POSITIVE = re.compile(
    r"d_model|dim|n_embd|(?:hidden|vocab|intermediate|embedding|feedforward)_size|d_ff|ffn_dim|hidden_dim|r"
    r"|(?:num_hidden|num|n)_layers?|(?:num_attention|num_key_value|num|n)_heads?|max_position_embeddings"
    r"|reduction_factor"
)
_IN_WEIGHTS = re.compile(r"hidden_size|d_model|n_embd|vocab_size")
_LAYERS = re.compile(r"num_hidden_layers|num_layers|n_layers?")
# {field: part of the name of the table whose rows it counts}
_TABLES = {"max_position_embeddings": "position_embeddings.w", "type_vocab_size": "token_type_embeddings.w"}
# Fields of an adapter's config: of patterns or lists of names, and objects whose keys are patterns.
_PATTERNS = ("target_modules", "exclude_modules", "layers_pattern")
_TABLES_OF_PATTERNS = ("rank_pattern", "alpha_pattern")
_DTYPE = re.compile(r"(?:torch\.)?(?:auto|half|float|double|bfloat16|float(?:8\w*|16|32|64))")


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
    check_links(folder)
    config, adapter = _read_object(folder / "config.json"), _read_object(folder / "adapter_config.json")
    shapes, own_shapes = _weights(folder, "model"), _weights(folder, "adapter_model")
    if shapes and not (config or adapter):
        raise InputError(f"{folder} has weights, and no config.json. Save or download the whole model again.")
    if config:
        _check_config(config, shapes, f"{folder}/config.json")
    if adapter:
        _check_adapter(adapter, own_shapes, f"{folder}/adapter_config.json")
    kind = _read_object(folder / "tokenizer_config.json").get("tokenizer_class")
    if not isinstance(kind, (str, type(None))):
        raise InputError(f"{folder}/tokenizer_config.json: tokenizer_class is {kind!r}; it is a name. Correct it.")
    tokenizer = folder / "tokenizer.json"
    if tokenizer.exists() and not _holds_object(tokenizer):
        raise InputError(f"{tokenizer} is no whole tokenizer. Save or download the tokenizer again.")


def check_links(folder: Path) -> None:
    """Refuse a folder in which a symbolic link leads out of it; links to blobs of the Hub's cache stay inside."""
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        if path.is_symlink() and not _is_inside(path, folder):
            raise InputError(f"{path} is a link that leaves the folder. Remove it, or put the file in its place.")


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


def _holds_object(path: Path) -> bool:
    """Return True if a file begins and ends like the JSON of a tokenizer, which is long: it is not parsed here."""
    with path.open("rb") as file:
        start = file.read(4096)
        file.seek(-min(64, path.stat().st_size), os.SEEK_END)
        return start.lstrip().startswith(b"{") and b'"' in start and file.read().rstrip().endswith(b"}")


def _weights(folder: Path, stem: str) -> dict[str, list[int]]:
    """Return {name: shape} of the tensors in `stem`.safetensors, or in the files that its index names."""
    index = folder / f"{stem}.safetensors.index.json"
    files = [folder / f"{stem}.safetensors"]
    if index.exists() and not files[0].exists():
        names = _read_object(index).get("weight_map")
        if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
            raise InputError(f"{index}: weight_map is no object of file names. Save the model again.")
        files = [folder / name for name in sorted(set(names.values()))]
        if outside := next((file for file in files if file.parent != folder or file.name == ".."), None):
            raise InputError(f"{index}: weight_map names {outside}, which is not a file of this folder.")
        if gone := next((file for file in files if not file.is_file()), None):
            raise InputError(f"{gone} is missing, but {index.name} lists it. Save or download the model again.")
    return {name: shape for file in files if file.exists() for name, shape in _header(file).items()}


def _header(path: Path) -> dict[str, list[int]]:
    """Return {name: shape} of a safetensors file, and check that it has the bytes that its header names."""
    wrong = InputError(f"{path} is no whole safetensors file. Save or download the model again.")
    if not path.is_file():
        raise wrong
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(size - 8, 8 * _LONGEST_JSON):
            raise wrong
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            shapes = {name: entry["shape"] for name, entry in header.items()}
            ends = [end for entry in header.values() for end in entry["data_offsets"]]
            whole = max(ends, default=0) == size - 8 - length
            whole &= all(isinstance(n, int) and n >= 0 for shape in shapes.values() for n in shape)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise wrong from error
    if not whole:
        raise wrong
    return shapes


def _check_config(config: Mapping[str, Any], shapes: Mapping[str, list[int]], where: str) -> None:
    kind = config.get("model_type")
    known = {*_strings("transformers", "models/auto/*.py"), *_OWN_TYPES}
    if "model_type" in config and not (isinstance(kind, str) and kind in known):
        raise InputError(f"{where}: model_type is {kind!r}, which the installed transformers does not know.")
    dims = {n for shape in shapes.values() for n in shape}
    for path, name, value, sizes in _fields(config):
        at = f"{where}: {path}"
        _check_form(name, value, at, str(kind), sizes.get("vocab_size"))
        if not _SIZE.fullmatch(name):
            continue
        _check_size(name, value, at, set() if name in _TABLES else dims)
        if not isinstance(value, int):  # null, or one for each layer
            continue
        rows = [shape[0] for tensor, shape in shapes.items() if _TABLES.get(name, "\0") in tensor and shape]
        if _LAYERS.fullmatch(name) and shapes and "num_hidden_groups" not in sizes:  # ALBERT's layers share weights
            rows = [_layers(shapes)]
        if rows and value and value > max(rows):
            raise InputError(f"{at} is {value:,}, and the weights have {max(rows):,}. Correct it.")
        heads = sizes.get("num_attention_heads") if name == "hidden_size" else None
        if isinstance(heads, int) and heads and not {"head_dim", "d_kv"} & sizes.keys() and value % heads:
            raise InputError(f"{at} is {value:,}, which {heads:,} attention heads do not divide. Correct one of them.")
    _check_memory(config, where)


def _check_form(name: str, value: Any, where: str, kind: str, vocabulary: Any) -> None:
    """Check a field that is no size."""
    wanted = None
    if name == "architectures":
        right = isinstance(value, list) and all(isinstance(one, str) for one in value)
        wanted = "a list of names of classes"
    elif name in ("id2label", "label2id"):
        right, wanted = isinstance(value, dict), "an object"
    elif name in ("dtype", "torch_dtype"):
        right, wanted = isinstance(value, str) and bool(_DTYPE.fullmatch(value)), "the name of a floating-point dtype"
    elif name == "pad_token_id":
        rows = vocabulary if isinstance(vocabulary, int) and vocabulary > 0 else math.inf
        right = isinstance(value, int) and value < rows
        wanted = "a whole number below vocab_size"
    elif "dropout" in name or name.endswith("_eps"):
        right = not isinstance(value, str) and (not isinstance(value, (int, float)) or 0 <= value <= 1)
        wanted = "a number from 0 to 1"
    elif name in ("hidden_act", "hidden_activation", "activation_function"):
        # A model may know more of them than transformers has in one place.
        files = ("activations.py", f"models/{kind.replace('-', '_')}/*.py")
        right = not isinstance(value, str) or any(value in _strings("transformers", file) for file in files)
        wanted = "an activation of transformers"
    if wanted and value is not None and not right:
        raise InputError(f"{where} is {value!r}; it is {wanted}. Correct it.")


def _check_adapter(adapter: Mapping[str, Any], shapes: Mapping[str, list[int]], where: str) -> None:
    kind = adapter.get("peft_type")
    known = {*_strings("peft", "utils/peft_types.py"), *_OWN_PEFT_TYPES}
    if not isinstance(kind, str) or kind not in known:
        raise InputError(
            f"{where}: peft_type is {kind!r}, which the installed PEFT does not know ({len(known)} kinds)."
        )
    dims = {n for shape in shapes.values() for n in shape}
    for name, value in adapter.items():
        if name in ("r", "reduction_factor", "num_heads", "feedforward_size"):
            _check_size(name, value, f"{where}: {name}", set())
            if name == "r" and dims and value > max(dims):
                raise InputError(f"{where}: r is {value:,}, and the largest size of the weights is {max(dims):,}.")
        elif ("dropout" in name or name.endswith("alpha")) and (
            not isinstance(value, (int, float, type(None))) or ("dropout" in name and not 0 <= (value or 0) <= 1)
        ):
            raise InputError(f"{where}: {name} is {value!r}; it is a number. Correct it.")
    for name in (*_PATTERNS, *_TABLES_OF_PATTERNS):
        value, right = adapter.get(name), (str, list) if name in _PATTERNS else dict
        if value is not None and not isinstance(value, right):
            wanted = "a list of names, or a pattern" if name in _PATTERNS else "an object of patterns"
            raise InputError(f"{where}: {name} is {value!r}; it is {wanted}. Correct it.")
    targets = adapter.get("target_modules")
    if (
        isinstance(targets, list)
        and shapes
        and not any(f".{one}." in f".{name}" for one in targets for name in shapes)
    ):
        raise InputError(
            f"{where}: target_modules {targets} match no tensor of adapter_model.safetensors. Correct it."
        )
    patterns = [adapter.get(name) for name in _PATTERNS]
    patterns += [pattern for name in _TABLES_OF_PATTERNS for pattern in adapter.get(name) or ()]
    for pattern in patterns:
        if isinstance(pattern, str) and not re.fullmatch(r"[\w.-]*", pattern):
            _check_regex(pattern, sorted(shapes), where)


def _fields(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, Any, Mapping[str, Any]]]:
    """Yield (path, name, value, config that it is in) of the fields of a config and of the configs in it."""
    for name, value in config.items():
        if isinstance(value, dict) and name.endswith("config"):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", name, value, config


def _check_size(name: str, value: Any, where: str, dims: set[int]) -> None:
    needed = name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "r")
    if not needed and (value is None or isinstance(value, (list, dict, bool))):
        return
    least = 1 if _POSITIVE.fullmatch(name) else 0
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{where} is {value!r}; it is a whole number from {least} on. Correct it.")
    if dims and _IN_WEIGHTS.fullmatch(name) and value not in dims:
        raise InputError(f"{where} is {value:,}, and no tensor of the weights has that size. Correct it.")
    if value > 1_000_000_000 or (dims and least and value > 64 * max(dims)):
        raise InputError(f"{where} is {value:,}, and the largest size of the weights is {max(dims, default=0):,}.")


def _layers(shapes: Mapping[str, list[int]]) -> int:
    """Return the number of layers that the names of tensors count."""
    return 1 + max((int(number) for name in shapes for number in re.findall(r"(?<=\.)\d+(?=\.)", name)), default=0)


def _check_memory(config: Mapping[str, Any], where: str) -> None:
    """Refuse a model whose weights, by the sizes in its config, need more memory than there is."""
    import psutil

    sizes = {name: value for _, name, value, _ in _fields(config) if isinstance(value, int)}
    width, layers = sizes.get("hidden_size", 0), sizes.get("num_hidden_layers", 0)
    layers = 1 if "num_hidden_groups" in sizes else layers
    numbers = layers * width * (4 * width + 2 * sizes.get("intermediate_size", 0))
    needed, there = 4 * (numbers + sizes.get("vocab_size", 0) * width), psutil.virtual_memory().total
    if needed > 2 * there:  # a checkpoint in half precision may just fit
        raise InputError(
            f"{where}: weights of these sizes take {needed >> 30:,} GiB; this machine has {there >> 30:,}."
        )


def _check_regex(pattern: str, names: list[str], where: str) -> None:
    """Refuse a pattern that is none, or whose search does not end: only another process can be stopped."""
    code = "import re, sys; f = re.compile(sys.argv[1]).fullmatch; [f(line.strip()) for line in sys.stdin]"
    command = [sys.executable, "-I", "-S", "-c", code, pattern]
    text = "\n".join(["base_model.model.encoder.layer.0.attention.self.query", *names])
    try:
        subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=_REGEX_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{where}: matching {pattern[:80]!r} does not end. Name the modules in a list.") from error
    except (subprocess.CalledProcessError, ValueError) as error:
        raise InputError(f"{where}: {pattern[:80]!r} is no regular expression. Name the modules in a list.") from error


@cache
def _strings(package: str, pattern: str) -> frozenset[str]:
    """Return the text constants in files of a package, which is not imported: that takes seconds."""
    spec = find_spec(package)
    files = Path(spec.origin).parent.glob(pattern) if spec and spec.origin else ()
    return frozenset(word for path in files for word in re.findall(r'"([\w.-]+)"', path.read_text(encoding="utf-8")))


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
def plain_errors(name: str, *more: type[Exception]) -> Iterator[None]:
    """Turn what libraries raise on files of the wrong form, and errors of `more`, into an InputError with the name."""
    wrong_form = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, re.error)
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        kind = type(error)
        # tokenizers raises bare exceptions, and configs errors of their own kind.
        strange = kind is Exception or "Validation" in kind.__name__ or isinstance(error, (*wrong_form, *more))
        if not strange or "OutOfMemory" in kind.__name__:
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{name}: its files make no model that can be loaded ({kind.__name__}: {reason}). Compare its config with "
            "the weights, or save the model again."
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
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name_or_path} has no tokenizer that can be loaded, or is no model at all ({reason})"
        ) from error
    # Without files, transformers makes one of the model's kind that knows no word.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise InputError(f"{name_or_path} has no tokenizer's files: save the model's tokenizer in the same folder")
    return tokenizer
