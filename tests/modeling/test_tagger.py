"""The tagger against a sentence-by-sentence reference; frozen, cached, trained, saved, on mapped layers."""

import copy
import shutil

import pytest
import torch
from support.adapters import SPANS, TEXT, adapt, make_base
from support.families import PASS
from support.maps import make_rotated
from support.numeric import assert_rounding
from support.tagger import BIO, COUNTS, INPUTS, LABELS, best_tags, enumerate_scores, make_tagger, trained
from transformers import AutoModelForTokenClassification

import hf_xalign
from hf_xalign.data.encoding import position_limit
from hf_xalign.modeling import set_language, with_alignment
from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification, words_of

# Two layers of two LSTMs over 3 words, of 16 inputs and 6 states; 5 tags and 25 pairs of them of 12 states each.
TAGGED = PASS + 2 * 3 * 2 * (16 + 6 + 5) + 2 * 3 * (12 + 12 + 3 * 5)


@torch.no_grad()
def reference(tagger, row):
    """Word vectors and emissions of one sentence, by itself, without padding, word by word."""
    config, width = tagger.config, int(TEXT["attention_mask"][row].sum())
    states = tagger.backbone(
        TEXT["input_ids"][row : row + 1, :width], torch.ones(1, width), output_hidden_states=True
    ).hidden_states
    words = []
    for start, end in SPANS[row, : COUNTS[row]].tolist():
        layers = []
        for layer in config.layers:
            tokens = [states[layer][0, t] for t in range(start, end)]
            pooled = {"first": tokens[0], "last": tokens[-1], "mean": sum(tokens) / len(tokens)}
            layers.append(pooled[config.pooling])
        words.append(sum(layers))
    vectors = torch.stack(words)
    return vectors, tagger.classifier(tagger.lstm(vectors.unsqueeze(0))[0])[0]


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_emissions_of_each_sentence(pooling, float64):
    tagger = make_tagger(pooling=pooling, layers=(-1, -2, 0))
    with torch.no_grad():
        logits = tagger(**INPUTS).logits
        vectors = tagger.word_vectors(**INPUTS)
    assert logits.shape == (3, 3, 5) and vectors.shape == (3, 3, 16)
    for row, count in enumerate(COUNTS):
        if count:
            words, emissions = reference(tagger, row)
            assert_rounding(vectors[row, :count], words, TAGGED)
            assert_rounding(logits[row, :count], emissions, TAGGED, scale=16.0)
        assert not logits[row, count:].any() and not vectors[row, count:].any()


def test_what_follows_what_depends_on_the_second_word(float64):
    tagger = make_tagger()
    words, emissions = reference(tagger, 0)
    hidden = tagger.lstm(words.unsqueeze(0))[0][0]
    weight = tagger.pairs.weight.view(5, 5, -1)  # the tag before, the tag, the word
    pairwise = torch.stack([weight @ hidden[t] for t in (1, 2)])
    scores = enumerate_scores(tagger.crf, emissions[None], pairwise[None], 0, 3)
    one = {name: value[:1] for name, value in INPUTS.items()}
    kept = {"inputs_vectors": tagger.word_vectors(**one), "word_mask": words_of(SPANS[:1]), "num_items_in_batch": 1}
    found = -torch.stack([tagger(**kept, labels=torch.tensor([tags])).loss for tags in scores])
    every = torch.stack(list(scores.values()))
    assert_rounding(found, every.log_softmax(0), TAGGED, every.abs().max().item())
    assert best_tags(tagger, **one) == [list(max(scores, key=scores.__getitem__))]


