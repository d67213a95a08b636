"""Trainers push what `hf_xalign.hub.push` would, whatever `hub_strategy` says, and no pickle."""

import json

import pytest
from support.loopback_hub import TOKEN

pytestmark = pytest.mark.slow
TRAIN = """
import os
from support.tiny import make_encoder, make_links, make_tokenizer
from hf_xalign.trainers import FAOConfig, FAOTrainer

args = FAOConfig(
    output_dir=folder, use_cpu=True, max_steps=4, save_strategy="steps", save_steps=2, save_total_limit=1,
    learning_rate=1e-3, per_device_train_batch_size=4, disable_tqdm=True, push_to_hub=True,
    hub_model_id=repo, hub_strategy=strategy, hub_always_push=True, hub_token=os.environ["HF_TOKEN"],
)
trainer = FAOTrainer(make_encoder(), args, train_dataset=make_links(8), processing_class=make_tokenizer())
trainer.train()
"""
MODEL = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "training_args.json"}
STEP = "Training in progress, step {}"


@pytest.mark.parametrize("strategy", ["end", "all_checkpoints"])
def test_no_strategy_pushes_a_pickle(strategy, hub, here, tmp_path):
    repo = f"me/run-{strategy}"
    here.run(TRAIN, folder=str(tmp_path), repo=repo, strategy=strategy)
    if strategy == "end":
        assert hub.files(repo) == {}
    here.run("trainer.push_to_hub()")
    files = hub.files(repo)
    places = {"checkpoint": ["last-checkpoint"], "all_checkpoints": ["checkpoint-2", "checkpoint-4"]}.get(strategy, [])
    assert set(files) == {*MODEL, "README.md"} | {f"{place}/{name}" for place in places for name in MODEL}
    assert not [name for name, content in files.items() if content[:2] in (b"\x80\x04", b"PK")]
    pushes = {"end": [], "every_save": [""]}.get(strategy, ["", ", checkpoint"])
    assert hub.history(repo) == [STEP.format(step) + push for step in (2, 4) for push in pushes] + ["End of training"]
    assert files["model.safetensors"] == (tmp_path / "model.safetensors").read_bytes()
    assert json.loads(files["training_args.json"])["learning_rate"] == 1e-3
    assert not list(tmp_path.glob(".push-*")) and not list(tmp_path.rglob("training_args.bin"))
    here_and_there = [*files.values(), *(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())]
    assert not [content for content in here_and_there if TOKEN.encode() in content]


def test_a_push_that_fails_in_the_background_does_not_end_training(hub, here, tmp_path):
    hub.broken = "/me/unlucky/commit/"
    here.run(TRAIN, folder=str(tmp_path), repo="me/unlucky", strategy="every_save")
    assert hub.history("me/unlucky") == [STEP.format(4)]
    assert "step 2 was not pushed" in here.log.read_text()
