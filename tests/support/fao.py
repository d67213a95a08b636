"""A small run of FAO, also to search settings of."""

import re
from pathlib import Path

from peft import LoraConfig, get_peft_model

from hf_xalign.objectives import KeepMidpoints, KeepPivot
from hf_xalign.trainers import FAOConfig, FAOTrainer
from support.launch import SMALL
from support.tiny import make_encoder, make_links, make_tokenizer

PAGE = Path(__file__).parents[2] / "docs/develop/add-objective.md"


def page_terms(**settings):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names = {}
    terms = "\n".join(block for block in blocks if "(Term)" in block)
    exec(compile(terms, str(PAGE), "exec"), names)
    return [names["OptimalTransport"](**settings), KeepPivot(weight=5.0), KeepMidpoints(weight=5.0)]


def config(folder, **settings):
    return FAOConfig(output_dir=str(folder), **{**SMALL, "preset": "mao", "learning_rate": 1e-3, **settings})


def make(folder, model=None, data=None, pairs=24, callbacks=None, tokenizer=None, terms=None, **settings):
    return FAOTrainer(
        make_encoder() if model is None else model,
        config(folder, **settings),
        train_dataset=make_links(pairs) if data is None else data,
        eval_dataset=make_links(8),
        processing_class=make_tokenizer() if tokenizer is None else tokenizer,
        callbacks=callbacks,
        objective=terms,
    )


def lora(dropout=0.0, layers=2, **settings):
    model = make_encoder(dropout=dropout, layers=layers)
    return get_peft_model(model, LoraConfig(r=4, target_modules=["query", "value"], **settings))
