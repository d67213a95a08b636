"""What reaches the trackers: runs are made offline and read back from the files that they leave."""

import json
import logging

import pytest
from support import fao
from support.card import make_record
from support.tiny import make_links
from support.trackers import offline, read_runs

from hf_xalign.trainers.base.tracking import finish_run, track_record

SECRET = "hf_" + "x" * 30


def make(folder, **settings):
    settings = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 3, "learning_rate": 1e-4, **settings}
    return fao.make(folder, **settings)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A run that reports to W&B, with its record and its checkpoints."""
    wandb = pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("tracked")
    with offline(folder, WANDB_LOG_MODEL="checkpoint", HF_TOKEN=SECRET, HF_XALIGN_CACHE=str(folder / "cache")):
        trainer = make(folder / "out", report_to=["wandb"], save_strategy="steps", save_steps=3, record=True)
        trainer.train()
        assert wandb.run is not None
        track_record(trainer.args, make_record())
        finish_run(trainer.args)
        assert wandb.run is None
        track_record(trainer.args, make_record())  # nothing to report to any more
    [read] = read_runs(folder)
    read.log = trainer.state.log_history
    return read


KEYS = ("loss", "loss/align", "eval_retrieval", "eval_de_retrieval_mean", "eval_de_retrieval_mean_to_pivot")


def test_terms_and_curves_are_in_it(tracked):
    for key in KEYS:
        rows = [(row["step"], row[key]) for row in tracked.log if key in row]
        assert [step for step, _ in rows] == ([0, 3, 6] if key.startswith("eval_") else [1, 2, 3, 4, 5, 6])
        assert tracked.column(f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}") == rows


def test_settings_record_and_scores_are_in_it(tracked):
    assert tracked.config["regularizer_weight"] == 1.0
    record = make_record()
    assert tracked.config["record"]["links"] == record["links"]
    assert tracked.summary["record"]["scores"] == record["scores"]
    [shown] = [row["scores"] for row in tracked.history if "scores" in row]
    table = json.loads((tracked.folder / "files" / shown["path"]).read_text())
    assert table["columns"] == ["language", "metric", "before", "after", "change"]
    rows = {(language, metric): values for language, metric, *values in table["data"]}
    assert rows["de", "retrieval_mean"] == [0.781, 0.866, 0.866 - 0.781]
    assert rows["de", "pool"] == [3456, 3456, None] and rows["bn", "retrieval_mean"] == [None] * 3


def test_no_model_and_nothing_secret_is_in_it(tracked):
    assert not [artifact for artifact in tracked.artifacts if artifact.type == "model"]
    files = [path for path in tracked.folder.rglob("*") if path.is_file()]
    assert files and not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert tracked.hosts == {""}


def test_too_few_links_for_histograms_do_not_end_a_run(tmp_path, caplog):
    # One sentence pair: there is no other to draw random words from.
    trainer = make(tmp_path / "run", report_to=[], max_steps=1, record=True)
    trainer.eval_dataset = make_links(1)
    with caplog.at_level(logging.WARNING, "hf_xalign"):
        trainer.train()
    assert "no histograms of distances: de: distances: 1 of 1 sentence pairs" in caplog.text
