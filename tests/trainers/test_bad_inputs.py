"""What the trainers of sentences, text and tasks refuse, and a search; those of words have a file of their own."""

import sys
from functools import partial

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model
from support import align_mlm, continual, ppa
from support.fao import searcher
from support.refusals import assert_refused
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer
from transformers import BertConfig, BertForMaskedLM, BertModel

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.pretraining.entries import TokenEntries
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.tasks import LabelSet, TokenTask
from hf_xalign.trainers.align_mlm import AlignMLMTrainer
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.ppa_config import PPAConfig
from hf_xalign.trainers.task_config import TaskConfig

EACH_STEP = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}


def assert_each_refused(call, table):
    """Require that `call` refuses the settings of each row, {message: settings}."""
    assert_refused({message: (partial(call, **settings), message) for message, settings in table.items()})


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
        args = AlignMLMConfig(output_dir=str(tmp_path), use_cpu=True, **settings)
        AlignMLMTrainer(model, args, train_dataset=align_mlm.make_rows(4), processing_class=make_tokenizer())

    english = multilingual(make_encoder(), "en")
    unknown = TokenEntries(np.array([[3, 160]]), "a test")
    assert_each_refused(
        bare,
        {
            "needs a dictionary": {"model": make_encoder()},
            "no language embeddings": {"model": make_encoder(), "objective": "xlm"},
            "embeddings of en and not of de": {"model": english, "objective": "xlm"},
        },
    )
    assert_each_refused(
        partial(align_mlm.make, tmp_path),
        {
            "does not look at a dictionary": {"objective": "mlm", "entries": align_mlm.make_entries()},
            "token 160 in a vocabulary of 160": {"entries": unknown},
            "objective=mmm": {"objective": "mmm"},
            "translation_probability=2": {"translation_probability": 2},
        },
    )


def test_checkpoints_of_something_else(tmp_path):
    def resume(room, **settings):
        room.make(tmp_path / room.__name__, **EACH_STEP, **settings).train(resume_from_checkpoint=True)

    def without_queue():
        (tmp_path / ppa.__name__ / "checkpoint-1" / "momentum.safetensors").unlink()
        resume(ppa)

    for room in (align_mlm, ppa):
        room.train(tmp_path / room.__name__, **EACH_STEP)
    other = align_mlm.make_entries(seed=4)
    assert not np.array_equal(other.ids, align_mlm.make_entries().ids)
    assert_refused(
        {
            "entries": (lambda: resume(align_mlm, entries=other), "checkpoint-1 was trained with another dictionary"),
            "queue": (lambda: resume(ppa, queue_size=12), "a queue of 10 keys of 6 numbers, here 12 of 6"),
            "no queue": (without_queue, "no complete checkpoint"),
        }
    )


def test_continual(tmp_path, monkeypatch):
    def make(two=False, reference=None, **settings):
        with monkeypatch.context() as patch:
            if two:
                patch.setattr(ContinualConfig, "world_size", 2)
            if reference is not None:
                patch.setattr("support.continual.make_encoder", lambda **_: reference)
            continual.make(tmp_path, **settings)

    model, told = continual.make_model(), multilingual(continual.make_model(), "en", "fr")
    narrow = BertModel(BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1))
    reentrant = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}
    encoded = encode_pairs(make_links(7), make_tokenizer())
    assert_each_refused(
        make,
        {
            "pairs_per_example=0": {"pairs_per_example": 0},
            "torch_compile=true: a compiled model need not pass": {"torch_compile": True},
            "use_reentrant=true fails in several processes": {"two": True, **reentrant},
            "freeze_encoder=true leaves nothing": {"freeze_encoder": True},
            "layers 0": {"layers": [7]},
            "preset=contin": {"preset": "contin"},
            "vectors have 8 numbers and the model's 16": {"model": model, "reference": narrow},
            "head=tagger reads a frozen encoder": {"head": "tagger"},
            "language 'de': the encoder has language embeddings for en, fr": {"model": told},
            r"target_lang is not there: .* which are not encoded yet": {"model": told, "pairs": encoded},
        },
    )


