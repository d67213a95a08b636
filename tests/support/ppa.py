"""A small run of PPA."""

from datasets import Dataset

from hf_xalign.trainers import PPAConfig, PPATrainer
from support.launch import SMALL as QUIET
from support.tiny import SENTENCES, make_encoder, make_tokenizer

SMALL = {
    **QUIET,
    "queue_size": 10,
    "projection_dim": 6,
    "head_learning_rate": 0.01,
    "momentum": 0.9,
    "min_tokens": 2,
    "max_tokens": 60,
    "mlm_probability": 0.3,
}


def make_pairs(count=16):
    """Pairs that all differ, four of one language and four of another in turn."""
    rows = [SENTENCES[k % len(SENTENCES)] for k in range(count)]
    return Dataset.from_dict(
        {
            "source": [f"{source} {k}" for k, (source, _, _) in enumerate(rows)],
            "target": [f"{target} {k}" for k, (_, target, _) in enumerate(rows)],
            "source_lang": [["de", "nl"][k // 4 % 2] for k in range(count)],
            "target_lang": ["en"] * count,
        }
    )


def make(folder, model=None, data=None, tokenizer=None, callbacks=None, **settings):
    return PPATrainer(
        make_encoder() if model is None else model,
        PPAConfig(output_dir=str(folder), **{**SMALL, **settings}),
        train_dataset=make_pairs() if data is None else data,
        eval_dataset=make_pairs(8),
        processing_class=make_tokenizer() if tokenizer is None else tokenizer,
        callbacks=callbacks,
    )
