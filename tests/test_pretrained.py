"""The check of a model's folder, and errors of what cannot be loaded."""

import copy
import json
import os
import shutil
import struct
import subprocess
import sys
from functools import partial

import peft
import pytest
import torch
from safetensors.torch import save_file
from support.families import CONFIGS, NEWER, save_base
from support.recipe import make_files
from support.refusals import assert_refused
from support.tiny import make_encoder, make_tokenizer

from hf_xalign import load
from hf_xalign.data.sources import check_models
from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig
from hf_xalign.pretrained import check_finite, load_tokenizer, plain_errors


def changed(name, **fields):
    """Return a function that changes fields of a JSON file of a folder."""

    def change(folder):
        path = folder / name
        path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **fields}))

    return change


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def cut(name, size):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def drop(name, field):
    def change(folder):
        content = json.loads((folder / name).read_text())
        del content[field]
        (folder / name).write_text(json.dumps(content))

    return change


def piped(name):
    return lambda folder: ((folder / name).unlink(), os.mkfifo(folder / name))


def linked(name, place):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(place)

    return change


def indexed(place):
    """Return a function that has an index say that the weights are in another file."""

    def change(folder):
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        shutil.copy(folder / "part.safetensors", folder.parent / "part.safetensors")
        index = {"weight_map": {"embeddings.word_embeddings.weight": place.format(folder=folder)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def headed(change, name="model.safetensors"):
    """Return a function that changes the header of a safetensors file, and leaves its tensors as they are."""

    def write(folder):
        content = (folder / name).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        change(header.setdefault("__metadata__", {}), header[min(set(header) - {"__metadata__"})])
        text = json.dumps(header).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])

    return write


def adapted(*, size=None, **fields):
    """Return a function that makes an adapter of rank 4 on the folder's query layers, with other fields.

    With a size of its layers, it is on a copy of the folder, else on a model that is not here.
    """

    def change(folder):
        names = [f"base_model.model.encoder.layer.{n}.attention.self.query" for n in (0, 1)]
        weights = {f"{name}.lora_A.weight": torch.zeros(4, size or 16) for name in names}
        save_file(weights | {f"{name}.lora_B.weight": torch.zeros(16, 4) for name in names}, folder / ADAPTER_WEIGHTS)
        own = {"peft_type": "LORA", "r": 4, "target_modules": ["query"], "base_model_name_or_path": "owner/name"}
        if size:
            own["base_model_name_or_path"] = str(shutil.copytree(folder, folder.parent / "encoder"))
        for name in (CONFIG, "model.safetensors"):
            (folder / name).unlink()
        changed(ADAPTER, **own | fields)(folder)

    return change


