"""Vocabularies: trained, cut, and copied into another script so that both are cut alike."""

import numpy as np
import pytest
from support.tiny import make_encoder
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast

from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.derived.transliteration import Alphabet
from hf_xalign.data.derived.vocabulary import extend_tokenizer
from hf_xalign.data.embedded.charsmap import build_charsmap, composed_keys
from hf_xalign.data.parallel import load_parallel
from hf_xalign.data.pretraining.vocabulary import cut_tokenizer, train_tokenizer

ODD = ["The FILE: “don't” open (½ of it) ... №5 — 3.14%", "ﬁle naïve Ünïcode İx e-mail@x.org #hash ##s </w> 中文"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_XALIGN_CACHE", str(tmp_path_factory.mktemp("cache")))
        return [*load_parallel("embedded:de", split="test")["target"], *ODD]


def normalizing(kind, texts):
    """A tokenizer that maps characters as XLM-R's does: ligatures, fractions, quotes dropped."""
    tokenizer = train_tokenizer(texts, 700, kind=kind)
    charsmap = {**composed_keys(), "ﬁ": "fi", "½": "1/2", "“": "", "№": "No"}
    tokenizer.backend_tokenizer.normalizer = normalizers.Precompiled(build_charsmap(charsmap))
    return tokenizer


def bert(texts):
    """Lower-cased WordPiece that cuts punctuation off and strips accents."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted({c.lower() for text in texts for c in text if c.isascii() and not c.isspace()})
    pieces += [*letters, *("##" + c for c in letters), "the", "file", "##ile", "open", "##en", "##pen", "##net"]
    return BertTokenizer({piece: i for i, piece in enumerate(dict.fromkeys(pieces))})


def bpe_with_suffix(texts):
    """BPE with an end-of-word mark; words and runs of other characters are cut apart, digits one by one."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    options = {"special_tokens": ["<unk>", "<pad>"], "end_of_word_suffix": "</w>", "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400, **options))
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")


