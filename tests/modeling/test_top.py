"""The modules on top against slow references, the view by words, and languages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.adapters import SPANS, TEXT, adapt, close, make_base, make_config, states

from hf_xalign.errors import InputError
from hf_xalign.modeling import set_language
from hf_xalign.modeling.pooling import pool_spans, pool_words, word_token_index
from hf_xalign.modeling.top import LinearTop, Rotation, TransformerTop
from hf_xalign.modeling.tuner import find_top

POOLINGS = ("first", "last", "mean")


def pooled_by_hand(hidden, spans, pooling):
    words = torch.zeros(*spans.shape[:2], hidden.shape[-1])
    for row, sentence in enumerate(spans.tolist()):
        for word, (start, end) in enumerate(sentence):
            if end > start:
                tokens = hidden[row, start:end]
                words[row, word] = {"first": tokens[0], "last": tokens[-1], "mean": sum(tokens) / len(tokens)}[pooling]
    return words


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pool_spans(pooling):
    hidden = torch.randn(3, 9, 16)
    words = pool_spans(hidden, SPANS, pooling)
    close(words, pooled_by_hand(hidden, SPANS, pooling))
    rows, places = torch.nonzero(SPANS[..., 1] > SPANS[..., 0], as_tuple=True)
    index = word_token_index(SPANS[rows, places].numpy(), np.asarray(rows), 9, pooling)
    close(words[rows, places], pool_words(hidden, index))
    assert pool_spans(hidden.to(torch.bfloat16), SPANS, pooling).dtype == torch.float32


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pool_spans_keeps_out_padding_that_is_not_finite(pooling):
    hidden = torch.randn(3, 9, 16)
    expected = pool_spans(hidden, SPANS, pooling)
    hidden[0, 0], hidden[1, 6:], hidden[2] = float("nan"), float("inf"), float("nan")
    assert torch.equal(pool_spans(hidden, SPANS, pooling), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    top = LinearTop(5, identity=False, bias=bias, orthogonal=False)
    vectors = torch.randn(2, 3, 5)
    out = top(vectors)
    for row in range(2):
        for word in range(3):
            expected = top.shared.weight @ vectors[row, word]
            close(out[row, word], expected + top.shared.bias if bias else expected)


@pytest.mark.parametrize("identity", [True, False])
def test_rotation_stays_orthogonal(identity):
    torch.manual_seed(0)
    rotation = Rotation(12, identity=identity)
    optimizer = torch.optim.Adam(rotation.parameters(), lr=0.05)
    x, wanted = torch.randn(40, 12), torch.randn(40, 12)
    start = rotation.matrix().detach()
    for _ in range(100):
        loss = (rotation(x) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    matrix = rotation.matrix()
    assert (matrix - start).abs().max() > 0.1
    close(matrix @ matrix.T, torch.eye(12), 1e-5)
    close(rotation(x).norm(dim=1), x.norm(dim=1), 1e-5)


def test_rotation_under_autocast_and_in_bfloat16():
    model = adapt(make_base(), "rotation", "random")
    vectors = torch.randn(2, 3, 16)
    with torch.autocast("cpu", torch.bfloat16):
        rotated = model(word_vectors=vectors).last_hidden_state
    assert rotated.dtype == torch.float32
    close(rotated.norm(dim=-1), vectors.norm(dim=-1), 1e-5)
    half = Rotation(16, identity=False).to(torch.bfloat16).matrix()
    close(half @ half.T, torch.eye(16), 1e-5)


def test_a_map_for_each_language():
    top = LinearTop(5, identity=False, bias=True, orthogonal=False, languages=["de", "to"])
    vectors = torch.randn(4, 3, 5)
    rows = torch.tensor([2, 0, 1, 2])
    words = torch.tensor([[0, 1, 2], [2, 2, 0], [1, 0, 1], [0, 0, 0]])
    maps = [torch.nn.Identity(), top.map_de, top.map_to]
    by_row, by_word = top(vectors, language=rows), top(vectors, language=words)
    for row in range(4):
        for word in range(3):
            close(by_row[row, word], maps[rows[row]](vectors[row, word]))
            close(by_word[row, word], maps[words[row, word]](vectors[row, word]))
    with pytest.raises(InputError, match="no language given"):
        top(vectors)


def transformer(**settings):
    return TransformerTop(
        16, **{"num_heads": 2, "feedforward_size": 24, "dropout": 0.0, "context": True, "identity": False, **settings}
    ).eval()


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("training", [True, False])  # PyTorch's fused layer in inference is another code path
def test_transformer_sees_its_own_sentence_only(identity, training):
    top = transformer(identity=identity).train(training)
    if identity:
        torch.nn.init.normal_(top.gate)
    vectors, lengths = torch.randn(3, 5, 16), [5, 2, 0]
    mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
    with torch.set_grad_enabled(training):
        out = top(vectors, mask)
        for row, length in enumerate(lengths[:2]):
            alone = top.layer(vectors[row : row + 1, :length])[0]
            x = vectors[row, :length]
            close(out[row, :length], x + top.gate * (alone - x) if identity else alone, 1e-5)
    assert out.isfinite().all()
    assert not torch.allclose(out[0], transformer(context=False)(vectors)[0])


def test_transformer_without_context_sees_one_vector():
    top = transformer(context=False)
    vectors = torch.randn(2, 4, 16)
    out = top(vectors, torch.tensor([[True] * 4, [True, False, False, False]]))
    for row in range(2):
        for word in range(4):
            close(out[row, word], top.layer(vectors[row, word].view(1, 1, 16))[0, 0], 1e-5)


def by_words(kind, pooling, **inputs):
    model = adapt(make_base(), kind, "random", pooling=pooling)
    return model, states(model, word_spans=SPANS, **inputs)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["linear", "rotation", "languages", "transformer", "no context"])
def test_word_spans_are_the_module_over_word_vectors(kind, pooling):
    model, words = by_words(kind, pooling)
    with model.disable_adapter():
        hidden = states(model)
        frozen = states(model, word_spans=SPANS)
    close(frozen, pooled_by_hand(hidden, SPANS, pooling))
    mask = SPANS[..., 1] > SPANS[..., 0]
    assert words.shape == (3, 3, 16) and words.isfinite().all()
    module = model.base_model.model.xalign.xalign_top["default"]
    for row in range(2):
        expected = module(frozen[row : row + 1][:, mask[row]], None, torch.tensor([1]))
        close(words[row][mask[row]], expected[0].detach(), 1e-5)
    with torch.no_grad():
        given = model(word_vectors=frozen, word_mask=mask).last_hidden_state
    close(given[mask], words[mask])


@pytest.mark.parametrize("kind", ["adapterhub linear", "pfeiffer transformer"])
def test_word_spans_with_modules_inside(kind):
    model, words = by_words(kind, "mean")
    top = find_top(model)
    top.enable_adapters(False)
    hidden = states(model)
    top.enable_adapters(True)
    mask = SPANS[..., 1] > SPANS[..., 0]
    with torch.no_grad():
        expected = top.transform(pooled_by_hand(hidden, SPANS, "mean"), mask)
    close(words, expected)
    assert words.isfinite().all()


def test_word_spans_with_nothing_on_top():
    model, words = by_words("houlsby", "mean")
    close(words, pooled_by_hand(states(model), SPANS, "mean"))
    with pytest.raises(InputError, match="no module on top"):
        model(word_vectors=words)


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert", "distilbert"])
def test_word_spans_in_all_forms_of_output(family):
    model = adapt(make_base(family), "linear", "random")
    words = states(model, word_spans=SPANS)
    with torch.no_grad():
        assert torch.equal(model(**TEXT, word_spans=SPANS, return_dict=False)[0], words)
        assert states(model).shape == (3, 9, 16)  # nothing of the last call is left


def test_padding_of_the_plain_forward():
    model = adapt(make_base(), "transformer", "random")
    out = states(model)
    for row, length in enumerate((9, 6, 4)):
        alone = {name: value[row : row + 1, :length] for name, value in TEXT.items()}
        close(out[row, :length], states(model, **alone)[0], 1e-5)
    four = TEXT["attention_mask"][:, None, None, :].expand(-1, 1, 9, -1)
    with pytest.raises(InputError, match=r"\(rows, tokens\)"):
        states(model, attention_mask=four.bool())
    linear = adapt(make_base(), "linear", "random")
    close(states(linear, attention_mask=four.bool())[0], states(linear)[0])


def test_ways_to_say_the_language():
    model = adapt(make_base(), "languages", "random")
    set_language(model, None)
    with model.disable_adapter():
        untouched = states(model)
    assert torch.equal(states(model, language="en"), untouched)
    with pytest.raises(InputError, match=r"set_language\(model, 'de'\).*\(de, to, en\)"):
        states(model)
    with pytest.raises(InputError, match="language='fr': this module has maps for de, to, en"):
        states(model, language="fr")
    with pytest.raises(InputError, match="2 languages for 3 rows"):
        states(model, language=["de", "to"])
    with pytest.raises(InputError, match=r"number 3; the numbers are .*'en': 0"):
        states(model, language=torch.tensor([0, 3, 1]))
    with pytest.raises(InputError, match="number -1"):
        states(model, language=torch.tensor([0, -1, 1]))
    with pytest.raises(InputError, match=r"shape \(2,\) for 3 rows"):
        states(model, language=torch.tensor([0, 1]))

    german, tongan = states(model, language="de"), states(model, language="to")
    assert (german - tongan).abs().max() > 1e-3 and (german - untouched).abs().max() > 1e-3
    mixed = torch.stack([tongan[0], untouched[1], german[2]])
    close(states(model, language=["to", "en", "de"]), mixed)
    close(states(model, language=torch.tensor([2, 0, 1])), mixed)
    set_language(model, "to")
    assert torch.equal(states(model), tongan)
    assert torch.equal(states(model, language="de"), german)
    vectors = torch.randn(3, 2, 16)
    with torch.no_grad():
        assert torch.equal(model(word_vectors=vectors, language=["en"] * 3).last_hidden_state, vectors)


def test_set_language_refuses():
    model = adapt(make_base(), "languages")
    with pytest.raises(InputError, match=r"language='fr'.*de, to, en"):
        set_language(model, "fr")
    for other in (adapt(make_base(), "linear"), adapt(make_base(), "houlsby"), make_base()):
        with pytest.raises(InputError, match="no maps for single languages"):
            set_language(other, "de")


def test_deleted_modules_do_not_answer():
    model = make_base()
    model.add_adapter(make_config("linear", "random"))
    model.delete_adapter("default")
    close(states(model), states(make_base()))
    assert find_top(model) is None
    with pytest.raises(InputError, match="deleted"):
        states(model, word_spans=SPANS)
