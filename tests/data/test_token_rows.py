"""Words, sentences, pairs and rows of text as token ids."""

import logging
import re
from functools import partial

import numpy as np
import pytest
from datasets import Dataset, concatenate_datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from support.text import bitext, letters, sized
from support.tiny import TWO_SEPARATORS, byte_level, make_links, make_tokenizer
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, PreTrainedTokenizerFast

from hf_xalign.data.encoding import check_pieces, encode_pairs, tokenize_words, word_tokenizer
from hf_xalign.data.pretraining.rows import (
    ENTRIES_FILE,
    TokenEntries,
    count_tokens,
    encode_pretraining,
    encode_sentence_pairs,
)
from hf_xalign.data.words import lettered_words, split_words, splitter_version
from hf_xalign.errors import InputError


def telugu(unknown, count=100):
    """Pairs whose source has so many words, of which the tokenizer of [`wordlevel`] does not know `unknown`."""
    words = ["ఇల్లు"] * (count - unknown) + ["కుక్క"] * unknown
    return bitext(*((word, "the house") for word in words), langs=["te"])


def wordlevel():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "house", "haus", "ఇల్లు"]
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.model = models.WordLevel({piece: k for k, piece in enumerate(pieces)}, "[UNK]")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


@pytest.mark.parametrize(("unknown", "outcome"), [(0, ""), (1, ""), (2, "2%"), (16, "16%"), (29, "29%"), (30, "30%")])
def test_words_with_unknown_pieces_are_counted_by_language(unknown, outcome, caplog):
    german = bitext(*[("haus", "the house")] * 3000)
    tokenizer = wordlevel()
    for parts in ([german, telugu(unknown)], [telugu(unknown), german]):
        if unknown < 30:
            check_pieces(concatenate_datasets(parts), tokenizer, "pairs.tsv")
        else:
            with pytest.raises(InputError, match=r"pairs.tsv, source: 30% of the words in te .*\(కుక్క\).* te=FILE"):
                check_pieces(concatenate_datasets(parts), tokenizer, "pairs.tsv")
    said = [record.message for record in caplog.records]
    assert len(said) == (len(outcome) > 0 and unknown < 30)
    assert all(f"{outcome} of the words in te" in one and "extend-vocabulary MODEL te=FILE" in one for one in said)


def test_scripts_without_blanks_are_counted_by_letter():
    assert lettered_words("ເປີດ 7 ! ok") == ["ເ", "ປີ", "ດ", "7", "ok"]
    assert lettered_words("我喜欢iPhone。") == ["我", "喜", "欢", "iPhone"]
    assert lettered_words(["New York", "--"]) == ["New York"]


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


def bytes_of_words(split=False):
    words = pre_tokenizers.Split(Regex(r" ?\p{L}+|\s+"), "isolated")
    no_regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = ["the cat the cat a cat the"] * 50
    return byte_level(text, pre_tokenizers.Sequence([words, no_regex]) if split else None)


