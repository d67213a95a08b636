"""What the trainers and a search refuse."""

import sys
from functools import partial

import pytest
import torch
from datasets import DatasetDict
from peft import LoraConfig, get_peft_model
from support import align_mlm, continual, fao, mao, ppa
from support.families import NEWER, save_base
from support.launch import slow
from support.refusals import assert_refused
from support.text import bitext
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer
from support.trackers import offline
from transformers import (
    AutoModel,
    BertForMaskedLM,
    XLMConfig,
    XLMModel,
)

from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.languages import add_language_embeddings
from hf_xalign.tasks import LabelSet, TokenTask
from hf_xalign.trainers import FAOConfig, FAOTrainer
from hf_xalign.trainers.continual_config import ContinualConfig
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


def test_what_is_no_dataset_is_refused(tmp_path):
    text = bitext(*[("die katze", "the cat")] * 8)
    splits = DatasetDict(train=text, test=text)
    make = partial(FAOTrainer, make_encoder(), FAOConfig(output_dir=str(tmp_path), report_to="none"))
    given = {"processing_class": make_tokenizer()}
    assert_each_refused(
        partial(make, **given),
        {
            r"train_dataset \(DatasetDict\) holds 'train', 'test'": {"train_dataset": splits},
            r"train_dataset \(dict\) holds 'train', 'test'": {"train_dataset": dict(splits)},
            r"train_dataset \(IterableDataset\) is a stream": {"train_dataset": text.to_iterable_dataset()},
            r"eval_dataset \(DatasetDict\) holds": {"train_dataset": text, "eval_dataset": splits},
        },
    )


# ---- FAO ----


def test_settings_of_fao(tmp_path):
    assert_each_refused(
        partial(fao.config, tmp_path),
        {
            "objective=none .*another term must align": {"objective": "none"},
            "without links no word is": {"objective": "none", "sentence_weight": 1.0, "regularized_words": "linked"},
            "that draws every row": {"language_sampling": "temperature", "train_sampling_strategy": "sequential"},
            "report_to=wandbb: choose one of .*did you mean 'wandb'": {"report_to": ["wandbb"]},
        },
    )