def test_ppa_models_and_tokenizers(tmp_path):
    larger = make_tokenizer()
    larger.add_tokens([f"word{k}" for k in range(100)])
    unlimited = tokenizer_with(model_max_length=10**30)
    peft = get_peft_model(make_encoder(), LoraConfig(r=2, target_modules=["query"]))
    assert_each_refused(
        # Whatever looks at the pairs before it refuses misses this column.
        partial(ppa.make, tmp_path, data=ppa.make_pairs().remove_columns("source")),
        {
            "queue_size=10: an optimizer step has 11": {"per_device_train_batch_size": 11},
            "queue_size=10: an optimizer step has 12": {"gradient_accumulation_steps": 3},
            "has no mask token": {"tokenizer": tokenizer_with(mask_token=None)},
            "no padding token": {"tokenizer": tokenizer_with(pad_token=None)},
            "the encoder has 160 word embeddings": {"tokenizer": larger},
            "set max_tokens to 61 or less": {"tokenizer": unlimited, "max_tokens": 62},
            "PeftModel is an encoder with a head or an adapter": {"model": peft},
            "encoder with a head": {"model": BertForMaskedLM(make_encoder().config)},
            "PPA would take every text for en": {"model": make_multilingual_encoder()},
        },
    )
    assert_each_refused(partial(ppa.make, tmp_path), {"no pair is left": {"min_tokens": 29}})


def test_ppa_settings(tmp_path):
    assert_each_refused(
        partial(PPAConfig, output_dir=str(tmp_path), use_cpu=True),
        {
            "did you mean 'paper'": {"preset": "papers"},
            "choose one of moco, in_batch, none": {"contrast": "queue"},
            "leave no objective": {"contrast": "none", "words": "none"},
            "momentum=1.5": {"momentum": 1.5},
            "temperature=0": {"temperature": 0.0},
            "queue_size=0: .*at least 1": {"queue_size": 0},
            "chunk_size=0: .*at least 1": {"contrast": "in_batch", "chunk_size": 0},
            "chunk_size=4 is for contrast=in_batch": {"chunk_size": 4},
            "masking probability 0.0": {"mlm_probability": 0.0},
            "head_settling=1.5: .*at least 0, at most 1": {"head_settling": 1.5},
            "head_learning_rate=-1.0: .*at least 0": {"head_learning_rate": -1.0},
            "eval_pooling=last: PPA's score is of sentences": {"eval_pooling": "last"},
        },
    )


def test_task(tmp_path):
    config = partial(TaskConfig, output_dir=str(tmp_path), use_cpu=True)
    assert_each_refused(
        config,
        {
            "did you mean 'ppa_xnli'": {"preset": "ppa_xnl"},
            "leave freeze_embeddings out": {"freeze_encoder": True, "freeze_embeddings": True},
        },
    )
    long = {"model": continual.make_model(), "tokenizer": tokenizer_with(model_max_length=1000)}
    assert_each_refused(config().check_model, {"takes 64 tokens: set max_length to 64": long})
    stopping = {"early_stopping_patience": 1, "eval_strategy": "epoch", "save_strategy": "epoch"}
    labelled = {"model": continual.make_model(), "task": TokenTask(LabelSet.of(["X", "Y"]))}
    assert_each_refused(
        partial(continual.make_task, tmp_path),
        {
            r"en\.jsonl, line 0.*: label": {**labelled, "train": [continual.examples()]},
            "needs evaluation text in en": {"evaluation": {"de": continual.examples(language="de")}, **stopping},
        },
    )


def test_search(tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason='Optuna is not installed: pip install "hf_xalign[search]"')

    def searched(model_init=make_encoder, **settings):
        trainer = searcher(tmp_path, model_init, None if model_init else make_encoder())
        trainer.hyperparameter_search(n_trials=1, **settings)

    def search_in(change):
        trainer = searcher(tmp_path, make_encoder)
        with monkeypatch.context() as patch:
            change(patch)
            trainer.hyperparameter_search()

    assert_each_refused(
        searched,
        {
            "make the trainer with model_init": {"model_init": None},
            "backend=ray: only optuna": {"backend": "ray"},
            "needs direction=maximize or direction=minimize": {"compute_objective": len},
            "FAOConfig has no setting learning_rte": {"hp_space": lambda trial: {"learning_rte": 0.1}},
            "preset cannot be searched": {"hp_space": lambda trial: {"preset": "cao_code"}},
        },
    )
    assert_refused(
        {
            "no model": (lambda: searcher(tmp_path, None), "model is None: give a model, or model_init"),
            "optuna": (lambda: search_in(lambda p: p.setitem(sys.modules, "optuna", None)), r"hf_xalign\[search\]"),
            "processes": (lambda: search_in(lambda p: p.setenv("WORLD_SIZE", "2")), "storage"),
        }
    )
