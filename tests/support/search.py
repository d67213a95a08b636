"""A small run of FAO, also to search settings of."""

from __future__ import annotations

from hf_xalign.trainers import FAOConfig, FAOTrainer
from support.launch import SMALL
from support.tiny import make_links, make_tokenizer


def searcher(folder, model_init, model=None, data=None, callbacks=None, **settings):
    """Make a trainer, with `model_init` one that can be searched around."""
    return FAOTrainer(
        model,
        FAOConfig(output_dir=str(folder), **{**SMALL, "learning_rate": 0.01, **settings}),
        train_dataset=make_links(8) if data is None else data,
        eval_dataset=make_links(8),
        processing_class=make_tokenizer(),
        model_init=model_init,
        callbacks=callbacks,
    )
