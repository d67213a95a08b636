"""Runs that end worse than they began, with numbers that stay finite, say so."""

from types import SimpleNamespace

import pytest
from support.card import make_record
from support.recipe import command, output_of

from hf_xalign.model_cards import render_card
from hf_xalign.recipes import fao
from hf_xalign.record import find_warnings, read_record
from hf_xalign.trainers.base.trainer import AlignmentTrainer

# Weights that do not move, and losses that are handed in: a run that really diverges ends differently on each CPU.
STILL = ("--learning_rate", "0", "--max_steps", "1", "--report_to", "none")
DIVERGED = {"first": 0.5, "last": 62.0}
SAID = "the training loss ended at 62, more than 3 times its first value, 0.5. The run diverged; reduce learning_rate."


def test_a_loss_that_grew_is_in_record_card_and_table(files, tmp_path, monkeypatch):
    monkeypatch.setattr(AlignmentTrainer, "loss_change", lambda self: DIVERGED)
    printed = output_of(fao.main, command(files, *STILL, out=tmp_path))
    record = read_record(tmp_path)
    assert record["training_loss"] == DIVERGED and record["warnings"] == [SAID]
    assert f": {SAID}\n" in printed and "\nWARNING: " in printed
    title, first, *_ = (tmp_path / "README.md").read_text("utf-8").partition("\n# ")[2].split("\n\n")
    assert title and first.startswith("> **Warning:** the training loss ")


@pytest.mark.parametrize(
    ("growing", "rows", "change"),
    [
        ("", [{"loss": 2.0}, {"eval_loss": 9.0}, {"loss": 3.0}], {"first": 2.0, "last": 3.0}),
        ("", [{"loss": 2.0}], None),
        (
            "contrast",  # a queue that fills: its term is left out, and rows without terms too
            [{"loss": 9.0, "loss/contrast": 7.0, "loss/mlm": 2.0}, {"loss": 8.0}, {"loss": 9.0, "loss/mlm": 1.5}],
            {"first": 2.0, "last": 1.5},
        ),
    ],
)
def test_the_change_of_the_loss_is_that_of_the_logged_rows(growing, rows, change):
    trainer = SimpleNamespace(state=SimpleNamespace(log_history=rows), growing_term=growing)
    assert AlignmentTrainer.loss_change(trainer) == change


def test_a_run_that_went_well_says_nothing(fao_run, mao_run, ppa_run):
    for made in (fao_run, mao_run, ppa_run):
        drift, card = made.record["drift"], (made.folder / "README.md").read_text("utf-8")
        # Tiny random encoders may move far, which says nothing of scores and losses.
        ranks = [drift[name] for name in drift if name.endswith("rank_correlation")]
        said = ["the pivot's vectors changed"] if round(min(ranks), 2) < 0.9 else []
        assert [warning.partition(":")[0] for warning in made.record["warnings"]] == said
        assert made.printed.count("WARNING") == card.count("Warning") == len(said)
        assert f"pivot sentences: cosine {drift['sentence_cosine']:.3f}, " in made.printed
        assert ("pivot words: cosine " in made.printed) == ("cosine" in drift) == (made is not ppa_run)


def scored(before, after, metric="retrieval_last", **more):
    stages = {"before": before, "after": after}
    shaped = {when: {code: {"pool": 9, metric: value} for code, value in own.items()} for when, own in stages.items()}
    return make_record(scores=shaped, **more)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        # One language may fall where the mean rises; languages without a score at both ends do not count.
        (scored({"ka": 0.4, "sw": 0.2}, {"ka": 0.3, "sw": 0.5}), None),
        (scored({"ka": 0.4, "sw": None}, {"ka": 0.4, "sw": 0.1, "fi": 0.0}), None),
        (scored({"ka": 0.41234}, {"ka": 0.41229}), None),  # as shown, nothing
        (
            scored({"ka": 0.4, "sw": 0.2}, {"ka": 0.42, "sw": 0.0}),
            "the headline score retrieval_last ended below its start: mean of 2 languages 30.0 before, 21.0 "
            "after; worst in sw 20.0 before, 0.0 after",
        ),
        (
            scored({}, {}, losses={"before": {"ka": 2.0, "en": 3}, "after": {"ka": 9.5, "en": 2}}),
            "the loss on held-out text ended above its start: mean of 2 languages 2.500 before, 5.750 after; "
            "worst in ka 2.000 before, 9.500 after",
        ),
        (scored({}, {}, drift={"cosine": 0.2, "rank_correlation": 0.896}), None),  # as shown, 0.90
        (
            scored({}, {}, drift={"cosine": 0.99, "rank_correlation": 0.894}),
            "the pivot's vectors changed: the rank correlation of its similarities before and after training is "
            "below 0.9 (words 0.89). Compute indexes and classifiers on its old vectors again.",
        ),
        (scored({}, {}, training_loss={"first": -0.5, "last": 1.0}), None),
        (
            scored({}, {}, training_loss={"first": 0.5, "last": 6.2e7}),
            "the training loss ended at 6.2e+07, more than 3 times its first value, 0.5. The run diverged; "
            "reduce learning_rate.",
        ),
    ],
)
def test_what_counts_as_worse(record, said):
    record["warnings"] = find_warnings(record)
    assert record["warnings"] == ([said] if said else [])
    assert render_card(record).count("> **Warning:**") == bool(said)