def gemma():
    """Return a tokenizer of Gemma's and mmBERT's kind, which writes blanks as marks of word boundaries."""
    pieces = ["<unk>", *"thecatr▁", "th", "the", "ca", "cat", "▁the", "▁cat"]
    merges = [("t", "h"), ("th", "e"), ("c", "a"), ("ca", "t"), ("▁", "the"), ("▁", "cat")]
    vocabulary = {piece: k for k, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize("make", [bytes_of_words, partial(bytes_of_words, split=True), gemma])
def test_words_keep_the_blank_before_them(make):
    tokenizer, mark = make(), "▁" if make is gemma else "Ġ"
    encoded = tokenize_words(word_tokenizer(tokenizer), [["the", "cat"]])
    assert tokenizer.convert_ids_to_tokens(encoded.input_ids[0]) == [f"{mark}the", f"{mark}cat"]
    assert encoded.spans[0].tolist() == [[0, 1], [1, 2]]
    # A copy was changed, not the tokenizer that is saved.
    assert tokenizer.convert_ids_to_tokens(tokenizer("the cat").input_ids) == ["the", f"{mark}cat"]


def test_a_lone_mark_of_bytes_is_no_part_of_a_word():
    backend = Tokenizer(models.BPE({letter: k for k, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = word_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))
    encoded = tokenize_words(tokenizer, [["ab", "Ġ", "é"]])
    assert tokenizer.convert_ids_to_tokens(encoded.input_ids[0]) == [*"ĠabĠÄłĠÃ©"]
    assert encoded.spans[0].tolist() == [[1, 3], [4, 6], [7, 9]]


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
    caplog.set_level(logging.INFO)

    @settings(max_examples=15)
    @given(parallel_rows(), st.integers(3, 20))
    def check(rows, limit):
        caplog.clear()
        expected = [slow_pair(row, tokenizer, limit) for row in rows]
        left = [found for found in expected if found[1]]
        dataset = Dataset.from_list([{**row, "source_lang": f"l{k}"} for k, row in enumerate(rows)])
        if not left:
            with pytest.raises(InputError, match="no pair keeps a word link"):
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
        counts = re.findall(r"(\d+) of (\d+) pairs dropped: no link left in", caplog.text)
        dropped = len(rows) - len(left)
        assert counts == ([(str(dropped), str(len(rows)))] if dropped else [])

    check()


def test_subword_links_are_links_of_tokens(tokenizer):
    links = make_links(4).map(lambda row: {f"{s}_words": tokenizer.tokenize(row[s]) for s in ("source", "target")})
    row = encode_pairs(links, tokenizer, subword_links=True)[0]
    assert row["source_ids"] == tokenizer(links[0]["source"]).input_ids
    assert row["source_starts"][:3] == [1, 2, 3] and row["source_ends"][:3] == [2, 3, 4]
    cut = encode_pairs(links, tokenizer, subword_links=True, max_length=5)[0]
    assert cut["source_ids"] == [*row["source_ids"][:4], 3] and cut["source_ends"][:5] == [2, 3, 4, 0, 0]


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
        ("he", 'צה"ל אמר "שלום"', ['צה"ל', "אמר", '"', "שלום", '"']),
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


# ---- Rows of text: packing, framing, cutting and counts ----


CONFIG = BertConfig(max_position_embeddings=64)
COUNTERPARTS = np.stack([np.arange(5, 105), np.arange(105, 205)], axis=1)
WORDS = [("house", "haus"), ("cat", "kat"), ("dog", "hund"), ("the", "der"), ("opening", "da"), ("dog", "漢")]
WORDS += [("漢字", "opening"), ("open file", "da"), ("house", "house"), ("Cat", "KAT"), ("cat", "da")]


def random_text(count, seed=0, longest=20):
    sizes = np.random.default_rng(seed).integers(0, longest, size=count).tolist()
    return Dataset.from_dict({"text": [letters(size, seed + k) for k, size in enumerate(sizes)]})


def loop_rows(sentences, room):
    """Return token lists packed one sentence after another, long ones cut."""
    rows = [[]]
    for piece in (s[start : start + room] for s in sentences for start in range(0, len(s), room)):
        if rows[-1] and len(rows[-1]) + len(piece) > room:
            rows.append([])
        rows[-1] = rows[-1] + piece
    return rows


def test_words_are_tokenized_as_they_are_split(tokenizer):
    words = [["the", "cat-dog"], [], ["haus", "öffnen"]]
    corpus = Dataset.from_dict({"words": words, "text": ["x", "y", "z"]})
    rows, counts = encode_pretraining({"en": corpus}, tokenizer, CONFIG, block_size=40)
    whole = tokenizer([word for sentence in words for word in sentence], is_split_into_words=True).input_ids
    assert rows["input_ids"][:] == [whole] and counts["en"].endswith(" of 3 sentences (1 left out)")


@pytest.mark.parametrize("block_size", [5, 13, 64])
def test_rows_against_a_loop(block_size, tokenizer):
    corpora = {"en": random_text(1100), "de": random_text(120, seed=9, longest=30)}  # `map` takes 1000 at once
    rows, counts = encode_pretraining(corpora, tokenizer, CONFIG, block_size=block_size)
    expected, codes = [], []
    for code, corpus in corpora.items():
        sentences = tokenizer(corpus["text"][:], add_special_tokens=False).input_ids
        own = loop_rows(sentences, block_size - 2)
        expected += [[2, *row, 3] for row in own]
        codes += [code] * len(own)
        left_out, cut = sum(not s for s in sentences), sum(len(s) > block_size - 2 for s in sentences)
        rest = ", ".join(f"{count} {name}" for name, count in (("left out", left_out), ("cut", cut)) if count)
        line = f"{len(own):,} rows, {sum(map(len, sentences)):,} tokens of {len(corpus):,} sentences"
        assert counts[code] == (f"{line} ({rest})" if rest else line)
    assert rows["input_ids"][:] == expected
    assert rows["source_lang"][:] == codes and rows["languages"][:] == [[code] for code in codes]
    assert rows["length"][:] == [len(row) for row in expected] == [part for (part,) in rows["parts"]]
    assert rows["example"][:] == list(range(len(expected)))


def test_long_sentences_are_left_out(tokenizer):
    corpus = random_text(300)
    rows, counts = encode_pretraining({"en": corpus}, tokenizer, CONFIG, block_size=12, long_sentences="drop")
    sentences = tokenizer(corpus["text"][:], add_special_tokens=False).input_ids
    kept = [ids for ids in sentences if 0 < len(ids) <= 10]
    assert rows["input_ids"][:] == [[2, *row, 3] for row in loop_rows(kept, 10)] and 100 < len(kept) < 200
    made = f"{len(rows)} rows, {sum(map(len, kept)):,} tokens of 300 sentences"
    assert counts["en"] == f"{made} ({300 - len(kept)} left out)"
    with pytest.raises(InputError, match="the corpus of en has no text of at most 1 tokens in its 2 rows"):
        long = Dataset.from_dict({"text": ["the cat"] * 2})
        encode_pretraining({"en": long}, tokenizer, CONFIG, block_size=3, long_sentences="drop")


# A pair's template, and the special tokens in it.
PAIRS = [({}, 3), ({"pair": TWO_SEPARATORS}, 4)]


@pytest.mark.parametrize(("template", "specials"), PAIRS)
def test_first_halves_are_padded(template, specials):
    tokenizer = make_tokenizer(**template)
    pairs = sized(*np.random.default_rng(2).integers(1, 7, size=(60, 2)).tolist())
    options = {"block_size": 14 + specials, "pairs": pairs, "pair_share": 9.0}
    packed, counts = encode_pretraining({"en": random_text(20)}, tokenizer, CONFIG, **options)
    rows, same = encode_pretraining({"en": random_text(20)}, tokenizer, CONFIG, **options, pair_halves="padded")
    assert same == counts and rows["length"][:] == packed["length"][:]
    for row, plain in zip(rows, packed, strict=True):
        first = plain["parts"][0]
        if len(plain["parts"]) == 2:
            begin = 7 + specials - 1
            padding = [tokenizer.pad_token_id] * (begin - first)
            assert row["parts"] == [begin, plain["parts"][1]]
            assert row["input_ids"] == [*plain["input_ids"][:first], *padding, *plain["input_ids"][first:]]
        else:
            assert row == plain


@pytest.mark.parametrize(("template", "specials"), PAIRS)
def test_pair_rows_are_those_the_tokenizer_makes(template, specials):
    tokenizer = make_tokenizer(**template)
    sizes = [(int(s), int(t)) for s, t in np.random.default_rng(2).integers(1, 9, size=(60, 2))]
    sizes[5], sizes[6] = (15, 3), (0, 2)
    pairs = sized(*sizes)
    options = {"block_size": 29 + specials, "pairs": pairs, "pair_share": 9.0}
    rows, counts = encode_pretraining({"en": random_text(100)}, tokenizer, CONFIG, **options)
    assert rows["example"][:] == list(range(len(rows)))
    own = [row for row in pairs if 0 < len(row["source"].split()) < 15]
    left = [row for row in rows if row["source_lang"] == "en+de"]
    expected = [("", "")]
    for row in own:
        added = zip(expected[-1], (row["target"], row["source"]), strict=True)
        longer = tuple(f"{side} {more}".strip() for side, more in added)
        if max(len(side.split()) for side in longer) <= 14:
            expected[-1] = longer
        else:
            expected.append((row["target"], row["source"]))
    assert [row["input_ids"] for row in left] == [tokenizer(*sides).input_ids for sides in expected]
    parts = [[len(target.split()) + specials - 1, len(source.split()) + 1] for target, source in expected]
    assert [(row["parts"], row["languages"]) for row in left] == [(own, ["en", "de"]) for own in parts]
    tokens = sum(len(row[side].split()) for row in own for side in ("source", "target"))
    assert counts["en+de"] == f"{len(left)} rows, {tokens} tokens of 60 sentences (2 left out)"


def test_share_of_pair_rows(tokenizer, caplog):
    corpora = {"en": random_text(200), "de": random_text(200, seed=1)}
    pairs = sized(*[(6, 6)] * 400)

    def encode(**options):
        rows, counts = encode_pretraining(corpora, tokenizer, CONFIG, block_size=16, pairs=pairs, **options)
        paired = sum(len(parts) == 2 for parts in rows["parts"])
        made = f"{paired} rows, {12 * paired:,} tokens of 400 sentences"
        beyond = f" ({400 - paired} rows beyond pair share)" if paired < 400 else ""
        assert counts["en+de"] == made + beyond
        return rows.to_list(), paired

    rows, paired = encode()
    plain = len(rows) - paired
    assert paired == round(0.25 * plain) < 200
    other = encode(seed=1)[0]
    assert rows == encode()[0] != other and rows[:plain] == other[:plain]
    with caplog.at_level(logging.WARNING):
        assert encode(pair_share=3.0)[1] == 400
    assert f"400 TLM rows, of {round(3 * plain)}" in caplog.text


def test_ids_are_the_tokenizers(tokenizer):
    dataset = bitext(("die katze, öffnen!", "the cat opening"), ("datei", "file it"))
    encoded = encode_sentence_pairs(dataset, tokenizer, min_tokens=1, max_tokens=60)
    for number, (row, text) in enumerate(zip(encoded, dataset, strict=True)):
        ids = {f"{side}_ids": tokenizer(text[side]).input_ids[1:-1] for side in ("source", "target")}
        languages = {"source_lang": "de", "target_lang": "en"}
        assert row == {**ids, "length": sum(map(len, ids.values())), **languages, "pair": number}


def test_filters_of_the_paper(caplog):
    """Just long enough, just short enough, and too short on one side counted before too long."""
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    sizes = ((9, 20), (20, 9), (10, 10), (120, 9), (64, 64), (118, 10), (64, 65), (0, 30))
    with caplog.at_level(logging.INFO):
        encoded = encode_sentence_pairs(sized(*sizes, langs=("de", "bn")), tokenizer)
    assert encoded["pair"][:] == [2, 4, 5] and encoded["length"][:] == [20, 128, 128]
    assert "dropped 5 of 8 pairs: 4 pairs have fewer than 10 tokens on a side, 1 more than 128" in caplog.text


def test_the_models_limit_holds_and_numbers_do_not_move_with_the_filters(tokenizer):
    """The tiny tokenizer takes 64 tokens, 3 of them special."""
    encoded = encode_sentence_pairs(sized((30, 31), (31, 31)), tokenizer)
    assert encoded["length"][:] == [61]
    encoded = encode_sentence_pairs(sized(*((k, 10) for k in range(1, 15))), tokenizer, min_tokens=9)
    assert encoded["pair"][:] == [length - 11 for length in encoded["length"]] == list(range(8, 14))


def test_tokens_are_counted_on_both_sides_of_the_pairs_left(tokenizer):
    encoded = encode_sentence_pairs(sized((3, 2), (9, 1), (2, 4)), tokenizer, min_tokens=2)
    tokens = [token for row in encoded for token in row["source_ids"] + row["target_ids"]]
    assert count_tokens(encoded, len(tokenizer)).tolist() == [tokens.count(token) for token in range(len(tokenizer))]


def test_a_share_of_the_counterparts():
    entries = TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=3)
    assert len(entries) == 25 and entries.origin == "25 of 100 pieces of a derived vocabulary"
    assert (entries.ids[:, 1] - entries.ids[:, 0] == 100).all() and (np.diff(entries.ids[:, 0]) > 0).all()
    assert (TokenEntries.from_counterparts(COUNTERPARTS, share=0.25, seed=4).ids != entries.ids).any()
    larger = TokenEntries.from_counterparts(COUNTERPARTS, share=0.5, seed=3)
    assert len(larger) == 50 and set(entries.ids[:, 0]) < set(larger.ids[:, 0])


def test_words_of_one_piece_are_entries(tokenizer, caplog):
    entries = TokenEntries.from_dictionary(WORDS, tokenizer, name="en-xx.txt")
    pieces = [tuple(tokenizer.convert_ids_to_tokens(row)) for row in entries.ids]
    assert pieces == [("house", "haus"), ("cat", "kat"), ("dog", "hund"), ("cat", "da")]
    assert entries.origin == "en-xx.txt: 4 of the 4 entries with one piece for each word, of 11 in all"
    assert "en-xx.txt: 5 of 11 entries have no one piece for each word: " in caplog.text
    half = TokenEntries.from_dictionary(WORDS, tokenizer, share=0.5, seed=1)
    assert len(half) == 2 and {tuple(row) for row in half.ids} < {tuple(row) for row in entries.ids}


def test_pieces_are_those_at_the_start_of_a_word():
    """`t` is `▁`, `t`; `cat` and `he` are two pieces."""
    for tokenizer, words, expected in (
        (unigram(), [("the", "ca"), ("t", "the"), ("cat", "the")], ["▁the", "▁ca"]),
        (bytes_of_words(), [("the", "cat"), ("he", "a")], ["Ġthe", "Ġcat"]),
    ):
        entries = TokenEntries.from_dictionary(words, tokenizer)
        assert [tokenizer.convert_ids_to_tokens(row) for row in entries.ids] == [expected]


def test_same_after_saving(tmp_path):
    given = {"name": "wörter.txt", "share": 0.75, "seed": 2, "languages": ("en", "de")}
    words = TokenEntries.from_dictionary(WORDS, make_tokenizer(), **given)
    for entries in (TokenEntries.from_counterparts(COUNTERPARTS, seed=8), words):
        path = entries.save(tmp_path / "model")
        assert [file.name for file in path.parent.iterdir()] == [ENTRIES_FILE]
        again = TokenEntries.load(tmp_path / "model")
        assert again.ids.dtype == np.int64 and np.array_equal(again.ids, entries.ids)
        for name in ("origin", "share", "seed", "languages"):
            assert getattr(again, name) == getattr(entries, name)
