"""Mapped encoders: exactly the maps on exactly the chosen layers, by language; and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from support.adapters import TEXT, close, make_base
from support.families import CONFIGS
from support.maps import LANGUAGES, by_hand, make_map, make_maps, make_rotated, run
from support.tiny import make_links, make_multilingual_encoder, make_tokenizer
from transformers import AutoModelForSequenceClassification

from hf_xalign.errors import InputError
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.evaluation.vectors import encode_sentences, encode_words
from hf_xalign.mapping.maps import LanguageMap, SideMap
from hf_xalign.mapping.rotated import RotatedModel
from hf_xalign.modeling import XAlignConfig, set_language
from hf_xalign.modeling.limits import position_limit
from hf_xalign.modeling.tuner import speaking
from hf_xalign.modeling.word_vectors import extract_word_vectors

every_family = pytest.mark.parametrize("family", CONFIGS)
some_families = pytest.mark.parametrize("family", ["bert", "xlm-roberta", "modernbert"])


def test_the_encoder_is_taken_over_bitwise():
    base = make_base()
    before, expected = copy.deepcopy(base.state_dict()), run(base)
    rotated = RotatedModel.from_maps(base, make_maps(), pivot="de")
    assert rotated.unmapped is base and not rotated.training
    pooler = {name for name in before if name.startswith("pooler")}
    assert pooler and base.state_dict().keys() == before.keys() - pooler
    assert all(torch.equal(before[name], value) for name, value in base.state_dict().items())
    assert torch.equal(run(base).last_hidden_state, expected.last_hidden_state)
    assert not {name for name, _ in rotated.named_parameters() if not name.startswith("unmapped.")}


@every_family
@pytest.mark.parametrize("layers", [(-1,), (-2,), (0, -1), (2, 1, 0)], ids=str)
def test_the_chosen_layers_come_out_mapped_and_no_other(family, layers):
    raw = run(make_base(family))
    maps = make_maps(layers)
    rotated = RotatedModel.from_maps(make_base(family), maps, pivot="de")
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
                close(found.hidden_states[position], by_hand(maps[language], named[0], state), 1e-5)
                assert (found.hidden_states[position] - state).abs().max() > 0.5
        assert torch.equal(run(rotated, language=language, output_hidden_states=False)[0], found.last_hidden_state)


@some_families
def test_a_language_for_each_row(family):
    rotated = make_rotated(family, (1, 2))
    alone = {language: run(rotated, language=language) for language in (*LANGUAGES, "de")}
    for given in (["to", "de", "en"], torch.tensor([2, 0, 1])):
        found = run(rotated, language=given)
        for layer in range(3):
            for row, language in enumerate(["to", "de", "en"]):
                close(found.hidden_states[layer][row], alone[language].hidden_states[layer][row])
    assert rotated.config.language_numbers == {"en": 1, "to": 2, "de": 0}
    assert torch.equal(run(rotated, language=["de"] * 3)[0], alone["de"][0])


@every_family
def test_ways_to_ask_for_output(family):
    rotated = make_rotated(family, (1, -1))
    set_language(rotated, "en")
    whole = run(rotated)
    chosen = run(rotated, output_hidden_states=[1])
    assert torch.equal(chosen.hidden_states[1], whole.hidden_states[1])
    assert torch.equal(chosen.last_hidden_state, whole.last_hidden_state)
    plain = run(rotated, return_dict=False)
    assert torch.equal(plain[0], whole[0])
    assert all(map(torch.equal, plain[1], whole.hidden_states))
    with torch.no_grad():
        assert torch.equal(rotated(TEXT["input_ids"], TEXT["attention_mask"])[0], whole[0])
        embeds = rotated.get_input_embeddings()(TEXT["input_ids"])
        close(rotated(inputs_embeds=embeds, attention_mask=TEXT["attention_mask"])[0], whole[0])
    with torch.inference_mode():
        assert torch.equal(rotated(**TEXT)[0], whole[0])
    rotated.config.output_hidden_states = True
    assert torch.equal(run(rotated, **TEXT).hidden_states[1], whole.hidden_states[1])


def test_said_once_or_for_a_block():
    rotated = make_rotated()
    with pytest.raises(InputError, match=r"set_language\(model, 'en'\) or language=... \(en, to, de\)"):
        run(rotated)
    set_language(rotated, "to")
    assert torch.equal(run(rotated)[0], run(rotated, language="to")[0])
    assert not torch.equal(run(rotated)[0], run(rotated, language="en")[0])
    with speaking(rotated, "en"):
        assert torch.equal(run(rotated)[0], run(rotated, language="en")[0])
    with speaking(rotated, None):
        assert torch.equal(run(rotated)[0], run(rotated, language="to")[0])
    set_language(rotated, None)
    with pytest.raises(InputError, match="say which one"):
        run(rotated)
    with pytest.raises(InputError, match="no maps for single languages"):
        set_language(make_base(), "en")
    lora = get_peft_model(rotated, LoraConfig(target_modules=["query"]))
    with speaking(lora, "de"):
        assert torch.equal(run(lora)[0], run(make_base())[0])


def test_gradients_pass_the_maps_and_leave_them():
    rotated = make_rotated(layers=(1, 2)).train()
    maps = copy.deepcopy(rotated.maps.state_dict())
    optimizer = torch.optim.SGD(rotated.parameters(), lr=0.1)
    output = rotated(**TEXT, language=["en", "to", "de"], output_hidden_states=True)
    (output.hidden_states[1].square().sum() + output.last_hidden_state.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in rotated.parameters())
    optimizer.step()
    assert all(torch.equal(maps[name], value) for name, value in rotated.maps.state_dict().items())


def test_gradient_checkpointing():
    gradients = []
    for checkpointing in (False, True):
        rotated = make_rotated(layers=(1, 2)).train()
        if checkpointing:
            rotated.gradient_checkpointing_enable()
            assert any(getattr(module, "gradient_checkpointing", False) for module in rotated.unmapped.modules())
        torch.manual_seed(0)
        output = rotated(**TEXT, language="en", output_hidden_states=True)
        (output.hidden_states[1].sum() * output.last_hidden_state.square().sum()).backward()
        gradients.append([parameter.grad for parameter in rotated.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        close(plain, checkpointed, 1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_precision(dtype):
    maps = make_maps()
    base = make_base().to(dtype)
    raw = run(base)[0]
    rotated = RotatedModel.from_maps(base, maps, pivot="de")
    assert rotated.maps.weight.dtype is torch.promote_types(dtype, torch.float32)
    found = run(rotated, language="en")[0]
    assert found.dtype is dtype
    wide = torch.promote_types(dtype, torch.float32)
    expected = by_hand(maps["en"], -1, raw.to(wide))
    torch.testing.assert_close(found, expected.to(dtype), rtol=1e-6, atol=1e-6)
    mixed = make_rotated()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        raw, found = run(mixed, language="de")[0], run(mixed, language="en")[0]
    close(found.float(), by_hand(maps["en"], -1, raw.float()).to(raw.dtype).float())


# --- evaluation ------------------------------------------------------------------------------------------------------


@every_family
def test_evaluation_sees_an_encoder(family):
    base, rotated = make_base(family), make_rotated(family)
    assert rotated.config.hidden_size == 16 and rotated.config.num_hidden_layers == 2
    assert position_limit(rotated.config) == position_limit(base.config)
    # One token more is out of range.
    limit = position_limit(rotated.config)
    assert (
        run(rotated, input_ids=torch.ones(1, limit).long() * 7, attention_mask=None, language="en")[0].shape[1]
        == limit
    )


def test_evaluation_in_languages():
    tokenizer = make_tokenizer()
    maps = {"de": make_map(3, (1, -1))}
    rotated = RotatedModel.from_maps(make_base(), maps, pivot="en")
    text, words = "die katze sieht den hund", [["die", "katze", "sieht", "den", "hund"]]
    [raw] = encode_words(make_base(), tokenizer, text, (0, 1, 2), lang="de")
    [mapped] = encode_words(rotated, tokenizer, text, (0, 1, 2), lang="de")
    # The mean of a word's subwords is mapped as they are, for the map is affine.
    close(mapped.vectors[:, 1:], maps["de"].apply(raw.vectors[:, 1:]), 1e-5)
    assert torch.equal(mapped.vectors[:, 0], raw.vectors[:, 0])
    [plain] = encode_words(rotated, tokenizer, text, (0, 1, 2), lang="en")
    assert torch.equal(plain.vectors, raw.vectors)
    with pytest.raises(InputError, match="language='fr': this encoder has maps for de, en"):
        encode_words(rotated, tokenizer, text, lang="fr")
    set_language(rotated, "de")
    found = extract_word_vectors(rotated, tokenizer, words, layers=(1, 2))
    close(found.vectors, mapped.vectors[:, 1:])
    of_german = encode_sentences(rotated, tokenizer, text)
    assert torch.equal(encode_sentences(rotated, tokenizer, text, lang="de"), of_german)
    assert not torch.allclose(encode_sentences(rotated, tokenizer, text, lang="en"), of_german, atol=1e-2)


@pytest.mark.parametrize("layer", [1, -1])
def test_retrieval_is_that_of_mapped_vectors(layer):
    tokenizer, links, one = make_tokenizer(), make_links(), make_map(5, (layer,))
    sides = [
        extract_word_vectors(make_base(), tokenizer, links[f"{side}_words"][:], layers=(layer,))
        for side in ("source", "target")
    ]
    pairs = [
        [i + int(sides[0].offsets[row]), j + int(sides[1].offsets[row])]
        for row, own in enumerate(links["links"])
        for i, j in own
    ]
    expected = word_retrieval(one.apply(sides[0].vectors)[:, 0], sides[1].vectors[:, 0], torch.tensor(pairs))
    rotated = RotatedModel.from_maps(make_base(), {"de": one}, pivot="en")
    found = score_retrieval(rotated, tokenizer, links, layer=layer)["de"]
    assert found["retrieval_mean"] == expected["mean"]
    assert found["retrieval_mean_to_pivot"] == expected["source_to_target"]
    assert (
        found["retrieval_mean"] != score_retrieval(make_base(), tokenizer, links, layer=layer)["de"]["retrieval_mean"]
    )


# --- refusals --------------------------------------------------------------------------------------------------------


def refuse(maps, message, encoder=None, **settings):
    with pytest.raises(InputError, match=message):
        RotatedModel.from_maps(make_base() if encoder is None else encoder, maps, **settings)


def test_maps_that_do_not_fit():
    refuse({"en": make_map(size=8)}, r"maps\['en'\] maps 8 dimensions to 8, and BertModel has 16")
    wide = LanguageMap(SideMap(torch.randn(1, 16, 8)))
    refuse({"en": wide}, "8 dimensions to 16")
    refuse({"en": make_map(layers=(3,))}, r"maps\['en'\]: layers \[3\]: this encoder has layers 0 .* to 2")
    refuse({"en": make_map(layers=(-1, 2))}, "name each layer once")
    lengths = LanguageMap(SideMap(torch.eye(16)[None], None, ("unit",)))
    refuse({"en": make_map(), "fr": lengths}, r"maps\['fr'\]: this map divides vectors by their length")
    refuse({"en": make_map(), "fr": make_map(layers=(1,))}, r"layers \[2\] and of layers \[1\]")
    refuse({}, "no maps")


def test_a_map_with_two_sides_is_one():
    source, target = make_map(1), make_map(2)
    both = LanguageMap(source.source, target.source)
    rotated = RotatedModel.from_maps(make_base(), {"en": both}, pivot="de")
    close(run(rotated, language="en")[0], by_hand(both, -1, run(make_base())[0]), 1e-5)
    # Compared in a space of another size, they still lead from the encoder's own to its own.
    onto = LanguageMap(SideMap(torch.randn(1, 8, 16)), SideMap(torch.randn(1, 8, 16)))
    refuse({"en": onto}, "no inverse")


def test_languages_that_do_not_fit():
    refuse({"en": make_map(source_lang="de", target_lang="en")}, r"maps\['en'\] takes de to en.*inverse\(\)")
    refuse({"en": make_map(target_lang="de"), "fr": make_map(target_lang="es")}, "lead to de and es")
    refuse({"en": make_map(target_lang="de")}, "lead to bn and de", pivot="bn")
    refuse(make_maps(), "pivot=en comes out as it is", pivot="en")
    refuse({"de": make_map(target_lang="en"), "en": make_map()}, "pivot=en comes out as it is")
    known = RotatedModel.from_maps(make_base(), {"en": make_map(source_lang="en", target_lang="de")})
    assert known.config.pivot == "de"
    for bad, message in [
        ("fr", "language='fr': this encoder has maps for en, de"),
        (["en", "de", "fr"], "language='fr'"),
        (["en", "de"], "2 languages for 3 rows"),
        (torch.tensor([0, 1, 2]), "number 2; the numbers are {'en': 1, 'de': 0}"),
        (torch.tensor([0, 1, -1]), "number -1"),
        (torch.tensor([[0, 1, 1]]), r"shape \(1, 3\) for 3 rows"),
    ]:
        with pytest.raises(InputError, match=message):
            run(known, language=bad)
    with pytest.raises(InputError, match="language='fr'"):
        set_language(known, "fr")
    unpivoted = make_rotated(pivot=None)
    with pytest.raises(InputError, match="number 0"):
        run(unpivoted, language=torch.tensor([1, 2, 0]))


def test_encoders_that_do_not_fit():
    one = {"en": make_map()}
    refuse(one, "has maps already", encoder=make_rotated())
    refuse(one, "a mapped encoder would take every text for en", encoder=make_multilingual_encoder())
    refuse(one, "has a task head", encoder=make_base(auto_class=AutoModelForSequenceClassification))
    adapted = get_peft_model(make_base(), XAlignConfig())
    refuse(one, "without adapters", encoder=adapted)
    refuse(one, "without adapters", encoder=adapted.get_base_model())
    # MAO's modules would go below the maps.
    with pytest.raises(InputError, match="no stack of layers"):
        get_peft_model(make_rotated(), XAlignConfig())
