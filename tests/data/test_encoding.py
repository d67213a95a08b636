"""Words to tokens and their spans, for every kind of tokenizer, and under truncation."""

import logging
import re

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import make_links
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from hf_xalign.data.encoding import encode_pairs, tokenize_words, word_tokenizer
from hf_xalign.data.words import split_words, splitter_version
from hf_xalign.errors import InputError


def unigram():
    """Return a tokenizer that puts a lone word-boundary mark before pieces that have none of their own."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁the", "cat", "▁ca", "t", "."]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def test_a_lone_boundary_mark_is_not_the_word():
    tokenizer = unigram()
    encoded = tokenize_words(tokenizer, [["the", ".", "▁"]])
    tokens = tokenizer.convert_ids_to_tokens(encoded.input_ids[0])
    assert tokens == ["<s>", "▁the", "▁", ".", "▁", "</s>"]
    assert encoded.spans[0].tolist() == [[1, 2], [3, 4], [4, 5]]


def test_byte_level_words_keep_their_blank():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(["the cat the cat a cat the"] * 50, trainers.BpeTrainer(vocab_size=300))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    ids = tokenize_words(word_tokenizer(tokenizer), [["the", "cat"]]).input_ids[0]
    assert tokenizer.convert_ids_to_tokens(ids) == ["Ġthe", "Ġcat"]
    assert not tokenizer.backend_tokenizer.pre_tokenizer.add_prefix_space


def slow_pair(row, tokenizer, limit):
    """Return the sentences' ids, the kept links and their words as token ids, one call of the tokenizer a word."""
    words = (row["source_words"], row["target_words"])
    sides = [[tokenizer(word, add_special_tokens=False).input_ids for word in side] for side in words]
    ids = [[2, *[token for word in words for token in word][: limit - 2], 3] for words in sides]
    whole = [sum(len(word) for word in words[: k + 1]) <= limit - 2 for words in sides for k in range(len(words))]
    fits = whole[: len(sides[0])], whole[len(sides[0]) :]
    kept = [[i, j] for i, j in row["links"] if fits[0][i] and fits[1][j] and sides[0][i] and sides[1][j]]
    return ids, kept, [(sides[0][i], sides[1][j]) for i, j in kept]


@st.composite
def parallel_rows(draw):
    """Draw word-aligned pairs; a word of a blank alone has no token."""
    words = st.lists(st.sampled_from(["the", "katze", "öffnen", "a", "x-y", " ", "houses"]), min_size=1, max_size=6)
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        source, target = draw(words), draw(words)
        link = st.tuples(st.integers(0, len(source) - 1), st.integers(0, len(target) - 1)).map(list)
        links = draw(st.lists(link, min_size=1, max_size=5))
        rows.append({"source_words": source, "target_words": target, "links": links})
    return rows


def test_kept_links_decode_to_their_words_under_truncation(tokenizer, caplog):
    """Links of words that were cut are dropped, pairs without a link are dropped and counted."""
    caplog.set_level(logging.INFO)

    @settings(max_examples=60)
    @given(parallel_rows(), st.integers(3, 20))
    def check(rows, limit):
        caplog.clear()
        expected = [slow_pair(row, tokenizer, limit) for row in rows]
        left = [found for found in expected if found[1]]
        dataset = Dataset.from_list([{**row, "source_lang": f"l{k}"} for k, row in enumerate(rows)])
        if not left:
            with pytest.raises(InputError, match="no pair keeps a word link after encoding"):
                encode_pairs(dataset, tokenizer, max_length=limit)
            return
        encoded = encode_pairs(dataset, tokenizer, max_length=limit)
        assert encoded["source_lang"][:] == [f"l{k}" for k, found in enumerate(expected) if found[1]]
        for row, (ids, links, words) in zip(encoded, left, strict=True):
            assert [row["source_ids"], row["target_ids"]] == ids and row["links"] == links
            assert row["length"] == max(map(len, ids)) <= limit
            for (i, j), pair in zip(links, words, strict=True):
                for side, word, tokens in (("source", i, pair[0]), ("target", j, pair[1])):
                    start, end = row[f"{side}_starts"][word], row[f"{side}_ends"][word]
                    assert row[f"{side}_ids"][start:end] == tokens != []
            spans = zip(row["source_starts"] + row["target_starts"], row["source_ends"] + row["target_ends"])
            assert all((start, end) == (0, 0) or 0 < start < end < limit for start, end in spans)
        counts = re.findall(r"(\d+) of (\d+) pairs dropped: no link left after truncation", caplog.text)
        dropped = len(rows) - len(left)
        assert counts == ([(str(dropped), str(len(rows)))] if dropped else [])

    check()


def test_subword_links_are_links_of_tokens(tokenizer):
    links = make_links(4).map(
        lambda row: {f"{side}_words": tokenizer.tokenize(row[side]) for side in ("source", "target")}
    )
    row = encode_pairs(links, tokenizer, subword_links=True)[0]
    assert row["source_ids"] == tokenizer(links[0]["source"]).input_ids
    assert row["source_starts"][:3] == [1, 2, 3] and row["source_ends"][:3] == [2, 3, 4]
    cut = encode_pairs(links, tokenizer, subword_links=True, max_length=5)[0]
    assert cut["source_ids"] == [*row["source_ids"][:4], 3] and cut["source_ends"][:5] == [2, 3, 4, 0, 0]


# ---- Words ----


def test_words_of_each_script():
    for lang, text, expected in (
        ("de", "Öffne die Datei, bitte!", ["Öffne", "die", "Datei", ",", "bitte", "!"]),
        ("en", "don't open l’eau 'now'", ["don't", "open", "l’eau", "'", "now", "'"]),
        ("de", "E-Mail -- und...", ["E", "-", "Mail", "--", "und", "..."]),
        ("en", "1,000.5GB, 3.5. v2", ["1,000.5GB", ",", "3.5", ".", "v2"]),
        ("bn", "বাংলাদেশের মানুষ।", ["বাংলাদেশের", "মানুষ", "।"]),
        ("hi", "यह हिन्दी है", ["यह", "हिन्दी", "है"]),
        ("fa", "می\u200cخواهم", ["می\u200cخواهم"]),  # zero-width non-joiner inside a word
        ("bn", "ক্\u200dষ", ["ক্\u200dষ"]),  # zero-width joiner
        ("de", "Da\u00adtei", ["Da\u00adtei"]),
        ("zh", "我喜欢iPhone 15。2023年", ["我", "喜", "欢", "iPhone", "15", "。", "2023", "年"]),
        ("ja", "コンピュータを使って", ["コンピュータ", "を", "使", "って"]),
        ("ko", "한국어 단어", ["한국어", "단어"]),
        ("en", "a\u200bb \u200e\u00a0c\n", ["a", "b", "c"]),  # invisible characters part words and are none
        ("en", "❤️👨‍👩‍👧 ok", ["❤️", "👨‍👩‍👧", "ok"]),
        ("xx", "", []),
        ("xx", " \u00a0\t", []),
    ):
        assert split_words(text, lang) == expected, text
    text = "Ünï: «100 %» {name}_x <b>C++</b> ক্ষ 漢字かな — ok…"
    assert "".join(split_words(text, "de")) == "".join(text.split())


def test_thai_is_segmented_and_other_scripts_in_it_are_left():
    pytest.importorskip("pythainlp")
    assert split_words("ฉันรักแมว Chrome 2.0", "tha_Thai") == ["ฉัน", "รัก", "แมว", "Chrome", "2.0"]
    assert "pythainlp" in splitter_version(["de", "th"])
    assert "pythainlp" not in splitter_version(["de", "en"])