def test_padding_changes_nothing(float64):
    tagger = make_tagger()
    wider = {
        "input_ids": torch.cat([TEXT["input_ids"], torch.full((3, 4), 7)], 1),
        "attention_mask": torch.cat([TEXT["attention_mask"], torch.zeros(3, 4, dtype=torch.int64)], 1),
        "word_spans": torch.cat([SPANS, torch.zeros(3, 5, 2, dtype=torch.int64)], 1),
    }
    labels = torch.cat([LABELS, torch.full((3, 5), -100)], 1)
    with torch.no_grad():
        one, other = tagger(**INPUTS, labels=LABELS), tagger(**wider, labels=labels)
        assert_rounding(other.logits[:, :3], one.logits, TAGGED, scale=16.0)
        assert not other.logits[:, 3:].any()
        assert_rounding(other.loss, one.loss, TAGGED, scale=16.0)
        total = tagger(**INPUTS, labels=LABELS, num_items_in_batch=1).loss
        assert_rounding(total / 5, one.loss, 2)
        of_step = tagger(**INPUTS, labels=LABELS, num_items_in_batch=torch.tensor(20)).loss
        assert_rounding(of_step, total / 20, 2)
    assert best_tags(tagger, **wider) == best_tags(tagger, **INPUTS)
    # What is no number at padding stays there, in the gradients too.
    mask, vectors = words_of(SPANS), tagger.word_vectors(**INPUTS)
    found = []
    for given in (vectors, torch.where(mask.unsqueeze(-1), vectors, torch.nan)):
        tagger.zero_grad()
        output = tagger(inputs_vectors=given, word_mask=mask, labels=LABELS)
        output.loss.backward()
        found.append([output.logits, output.loss, *(parameter.grad for parameter in trained(tagger).values())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_the_encoder_is_frozen_whatever_the_mode():
    base = make_base("bert", hidden_dropout_prob=0.5)
    before = copy.deepcopy(base.state_dict())
    tagger = make_tagger(base)
    assert tagger.backbone is base and base.pooler is None
    kept = base.state_dict()
    assert kept.keys() == {name for name in before if not name.startswith("pooler")}
    assert all(torch.equal(before[name], value) for name, value in kept.items())
    assert {name.split(".")[0] for name in trained(tagger)} == {"lstm", "classifier", "pairs", "crf"}
    tagger.requires_grad_(True).train()
    assert tagger.training and tagger.lstm.training and not any(module.training for module in base.modules())
    assert not any(parameter.requires_grad for parameter in base.parameters())
    one, other = tagger(**INPUTS, labels=LABELS), tagger(**INPUTS)
    assert torch.equal(one.logits, other.logits)  # the encoder's dropout would show
    assert one.tags is None
    one.loss.backward()
    assert all(parameter.grad is not None for parameter in trained(tagger).values())
    assert all(parameter.grad is None for parameter in base.parameters())


def test_words_without_tokens():
    spans = torch.tensor([[[1, 2], [0, 0], [3, 4], [0, 0]], [[0, 0], [2, 3], [0, 0], [0, 0]], [[0, 0]] * 4])
    assert words_of(spans).tolist() == [[True, True, True, False], [True, True, False, False], [False] * 4]
    tagger = make_tagger()
    assert [len(tags) for tags in best_tags(tagger, **TEXT, word_spans=spans)] == [3, 2, 0]
    # A label of a word that was cut off takes no part.
    losses = [
        tagger(**TEXT, word_spans=spans, labels=torch.tensor([[1, 2, 0, tag], [0, 1, tag, tag], [tag] * 4])).loss
        for tag in (-100, 3)
    ]
    assert torch.equal(*losses)
    nothing = tagger(**TEXT, word_spans=torch.zeros_like(spans), labels=torch.full((3, 4), -100))
    assert nothing.loss.item() == 0


@pytest.mark.parametrize(("family", "settings"), [("bert", {}), ("xlm-roberta", {"bio": True}), ("modernbert", {})])
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
    state, own = loaded.state_dict(), tagger.state_dict()
    assert state.keys() == own.keys() and all(torch.equal(state[name], own[name]) for name in own)
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


def test_on_mapped_layers(tmp_path, float64):
    tagger = with_alignment(make_tagger(), make_rotated(layers=(-2, -1), dtype=torch.float64))
    with torch.no_grad():
        english, german = (tagger(**INPUTS, language=language).logits for language in ("en", "de"))
    assert (english - german).abs().max() > 1e-3
    assert_rounding(tagger(**INPUTS, language=["en", "de", "de"]).logits[0], english[0], 2 * PASS)
    set_language(tagger, "en")
    assert_rounding(tagger(**INPUTS).logits, english, 2 * PASS)
    tagger.save_pretrained(tmp_path)
    loaded = hf_xalign.load(tmp_path)
    assert_rounding(loaded(**INPUTS, language="en").logits, english, 2 * PASS)


def test_with_a_module_of_mao(tmp_path, float64):
    adapt(make_base(), "pfeiffer transformer", "random").save_pretrained(tmp_path / "adapter")
    tagger = make_tagger()
    names = trained(tagger).keys()
    before = tagger(**INPUTS).logits
    with_alignment(tagger, tmp_path / "adapter")
    after = tagger(**INPUTS).logits
    assert (after - before).abs().max() > 1e-3
    assert trained(tagger.train()).keys() == names
    tagger.eval().save_pretrained(tmp_path / "tagger")
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "tagger")
    assert_rounding(loaded(**INPUTS).logits, after, 2 * PASS)
