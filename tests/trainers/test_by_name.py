"""Trainers from a model's name and plain pairs, as a script of five lines has them."""

import logging
import shutil
from functools import partial

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from support import align_mlm, continual
from support.launch import same_bits, tensors
from support.ppa import make_pairs
from support.refusals import assert_refused
from support.tiny import SENTENCES, make_encoder, make_tokenizer

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.links import Linking, linking
from hf_xalign.modeling.checkpoint import load_trainable


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_encoder().to(torch.bfloat16).save_pretrained("tiny")
    make_tokenizer().save_pretrained("tiny")


def pairs():
    return make_pairs(40)


def corpora():
    text = {"en": [english for _, english, _ in SENTENCES], "de": [german for german, _, _ in SENTENCES]}
    return {language: Dataset.from_dict({"text": 4 * rows}) for language, rows in text.items()}


QUIET = {"use_cpu": True, "report_to": "none", "save_strategy": "no"}
FINETUNING = {"task": continual.TEXTS, "train_dataset": [continual.examples(continual.TEXTS)]}
TRAINERS = {
    "FAO": lambda: {"train_dataset": pairs(), "eval_dataset": pairs()},
    "MAO": lambda: {"train_dataset": pairs(), "eval_dataset": pairs()},
    "PPA": lambda: {"train_dataset": pairs()},
    "AlignMLM": lambda: {"train_dataset": corpora(), "eval_dataset": corpora(), "entries": align_mlm.make_entries()},
    "Task": lambda: FINETUNING,
    "Continual": lambda: FINETUNING | {"pairs": pairs(), "reference": "tiny"},
}


@pytest.mark.parametrize("method", TRAINERS)
def test_a_model_by_name_and_text_without_links(method):
    trainer_class, config_class = (getattr(hf_xalign, method + kind) for kind in ("Trainer", "Config"))
    args = config_class(max_steps=1, **QUIET)
    if method == "PPA":
        args.min_tokens = 1
    trainer = trainer_class(model="tiny", args=args, **TRAINERS[method]())
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert trainer.train().global_step == 1
    assert len(trainer.processing_class) == len(make_tokenizer())


def test_sentence_terms_need_no_links(monkeypatch):
    monkeypatch.setattr(linking, "align_words", None)
    args = hf_xalign.FAOConfig(
        preset="joint", objective="none", sentence_weight=1.0, per_device_train_batch_size=40, logging_steps=1,
        max_steps=3, learning_rate=1e-2, **QUIET
    )  # fmt: skip
    trainer = hf_xalign.FAOTrainer("tiny", args, train_dataset=pairs())
    assert len(trainer.train_dataset) == len(pairs()) and not any(trainer.train_dataset["links"][:])
    trainer.train()
    last, terms = trainer.state.log_history[-2], ("regularizer", "interpolation", "sentences")
    terms += ("similarities_sentences", "similarities_words")
    assert {f"loss/{term}" for term in terms} == {name for name in last if name.startswith("loss/")}
    assert min(last[f"loss/{term}"] for term in terms) > 0


def test_held_out_pairs_by_language():
    rows = pairs()
    found = {code: rows.filter(lambda row, code=code: row["source_lang"] == code) for code in ("de", "nl")}
    found["bn"] = rows.remove_columns("source_lang")
    args = hf_xalign.FAOConfig(max_steps=1, **QUIET)
    trainer = hf_xalign.FAOTrainer("tiny", args, train_dataset=rows, eval_dataset=found)
    trainer.train()
    assert {*trainer.run.record["scores"]["before"]} == {"de", "nl", "bn"}
    french = found["nl"].map(lambda _: {"target_lang": "fr"})
    table = {
        r"\['fr'\]: its rows are in nl": {"de": found["de"], "fr": found["nl"]},
        "train_dataset: target_lang is en and fr": {"de": found["de"], "nl": french},
    }
    make = partial(hf_xalign.FAOTrainer, "tiny", args)
    assert_refused({message: (partial(make, train_dataset=given), message) for message, given in table.items()})


