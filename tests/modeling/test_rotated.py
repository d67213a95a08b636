"""Mapped encoders: exactly the maps on exactly the chosen layers, by language, also through a file."""

import copy
import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from support.adapters import TEXT, make_base
from support.families import CONFIGS
from support.maps import LANGUAGES, by_hand, make_map, make_maps, make_rotated, run
from support.numeric import assert_rounding, tolerance
from support.tiny import make_tokenizer
from transformers import AutoModel

import hf_xalign
from hf_xalign.data.encoding import position_limit
from hf_xalign.evaluation.vectors import encode_words
from hf_xalign.modeling import set_language
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.mapped import MappedEncoder

WIDE = {"dtype": torch.float64}
# A map on the tiny encoder's 16 dimensions: two products, one to make the offset, and what is added.
MAP = 2 * (2 * 16 + 2)
# The tiny encoder itself: each of two layers has at most six products in a row (queries or keys, scores, values, the
# way out, and two of up to 32 dimensions) over 16 numbers, a softmax over 9, and two norms of 16.
ENCODER = 2 * (4 * 2 * 16 + 2 * 2 * 32 + 3 * 9 + 2 * 4 * 16)


def test_the_encoder_is_taken_over_bitwise():
    base = make_base()
    before, expected = copy.deepcopy(base.state_dict()), run(base)
    rotated = MappedEncoder.from_maps(base, make_maps(), pivot="de")
    assert rotated.unmapped is base and not rotated.training
    pooler = {name for name in before if name.startswith("pooler")}
    assert pooler and base.state_dict().keys() == before.keys() - pooler
    assert all(torch.equal(before[name], value) for name, value in base.state_dict().items())
    assert torch.equal(run(base).last_hidden_state, expected.last_hidden_state)
    assert not {name for name, _ in rotated.named_parameters() if not name.startswith("unmapped.")}


@pytest.mark.parametrize("family", CONFIGS)
def test_the_chosen_layers_come_out_mapped_and_no_other(family):
    raw = run(make_base(family).double())
    for layers in ((-1,), (2, 1, 0)):
        maps = make_maps(layers, **WIDE)
        rotated = MappedEncoder.from_maps(make_base(family).double(), maps, pivot="de")
        assert rotated.config.layers == sorted(layer % 3 for layer in layers)
        for language in (*LANGUAGES, "de"):
            found = run(rotated, language=language)
            assert len(found.hidden_states) == 3
            assert torch.equal(found.hidden_states[-1], found.last_hidden_state)
            for position, state in enumerate(raw.hidden_states):
                named = [layer for layer in layers if layer % 3 == position]
                if language == "de" or not named:
                    # Layers above a mapped one too: they are fed what they were always fed.
                    assert torch.equal(found.hidden_states[position], state)
                else:
                    assert_rounding(found.hidden_states[position], by_hand(maps[language], named[0], state), MAP)
                    assert (found.hidden_states[position] - state).abs().max() > 0.5
            assert torch.equal(run(rotated, language=language, output_hidden_states=False)[0], found.last_hidden_state)


@pytest.mark.parametrize("family", CONFIGS)
def test_ways_to_ask_for_output(family):
    rotated = make_rotated(family, (1, -1), **WIDE)
    set_language(rotated, "en")
    whole = run(rotated)
    assert torch.equal(run(rotated, output_hidden_states=[1]).hidden_states[1], whole.hidden_states[1])
    assert torch.equal(run(rotated, return_dict=False)[0], whole[0])
    with torch.no_grad():
        assert torch.equal(rotated(TEXT["input_ids"], TEXT["attention_mask"])[0], whole[0])
        embeds = rotated.get_input_embeddings()(TEXT["input_ids"])
        found = rotated(inputs_embeds=embeds, attention_mask=TEXT["attention_mask"])[0]
        assert_rounding(found, whole[0], ENCODER + MAP)
    assert position_limit(rotated.config) == position_limit(rotated.config.encoder_config)
    rotated.config.output_hidden_states = True
    assert torch.equal(run(rotated, **TEXT).hidden_states[1], whole.hidden_states[1])


def test_a_language_for_each_row():
    rotated = make_rotated("bert", (1, 2), **WIDE)
    alone = {language: run(rotated, language=language) for language in (*LANGUAGES, "de")}
    for given in (["to", "de", "en"], torch.tensor([2, 0, 1])):
        found = run(rotated, language=given)
        for layer in range(3):
            for row, language in enumerate(["to", "de", "en"]):
                assert_rounding(found.hidden_states[layer][row], alone[language].hidden_states[layer][row], MAP)
    assert rotated.config.language_numbers == {"en": 1, "to": 2, "de": 0}


