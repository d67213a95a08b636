"""Every trainer takes the same steps however they are divided, and whether or not the run was stopped."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from support import continual, fao, mao, ppa
from support.launch import STEADY, STEP, identical, launch, outcome, result, same, same_bits, slow, tensors
from support.runs import TRAINERS, exact, make, train
from transformers import TrainerCallback
from transformers.models.bert.modeling_bert import BertLayer

from hf_xalign.data.batches.sampling import PairSampler
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.trainers.base.checkpoints import COMPLETE, last_complete_checkpoint

OPERATIONS = 4 * STEP
# Logits are cosines over a temperature of 0.05, and errors grow with them.
MAGNIFIED = 20

KEPT = {"regularizer_weight": 0.5, "regularized_words": "linked"}
RANDOM = {"trainer": "mao", "init": "random"}
FAO = {"trainer": "fao", "freeze_embeddings": False}
JOINT = {**FAO, "preset": "joint", "objective": "infonce", "sentence_weight": 0.5}
# More steps than the pairs fill, so that the states of the frozen layer are computed once.
FROZEN = {"trainer": "fao", "preset": "joint", "objective": "infonce", "freeze_layers": 1, "count": 16}
PAGE = {**FAO, "page": True}  # the objective of the page on adding one
BY_LENGTH = {"train_sampling_strategy": "group_by_length"}
TEMPERATURE = {"trainer": "fao", **BY_LENGTH, "language_sampling": "temperature", "count": 28}
OTHERS = {"objective": "infonce", "negatives": "other_sentences"}


def divided(settings, batch, accumulation):
    sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    return {"num_train_epochs": 2, **STEADY, **settings, **sizes}


# ---- Divided into micro-batches ----

ACCUMULATED = {
    "fao": {"trainer": "fao"},
    "mao": {**RANDOM, "preset": "transformer", **KEPT},
    "align_mlm": {"trainer": "align_mlm"},
    "continual": {"trainer": "continual", "alpha": 0.3},
    "ppa": {"trainer": "ppa", "preset": "paper", "words": "mlm"},
}
TASKS = {"task": {"trainer": "task"}, "tagger": {"trainer": "tagger"}}
MORE_CONTINUAL = {
    "continual texts": {"trainer": "continual", "alpha": 0.3, "task": "texts"},
    "continual questions": {"trainer": "continual", "alpha": 0.3, "task": "questions"},
    "continual cached": {"trainer": "continual", "alpha": 0.3, "cache_reference": True},
}
DISTANCES = {"preset": "joint", "objective": "l2", "reference": "cache"}
MORE_ACCUMULATED = {
    **TASKS,
    # Similarities are among the vectors of one micro-batch.
    "fao distances": {"trainer": "fao", **DISTANCES, "similarity_weight": 0.0},
    "fao efimov": {"trainer": "fao", "preset": "efimov"},
    "fao frozen": {**FROZEN, "objective": "l2", "similarity_weight": 0.0},
    "fao page": PAGE,
    "fao temperature": TEMPERATURE,
    "mao linear": RANDOM,
    "mao maps": {**RANDOM, "per_language": "all", "regularizer_weight": 0.5},
    "mao links": {**RANDOM, "batch_of": "links"},
    "mao adapter": {**RANDOM, "preset": "adapter", **KEPT, "reduction": "words"},
    **{f"align_mlm {name}": {"trainer": "align_mlm", "objective": name} for name in ("mlm", "xlm", "dict_mlm")},
    **MORE_CONTINUAL,
    "continual by length": {"trainer": "continual", **BY_LENGTH, "pairs": 30},
    "ppa no contrast": {"trainer": "ppa", "contrast": "none"},
    "task texts": {"trainer": "task", "task": "texts"},
    "task kept": {"trainer": "task", "keep_aligned": True},
    "continual kept": {"trainer": "continual", "alpha": 0.3, "keep_aligned": True},
}
assert [*ACCUMULATED, *TASKS] == list(TRAINERS)


@pytest.mark.parametrize("name", [*ACCUMULATED, *slow(MORE_ACCUMULATED)])
def test_accumulation_changes_nothing(name, tmp_path):
    """Micro-batches have other numbers of words, so a mean of means would differ."""
    settings = {"max_steps": 4, **(ACCUMULATED | MORE_ACCUMULATED)[name]}
    with exact():
        whole = outcome(train(tmp_path / "whole", **divided(settings, 8, 1)))
        assert len(whole[0]) == 4 and whole[0].dtype == torch.float64
        # A sub-batch of efimov is 4 pairs.
        for batch in (2,) if name in ACCUMULATED else (4,) if name == "fao efimov" else (4, 1):
            found = outcome(train(tmp_path / str(batch), **divided(settings, batch, 8 // batch)))
            same(whole, found, OPERATIONS, MAGNIFIED)


class _Onlooker(TrainerCallback):
    """Compute the loss of a batch after every micro-batch and every step."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.eval()
        with torch.no_grad():
            self.trainer.compute_loss(model, dict(self.batch))
        model.train()

    on_substep_end = on_step_end


