"""The tagger saved and loaded, on a mapped encoder, with a module of MAO; and by `hf_xalign.load`."""

from __future__ import annotations

import shutil

import pytest
import torch
from support.adapters import TEXT, adapt, make_base
from support.families import PASS
from support.maps import make_rotated
from support.numeric import assert_rounding
from support.tagger import BIO, INPUTS, LABELS, make_tagger, trained
from transformers import AutoModelForTokenClassification

import hf_xalign
from hf_xalign.data.encoding import position_limit
from hf_xalign.modeling import set_language, with_alignment
from hf_xalign.modeling.tagger.tagger import BiLSTMCRFForTokenClassification


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("family", "settings"),
    [("bert", {}), ("xlm-roberta", {"transitions": "shared", "bio": True, "layer_mix": "concat"}), ("modernbert", {})],
)
def test_round_trip(family, settings, tmp_path):
    tagger = make_tagger(make_base(family), **settings)
    expected = tagger(**INPUTS, labels=LABELS)
    tagger.save_pretrained(tmp_path / "tagger")
    assert {path.name for path in (tmp_path / "tagger").iterdir()} == {"config.json", "model.safetensors"}
    shutil.move(tmp_path / "tagger", tmp_path / "moved")
    torch.manual_seed(99)
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "moved")
    assert type(loaded) is BiLSTMCRFForTokenClassification and not loaded.training
    assert loaded.config.tags == BIO and loaded.config.label2id == {name: k for k, name in enumerate(BIO)}
    assert position_limit(loaded.config) == position_limit(loaded.backbone.config)
    state = loaded.state_dict()
    assert state.keys() == tagger.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in tagger.state_dict().items())
    found = loaded(**INPUTS, labels=LABELS)
    assert torch.equal(found.tags, expected.tags)
    # Weights are equal bitwise; the order in which products are added up may depend on where they lie in memory.
    assert_rounding(found.logits, expected.logits, 2 * PASS)
    assert_rounding(found.loss, expected.loss, 2 * PASS)
    with torch.no_grad():
        assert_rounding(hf_xalign.load(tmp_path / "moved")(**INPUTS).logits, expected.logits, 2 * PASS)
    assert trained(loaded).keys() == trained(tagger).keys()
    half = AutoModelForTokenClassification.from_pretrained(tmp_path / "moved", dtype=torch.bfloat16)
    assert half.backbone.dtype is torch.bfloat16
    assert {parameter.dtype for parameter in trained(half).values()} == {torch.float32}
    assert half(**INPUTS, labels=LABELS).loss.isfinite()


def test_on_a_mapped_encoder(tmp_path):
    tagger = make_tagger(make_rotated(layers=(-2, -1)))
    with torch.no_grad():
        english, german = (tagger(**INPUTS, language=language).logits for language in ("en", "de"))
    assert (english - german).abs().max() > 1e-3
    raw = make_tagger(make_rotated(layers=(-2, -1)).unmapped)
    weights = {name: value for name, value in tagger.state_dict().items() if "maps" not in name}
    raw.load_state_dict({name.replace("backbone.unmapped", "backbone"): value for name, value in weights.items()})
    assert torch.equal(raw(**INPUTS).logits, german)
    assert torch.equal(tagger(**INPUTS, language=["en", "de", "de"]).logits[0], english[0])
    set_language(tagger, "en")
    assert torch.equal(tagger(**INPUTS).logits, english)
    tagger.save_pretrained(tmp_path)
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert torch.equal(loaded(**INPUTS, language="en").logits, english)
    assert loaded.decode(**INPUTS, language="de") == raw.decode(**INPUTS)


@pytest.mark.numeric
def test_with_a_module_of_mao(tmp_path, float64):
    adapt(make_base(), "pfeiffer transformer", "random").save_pretrained(tmp_path / "adapter")
    tagger = make_tagger()
    names = trained(tagger).keys()
    before = tagger(**INPUTS).logits
    with_alignment(tagger, tmp_path / "adapter")
    after = tagger(**INPUTS).logits
    assert (after - before).abs().max() > 1e-3
    states = adapt(make_base(), "pfeiffer transformer", "random")(**TEXT, output_hidden_states=True)
    assert_rounding(tagger.backbone(**TEXT).last_hidden_state, states.last_hidden_state, 2 * PASS)
    assert trained(tagger.train()).keys() == names
    tagger.eval().save_pretrained(tmp_path / "tagger")
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "tagger")
    assert_rounding(loaded(**INPUTS).logits, after, 2 * PASS)
