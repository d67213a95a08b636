"""What MAO trains and saves; presets; what the encoder keeps."""

import pytest
import torch
from support.launch import STEP
from support.mao import KINDS, make, states, trainable
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.trainers import MAOConfig, MAOTrainer

# Table 6 of the paper, written down a second time: module, adapters, batch size, learning rate.
PUBLISHED = {
    "mbert_linear": ("linear", "none", 16, 1e-5),
    "mbert_transformer": ("transformer", "none", 32, 5e-8),
    "mbert_adapter": ("transformer", "adapterhub", 32, 1e-7),
    "xlmr_transformer": ("transformer", "none", 32, 5e-5),
    "distilbert_linear": ("linear", "none", 32, 1e-5),
    "distilbert_transformer": ("transformer", "none", 32, 1e-7),
    "distilbert_adapter": ("transformer", "adapterhub", 32, 1e-7),
    "albert_linear": ("linear", "none", 32, 5e-5),
    "albert_transformer": ("transformer", "none", 32, 1e-8),
}
OWN = {"linear", "transformer", "adapter"}


# ---- Presets ----


def test_published_settings(tmp_path):
    assert set(MAOConfig.PRESETS) == set(PUBLISHED) | OWN
    for preset, (top, adapters, batch, learning_rate) in PUBLISHED.items():
        args = MAOConfig(output_dir=str(tmp_path), preset=preset, use_cpu=True)
        found = (args.top, args.adapters, args.per_device_train_batch_size, args.learning_rate)
        assert found == (top, adapters, batch, learning_rate), preset
        assert (args.regularizer_weight, args.align_target, args.pooling, args.init) == (0, "tuned", "last", "random")
        assert (args.batch_of, args.objective, args.norm, args.context) == ("pairs", "l2", "squared_l2", True)
        assert args.num_train_epochs == 1


@pytest.mark.numeric
@pytest.mark.parametrize("preset", sorted(OWN))
def test_own_presets_begin_where_the_encoder_is_and_leave_it(preset, tmp_path):
    before = states(make_encoder())
    args = MAOConfig(output_dir=str(tmp_path), preset=preset, use_cpu=True, num_heads=2, disable_tqdm=True)
    trainer = MAOTrainer(make_encoder(), args, train_dataset=make_links(24), processing_class=make_tokenizer())
    assert_rounding(states(trainer.model), before, STEP)
    scores = score_retrieval(make_encoder(), make_tokenizer(), make_links(8))
    assert_rounding(trainer.evaluate(make_links(8))["eval_retrieval"], scores["de"]["retrieval_mean"], 8 * 8)
    trainer.train()
    assert (states(trainer.model) - before).abs().max() > 1e-3
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) < 2 or losses[-1] < losses[0]


# ---- What is trained ----


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_stays_and_all_of_the_module_moves(kind, tmp_path):
    encoder = make_encoder(layers=3)
    # A random start: at an identity start the first step moves only the gate, or one of an adapter's two matrices.
    trainer = make(tmp_path, encoder, init="random", num_train_epochs=2, warmup_steps=0.0, **KINDS[kind])
    frozen = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if not p.requires_grad}
    start = trainable(trainer.model)
    assert start
    assert trainer.model.get_nb_trainable_parameters() == (
        sum(p.numel() for p in start.values()),
        sum(p.numel() for p in [*start.values(), *frozen.values()]),
    )
    # The encoder has all of its weights among the frozen ones, and nothing else is frozen.
    assert sum(p.numel() for p in frozen.values()) == sum(p.numel() for p in make_encoder(layers=3).parameters())
    trainer.train()
    for name, parameter in trainer.model.named_parameters():
        if name in frozen:
            assert torch.equal(parameter, frozen[name]), name
            assert parameter.grad is None, name
        elif name.endswith("layer.self_attn.in_proj_bias"):
            # The key's third shifts every score of a softmax alike: its gradient is zero but for rounding.
            query, _, value = parameter.chunk(3)
            was = start[name].chunk(3)
            if kind != "no context":
                assert not torch.equal(query, was[0])
            assert not torch.equal(value, was[2])
        else:
            assert not torch.equal(parameter, start[name]), name
    untouched = make_encoder(layers=3)
    with trainer.model.disable_adapter():
        assert torch.equal(states(trainer.model), states(untouched))


def test_nothing_below_the_first_adapter_is_kept_for_backward(tmp_path):
    trainer = make(tmp_path, preset="adapter")
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(4)])
    seen = {}
    layers = trainer.model.get_base_model().encoder.layer
    layers[0].attention.register_forward_hook(lambda m, a, output: seen.update(below=output[0].requires_grad))
    layers[0].register_forward_hook(
        lambda m, a, output: seen.update(above=(output[0] if isinstance(output, tuple) else output).requires_grad)
    )
    trainer.compute_loss(trainer.model, batch).backward()
    assert seen == {"below": False, "above": True}
    assert trainer.model.get_base_model().embeddings.word_embeddings.weight.grad is None
