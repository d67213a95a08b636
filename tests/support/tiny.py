"""Tiny models, tokenizers and links, built in memory.

`HF_XALIGN_PERTURB` is a seed by which each weight of each new model of transformers moves by up to 1e-6. This stands
for the CPUs that nobody here has: a test that fails then rests on rounding.
"""

import os
import zlib
from functools import cache

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast

from hf_xalign.data.pretraining.vocabulary import SPLIT_AT_BLANKS, roberta_tokenizer
from hf_xalign.modeling.languages import add_language_embeddings

_post_init = PreTrainedModel.post_init


def _perturb(model):
    _post_init(model)
    if not type(model).__module__.startswith("transformers."):  # ours wrap models whose weights moved before
        return
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not weight.is_meta:
            # By the weight's name and shape alone, so that models made alike stay alike.
            key = f"{os.environ['HF_XALIGN_PERTURB']} {name} {tuple(weight.shape)}"
            generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
            noise = torch.rand(weight.shape, generator=generator, dtype=torch.float64) * 2 - 1
            # A zero is zero on every CPU: a head whose bias is zero is a new one.
            weight.data.add_(1e-6 * noise.to(weight.dtype) * (weight != 0))


if "HF_XALIGN_PERTURB" in os.environ:
    PreTrainedModel.post_init = _perturb


def make_multilingual_encoder(seed: int = 0):
    model = make_encoder(seed)
    add_language_embeddings(model, ["en", "de"])
    torch.nn.init.normal_(model.embeddings.token_type_embeddings.weight)
    return model


def make_tokenizer(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]"):
    letters = "abcdefghijklmnopqrstuvwxyzäöüß0123456789.,!?'-"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters)]
    pieces += ["the", "cat", "dog", "house", "haus", "kat", "hund"]
    pieces += ["##ze", "##es", "##ing", "open", "file", "da", "##tei"]
    tokenizer = Tokenizer(models.WordPiece({p: i for i, p in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def byte_level(lines, pre_tokenizer=None):
    """Return a byte-level BPE tokenizer trained on some lines, in which a blank belongs to the word after it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>")


def train_unigram(texts, size):
    """Return a Unigram tokenizer with the frame of XLM-R's; ids differ a little each time that it is trained."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = SPLIT_AT_BLANKS
    options = {"special_tokens": specials, "unk_token": "<unk>", "show_progress": False}
    backend.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, **options))
    return roberta_tokenizer(backend, specials, 512)


TWO_SEPARATORS = "[CLS] $A [SEP] [SEP] $B [SEP]"


def make_encoder(seed: int = 0, layers: int = 2, dropout: float = 0.0, types: int = 2, hidden: int = 16):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=160,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        type_vocab_size=types,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.2,
    )
    return BertModel(config, add_pooling_layer=False)


SENTENCES = [
    ("die katze sieht den hund", "the cat sees the dog", [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]]),
    ("das haus ist offen", "the house is open", [[0, 0], [1, 1], [2, 2], [3, 3]]),
    ("datei öffnen", "open file", [[0, 1], [1, 0]]),
    ("der hund schläft", "the dog is sleeping", [[0, 0], [1, 1], [2, 3]]),
    ("alle dateien löschen", "delete all files", [[0, 1], [1, 2], [2, 0]]),
    ("kein haus", "no house", [[0, 0], [1, 1]]),
    ("der kleine hund und die große katze spielen", "the small dog and the big cat play", [[i, i] for i in range(8)]),
    ("speichern unter", "save as", [[0, 0], [1, 1]]),
]


def make_links(n: int = 8, languages=("de",)):
    """Linked pairs of English with these languages, in turn."""
    made = _linked(n, tuple(languages))
    return Dataset(made.data, fingerprint=made._fingerprint)


@cache  # the fingerprint of a new table takes longer than its rows
def _linked(n, languages):
    rows = [SENTENCES[i % len(SENTENCES)] for i in range(n)]
    return Dataset.from_dict(
        {
            "source": [s for s, _, _ in rows],
            "target": [t for _, t, _ in rows],
            "source_lang": [languages[i % len(languages)] for i in range(n)],
            "target_lang": ["en"] * n,
            "source_words": [s.split() for s, _, _ in rows],
            "target_words": [t.split() for _, t, _ in rows],
            "links": [links for _, _, links in rows],
        }
    )
