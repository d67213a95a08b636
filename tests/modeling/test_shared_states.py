"""States of sentences, encoded once: by all scores of a stage, and before training by all runs of one encoder."""

import pytest
import torch
from datasets import Dataset
from support.adapters import adapt, make_base
from support.families import PASS
from support.fao import make
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_multilingual_encoder, make_tokenizer

from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.modeling import word_vectors
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.word_vectors import extract_word_vectors, hidden_batches, sharing_states
from hf_xalign.trainers.base.run import Run

TEXT = [("das haus", "the house"), ("da kat", "the cat"), ("hund", "dog")]
SENTENCES = [[2, 7, 8, 3], [2, 9, 3], [2, 10, 11, 12, 3]]


def read(model, sentences=SENTENCES, layers=(1, 2), **options):
    """Each sentence's states, float (tokens, layers, dim), and the number of forward passes."""
    passes, found = [], {}
    hook = model.register_forward_pre_hook(lambda *given: passes.append(1))
    for rows, mask, states in hidden_batches(model, sentences, 0, layers, **options):
        for row, inside, *of_layers in zip(rows, mask.bool(), *states, strict=True):
            found[int(row)] = torch.stack([layer[inside] for layer in of_layers], dim=1)
    hook.remove()
    return [found[row] for row in range(len(sentences))], len(passes)


def read_kept(model, text="text", **changed):
    with sharing_states(model, keep=text):
        return read(model, **changed)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "cache"))


def test_a_sentence_is_encoded_once_in_a_block():
    model, more = make_encoder(), [[2, 13, 3], *SENTENCES, [2, 13, 14, 3]]
    alone, passes = read(model, more, batch_size=2)
    assert passes == 3
    with sharing_states(model):
        assert read(model, SENTENCES[:2], batch_size=2)[1] == 1
        shared, passes = read(model, more, batch_size=2)
        assert passes == 2  # of three new sentences
        assert read(model, more)[1] == 0
        assert read(make_encoder(seed=1), more)[1]
    for one, other in zip(alone, shared, strict=True):
        assert_rounding(one, other, PASS)
    assert read(model, more)[1]


def test_words_and_sentences_of_a_text_share_a_pass():
    model, tokenizer, passes = make_encoder(), make_tokenizer(), []
    data = Dataset.from_list([{"source": s, "target": t, "source_lang": "de", "target_lang": "en"} for s, t in TEXT])
    with sharing_states(model):
        for side in ("source", "target"):
            extract_word_vectors(model, tokenizer, [text.split() for text in data[side]])
        model.register_forward_pre_hook(lambda *given: passes.append(1))
        found = score_sentences(model, tokenizer, data)
    assert not passes
    assert found == score_sentences(model, tokenizer, data) and passes


def test_each_language_of_a_model_with_maps_has_its_own_states():
    model, found = adapt(make_base(), "languages"), []
    with sharing_states(model):
        for language in ("de", "to", "de"):
            with language_context(model, language):
                found.append(read(model, layers=(2,)))
    (german, first), (_, second), (again, third) = found
    assert first and second and not third
    assert torch.equal(german[0], again[0])


def test_a_second_block_reads_what_the_first_kept_in_batches_of_another_size():
    computed, passes = read_kept(make_encoder(), batch_size=2)
    assert passes == 2
    kept, passes = read_kept(make_encoder(), batch_size=3)
    assert passes == 0
    assert all(map(torch.equal, computed, kept))


def test_another_encoder_text_layer_or_precision_is_computed():
    read_kept(make_encoder())
    for model, changed in (
        (make_encoder(seed=1), {}),
        (make_encoder(), {"text": "other"}),
        (make_encoder(), {"sentences": [*SENTENCES, [2, 13, 3]]}),
        (make_encoder(), {"sentences": [[2, 7, 3], [2, 9, 3], [2, 10, 11, 12, 8, 3]]}),  # as many tokens
        (make_encoder(), {"layers": (2,)}),
        (make_encoder(), {"dtype": torch.bfloat16}),
    ):
        assert read_kept(model, **changed)[1]
    assert read_kept(make_encoder())[1] == 0


def test_what_a_fingerprint_does_not_show_is_not_kept_nor_is_too_much(monkeypatch):
    for make_model in (lambda: adapt(make_encoder(), "linear"), make_multilingual_encoder):
        model = make_model()
        for _ in range(2):
            assert read_kept(model)[1]
    monkeypatch.setattr(word_vectors, "_MOST_SHARED", 10)
    for _ in range(2):
        assert read_kept(make_encoder())[1]


def test_a_pass_that_is_cut_short_shares_what_it_encoded():
    model = make_encoder()
    with sharing_states(model, keep="text"):
        batches = hidden_batches(model, SENTENCES, 0, (2,), batch_size=1)
        next(batches)
        batches.close()
    assert read_kept(model, layers=(2,), batch_size=1)[1] == 2


def test_a_second_run_scores_the_same_before_training_without_a_pass(tmp_path, monkeypatch):
    passes, score = [], Run._score

    def counted(run, model, when):
        counts = []
        hook = model.register_forward_pre_hook(lambda *given: counts.append(1))
        retrieval = score(run, model, when)
        hook.remove()
        passes.append((when, bool(counts)))
        return retrieval

    monkeypatch.setattr(Run, "_score", counted)
    records = []
    for name in ("first", "second"):
        trainer = make(tmp_path / name, record=True, max_steps=1)
        trainer.train()
        records.append(trainer.run.record)
    assert passes == [("before", True), ("after", True), ("before", False), ("after", True)]
    assert records[0]["scores"] == records[1]["scores"] and records[0]["drift"] == records[1]["drift"]