CONFIG, ADAPTER, ADAPTER_WEIGHTS = "config.json", "adapter_config.json", "adapter_model.safetensors"
ENDLESS = "(a|a)*(a|a)*(.*.*.*.*.*.*.*.*.*.*.*.*)*!"
WILD = {
    "width": (changed(CONFIG, hidden_size=10**9), "hidden_size is 1,000,000,000, and no tensor"),
    "width of text": (changed(CONFIG, hidden_size="wide"), "hidden_size is 'wide'; it is a whole number"),
    "no width": (changed(CONFIG, hidden_size=None), "hidden_size is None; it is a whole number"),
    "fraction": (changed(CONFIG, intermediate_size=0.5), "intermediate_size is 0.5; it is a whole number"),
    "layers": (changed(CONFIG, num_hidden_layers=10**6), "num_hidden_layers is 1,000,000"),
    "a layer more": (changed(CONFIG, num_hidden_layers=3), "num_hidden_layers is 3, and the weights have 2"),
    "heads": (changed(CONFIG, num_attention_heads=0), "num_attention_heads is 0; it is a whole number from 1"),
    "odd heads": (changed(CONFIG, num_attention_heads=3), "3 attention heads do not divide"),
    "below": (changed(CONFIG, vocab_size=-1), "vocab_size is -1"),
    "positions": (changed(CONFIG, max_position_embeddings=10**8), "max_position_embeddings is 100,000,000, and the"),
    "types": (changed(CONFIG, type_vocab_size=10**8), "type_vocab_size is 100,000,000, and the weights have 2"),
    "activation": (changed(CONFIG, hidden_act="gelo"), "hidden_act is 'gelo'; it is an activation"),
    "kind": (changed(CONFIG, model_type="burt"), "model_type is 'burt', which"),
    "dropout": (changed(CONFIG, attention_probs_dropout_prob=2), "dropout_prob is 2; it is a number from 0 to 1"),
    "padding": (changed(CONFIG, pad_token_id=10**9), "pad_token_id is 1000000000; it is a whole number below"),
    "dtype": (changed(CONFIG, dtype="float31"), "dtype is 'float31'"),
    "classes": (changed(CONFIG, architectures=7), "architectures is 7"),
    "labels": (changed(CONFIG, id2label=["a"]), "id2label is .* an object"),
    "nested": (changed(CONFIG, text_config={"hidden_size": -4}), r"text_config\.hidden_size is -4"),
    "no JSON": (written(CONFIG, b'{"a": '), r"config\.json: not JSON"),
    "a list": (written(CONFIG, b"[]"), r"config\.json: no JSON object"),
    "deep": (written(CONFIG, b"[" * 100_000), r"config\.json: not JSON"),
    "cut weights": (cut("model.safetensors", -1), "no whole safetensors file"),
    "cut header": (cut("model.safetensors", 40), "no whole safetensors file"),
    "long header": (written("model.safetensors", b"\xff" * 8 + b"{}"), "no whole safetensors file"),
    "cut tokenizer": (cut("tokenizer.json", 300), "no whole tokenizer"),
    "tokenizer's class": (changed("tokenizer_config.json", tokenizer_class=7), "tokenizer_class is 7"),
    "weights alone": (lambda folder: (folder / CONFIG).unlink(), "has weights, and no config.json"),
    "link": (linked("vocab.txt", "/etc/hostname"), "vocab.txt is a link that leaves the folder"),
    "linked config": (linked(CONFIG, "../other.json"), "config.json is a link that leaves"),
    "linked folder": (linked("maps", "/etc"), "maps is a link that leaves"),
    "link to itself": (linked("vocab.txt", "vocab.txt"), "vocab.txt is a link that leaves"),
    "index": (indexed("../part.safetensors"), "weight_map names .*, which is not a file of this folder"),
    "absolute index": (indexed("{folder}/../part.safetensors"), "weight_map names .*, which is not a file"),
    "index of nothing": (indexed("gone.safetensors"), "gone.safetensors is missing"),
    "rank": (changed(ADAPTER, peft_type="LORA", r=0), "adapter_config.json: r is 0"),
    "method": (changed(ADAPTER, peft_type="LOLA"), "peft_type is 'LOLA'"),
    "targets": (changed(ADAPTER, peft_type="LORA", target_modules=7), "target_modules is 7"),
    "endless": (changed(ADAPTER, peft_type="LORA", target_modules=ENDLESS), "matching .* does not end"),
    "endless rank": (changed(ADAPTER, peft_type="LORA", rank_pattern={ENDLESS: 4}), "matching .* does not end"),
    "default width": (drop(CONFIG, "hidden_size"), "hidden_size is 768, and no tensor"),
    "inner width": (changed(CONFIG, intermediate_size=64), "intermediate_size is 64, and the weights have 32"),
    "other width": (changed(CONFIG, hidden_size=32), "hidden_size is 32, which most matrices"),
    "activation of no type": (changed(CONFIG, hidden_act=[3]), "hidden_act is .* of type str"),
    "NaN": (changed(CONFIG, initializer_range=float("nan")), "initializer_range is nan; it is of type float"),
    "many labels": (changed(CONFIG, num_labels=10**9), "num_labels is 1,000,000,000"),
    "quantized": (changed(CONFIG, quantization_config={"bits": 4}), "quantization_config is .* others are not read"),
    "chunks": (changed(CONFIG, chunk_size_feed_forward=7), "chunk_size_feed_forward is 7; it is 0"),
    "another kind": (changed(CONFIG, model_type="gpt2"), "the weights' names are not those of such a model"),
    "images": (changed(CONFIG, model_type="vit"), "the weights' names are not those of such a model"),
    "no kind": (drop(CONFIG, "model_type"), "model_type is None"),
    "shape": (headed(lambda _, entry: entry.update(shape=[10**9])), "no whole safetensors file"),
    "offsets": (headed(lambda _, entry: entry.update(data_offsets=[64, 128])), "no whole safetensors file"),
    "number's type": (headed(lambda _, entry: entry.update(dtype="F8")), "no whole safetensors file"),
    "metadata": (headed(lambda about, _: about.update(format=7)), "no whole safetensors file"),
    "broken index": (written("model.safetensors.index.json", b"{"), r"index\.json: not JSON"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"has no model\.safetensors"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer's files"),
    "pipe": (piped("tokenizer.json"), "tokenizer.json: this is a pipe, a socket or a device"),
    "deep tokenizer": (written("tokenizer.json", b'{"model":' * 50_000 + b"}"), "no whole tokenizer"),
    "tokenizer's model": (changed("tokenizer.json", model={"type": "Zz", "vocab": {"a": 0}}), "no whole tokenizer"),
    "tokenizer's rules": (changed("tokenizer.json", pre_tokenizer={"type": "Zz"}), "no whole tokenizer"),
    "longest text": (changed("tokenizer_config.json", model_max_length=-1), "model_max_length is -1; it is above 0"),
    "token": (changed("tokenizer_config.json", pad_token=7), "pad_token is 7; it is a token"),
    "added tokens": (written("added_tokens.json", b"[]"), "added_tokens.json: no JSON object"),
    "ranks": (adapted(r=8), "r is 8, and the weights have 4"),
    "great rank": (adapted(r=10**9), "r is 1,000,000,000"),
    "rank of a layer": (adapted(rank_pattern={"query": 10**9}), "rank_pattern is .* positive numbers"),
    "no base": (adapted(base_model_name_or_path=None), "base_model_name_or_path is None; it names the encoder"),
    "base that is gone": (adapted(base_model_name_or_path="/no/where"), "is /no/where, and there is no such folder"),
    "base of no model": (adapted(base_model_name_or_path="/"), "is /, which holds no encoder"),
    "no target": (adapted(target_modules=["zz"]), r"target_modules \['zz'\] match no tensor"),
    "no match": (adapted(target_modules="zz.*"), r"target_modules zz\.\* match no tensor"),
    "excluded": (adapted(exclude_modules=["query"]), "match no tensor"),
    "layer beyond": (adapted(layers_to_transform=[10**9]), "layers_to_transform has 1000000000"),
    "pattern alone": (adapted(layers_pattern="layer"), "layers_pattern needs layers_to_transform"),
    "layers by a pattern": (adapted(layers_to_transform=[0], target_modules=".*query"), "a list of target_modules"),
    "other stack": (adapted(layers_to_transform=[0], layers_pattern="h"), "with layers_pattern h match no tensor"),
    "bias": (adapted(bias="zz"), "bias is 'zz'; it is of type Literal"),
    "alpha": (adapted(lora_alpha=float("nan")), "lora_alpha is nan; it is a number"),
    "task": (adapted(task_type="ZZ"), "task_type is 'ZZ', which"),
    "class of the base": (adapted(auto_mapping={"base_model_class": 7}), "base_model_class 7; it is a name"),
    "copied layers": (adapted(layer_replication=[7]), r"layer_replication is \[7\]; it is of type"),
    "part of the config": (adapted(eva_config=7), "eva_config is 7; it is of type"),
    "another method": (adapted(peft_type="IA3"), "weights called ia3_"),
    "classifier": (adapted(task_type="SEQ_CLS"), "weights called classifier"),
    "words with vectors between": (adapted(peft_type="PROMPT_TUNING"), "is PROMPT_TUNING, with which an encoder"),
    "ADALORA": (adapted(peft_type="ADALORA"), "weights called lora_E"),
    "DoRA": (adapted(use_dora=True), "weights called lora_magnitude_vector"),
    "tokens": (adapted(trainable_token_indices=[3]), "weights called trainable_tokens_delta"),
    "parallel": (adapted(megatron_config={"x": 1}), "megatron_config is .* what is read is None"),
    "base not here": (adapted(), "base_model_name_or_path owner/name is no folder and not in the Hub's cache"),
    "base of another width": (adapted(size=8), r"no matrix for base_model.*lora_A.weight \[4, 8\]"),
    "layers too many": (adapted(size=16, layer_replication=[[0, 3]]), r"has \[0, 3\], and the encoder has 2 layers"),
    "all layers": (adapted(size=16, target_modules="all-linear"), "no weights for layer.0.attention.output.dense"),
    "embeddings": (adapted(size=16, target_modules=["query", "word_embeddings"]), "no weights for word_embeddings"),
    "no padding": (changed("tokenizer_config.json", pad_token=None), "pad_token is None; it is a token"),
    "not finite": (lambda folder: save_file({"w": torch.tensor(torch.nan)}, folder / "model-2.safetensors"), "NaN"),
    "no pattern": (changed(ADAPTER, peft_type="LORA", target_modules="((query"), "is no regular expression"),
}


def test_wild_folders_are_refused_before_torch_is_imported(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    base = tmp_path / "base"
    make_encoder().save_pretrained(base)
    make_tokenizer().save_pretrained(base)
    (tmp_path / "other.json").write_text("{}")
    check_models([str(base)])

    def change(name, folder):
        shutil.copytree(base, folder / "model")
        WILD[name][0](folder / "model")
        check_models([str(folder / "model")])

    assert_refused({name: (partial(change, name), said) for name, (_, said) in WILD.items()}, tmp_path)
    code = "import sys; from hf_xalign.data.sources import check_models as f; f(sys.argv[1:]); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code, str(base)], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "peft"} & set(found.split())


# Runs a command from a small process, so that the peak is not that of its parent.
MEASURED = """
import json, resource, subprocess, sys
done = subprocess.run(["hf-xalign", *sys.argv[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10, done.stderr.strip()]))
"""


@pytest.mark.slow
def test_no_command_is_surprised_by_a_wild_folder(tmp_path, monkeypatch):
    """Print a line for each run; `pytest -s -m slow -k surprised` shows them."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    make_files(tmp_path)
    text, scored = f"de={tmp_path / 'train.jsonl'}", f"de={tmp_path / 'test.tsv'}"
    training = [
        "--train_data",
        text,
        "--eval_data",
        scored,
        "--output_dir",
        str(tmp_path / "run"),
        "--dry_run",
        "true",
    ]
    wrong = []
    for number, (name, (change, _)) in enumerate(WILD.items()):
        folder = shutil.copytree(tmp_path / "base", tmp_path / str(number) / "model")
        change(folder)
        for words in (
            ["inspect", str(folder), "--source", "die katze", "--target", "the cat", "--device", "cpu"],
            ["evaluate", str(folder), "--data", scored, "--device", "cpu"],
            ["export", str(folder), str(tmp_path / "exported")],
            ["push", str(folder), "owner/name", "--dry_run"],
            ["train", "fao", "--model_name_or_path", str(folder), "--use_cpu", "true", *training],
        ):
            done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True)
            status, seconds, peak, errors = json.loads(done.stdout)
            line = f"{name:26} {words[0]:9} {status:3} {seconds:5.2f} s {peak:4} MB  {errors[:160]}"
            print(line)
            if (name, words[0], status) == ("base not here", "push", 0):
                continue
            if status != 2 or seconds > 3 or peak > 600 or not errors.startswith("error: ") or "\n" in errors:
                wrong.append(line)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("last", [0.0, torch.nan, torch.inf, -torch.inf])
def test_weights_are_finite_in_every_dtype(dtype, last, tmp_path):
    numbers = torch.full((3_000_000,), torch.finfo(dtype).max, dtype=dtype)
    numbers[-1] = last
    save_file({"n": torch.arange(9), "w": numbers, "none": torch.zeros(0, dtype=dtype)}, tmp_path / "a.safetensors")
    if last == 0:
        check_finite(tmp_path / "a.safetensors")
    else:
        with pytest.raises(InputError, match=r"a\.safetensors: w holds NaN or infinite numbers"):
            check_finite(tmp_path / "a.safetensors")


LORA = partial(peft.LoraConfig, r=4, target_modules=["query"])
ADAPTERS = {
    "LoRA": LORA(exclude_modules=["layer.0.attention.self.query"], rank_pattern={"query": 2}),
    "DoRA": LORA(use_dora=True),
    "all layers": LORA(target_modules="all-linear"),
    "embeddings": LORA(target_modules=["query", "word_embeddings"]),
    "tokens": LORA(trainable_token_indices=[3, 4]),
    "copied layers": LORA(layer_replication=[[0, 2], [1, 2]]),
    "a layer": LORA(layers_to_transform=[1]),
    "pattern": LORA(target_modules=r".*layer\.1.*query"),
    "AdaLoRA": peft.AdaLoraConfig(init_r=6, target_r=4, total_step=10, target_modules=["query"]),
    "prefix": peft.PrefixTuningConfig(num_virtual_tokens=4, task_type="FEATURE_EXTRACTION"),
    "IA3": peft.IA3Config(target_modules=["query"], feedforward_modules=[]),
    "OFT": peft.OFTConfig(oft_block_size=4, r=0, target_modules=["query"]),
    "VeRA": peft.VeraConfig(r=4, target_modules=["query"]),
    "norms": peft.LNTuningConfig(target_modules=["LayerNorm"]),
    "XAlign": XAlignConfig(),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_of_every_kind_pass_the_check_of_their_folder(name, tmp_path):
    make_encoder().save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(make_encoder(), copy.deepcopy(ADAPTERS[name]))
    model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    model.save_pretrained(tmp_path / "adapter")
    make_tokenizer().save_pretrained(tmp_path / "adapter")
    check_models([str(tmp_path / "adapter")])
    load(tmp_path / "adapter")


@pytest.mark.parametrize("family", [*CONFIGS, *NEWER])
def test_every_family_passes_the_check_of_its_folder(family, tmp_path):
    save_base(family, tmp_path)
    check_models([str(tmp_path)])


def test_links_to_blobs_of_the_hub_stay_inside(tmp_path):
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / "main"
    make_encoder().save_pretrained(snapshot)
    (repository / "blobs").mkdir()
    (snapshot / "config.json").rename(repository / "blobs" / "abc")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    check_models([str(snapshot)], whole=False)
    (snapshot / "vocab.txt").symlink_to("../../../elsewhere")
    with pytest.raises(InputError, match=r"vocab\.txt is a link that leaves"):
        check_models([str(snapshot)], whole=False)


def test_what_libraries_raise_names_the_model(tmp_path):
    make_encoder().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="has no tokenizer"):  # transformers would make one that knows no word
        load_tokenizer(tmp_path)
    for error in (RuntimeError("size mismatch"), Exception("bare"), KeyError("x"), ZeroDivisionError()):
        with pytest.raises(InputError, match="base: its files make no model"), plain_errors("base"):
            raise error
    with pytest.raises(MemoryError), plain_errors("base"):
        raise MemoryError
