"""What the trainers of whole sentences, of text and of tasks refuse, and a search; those of words have a file too."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model
from support import align_mlm, continual, ppa
from support.refusals import assert_refused
from support.search import searcher
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer
from transformers import BertConfig, BertForMaskedLM, BertModel

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.entries import TokenEntries
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.tasks import LabelSet, TokenTask
from hf_xalign.trainers.align_mlm import AlignMLMTrainer
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig
from hf_xalign.trainers.continual import ContinualTrainer
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.ppa_config import PPAConfig
from hf_xalign.trainers.search import search
from hf_xalign.trainers.task_config import TaskConfig


def tokenizer_with(**attributes):
    tokenizer = make_tokenizer()
    for name, value in attributes.items():
        setattr(tokenizer, name, value)
    return tokenizer


def multilingual(model, *languages):
    add_language_embeddings(model, list(languages))
    return model


def test_align_mlm(tmp_path):
    def bare(model, **settings):
        AlignMLMTrainer(
            model,
            AlignMLMConfig(output_dir=str(tmp_path), use_cpu=True, **settings),
            train_dataset=align_mlm.make_rows(4),
            processing_class=make_tokenizer(),
        )

    make = partial(align_mlm.make, tmp_path)
    large = TokenEntries(np.array([[3, 160]]), "a test")
    assert_refused(
        {
            "no dictionary": (lambda: bare(make_encoder()), "needs a dictionary"),
            "a dictionary for nothing": (
                lambda: make(objective="mlm", entries=align_mlm.make_entries()),
                "does not look at a dictionary",
            ),
            "unknown token": (lambda: make(entries=large), "token 160 in a vocabulary of 160"),
            "objective": (lambda: make(objective="mmm"), "objective=mmm"),
            "probability": (lambda: make(translation_probability=2), "translation_probability=2"),
            "no languages": (lambda: bare(make_encoder(), objective="xlm"), "no language embeddings"),
            "a language less": (
                lambda: bare(multilingual(make_encoder(), "en"), objective="xlm"),
                "embeddings of en and not of de",
            ),
        }
    )


def test_align_mlm_checkpoint_of_another_dictionary(tmp_path):
    settings = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    trainer = align_mlm.train(tmp_path, **settings)
    other = align_mlm.make_entries(seed=4)
    assert not np.array_equal(other.ids, trainer.entries.ids)
    resume = align_mlm.make(tmp_path, entries=other, **settings).train
    message = "checkpoint-1 was trained with another dictionary"
    assert_refused({"entries": (lambda: resume(resume_from_checkpoint=True), message)})


def test_continual(tmp_path, monkeypatch):
    make = partial(continual.make, tmp_path)

    def reentrant():
        with monkeypatch.context() as patch:
            patch.setattr(ContinualConfig, "world_size", 2)
            make(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})

    def narrow_reference():
        ContinualTrainer(
            continual.make_model(),
            ContinualConfig(output_dir=str(tmp_path), use_cpu=True),
            task=continual.TOKENS,
            train_dataset=[continual.examples()],
            pairs=make_links(4),
            reference=BertModel(BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)),
            processing_class=make_tokenizer(),
        )

    def told(**settings):
        make(multilingual(continual.make_model(), "en", "fr"), **settings)

    assert_refused(
        {
            "no pairs": (lambda: make(pairs_per_example=0), "pairs_per_example=0"),
            "compiled": (lambda: make(torch_compile=True), "torch_compile=true: a compiled model need not pass"),
            "reentrant": (reentrant, "use_reentrant=true does not go"),
            "frozen": (lambda: make(freeze_encoder=True), "freeze_encoder=true leaves nothing"),
            "layers": (lambda: make(layers=[7]), "layers 0"),
            "preset": (lambda: make(preset="contin"), "preset=contin"),
            "reference": (narrow_reference, "vectors have 8 numbers and the model's 16"),
            "tagger": (lambda: make(head="tagger"), "head=tagger reads a frozen encoder"),
            "language": (told, "language 'de': the encoder has language embeddings for en, fr"),
            "encoded pairs": (
                lambda: told(pairs=encode_pairs(make_links(7), make_tokenizer())),
                r"target_lang is not there: .* which are not encoded yet",
            ),
        }
    )


def test_ppa_models_and_tokenizers(tmp_path):
    larger = make_tokenizer()
    larger.add_tokens([f"word{k}" for k in range(100)])
    # Whatever looks at the pairs before it refuses would miss this column.
    data = ppa.make_pairs().remove_columns("source")

    def make(encoder=None, tokenizer=None, **settings):
        ppa.make(tmp_path, encoder, data=data, tokenizer=tokenizer, **settings)

    assert_refused(
        {
            "large batch": (lambda: make(per_device_train_batch_size=11), "queue_size=10: an optimizer step has 11"),
            "large step": (lambda: make(gradient_accumulation_steps=3), "queue_size=10: an optimizer step has 12"),
            "no mask": (lambda: make(tokenizer=tokenizer_with(mask_token=None)), "has no mask token"),
            "no padding": (lambda: make(tokenizer=tokenizer_with(pad_token=None)), "no padding token"),
            "tokens": (lambda: make(tokenizer=larger), "the encoder has 160 word embeddings"),
            "length": (
                lambda: make(tokenizer=tokenizer_with(model_max_length=10**30), max_tokens=62),
                "set max_tokens to 61 or less",
            ),
            "peft": (
                lambda: make(get_peft_model(make_encoder(), LoraConfig(r=2, target_modules=["query"]))),
                "not a PeftModel",
            ),
            "head": (lambda: make(BertForMaskedLM(make_encoder().config)), "encoder with a head"),
            "languages": (lambda: make(make_multilingual_encoder()), "PPA would take every text for en"),
            "short pairs": (lambda: ppa.make(tmp_path, min_tokens=29), "no pair is left"),
        }
    )


def test_ppa_settings(tmp_path):
    table = {
        "did you mean paper": {"preset": "papers"},
        "choose one of moco, in_batch, none": {"contrast": "queue"},
        "leave no objective": {"contrast": "none", "words": "none"},
        "momentum=1.5": {"momentum": 1.5},
        "larger than 0": {"temperature": 0.0},
        "queue_size=0: at least 1": {"queue_size": 0},
        "chunk_size=0: at least 1": {"contrast": "in_batch", "chunk_size": 0},
        "chunk_size=4 is for contrast=in_batch": {"chunk_size": 4},
        "masking probability 0.0": {"mlm_probability": 0.0},
        "head_settling=1.5: a share of the run": {"head_settling": 1.5},
        "head_learning_rate=-1.0: at least 0": {"head_learning_rate": -1.0},
        "eval_pooling=last: PPA's score is of sentences": {"eval_pooling": "last"},
    }
    config = partial(PPAConfig, output_dir=str(tmp_path), use_cpu=True)
    assert_refused({message: (partial(config, **settings), message) for message, settings in table.items()})


def test_ppa_checkpoint_of_another_queue_or_without_one(tmp_path):
    settings = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    ppa.train(tmp_path, **settings)

    def resume(**other):
        ppa.make(tmp_path, **settings, **other).train(resume_from_checkpoint=True)

    def without_queue():
        (tmp_path / "checkpoint-1" / "momentum.safetensors").unlink()
        resume()

    message = r"momentum\.safetensors: the momentum encoder and its queue cannot be read"
    assert_refused(
        {
            "queue": (lambda: resume(queue_size=12), "a queue of 10 keys of 6 numbers, here 12 of 6"),
            "no queue": (without_queue, message),
        }
    )


def test_task(tmp_path):
    config = partial(TaskConfig, output_dir=str(tmp_path), use_cpu=True)
    german = {"de": continual.examples(language="de")}
    stopping = {"early_stopping_patience": 1, "eval_strategy": "epoch", "save_strategy": "epoch"}
    other = TokenTask(LabelSet.of(["X", "Y"]))
    assert_refused(
        {
            "preset": (lambda: config(preset="ppa_xnl"), "did you mean ppa_xnli"),
            "frozen twice": (
                lambda: config(freeze_encoder=True, freeze_embeddings=True),
                "leave freeze_embeddings out",
            ),
            "length": (
                lambda: config().check_model(continual.make_model(), tokenizer_with(model_max_length=1000)),
                "takes 64 tokens: set max_length to 64",
            ),
            "labels": (
                lambda: continual.make_task(tmp_path, continual.make_model(), other, train=[continual.examples()]),
                r"en\.jsonl, line 0.*: label",
            ),
            "stopping": (
                lambda: continual.make_task(tmp_path, evaluation=german, **stopping),
                "needs evaluation text in en",
            ),
        }
    )


def test_search(tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason='Optuna is not installed: pip install "hf_xalign[search]"')

    def searched(model_init=make_encoder, **settings):
        trainer = searcher(tmp_path, model_init, None if model_init else make_encoder())
        trainer.hyperparameter_search(n_trials=1, **settings)

    def without_optuna():
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "optuna", None)
            search(lambda trial: pytest.fail("made"))

    def of_two_processes():
        with monkeypatch.context() as patch:
            patch.setenv("WORLD_SIZE", "2")
            search(lambda trial: pytest.fail("made"))

    def space(**settings):
        return lambda: searched(hp_space=lambda trial: settings)

    assert_refused(
        {
            "no model": (lambda: searcher(tmp_path, None), "model is None: give one, or model_init"),
            "no model_init": (lambda: searched(None), "give the trainer model_init"),
            "backend": (lambda: searched(backend="ray"), "backend=ray: only optuna"),
            "direction": (lambda: searched(compute_objective=len), "Say direction=maximize or minimize"),
            "setting": (space(learning_rte=0.1), "FAOConfig has no setting learning_rte"),
            "preset": (space(preset="cao_code"), "preset has given the other settings"),
            "optuna": (without_optuna, r"hf_xalign\[search\]"),
            "processes": (of_two_processes, "storage"),
        }
    )
