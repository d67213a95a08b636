"""The door to models: nothing outside a folder, no pickles, weights that are numbers, and plain errors."""

import json
import shutil
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.refusals import assert_refused
from support.tiny import make_encoder, make_tokenizer

from hf_xalign import load
from hf_xalign.data.sources import check_models
from hf_xalign.errors import InputError
from hf_xalign.pretrained import check_finite, load_tokenizer, plain_errors

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def changed(**fields):
    def change(folder):
        content = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(content | fields))

    return change


def linked(name, place):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(place)

    return change


def indexed(place):
    """Return a function that has an index say that the weights are in another file."""

    def change(folder):
        (folder / WEIGHTS).rename(folder / "part.safetensors")
        shutil.copy(folder / "part.safetensors", folder.parent / "part.safetensors")
        index = {"weight_map": {"embeddings.word_embeddings.weight": place.format(folder=folder)}}
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))

    return change


def lacking(word):
    def change(folder):
        weights = load_file(folder / WEIGHTS)
        save_file({name: value for name, value in weights.items() if word not in name}, folder / WEIGHTS)

    return change


OUTSIDE = {
    "link": (linked("vocab.txt", "/etc/hostname"), "vocab.txt is a link that leaves the folder"),
    "linked config": (linked(CONFIG, "../other.json"), "config.json is a link that leaves"),
    "linked folder": (linked("maps", "/etc"), "maps is a link that leaves"),
    "index": (indexed("../part.safetensors"), "weight_map names .*, which is not a file of this folder"),
    "absolute index": (indexed("{folder}/../part.safetensors"), "weight_map names .*, which is not a file"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), r"has no model\.safetensors"),
    "no config": (lambda folder: (folder / CONFIG).unlink(), "holds no model"),
}
# What transformers would load with random weights, or refuse in many lines.
BROKEN = {
    "a layer too many": (changed(num_hidden_layers=3), "has no weights for"),
    "another width": (changed(hidden_size=32), "its files make no model"),
    "another kind": (changed(model_type="gpt2"), "has no weights for"),
    "unknown kind": (changed(model_type="burt"), "no model that transformers can load"),
    "a weight missing": (lacking("layer.0.attention.self.query.weight"), "has no weights for 1"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "base"
    make_encoder().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    (folder.parent / "other.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("table", "read"), [(OUTSIDE, check_models), (BROKEN, lambda names: load(*names))])
def test_folders_that_are_refused(table, read, base, tmp_path):
    def attempt(change, folder):
        shutil.copytree(base, folder / "model")
        change(folder / "model")
        read([str(folder / "model")])

    read([str(base)])
    assert_refused({name: (partial(attempt, change), said) for name, (change, said) in table.items()}, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("last", [0.0, torch.nan, -torch.inf])
def test_weights_are_finite_in_every_dtype(dtype, last, tmp_path):
    numbers = torch.full((300,), torch.finfo(dtype).max, dtype=dtype)
    numbers[-1] = last
    save_file({"n": torch.arange(9), "w": numbers, "none": torch.zeros(0, dtype=dtype)}, tmp_path / "a.safetensors")
    if last == 0:
        check_finite(tmp_path / "a.safetensors")
    else:
        with pytest.raises(InputError, match=r"a\.safetensors: w holds NaN or infinite numbers"):
            check_finite(tmp_path / "a.safetensors")


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
    for error in (RuntimeError("size mismatch"), Exception("bare"), KeyError("x")):
        with pytest.raises(InputError, match="base: its files make no model"), plain_errors("base"):
            raise error
    with pytest.raises(MemoryError), plain_errors("base"):
        raise MemoryError