def test_wandb_needs_its_key_before_anything_is_read(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    wandb.teardown()
    with pytest.raises(InputError, match=r"report_to=wandb: No API key configured.*WANDB_MODE=offline"):
        fao.config(tmp_path, report_to="all")
    with offline(tmp_path):
        assert fao.config(tmp_path, report_to=["wandb"]).report_to == ["wandb"]


def test_what_fao_cannot_train(tmp_path):
    save_base("albert", tmp_path / "albert")
    assert_each_refused(
        partial(fao.make, tmp_path),
        {
            "no special token first and none last": {
                "tokenizer": make_tokenizer(single="$A"),
                "linked_tokens": "all",
            },
            "has a task head": {"model": BertForMaskedLM(make_encoder().config)},
            "type mt5 has a decoder": {"model": AutoModel.from_config(NEWER["mt5"]())},  # whose vectors it would give
            "type xlm adds the embedding of a language only": {
                "model": XLMModel(XLMConfig(vocab_size=160, emb_dim=16, n_layers=1, n_heads=2, n_langs=2))
            },
            "the weights are float16": {"model": make_encoder().half()},
            "this BertModel has an adapter inside": {"model": fao.lora().get_base_model()},
            r"language embeddings \(en, de\).*treat all text as en": {"model": make_multilingual_encoder()},
            "give less than 2, the number of the aligned layer": {"freeze_layers": 2},
            "share their weights": {"model": load_trainable(str(tmp_path / "albert")), "freeze_layers": 1},
            "the factors of adapters cannot be averaged": {"model": fao.lora(), "start_share": 0.3},
            "Use reference=copy": {"model": fao.lora(), "reference": "cache"},
        },
    )


# ---- MAO ----


def test_settings_of_mao(tmp_path):
    links = {"batch_of": "links"}
    assert_each_refused(
        partial(mao.config, tmp_path),
        {
            "not allowed by lora.*'rr'": {"peft_type": "lora", "peft_options": {"rr": 4}},
            "adds tokens before a sentence": {"peft_type": "prompt_tuning"},
            "batch_of=pairs": {"peft_type": "lora", **links},
            "such as lora, or FAO": {"interpolation_weight": 1.0},
            "batch_of=links needs linked_tokens=words": {**links, "linked_tokens": "all"},
            "batch_of=links does not go with .*regularized_words=all": {
                **links,
                "regularizer_weight": 1.0,
                "regularized_words": "all",
            },
        },
    )


def peft(config=None, **settings):
    return get_peft_model(make_encoder(), config or XAlignConfig(**settings))


def test_a_module_that_does_not_fit(tmp_path):
    # The cache of what is below the module on top would leave the other out.
    two = peft()
    two.add_adapter("inside", XAlignConfig(top=None, adapters="houlsby"))
    two.base_model.set_adapter(["default", "inside"])
    assert_each_refused(
        partial(mao.make, tmp_path),
        {
            "is_trainable=True": {"model": peft().requires_grad_(False)},
            "for pooling=last": {"model": peft(pooling="last")},
            "training pairs are also in de.*only maps for nl, en": {"model": peft(languages=["nl"], pivot="en")},
            "held-out pairs are also in de.*maps for nl, en": {
                "model": peft(languages=["nl"], pivot="en"),
                "data": make_links(8, ["nl"]),
            },
            "adapters default, inside of this PeftModel are active": {"model": two},
        },
    )


def test_adapters_that_lose_the_encoder_from_before_them(tmp_path, monkeypatch):
    """Their regularizer would pull to an encoder that never was; without f0 they train."""
    idle = fao.lora(init_lora_weights="pissa")
    idle.add_adapter("second", LoraConfig(r=2, target_modules=["query"]))
    idle.set_adapter("second")
    thawed = peft(top="linear")
    thawed.base_model.model.encoder.layer[0].output.dense.requires_grad_(True)
    of_fao = partial(fao.make, tmp_path, regularizer_weight=1.0)
    of_mao = partial(mao.make, tmp_path, regularizer_weight=1.0)

    def options(**given):
        return {"peft_type": "lora", "peft_options": {"r": 2, "target_modules": ["key"], **given}}

    fao_table = {
        "init_lora_weights=pissa_niter_2 changes": {"model": fao.lora(init_lora_weights="pissa_niter_2")},
        "bias is a weight of the encoder and trained: set LoRA's bias to none": {"model": fao.lora(bias="all")},
        "init_lora_weights=pissa changes": {"model": idle},
    }
    mao_table = {
        "output.dense.weight is a weight of the encoder and trained": {"model": thawed},
        "init_lora_weights=olora changes": options(init_lora_weights="olora"),
        "layer_replication adds layers": options(layer_replication=[[0, 2], [1, 2]]),
    }
    assert_each_refused(of_fao, fao_table)
    assert_each_refused(of_mao, mao_table)
    # Whatever changes the encoder, by whatever name.
    monkeypatch.setattr("hf_xalign.modeling.xalign.config.HARMLESS_STARTS", {"pissa"})
    changed = options(init_lora_weights="pissa")
    assert_each_refused(of_mao, {"this LORA adapter changes the encoder's own weights": changed})
    of_fao(fao.lora(init_lora_weights="olora"), regularizer_weight=0.0)
    of_mao(**options(init_lora_weights="olora"), objective="infonce", regularizer_weight=0.0)


@pytest.mark.parametrize("start", [True, "orthogonal"])
def test_f0_is_the_encoder_from_before_the_adapters_without_dropout(start, tmp_path):
    adapted = fao.lora(dropout=0.3, init_lora_weights=start, use_dora=start is True)
    trainer, plain = fao.make(tmp_path, adapted, preset="mao"), fao.make(tmp_path, preset="mao", dropout=False)
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(3)])
    found = trainer._frozen_vectors(trainer.model.train(), batch)["f0"]
    expected = plain._frozen_vectors(plain.model, batch)["f0"]
    assert found.shape == expected.shape and torch.equal(found, expected) and trainer.model.training


# ---- Text and tasks ----


def test_align_mlm(tmp_path):
    assert_each_refused(
        partial(align_mlm.make, tmp_path),
        {
            "a key of train_dataset is 'German!'": {"data": {"German!": bitext(("die katze", "the cat"))}},
            "train_dataset has no column input_ids .*by language": {"data": bitext(("die katze", "the cat"))},
        },
    )


def test_continual(tmp_path, monkeypatch):
    def make(two=False, reference=None, **settings):
        with monkeypatch.context() as patch:
            if two:
                patch.setattr(ContinualConfig, "world_size", 2)
            if reference is not None:
                patch.setattr("support.continual.make_encoder", lambda **_: reference)
            continual.make(tmp_path, **settings)

    model, told = continual.make_model(), continual.make_model()
    add_language_embeddings(told, ["en", "fr"])
    assert_each_refused(
        make,
        {
            "freeze_encoder=true: a frozen encoder stays aligned": {"freeze_encoder": True},
            "the reference shares weights with the model": {"model": model, "reference": model.base_model},
            "head=tagger: the encoder of a tagger is frozen": {"head": "tagger"},
            "language=de: the encoder has language embeddings for en, fr": {"model": told},
        },
    )


def test_ppa(tmp_path):
    unlimited = tokenizer_with(model_max_length=10**30)
    assert_each_refused(
        # Whatever looks at the pairs before it refuses misses this column.
        partial(ppa.make, tmp_path, data=ppa.make_pairs().remove_columns("source")),
        {
            "queue_size=10: an optimizer step has 12": {"gradient_accumulation_steps": 3},
            "has no mask token": {"tokenizer": tokenizer_with(mask_token=None)},
            "set max_tokens to 61 or less": {"tokenizer": unlimited, "max_tokens": 62},
            "an adapter is saved without the MLM head": {"model": fao.lora()},
            "PPA would treat all text as en": {"model": make_multilingual_encoder()},
        },
    )
    assert_each_refused(partial(ppa.make, tmp_path), {"no pair is left": {"min_tokens": 29}})


