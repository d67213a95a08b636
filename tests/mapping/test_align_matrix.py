"""MAO's align-matrix: maps as a frozen linear layer on top of an encoder, and before the head of a task model."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from peft import PeftModel, get_peft_model
from support.adapters import TEXT, close, make_base, states
from support.families import save_base
from support.maps import by_hand, make_map, make_rotated
from support.tiny import make_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.evaluation.vectors import encode_words
from hf_xalign.mapping.align_matrix import map_adapter
from hf_xalign.mapping.maps import LanguageMap, SideMap
from hf_xalign.modeling import XAlignConfig, merge, set_language, with_alignment

some_families = pytest.mark.parametrize("family", ["bert", "xlm-roberta", "modernbert"])


@torch.no_grad()
def logits(model, **inputs):
    return model(**TEXT, **inputs).logits


def map_weights(model):
    return {name: value.clone() for name, value in model.state_dict().items() if "xalign_top" in name}


@some_families
@pytest.mark.parametrize("centre", [True, False])
def test_one_map_for_all_text(family, centre):
    one = make_map(centre=centre)
    raw = states(make_base(family))
    model = map_adapter(make_base(family), one)
    close(states(model), by_hand(one, -1, raw), 1e-5)
    assert (states(model) - raw).abs().max() > 0.5
    # A rotation about the origin needs no bias, and has none.
    assert {name.rpartition(".")[2] for name in map_weights(model)} == ({"weight", "bias"} if centre else {"weight"})
    assert not [name for name, p in model.named_parameters() if "xalign" in name and p.requires_grad]
    with model.disable_adapter():
        assert torch.equal(states(model), raw)


@some_families
def test_a_map_for_each_language(family):
    # `to` is also the name of a method of modules; the second map alone needs a bias.
    maps = {"en": make_map(centre=False), "to": make_map(1)}
    raw = states(make_base(family))
    model = map_adapter(make_base(family), maps, pivot="de")
    expected = {"de": raw, **{language: by_hand(one, -1, raw) for language, one in maps.items()}}
    for language, wanted in expected.items():
        set_language(model, language)
        close(states(model), wanted, 1e-5)
    mixed = states(model, language=["to", "de", "en"])
    for row, language in enumerate(["to", "de", "en"]):
        close(mixed[row], expected[language][row], 1e-5)
    with pytest.raises(InputError, match="language='fr'"):
        set_language(model, "fr")


def test_a_map_of_several_layers_gives_its_last():
    one = make_map(layers=(0, 2, 1))
    expected = by_hand(one, 2, states(make_base()))
    close(states(map_adapter(make_base(), one)), expected, 1e-5)
    two_sides = LanguageMap(one.of([2]).source, make_map(3).source, layers=(2,))
    close(states(map_adapter(make_base(), two_sides)), by_hand(two_sides, 2, states(make_base())), 1e-5)


def test_evaluation_goes_through_the_map():
    one, text = make_map(), "die katze sieht den hund"
    model = map_adapter(make_base(), {"de": one}, pivot="en")
    [raw] = encode_words(make_base(), make_tokenizer(), text, lang="de")
    [mapped] = encode_words(model, make_tokenizer(), text, lang="de")
    close(mapped.vectors, one.apply(raw.vectors), 1e-5)
    assert torch.equal(encode_words(model, make_tokenizer(), text, lang="en")[0].vectors, raw.vectors)


@pytest.fixture(params=["bert", "xlm-roberta", "modernbert"])
def base(request, tmp_path):
    save_base(request.param, tmp_path / "base")
    return tmp_path / "base"


def test_saved_as_any_adapter(base, tmp_path):
    model = map_adapter(AutoModel.from_pretrained(base), {"en": make_map()}, pivot="de")
    model.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(AutoModel.from_pretrained(base), tmp_path / "adapter").eval()
    for loaded in (again, hf_xalign.load(tmp_path / "adapter")):
        for language in ("en", "de"):
            assert torch.equal(states(loaded, language=language), states(model.eval(), language=language))


def test_between_encoder_and_head(base, tmp_path):
    """A head is trained on mapped English, and serves German as it comes."""
    one = make_map()
    map_adapter(AutoModel.from_pretrained(base), {"en": one}, pivot="de").save_pretrained(tmp_path / "adapter")
    torch.manual_seed(3)
    plain = AutoModelForSequenceClassification.from_pretrained(base, num_labels=3).eval()
    torch.manual_seed(3)
    model = with_alignment(
        AutoModelForSequenceClassification.from_pretrained(base, num_labels=3), tmp_path / "adapter"
    ).eval()

    def head_of(model, hidden):
        """What the plain model's head makes of other last hidden states."""
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

    hidden = states(getattr(plain, plain.base_model_prefix))
    for language, wanted in (("en", by_hand(one, -1, hidden)), ("de", hidden)):
        close(logits(model, language=language), head_of(plain, wanted), 1e-5)
    close(logits(model, language="de"), logits(plain))
    assert (logits(model, language="en") - logits(plain)).abs().max() > 1e-3

    frozen, before = map_weights(model), logits(model, language="en")
    head = {name: p.clone() for name, p in model.named_parameters() if name.startswith(("classifier", "head"))}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    set_language(model, "en")
    model.train()
    model(**TEXT, labels=torch.tensor([0, 1, 2])).loss.backward()
    optimizer.step()
    model.eval()
    assert map_weights(model).keys() == frozen.keys()
    assert all(torch.equal(frozen[name], value) for name, value in map_weights(model).items())
    assert all(not torch.equal(value, dict(model.named_parameters())[name]) for name, value in head.items())
    trained = {language: logits(model, language=language) for language in ("en", "de")}
    assert not torch.equal(trained["en"], before)

    model.save_pretrained(tmp_path / "task")
    loaded = hf_xalign.load(tmp_path / "task")
    for language, wanted in trained.items():
        assert torch.equal(logits(loaded, language=language), wanted)


