"""Words to tokens, and pairs to batches."""

from __future__ import annotations

import pytest
import torch
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.data.collators import PairCollator
from hf_xalign.data.encoding import encode_pairs, tokenize_words, word_tokenizer
from hf_xalign.errors import InputError


def xlmr_like():
    """A unigram tokenizer that puts a lone word-boundary mark before pieces that have none of their own."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁the", "cat", "▁ca", "t", "."]
    tokenizer = Tokenizer(models.Unigram([(p, -1.0) for p in pieces], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", cls_token="<s>", sep_token="</s>", unk_token="<unk>"
    )


def test_spans_are_the_words_tokens():
    tokenizer = make_tokenizer()
    words = ["die", "katze", "öffnen", "the"]
    encoded = tokenize_words(tokenizer, [words])
    alone = [tokenizer(word, add_special_tokens=False).input_ids for word in words]
    for (start, end), ids in zip(encoded.spans[0], alone, strict=True):
        assert encoded.input_ids[0][start:end] == ids
    assert encoded.spans[0][0, 0] == 1


def test_a_lone_boundary_mark_is_not_the_word():
    tokenizer = xlmr_like()
    words = ["the", ".", "▁"]
    encoded = tokenize_words(tokenizer, [words])
    tokens = tokenizer.convert_ids_to_tokens(encoded.input_ids[0])
    found = ["".join(tokens[start:end]) for start, end in encoded.spans[0]]
    assert tokens == ["<s>", "▁the", "▁", ".", "▁", "</s>"] or "▁" in tokens
    assert found[:2] == ["▁the", "."]
    assert found[2] == "▁"


def test_byte_level_words_keep_their_blank():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(["the cat the cat a cat the"] * 50, trainers.BpeTrainer(vocab_size=300))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    ids = tokenize_words(word_tokenizer(tokenizer), [["the", "cat"]]).input_ids[0]
    assert tokenizer.convert_ids_to_tokens(ids) == ["Ġthe", "Ġcat"]
    assert not tokenizer.backend_tokenizer.pre_tokenizer.add_prefix_space


def test_truncation_drops_links_and_pairs(caplog):
    links = make_links(7)
    full = encode_pairs(links, make_tokenizer())
    with caplog.at_level("INFO"):
        cut = encode_pairs(links, make_tokenizer(), max_length=6)
    assert len(cut) < len(full)
    assert f"{len(full) - len(cut)} of {len(full)} pairs dropped" in caplog.text
    for row in cut:
        assert len(row["source_ids"]) <= 6
        assert row["source_ids"][-1] == 3
        for i, j in row["links"]:
            for side, word in (("source", i), ("target", j)):
                start, end = row[f"{side}_starts"][word], row[f"{side}_ends"][word]
                assert 0 < start < end <= 5


def test_a_word_cut_in_half_has_no_span():
    encoded = tokenize_words(make_tokenizer(), [["die", "öffnen"]], max_length=6)
    assert encoded.spans[0][1].tolist() == [0, 0]
    assert len(encoded.input_ids[0]) == 6


def test_no_link_left_is_an_error():
    with pytest.raises(InputError, match="no pair keeps a word link"):
        encode_pairs(make_links(3), make_tokenizer(), max_length=3)


def test_a_link_out_of_range_names_the_row():
    links = make_links(3).map(lambda row, k: {"links": [[0, 99]] if k == 1 else row["links"]}, with_indices=True)
    with pytest.raises(InputError, match="row 1: a link points outside"):
        encode_pairs(links, make_tokenizer())


def test_missing_columns_are_named():
    with pytest.raises(InputError, match=r"no column links.*align_words"):
        encode_pairs(make_links(3).remove_columns("links"), make_tokenizer())


def test_subword_links_are_links_of_tokens():
    tokenizer = make_tokenizer()
    links = make_links(4).map(
        lambda row: {
            "source_words": tokenizer.tokenize(row["source"]),
            "target_words": tokenizer.tokenize(row["target"]),
            "links": [[0, 0]],
        }
    )
    row = encode_pairs(links, tokenizer, subword_links=True)[0]
    assert row["source_ids"] == tokenizer(links[0]["source"]).input_ids
    assert row["source_starts"][:3] == [1, 2, 3] and row["source_ends"][:3] == [2, 3, 4]


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
@pytest.mark.parametrize("linked_tokens", ["words", "cls", "cls_sep", "all"])
def test_batches_hold_the_linked_words(pooling, linked_tokens):
    """Every link of every row, found back through the batch's indices, pools the right tokens."""
    tokenizer, encoder = make_tokenizer(), make_encoder().eval()
    rows = list(encode_pairs(make_links(5), tokenizer))
    batch = PairCollator(tokenizer.pad_token_id, pooling, linked_tokens=linked_tokens)(rows)
    with torch.no_grad():
        hidden = encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    tokens = hidden.flatten(0, 1)[batch["token_index"]]
    if pooling == "mean":
        words = [tokens[batch["token_word"] == w].mean(0) for w in range(len(batch["token_counts"]))]
    else:
        words = list(tokens)
    expected = []
    for k, row in enumerate(rows):
        last = {"source": len(row["source_ids"]) - 1, "target": len(row["target_ids"]) - 1}
        pairs = [(("w", i), ("w", j)) for i, j in row["links"]] if linked_tokens in ("words", "all") else []
        pairs += [(("cls", 0), ("cls", 0))] if linked_tokens != "words" else []
        pairs += [(("sep", 0), ("sep", 0))] if linked_tokens in ("cls_sep", "all") else []
        for pair in pairs:
            vectors = []
            for side, half, (kind, word) in zip(("source", "target"), (0, 5), pair, strict=True):
                start, end = {"cls": (0, 1), "sep": (last[side], last[side] + 1)}.get(kind, (None, None))
                if start is None:
                    start, end = row[f"{side}_starts"][word], row[f"{side}_ends"][word]
                span = hidden[half + k, start:end]
                vectors.append({"first": span[0], "last": span[-1], "mean": span.mean(0)}[pooling])
            expected.append(vectors)
    assert len(expected) == len(batch["links"])
    for (i, j), (source, target) in zip(batch["links"].tolist(), expected, strict=True):
        torch.testing.assert_close(words[i], source)
        torch.testing.assert_close(words[j], target)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("which", ["all", "linked"])
def test_kept_words_are_those_of_one_side(side, which):
    tokenizer = make_tokenizer()
    rows = list(encode_pairs(make_links(5), tokenizer))
    batch = PairCollator(tokenizer.pad_token_id, "last", regularized_side=side, regularized_words=which)(rows)
    column = 0 if side == "source" else 1
    words = 0
    for row in rows:
        linked = {link[column] for link in row["links"]}
        words += len(linked) if which == "linked" else len(row[f"{side}_starts"])
    assert len(batch["kept_words"]) == words
    assert torch.equal(batch["kept_words"][batch["kept_links"]], batch["links"][:, column])
    tokens = batch["token_index"][batch["kept_words"]]
    ids = batch["input_ids"].flatten()[tokens]
    assert torch.equal(ids, batch["kept_ids"].flatten()[batch["kept_index"]])
