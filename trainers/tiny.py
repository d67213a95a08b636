"""Tiny encoder, tokenizer and text, with which the examples in the docstrings of this package run."""

from datasets import Dataset
from transformers import BertConfig, BertTokenizer

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sleeps", "die", "katze", "ruht"]

tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(_WORDS)})
config = BertConfig(vocab_size=len(_WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
pairs = Dataset.from_dict(
    {
        "source": ["die katze", "katze ruht"],
        "target": ["the cat", "cat sleeps"],
        "source_words": [["die", "katze"], ["katze", "ruht"]],
        "target_words": [["the", "cat"], ["cat", "sleeps"]],
        "links": [[[0, 0], [1, 1]]] * 2,
        "source_lang": ["de"] * 2,
        "target_lang": ["en"] * 2,
    }
)
labelled = Dataset.from_dict({"text_a": ["the cat", "the cat sleeps"], "label": ["no", "yes"], "line": [1, 2]})