ONLOOKED = {
    "fao": {**TEMPERATURE, "count": 16, "objective": "l2"},
    "ppa": {"trainer": "ppa", "words": "none"},
}


@pytest.mark.parametrize("name", ONLOOKED)
def test_a_loss_computed_outside_a_step_leaves_no_trace(name, tmp_path, monkeypatch):
    monkeypatch.setattr(PairSampler, "WINDOW_STEPS", 1)
    found = []
    for looks in (False, True):
        trainer = make(tmp_path / str(looks), **divided(ONLOOKED[name], 2, 2), max_steps=4, logging_steps=2)
        if looks:
            onlooker = _Onlooker()
            onlooker.trainer, onlooker.batch = trainer, next(iter(trainer.get_train_dataloader()))
            trainer.add_callback(onlooker)
        torch.manual_seed(0)
        trainer.train()
        found.append(outcome(trainer))
    identical(*found)


# ---- Less memory ----

# Continual learning has a test of its own.
RECOMPUTED = {"fao lora": {"trainer": "fao", "lora": True}, "ppa": {"trainer": "ppa"}}
MORE_RECOMPUTED = {name: {"trainer": name} for name in ("fao", "align_mlm", "task")}
MORE_RECOMPUTED["ppa in batch"] = {"trainer": "ppa", "contrast": "in_batch"}
RECOMPUTED["mao adapter"] = {**RANDOM, "regularizer_weight": 1.0, **mao.KINDS["adapter"]}
for kind in ("houlsby", "lora"):
    MORE_RECOMPUTED[f"mao {kind}"] = {**RANDOM, "regularizer_weight": 1.0, **mao.KINDS[kind]}


@pytest.mark.parametrize("name", [*RECOMPUTED, *slow(MORE_RECOMPUTED)])
def test_gradient_checkpointing_changes_nothing(name, tmp_path):
    """The second pass through a layer and its adapters has the dropout of the first."""
    settings = {"max_steps": 2, "dropout": 0.2, **STEADY, **(RECOMPUTED | MORE_RECOMPUTED)[name]}

    def run(folder, **given):
        made, passes = make(tmp_path / folder, **settings, **given), []
        layer = next(m for m in made.model.modules() if isinstance(m, BertLayer))
        layer.intermediate.register_forward_hook(lambda *_: passes.append(1))
        made.train()
        return len(passes), outcome(made)

    (once, plain), (twice, recomputed) = run("plain"), run("recomputed", gradient_checkpointing=True)
    identical(plain, recomputed)
    assert twice > once


@pytest.mark.parametrize("form", ["task", "continual", "ppa", "ppa in batch"])
def test_lora_is_all_that_is_trained_and_saved(form, tmp_path):
    """FAO and MAO have tests of their own; ALIGN-MLM trains the embeddings."""
    own = {"learning_rate": 0.1, "save_strategy": "no"}
    if form.startswith("ppa"):
        contrast = "in_batch" if form == "ppa in batch" else "moco"
        trainer = ppa.make(tmp_path, fao.lora(), words="none", contrast=contrast, **own)
    else:
        adapter = LoraConfig(r=2, target_modules=["query", "value"], task_type="TOKEN_CLS")
        make_trainer = continual.make_task if form == "task" else continual.make
        trainer = make_trainer(tmp_path, get_peft_model(continual.make_model(), adapter), **own)
    before = tensors(trainer.model)
    trainer.train()
    changed = {key for key, tensor in trainer.model.state_dict().items() if not torch.equal(tensor, before[key])}
    heads = {key for key in changed if HEAD_NAME in key or "modules_to_save" in key}
    assert heads and {key.split(".")[-3] for key in changed - heads} == {"lora_A", "lora_B"}
    trainer.save_model()
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert {path.name for path in tmp_path.glob("*.safetensors")} == {"adapter_model.safetensors"}
    assert saved and not any(HEAD_NAME in name for name in saved)
    if form == "ppa":  # the keys' adapters follow, and share the frozen weights
        moved = {name for name, key, query in trainer.momentum._with_queries(trainer.model, trainer.head("sentence"))
                 if key is not query}  # fmt: skip
        assert {"lora_A", "lora_B"} <= {part for name in moved for part in name.split(".")}
        assert not any("base_layer" in name for name in moved)


