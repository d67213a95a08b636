"""Every setting of transformers and every argument of its Trainer works, or is refused by its name."""

import dataclasses
import logging
import math
import os
import re
from functools import partial
from inspect import Parameter, signature
from unittest import mock

import pytest
import torch
import transformers
from accelerate.parallelism_config import ParallelismConfig
from peft import LoraConfig, get_peft_model
from support import align_mlm, continual, fao, ppa
from support.families import CONFIGS
from support.refusals import assert_refused
from support.runs import make
from support.tiny import make_encoder, make_links, make_tokenizer
from transformers import AutoModel, BertModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from hf_xalign.data.batches.sampling import PairSampler
from hf_xalign.errors import InputError
from hf_xalign.evaluation.vectors import encode_sentences, encode_words
from hf_xalign.mapping.anchors import cut_finder
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.tasks import LabelSet, SequenceTask
from hf_xalign.trainers import FAOConfig, FAOTrainer, MAOConfig, MAOTrainer
from hf_xalign.trainers.align_mlm import AlignMLMTrainer
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig
from hf_xalign.trainers.base import trainer_config
from hf_xalign.trainers.base.trainer_config import SETTINGS, is_lower_better
from hf_xalign.trainers.continual import ContinualTrainer
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.ppa import PPATrainer
from hf_xalign.trainers.ppa_config import PPAConfig
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig

METHODS = {
    FAOTrainer: FAOConfig,
    MAOTrainer: MAOConfig,
    AlignMLMTrainer: AlignMLMConfig,
    ContinualTrainer: ContinualConfig,
    PPATrainer: PPAConfig,
    TaskTrainer: TaskConfig,
}
EACH_STEP = {"save_strategy": "steps", "save_steps": 1}
SCORED = {"eval_strategy": "steps", "eval_steps": 1}
# Values that are not the default, of settings without an opposite.
OTHER = {
    "debug": "underflow_overflow",
    "deepspeed": {"zero_optimization": {"stage": 2}},
    "eval_accumulation_steps": 2,
    "include_for_metrics": ["loss"],
    "include_num_input_tokens_seen": "all",
    "label_names": ["tags"],
    "label_smoothing_factor": 0.1,
    "length_column_name": "size",
    "liger_kernel_config": {"rope": True},
    "neftune_noise_alpha": 5.0,
    "parallelism_config": ParallelismConfig(dp_shard_size=2),
}
# Each is tried in a run of FAO. An entry of `TRIED` may bring what its setting needs.
ALONE = {
    "do_train": True, "resume_from_checkpoint": "false", "seed": 5, "data_seed": 3, "full_determinism": True,
    "use_cpu": True, "log_level": "error", "log_level_replica": "error", "log_on_each_node": False,
    "disable_tqdm": False, "logging_strategy": "epoch", "logging_steps": 2, "report_to": [], "run_name": "mine",
    "skip_memory_metrics": False, "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "max_steps": 1,
    "learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_steps": 1, "optim": "adafactor",
    "weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 1e-6, "max_grad_norm": 0.5,
    "train_sampling_strategy": "random", "eval_strategy": "epoch", "ignore_data_skip": True,
    "restore_callback_states_from_checkpoint": True, "bf16": True, "torch_compile_backend": "aot_eager",
    "torch_empty_cache_steps": 1, "accelerator_config": {"non_blocking": True}, "dataloader_drop_last": True,
    "dataloader_num_workers": 1, "dataloader_pin_memory": False, "include_num_input_tokens_seen": "non_padding",
    "neftune_noise_alpha": 5.0,
}  # fmt: skip
TRIED = {name: {name: value} for name, value in ALONE.items()} | {
    "output_dir": {},
    "logging_first_step": {"logging_first_step": True, "logging_steps": 50},
    "num_train_epochs": {"num_train_epochs": 0.5, "max_steps": -1},
    "lr_scheduler_kwargs": {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": '{"power": 2.0}'},
    "optim_args": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "do_eval": {"do_eval": True, **SCORED},
    "eval_steps": {**SCORED, "eval_steps": 0.5},
    "eval_delay": {**SCORED, "eval_delay": 2},
    "eval_on_start": {**SCORED, "eval_on_start": True},
    "per_device_eval_batch_size": {**SCORED, "per_device_eval_batch_size": 3},
    "load_best_model_at_end": {**SCORED, **EACH_STEP, "load_best_model_at_end": True},
    "metric_for_best_model": {**SCORED, **EACH_STEP, "metric_for_best_model": "de_retrieval_mean"},
    "greater_is_better": {**SCORED, "metric_for_best_model": "retrieval", "greater_is_better": True},
    "save_strategy": {**SCORED, "save_strategy": "best"},
    "save_steps": {"save_strategy": "steps", "save_steps": 0.5},
    "save_total_limit": {**EACH_STEP, "save_total_limit": 1},
    "save_only_model": {**EACH_STEP, "save_only_model": True},
    "save_on_each_node": {**EACH_STEP, "save_on_each_node": True},
    "activation_checkpointing": {"gradient_checkpointing": True},
    "activation_checkpointing_kwargs": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    },
    "torch_compile": {"torch_compile": True, "torch_compile_backend": "eager"},
    "dataloader_persistent_workers": {"dataloader_persistent_workers": True, "dataloader_num_workers": 1},
    "dataloader_prefetch_factor": {"dataloader_prefetch_factor": 3, "dataloader_num_workers": 1},
    "dataloader_multiprocessing_context": {"dataloader_multiprocessing_context": "fork", "dataloader_num_workers": 1},
}
TRIED["gradient_checkpointing"] = TRIED["activation_checkpointing"]
TRIED["gradient_checkpointing_kwargs"] = TRIED["activation_checkpointing_kwargs"]
# What one process without a GPU, a network or further packages cannot show.
ELSEWHERE = """
optim_target_modules fp16 tf32 torch_compile_mode fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb
ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout local_rank project trackio_space_id trackio_bucket_id
trackio_static_space_id push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_always_push hub_revision
"""