@pytest.mark.parametrize("language", [None, "en", "de"])
def test_merged_into_the_head(base, language):
    one = make_map()
    adapter = map_adapter(
        AutoModel.from_pretrained(base), one if language is None else {"en": one}, pivot="de" if language else None
    )
    torch.manual_seed(3)
    task = AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    # A map with an offset needs a bias in the layer that takes it in; ModernBERT's has one where its config says so.
    model = with_alignment(task, adapter).eval()
    expected = logits(model, **({} if language is None else {"language": language}))
    merged = merge(model, language=language)
    assert not [name for name in merged.state_dict() if "xalign" in name]
    close(logits(merged), expected, 1e-5)


@pytest.mark.slow
def test_in_a_fresh_process(tmp_path):
    base = tmp_path / "base"
    save_base("bert", base)
    adapter = map_adapter(AutoModel.from_pretrained(base), {"en": make_map()}, pivot="de")
    adapter.save_pretrained(tmp_path / "adapter")
    task = AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    task = with_alignment(task, tmp_path / "adapter").eval()
    task.save_pretrained(tmp_path / "task")
    expected = {
        str(tmp_path / "adapter"): states(adapter.eval(), language="en"),
        str(tmp_path / "task"): logits(task, language="en"),
    }
    torch.save((TEXT, expected), tmp_path / "expected.pt")
    script = (
        "import sys, torch, hf_xalign\n"
        "text, expected = torch.load(sys.argv[1])\n"
        "for folder, wanted in expected.items():\n"
        "    with torch.no_grad():\n"
        "        found = hf_xalign.load(folder)(**text, language='en')[0]\n"
        "    assert torch.equal(found, wanted), folder\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "expected.pt")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_refused():
    def refuse(maps, message, **settings):
        encoder = make_base()
        with pytest.raises(InputError, match=message):
            map_adapter(encoder, maps, **settings)
        assert not [name for name in encoder.state_dict() if "xalign" in name]

    refuse(make_map(layers=(0, 1)), r"maps is of layers \[0, 1\]: the one that a head reads is the last")
    refuse({"en": make_map(layers=(5,))}, r"maps\['en'\]: layers \[5\]")
    refuse(LanguageMap(SideMap(torch.eye(8)[None])), "8 dimensions to 8, and BertModel has 16")
    refuse(LanguageMap(SideMap(torch.eye(16)[None], None, ("unit",))), "divides vectors by their length")
    refuse(make_map(), "one map alone is for all text", pivot="de")
    refuse({"en": make_map()}, "pivot=en", pivot="en")
    refuse({}, "no maps")


def test_encoders_that_do_not_fit():
    adapted = get_peft_model(make_base(), XAlignConfig())
    task = make_base(auto_class=AutoModelForSequenceClassification)
    for encoder, message in [
        (adapted, "PeftModel.*without adapters"),
        (adapted.get_base_model(), "without adapters"),
        (make_rotated(), "has maps already"),
        (task, "has a task head"),
    ]:
        with pytest.raises(InputError, match=message):
            map_adapter(encoder, make_map())
