"""The tagger against a sentence-by-sentence reference; frozen, cached, saved, trained."""

from __future__ import annotations

import copy
from itertools import product

import pytest
import torch
from datasets import Dataset
from peft import get_peft_model
from support.adapters import SPANS, TEXT, close, make_base
from support.tagger import BIO, COUNTS, INPUTS, LABELS, make_tagger, trained
from support.tiny import make_tokenizer
from transformers import BertForTokenClassification, Trainer, TrainingArguments

from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig
from hf_xalign.modeling.tagger import BiLSTMCRFConfig, BiLSTMCRFForTokenClassification, words_of
from hf_xalign.modeling.word_vectors import extract_word_vectors


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
        words.append(sum(layers) if config.layer_mix == "sum" else torch.cat(layers))
    vectors = torch.stack(words)
    return vectors, tagger.classifier(tagger.lstm(vectors.unsqueeze(0))[0])[0]


@pytest.mark.parametrize("layer_mix", ["sum", "concat"])
@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_emissions_of_each_sentence(pooling, layer_mix):
    tagger = make_tagger(pooling=pooling, layer_mix=layer_mix, layers=(-1, -2, 0))
    with torch.no_grad():
        logits = tagger(**INPUTS).logits
        vectors = tagger.word_vectors(**INPUTS)
    assert logits.shape == (3, 3, 5) and vectors.shape == (3, 3, tagger.config.input_size)
    assert tagger.config.input_size == {"sum": 16, "concat": 48}[layer_mix]
    for row, count in enumerate(COUNTS):
        if count:
            words, emissions = reference(tagger, row)
            close(vectors[row, :count], words, 1e-5)
            close(logits[row, :count], emissions, 1e-5)
        assert not logits[row, count:].any() and not vectors[row, count:].any()