def config(kind, folder, **settings):
    return kind(output_dir=str(folder), **{"use_cpu": True, "report_to": "none", **settings})


def refusals(kind):
    """Return {setting: reason} of a method."""
    names = [cls.__name__ for cls in kind.__mro__]
    found = {name: reason for name, reason in SETTINGS.items() if isinstance(reason, str)}
    for name, reason in SETTINGS.items():
        if isinstance(reason, dict) and any(one in reason for one in names):
            found[name] = next(reason[one] for one in names if one in reason)
    return found


# ---- The table ----


# Arguments of the Trainer that are the method's own here.
OWN = {"self", "data_collator", "compute_loss_func", "compute_metrics", "preprocess_logits_for_metrics"}


@pytest.mark.parametrize("trainer", METHODS, ids=lambda trainer: trainer.__name__)
def test_a_trainer_names_its_arguments(trainer):
    parameters = signature(trainer.__init__).parameters
    assert not {p.kind for p in parameters.values()} & {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}
    assert signature(Trainer.__init__).parameters.keys() - OWN < parameters.keys()
    needed = {p.name: make_links(2) for p in parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty}
    with pytest.raises(TypeError, match="data_collator"):
        trainer("no/such-model", **needed, data_collator=len)


def test_the_table_knows_every_setting():
    installed = {field.name for field in dataclasses.fields(TrainingArguments)}
    assert not installed - set(SETTINGS), "decide: does it work, or is it refused? See trainers/base/trainer_config.py"
    untold = {name for name, reason in SETTINGS.items() if not isinstance(reason, str)} & installed
    assert untold == (set(TRIED) | set(ELSEWHERE.split())) & installed


@pytest.mark.parametrize("kind", METHODS.values(), ids=lambda kind: kind.__name__)
def test_what_a_method_does_not_read_is_refused(kind, tmp_path):
    fields = {field.name: field for field in dataclasses.fields(kind)}
    table = {}
    for name in refusals(kind).keys() & fields.keys():
        value = OTHER[name] if name in OTHER else not fields[name].default
        table[name] = (partial(config, kind, tmp_path, **{name: value}), f"^{name}=")
    assert len(table) > 20
    assert_refused(table)


