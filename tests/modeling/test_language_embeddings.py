"""Language embeddings are token types: nothing changes until they are trained, and plain transformers loads them."""

import itertools

import torch
from support.adapters import TEXT
from support.families import CONFIGS
from transformers import AutoModel, DebertaV2Config

from hf_xalign.modeling.languages import add_language_embeddings, language_ids

CODES = ["en", "en-x-inv", "de"]
# DeBERTa-v3 as published, mDeBERTa among them, has token types in its code and none in its weights.
WITH_TYPES = {
    **{name: CONFIGS[name] for name in ("bert", "roberta", "xlm-roberta", "albert", "electra")},
    "deberta-v2 with": lambda: DebertaV2Config(**{**CONFIGS["deberta-v2"]().to_dict(), "type_vocab_size": 2}),
    "deberta-v2 without": lambda: DebertaV2Config(**{**CONFIGS["deberta-v2"]().to_dict(), "type_vocab_size": 0}),
}


def make(family):
    torch.manual_seed(0)
    return AutoModel.from_config(WITH_TYPES[family]()).eval()


def hidden(model, types=None):
    with torch.no_grad():
        return model(**TEXT, **({} if types is None else {"token_type_ids": types})).last_hidden_state


def type_rows(model):
    return model.base_model.embeddings.token_type_embeddings.weight


def test_nothing_changes_until_training_and_plain_transformers_loads_what_was_trained(subtests, tmp_path):
    for family in WITH_TYPES:
        with subtests.test(family):
            folder = tmp_path / family
            model = make(family)
            before = hidden(model)
            numbers = add_language_embeddings(model, CODES)
            assert numbers == {"en": 0, "en-x-inv": 1, "de": 2} == language_ids(model.config)
            assert len(type_rows(model)) == model.config.type_vocab_size == 3
            for number in (None, *(torch.full((3, 9), n) for n in numbers.values())):
                assert torch.equal(hidden(model, number), before)
            types = torch.full((3, 9), 1)
            types[:, 5:] = 2
            model.train()(**TEXT, token_type_ids=types).last_hidden_state[:, 0].square().sum().backward()
            grad = type_rows(model).grad
            assert (grad[0] == 0).all() and grad[1].abs().sum() > 0 and grad[2].abs().sum() > 0
            assert not torch.equal(grad[1], grad[2])

            model.eval()
            with torch.no_grad():
                type_rows(model).add_(torch.randn(type_rows(model).shape))
            model.save_pretrained(folder)
            again, report = AutoModel.from_pretrained(folder, output_loading_info=True)
            assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
            assert language_ids(again.config) == numbers
            outputs = [hidden(again.eval(), torch.full((3, 9), number)) for number in range(3)]
            for number, output in enumerate(outputs):
                assert torch.equal(output, hidden(model, torch.full((3, 9), number)))
            assert torch.equal(outputs[0], hidden(again))
            # Of each token by itself, as a row of two languages has it.
            outputs.append(hidden(again, types - 1))
            for one, other in itertools.combinations(outputs, 2):
                assert not torch.allclose(one, other, atol=1e-3)


def test_a_language_that_is_there_keeps_its_row():
    model = make("xlm-roberta")
    add_language_embeddings(model, ["en", "de"])
    with torch.no_grad():
        type_rows(model).copy_(torch.arange(32.0).view(2, 16))
    assert add_language_embeddings(model, ["bn", "de"]) == {"en": 0, "de": 1, "bn": 2}
    assert torch.equal(type_rows(model)[:2], torch.arange(32.0).view(2, 16))
    assert torch.equal(type_rows(model)[2], torch.arange(16.0))
    assert add_language_embeddings(model, ["en"]) == {"en": 0, "de": 1, "bn": 2}