def test_a_sentence_transformer_is_aligned_in_place(tmp_path):
    st = pytest.importorskip("sentence_transformers")
    model = st.SentenceTransformer(str(tmp_path / "tiny"), device="cpu", model_kwargs={"dtype": torch.float32})
    before = model.encode(["the cat"])
    args = hf_xalign.FAOConfig(max_steps=1, learning_rate=1e-2, warmup_steps=0, **QUIET)
    trainer = hf_xalign.FAOTrainer(model, args, train_dataset=pairs())
    trainer.train()
    trainer.save_model(str(tmp_path / "out"))
    after = model.encode(["the cat"])
    assert abs(after - before).max() > 1e-3
    saved = load_trainable(str(tmp_path / "out"))
    own = hf_xalign.encode_sentences(saved, make_tokenizer(), ["the cat"], -1)
    assert torch.allclose(torch.from_numpy(after), own, atol=1e-5)
    model.append(torch.nn.Identity())
    with pytest.raises(InputError, match="Transformer, Pooling, Identity"):
        hf_xalign.FAOTrainer(model, args, train_dataset=pairs())


def test_defaults_of_everything_and_a_second_run_into_the_folder(monkeypatch):
    trainer = hf_xalign.FAOTrainer("tiny", train_dataset=pairs())
    assert isinstance(trainer.args, hf_xalign.FAOConfig)
    trainer.train()
    trainer.save_model()
    assert hf_xalign.load("trainer_output").config.hidden_size == make_encoder().config.hidden_size

    given = {"processing_class": make_tokenizer(), "train_dataset": pairs()}
    with monkeypatch.context() as patch:
        patch.setattr(linking, "align_words", None)
        make = hf_xalign.FAOTrainer
        table = {
            "by name": (partial(make, "tiny", train_dataset=pairs()), "holds another run"),
            "a model": (partial(make, make_encoder(), **given), "holds another run"),
            "no folder": (partial(make, make_encoder(), train_dataset=pairs()), "no checkpoint with a tokenizer"),
        }
        assert_refused(table)
    resumed = hf_xalign.FAOTrainer("tiny", hf_xalign.FAOConfig(resume_from_checkpoint=True), **given)
    assert resumed.train().global_step == trainer.state.global_step
    hf_xalign.FAOTrainer("tiny", hf_xalign.FAOConfig(overwrite_output_dir=True, max_steps=1), **given).train()


def test_a_killed_run_of_an_adapter_is_resumed_with_the_default_settings():
    options = {"max_steps": 3, **QUIET, "save_strategy": "steps", "save_steps": 2, "output_dir": "run"}
    given = {"train_dataset": pairs(), "peft_config": LoraConfig(r=2, target_modules=["query"])}
    first = hf_xalign.FAOTrainer("tiny", hf_xalign.FAOConfig(**options), **given)
    assert "final weights" not in first.formula() and first.args.start_share == 0.2
    first.train()
    shutil.rmtree("run/checkpoint-3")
    resumed = hf_xalign.FAOTrainer("tiny", hf_xalign.FAOConfig(**options, resume_from_checkpoint=True), **given)
    resumed.train(resume_from_checkpoint=True)
    same_bits(tensors(first.model), tensors(resumed.model))


def test_adapters_that_do_not_train_the_encoder():
    args = hf_xalign.FAOConfig(max_steps=1, **QUIET)
    with pytest.raises(InputError, match="task_type=SEQ_CLS is for a model with a head"):
        hf_xalign.FAOTrainer("tiny", args, train_dataset=pairs(), peft_config=LoraConfig(task_type="SEQ_CLS"))
    prompt = PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    model = get_peft_model(load_trainable("tiny"), prompt)
    with pytest.raises(InputError, match="PROMPT_TUNING puts vectors before"):
        hf_xalign.FAOTrainer(model, args, train_dataset=pairs(), processing_class=make_tokenizer())


def test_python_says_what_it_reads_and_takes_one_layer_as_a_list(monkeypatch, caplog):
    args = hf_xalign.FAOConfig(preset="mao", layers=1, max_steps=1, **QUIET)
    assert args.layers == [1]
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    caplog.set_level(logging.INFO, logger="transformers")
    trainer = hf_xalign.FAOTrainer("tiny", args, train_dataset=pairs(), linking=Linking(max_pairs=4))
    assert "text     de-en: " in caplog.text and "first " in caplog.text
    args = hf_xalign.FAOConfig("tokens", subword_links=True, max_steps=1, **QUIET)
    tokens = hf_xalign.FAOTrainer("tiny", args, train_dataset=pairs(), linking=Linking(max_pairs=4))
    words, tokens = (one.link_counts.values() for one in (trainer, tokens))
    assert sum(counts["pairs"] for counts in words) == sum(counts["pairs"] for counts in tokens) == 4
    assert sum(counts["links"] for counts in words) < sum(counts["links"] for counts in tokens)