@pytest.mark.parametrize("trainer", METHODS, ids=lambda trainer: trainer.__name__)
def test_optimizers_and_missing_text_are_refused_before_loading(trainer, tmp_path):
    more = {
        ContinualTrainer: {"task": continual.TOKENS, "pairs": make_links(2), "reference": "none"},
        TaskTrainer: {"task": continual.TOKENS},
    }.get(trainer, {})
    args = config(METHODS[trainer], tmp_path)
    attempt = partial(trainer, "no/such-model", args, train_dataset=None, **more)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    scored = config(METHODS[trainer], tmp_path, eval_strategy="epoch")
    table = {
        "optimizer": (partial(attempt, optimizers=(optimizer, None)), "loaded by its name"),
        "schedule": (partial(attempt, optimizers=(None, schedule)), "the scheduler belongs to another optimizer"),
        "no text": (partial(trainer, "no/such-model", scored, train_dataset=None, **more), "nothing to score"),
    }
    assert_refused(table)


def test_a_newer_setting_is_named_once(tmp_path, monkeypatch, caplog):
    known = {name: reason for name, reason in SETTINGS.items() if name != "use_cache"}
    monkeypatch.setattr(trainer_config, "SETTINGS", known)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            config(PPAConfig, tmp_path)
        assert "use_cache" not in caplog.text
        for _ in range(2):
            config(PPAConfig, tmp_path, use_cache=True)
    assert caplog.text.count("use_cache=True: hf_xalign does not know this setting") == 1


@pytest.fixture
def process():
    """Put back what settings change in the whole process: verbosity, determinism, the environment."""
    level = transformers.utils.logging.get_verbosity()
    with mock.patch.dict(os.environ):
        yield
    transformers.utils.logging.set_verbosity(level)
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", TRIED)
def test_what_works(name, tmp_path, process):
    trainer = fao.make(tmp_path, pairs=8, **{"max_steps": 2, "warmup_steps": 0.0, **TRIED[name]})
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    assert trainer.train().global_step >= 1
    moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved


def test_bfloat16_on_a_cpu_needs_amx(tmp_path, monkeypatch, caplog):
    for found in ({"amx_bf16": True}, {"avx512_bf16": True, "amx_bf16": False}, {"architecture": "aarch64"}):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            args = FAOConfig(output_dir=str(tmp_path), bf16=True, use_cpu=True)
        assert args.bf16 == found.get("amx_bf16", False) == ("float32 is used" not in caplog.text)


