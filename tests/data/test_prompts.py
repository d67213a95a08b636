"""A prompt in the tokenizer: the ids of `prompt + text`, in every kind of post-processor, saved and exported."""

import json

import pytest
import torch
from support.tiny import SENTENCES, byte_level, make_encoder, make_tokenizer
from tokenizers import models, pre_tokenizers, processors
from transformers import AutoTokenizer

from hf_xalign import encode_sentences
from hf_xalign.data.encoding import (
    prompt_of,
    prompted,
    sentence_frame,
    set_prompt,
    special_frame,
    token_limit,
    tokenize_words,
)
from hf_xalign.errors import InputError
from hf_xalign.modeling.export import save_sentence_transformer
from hf_xalign.modeling.loading import load_tokenizer

KINDS = {
    "template": None,
    "bert": processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "roberta": processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "sequence": processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
            ),
        ]
    ),
    "bytes": processors.ByteLevel(trim_offsets=False),
}


def tokenizer_of(kind):
    tokenizer = make_tokenizer()
    if KINDS[kind]:
        tokenizer.backend_tokenizer.post_processor = KINDS[kind]
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_are_those_of_prompt_and_text(kind, tmp_path):
    plain, tokenizer = tokenizer_of(kind), set_prompt(tokenizer_of(kind), "file: ")
    for text in (text for row in SENTENCES for text in row[:2]):
        assert tokenizer(text).input_ids == plain(f"file: {text}").input_ids, kind
        assert tokenizer(text, "the cat").input_ids == plain(f"file: {text}", "the cat").input_ids
    words = ["open", "the", "house"]
    found, before = tokenize_words(tokenizer, [words]), tokenize_words(plain, [["file", ":", *words]])
    assert found.input_ids == before.input_ids and found.spans[0].tolist() == before.spans[0][2:].tolist()
    assert len(special_frame(tokenizer)[0]) == len(special_frame(plain)[0]) + len(plain.tokenize("file:"))
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert prompt_of(loaded) == "file: " and loaded("the cat").input_ids == tokenizer("the cat").input_ids
    assert prompt_of(set_prompt(loaded, "the ")) == "the "
    assert set_prompt(loaded, "")("the cat").input_ids == plain("the cat").input_ids and prompt_of(loaded) == ""


def test_sentences_with_a_prompt_of_their_own():
    model, tokenizer = make_encoder(), make_tokenizer()
    texts = ["the cat", "open the file"]
    expected = encode_sentences(model, tokenizer, [f"file: {text}" for text in texts])
    torch.testing.assert_close(encode_sentences(model, tokenizer, texts, prompt="file: "), expected)
    assert prompt_of(tokenizer) == ""
    set_prompt(tokenizer, "file: ")
    torch.testing.assert_close(encode_sentences(model, tokenizer, texts), expected)
    other = encode_sentences(model, tokenizer, texts, prompt="")
    assert not torch.allclose(other, expected) and prompt_of(tokenizer) == "file: "
    assert len(sentence_frame(tokenizer).before) == 1 + len(tokenizer("file:", add_special_tokens=False).input_ids)


def test_an_export_says_its_prompt_as_sentence_transformers_does(tmp_path):
    tokenizer = set_prompt(make_tokenizer(), "file: ")
    folder = save_sentence_transformer(make_encoder(), tokenizer, tmp_path / "st")
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert (settings["prompts"], settings["default_prompt_name"]) == ({"default": "file: "}, "default")
    assert prompt_of(AutoTokenizer.from_pretrained(folder)) == "" and prompt_of(tokenizer) == "file: "
    # The library's commands read it there, so that the export has the scores of its model.
    assert prompt_of(load_tokenizer(folder)) == "file: "


def test_prompts_that_a_tokenizer_cannot_keep():
    merged = make_tokenizer()
    merged.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(InputError, match=r"prompt='file': .* splits a text differently after the prompt than alone"):
        set_prompt(merged, "file")
    with pytest.raises(InputError, match=r"prompt='query: ': .* than alone \(.*\)\. Put it into the text"):
        set_prompt(byte_level(["query: a cat"]), "query: ")  # as in ModernBERT
    assert isinstance(merged.backend_tokenizer.model, models.WordPiece) and prompt_of(merged) == ""
    with pytest.raises(InputError, match=r"max_length=4: special tokens and prompt take 4\. .* shorten the prompt"):
        token_limit(set_prompt(make_tokenizer(), "file: "), 4)
    with pytest.raises(ZeroDivisionError), prompted(merged, "file: "):
        assert prompt_of(merged) == "file: " and 1 / 0
    assert prompt_of(merged) == ""
