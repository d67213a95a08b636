"""The check of a model's folder, and errors of what cannot be loaded."""

import json
import shutil
import subprocess
import sys
from functools import partial

import pytest
from support.families import CONFIGS, NEWER, save_base
from support.refusals import assert_refused
from support.tiny import make_encoder, make_tokenizer

from hf_xalign.data.sources import check_models
from hf_xalign.errors import InputError
from hf_xalign.pretrained import load_tokenizer, plain_errors


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


CONFIG, ADAPTER = "config.json", "adapter_config.json"
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
    "no pattern": (changed(ADAPTER, peft_type="LORA", target_modules="((query"), "is no regular expression"),
}


def test_wild_folders_are_refused_before_torch_is_imported(tmp_path):
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
    code = (
        "import sys; from hf_xalign.data.sources import check_models; check_models(sys.argv[1:]); print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code, str(base)], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "peft"} & set(found.split())


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
    check_models([str(snapshot)])
    (snapshot / "vocab.txt").symlink_to("../../../elsewhere")
    with pytest.raises(InputError, match=r"vocab\.txt is a link that leaves"):
        check_models([str(snapshot)])


def test_what_libraries_raise_names_the_model(tmp_path):
    make_encoder().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="has no tokenizer"):  # transformers would make one that knows no word
        load_tokenizer(tmp_path)
    for error in (RuntimeError("size mismatch"), Exception("bare"), KeyError("x"), ZeroDivisionError()):
        with pytest.raises(InputError, match="base: its files make no model"), plain_errors("base"):
            raise error
    with pytest.raises(MemoryError), plain_errors("base"):
        raise MemoryError