@pytest.mark.parametrize("bf16", [True, False])
def test_attention_in_bfloat16_on_a_cpu_is_not_fused(bf16, tmp_path, monkeypatch):
    """Its backward pass takes six times as long; the same encoder with a PEFT adapter too."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    for model in (fao.make_encoder(), fao.lora()):
        assert model.config._attn_implementation == "sdpa"
        trainer = fao.make(tmp_path, model, pairs=8, bf16=bf16)
        assert trainer.model.config._attn_implementation == ("eager" if bf16 else "sdpa")


def test_settings_that_do_not_go_together(tmp_path):
    scored, needs = {**SCORED, **EACH_STEP}, "needs eval_strategy=steps or epoch"
    better = "metric_for_best_model"
    rows = {
        "early_stopping_patience=0: .* at least 1": {"early_stopping_patience": 0, **scored},
        f"early_stopping_patience=2 {needs}": {"early_stopping_patience": 2},
        f"load_best_model_at_end=true {needs}": {"load_best_model_at_end": True, "save_strategy": "no"},
        f"metric_for_best_model=accuracy {needs}": {"metric_for_best_model": "accuracy"},
        f"save_strategy=best {needs}": {"save_strategy": "best"},
        f"lr_scheduler_type=reduce_lr_on_plateau {needs}": {"lr_scheduler_type": "reduce_lr_on_plateau"},
        f"eval_on_start=true {needs}": {"eval_on_start": True},
        f"do_eval=true {needs}": {"do_eval": True},
        "fp16=true: half precision needs a GPU": {"fp16": True},
        "seed=-1: must be at least 0": {"seed": -1},
        "data_seed=-2: must be": {"data_seed": -2},
        "save_steps=0: must be above 0": {"save_strategy": "steps", "save_steps": 0},
        "save_total_limit=0: must be": {"save_total_limit": 0},
        "max_steps=0: give at least 1": {"max_steps": 0},
        "optim=adamw_torch_fused: Invalid beta": {"adam_beta2": 1.0},
        "transformers refuses these settings: --tf32 requires": {"tf32": True},
        "key_dropout=true does not go with dropout=false": {"key_dropout": True, "dropout": False},
        "fsdp_config=.* needs fsdp=true": {"fsdp_config": {"version": 2}},
        "Remove split_batches": {"accelerator_config": '{"split_batches": true}'},
        "optim=galore_adamw: .*galore": {"optim": "galore_adamw", "optim_target_modules": ["query"]},
        "optim=schedule_free_sgd: its weights": {"optim": "schedule_free_sgd"},
        "adam_beta1=0.3: optim=sgd does not read it": {"optim": "sgd", "adam_beta1": 0.3},
        "optim_args=rank=4: optim=adamw_torch does not": {"optim": "adamw_torch", "optim_args": "rank=4"},
        "lr_scheduler_type=cosine_with_min_lr: .*min_lr": {"lr_scheduler_type": "cosine_with_min_lr"},
        "warmup_steps=7.*: lr_scheduler_type=constant has no": {"lr_scheduler_type": "constant", "warmup_steps": 7},
        "greater_is_better=true: lower is better for fr": {better: "fr_loss", "greater_is_better": True, **scored},
        "greater_is_better=false: greater is better": {better: "retrieval", "greater_is_better": False, **scored},
        "mode=min is wrong for eval_retrieval": {
            "lr_scheduler_type": "reduce_lr_on_plateau",
            "lr_scheduler_kwargs": '{"mode": "min"}',
            **scored,
        },
    }
    assert_refused({m: (partial(config, PPAConfig, tmp_path, **settings), f"^.*{m}") for m, settings in rows.items()})


UNUSED = [
    (PPAConfig, {"contrast": "none", "queue_size": 9}, "contrast=none has no queue"),
    (PPAConfig, {"contrast": "in_batch", "momentum": 0.5}, "contrast=in_batch has no queue"),
    (PPAConfig, {"contrast": "none", "normalize": "before"}, "projects no sentences"),
    (PPAConfig, {"words": "none", "mlm_probability": 0.3}, "predicts no masked tokens"),
    (AlignMLMConfig, {"objective": "mlm", "alpha": 3.0}, "only objective=align_mlm reads it"),
    (AlignMLMConfig, {"objective": "align_mlm", "dict_mlm": "label"}, "only objective=dict_mlm reads it"),
]


@pytest.mark.parametrize(("kind", "settings", "reason"), UNUSED)
def test_settings_of_another_objective_are_warned_about(kind, settings, reason, tmp_path, caplog):
    config(kind, tmp_path, **settings)
    [(name, value)] = list(settings.items())[1:]
    assert f"{name}={value} has no effect: " in caplog.text
    assert reason in caplog.text
    caplog.clear()
    config(kind, tmp_path, **({name: value} if kind is PPAConfig else {}))
    assert not caplog.records


# ---- The best checkpoint ----


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        *((name, True) for name in ("eval_perplexity", "perplexity", "bn_loss", "aer", "l2_distance")),
        *((name, False) for name in ("sr_Latn_retrieval_mean", "hi_span_f1", "eval_exact_match", "alignment")),
        ("mine", None),
    ],
)
def test_scores_know_their_direction(metric, lower, tmp_path):
    assert is_lower_better(metric) is lower
    made = config(AlignMLMConfig, tmp_path, metric_for_best_model=metric, **SCORED)
    assert made.greater_is_better is not bool(lower)
    if lower is None:
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


def test_a_given_optimizer_holds_all_that_is_trained(tmp_path, caplog):
    def attempt(kind, folder, model, **settings):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        return kind(
            model,
            config(METHODS[kind], tmp_path / folder, max_steps=1, warmup_steps=0.0, save_strategy="no", **settings),
            train_dataset=ppa.make_pairs() if kind is PPATrainer else make_links(8),
            processing_class=make_tokenizer(),
            optimizers=(optimizer, None),
        )

    projected = partial(attempt, FAOTrainer, "projected", make_encoder(), objective="infonce", projection_dim=4)
    table = {
        "projection": (projected, "optimizers: .*no group with alignment_head.align.hidden"),
        "module": (partial(attempt, MAOTrainer, "mao", make_encoder()), "no group with .*xalign"),
        "heads": (partial(attempt, PPATrainer, "ppa", make_encoder(), min_tokens=1), "no group with .* [0-9]+ more"),
    }
    assert_refused(table)
    with caplog.at_level(logging.WARNING):
        trainer = attempt(FAOTrainer, "whole", make_encoder(), learning_rate=0.5)
    assert "learning_rate: not read" in caplog.text
    before = trainer.model.encoder.layer[0].output.dense.weight.detach().clone()
    trainer.train()
    assert not torch.equal(before, trainer.model.encoder.layer[0].output.dense.weight)
    made = FAOTrainer(
        make_encoder(),
        config(FAOConfig, tmp_path / "class", objective="infonce", projection_dim=4, max_steps=1),
        train_dataset=make_links(8),
        processing_class=make_tokenizer(),
        optimizer_cls_and_kwargs=(torch.optim.Adam, {"lr": 0.01}),
    )
    made.train()
    groups = made.optimizer.param_groups
    assert sum(len(g["params"]) for g in groups) == sum(p.requires_grad for p in made.model.parameters())


@pytest.mark.parametrize("method", ["fao", "mao", "align_mlm", "ppa", "continual", "task"])
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


@pytest.mark.parametrize(("count", "accumulation"), [(26, 1), (27, 2), (23, 1)])
def test_ucb_counts_the_steps_that_drop_last_leaves(count, accumulation, tmp_path, monkeypatch):
    """Windows of two steps, six epochs: a window that never ends would be learned in another epoch."""
    monkeypatch.setattr(PairSampler, "WINDOW_STEPS", 2)
    settings = {"language_sampling": "ucb", "train_sampling_strategy": "group_by_length", "num_train_epochs": 6}
    settings |= {"dataloader_drop_last": True, "gradient_accumulation_steps": accumulation}
    trainer = make(tmp_path, "fao", count=count, **settings)
    trainer.train()
    steps = -(-(count // 4) // accumulation)
    assert trainer.state.global_step == 6 * steps
    assert len(trainer.bandit.slots) == 2 + 6 * -(-steps // 2)


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
        "lora": lambda: fao.make(tmp_path, fao.lora(), tokenizer=larger),
        "ppa without words": lambda: ppa.make(tmp_path, tokenizer=larger, words="none"),
        "mao": lambda: MAOTrainer(
            encoder, config(MAOConfig, tmp_path), train_dataset=make_links(4), processing_class=larger
        ),
        "task": lambda: TaskTrainer(
            continual.make_model(),
            config(TaskConfig, tmp_path, max_length=32),
            task=continual.TOKENS,
            train_dataset=[continual.examples()],
            processing_class=larger,
        ),
        "words": lambda: encode_words(encoder, larger, "ຂ້ອຍ"),
        "sentences": lambda: encode_sentences(encoder, larger, ["ຂ້ອຍ"]),
        "mapping": lambda: cut_finder(encoder, larger, 4)([["ຂ້ອຍ"] * 20]),
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
        assert re.fullmatch(f"the tokenizer .* may be of another model: {sign}. Take the encoder's own.", message)
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
        "other labels": (head(labels=["oui", "non"]), "a head for oui, non"),
        "three": (head(3), "a head for 3 labels without names"),
        "of words": (continual.make_model(continual.TOKENS), "no head for a task of kind sequence"),
        "none": (BertModel(make_encoder().config), "BertModel has no head for a task"),
    }
    assert_refused({name: (partial(attempt, model), message) for name, (model, message) in rows.items()})
    for labels in (None, ["ja", "nein"]):
        trainer = attempt(head(labels=labels))
        assert trainer.model.config.id2label == {0: "ja", 1: "nein"}
        assert trainer.model.config.label2id == {"ja": 0, "nein": 1}


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"max_steps": 1}, 1),
        ({"max_steps": 1, "lr_scheduler_type": "linear", "warmup_steps": 5}, 1),
        ({"max_steps": 2, "learning_rate": 0.0}, 1),
        ({"max_steps": 1, "warmup_steps": 0.0}, 0),
        ({"max_steps": 2}, 0),
    ],
)
def test_a_run_that_trains_nothing_is_told_before_it_trains(settings, warned, tmp_path, caplog):
    trainer = fao.make(tmp_path, pairs=8, **settings)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.train()
    assert caplog.text.count("trains nothing: the learning rate of every step") == warned
    moved = any((trainer.model.state_dict()[name] != tensor).any() for name, tensor in before.items())
    assert moved != bool(warned)
