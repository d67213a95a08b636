"""Adapters of maps: exactly the maps on exactly the chosen layers, by language, also through a file."""

import pytest
import torch
from peft import PeftModel
from support.adapters import make_base
from support.families import CONFIGS, by_tier, save_base
from support.maps import LANGUAGES, by_hand, make_maps, make_rotated, run
from support.numeric import assert_rounding
from transformers import AutoModel

import hf_xalign
from hf_xalign.modeling.xalign.linear import map_adapter

WIDE = {"dtype": torch.float64}
# A map on the tiny encoder's 16 dimensions: two products, one to make the offset, and what is added.
MAP = 2 * (2 * 16 + 2)


@pytest.mark.parametrize("family", by_tier(CONFIGS))
def test_the_chosen_layers_come_out_mapped_and_no_other(family):
    raw = run(make_base(family).double())
    for layers in ((-1,), (1,), (2, 1, 0)):
        maps = make_maps(layers, **WIDE)
        mapped = make_rotated(family, layers, **WIDE)
        assert not [name for name, p in mapped.named_parameters() if "xalign" in name and p.requires_grad]
        for language in (*LANGUAGES, "de"):
            found = run(mapped, language=language)
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
            assert torch.equal(run(mapped, language=language, output_hidden_states=False)[0], found.last_hidden_state)
            tuples = run(mapped, language=language, return_dict=False)
            [states] = [part for part in tuples if isinstance(part, tuple)]
            assert all(map(torch.equal, states, found.hidden_states))
        with mapped.disable_adapter():
            assert all(map(torch.equal, run(mapped).hidden_states, raw.hidden_states))


def test_round_trip(tmp_path):
    save_base("bert", tmp_path / "base")
    base = AutoModel.from_pretrained(tmp_path / "base", add_pooling_layer=False)
    mapped = map_adapter(base, make_maps((0, 1, -1))).eval()
    mapped.save_pretrained(tmp_path / "mapped")
    loaded = hf_xalign.load(tmp_path / "mapped")
    assert isinstance(loaded, PeftModel) and not loaded.training
    for found in (loaded, AutoModel.from_pretrained(tmp_path / "mapped")):
        for language in ("en", "de", ["to", "en", "de"]):
            assert all(
                map(torch.equal, run(found, language=language).hidden_states, run(mapped, language=language)[1])
            )