MAKERS = {
    "bpe": lambda texts: train_tokenizer(texts, 500),
    "unigram": lambda texts: train_tokenizer(texts, 700, kind="unigram"),
    "unigram with a character map": lambda texts: normalizing("unigram", texts),
    "bpe with a character map": lambda texts: normalizing("bpe", texts),
    "bpe with a suffix": bpe_with_suffix,
    "bert": bert,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_derived_text_is_cut_into_the_counterparts(kind, texts, tmp_path):
    natural = MAKERS[kind](texts)
    natural.add_tokens([AddedToken("<new>", special=True)])
    words = [text.split() for text in texts]
    alphabet = Alphabet.of((word for row in words for word in row), natural)
    both, counterparts = extend_tokenizer(natural, alphabet)
    assert counterparts.dtype == np.int64 and counterparts.shape == (len(both) - len(natural), 2)
    assert counterparts[:, 1].tolist() == list(range(len(natural), len(both)))
    added = set(natural.added_tokens_decoder) | {natural.unk_token_id}
    pieces = natural.convert_ids_to_tokens(range(len(natural)))
    marks = (lambda piece: piece.removeprefix("##")) if kind == "bert" else (lambda piece: piece.removesuffix("</w>"))
    copied = [i for i, piece in enumerate(pieces) if set(marks(piece)) & set(alphabet.characters) and i not in added]
    assert counterparts[:, 0].tolist() == copied
    assert len(copied) > 0.95 * len(natural) - len(added)

    twin = dict(counterparts.tolist())
    language = DerivedLanguage("en", ("inversion", "transliteration"), alphabet=alphabet)
    for row in words:
        assert both(row, is_split_into_words=True) == natural(row, is_split_into_words=True)
        reordered = natural([row[i] for i in language.order(row)], is_split_into_words=True)
        derived = both(language.words(row), is_split_into_words=True)
        assert derived["input_ids"] == [twin.get(i, i) for i in reordered["input_ids"]]
        assert derived.word_ids() == reordered.word_ids()

    both.save_pretrained(tmp_path)
    make_encoder().config.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == both.get_vocab()
    assert loaded.special_tokens_map == natural.special_tokens_map
    assert loaded.all_special_ids == natural.all_special_ids
    for row in [*words[:20], *words[-2:]]:
        given = [*row, *language.words(row)]
        assert loaded(given, is_split_into_words=True) == both(given, is_split_into_words=True)
    assert loaded("file", "open") == natural("file", "open")


def test_pieces_of_kept_characters_and_shared_words(texts):
    natural = train_tokenizer(texts, 500)
    alphabet = Alphabet("".join(sorted("abcdefgnopqrsu")))
    both, counterparts = extend_tokenizer(natural, alphabet)
    twin = dict(counterparts.tolist())
    mixed = DerivedLanguage("en", ("transliteration",), alphabet=alphabet, on_unknown="keep", shared=0.4)
    for word in " ".join(texts[:200]).split():
        ids, spelled = natural(word).input_ids, mixed.spell(word)
        assert both(spelled).input_ids == ([twin.get(i, i) for i in ids] if spelled != word else ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_trained(kind, texts, tmp_path):
    tokenizer = train_tokenizer(texts, 600, kind=kind, max_length=50)
    assert 300 < len(tokenizer) <= 600
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert tokenizer.decode(tokenizer("open", "open").input_ids).split() == ["<s>", "open</s></s>", "open</s>"]
    assert tokenizer.model_max_length == 50
    assert not any(3 in tokenizer(text).input_ids for text in texts)  # every character has a piece
    assert tokenizer("a <mask> b").input_ids.count(4) == 1
    assert tokenizer.decode(tokenizer(texts[0]).input_ids, skip_special_tokens=True) == texts[0]
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(texts).input_ids == tokenizer(texts).input_ids and loaded.mask_token_id == 4
    if kind == "bpe":
        assert train_tokenizer(texts, 600).get_vocab() == tokenizer.get_vocab()


def test_cut(texts, tmp_path):
    large = normalizing("unigram", texts)
    large.add_tokens([AddedToken("<mask2>", special=True)])
    sample = texts[:60]
    small, old_ids = cut_tokenizer(large, sample, 230)
    assert len(small) == len(old_ids) == 230
    assert large.convert_ids_to_tokens(old_ids.tolist()) == small.convert_ids_to_tokens(range(230))
    assert (np.diff(old_ids) > 0).all()
    assert old_ids[small.all_special_ids].tolist() == large.all_special_ids
    assert small.special_tokens_map == large.special_tokens_map and "<mask2>" in small.get_vocab()

    pieces = large.convert_ids_to_tokens(range(len(large)))
    kept = set(old_ids.tolist())
    counts = np.bincount(np.concatenate(large(sample, add_special_tokens=False).input_ids), minlength=len(large))
    single = {c for text in sample for c in large.backend_tokenizer.normalizer.normalize_str(text) if c != " "}
    must = {i for i, piece in enumerate(pieces) if len(piece.lstrip("▁")) <= 1 and set(piece) <= single | {"▁"}}
    must |= {large.convert_tokens_to_ids(token) for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<mask2>")}
    assert must <= kept
    chosen = kept - must
    assert min(counts[i] for i in chosen) >= max(counts[i] for i in set(range(len(large))) - kept) > 0
    # What stays whole has the ids that it had, by the map; what does not is cut further, and never unknown.
    for text in sample:
        before, after = large(text, text).input_ids, small(text, text).input_ids
        assert set(before) - kept or old_ids[after].tolist() == before
        assert small.unk_token_id not in after
    small.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)(sample).input_ids == small(sample).input_ids
    everything, old_ids = cut_tokenizer(large, texts, 10_000)
    assert len(everything) <= len(large) and everything(texts[0]).input_ids[0] == 0
