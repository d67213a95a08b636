"""MAO's align-matrix: maps as a frozen linear layer on top of an encoder, and before the head of a task model."""

from __future__ import annotations

import pytest
import torch
from peft import PeftModel
from support.adapters import TEXT, make_base, states
from support.families import save_base
from support.maps import by_hand, make_map
from support.numeric import assert_rounding
from transformers import AutoModel, AutoModelForSequenceClassification

import hf_xalign
from hf_xalign.modeling import merge, set_language, with_alignment
from hf_xalign.modeling.xalign.align_matrix import map_adapter

FAMILIES = ("bert", "xlm-roberta", "modernbert")
WIDE = {"dtype": torch.float64}
# A map of 16 dimensions: two products, one to make the offset, and what is added. A head after it: a pooler or dense
# layer, a norm at most, and the classifier.
MAP = 2 * (2 * 16 + 2)
HEAD = MAP + 2 * 2 * 16 + 4 * 16


def wide_base(family="bert"):
    return make_base(family).double()


@torch.no_grad()
def logits(model, **inputs):
    return model(**TEXT, **inputs).logits


def map_weights(model):
    return {name: value.clone() for name, value in model.state_dict().items() if "xalign_top" in name}


@pytest.mark.numeric
@pytest.mark.parametrize("family", FAMILIES)
def test_one_map_for_all_text_or_for_each_language(family):
    raw = states(wide_base(family))
    for centre, layers in ((True, (-1,)), (False, (-1,)), (True, (0, 2, 1))):
        one = make_map(centre=centre, layers=layers, **WIDE)
        model = map_adapter(wide_base(family), one)
        assert_rounding(states(model), by_hand(one, 2 if len(layers) > 1 else -1, raw), MAP)
        assert (states(model) - raw).abs().max() > 0.5
        # A rotation about the origin needs no bias, and has none.
        assert {name.rpartition(".")[2] for name in map_weights(model)} == (
            {"weight", "bias"} if centre else {"weight"}
        )
        assert not [name for name, p in model.named_parameters() if "xalign" in name and p.requires_grad]
        with model.disable_adapter():
            assert torch.equal(states(model), raw)
    # `to` is also the name of a method of modules; the second map alone needs a bias.
    maps = {"en": make_map(centre=False, **WIDE), "to": make_map(1, **WIDE)}
    model = map_adapter(wide_base(family), maps, pivot="de")
    expected = {"de": raw, **{language: by_hand(one, -1, raw) for language, one in maps.items()}}
    mixed = states(model, language=["to", "de", "en"])
    for row, language in enumerate(["to", "de", "en"]):
        set_language(model, language)
        assert_rounding(states(model), expected[language], MAP)
        assert_rounding(mixed[row], expected[language][row], MAP)


@pytest.fixture(params=FAMILIES)
def base(request, tmp_path):
    save_base(request.param, tmp_path / "base")
    return tmp_path / "base"


def make_task(base, **settings):
    torch.manual_seed(3)
    return AutoModelForSequenceClassification.from_pretrained(base, num_labels=3, **settings)


def head_of(model, hidden):
    """Return what the plain model's head makes of other last hidden states."""
    backbone = getattr(model, model.base_model_prefix)

    def replace(module, args, output):
        output["last_hidden_state"] = hidden
        if output.get("pooler_output") is not None:
            output["pooler_output"] = backbone.pooler(hidden)
        return output

    handle = backbone.register_forward_hook(replace)
    try:
        return logits(model)
    finally:
        handle.remove()


@pytest.mark.numeric
def test_between_encoder_and_head(base, tmp_path):
    """A head is trained on mapped English, and serves German as it comes."""
    one = make_map()
    adapter = map_adapter(AutoModel.from_pretrained(base), {"en": one}, pivot="de")
    adapter.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(AutoModel.from_pretrained(base), tmp_path / "adapter").eval()
    for loaded in (again, hf_xalign.load(tmp_path / "adapter")):
        for language in ("en", "de"):
            assert torch.equal(states(loaded, language=language), states(adapter.eval(), language=language))

    plain, model = make_task(base).eval(), with_alignment(make_task(base), tmp_path / "adapter").eval()
    hidden = states(getattr(plain, plain.base_model_prefix))
    for language, wanted in (("en", by_hand(one, -1, hidden)), ("de", hidden)):
        expected = head_of(plain, wanted)
        assert_rounding(logits(model, language=language), expected, HEAD, scale=wanted.abs().max().item())
    assert (logits(model, language="en") - logits(plain)).abs().max() > 1e-3

    model.save_pretrained(tmp_path / "task")
    loaded = hf_xalign.load(tmp_path / "task")
    for language in ("en", "de"):
        assert torch.equal(logits(loaded, language=language), logits(model, language=language))


@pytest.mark.numeric
def test_merged_into_the_head(base):
    one = make_map(**WIDE)
    for language in (None, "en", "de"):
        maps = one if language is None else {"en": one}
        adapter = map_adapter(AutoModel.from_pretrained(base, **WIDE), maps, pivot="de" if language else None)
        # A map with an offset needs a bias in the layer that takes it in; ModernBERT's has one where its config says.
        model = with_alignment(make_task(base, **WIDE), adapter).eval()
        given = {} if language is None else {"language": language}
        expected, scale = logits(model, **given), states(adapter.eval(), **given).abs().max().item()
        merged = merge(model, language=language)
        assert not [name for name in merged.state_dict() if "xalign" in name]
        assert_rounding(logits(merged), expected, HEAD, scale=scale)
