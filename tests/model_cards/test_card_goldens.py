"""Whole cards of every method and kind; `UPDATE_GOLDEN=1` rewrites them."""

import os
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from support.card import RECORDS

from hf_xalign.model_cards import render_card, write_card
from hf_xalign.model_cards.metadata import card_data
from hf_xalign.record import read_record, write_record


@pytest.mark.parametrize("kind", RECORDS)
def test_golden(kind, tmp_path):
    record = RECORDS[kind]()
    card = render_card(record)
    golden = Path(__file__).with_name(f"golden_{kind}.md")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(card, encoding="utf-8")
    assert card == golden.read_text(encoding="utf-8")
    assert "\n\n\n" not in card and "None" not in card and card.count("\n\n## ") == card.count("\n## ")
    assert all(line == line.rstrip() for line in card.splitlines())
    assert record == RECORDS[kind]()
    # The metadata is as the Hub documents it, and reads back as it was.
    made = card_data(record)
    path = write_card(tmp_path, record)
    assert path == tmp_path / "README.md" and os.listdir(tmp_path) == ["README.md"]
    write_record(tmp_path, record)
    assert render_card(read_record(tmp_path)) == card
    loaded = ModelCard.load(path)
    assert loaded.data.to_dict() == made.to_dict()
    assert loaded.data.eval_results == made.eval_results and made.eval_results
    again = ModelCardData(**{name: value for name, value in vars(loaded.data).items() if value is not None})
    assert again.to_dict() == made.to_dict()
    index = eval_results_to_model_index(made.model_name, made.eval_results)
    assert model_index_to_eval_results(index) == (made.model_name, made.eval_results)