def test_said_once_or_for_a_block():
    rotated = make_rotated()
    english, tongan = (run(rotated, language=language)[0] for language in ("en", "to"))
    set_language(rotated, "to")
    assert torch.equal(run(rotated)[0], tongan) and not torch.equal(english, tongan)
    with language_context(rotated, "en"):
        assert torch.equal(run(rotated)[0], english)
    lora = get_peft_model(rotated, LoraConfig(target_modules=["query"]))
    with language_context(lora, "de"):
        assert torch.equal(run(lora)[0], run(make_base())[0])


def test_gradients_pass_the_maps_and_leave_them():
    gradients = []
    for checkpointing in (False, True):
        rotated = make_rotated(layers=(1, 2), **WIDE).train()
        if checkpointing:
            rotated.gradient_checkpointing_enable()
            assert any(getattr(module, "gradient_checkpointing", False) for module in rotated.unmapped.modules())
        maps = copy.deepcopy(rotated.maps.state_dict())
        torch.manual_seed(0)
        output = rotated(**TEXT, language=["en", "to", "de"], output_hidden_states=True)
        (output.hidden_states[1].square().sum() + output.last_hidden_state.square().sum()).backward()
        gradients.append([parameter.grad.clone() for parameter in rotated.parameters()])
        torch.optim.SGD(rotated.parameters(), lr=0.1).step()
        assert all(torch.equal(maps[name], value) for name, value in rotated.maps.state_dict().items())
    for plain, checkpointed in zip(*gradients, strict=True):
        # Forward and back; a gradient is a sum over 3 x 9 places.
        assert_rounding(checkpointed, plain, 3 * (ENCODER + MAP) + 3 * 9, scale=plain.abs().max().item() + 1)


def test_precision():
    for dtype in (torch.bfloat16, torch.float64):
        wide, base = torch.promote_types(dtype, torch.float32), make_base().to(dtype)
        maps, raw = make_maps(dtype=wide), run(base)[0]
        rotated = MappedEncoder.from_maps(base, maps, pivot="de")
        assert rotated.maps.weight.dtype is wide
        found, expected = run(rotated, language="en")[0], by_hand(maps["en"], -1, raw.to(wide))
        assert found.dtype is dtype
        # The map in the wider type, then one rounding.
        bound = tolerance(MAP, expected.abs().max().item(), wide)
        torch.testing.assert_close(found, expected.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=bound)
    mixed, maps = make_rotated(), make_maps()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        raw, found = run(mixed, language="de")[0], run(mixed, language="en")[0]
    # What comes out of the last norm is float32, and so is the map.
    assert found.dtype is raw.dtype is torch.float32
    assert_rounding(found, by_hand(maps["en"], -1, raw), MAP)


def test_evaluation_in_languages():
    tokenizer, one = make_tokenizer(), make_map(3, (1, -1), **WIDE)
    rotated = MappedEncoder.from_maps(make_base().double(), {"de": one}, pivot="en")
    text = "die katze sieht den hund"
    [raw] = encode_words(make_base().double(), tokenizer, text, (0, 1, 2), lang="de")
    [mapped] = encode_words(rotated, tokenizer, text, (0, 1, 2), lang="de")
    # The mean of a word's subwords is mapped as they are, for the map is affine. Vectors come out in float32.
    assert_rounding(mapped.vectors[:, 1:], one.apply(raw.vectors[:, 1:]), MAP)
    assert torch.equal(mapped.vectors[:, 0], raw.vectors[:, 0])
    [plain] = encode_words(rotated, tokenizer, text, (0, 1, 2), lang="en")
    assert torch.equal(plain.vectors, raw.vectors)


@pytest.mark.parametrize("family", CONFIGS)
def test_round_trip(family, tmp_path):
    rotated = make_rotated(family, (0, 1, -1))
    rotated.save_pretrained(tmp_path / "rotated")
    assert {path.name for path in (tmp_path / "rotated").iterdir()} == {"config.json", "model.safetensors"}
    shutil.move(tmp_path / "rotated", tmp_path / "moved")
    for loaded in (AutoModel.from_pretrained(tmp_path / "moved"), hf_xalign.load(tmp_path / "moved")):
        assert type(loaded) is MappedEncoder and not loaded.training
        assert loaded.config.layers == [0, 1, 2] and loaded.config.pivot == "de"
        assert loaded.state_dict().keys() == rotated.state_dict().keys()
        for language in ("en", "de", ["to", "en", "de"]):
            expected, found = run(rotated, language=language), run(loaded, language=language)
            assert all(map(torch.equal, found.hidden_states, expected.hidden_states))
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    assert config["model_type"] == "xalign-mapped" and config["encoder_config"]["model_type"] == family
    assert config["languages"] == ["en", "to"] and str(tmp_path) not in json.dumps(config)
