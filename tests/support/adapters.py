"""Every kind of module that the PEFT method XALIGN knows, on tiny encoders."""

import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModel

from hf_xalign.modeling import XAlignConfig, set_language
from hf_xalign.modeling.checkpoint import encoder_class
from support.families import CONFIGS, NEWER

KINDS = {
    "linear": {},
    "languages": {"languages": ["de", "to"], "pivot": "en"},
    "transformer": {"top": "transformer"},
    "no context": {"top": "transformer", "context": False},
    "pfeiffer transformer": {"top": "transformer", "adapters": "pfeiffer"},
    "houlsby": {"top": None, "adapters": "houlsby"},
    "adapterhub linear": {"adapters": "adapterhub"},
}
TEXT = {
    "input_ids": torch.randint(5, 150, (3, 9), generator=torch.Generator().manual_seed(1)),
    "attention_mask": torch.tensor([[1] * 9, [1] * 6 + [0] * 3, [1] * 4 + [0] * 5]),
}
# Words of one token and of several, a word less in each row, and one row without any.
SPANS = torch.tensor([[[1, 2], [2, 5], [5, 8]], [[1, 4], [4, 5], [0, 0]], [[0, 0], [0, 0], [0, 0]]])


def make_base(family="bert", auto_class=AutoModel, **settings):
    """A tiny encoder in which no bias is zero and no norm's weight one, in eval mode."""
    torch.manual_seed(0)
    config = (CONFIGS | NEWER)[family]()
    for name, value in settings.items():
        setattr(config, name, value)
    half = auto_class is AutoModel and family in NEWER  # of T5
    model = encoder_class(config, family)(config) if half else auto_class.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def make_config(kind, init="identity", **settings):
    return XAlignConfig(
        **{"init": init, "num_heads": 2, "feedforward_size": 24, "reduction_factor": 4, **KINDS[kind], **settings}
    )


def adapt(base, kind, init="identity", **settings):
    torch.manual_seed(7)
    model = get_peft_model(base, make_config(kind, init, **settings)).eval()
    if kind == "languages":
        set_language(model, "de")
    return model


def states(model, **inputs):
    with torch.no_grad():
        return model(**{**TEXT, **inputs}).last_hidden_state


def pooled_by_hand(hidden, spans, pooling):
    """The vector of every word, one word at a time; zero where a span is empty."""
    words = hidden.new_zeros(*spans.shape[:2], hidden.shape[-1])
    for row, sentence in enumerate(spans.tolist()):
        for word, (start, end) in enumerate(sentence):
            if end > start:
                tokens = hidden[row, start:end]
                words[row, word] = {"first": tokens[0], "last": tokens[-1], "mean": sum(tokens) / len(tokens)}[pooling]
    return words


def save_pair(folder, family="bert", kind="linear", **settings):
    make_base(family).save_pretrained(folder / "base")
    model = adapt(AutoModel.from_pretrained(folder / "base"), kind, "random", **settings)
    model.save_pretrained(folder / "adapter")
    return model


def load_pair(folder, **settings):
    return PeftModel.from_pretrained(AutoModel.from_pretrained(folder / "base"), folder / "adapter", **settings)
