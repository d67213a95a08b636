"""Every setting of transformers and every argument of its Trainer works, or is refused by its name."""

import dataclasses
import logging
import math
import os
import re
from functools import partial

import pytest
import torch
from peft import LoraConfig, get_peft_model
from support import align_mlm, continual, fao, ppa
from support.families import CONFIGS, NEWER
from support.launch import slow
from support.refusals import assert_refused
from support.runs import make
from support.tiny import make_encoder, make_links, make_tokenizer
from transformers import AutoModel, TrainerCallback
from transformers.trainer_utils import SaveStrategy

from hf_xalign.errors import InputError
from hf_xalign.evaluation.vectors import encode_sentences, encode_words
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.modeling.packing import PACKED_ATTENTION
from hf_xalign.tasks import LabelSet, SequenceTask
from hf_xalign.trainers import FAOConfig, FAOTrainer, MAOConfig, MappingConfig
from hf_xalign.trainers.align_mlm import AlignMLMTrainer
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.ppa_config import PPAConfig
from hf_xalign.trainers.task_config import TaskConfig

EACH_STEP = {"save_strategy": "steps", "save_steps": 1}
SCORED = {"eval_strategy": "steps", "eval_steps": 1}
# Settings of transformers that our own code takes part in, tried in runs of FAO with what they need.
TRIED = {
    "steps": {
        "logging_strategy": "epoch",
        "accelerator_config": {"non_blocking": True},
        "dataloader_drop_last": True,
        "include_num_input_tokens_seen": "non_padding",
        "neftune_noise_alpha": 5.0,
        "lr_scheduler_type": "polynomial",
        "lr_scheduler_kwargs": '{"power": 2.0}',
    },
    "half an epoch": {"num_train_epochs": 0.5, "max_steps": -1},
    "scores": {**SCORED, "eval_steps": 0.5, "do_eval": True, "per_device_eval_batch_size": 3},
    "the best": {**SCORED, **EACH_STEP, "metric_for_best_model": "de_retrieval_mean"},
    "torch_compile": {"torch_compile": True, "torch_compile_backend": "eager"},
    "workers": {"dataloader_persistent_workers": True, "dataloader_num_workers": 1},
}


def config(kind, folder, **settings):
    return kind(output_dir=str(folder), **{"use_cpu": True, "report_to": "none", **settings})


# ---- The table ----


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (FAOConfig, {"label_smoothing_factor": 0.1}),
        (FAOConfig, {"auto_find_batch_size": True}),
        (TaskConfig, {"deepspeed": {"zero_optimization": {"stage": 2}}}),
        (MAOConfig, {"neftune_noise_alpha": 5.0}),
        (PPAConfig, {"include_num_input_tokens_seen": "all"}),
        (ContinualConfig, {"freeze_encoder": True}),
    ],
)
def test_what_a_method_does_not_read_is_refused(kind, settings, tmp_path):
    [name] = settings
    with pytest.raises(InputError, match=f"^{name}="):
        config(kind, tmp_path, **settings)


@pytest.mark.parametrize("name", [*(name for name in TRIED if name != "torch_compile"), *slow(["torch_compile"])])
def test_what_works(name, tmp_path):
    trainer = fao.make(tmp_path, pairs=8, **{"max_steps": 2, "warmup_steps": 0.0, **TRIED[name]})
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    assert trainer.train().global_step >= 1
    moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved


@pytest.mark.parametrize(
    ("found", "fast"),
    [
        ({"amx_bf16": True, "avx512_bf16": True, "cpu_name": "Intel(R) Xeon(R)"}, True),
        ({"amx_bf16": False, "avx512_bf16": True, "cpu_name": "Intel(R) Xeon(R)"}, False),
        ({"amx_bf16": False, "avx512_bf16": True, "cpu_name": "AMD Ryzen 9"}, True),
        ({"amx_bf16": False, "avx512_bf16": False, "cpu_name": "AMD EPYC"}, False),
        ({"avx512_bf16": True}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_bfloat16_on_a_cpu_needs_instructions_that_are_faster(found, fast, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    with caplog.at_level(logging.WARNING):
        args = FAOConfig(output_dir=str(tmp_path), bf16=True, use_cpu=True)
    assert args.bf16 == fast == ("float32 is used" not in caplog.text)


@pytest.mark.parametrize("bf16", [True, False])
def test_attention_in_bfloat16_on_a_cpu_is_not_fused(bf16, tmp_path, monkeypatch):
    """Its backward pass takes six times as long; the same encoder with a PEFT adapter too."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    limits = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")  # of compiled products
    monkeypatch.setattr(os, "environ", {name: value for name, value in os.environ.items() if name not in limits})
    made = {"bert": fao.make_encoder(), "qwen3": AutoModel.from_config(NEWER["qwen3"]())}
    for name, model in {**made, "adapter": fao.lora()}.items():
        assert model.config._attn_implementation == "sdpa"
        trainer = fao.make(tmp_path / name, model, pairs=8, bf16=bf16)
        slow = "eager" if name == "qwen3" else PACKED_ATTENTION
        assert trainer.model.config._attn_implementation == (slow if bf16 else "sdpa")
    assert [os.environ.get(name) for name in limits] == ["64" if bf16 else None] * 2


def test_settings_that_do_not_go_together(tmp_path):
    needs = "needs eval_strategy=steps or epoch"
    rows = {
        f"early_stopping_patience=2 {needs}": {"early_stopping_patience": 2},
        f"load_best_model_at_end=true {needs}": {"load_best_model_at_end": True, "save_strategy": "no"},
        f"save_strategy=best {needs}": {"save_strategy": "best"},
        f"lr_scheduler_type=reduce_lr_on_plateau {needs}": {"lr_scheduler_type": "reduce_lr_on_plateau"},
        "Remove split_batches": {"accelerator_config": '{"split_batches": true}'},
        "optim=schedule_free_sgd: its weights": {"optim": "schedule_free_sgd"},
    }
    assert_refused({m: (partial(config, PPAConfig, tmp_path, **settings), f"^.*{m}") for m, settings in rows.items()})


# ---- The best checkpoint ----


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        *((name, True) for name in ("eval_perplexity", "perplexity", "bn_loss", "aer", "l2_distance", "eval_mae")),
        *((name, False) for name in ("sr_Latn_retrieval_mean", "hi_span_f1", "eval_exact_match", "alignment", "mine")),
    ],
)
def test_scores_know_their_direction(metric, lower, tmp_path):
    made = config(AlignMLMConfig, tmp_path, metric_for_best_model=metric, **SCORED)
    assert made.greater_is_better is not lower
    if metric == "mine":
        assert config(AlignMLMConfig, tmp_path, metric_for_best_model=metric, greater_is_better=False, **SCORED)


def test_the_checkpoint_of_the_lowest_perplexity_is_kept(tmp_path, monkeypatch):
    held_out = {0: 4.0, 1: 3.0, 2: 1.0, 3: 2.0}  # losses by step

    def given(self, dataset):
        return {"en": held_out[self.state.global_step]}, held_out[self.state.global_step]

    monkeypatch.setattr(AlignMLMTrainer, "losses", given)
    settings = {"objective": "mlm", "data": align_mlm.make_rows(12), "max_steps": 3}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "perplexity"}
    trainer = align_mlm.make(tmp_path, **settings, **SCORED, **EACH_STEP, **best)
    trainer.train()
    seen = {row["step"]: row["eval_perplexity"] for row in trainer.state.log_history if "eval_perplexity" in row}
    assert seen == {step: math.exp(loss) for step, loss in held_out.items()}
    assert trainer.state.best_global_step == 2 and trainer.state.best_metric == math.e


@pytest.mark.parametrize("room", [fao, ppa, align_mlm])
def test_without_a_metric_it_is_the_headline(room, tmp_path):
    settings = {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 5}, "max_steps": 1}
    trainer = room.make(tmp_path, **settings, **SCORED, save_strategy="best")
    trainer.train()
    args = trainer.args
    assert args.metric_for_best_model == args.headline and args.save_strategy == SaveStrategy.BEST
    assert trainer.lr_scheduler.mode == ("min" if room is align_mlm else "max") and trainer.lr_scheduler.patience == 5
    assert trainer.state.best_metric == trainer.state.log_history[-2][args.headline]


def test_a_score_that_there_is_not_is_refused_before_the_first_step(tmp_path):
    class NoStep(TrainerCallback):
        def on_step_begin(self, *args, **kwargs):
            pytest.fail("a step began")

    def attempt(metric):
        fao.make(tmp_path, metric_for_best_model=metric, callbacks=[NoStep()], **SCORED).train()

    table = {
        "a mistype": (partial(attempt, "retreival"), "eval_retreival: there is no such score; .*'eval_retrieval'"),
        "the usual": (partial(attempt, "loss"), "metric_for_best_model=eval_loss: there is no such score"),
    }
    assert_refused(table)


# ---- Optimizers, resuming, counting ----


def test_an_optimizer_of_ones_own_gets_all_that_is_trained(tmp_path):
    made = FAOTrainer(
        make_encoder(),
        config(FAOConfig, tmp_path, objective="infonce", projection_dim=4, max_steps=1),
        train_dataset=make_links(8),
        processing_class=make_tokenizer(),
        optimizer_cls_and_kwargs=(torch.optim.Adam, {"lr": 0.01}),
    )
    made.train()
    groups = made.optimizer.param_groups
    assert sum(len(g["params"]) for g in groups) == sum(p.requires_grad for p in made.model.parameters())


@pytest.mark.parametrize("method", ["fao", *slow(["mao", "task"])])
def test_weights_alone_are_not_resumed(method, tmp_path):
    made = partial(make, tmp_path, method, count=8, **EACH_STEP, max_steps=2)
    made(save_only_model=True).train()
    message = r"without optimizer\.pt and scheduler\.pt, as by save_only_model=true"
    one = str(tmp_path / "checkpoint-1")
    table = {
        "the last": (lambda: made().train(resume_from_checkpoint=True), f"checkpoint-2: it was saved {message}"),
        "by name": (lambda: made().train(resume_from_checkpoint=one), f"checkpoint-1: .*it was saved {message}"),
    }
    assert_refused(table)


def test_no_full_batch(tmp_path):
    run = fao.make(tmp_path, pairs=3, dataloader_drop_last=True)
    assert_refused({"three of four": (run.train, "dataloader_drop_last=true: 3 rows fill no batch of 4")})


# ---- Models and tokenizers ----


def test_a_tokenizer_larger_than_the_embeddings_is_refused_everywhere(tmp_path):
    larger, encoder = make_tokenizer(), make_encoder()
    larger.add_tokens(["ຂ້ອຍ", *(f"ທ{k}" for k in range(60))])
    encoder.save_pretrained(tmp_path / "saved")
    larger.save_pretrained(tmp_path / "saved")
    build = {
        "fao": lambda: fao.make(tmp_path, tokenizer=larger),
        "ppa without words": lambda: ppa.make(tmp_path, tokenizer=larger, words="none"),
        "words": lambda: encode_words(encoder, larger, "ຂ້ອຍ"),
        "sentences": lambda: encode_sentences(encoder, larger, ["ຂ້ອຍ"]),
        "commands": lambda: load_encoder(str(tmp_path / "saved"), torch.device("cpu")),
    }
    assert_refused({name: (call, "ids up to 171, but the encoder has only 160 word") for name, call in build.items()})
    small = make_encoder()
    small.resize_token_embeddings(100)
    reference = partial(continual.make, tmp_path, reference=small)
    assert_refused({"the reference of continual learning": (reference, "the encoder has only 100 word embeddings")})


def test_a_tokenizer_of_another_model_is_warned_of_once(caplog):
    small, odd, e5 = make_encoder(), AutoModel.from_config(CONFIGS["xlm-roberta"]()), make_encoder()
    small.resize_token_embeddings(2 * len(make_tokenizer()) + 2)
    odd.config.pad_token_id = e5.config.pad_token_id = 1
    signs = {
        small: r"it has \d+ tokens for \d+ word embeddings",
        odd: "its padding token has the id 0, the encoder's 1",
    }
    for encoder, sign in signs.items():
        caplog.clear()
        encode_sentences(encoder, make_tokenizer(), ["the cat"])
        encode_sentences(encoder, make_tokenizer(), ["the cat"])
        [message] = caplog.messages
        assert re.fullmatch(f"the tokenizer .* may be another model's: {sign}. Take the encoder's.", message)
    caplog.clear()
    encode_sentences(e5, make_tokenizer(), ["the cat"])
    assert not caplog.messages


def test_a_special_token_that_nothing_puts_in_needs_no_embedding():
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"] + [f"<{k}>" for k in range(60)]})
    assert len(tokenizer) > 160
    assert encode_sentences(make_encoder(), tokenizer, ["the cat"]).shape == (1, 1, 16)
    tokenizer.mask_token = "<59>"
    with pytest.raises(InputError, match="ids up to 171, but the encoder has only 160 word"):
        encode_sentences(make_encoder(), tokenizer, ["the cat"])


def test_a_head_has_the_labels_of_the_task_in_their_order(tmp_path):
    task = SequenceTask(LabelSet.of(["ja", "nein"]))
    text = continual.examples(continual.TEXTS)
    text = dataclasses.replace(text, rows=text.rows.map(lambda row: {"label": {"x": "ja", "y": "nein"}[row["label"]]}))

    def attempt(model, **names):
        for name, value in names.items():
            setattr(model.config, name, value)
        return continual.make_task(tmp_path, model, task, train=[text], max_steps=1)

    def head(count=2, labels=None):
        model = continual.make_model(continual.TEXTS)
        model.config.num_labels = count
        if labels:
            model.config.id2label = dict(enumerate(labels))
        return model

    lora = get_peft_model(head(labels=["nein", "ja"]), LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS"))
    rows = {
        "turned": (head(labels=["nein", "ja"]), "a head for nein, ja, but the task's labels are ja, nein"),
        "below an adapter": (lora, "a head for nein, ja"),
        "three": (head(3), "a head for 3 labels without names"),
        "of words": (continual.make_model(continual.TOKENS), "no head for a task of kind sequence"),
    }
    assert_refused({name: (partial(attempt, model), message) for name, (model, message) in rows.items()})
    for labels in (None, ["ja", "nein"]):
        trainer = attempt(head(labels=labels))
        assert trainer.model.config.id2label == {0: "ja", 1: "nein"}
        assert trainer.model.config.label2id == {"ja": 0, "nein": 1}


def test_runs_of_all_methods_have_one_seed_by_default():
    """`compare` pairs runs by their seeds, and a map is compared with training."""
    seeds = {
        field.default
        for config in (FAOConfig, MappingConfig)
        for field in dataclasses.fields(config)
        if field.name == "seed"
    }
    assert len(seeds) == 1
