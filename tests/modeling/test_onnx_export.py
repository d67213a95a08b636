"""ONNX graphs against the models that they were made of, in ONNX Runtime."""

import importlib.util

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from support.adapters import adapt, make_base, save_pair
from support.families import CONFIGS, NEWER, save_base
from support.launch import STEP
from support.maps import make_rotated
from support.numeric import assert_rounding, tolerance
from support.recipe import make_files
from support.tiny import SENTENCES, make_encoder, make_tokenizer
from transformers import AutoConfig

from hf_xalign.cli.main import main
from hf_xalign.errors import InputError
from hf_xalign.modeling import export
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.export import INT8, MODEL, export_onnx
from hf_xalign.modeling.languages import language_context

TEXTS = [text for source, target, _ in SENTENCES for text in (source, target)]
needs_onnx = pytest.mark.skipif(importlib.util.find_spec("onnxscript") is None, reason="the extra onnx is missing")


ADAPTERS = ("linear", "languages", "transformer", "houlsby")


def plain(family, folder):
    save_base(family, folder)
    return load_trainable(str(folder))


MODELS = {
    **{kind: lambda _, kind=kind: adapt(make_base(), kind, init="random") for kind in ADAPTERS},
    "lora": lambda _: get_peft_model(make_base(), LoraConfig(target_modules=["query"], init_lora_weights=False)),
    "rotated": lambda _: make_rotated(),
    **{family: lambda folder, family=family: plain(family, folder / "base") for family in CONFIGS | NEWER},
}


def run(path, texts):
    import onnxruntime

    batch = make_tokenizer()(texts, padding=True, return_tensors="np")
    given = {name: batch[name] for name in export.INPUTS}
    (states,) = onnxruntime.InferenceSession(path).run([export.OUTPUT], given)
    return [row[mask.astype(bool)] for row, mask in zip(states, batch["attention_mask"], strict=True)]


def wanted(model, texts):
    with torch.no_grad():
        found = [model(**make_tokenizer()(text, return_tensors="pt")).last_hidden_state[0] for text in texts]
    return [states.numpy() for states in found]


@pytest.mark.slow
@needs_onnx
@pytest.mark.parametrize("kind", MODELS)
def test_states_are_those_of_the_model(kind, tmp_path):
    model = MODELS[kind](tmp_path).eval()
    lang = "de" if kind in ("languages", "rotated") else None
    folder = export_onnx(model, make_tokenizer(), tmp_path / "out", lang=lang, pooling="last")
    with language_context(model, lang):
        expected = wanted(model, TEXTS)
    for texts in (TEXTS[:1], TEXTS):
        for one, other in zip(run(folder / MODEL, texts), expected, strict=False):
            assert_rounding(one, other, STEP)
    family = (CONFIGS | NEWER).get(kind, CONFIGS["bert"])
    assert AutoConfig.from_pretrained(folder).model_type == family().model_type
    assert '"pooling_mode_lasttoken": true' in (folder / "1_Pooling" / "config.json").read_text()


@pytest.mark.slow
@needs_onnx
def test_the_command_writes_both_precisions(tmp_path, capsys):
    files = make_files(tmp_path)
    assert main(["export", str(files / "base"), str(tmp_path / "out"), "--onnx", "--int8"]) == 0
    expected = wanted(load_trainable(str(files / "base")), TEXTS)
    whole, small = (run(tmp_path / "out" / name, TEXTS) for name in (MODEL, INT8))
    off = [max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True)) for found in (whole, small)]
    rounding = tolerance(STEP, max(np.abs(states).max() for states in expected), torch.float32)
    assert off[0] <= rounding < off[1]
    # The largest error of 8 bits depends on the CPU, whose instructions may saturate.
    for states, exact in zip(small, expected, strict=True):
        assert np.corrcoef(states.ravel(), exact.ravel())[0, 1] > 0.97
    assert main(["export", str(files / "base"), str(tmp_path / "out"), "--onnx"]) == 2
    assert "exists" in capsys.readouterr().err


def test_the_command_writes_a_folder_for_sentence_transformers(tmp_path, capsys):
    files = make_files(tmp_path)
    assert main(["export", str(files / "base"), str(tmp_path / "out"), "--pooling", "cls"]) == 0
    assert '"pooling_mode_cls_token": true' in (tmp_path / "out" / "1_Pooling" / "config.json").read_text()
    # transformers 4 knows the tokenizer's class by this name.
    assert '"PreTrainedTokenizerFast"' in (tmp_path / "out" / "tokenizer_config.json").read_text()
    for kind in ("linear", "houlsby"):  # modules, also inside the layers alone
        save_pair(tmp_path / kind, kind=kind)
        make_tokenizer().save_pretrained(tmp_path / kind / "adapter")
        assert main(["export", str(tmp_path / kind / "adapter"), str(tmp_path / "other")]) == 2
        assert "(`hf-xalign export RUN OUT --onnx`)" in capsys.readouterr().err


def test_without_the_packages_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'onnx, onnxscript, onnxruntime. Run pip install "hf_xalign\[onnx\]"'):
        export_onnx(make_encoder(), make_tokenizer(), tmp_path / "out")