def test_task(tmp_path):
    config = partial(TaskConfig, output_dir=str(tmp_path), use_cpu=True)
    long = {"model": continual.make_model(), "tokenizer": tokenizer_with(model_max_length=1000)}
    assert_each_refused(config(max_length=128).check_model, {"reads at most 64 tokens. Set max_length to 64": long})
    stopping = {"early_stopping_patience": 1, "eval_strategy": "epoch", "save_strategy": "epoch"}
    lora = get_peft_model(continual.make_model(), LoraConfig(r=2, target_modules=["query"], task_type="TOKEN_CLS"))
    labelled = {"model": continual.make_model(), "task": TokenTask(LabelSet.of(["X", "Y", "Z"]))}
    assert_each_refused(
        partial(continual.make_task, tmp_path),
        {
            r"en\.jsonl, line 0.*: the label": {**labelled, "train": [continual.examples()]},
            "keep_aligned, fit_head: .*not questions": {"task": continual.QUESTIONS, "keep_aligned": True},
            "factors of adapters": {"model": lora, "keep_aligned": True},
            "there is no evaluation text in en": {"evaluation": {"de": continual.examples(language="de")}, **stopping},
        },
    )


# ---- Checkpoints ----


def test_checkpoints(tmp_path):
    fao.make(tmp_path, pairs=8, save_strategy="steps", save_steps=1).train()

    def resume(path, **settings):
        return lambda: fao.make(tmp_path, **settings).train(resume_from_checkpoint=path)

    table = {
        "gone": (resume(str(tmp_path / "checkpoint-9")), "it is incomplete or missing. The last whole one"),
        "to be deleted": (resume(True, overwrite_output_dir=True), "Give one of them"),
    }
    assert_refused(table)
    assert (tmp_path / "checkpoint-2").is_dir()


def test_checkpoints_of_something_else(tmp_path):
    def resume(room, name, **settings):
        return lambda: room.make(tmp_path / name, **EACH_STEP, **settings).train(resume_from_checkpoint=True)

    def without_queue():
        (tmp_path / "ppa" / "checkpoint-1" / "momentum.safetensors").unlink()
        resume(ppa, "ppa")()

    for room, name in ((align_mlm, "text"), (ppa, "ppa"), (mao, "linear")):
        room.make(tmp_path / name, **EACH_STEP).train()
    other = align_mlm.make_entries(seed=4)
    table = {
        "entries": (resume(align_mlm, "text", entries=other), "checkpoint-1 was trained with another dictionary"),
        "no queue": (without_queue, "no complete checkpoint"),
        "top": (resume(mao, "linear", top="transformer"), "top is linear there and transformer here"),
        "own module": (resume(mao, "linear", model=peft(LoraConfig(r=4))), "another module: peft_type is"),
    }
    assert_refused(table)


def reverse(rows):
    return rows.select(range(len(rows))[::-1])


# A run of each trainer, and what a resumed one cannot change, by the message.
RESUMED = {
    fao: {
        "objective is l2 there and infonce here": {"objective": "infonce"},
        "preset is mao there and cao_code here; .*, and [1-9] more": {"preset": "cao_code"},
        "has 4 rows there and 12 here": {"gradient_accumulation_steps": 3},
        "other text: 24 rows of de there and 20 rows of de here": {"pairs": 20},
    },
    mao: {"init is identity there and random here": {"init": "random"}},
    align_mlm: {"objective is align_mlm there and mlm here": {"objective": "mlm", "entries": None}},
    ppa: {
        "contrast is moco there and in_batch here; .*words is tlm": {"contrast": "in_batch", "words": "none"},
        "other text: also 8 rows of de, 8 rows of nl": {"data": reverse(ppa.make_pairs(16))},
    },
    continual: {
        "alpha is 0.01 there and 1.0 here": {"alpha": 1.0},
        "other text: also 16 rows of en, 7 rows of pairs": {"pairs": reverse(make_links(7))},
    },
}


@pytest.mark.parametrize(
    "room", [fao, ppa, *slow([mao, align_mlm, continual])], ids=lambda room: room.__name__.rpartition(".")[2]
)
def test_what_a_resumed_run_cannot_change(room, tmp_path):
    room.make(tmp_path, **EACH_STEP).train()

    def resume(**settings):
        return room.make(tmp_path, **{**EACH_STEP, **settings}).train(resume_from_checkpoint=True)

    assert_each_refused(resume, RESUMED[room])
    # What may change does change.
    others = {"max_steps": 2, "logging_steps": 2, "save_total_limit": 1, "per_device_eval_batch_size": 3}
    halves = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    assert resume(**others, **halves, run_name="other", dataloader_num_workers=0, bf16=False).global_step == 2