def test_what_follows_what_depends_on_the_second_word():
    tagger = make_tagger()
    hidden = tagger.lstm(reference(tagger, 0)[0].unsqueeze(0))[0][0]
    emissions, tags = reference(tagger, 0)[1], [1, 2, 0]
    weight = tagger.pairs.weight.view(5, 5, -1)  # the tag before, the tag, the word
    score = tagger.crf.start[1] + tagger.crf.end[0] + emissions[range(3), tags].sum()
    for t in (1, 2):
        before, tag = tags[t - 1], tags[t]
        score = score + tagger.crf.transitions[before, tag] + weight[before, tag] @ hidden[t]
    one = {name: value[:1] for name, value in INPUTS.items()}
    kept = {"inputs_vectors": tagger.word_vectors(**one), "word_mask": words_of(SPANS[:1])}
    with torch.no_grad():
        losses = torch.stack(
            [tagger(**kept, labels=torch.tensor([tags]), reduction="sum").loss for tags in product(range(5), repeat=3)]
        )
    found = losses[1 * 25 + 2 * 5 + 0]
    assert torch.exp(-losses).sum().item() == pytest.approx(1, abs=1e-5)
    # Against another sequence the normaliser drops out.
    other = tagger.crf.start[0] + tagger.crf.end[0] + emissions[:, 0].sum() + 2 * tagger.crf.transitions[0, 0]
    other = other + weight[0, 0] @ hidden[1] + weight[0, 0] @ hidden[2]
    close(losses[0] - found, score - other, 1e-5)
    best = int(losses.argmin())
    assert tagger.decode(**one) == [[best // 25, best // 5 % 5, best % 5]]
    shared = make_tagger(transitions="shared")
    assert shared.pairs is None and "pairs.weight" not in shared.state_dict()


def test_padding_changes_nothing():
    tagger = make_tagger()
    wider = {
        "input_ids": torch.cat([TEXT["input_ids"], torch.full((3, 4), 7)], 1),
        "attention_mask": torch.cat([TEXT["attention_mask"], torch.zeros(3, 4, dtype=torch.int64)], 1),
        "word_spans": torch.cat([SPANS, torch.zeros(3, 5, 2, dtype=torch.int64)], 1),
    }
    labels = torch.cat([LABELS, torch.full((3, 5), -100)], 1)
    with torch.no_grad():
        one, other = tagger(**INPUTS, labels=LABELS), tagger(**wider, labels=labels)
        close(other.logits[:, :3], one.logits, 1e-5)
        assert not other.logits[:, 3:].any()
        close(other.loss, one.loss, 1e-5)
        assert torch.equal(other.tags[:, :3], one.tags) and (other.tags[:, 3:] == -100).all()
        sums = []
        for row, count in enumerate(COUNTS[:2]):
            width = int(TEXT["attention_mask"][row].sum())
            alone = {
                "input_ids": TEXT["input_ids"][row : row + 1, :width],
                "word_spans": SPANS[row : row + 1, :count],
                "labels": LABELS[row : row + 1, :count],
            }
            found = tagger(**alone, reduction="sum")
            close(found.logits[0], one.logits[row, :count], 1e-5)
            sums.append(found.loss)
        close(one.loss, sum(sums) / 5, 1e-5)
    assert tagger.decode(**wider) == tagger.decode(**INPUTS)
    assert [len(row) for row in tagger.decode(**INPUTS)] == list(COUNTS)


def test_what_is_no_number_at_padding_stays_there():
    tagger = make_tagger()
    mask = words_of(SPANS)
    vectors = tagger.word_vectors(**INPUTS)
    expected = tagger(inputs_vectors=vectors, word_mask=mask, labels=LABELS)
    expected.loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in trained(tagger).items()}
    tagger.zero_grad()
    found = tagger(inputs_vectors=torch.where(mask.unsqueeze(-1), vectors, torch.nan), word_mask=mask, labels=LABELS)
    found.loss.backward()
    assert torch.equal(found.logits, expected.logits) and torch.equal(found.loss, expected.loss)
    assert all(torch.equal(parameter.grad, gradients[name]) for name, parameter in trained(tagger).items())


def test_the_encoder_is_frozen_whatever_the_mode():
    base = make_base("bert", hidden_dropout_prob=0.5)
    before = copy.deepcopy(base.state_dict())
    tagger = make_tagger(base)
    assert tagger.backbone is base and base.pooler is None
    kept = base.state_dict()
    assert kept.keys() == {name for name in before if not name.startswith("pooler")}
    assert all(torch.equal(before[name], value) for name, value in kept.items())
    assert {name.split(".")[0] for name in trained(tagger)} == {"lstm", "classifier", "pairs", "crf"}
    assert not {name for name, parameter in tagger.named_parameters() if not parameter.requires_grad} ^ {
        f"backbone.{name}" for name, _ in base.named_parameters()
    }
    tagger.requires_grad_(True).train()
    assert tagger.training and tagger.lstm.training and not any(module.training for module in base.modules())
    assert not any(parameter.requires_grad for parameter in base.parameters())
    one, other = tagger(**INPUTS, labels=LABELS), tagger(**INPUTS)
    assert torch.equal(one.logits, other.logits)  # the encoder's dropout would show
    assert one.tags is None
    one.loss.backward()
    assert all(parameter.grad is not None for parameter in trained(tagger).values())
    assert all(parameter.grad is None for parameter in base.parameters())


def test_every_trained_weight_has_a_gradient_where_no_sentence_has_two_words():
    tagger = make_tagger()
    tagger(**{**INPUTS, "word_spans": SPANS[:, :1]}, labels=LABELS[:, :1]).loss.backward()
    assert all(parameter.grad is not None for parameter in trained(tagger).values())


def test_dropout_is_before_and_after_the_lstm():
    tagger = make_tagger(dropout=0.5).train()
    assert tagger.lstm.dropout == 0
    vectors, mask = torch.ones(1, 40, 16), torch.ones(1, 40, dtype=torch.bool)
    seen = []
    tagger.lstm.register_forward_pre_hook(lambda _, args: seen.append(args[0].data))
    tagger.classifier.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    tagger(inputs_vectors=vectors, word_mask=mask)
    for part in seen:
        assert 0.35 < (part == 0).float().mean() < 0.65
    assert tagger.decode(inputs_vectors=vectors, word_mask=mask) == tagger.decode(
        inputs_vectors=vectors, word_mask=mask
    )
    assert tagger.training  # as before


def test_vectors_can_be_kept():
    tagger = make_tagger(layers=(-1, 0), layer_mix="concat", pooling="last")
    whole = tagger(**INPUTS, labels=LABELS)
    kept = tagger(inputs_vectors=tagger.word_vectors(**INPUTS), word_mask=words_of(SPANS), labels=LABELS)
    assert torch.equal(whole.logits, kept.logits) and torch.equal(whole.loss, kept.loss)
    sentences = [["the", "kat"], ["file"]]
    found = extract_word_vectors(
        tagger.backbone, make_tokenizer(), sentences, layers=tagger.config.layers, pooling=tagger.config.pooling
    )
    mixed = tagger.mix_layers(found.vectors)
    tokens = make_tokenizer()(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    spans = torch.zeros(2, 2, 2, dtype=torch.int64)
    for row, sentence in enumerate(sentences):
        for word in range(len(sentence)):
            start, end = tokens.word_to_tokens(row, word)
            spans[row, word] = torch.tensor([start, end])
    own = tagger.word_vectors(tokens["input_ids"], tokens["attention_mask"], spans)
    close(torch.stack([own[0, 0], own[0, 1], own[1, 0]]), mixed, 1e-5)


def test_words_without_tokens():
    spans = torch.tensor([[[1, 2], [0, 0], [3, 4], [0, 0]], [[0, 0], [2, 3], [0, 0], [0, 0]], [[0, 0]] * 4])
    assert words_of(spans).tolist() == [[True, True, True, False], [True, True, False, False], [False] * 4]
    tagger = make_tagger()
    assert [len(tags) for tags in tagger.decode(**TEXT, word_spans=spans)] == [3, 2, 0]
    # A label of a word that was cut off takes no part.
    losses = [
        tagger(**TEXT, word_spans=spans, labels=torch.tensor([[1, 2, 0, tag], [0, 1, tag, tag], [tag] * 4])).loss
        for tag in (-100, 3)
    ]
    assert torch.equal(*losses)
    nothing = tagger(**TEXT, word_spans=torch.zeros_like(spans), labels=torch.full((3, 4), -100))
    assert nothing.loss.item() == 0


def test_bio_is_kept_in_training_and_decoding():
    tagger = make_tagger(bio=True)
    with torch.no_grad():
        tagger.classifier.bias += torch.tensor([0.0, 0.0, 50.0, 0.0, 50.0])
    for row in tagger.decode(**INPUTS):
        names = [BIO[tag] for tag in row]
        for before, name in zip(["O", *names], names, strict=False):
            assert name[0] != "I" or before[2:] == name[2:]
    assert tagger(**INPUTS, labels=LABELS).loss.isfinite()
    wrong = LABELS.clone()
    wrong[0, 1] = 4
    with pytest.raises(InputError, match=r"labels\[0, 1\] = 4 after tag 1 is forbidden"):
        tagger(**INPUTS, labels=wrong)
    assert make_tagger()(**INPUTS, labels=wrong).loss.isfinite()


def test_counts_of_a_whole_step():
    tagger = make_tagger()
    total = tagger(**INPUTS, labels=LABELS, reduction="sum").loss
    close(tagger(**INPUTS, labels=LABELS).loss, total / 5)
    close(tagger(**INPUTS, labels=LABELS, num_items_in_batch=torch.tensor(20)).loss, total / 20)


def toy(tagger, seed=0):
    """Sentences whose tags follow from their first words' vectors, as cached vectors."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (16, 6), generator=generator) * 3
    labels[:, 1:][labels[:, :-1] == 3] = 4
    vectors = torch.randn(16, 6, tagger.config.input_size, generator=generator)
    vectors[..., :5] += 2 * torch.nn.functional.one_hot(labels, 5)
    lengths = torch.randint(2, 7, (16, 1), generator=generator)
    mask = torch.arange(6) < lengths
    return {"inputs_vectors": vectors, "word_mask": mask, "labels": labels.masked_fill(~mask, -100)}


@pytest.mark.parametrize("transitions", ["contextual", "shared"])
def test_it_learns(transitions):
    tagger = make_tagger(perturb=False, transitions=transitions, lstm_size=12).train()
    batch = toy(tagger)
    before = copy.deepcopy(tagger.backbone.state_dict())
    optimizer = torch.optim.Adam(trained(tagger).values(), lr=0.02)
    losses = []
    for _ in range(40):
        loss = tagger(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # New weights know next to nothing: log 5 for each word.
    assert 1.2 < losses[0] < 2.2 and losses[-1] < 0.2
    gold = batch.pop("labels")
    tags = [tag for row in tagger.decode(**batch) for tag in row]
    assert sum(map(int.__eq__, tags, gold[gold >= 0].tolist())) / len(tags) > 0.95
    assert all(torch.equal(before[name], value) for name, value in tagger.backbone.state_dict().items())


def test_trainer_accumulates_without_changing_the_step(tmp_path):
    data = toy(make_tagger())
    rows = Dataset.from_dict({name: value.tolist() for name, value in data.items()}).with_format("torch")
    results = []
    for size, steps in ((8, 1), (2, 4)):
        tagger = make_tagger()
        arguments = TrainingArguments(
            output_dir=str(tmp_path / str(size)), per_device_train_batch_size=size, gradient_accumulation_steps=steps,
            max_steps=2, learning_rate=0.1, optim="sgd", max_grad_norm=0.0, use_cpu=True, seed=3, save_strategy="no",
            disable_tqdm=True,
        )  # fmt: skip
        Trainer(tagger, arguments, train_dataset=rows).train()
        results.append({name: parameter.detach() for name, parameter in trained(tagger).items()})
    assert results[0].keys() == results[1].keys()
    start = trained(make_tagger())
    for name, value in results[0].items():
        close(results[1][name], value, 1e-5)
        assert not torch.equal(value, start[name])


def test_all_but_the_encoder_is_in_float32_under_autocast():
    tagger = make_tagger()
    vectors, mask = tagger.word_vectors(**INPUTS), words_of(SPANS)
    expected = tagger(inputs_vectors=vectors, word_mask=mask, labels=LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = tagger(inputs_vectors=vectors, word_mask=mask, labels=LABELS)
        whole = tagger(**INPUTS, labels=LABELS)
    assert torch.equal(found.loss, expected.loss) and torch.equal(found.logits, expected.logits)
    assert whole.logits.dtype is torch.float32 and not torch.equal(whole.logits, expected.logits)
    close(whole.logits, expected.logits, 0.2)


def test_new_weights_are_drawn_from_the_seed_alone():
    one, same, other = make_tagger(seed=1), make_tagger(seed=1), make_tagger(seed=2)
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in one.state_dict().items())
    assert not torch.equal(one.lstm.weight_hh_l1_reverse, other.lstm.weight_hh_l1_reverse)
    assert one.lstm.weight_ih_l0.abs().max() <= 6**-0.5
    assert not any(parameter.any() for parameter in make_tagger(perturb=False).crf.parameters())


def test_the_published_settings_are_the_default():
    config = BiLSTMCRFConfig()
    assert (config.layers, config.layer_mix, config.pooling) == ((-4, -3, -2, -1), "sum", "mean")
    assert (config.lstm_size, config.lstm_layers, config.dropout) == (384, 2, 0.5)
    assert config.transitions == "contextual" and not config.bio


def test_what_is_refused():
    build = BiLSTMCRFForTokenClassification.from_encoder
    for settings, message in (
        ({}, r"layers \[-4, -3, -2, -1\]: this encoder has layers 0 \(embeddings\) to 2"),
        ({"layers": (-1,), "layer_mix": "mean"}, "layer_mix=mean: choose one of sum, concat"),
        ({"layers": (-1,), "pooling": "max"}, "pooling=max: choose one of first, last, mean"),
        ({"layers": (-1,), "transitions": "none"}, "transitions=none: choose one of contextual, shared"),
        ({"layers": (-1,), "dropout": 1.0}, "dropout=1.0"),
        ({"layers": (-1,), "lstm_size": 0}, "lstm_size=0"),
        ({"layers": (-1,), "bio": True}, "I-c has no B-c"),
    ):
        base = make_base()
        with pytest.raises(InputError, match=message):
            build(base, [*BIO, "I-c"], **settings)
        assert base.pooler is not None and all(p.requires_grad for p in base.parameters())
    with pytest.raises(InputError, match="at least two are needed"):
        build(make_base(), ["O", "O"], layers=(-1,))
    with pytest.raises(InputError, match=r"by hf_xalign\.modeling\.with_alignment"):
        build(get_peft_model(make_base(), XAlignConfig()), BIO, layers=(-1,))
    with pytest.raises(InputError, match="BertForTokenClassification has a task head"):
        build(BertForTokenClassification(make_base().config), BIO, layers=(-1,))
    tagger = make_tagger()
    with pytest.raises(InputError, match="input_ids with word_spans, or inputs_vectors with word_mask"):
        tagger(**TEXT)
    with pytest.raises(InputError, match="inputs_vectors needs word_mask"):
        tagger(inputs_vectors=torch.zeros(1, 2, 16))
    with pytest.raises(InputError, match=r"inputs_vectors \(1, 2, 32\).*expected \(B, W, 16\)"):
        tagger(inputs_vectors=torch.zeros(1, 2, 32), word_mask=torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(InputError, match=r"labels\[1, 1\] = -100: every word needs"):
        tagger(**INPUTS, labels=LABELS.masked_fill(LABELS == 4, -100))
    with pytest.raises(InputError, match=r"labels \(3, 2\): expected one for each of \(3, 3\) words"):
        tagger(**INPUTS, labels=LABELS[:, :2])
