"""Pre-training is the same however a step is divided, and whether or not the run was killed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.align_mlm import OBJECTIVES, make, make_entries, outcome, train
from support.launch import STEADY, STOPPED, identical, launch, result, same
from support.tiny import make_encoder
from transformers import AutoModel, AutoModelForMaskedLM

from hf_xalign.data.entries import TokenEntries
from hf_xalign.errors import InputError
from hf_xalign.modeling.language_embeddings import language_ids
from hf_xalign.trainers.checkpoints import COMPLETE, last_complete_checkpoint

SCRIPT = "support.align_mlm"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_accumulation_changes_nothing(objective, tmp_path):
    runs = [
        outcome(
            train(
                tmp_path / str(batch),
                **STEADY,
                objective=objective,
                entries_per_step=3 if objective == "align_mlm" else None,
                per_device_train_batch_size=batch,
                gradient_accumulation_steps=8 // batch,
            )
        )
        for batch in (8, 4, 1)
    ]
    assert len(runs[0][0]) == 2
    for other in runs[1:]:
        same(runs[0], other, log_tolerance=1e-5)


def test_two_processes_are_one(tmp_path):
    runs = {name: {**STEADY, "objective": name} for name in OBJECTIVES}
    # Hidden tokens are few: some micro-batches have none, and yet their part of the cosine term is counted.
    runs["few"] = {**STEADY, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    runs["few"]["mlm_probability"] = 0.05
    launch(SCRIPT, tmp_path / "two", runs, processes=2)
    for name, settings in runs.items():
        folder = tmp_path / "two" / name
        assert (folder / "world_size").read_text() == "2"
        batch = 2 * settings.get("per_device_train_batch_size", 4)
        one = train(tmp_path / "one" / name, **{**settings, "per_device_train_batch_size": batch})
        same(outcome(one), result(folder), log_tolerance=1e-5)
        if one.entries is not None:
            for rank in (0, 1):
                ids = load_file(folder / f"entries-{rank}.safetensors")["entries"].numpy()
                assert np.array_equal(ids, one.entries.ids)


# Four steps an epoch, half of it accumulated. A checkpoint after step 2 and 6 lies in the middle of an epoch.
KILLED = {
    **STOPPED,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0.0,
}


@pytest.mark.parametrize("objective", ["xlm", "dict_mlm", "align_mlm"])
def test_resumed_equals_never_stopped(objective, tmp_path):
    settings = {**KILLED, "objective": objective}
    whole = train(tmp_path / "whole", make_encoder(dropout=0.2), **settings)
    train(tmp_path / "run", make_encoder(dropout=0.2), **{**settings, "max_steps": 7})
    (tmp_path / "run" / "checkpoint-7" / COMPLETE).unlink()
    torch.manual_seed(9)
    resumed = make(tmp_path / "run", make_encoder(dropout=0.2, seed=5), **settings)
    resumed.train(resume_from_checkpoint=True)
    identical(outcome(whole), outcome(resumed))


@pytest.mark.slow
def test_killed_and_resumed_equals_never_killed(tmp_path):
    runs = {name: {**KILLED, "objective": name} for name in ("xlm", "dict_mlm", "align_mlm")}
    launch(SCRIPT, tmp_path / "whole", runs, "--dropout", "0.2")
    for name, settings in runs.items():
        launch(SCRIPT, tmp_path / "run", {name: settings}, "--dropout", "0.2", "--kill_after", "7", killed=True)
        assert last_complete_checkpoint(tmp_path / "run" / name).endswith("checkpoint-6")
    launch(SCRIPT, tmp_path / "run", runs, "--dropout", "0.2", "--resume")
    for name in runs:
        identical(result(tmp_path / "whole" / name), result(tmp_path / "run" / name))


def test_dictionary_is_saved_with_the_model_and_another_is_refused(tmp_path):
    trainer = train(tmp_path, **KILLED)
    trainer.save_model()
    for folder in (tmp_path, tmp_path / "checkpoint-2", tmp_path / "checkpoint-8"):
        found = TokenEntries.load(folder, vocab_size=160)
        assert np.array_equal(found.ids, trainer.entries.ids)
        assert (found.origin, found.share, found.seed) == (
            trainer.entries.origin,
            trainer.entries.share,
            trainer.entries.seed,
        )
    other = make_entries(seed=4)
    assert not np.array_equal(other.ids, trainer.entries.ids)
    with pytest.raises(InputError, match="checkpoint-8 was trained with another dictionary"):
        make(tmp_path, entries=other, **KILLED).train(resume_from_checkpoint=True)


def test_saved_model_has_languages_and_head(tmp_path):
    trainer = train(tmp_path, objective="dict_mlm")
    trainer.save_model()
    model = AutoModel.from_pretrained(tmp_path)
    assert language_ids(model.config) == {"en": 0, "de": 1, "nl": 2}
    assert model.embeddings.token_type_embeddings.weight.shape[0] == 3
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path)
    head = trainer.model.alignment_head["words"]
    assert torch.equal(whole.cls.predictions.transform.dense.weight, head.dense.weight.detach())