# ---- Divided between processes ----

# Micro-batches a process. With one row each, some have no masked token and no pair, and still their part counts.
ALONE = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
TWO = {
    "fao": {"trainer": "fao", "objective": "infonce"},
    "align_mlm": {"trainer": "align_mlm", "mlm_probability": 0.05, **ALONE},
    "ppa": {"trainer": "ppa", "preset": "paper"},
}
MORE_TWO = {
    "mao": {**RANDOM, **OTHERS, "preset": "transformer"},
    "continual": {"trainer": "continual", "preset": "efimov", "alpha": 0.3, **ALONE},
    "fao joint": JOINT,
    # 21 rows for two processes: the last 5 fill no step of 2 x 4 and are left out of the epoch.
    **{f"{name} uneven": {**own, "count": 21} for name, own in (ACCUMULATED | TASKS).items()},
    **MORE_ACCUMULATED,
    "mao transformer links": {**RANDOM, **OTHERS, "preset": "transformer", "batch_of": "links"},
    "mao lora": {**RANDOM, **KEPT, "peft_type": "lora", "objective": "infonce"},
    "ppa accumulated": {"trainer": "ppa", "mlm_probability": 0.02, **ALONE},
    "ppa in batch": {"trainer": "ppa", "contrast": "in_batch"},
    "ppa frozen": {"trainer": "ppa", "contrast": "in_batch", "words": "none", "freeze_embeddings": True},
}


def launch_two(folder, runs):
    """Run all in two processes, with two steps and four rows a process where nothing else is said."""
    both = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "max_steps": 2, **STEADY}
    runs = {name: {**both, **own} for name, own in runs.items()}
    launch(folder, runs, "--exact", processes=2)
    return runs


def assert_one_process_does_the_same(folder, name, settings):
    batch = 2 * settings["per_device_train_batch_size"]
    with exact():
        one = outcome(train(folder / "one" / name, **{**settings, "per_device_train_batch_size": batch}))
    (log, found), (_, other) = (result(folder / name, rank) for rank in (0, 1))
    assert found.pop("world_size") == other.pop("world_size") == 2
    assert len(log) == 2
    same(one, (log, found), OPERATIONS, MAGNIFIED)
    # Weights, momentum encoder, queue and entries are the same bits in both processes.
    identical((log, found), (log, other))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return folder, launch_two(folder, TWO)


@pytest.mark.parametrize("name", TWO)
def test_two_processes_are_one(name, two):
    folder, runs = two
    assert_one_process_does_the_same(folder, name, runs[name])


@pytest.mark.slow
def test_two_processes_are_one_in_any_form(tmp_path):
    for name, settings in launch_two(tmp_path, MORE_TWO).items():
        assert_one_process_does_the_same(tmp_path, name, settings)


# ---- Stopped and resumed ----

