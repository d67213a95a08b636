"""Build a sentencepiece "precompiled charsmap", the normaliser of XLM-R's tokenizers.

`tokenizers.normalizers.Precompiled` reads `u32 trie_bytes`, then the units of a double-array trie (Aoe, 1989, in the
bit layout of darts-clone), then the replacement strings in UTF-8, each ended by a NUL. A key's value is the byte
offset of its replacement.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

import numpy as np

_BLOCK = 256  # a child lies at base ^ byte: never outside the block of 256 units that holds the base
_IS_VALUE = 1 << 31  # marks the unit that holds a key's value; no byte equals its label
_HAS_VALUE = 1 << 8  # marks a unit below which (under byte 0) lies a value
_MAX_OFFSET = 1 << 21  # larger offsets need another encoding; tables of a few thousand keys stay below


def build_charsmap(mapping: Mapping[str, str]) -> bytes:
    """Compile `{text: replacement}` into the bytes that `Precompiled` reads; an empty replacement removes the text."""
    strings = bytearray()
    offsets: dict[str, int] = {}
    values: dict[bytes, int] = {}
    for text, replacement in mapping.items():
        key = text.encode()
        if not key or b"\0" in key or "\0" in replacement:
            raise ValueError(f"cannot map {text!r} to {replacement!r}: keys are not empty, and NUL ends a string")
        if replacement not in offsets:
            offsets[replacement] = len(strings)
            strings += replacement.encode() + b"\0"
        values[key] = offsets[replacement]
    units = _double_array(values)
    return np.array(units.nbytes, "<u4").tobytes() + units.astype("<u4").tobytes() + bytes(strings)


def composed_keys() -> dict[str, str]:
    """Return `{decomposed pair: composed character}` for every canonical composition of at most 5 UTF-8 bytes.

    `Precompiled` looks up a whole grapheme only when it has fewer than 6 bytes, so longer keys would never be used.
    """
    pairs = {}
    for code in range(0x80, 0x110000):
        character = chr(code)
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if len(pair.encode()) <= 5 and unicodedata.normalize("NFC", pair) == character:
                pairs[pair] = character
    return pairs


def _double_array(values: Mapping[bytes, int]) -> np.ndarray:
    """Return the uint32 units of a double-array trie over `values`; a reader walks it by XOR, byte by byte."""
    root: dict[int, dict] = {}
    for key in values:
        node = root
        for byte in key:
            node = node.setdefault(byte, {})

    units = np.zeros(_BLOCK, dtype=np.uint32)
    taken = np.zeros(_BLOCK, dtype=bool)
    based = np.zeros(_BLOCK, dtype=bool)  # two nodes with one base would share their children
    taken[0] = True  # the root
    first_free = 1
    todo: list[tuple[int, dict[int, dict], bytes]] = [(0, root, b"")]
    while todo:
        position, children, prefix = todo.pop()
        labels = np.array(([0] if prefix in values else []) + sorted(children), dtype=np.int64)
        if not len(labels):  # only the root of an empty table
            break
        while first_free < len(taken) and taken[first_free]:
            first_free += 1
        start = first_free // _BLOCK * _BLOCK
        while True:
            if start == len(taken):
                units, taken, based = (np.append(a, np.zeros(_BLOCK, a.dtype)) for a in (units, taken, based))
            bases = np.arange(start, start + _BLOCK)
            fits = bases[~based[bases] & ~taken[bases[:, None] ^ labels].any(axis=1)]
            if len(fits):
                base = int(fits[0])
                break
            start += _BLOCK
        if position ^ base >= _MAX_OFFSET:
            raise ValueError(f"{len(values):,} keys are too many for one precompiled charsmap")
        based[base] = True
        taken[base ^ labels] = True
        units[position] |= np.uint32((position ^ base) << 10)
        if prefix in values:
            units[position] |= np.uint32(_HAS_VALUE)
            units[base] = _IS_VALUE | values[prefix]
        for byte, child in children.items():
            units[base ^ byte] = byte
            todo.append((base ^ byte, child, prefix + bytes([byte])))
    return units
