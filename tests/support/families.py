"""One tiny random encoder of every family that the library supports."""

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from support.tiny import make_tokenizer

_COMMON = {
    "vocab_size": 160,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 80,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}

_GROUPED = {"num_key_value_heads": 1, "head_dim": 8}
_T5 = {
    "vocab_size": 160, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
    "pad_token_id": 0, "decoder_start_token_id": 0,
}  # fmt: skip

# Operations on the longest path from token ids to a state: a product and an addition for each of a layer's 184 sums
# (projections 16, score 8, softmax, mixture and output 16 each, feed-forward 16 and 32, two norms of 32). Two layers
# and the norm of the embeddings. A gradient takes the path back, with a product for the derivative at each operation.
PASS = 2 * (2 * 184 + 32)
BACKWARD = 3 * PASS

CONFIGS = {
    "bert": lambda: transformers.BertConfig(**_COMMON),
    "distilbert": lambda: transformers.DistilBertConfig(
        vocab_size=160, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=80, initializer_range=0.2
    ),
    "roberta": lambda: transformers.RobertaConfig(**_COMMON),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(**_COMMON),
    "albert": lambda: transformers.AlbertConfig(**_COMMON, embedding_size=8),
    "electra": lambda: transformers.ElectraConfig(**_COMMON, embedding_size=8),
    "deberta-v2": lambda: transformers.DebertaV2Config(
        **_COMMON, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, max_relative_positions=16
    ),
    "modernbert": lambda: transformers.ModernBertConfig(
        **_COMMON,
        bos_token_id=2,
        eos_token_id=3,
        cls_token_id=2,
        sep_token_id=3,
        attention_dropout=0.1,
        mlp_dropout=0.1,
        embedding_dropout=0.1,
        attn_implementation="sdpa",
    ),
}
# Newer ones, which fewer heads and modules go with.
NEWER = {
    "eurobert": lambda: transformers.EuroBertConfig(**_COMMON, **_GROUPED),
    "gte": lambda: transformers.GteConfig(**_COMMON),
    "jina-v3": lambda: transformers.JinaEmbeddingsV3Config(**_COMMON),
    "mt5": lambda: transformers.MT5Config(**_T5, tie_word_embeddings=False),
    "umt5": lambda: transformers.UMT5Config(**_T5),
    "qwen3": lambda: transformers.Qwen3Config(**_COMMON, **_GROUPED),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **_COMMON, **_GROUPED, use_bidirectional_attention=True, sliding_window=8
    ),
}


def by_tier(names, fast=("bert", "albert", "modernbert")):
    """Families for a test, all but some of them in the slow tier: their kin differ in names alone."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def _head_class(config):
    """Class of a published checkpoint: with an MLM head, or else what the family has."""
    kinds = (transformers.AutoModelForMaskedLM, transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForCausalLM)
    return next(kind for kind in kinds if type(config) in kind._model_mapping)


def save_base(family: str, folder, *, head: bool = True, seed: int = 0, **shape: int) -> None:
    """Write a checkpoint as published ones are: with an MLM head (and BERT's pooler), and a tokenizer."""
    torch.manual_seed(seed)
    config = (CONFIGS | NEWER)[family]()
    for name, value in shape.items():
        setattr(config, name, value)
    model = (_head_class(config) if head else transformers.AutoModel).from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    if head and family == "bert":
        # bert-base-multilingual-cased has the pooler, which BertForMaskedLM does not save, beside its MLM head.
        weights = load_file(f"{folder}/model.safetensors")
        weights["bert.pooler.dense.weight"] = torch.randn(config.hidden_size, config.hidden_size)
        weights["bert.pooler.dense.bias"] = torch.randn(config.hidden_size)
        save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
    make_tokenizer().save_pretrained(folder)