# Four steps an epoch, half of it accumulated. The checkpoint after step 3 lies within the first epoch.
STOPPED = {"dropout": 0.2, "max_steps": 6, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
STOPPED |= {"save_strategy": "steps", "save_steps": 3}
STOPPED |= {"learning_rate": 1e-3, "lr_scheduler_type": "constant", "warmup_steps": 0.0}
RESUMED = {
    "fao": {"trainer": "fao", "objective": "infonce"},
    "mao": {"trainer": "mao", "preset": "adapter", "objective": "infonce", "regularizer_weight": 1.0},
    "continual": {"trainer": "continual", "alpha": 0.3},
    "ppa": {"trainer": "ppa"},
}
MORE_RESUMED = {
    **TASKS,
    "align_mlm": {"trainer": "align_mlm"},
    "fao frozen": FROZEN,
    "page": PAGE,
    "fao joint": JOINT,
    "fao temperature": TEMPERATURE,
    "mao maps": {**RANDOM, "per_language": "all", "objective": "infonce", "regularizer_weight": 1.0},
    "align_mlm dict_mlm": {"trainer": "align_mlm", "objective": "dict_mlm"},
    **MORE_CONTINUAL,
    "ppa frozen": {"trainer": "ppa", "preset": "paper", "freeze_embeddings": True},
    "ppa in batch": {"trainer": "ppa", "contrast": "in_batch", "words": "mlm"},
}
# Trainers whose checkpoints have all weights, so that a resumed run may begin with others. FAO's reference is the
# encoder that the run began with; the other two freeze it.
WHOLE = ("align_mlm", "continual", "ppa", "task")


def assert_resumed_equals_never_stopped(settings, whole, folder):
    """Resume the run in `folder` from its checkpoint after step 3; compare it and its last checkpoint with `whole`."""
    assert last_complete_checkpoint(folder).endswith("checkpoint-3")
    torch.manual_seed(9)
    resumed = make(folder, **settings, seed=5 if settings["trainer"] in WHOLE else 0)
    named = settings["trainer"] == "mao"  # by its folder, where the others find the last one
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-3") if named else True)
    assert resumed.state.global_step == 6
    identical(outcome(whole), outcome(resumed))
    first, second = (f"{run.args.output_dir}/checkpoint-6" for run in (whole, resumed))
    files = assert_safe_files(first, settings)
    assert files == assert_safe_files(second, settings)
    for file in files:
        same_bits(load_file(f"{first}/{file}"), load_file(f"{second}/{file}"))


def assert_safe_files(folder, settings):
    """Return a checkpoint's files of weights: MAO's has those of its module alone, and none has pickled settings."""
    names = {path.name for path in Path(folder).iterdir()}
    assert COMPLETE in names and "training_args.bin" not in names
    files = {name for name in names if name.endswith(".safetensors")}
    expected = {"adapter_model.safetensors" if settings["trainer"] == "mao" else "model.safetensors"}
    if settings["trainer"] == "ppa" and settings.get("contrast") != "in_batch":
        expected.add("momentum.safetensors")
    assert expected <= files
    return files


class Stop(TrainerCallback):
    def __init__(self, step=4):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


@pytest.mark.parametrize("name", [*RESUMED, *slow(MORE_RESUMED)])
def test_resumed_equals_never_stopped(name, tmp_path):
    """Stopped after step 4, with a checkpoint of that step without a mark. tests/faults kills runs of recipes."""
    settings = {**STOPPED, **(RESUMED | MORE_RESUMED)[name]}
    train(tmp_path / "run", **settings, callbacks=[Stop()])
    (tmp_path / "run" / "checkpoint-4").mkdir()
    assert_resumed_equals_never_stopped(settings, train(tmp_path / "whole", **settings), tmp_path / "run")


@pytest.mark.slow
def test_two_killed_processes_resume(tmp_path):
    runs = {name: {**STOPPED, **RESUMED[name], "gradient_accumulation_steps": 1} for name in ("fao", "ppa")}
    launch(tmp_path / "whole", runs, processes=2)
    for name, settings in runs.items():
        launch(tmp_path / "run", {name: settings}, "--kill_after", "5", processes=2, killed=True)
        assert last_complete_checkpoint(tmp_path / "run" / name).endswith("checkpoint-3")
    launch(tmp_path / "run", runs, "--resume", processes=2)
    for name in runs:
        log, found = result(tmp_path / "whole" / name)
        assert found["world_size"] == 2 and len(log) == 6
        identical((log, found), result(tmp_path / "run" / name))


def test_checkpoints_rotate_and_a_folder_with_a_run_is_refused(tmp_path):
    folder = tmp_path / "run"
    settings = {"trainer": "fao", "count": 8, "per_device_train_batch_size": 2}
    train(folder, **settings, save_strategy="steps", save_steps=1, save_total_limit=1)
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-4"]
    with pytest.raises(InputError, match="holds another run"):
        train(folder, **settings)
    train(folder, **settings, overwrite_output_dir=True)
    assert not list(folder.glob("checkpoint-*"))
