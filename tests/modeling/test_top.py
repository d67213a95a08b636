"""The modules on top against slow references, the view by words, and languages."""

import torch
from support.adapters import SPANS, TEXT, adapt, make_base, pooled_by_hand, states
from support.families import PASS
from support.maps import by_hand, make_map
from support.numeric import assert_rounding

from hf_xalign.modeling import set_language
from hf_xalign.modeling.pooling import pool_spans
from hf_xalign.modeling.xalign.linear import map_adapter

MASK = SPANS[..., 1] > SPANS[..., 0]


def test_word_spans_are_the_module_over_word_vectors(subtests, float64):
    for kind, pooling in (("languages", "last"), ("transformer", "mean"), ("no context", "first")):
        with subtests.test(kind):
            model = adapt(make_base(), kind, "random", pooling=pooling)
            words = states(model, word_spans=SPANS)
            with model.disable_adapter():
                hidden = states(model)
                frozen = states(model, word_spans=SPANS)
            assert_rounding(frozen, pooled_by_hand(hidden, SPANS, pooling), PASS)
            assert words.shape == (3, 3, 16) and words.isfinite().all()
            module = model.base_model.model.xalign.xalign_top["default"]
            for row in range(2):
                expected = module(frozen[row : row + 1][:, MASK[row]], None, torch.tensor([1]))
                assert_rounding(words[row][MASK[row]], expected[0], PASS)
            with torch.no_grad():
                given = model(word_vectors=frozen, word_mask=MASK).last_hidden_state
                assert torch.equal(model(**TEXT, word_spans=SPANS, return_dict=False)[0], words)
            assert_rounding(given[MASK], words[MASK], PASS)


def test_padding_that_is_no_number_stays_out_of_the_means():
    hidden, inside = torch.randn(3, 9, 16), TEXT["attention_mask"].bool().unsqueeze(-1)
    noisy = torch.where(inside, hidden, torch.nan)
    assert torch.equal(pool_spans(noisy, SPANS, "mean"), pool_spans(hidden, SPANS, "mean"))


def test_padding_of_the_plain_forward(float64):
    model = adapt(make_base(), "transformer", "random")
    out = states(model)
    for row, length in enumerate((9, 6, 4)):
        alone = {name: value[row : row + 1, :length] for name, value in TEXT.items()}
        assert_rounding(out[row, :length], states(model, **alone)[0], PASS)
    four = TEXT["attention_mask"][:, None, None, :].expand(-1, 1, 9, -1)
    linear = adapt(make_base(), "linear", "random")
    assert_rounding(states(linear, attention_mask=four.bool())[0], states(linear)[0], PASS)


def test_ways_to_say_the_language(float64):
    model = adapt(make_base(), "languages", "random")
    set_language(model, None)
    with model.disable_adapter():
        untouched = states(model)
    assert torch.equal(states(model, language="en"), untouched)
    german, tongan = states(model, language="de"), states(model, language="to")
    assert (german - tongan).abs().max() > 1e-3 and (german - untouched).abs().max() > 1e-3
    mixed = torch.stack([tongan[0], untouched[1], german[2]])
    for language in (["to", "en", "de"], torch.tensor([2, 0, 1])):
        assert_rounding(states(model, language=language), mixed, PASS)
    set_language(model, "to")
    assert torch.equal(states(model), tongan)
    assert torch.equal(states(model, language="de"), german)
    vectors = torch.randn(3, 2, 16)
    with torch.no_grad():
        assert torch.equal(model(word_vectors=vectors, language=["en"] * 3).last_hidden_state, vectors)


# A map of 16 dimensions: two products, one to make the offset, and what is added.
MAP = 2 * (2 * 16 + 2)


def test_a_map_as_an_adapter_for_all_text(float64):
    raw = states(make_base())
    for center in (True, False):
        one = make_map(center=center, dtype=torch.float64)
        model = map_adapter(make_base(), one)
        assert_rounding(states(model), by_hand(one, -1, raw), MAP)
        assert (states(model) - raw).abs().max() > 0.5
        # A rotation about the origin needs no bias, and has none.
        weights = {name.rpartition(".")[2] for name in model.state_dict() if "xalign_top" in name}
        assert weights == ({"weight", "bias"} if center else {"weight"})
        assert not [name for name, p in model.named_parameters() if "xalign" in name and p.requires_grad]
        with model.disable_adapter():
            assert torch.equal(states(model), raw)
